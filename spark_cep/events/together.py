"""Which variables a conjunct may name together.

A conjunct that names a negated variable belongs to that NOT, so it may name two negated variables
only if both are in one negated group, and never variables of which no occurrence has both. Of a
repeated OR it may name the variables of one alternative, since no iteration has those of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from spark_cep.pattern import (
    AnyOf,
    Event,
    EventPatternNode,
    NoEvent,
    NoGroup,
    Repeat,
    children,
)

if TYPE_CHECKING:
    from spark_cep.expressions.conditions import Conjunct
    from spark_cep.expressions.problems import Problems


@dataclass(frozen=True)
class VariablePlace:
    """Where a variable stands. `negation`: the number of its NOT. `sides`: of each any_of around it
    within that NOT, or within a quantifier, the number of the any_of and of the part."""

    name: str
    negation: int | None = None
    sides: tuple[tuple[int, int], ...] = ()
    is_repeated: bool = False

    def excludes(self, other: VariablePlace) -> bool:
        """Whether no occurrence, and no iteration, has rows of both."""
        mine = dict(self.sides)
        return any(mine.get(choice, side) != side for choice, side in other.sides)


def variable_places(root: EventPatternNode) -> tuple[VariablePlace, ...]:
    """The place of each variable, from left to right."""
    return tuple(_places(root, VariablePlace(""), _Numbers()))


class _Numbers:
    def __init__(self) -> None:
        self._last = -1

    def next(self) -> int:
        self._last += 1
        return self._last


def _places(
    node: EventPatternNode, around: VariablePlace, numbers: _Numbers
) -> Iterator[VariablePlace]:
    if isinstance(node, Event):
        yield replace(around, name=node.name)
        return
    if isinstance(node, NoEvent | NoGroup):
        around = replace(around, negation=numbers.next())
    if isinstance(node, Repeat):
        around = replace(around, is_repeated=True)
    is_inner = around.is_repeated or around.negation is not None
    choice = numbers.next() if isinstance(node, AnyOf) and is_inner else None
    for side, child in enumerate(children(node)):
        sides = around.sides if choice is None else (*around.sides, (choice, side))
        yield from _places(child, replace(around, sides=sides), numbers)


def names_sound_variables(
    conjunct: Conjunct, places: Sequence[VariablePlace], problems: Problems
) -> bool:
    """Whether the variables of a conjunct may be in one; if not, that is a problem."""
    negated = [places[v] for v in sorted(conjunct.variables) if places[v].negation is not None]
    names = " and ".join(each.name for each in negated)
    if len({each.negation for each in negated}) > 1:
        problems.add(
            f"{conjunct.text} refers to more than one negated variable: {names}",
            conjunct.place,
            hint="write one condition for each negated variable, with variables that are not "
            "negated; only those of one group, no(seq(...)), may be in one condition",
        )
        return False
    for one, other in combinations(negated, 2):
        if one.excludes(other):
            problems.add(
                f"{conjunct.text} refers to {one.name} and {other.name}, alternatives of one NOT",
                conjunct.place,
                hint="no occurrence has both, so write one condition for each of them",
            )
            return False
    return _names_one_alternative(conjunct, places, problems)


def _names_one_alternative(
    conjunct: Conjunct, places: Sequence[VariablePlace], problems: Problems
) -> bool:
    repeated = [places[v] for v in sorted(conjunct.variables)]
    repeated = [each for each in repeated if each.is_repeated and each.sides]
    for one, other in combinations(repeated, 2):
        if one.excludes(other):
            problems.add(
                f"{conjunct.text} refers to {one.name} and {other.name}, alternatives of one "
                "repeated any_of",
                conjunct.place,
                hint="no iteration has both, so write one condition for each of them, or compare "
                "the lists in the answer",
            )
            return False
    if repeated and conjunct.calls:
        problems.add(
            f"{conjunct.text} reads remote data and names {repeated[0].name}, an alternative of a "
            "repeated any_of",
            conjunct.place,
            hint="join the data to the rows before matching, read it from a table, or repeat one "
            "variable for all alternatives",
        )
        return False
    return True
