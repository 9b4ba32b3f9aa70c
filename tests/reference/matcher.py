"""The answer of an event pattern, by brute force.

Written from section 2 of the semantics page, sentence by sentence, and for small inputs only.
`matches` is the door. A match names every positive variable in the order of the pattern:

    (("a", 0), ("b", (2, 5)), ("c", None), ("d", ()))

with the input positions of the rows; None for an unfilled optional or OR branch, () for a list
that is matched as the empty list.

Rule: 'a match is an assignment of rows to variables ... no assignment appears twice'. Where one
assignment of rows can be read in two ways (an empty list in one OR branch, in another not), it
is one match and may have either mark: compare such patterns through `without_marks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from spark_cep.pattern import EventPatternNode, Pattern, Repeat, children
from tests.reference.assignments import Budget, assignments, rows_of
from tests.reference.choices import Bound, Choice, choices, positives
from tests.reference.rows import Key, Row, partitions
from tests.reference.rules import Rules, is_candidate, is_match, rules_of
from tests.reference.runs import Runs

if TYPE_CHECKING:
    from tests.reference.expressions import Value

Match = tuple[tuple[str, int | tuple[int, ...] | None], ...]


def matches(
    pattern: Pattern,
    rows: Sequence[Mapping[str, Value]],
    *,
    order_by: Sequence[str],
    partition_by: Sequence[str] = (),
    steps: int = 50_000,
) -> set[Match]:
    """Every match; raises TooMany where more than `steps` assignments would be looked at."""
    rules = rules_of(pattern)
    budget = Budget(steps)
    ways = [choice for choice in choices(pattern.root) if choice.filled()]
    answer: set[Match] = set()
    for partition in partitions(rows, order_by, partition_by):
        found = _found(rules, ways, partition, budget)
        if pattern.consuming == "consume":
            found = _consumed(found, positives(pattern.root))
        answer.update(_match(pattern, choice, bound) for choice, bound in found)
    return answer


def without_marks(found: Iterable[Match]) -> list[Match]:
    """Matches with None for everything that is unfilled, also for empty lists."""
    return [tuple((name, None if rows == () else rows) for name, rows in m) for m in found]


def _found(
    rules: Rules, ways: list[Choice], partition: list[Row], budget: Budget
) -> list[tuple[Choice, Bound]]:
    if rules.pattern.selection in {"next", "strict"}:
        found = list(Runs(rules, ways, partition, budget).matches())
    else:
        candidates = {
            name: [row for row in partition if is_candidate(rules, name, row)] for name in rules.own
        }
        found = [
            (choice, bound)
            for choice in ways
            if choice.tree is not None
            for bound in assignments(choice.tree, candidates, None, budget)
            if is_match(rules, choice, bound, partition)
        ]
    return _distinct(found)


def _distinct(found: list[tuple[Choice, Bound]]) -> list[tuple[Choice, Bound]]:
    """The first reading of each assignment of rows."""
    first: dict[frozenset[tuple[str, tuple[Row, ...]]], tuple[Choice, Bound]] = {}
    for choice, bound in found:
        first.setdefault(frozenset(bound.items()), (choice, bound))
    return list(first.values())


def _consumed(found: list[tuple[Choice, Bound]], names: list[str]) -> list[tuple[Choice, Bound]]:
    """'the strategy's complete answer is gone through in order of latest event, earliest event,
    then the order keys in pattern order, and a match is taken if none of its events was used by
    a taken one'.

    Interpretation that the engine shares: the order keys in pattern order are compared variable
    by variable, a list as the list of its keys, an unfilled variable before every filled one.
    """

    def turn(match: tuple[Choice, Bound]) -> tuple[Key, Key, list[list[Key]]]:
        _, bound = match
        keys = [row.key for row in rows_of(bound)]
        return max(keys), min(keys), [[r.key for r in bound.get(name, ())] for name in names]

    used: set[Row] = set()
    taken = []
    for choice, bound in sorted(found, key=turn):
        if not used & rows_of(bound):
            used |= rows_of(bound)
            taken.append((choice, bound))
    return taken


def _match(pattern: Pattern, choice: Choice, bound: Bound) -> Match:
    lists = frozenset(_lists(pattern.root))
    values: list[tuple[str, int | tuple[int, ...] | None]] = []
    for name in positives(pattern.root):
        ids = tuple(row.id for row in bound.get(name, ()))
        if name in bound:
            values.append((name, ids if name in lists else ids[0]))
        else:
            values.append((name, () if name in choice.empty else None))
    return tuple(values)


def _lists(node: EventPatternNode) -> list[str]:
    """Variables that bind lists."""
    if isinstance(node, Repeat):
        return positives(node)
    return [name for child in children(node) for name in _lists(child)]
