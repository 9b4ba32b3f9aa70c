"""What the engine counts while it works, and the limits that end a query.

`Metrics` are the sums that a bucket reports; a `Meter` counts for one set of events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.output import DROPPING_METRICS, PEAK_METRICS
from spark_cep.udfs.remote_spec import LookupMetrics
from spark_cep.udfs.task_clock import TaskClock, WorkReport

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_cep.udfs.events.deadline import Deadline
    from spark_cep.udfs.events.table import Events, Flags, Positions
    from spark_cep.udfs.program import Condition, Limits, Program, Tree


@dataclass
class Metrics:
    """Sums over a bucket, except the peaks; the first names are those of `output.METRICS`.

    `conditions`: combinations tested and kept, by the condition's place in the program; what an
    index or a bound leaves out counts as tested. `candidates`: by variable. `stretches`: how many
    windows of keys the events fill. `nodes`: pairs and partial matches of each join, by branch and
    slots. `orders`: pairs by the order that ran. `swaps`: changes of plan with their reasons.
    `remotes`: lookups, by source. `joined_rows`: those whose matches were searched.
    `dropped_pairs`, `dropped_partials`: what a rule dropped.
    """

    rows: int = 0
    pairs: int = 0
    partial_matches: int = 0
    peak_partial_matches: int = 0
    buffered_events: int = 0
    matches: int = 0
    condition_errors: int = 0
    ignored_rows: int = 0
    plan_checks: int = 0
    planning_us: int = 0
    matching_us: int = 0
    longest_task_us: int = 0
    slow_tasks: int = 0
    joined_rows: int = 0
    stretches: int = 0
    conditions: dict[int, tuple[int, int]] = field(default_factory=dict)
    candidates: dict[int, int] = field(default_factory=dict)
    nodes: dict[tuple[int, frozenset[int]], tuple[int, int]] = field(default_factory=dict)
    orders: dict[str, int] = field(default_factory=dict)
    swaps: list[dict[str, str]] = field(default_factory=list)
    remotes: dict[str, LookupMetrics] = field(default_factory=dict)
    dropped_pairs: int = 0
    dropped_partials: int = 0

    def add(self, other: Metrics) -> None:
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            setattr(self, name, _combine_metric(name, mine, theirs))

    def dropped(self) -> dict[str, int]:
        """What a rule dropped, as plain data."""
        return {name: getattr(self, name) for name in DROPPING_METRICS}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, but for what was dropped; a join is named by branch and slots: "0:1,2"."""
        nodes = {
            f"{branch}:{','.join(map(str, sorted(slots)))}": list(counts)
            for (branch, slots), counts in self.nodes.items()
        }
        always = {name: value for name, value in vars(self).items() if name not in DROPPING_METRICS}
        return {
            **always,
            "conditions": {str(c): list(counts) for c, counts in self.conditions.items()},
            "candidates": {str(v): count for v, count in self.candidates.items()},
            "nodes": nodes,
            "remotes": {name: each.to_dict() for name, each in self.remotes.items()},
        }


def _combine_metric(name: str, mine: Any, theirs: Any) -> Any:
    if isinstance(mine, list):
        return mine + theirs
    if isinstance(mine, dict):
        keys = {**mine, **theirs}
        return {key: _add_counts(mine.get(key), theirs.get(key)) for key in keys}
    return max(mine, theirs) if name in PEAK_METRICS else mine + theirs


def _add_counts(mine: Any, theirs: Any) -> Any:
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    if isinstance(mine, LookupMetrics):
        total = LookupMetrics()
        total.add(mine)
        total.add(theirs)
        return total
    return (mine[0] + theirs[0], mine[1] + theirs[1]) if isinstance(mine, tuple) else mine + theirs


# No more untested partial matches than this are remembered for a limit.
MOST_UNTESTED = 1 << 21
# The prior selectivity of a condition weighs as much as this many tests.
PRIOR_TEST_COUNT = 20
UNKNOWN_SELECTIVITY = 0.5


class Meter:
    """Counts the work on one set of events and enforces the limits.

    Partial matches, matches and pairs are counted for each *stretch*: a partition key and a
    window-long piece of its time, which is what an automaton would hold there. The counts do not
    depend on how keys were dealt to buckets. A time slice counts for itself, so where an input is
    sliced, matches that begin in the copied window before a slice count apart from those of the
    slice before. So does an advance: a stretch that is matched in two of them counts in each.
    """

    def __init__(
        self, events: Events, limits: Limits, metrics: Metrics, clock: TaskClock | None = None
    ) -> None:
        self.metrics = metrics
        self._events = events
        self._limits = limits
        self._clock = TaskClock(limits.seconds) if clock is None else clock
        self.stretch = events.stretch()
        self.stretches = int(self.stretch[-1]) + 1 if events.size else 0
        self._partials = np.zeros(self.stretches, dtype=np.int64)
        self._untested: npt.NDArray[np.int64] | None = None
        self._charges: deque[tuple[int, Callable[[], Positions]]] = deque()
        self._charges_size = 0
        # Untested partial matches might have passed a limit: from now on they are tested at once.
        self.is_near_limit = False
        self._matches = np.zeros(self.stretches, dtype=np.int64)
        self._pairs = np.zeros(0 if limits.pairs is None else self.stretches, dtype=np.int64)
        self._seconds: npt.NDArray[np.float64] | None = None
        estimates = events.program.estimates
        self._known = {} if estimates is None else estimates.selectivities
        self._place = {id(c): place for place, c in enumerate(events.program.conditions)}
        self._tests = np.zeros((len(events.program.conditions), 2))
        self._nodes: dict[tuple[int, frozenset[int]], list[int]] = {}
        self._block_pairs = events.program.block_pairs
        self.deadline: Deadline | None = None
        self.trace: WorkTrace | None = None

    def block_pairs(self, width: int = 1) -> int | Callable[[], int]:
        """How many pairs a block may have; so many times fewer where each is `width` times as
        large."""
        if self.deadline is None:
            return max(1, self._block_pairs // width)
        return partial(self._timed_block, self.deadline, width)

    def _timed_block(self, deadline: Deadline, width: int) -> int:
        return max(1, deadline.block_pairs(self._block_pairs) // width)

    def check_deadline(self) -> None:
        """Raises DeadlinePassed if there is no time left."""
        if self.deadline is not None:
            self.deadline.check()

    def count_pairs(self, earliest: Positions, pick: Positions) -> None:
        """Counts a block of pairs before they are tested. `pick`: the partial match of each,
        ascending; `earliest`: the position of the earliest row of every partial match."""
        if self.deadline is not None:
            self.deadline.check()
        self.metrics.pairs += len(pick)
        if self._limits.pairs is not None:
            first, added = self._pairs_by_stretch(earliest, pick)
            self._add(self._pairs, first, added, self._limits.pairs, "pairs")
        if self._clock.is_due():
            self._look_at_clock(*self._pairs_by_stretch(earliest, pick))

    def _pairs_by_stretch(self, earliest: Positions, pick: Positions) -> tuple[int, Positions]:
        """The pairs of each stretch from the first one on that has any."""
        least = int(pick[0])
        counts = np.bincount(pick - least)
        stretch = self.stretch[earliest[least : least + len(counts)]]
        first = int(stretch.min())
        return first, np.bincount(stretch - first, weights=counts).astype(np.int64)

    def count_join(self, node: tuple[int, frozenset[int]], pairs: int, partials: int) -> None:
        """Work of one join: the pairs evaluated and the partial matches they gave."""
        if self.deadline is not None and pairs:
            self.deadline.count_tested(pairs)
        counts = self._nodes.setdefault(node, [0, 0])
        counts[0] += pairs
        counts[1] += partials

    @contextmanager
    def count_order(self, order: str) -> Iterator[None]:
        """Counts the pairs of everything within as those of an order."""
        before = self.metrics.pairs
        yield
        orders = self.metrics.orders
        orders[order] = orders.get(order, 0) + self.metrics.pairs - before

    def count_tests(self, conditions: Iterable[Condition], tested: float, kept: float) -> None:
        """How many combinations a test kept. Several conditions that were one test, as in an
        index, share its selectivity equally."""
        places = [self._place[id(condition)] for condition in conditions]
        if tested and places:
            share = (kept / tested) ** (1 / len(places))
            self._tests[places] += (tested, tested * share)

    def count_results(self, condition: Condition, held: Flags) -> None:
        self.count_tests((condition,), len(held), int(np.count_nonzero(held)))

    def observed_selectivity(self, condition: Condition) -> float:
        """The selectivity so far, starting from the planner's estimate, or a half."""
        place = self._place[id(condition)]
        tested, kept = self._tests[place]
        known = self._known.get(place, UNKNOWN_SELECTIVITY)
        return float((kept + known * PRIOR_TEST_COUNT) / (tested + PRIOR_TEST_COUNT))

    def close(self) -> None:
        """Writes the counts of conditions and joins into the metrics."""
        self.metrics.conditions = {
            place: (round(tested), round(kept))
            for place, (tested, kept) in enumerate(self._tests.tolist())
            if tested
        }
        self.metrics.nodes = {node: (p, q) for node, (p, q) in self._nodes.items()}

    def count_partials(self, earliest: Positions) -> None:
        """Counts new partial matches, by the position of their earliest row."""
        self.metrics.partial_matches += len(earliest)
        self.charge_partials(earliest)

    def charge_partials(self, earliest: Positions) -> None:
        """Counts them against the limit."""
        if not len(earliest):
            return
        peak = self._count(
            self._partials, earliest, self._limits.partial_matches, "partial_matches"
        )
        self.metrics.peak_partial_matches = max(self.metrics.peak_partial_matches, peak)
        self._check_untested(earliest)

    def charge_later(self, earliest: Positions, find: Callable[[], Positions]) -> None:
        """Partial matches that a condition may still drop. They are charged when a stretch would
        pass the limit if they all met it, and if they do: `find` gives the earliest rows of those.
        So limits end a query alike, however long conditions wait."""
        if self._limits.partial_matches is None or not len(earliest):
            return
        if self._untested is None:
            self._untested = np.zeros(self.stretches, dtype=np.int64)
        self._charges.append((len(earliest), find))
        self._charges_size += len(earliest)
        np.add.at(self._untested, self.stretch[earliest], 1)
        self._check_untested(earliest)
        while self._charges_size > MOST_UNTESTED:
            self._charges_size -= self._charges.popleft()[0]

    def _check_untested(self, earliest: Positions) -> None:
        limit = self._limits.partial_matches
        if self._untested is None or limit is None:
            return
        low, high = self.stretch[earliest.min()], self.stretch[earliest.max()] + 1
        if not (self._untested[low:high] + self._partials[low:high] > limit).any():
            return
        self.is_near_limit = True
        charges, self._charges, self._untested = self._charges, deque(), None
        self._charges_size = 0
        for _, find in charges:
            self.charge_partials(find())

    def count_matches(self, earliest: Positions) -> None:
        if len(earliest):
            self.metrics.matches += len(earliest)
            self._count(self._matches, earliest, self._limits.matches, "matches")
            if self._clock.is_due():
                stretch = self.stretch[earliest]
                first = int(stretch.min())
                self._look_at_clock(first, np.bincount(stretch - first))

    def _count(self, counts: Positions, earliest: Positions, limit: int | None, what: str) -> int:
        stretch = self.stretch[earliest]
        first = int(stretch.min())
        return self._add(counts, first, np.bincount(stretch - first), limit, what)

    def _add(
        self, counts: Positions, first: int, added: Positions, limit: int | None, what: str
    ) -> int:
        """The largest count among those to which something was added, from `first` on."""
        here = counts[first : first + len(added)]
        here += added
        worst = int(here.argmax())
        if limit is not None and here[worst] > limit:
            self._raise_limit(first + worst, int(here[worst]), limit, what)
        return int(here[worst])

    def _raise_limit(self, stretch: int, count: int, limit: int, option: str) -> None:
        within = "" if self._events.program.window is None else " that begin within one window"
        what = "pairs of a partial match and a row" if option == "pairs" else option
        start = self._events.start_of(self._first_position(stretch))
        rows = f" There {self._describe_rows(stretch)}" if option == "pairs" else ""
        raise LimitError(
            f"{self._describe_key(stretch)} has {count:,} {what.replace('_', ' ')}{within}, from "
            f"{start} on; the limit is {limit:,}.{rows}".removesuffix("."),
            hint="shorten WITHIN, add conditions or a partition key, bound Kleene parts "
            f'("b{{1,3}}"), or raise it: limits=cep.Limits({option}={limit * 10})',
            details={
                **self._details(stretch), "limit": option, "allowed": limit, "reached": count,
            },
        )  # fmt: skip

    # ---- where the time goes -------------------------------------------------------------------

    def _look_at_clock(self, first: int, weights: Positions) -> None:
        """Divides the time since the last look among the stretches from `first` on, by the work
        that is at hand. A sample, as a profiler takes it: right where the time is long."""
        if self._seconds is None:
            self._seconds = np.zeros(self.stretches)
        here = self._seconds[first : first + len(weights)]
        here += weights * (self._clock.tick() / weights.sum())
        longest = int(self._seconds.argmax())
        self._clock.report(float(self._seconds[longest]), lambda: self._report(longest))

    def _report(self, stretch: int) -> WorkReport:
        program = self._events.program
        where = self._describe_key(stretch)
        if program.window is not None:
            start = self._events.start_of(self._first_position(stretch))
            where += f", in the window of {format_window(program)} from {start} on"
        return WorkReport(
            format_tree(program, program.tree),
            where,
            f"{self._describe_rows(stretch)}; {self.metrics.pairs:,} pairs were tested by the task",
            'shorten WITHIN, add a partition key or conditions, use "skip till next match"',
            self._details(stretch),
        )

    def _first_position(self, stretch: int) -> int:
        return int(np.searchsorted(self.stretch, stretch))

    def _describe_key(self, stretch: int) -> str:
        key = self._events.key_of(self._first_position(stretch))
        return f"partition key {key!r}" if key else "the only partition (no partition_by)"

    def _rows_by_variable(self, stretch: int) -> dict[str, int]:
        """The rows in a stretch that each variable may take."""
        first = self._first_position(stretch)
        found = self._events.count(first, self._first_position(stretch + 1))
        return {v.name: found[place] for place, v in enumerate(self._events.program.variables)}

    def _describe_rows(self, stretch: int) -> str:
        rows = self._rows_by_variable(stretch)
        return ", ".join(f"{name} has {count:,} rows" for name, count in rows.items())

    def _details(self, stretch: int) -> dict[str, object]:
        position = self._first_position(stretch)
        return {
            "key": self._events.key_of(position),
            "start": str(self._events.start_of(position)),
            "rows": self._rows_by_variable(stretch),
            "partial_matches": int(self._partials[stretch]),
            "matches": int(self._matches[stretch]),
            "pairs": self.metrics.pairs,
        }


# ---- a program in words --------------------------------------------------------------------------


_TREE_NAMES = {"seq": "seq", "all": "all_of", "any": "any_of"}
_UNITS = (
    ("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000),
    ("second", 1_000_000), ("millisecond", 1_000), ("microsecond", 1),
)  # fmt: skip


def format_tree(program: Program, tree: Tree) -> str:
    """The pattern as `seq(a, b+, no(x), c)`."""
    parts = ", ".join(format_tree(program, part) for part in tree.parts)
    if tree.kind in {"event", "not"}:
        name = parts or program.variables[tree.variable].name
        return name if tree.kind == "event" else f"no({name})"
    if tree.kind == "optional":
        return f"{parts}?"
    if tree.kind == "repeat":
        return parts + _format_quantifier(tree.low, tree.high)
    return f"{_TREE_NAMES[tree.kind]}({parts})"


def _format_quantifier(low: int, high: int | None) -> str:
    if high is None:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"


def format_window(program: Program) -> str:
    """The size of the window with its unit, for messages."""
    window = program.window
    assert window is not None
    if window.kind == "events":
        return _format_amount(window.size, "row")
    kind = program.orders[0].type.kind
    if kind == "date":
        return _format_amount(window.size, "day")
    if kind not in {"timestamp", "timestamp_ntz", "interval"}:
        return f"{window.size:,}"
    unit, size = next(each for each in _UNITS if window.size % each[1] == 0)
    return _format_amount(int(window.size) // size, unit)


def _format_amount(count: int | float, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


@dataclass
class WorkTrace:
    """Pairs and results by the position of the latest row in them.

    That is the event on whose arrival an engine that takes events one by one would have done this
    work, provided that each join's later side is the newer one: an eager group in the order of the
    pattern, or a merge that begins at the final event.
    """

    pairs: Positions
    results: Positions

    @classmethod
    def over(cls, size: int) -> WorkTrace:
        return cls(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))

    def add(self, pairs: Positions | None, results: Positions | None) -> None:
        size = len(self.pairs)
        if pairs is not None:
            self.pairs += np.bincount(pairs, minlength=size)
        if results is not None:
            self.results += np.bincount(results, minlength=size)
