"""What conditions need of remote sources, and when their keys are known."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from spark_cep.udfs.comparisons import evaluation_cost
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.expressions import Cell, RemoteCall, cells_of, remote_sources_of, variables_of

if TYPE_CHECKING:
    from spark_cep.udfs.events.partials import BranchSlots, LookupKeyIds
    from spark_cep.udfs.events.steps import Step
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import Condition, Program
    from spark_cep.udfs.remote_spec import RemoteSpec
    from spark_cep.udfs.values.vectors import RemoteValues


# Number of bits for conditions that may wait; any others are waited for on the spot.
MAX_WAITING_BITS = 62


class RemoteNeeds:
    """The remote data that the conditions of one branch read, and when its keys are known.

    A key is known as soon as the variables that it is made of are bound; the condition can be
    tested when all of its variables are. Where a condition may be postponed, every remote condition
    has a bit of its own: those after it wait as well, because what fails it needs nothing.
    """

    def __init__(self, program: Program, slots: BranchSlots) -> None:
        self._slot_of = slots.of_variable
        negated = {v for v, variable in enumerate(program.variables) if variable.negated}
        found = [
            c
            for c in program.conditions
            if remote_sources_of(c.expression) and not c.variables & negated
            and c.variables <= self._slot_of.keys()
        ]  # fmt: skip
        found.sort(key=evaluation_cost)  # as steps test them
        strategies = {
            id(c): [program.remotes[r] for r in remote_sources_of(c.expression)] for c in found
        }
        at_end = [c for c in found if any(r.strategy == "post" for r in strategies[id(c)])]
        waits = {id(c) for c in found if any(r.postpones for r in strategies[id(c)])}
        others = [c for c in found if c not in at_end] if waits else []
        self._conditions = (at_end + others)[:MAX_WAITING_BITS]
        self._bits = {id(c): 1 << place for place, c in enumerate(self._conditions)}
        self._waits = waits & self._bits.keys()
        self._at_end = {id(c) for c in at_end} & self._bits.keys()
        self._prefetched = [c for c in found if any(r.prefetches for r in strategies[id(c)])]
        self.bits_at_end = sum(self._bits[each] for each in self._at_end)
        self.bits_on_the_way = sum(self._bits.values()) - self.bits_at_end

    def is_postponed(self, condition: Condition) -> bool:
        """Whether the condition is tested later where its data has not arrived."""
        return id(condition) in self._waits

    def is_at_end(self, condition: Condition) -> bool:
        """Whether the condition is tested on complete matches only."""
        return id(condition) in self._at_end

    def has_bit(self, condition: Condition) -> bool:
        return id(condition) in self._bits

    def bit(self, condition: Condition) -> int:
        return self._bits[id(condition)]

    def of_bits(self, waiting: Positions) -> list[Condition]:
        """The conditions whose bits are set somewhere, in the order in which they are tested."""
        some = int(np.bitwise_or.reduce(waiting)) if len(waiting) else 0
        return [c for c in self._conditions if some & self._bits[id(c)]]

    def known_equalities(self, steps: Sequence[Step], bound: frozenset[int]) -> list[Condition]:
        """The equalities by which the steps look up rows and whose keys depend on bound slots
        alone, where their data may be late."""
        found = (e.condition for step in steps for e in step.equalities)
        return [c for c in dict.fromkeys(found) if self.is_postponed(c) and self.calls(c, bound)]

    def prefetchable(self, bound: frozenset[int]) -> list[Condition]:
        """Conditions of later steps whose keys are known now, so that they can be fetched ahead."""
        return [
            c
            for c in self._prefetched
            if not {self._slot_of[v] for v in c.variables} <= bound and self.calls(c, bound)
        ]

    def slot_prefetches(self, step: Step, slot: int) -> list[Condition]:
        """Tests of a step whose keys depend on a new row of the slot alone."""
        return [
            condition
            for condition in step.tests
            if condition in self._prefetched
            for calls in [self.calls(condition, {slot})]
            if calls and all(cell.reading == "each" for call in calls for cell in cells_of(call))
        ]

    def calls(self, condition: Condition, bound: Collection[int]) -> list[RemoteCall]:
        """The condition's calls whose keys depend on the bound slots alone."""
        return [
            node
            for node in condition.expression.walk()
            if isinstance(node, RemoteCall)
            and all(self._slot_of[v] in bound for v in variables_of(node))
        ]


def distinct_ids(ids: Positions) -> Positions:
    """The ids without NULL keys, each once, ascending."""
    ids = ids.ravel()
    size = int(ids.max(initial=-1)) + 1
    if len(ids) * 8 < size:
        found = np.unique(ids)
        return found[found >= 0]
    seen = np.zeros(size + 1, dtype=np.bool_)
    seen[ids] = True  # -1 marks the spare place
    return np.flatnonzero(seen[:size])


# ---- what is likely to be needed ----------------------------------------------------------------


# A state of partial matches has shown how many of its keys are needed when it had so many.
LEAST_OFFERED = 32


class NeedHistory:
    """Which keys of a source were needed, and which could have been fetched ahead by then, for each
    state of partial matches that knows keys: Algorithm 3's history of hits.

    Fetching ahead is worth its while where P(needed) x (the latency of a call) exceeds P(not
    needed) x (the time that a key takes the source, which is a call's latency by calls in flight);
    the budget bounds what is fetched in vain beyond that.
    """

    def __init__(self, remote: RemoteSpec) -> None:
        in_flight = remote.fetch_policy.in_flight
        self.least_share = max(1.0 / max(remote.prefetch_budget, 1.0), 1.0 / (1.0 + in_flight))
        self._needed = _IdFlags()
        self._offered: dict[Hashable, _IdFlags] = {}

    def need(self, ids: Positions) -> None:
        self._needed.set(ids)

    def offer(self, state: Hashable, ids: Positions) -> None:
        """Partial matches in this state know these keys."""
        self._offered.setdefault(state, _IdFlags()).set(ids)

    def share(self, state: Hashable) -> float | None:
        """How many of the keys that a state knew were needed. None: it had too few."""
        offered = self._offered.get(state)
        if offered is None or offered.count() < LEAST_OFFERED:
            return None
        return offered.count(self._needed) / offered.count()

    def is_worth(self, state: Hashable) -> bool:
        """Whether keys of this state are to be fetched ahead."""
        share = self.share(state)
        return share is not None and share >= self.least_share


class _IdFlags:
    """A set of ids as flags, which grow with the greatest of them."""

    def __init__(self) -> None:
        # The last place is for the id -1, which stands for no key.
        self._flags = np.zeros(64, dtype=np.bool_)

    def set(self, ids: Positions) -> None:
        most = int(ids.max(initial=-1)) + 2
        if most > len(self._flags):
            grown = np.zeros(max(most, 2 * len(self._flags)), dtype=np.bool_)
            grown[: len(self._flags) - 1] = self._flags[:-1]
            self._flags = grown
        self._flags[ids] = True

    def count(self, others: _IdFlags | None = None) -> int:
        """How many ids there are; those that are in `others` too."""
        mine = self._flags[:-1]
        if others is None:
            return int(np.count_nonzero(mine))
        size = min(len(mine), len(others._flags) - 1)
        return int(np.count_nonzero(mine[:size] & others._flags[:size]))


# Lookups live as long as their query in a worker, so buckets and triggers learn from those before.
# What they have learned is by ids, which stand for other keys in another generation.
_histories: WeakKeyDictionary[RemoteValues, tuple[int, NeedHistory]] = WeakKeyDictionary()


def need_history(lookup: RemoteValues) -> NeedHistory:
    generation, history = _histories.get(lookup, (None, None))
    if history is None or generation != lookup.generation:
        history = NeedHistory(lookup.remote)
        _histories[lookup] = lookup.generation, history
    return history


# ---- fetching what is needed ---------------------------------------------------------------------


def ask_for(
    lookups: Sequence[RemoteValues], key_ids: LookupKeyIds, size: int, level: int = 0
) -> Flags:
    """Asks for what is needed now by `size` partial matches, or pairs, of a class: those of them
    whose data is there."""
    ready = np.ones(size, dtype=np.bool_)
    for remote, ids in key_ids:
        lookup = lookups[remote]
        if lookup.remote.caching.policy == "cost":
            counts = np.bincount(ids.ravel() + 1)
            present = np.flatnonzero(counts[1:])
            lookup.needed(present, counts[1:][present], level)
        if lookup.remote.prefetches:
            need_history(lookup).need(ids)
        lookup.ask(ids)
        ready &= lookup.ready(ids).all(axis=1)
    return ready


# ---- fetching for whole sets of rows -------------------------------------------------------------


def prefetch_candidates(
    program: Program, table: pa.Table, lookups: tuple[RemoteValues, ...]
) -> None:
    """Starts fetching for the candidates among the rows, where the strategy prefetches and most of
    the keys of a variable's candidates were needed so far.

    Walks fetch for their partial matches themselves (`postponed.py`). Whole sets of rows are
    fetched for before there are any partial matches: under skip till next match and strict, and
    between the triggers of a stream, for the rows that stay. The first few keys of a variable are
    fetched, whatever comes of them.
    """
    if not table.num_rows or not any(lookup.remote.prefetches for lookup in lookups):
        return
    mask = column_to_numpy(table.column(program.mask))
    for variable, call, columns in _calls_with_row_keys(program):
        lookup = lookups[call.remote]
        if lookup.remote.prefetches:
            rows = pa.array(np.flatnonzero(mask >> variable & 1))
            keys = [table.column(column).take(rows).combine_chunks() for column in columns]
            ids = distinct_ids(lookup.ids(keys))
            history, state = need_history(lookup), (variable, columns)
            share = history.share(state)
            if history.is_worth(state) or (share is None and len(ids) <= LEAST_OFFERED):
                lookup.ask(ids, ahead=True)
            history.offer(state, ids)


def _calls_with_row_keys(program: Program) -> Iterator[tuple[int, RemoteCall, tuple[int, ...]]]:
    """Calls whose key is made of columns of one row, with the variable and the columns."""
    seen = set()
    for condition in program.conditions:
        for node in condition.expression.walk():
            if not isinstance(node, RemoteCall):
                continue
            cells = [each for each in node.arguments if isinstance(each, Cell)]
            columns = tuple(cell.column for cell in cells if cell.column is not None)
            variables = {cell.variable for cell in cells}
            call_key = (node.remote, columns, *variables)
            if len(columns) == len(node.arguments) and len(variables) == 1 and call_key not in seen:
                seen.add(call_key)
                yield variables.pop(), node, columns
