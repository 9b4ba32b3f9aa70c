"""Keys that conditions imply: `a.card = b.card AND b.card = c.card` partitions by card.

Rows of one match then have one card, so partitions by card can be matched apart. This is sound
only if the equalities tie all rows of every match, and conjuncts on unfilled variables are not
tested. So it is judged for each branch by the equalities whose variables it fills:

- Its filled variables are connected, by edges between filled variables alone: a negated variable
  need not have a row, so it connects nothing. There are at least two of them, so that a row whose
  key is NULL can match nothing.
- Two members of a repeated group are equal within one iteration only; an edge to a variable
  outside the group, which every iteration has to equal, ties the iterations together. Where all
  filled variables belong to one list there is no such edge, and nothing is inferred.
- A negated variable has an edge to a filled one: rows with another key then never block.

Under skip-till-next a run takes rows on the conjuncts whose variables are bound so far, and never
gives one back. There each row must be tied to what is bound when it is taken: the filled variables
are all tied to one another, and before each list stands a plain variable.

Not under strict, where rows of other keys come between; not under consume, where tied order keys
are refused and a finer partition would hide them; not without a time window. Keys are plain
columns, because a computed key would be computed on rows that no condition lets through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.parts import is_column, row_part

if TYPE_CHECKING:
    from spark_cep.compiling.conditions import Conjunct
    from spark_cep.udfs.program import Branch, Consumption, Negation, Strategy, Window

Edge = frozenset[int]


@dataclass(frozen=True)
class Rules:
    """What holds for the whole pattern."""

    branches: tuple[Branch, ...]
    window: Window | None
    strategy: Strategy
    consumption: Consumption


@dataclass(frozen=True)
class Equality:
    """A conjunct that says that two variables have the same value of a column."""

    text: str
    edge: Edge


def equality(conjunct: Conjunct) -> Equality | None:
    """The conjunct as an equality of one column of two variables."""
    node = conjunct.node.unnest()
    if not isinstance(node, exp.EQ) or len(conjunct.variables) != 2:
        return None
    sides = [row_part(conjunct, side) for side in (node.this, node.expression)]
    if any(side is None or not is_column(conjunct, side.node) for side in sides):
        return None
    texts = {side.text for side in sides if side is not None}
    edge = frozenset(side.variable for side in sides if side is not None)
    return Equality(texts.pop(), edge) if len(texts) == 1 and len(edge) == 2 else None


def inferred(equalities: Iterable[Equality], rules: Rules) -> tuple[str, ...]:
    """The columns that are keys, in the order in which the conditions name them."""
    timed = rules.window is not None and rules.window.kind == "time"
    if not timed or rules.strategy == "strict" or rules.consumption != "reuse":
        return ()
    edges: dict[str, set[Edge]] = {}
    for each in equalities:
        edges.setdefault(each.text, set()).add(each.edge)
    return tuple(
        text
        for text, tied in edges.items()
        if all(_ties(branch, tied, rules.strategy) for branch in rules.branches)
    )


def _ties(branch: Branch, edges: set[Edge], strategy: Strategy) -> bool:
    filled = branch.filled()
    if len(filled) < 2 or any(
        slot.is_list and filled <= set(slot.variables) for slot in branch.slots
    ):
        return False
    if not _connected(filled, edges):
        return False
    for negation in _negations(branch):
        if not any(frozenset({negation.variable, v}) in edges for v in filled):
            return False
    return strategy != "next" or _ties_as_it_goes(branch, edges)


def _connected(filled: frozenset[int], edges: set[Edge]) -> bool:
    reached = {min(filled)}
    waiting = list(reached)
    while waiting:
        here = waiting.pop()
        for edge in edges:
            if here in edge and edge <= filled:
                fresh = edge - reached
                reached |= fresh
                waiting += fresh
    return reached == filled


def _ties_as_it_goes(branch: Branch, edges: set[Edge]) -> bool:
    complete = all(frozenset(pair) in edges for pair in combinations(branch.filled(), 2))
    plain = {i for i, slot in enumerate(branch.slots) if not slot.is_list}
    return complete and all(
        any((before, i) in branch.precedes for before in plain)
        for i, slot in enumerate(branch.slots)
        if slot.is_list
    )


def _negations(branch: Branch) -> Sequence[Negation]:
    bodies = [slot.body for slot in branch.slots if slot.body is not None]
    inner = [negation for body in bodies for negation in body.negations]
    covered = [negation for others in branch.covered for negation in others]
    return [*branch.negations, *inner, *covered]
