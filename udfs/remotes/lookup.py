"""The values of one remote source, for one query in one worker process: what the engine asks.

`Lookup` combines the key index, the states of elements, the values, their utility and the fetcher.
Always holds: an element (what one fetch of one key returns) is absent, in flight, failed or
present, and is evicted only in `settle` and `trigger`, so what `ready` and `wait` promised can be
read until then.

`wait` raises a failure, not the arrival: a fetch that turns out not to be needed must not end the
query, or strategies would differ in more than time. Only one thread uses a Lookup; the threads of
the fetcher leave their results there, and `ready` and `wait` collect them.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.coroutines import Wait, pass_turn
from spark_cep.udfs.expressions import Constant
from spark_cep.udfs.remote_spec import LookupMetrics
from spark_cep.udfs.remotes import cache
from spark_cep.udfs.remotes.answers import LookupValues
from spark_cep.udfs.remotes.budget import CoveredTime, PrefetchBudget
from spark_cep.udfs.remotes.fetching import ImmediateFetcher, KeyBatch, ThreadedFetcher
from spark_cep.udfs.remotes.keys import NO_KEY, KeyIndex, PartIndex, distinct_places
from spark_cep.udfs.remotes.store import ABSENT, FAILED, IN_FLIGHT, PRESENT, ElementStates
from spark_cep.udfs.values.calls import vector_to_arrow
from spark_cep.udfs.values.vectors import WORD_KINDS, Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression, Type
    from spark_cep.udfs.remote_spec import RemoteSpec
    from spark_cep.udfs.remotes.fetching import Fetcher, FetchResult
    from spark_cep.udfs.remotes.store import FieldPath
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.vectors import EventColumns


def encode_argument(argument: Expression, vector: Vector, columns: EventColumns) -> pa.Array:
    """The flattened values of an expression as an Arrow array of its type. Codes of strings become
    a dictionary array, so that each distinct string is decoded once."""
    shape = vector.values.shape
    values = vector.values.ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    if argument.type.kind not in WORD_KINDS or values.dtype == object:
        return vector_to_arrow(argument, Vector(values, valid), columns)
    codes = pa.array(values, mask=None if valid is None else ~valid).dictionary_encode()
    words = columns.words(argument.type.kind).decode(codes.dictionary.to_numpy(), None)
    return pa.DictionaryArray.from_arrays(codes.indices, words)


# The latency before the first fetch was measured.
INITIAL_LATENCY_S = 0.01
# The weight of the last fetch in the moving average of the latency.
LATENCY_WEIGHT = 0.2
# The spans of so many fetches are remembered until a value of them is used.
MOST_SPANS = 4096
# The keys of a source may take as much as its values, its cache; with a small one, so much.
LEAST_KEY_BYTES = 1 << 20


class Lookup:
    """`latency`: the estimated seconds of one call of the source. `generation`: how often keys were
    forgotten, so that others have their ids."""

    def __init__(self, remote: RemoteSpec, fetcher: Fetcher | None = None) -> None:
        self.remote = remote
        self.metrics = LookupMetrics()
        self.latency = 0.0 if remote.is_local else INITIAL_LATENCY_S
        self._fetcher = fetcher or (
            ImmediateFetcher(remote) if remote.is_local else ThreadedFetcher(remote)
        )
        self._numbers = itertools.count()
        self._measured = False
        self.generation = 0
        # The batches that have neither ended nor been taken back, by number.
        self._unfinished: dict[int, KeyBatch] = {}
        # The counts of the fetcher that the metrics include already.
        self._calls, self._requested = self._fetcher.calls, self._fetcher.keys
        self._budget = PrefetchBudget(remote.prefetch_budget)
        # The times that were waited for or hidden; the spans of fetches that nobody has used yet,
        # by the number of the batch; and since when matching waits now.
        self._covered = CoveredTime()
        self._spans: OrderedDict[int, tuple[float, float]] = OrderedDict()
        self._waiting_since: float | None = None
        self._keys = KeyIndex(self.remote.keys)
        self._parts = PartIndex(self._keys, self.remote)
        self._states = ElementStates()
        self._values = LookupValues(self.remote, self._keys, self._parts, self._states)
        self._utility = cache.FetchUtility()

    @property
    def arrivals(self) -> int:
        return self._fetcher.arrivals

    def end(self) -> None:
        """Ends a task or a trigger: what has not been requested from the source is not needed any
        more. Calls that run may still bring values for the next one."""
        self._take()
        for batch in self._fetcher.cancel():
            self._take_back(batch)

    def close(self) -> None:
        self._fetcher.close()

    def successor(self, remote: RemoteSpec) -> Lookup:
        """A new lookup in place of this one, for another action of the query. Calls that have not
        returned still count against `in_flight`."""
        if not isinstance(self._fetcher, ThreadedFetcher):
            self.close()
            return Lookup(remote)
        self._fetcher.reset(remote)
        return Lookup(remote, self._fetcher)

    def ids(self, keys: Sequence[pa.Array]) -> Array:
        """The id of each row's key, -1 where a part of it is NULL."""
        return self._keys.ids(keys)

    def ready(self, ids: Array) -> Array:
        """Flags of the ids whose values can be read."""
        self._take()
        elements = self._of(ids)
        return np.asarray(self._states.state.all[elements] == PRESENT)

    def is_open(self, ids: Array) -> Array:
        """Flags of the ids that have neither a value nor a failure."""
        self._take()
        elements = self._of(ids)
        return np.asarray(self._states.state.all[elements] < FAILED)

    def ask(self, ids: Array, *, ahead: bool = False) -> None:
        """Starts fetching absent keys. `ahead`: they are not needed yet. Never raises."""
        if ahead and (not self.remote.prefetches or self._fetcher.broken):
            return
        self._take()
        elements = self._elements(ids)
        if ahead:
            self._prefetch(elements)
        else:
            self._ask(elements)

    def wait(self, ids: Array) -> None:
        """Blocks until all ids are ready. Raises a RemoteError if fetching one has failed."""
        if self.ready(ids).all():
            return
        elements = self._elements(ids)
        state = self._states.state
        while (state.all[elements] < FAILED).any():
            # In each round, because a prefetch may be given up just when it becomes needed.
            self._ask(elements)
            if not pass_turn(Wait(self, lambda: not self._is_in_flight(elements))):
                self.wait_for_result()
        self._states.wait(elements)
        failed = elements[state.all[elements] == FAILED]
        if len(failed):
            self._raise(failed)

    def wait_for_result(self, seconds: float | None = None) -> None:
        """Blocks until a fetch has ended, or for so many seconds."""
        self._waiting_since = self._fetcher.now()
        if seconds is None:
            self._fetcher.wait()
        else:
            time.sleep(seconds)
        self._take()
        self._end_waiting(self._fetcher.now())

    def _is_in_flight(self, elements: Array) -> bool:
        self._take()
        return bool((self._states.state.all[elements] == IN_FLIGHT).any())

    def vector(self, ids: Array, path: FieldPath, type: Type, columns: EventColumns) -> Vector:
        """The values at a path, for ids that are ready."""
        return self._values.store.vector(self._use(ids), path, type)

    def member(
        self, ids: Array, path: FieldPath, values: Vector, type: Type, columns: EventColumns
    ) -> Vector:
        """Whether the arrays at a path contain `values` of this type; shapes broadcast."""
        rows = self._use(ids)
        elements = self._values.store.elements(path)
        codes = elements.codes(encode_argument(Constant(None, type), values, columns))
        return elements.member(*np.broadcast_arrays(rows, codes.reshape(values.values.shape)))

    def arrow(self, ids: Array, type: pa.DataType | None = None) -> pa.Array:
        """The whole values, for ids that are ready."""
        array = self._values.store.take(self._use(ids))
        return array if type is None or type == array.type else array.cast(type)

    def needed(self, ids: Array, counts: Array, level: int) -> None:
        """Counts the partial matches of class `level` that need each id now. `settle` ends the
        step; past steps estimate the future (EIRES, Algorithm 2)."""
        if self.remote.prefetches or self.remote.caching.policy == "cost":
            elements = self._of(ids)
            known = elements >= 0
            self._utility.needed(elements[known], np.asarray(counts)[known], level)

    def settle(self) -> None:
        """Evicts down to the capacity, except values that were waited for and not read yet. Called
        between blocks, when no value is in use."""
        self._take()
        self._states.settles += 1
        if self.remote.strategy == "blocking":
            self._values.drop(self._states.present())
        elif self._states.bytes > self.remote.caching.capacity:
            self._evict()
        self.metrics.bytes = max(self.metrics.bytes, self._states.bytes)
        self._utility.step()

    def trigger(self) -> None:
        """Begins a trigger: forgets values older than `ttl` and NULLs of failed keys. Ids of
        earlier triggers become invalid."""
        self._take()
        self.forget_keys()
        present = self._states.present()
        old = self._states.failed_null.all[present]
        if self.remote.ttl is not None:
            oldest = self._fetcher.now() - self.remote.ttl
            old = old | (self._states.fetched.all[present] <= oldest)
        self._values.drop(present[old])

    def forget_keys(self, held: Sequence[Array] = ()) -> None:
        """Forgets keys without a value, and the values of others, where the keys take more than the
        cache may. Ids become invalid but for those in the arrays `held`, which get the new ids."""
        bound = max(self.remote.caching.capacity, LEAST_KEY_BYTES)
        if self._parts.nbytes <= bound:
            return
        self._take()
        self._of(np.zeros(0, np.int64))  # every key has its element now
        # Half of it, so that the next keys fit, and forgetting costs little for each of them.
        self._evict_keys(int(bound / 2 / (self._parts.nbytes / max(self._parts.size, 1))))
        states = self._states
        stays = states.state.used != ABSENT
        for ids in held:
            elements = self._of(ids.ravel())
            stays[elements[elements >= 0]] = True
        self.generation += 1
        elements = np.flatnonzero(stays)
        new_ids = np.full(len(self._keys) + 1, NO_KEY)
        renumbered, ids_kept = self._parts.keep(elements)
        new_ids[ids_kept] = np.arange(len(ids_kept))
        for ids in held:
            ids[...] = new_ids[ids]
        states.keep(elements)
        self._values.keep(ids_kept, renumbered)
        self._utility.keep(elements, renumbered)
        for batch in self._unfinished.values():
            batch.elements = renumbered[batch.elements]

    def _evict_keys(self, most: int) -> None:
        """Evicts values down to so many, as if each took the same."""
        present = self._states.present()
        present = present[~self._states.is_spared(present)]
        if len(present) <= most:
            return
        cached = replace(self._cached(present), sizes=np.ones(len(present), np.int64))
        kept = cache.choose_kept(cached, replace(self.remote.caching, capacity=most))
        self.metrics.evicted += len(present) - int(np.count_nonzero(kept))
        self._values.drop(present[~kept])

    def _of(self, ids: Array) -> Array:
        elements = self._parts.of(ids)
        self._states.grow(self._parts.size)
        return elements

    def _elements(self, ids: Array) -> Array:
        elements = self._of(ids)
        return distinct_places(elements, self._parts.size)

    def _use(self, ids: Array) -> Array:
        """The rows of ids, which now count as used."""
        elements, states = self._elements(ids), self._states
        if (states.state.all[elements] != PRESENT).any():
            raise RuntimeError(f"remote {self.remote.name!r}: a value is read before it is ready")
        missed = int(np.count_nonzero(states.missed.all[elements]))
        self.metrics.hits += len(elements) - missed
        self._need(elements)
        unused = elements[states.unused.all[elements]]
        if len(unused):
            self.metrics.used += len(unused)
            self.metrics.prefetched_used += int(np.count_nonzero(states.ahead.all[unused]))
            self._count_hidden(np.unique(states.batch.all[unused]).tolist())
        states.use(elements)
        return self._values.rows(ids)

    def _ask(self, elements: Array) -> None:
        states = self._states
        self._need(elements)
        state = states.state.all[elements]
        lacking = elements[(state == ABSENT) | (state == IN_FLIGHT)]
        early = elements[state == IN_FLIGHT]
        early = early[states.ahead.all[early] & ~states.certain.all[early]]
        if not len(lacking):
            return
        self.metrics.misses += int(np.count_nonzero(~states.missed.all[lacking]))
        states.missed.all[lacking] = True
        states.certain.all[lacking] = True
        if len(early):
            self._fetcher.urge(np.unique(states.batch.all[early]).tolist())
        absent = elements[state == ABSENT]
        self._budget.needed += len(absent)
        self._start(absent, ahead=False)

    def _need(self, elements: Array) -> None:
        """Counts the prefetched elements that are needed now for the first time."""
        states = self._states
        found = elements[states.unneeded.all[elements]]
        if len(found):
            states.unneeded.all[found] = False
            self._budget.unneeded -= len(found)
            self._budget.needed += len(found)
            self._budget.timely += int(np.count_nonzero(states.state.all[found] == PRESENT))

    def _prefetch(self, elements: Array) -> None:
        absent = elements[self._states.state.all[elements] == ABSENT]
        if self._utility.is_known and self._is_full(len(absent)):
            present, weight = self._states.present(), self.remote.caching.fetch_weight
            worth = (self._utility.of(each, weight, self.latency) for each in (absent, present))
            absent = absent[cache.is_worth_fetching(*worth)]
        granted = self._budget.grant(len(absent))
        if granted < len(absent):
            absent = self._most_useful(absent, granted)
        self.metrics.prefetched += len(absent)
        self._budget.unneeded += len(absent)
        self._start(absent, ahead=True)

    def _most_useful(self, elements: Array, count: int) -> Array:
        if count and self._utility.is_known:
            weight = self.remote.caching.fetch_weight
            worth = self._utility.of(elements, weight, self.latency)
            elements = elements[np.argsort(-worth, kind="stable")]
        return elements[:count]

    def _is_full(self, more: int) -> bool:
        """Whether `more` elements of mean size would exceed the capacity."""
        states = self._states
        kept = max(int(np.count_nonzero(states.state.used == PRESENT)), 1)
        return states.bytes + more * (states.bytes / kept) > self.remote.caching.capacity

    def _start(self, elements: Array, *, ahead: bool) -> None:
        if not len(elements):
            return
        began = self._fetcher.now()
        size = len(elements) if self.remote.is_local else self.remote.fetch_policy.batch
        batches = []
        for start in range(0, len(elements), size):
            some = elements[start : start + size]
            batch = KeyBatch(some, self._parts.keys(some), ahead, next(self._numbers))
            batch.requested_at = batch.queued_at = began
            self._states.ask(some, batch.number, ahead=ahead)
            self._unfinished[batch.number] = batch
            batches.append(batch)
        self._waiting_since = began
        self._fetcher.start(batches)
        self._end_waiting(self._fetcher.now())

    def _end_waiting(self, now: float) -> None:
        if self._waiting_since is not None:
            self.metrics.waited_s += now - self._waiting_since
            self._covered.add(self._waiting_since, now)
        self._waiting_since = None

    def _count_hidden(self, numbers: list[int]) -> None:
        """Counts the time of fetches that turn out to be used, where nobody waited."""
        for number in numbers:
            span = self._spans.pop(number, None)
            if span is not None:
                self.metrics.hidden_s += self._covered.add(*span)

    def _take_back(self, batch: KeyBatch) -> None:
        """Forgets a batch that was never requested from the source."""
        del self._unfinished[batch.number]
        states, elements = self._states, batch.elements
        self.metrics.prefetched -= int(np.count_nonzero(states.ahead.all[elements]))
        unneeded = int(np.count_nonzero(states.unneeded.all[elements]))
        self._budget.unneeded -= unneeded
        self._budget.needed -= len(elements) - unneeded
        states.take_back(elements)

    def _take(self) -> None:
        fetcher, metrics = self._fetcher, self.metrics
        calls, keys = fetcher.calls, fetcher.keys
        metrics.calls += calls - self._calls
        metrics.keys += keys - self._requested
        self._calls, self._requested = calls, keys
        for arrival in self._fetcher.take():
            self._measure(arrival)
            self._values.receive(arrival, self.metrics)

    def _measure(self, arrival: FetchResult) -> None:
        batch, metrics = arrival.batch, self.metrics
        if batch.merged:  # elements may have got new numbers since the call began
            batch.elements = np.concatenate([part.elements for part in batch.merged])
        for part in batch.parts():
            self._unfinished.pop(part.number, None)
            self._spans[part.number] = (part.requested_at, arrival.ended)
        while len(self._spans) > MOST_SPANS:
            self._spans.popitem(last=False)
        metrics.retries += max(batch.attempts - (arrival.answer is None), 0)
        if arrival.answer is not None:
            share = LATENCY_WEIGHT if self._measured else 1.0
            self.latency += share * (arrival.seconds - self.latency)
            self._measured = True

    def _evict(self) -> None:
        states, caching = self._states, self.remote.caching
        present = states.present()
        spared = states.is_spared(present)
        left = caching.capacity - int(states.size.all[present[spared]].sum())
        present = present[~spared]
        kept = cache.choose_kept(self._cached(present), replace(caching, capacity=max(left, 0)))
        self.metrics.evicted += len(present) - int(np.count_nonzero(kept))
        self._values.drop(present[~kept])

    def _cached(self, present: Array) -> cache.CachedElements:
        states, caching = self._states, self.remote.caching
        worth = np.zeros(len(present))
        if caching.policy == "cost":
            worth = self._utility.of(present, caching.cache_weight, self.latency)
        return cache.CachedElements(
            states.size.all[present],
            states.last_used.all[present],
            states.certain.all[present],
            worth,
        )

    def _raise(self, failed: Array) -> None:
        """Raises the first failure and forgets all, so that a retried task fetches again."""
        self._states.state.all[failed] = ABSENT
        self.metrics.failures += len(failed)
        raise self._values.error(int(failed[0]))


# ---- the lookups of a worker process -------------------------------------------------------------
#
# Caches are never shared between queries: a lookup belongs to the token of its query and to a scope
# within which values count as constant. In a batch the scope is the stage, so that another action
# on the same answer fetches again; on a stream it is the running query, so that values live over
# triggers.


# A worker process serves few queries at a time; the least recently used lookup is closed.
MOST_LOOKUPS: Final = 16
_LookupKey = tuple[str, str]


@dataclass
class _CachedLookup:
    """`trigger`: on a stream, the last trigger that used the lookup."""

    lookup: Lookup
    scope: str
    trigger: str | None


_cached_lookups: OrderedDict[_LookupKey, _CachedLookup] = OrderedDict()


def get_lookups(
    remotes: Sequence[RemoteSpec], scope: str, trigger: str | None = None
) -> tuple[Lookup, ...]:
    """The lookup of each source, kept as long as the scope stays the same. `trigger`: on a stream;
    a new one begins a trigger of the lookup."""
    found = tuple(_get_lookup(remote, scope, trigger) for remote in remotes)
    while len(_cached_lookups) > max(MOST_LOOKUPS, len(remotes)):
        _cached_lookups.popitem(last=False)[1].lookup.close()
    return found


def end_lookups() -> None:
    """Ends the task, or the trigger, of all lookups of this process: a worker has one at a time."""
    for each in _cached_lookups.values():
        each.lookup.end()


def forget_lookups() -> None:
    """Closes and forgets all lookups, as in a new worker."""
    for each in _cached_lookups.values():
        each.lookup.close()
    _cached_lookups.clear()


def _get_lookup(remote: RemoteSpec, scope: str, trigger: str | None) -> Lookup:
    key = (remote.token, remote.name)
    found = _cached_lookups.pop(key, None)
    if found is not None and found.scope != scope:
        found = _CachedLookup(found.lookup.successor(remote), scope, trigger)
    elif found is None:
        found = _CachedLookup(Lookup(remote), scope, trigger)
    elif trigger is None:
        found.lookup.forget_keys()  # a new task, which has no ids yet
    elif found.trigger != trigger:
        found.trigger = trigger
        found.lookup.trigger()
    _cached_lookups[key] = found
    return found.lookup


# A forked process is a new worker.
os.register_at_fork(after_in_child=_cached_lookups.clear)
