"""skip-till-next-match and strict, as the runs that the page describes.

Rule: 'a run starts at every row that can start.' Rule: 'A run takes the next row that an open
variable accepts, on the conjuncts whose variables are then all bound; it may skip a row only if
no open variable accepts it. If several open variables accept the row, or tied rows are accepted,
the run splits. It never gives a row back.'

Interpretations that the engine shares:
* The next row: the smallest order key, not below the run's current one, at which an open
  variable accepts a row. The run splits over all accepted pairs of row and variable there.
* A row is accepted if it meets the variable's own conditions, is not used yet, lies in the window
  measured from the run's earliest row, and every conjunct that this row makes testable holds. A
  conjunct is testable on an element when all its variables are there; one that folds a list, when
  the run has left the list: it took a row for something else, and the list cannot grow any more,
  because a later part of its SEQ has begun or because it has its largest length. What is never
  testable on the way is tested on the finished match.
* NOT is tested on finished matches only.
* 'Of the matches that are prefixes of one another only the longest is reported': a finished match
  is dropped if the run goes on to another finished match that breaks no rule either.
* strict: the next row has the run's current order key or the next one in the partition,
  candidate or not.
* An assignment that is reached over two paths (tied rows under AND) is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.reference.assignments import Budget, rows_of
from tests.reference.residuals import Rest, may_end, open_lists, openings, without_negations
from tests.reference.rules import (
    Instance,
    Rules,
    fits_window,
    instance_holds,
    instances,
    is_candidate,
    is_match,
)

if TYPE_CHECKING:
    from tests.reference.choices import Bound, Choice
    from tests.reference.conditions import Conjunct
    from tests.reference.rows import Key, Row


@dataclass(frozen=True)
class Run:
    """What a run has taken, and what is left to take. `last`: the variable that took a row last,
    `key`: that row's order key."""

    rest: Rest
    bound: Bound
    key: Key | None = None
    last: str | None = None


class Runs:
    """All runs over one partition."""

    def __init__(
        self, rules: Rules, choices: list[Choice], partition: list[Row], budget: Budget
    ) -> None:
        self._rules = rules
        self._choices = choices
        self._partition = partition
        self._budget = budget
        self._is_strict = rules.pattern.selection == "strict"

    def matches(self) -> Iterator[tuple[Choice, Bound]]:
        start = Run(without_negations(self._rules.pattern.root), {})
        for row in self._partition:
            for first in self._taken(start, row.key):
                if rows_of(first.bound) == {row}:
                    yield from self._longest(first)

    def _longest(self, run: Run) -> list[tuple[Choice, Bound]]:
        """The matches that a run comes to; it is one itself only if there is no longer one."""
        self._budget.spend()
        longer = [match for step in self._steps(run) for match in self._longest(step)]
        if longer or not may_end(run.rest):
            return longer
        return [
            (choice, run.bound)
            for choice in self._choices
            if choice.filled() == frozenset(run.bound)
            and is_match(self._rules, choice, run.bound, self._partition)
        ]

    def _steps(self, run: Run) -> list[Run]:
        assert run.key is not None
        keys = sorted({row.key for row in self._partition if row.key >= run.key})
        for key in keys[:2] if self._is_strict else keys:
            accepted = self._taken(run, key)
            if accepted:
                return accepted
        return []

    def _taken(self, run: Run, key: Key) -> list[Run]:
        """The run after each accepted pair of a row with this order key and a variable."""
        tied = [row for row in self._partition if row.key == key]
        return [
            after
            for row in tied
            for name, rest in openings(run.rest, key)
            for after in [Run(rest, _with(run.bound, name, row), key, name)]
            if row not in rows_of(run.bound) and self._accepts(run, after, name, row)
        ]

    def _accepts(self, run: Run, after: Run, name: str, row: Row) -> bool:
        return (
            is_candidate(self._rules, name, row)
            and fits_window(self._rules, rows_of(after.bound), self._partition)
            and all(
                instance_holds(self._rules, conjunct, instance, after.bound)
                for conjunct in self._rules.between
                for instance in set(self._testable(conjunct, after))
                - set(self._testable(conjunct, run))
            )
        )

    def _testable(self, conjunct: Conjunct, run: Run) -> list[Instance]:
        inside = {self._rules.group.get(run.last or "")}
        if any(
            name in open_lists(run.rest) or self._rules.group[name] in inside
            for name in conjunct.folded
        ):
            return []
        return instances(self._rules, conjunct, run.bound)


def _with(bound: Bound, name: str, row: Row) -> Bound:
    return {**bound, name: (*bound.get(name, ()), row)}
