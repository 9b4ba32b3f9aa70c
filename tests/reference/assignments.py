"""skip-till-any-match: every assignment of candidates to a choice, by plain recursion.

The window, NOT and the conditions between variables are not looked at here: all assignments in
the right order are listed, and those that break a rule are thrown away afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from spark_cep.pattern import AllOf, AnyOf, Event, EventPatternNode, NoEvent, NoGroup, Repeat, Seq
from tests.reference.choices import positives
from tests.reference.rows import Key, Row

if TYPE_CHECKING:
    from tests.reference.choices import Bound

# A variable's candidates: the rows that meet its own conditions.
Candidates = Mapping[str, Sequence[Row]]


class TooMany(Exception):
    """The case is too large for brute force; a test draws another one."""


class Budget:
    """Counts assignments, also those thrown away."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooMany


def assignments(
    tree: EventPatternNode, candidates: Candidates, after: Key | None, budget: Budget
) -> Iterator[Bound]:
    """Every way to fill `tree` with rows whose order keys are greater than `after`."""
    if isinstance(tree, Event):
        for row in candidates[tree.name]:
            if after is None or row.key > after:
                budget.spend()
                yield {tree.name: (row,)}
    elif isinstance(tree, NoEvent | NoGroup):
        yield {}
    elif isinstance(tree, Seq):
        yield from _in_sequence(tree.parts, candidates, after, budget)
    elif isinstance(tree, AllOf):
        yield from _in_any_order(tree.parts, candidates, after, budget)
    elif isinstance(tree, AnyOf):
        # Only in a repeated part: 'each iteration takes one alternative', the others have no entry.
        for part in tree.parts:
            for entry in assignments(part, candidates, after, budget):
                yield {name: entry.get(name, ()) for name in positives(tree)}
    elif isinstance(tree, Repeat):
        yield from _repeated(tree, candidates, after, budget)
    else:
        raise TypeError(f"a choice has no {type(tree).__name__}")


def _in_sequence(
    parts: Sequence[EventPatternNode], candidates: Candidates, after: Key | None, budget: Budget
) -> Iterator[Bound]:
    """'every event of p(i) is before every event of p(i+1)', and 'x is before y only when x's
    order key is strictly smaller'."""
    if not parts:
        yield {}
        return
    for head in assignments(parts[0], candidates, after, budget):
        for tail in _in_sequence(parts[1:], candidates, _latest(head, after), budget):
            yield {**head, **tail}


def _in_any_order(
    parts: Sequence[EventPatternNode], candidates: Candidates, after: Key | None, budget: Budget
) -> Iterator[Bound]:
    """'any order, all parts matched'; 'a row fills at most one variable of a match'."""
    if not parts:
        yield {}
        return
    for head in assignments(parts[0], candidates, after, budget):
        for tail in _in_any_order(parts[1:], candidates, after, budget):
            if not rows_of(head) & rows_of(tail):
                yield {**head, **tail}


def _repeated(
    tree: Repeat, candidates: Candidates, after: Key | None, budget: Budget
) -> Iterator[Bound]:
    """'whose variables then bind lists, one entry an iteration, iterations in sequence';
    'every qualifying sub-list is a match of its own'."""
    for entry in assignments(tree.part, candidates, after, budget):
        if tree.low <= 1:
            yield entry
        if tree.high is None or tree.high > 1:
            rest = Repeat(tree.part, max(tree.low - 1, 1), tree.high and tree.high - 1)
            for entries in _repeated(rest, candidates, _latest(entry, after), budget):
                yield {name: entry[name] + entries[name] for name in entry}


def rows_of(bound: Bound) -> set[Row]:
    return {row for rows in bound.values() for row in rows}


def _latest(bound: Bound, otherwise: Key | None) -> Key | None:
    return max((row.key for row in rows_of(bound)), default=otherwise)
