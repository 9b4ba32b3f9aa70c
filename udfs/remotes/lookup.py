"""The values of one remote source, in a worker, for one query: what the engine asks.

Always holds: an element (what one fetch of one key gives) is absent, under way, failed or here; it
leaves only in `settle` and `trigger`, so what `ready` and `wait` promised can be read until then.
A failure is raised by `wait` and not when it happens: a fetch that nobody comes to need must not
end the query, or strategies would differ in more than time. One thread only; the fetches' threads
leave their answers in a `Fetching`, and they are taken in by `ready` and `wait`.
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.expressions import Constant
from spark_cep.udfs.remotes import cache
from spark_cep.udfs.remotes.answers import LookupValues
from spark_cep.udfs.remotes.fetching import ImmediateFetcher, KeyBatch, ThreadedFetcher
from spark_cep.udfs.remotes.keys import KeyIndex, PartIndex, distinct_places
from spark_cep.udfs.remotes.metrics import LookupMetrics
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


# --------------------------------------------------------------------------------------------------
# Vectors of the engine as Arrow arrays for looking up: strings by their few different codes.
# --------------------------------------------------------------------------------------------------


def encode_argument(argument: Expression, vector: Vector, columns: EventColumns) -> pa.Array:
    """The values of an expression, in one dimension, as an array of its type. Codes of strings
    become a dictionary, so that each string is read once and not for every row."""
    shape = vector.values.shape
    values = vector.values.ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    if argument.type.kind not in WORD_KINDS or values.dtype == object:
        return vector_to_arrow(argument, Vector(values, valid), columns)
    codes = pa.array(values, mask=None if valid is None else ~valid).dictionary_encode()
    words = columns.words(argument.type.kind).decode(codes.dictionary.to_numpy(), None)
    return pa.DictionaryArray.from_arrays(codes.indices, words)


# Until a fetch has been measured.
INITIAL_LATENCY_S = 0.01
# So much of the latency is that of the last fetch.
LATENCY_WEIGHT = 0.2
# On streams a lookup lives long, and keys alone take some 200 bytes each, also of values that were
# evicted. A trigger that finds more of them begins with nothing.
MOST_KEYS = 1 << 20


class Lookup:
    """`latency`: the seconds that a batch takes now."""

    def __init__(self, remote: RemoteSpec, fetching: Fetcher | None = None) -> None:
        self.remote = remote
        self.metrics = LookupMetrics()
        self.latency = 0.0 if remote.is_local else INITIAL_LATENCY_S
        self._fetching = fetching or (
            ImmediateFetcher(remote) if remote.is_local else ThreadedFetcher(remote)
        )
        self._numbers = itertools.count()
        self._measured = False
        # What the metrics have of the fetching's counts.
        self._calls = self._asked = 0
        # How long matching has stood still, and since when it does now.
        self._stood = 0.0
        self._stands_since: float | None = None
        self._begin()

    def _begin(self) -> None:
        """Nothing is known of any key."""
        self._keys = KeyIndex(self.remote.keys)
        self._parts = PartIndex(self._keys, self.remote)
        self._states = ElementStates()
        self._values = LookupValues(self.remote, self._keys, self._parts, self._states)
        self._utility = cache.FetchUtility()

    @property
    def arrivals(self) -> int:
        return self._fetching.arrivals

    def close(self) -> None:
        self._fetching.close()

    def ids(self, keys: Sequence[pa.Array]) -> Array:
        """An id for each row of the key's parts, -1 where one is NULL."""
        return self._keys.ids(keys)

    def ready(self, ids: Array) -> Array:
        self._take()
        elements = self._of(ids)
        return np.asarray(self._states.state.all[elements] == PRESENT)

    def ask(self, ids: Array, *, ahead: bool = False) -> None:
        """Starts fetching what is absent; gives no answer and raises nothing."""
        if ahead and (not self.remote.prefetches or self._fetching.broken):
            return
        self._take()
        elements = self._elements(ids)
        if ahead:
            self._ask_ahead(elements)
        else:
            self._ask(elements)

    def wait(self, ids: Array) -> None:
        """Until all are ready; RemoteError if one has failed for good."""
        if self.ready(ids).all():
            return
        elements = self._elements(ids)
        state = self._states.state
        while (state.all[elements] < FAILED).any():
            # Each time: what was fetched ahead may have been given up just as it was needed.
            self._ask(elements)
            self._stands_since = self._fetching.now()
            self._fetching.wait()
            self._take()
            self._stand_until(self._fetching.now())
        self._states.wait(elements)
        failed = elements[state.all[elements] == FAILED]
        if len(failed):
            self._raise(failed)

    def vector(self, ids: Array, path: FieldPath, type: Type, columns: EventColumns) -> Vector:
        """The values at a path, of ids that are ready."""
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
        array = self._values.store.take(self._use(ids))
        return array if type is None or type == array.type else array.cast(type)

    def needed(self, ids: Array, counts: Array, level: int) -> None:
        """So many partial matches of class `level` need each of these now: adds up until
        `settle`, and is then the past by which the future is estimated."""
        if self.remote.prefetches or self.remote.caching.policy == "cost":
            elements = self._of(ids)
            known = elements >= 0
            self._utility.needed(elements[known], np.asarray(counts)[known], level)

    def settle(self) -> None:
        """Brings what is kept to its capacity, but for what was waited for and not read yet;
        between blocks, when nothing is in use."""
        self._take()
        self._states.settles += 1
        if self.remote.strategy == "blocking":
            self._values.drop(self._states.here())
        elif self._states.bytes > self.remote.caching.capacity:
            self._evict()
        self.metrics.bytes = max(self.metrics.bytes, self._states.bytes)
        self._utility.step()

    def trigger(self) -> None:
        """A new trigger: what is too old is fetched anew, and what has failed is tried again. Ids
        of the triggers before mean nothing any more."""
        self._take()
        if len(self._keys) > MOST_KEYS and not (self._states.state.used == IN_FLIGHT).any():
            self._begin()
        here = self._states.here()
        old = self._states.untrue.all[here]
        if self.remote.ttl is not None:
            oldest = self._fetching.now() - self.remote.ttl
            old = old | (self._states.fetched.all[here] <= oldest)
        self._values.drop(here[old])

    def _of(self, ids: Array) -> Array:
        elements = self._parts.of(ids)
        self._states.grow(self._parts.size)
        return elements

    def _elements(self, ids: Array) -> Array:
        elements = self._of(ids)
        return distinct_places(elements, self._parts.size)

    def _use(self, ids: Array) -> Array:
        """The rows of ids, and notes that they are read."""
        elements, states = self._elements(ids), self._states
        if (states.state.all[elements] != PRESENT).any():
            raise RuntimeError(f"remote {self.remote.name!r}: read before it was ready")
        missed = int(np.count_nonzero(states.missed.all[elements]))
        self.metrics.hits += len(elements) - missed
        self.metrics.prefetched_used += int(np.count_nonzero(states.ahead.all[elements]))
        states.use(elements)
        return self._values.rows(ids)

    def _ask(self, elements: Array) -> None:
        states = self._states
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
            self._fetching.urge(np.unique(states.batch.all[early]).tolist())
        self._start(elements[state == ABSENT], ahead=False)

    def _ask_ahead(self, elements: Array) -> None:
        absent = elements[self._states.state.all[elements] == ABSENT]
        if self._utility.is_known and self._is_full(len(absent)):
            here, weight = self._states.here(), self.remote.caching.fetch_weight
            worth = (self._utility.of(each, weight, self.latency) for each in (absent, here))
            absent = absent[cache.is_worth_fetching(*worth)]
        self.metrics.prefetched += len(absent)
        self._start(absent, ahead=True)

    def _is_full(self, more: int) -> bool:
        """Whether so many elements of the usual size would not fit any more."""
        states = self._states
        kept = max(int(np.count_nonzero(states.state.used == PRESENT)), 1)
        return states.bytes + more * (states.bytes / kept) > self.remote.caching.capacity

    def _start(self, elements: Array, *, ahead: bool) -> None:
        if not len(elements):
            return
        began = self._fetching.now()
        size = len(elements) if self.remote.is_local else self.remote.patience.batch
        batches = []
        for start in range(0, len(elements), size):
            some = elements[start : start + size]
            batch = KeyBatch(some, self._parts.keys(some), ahead, next(self._numbers))
            batch.asked, batch.stood = began, self._stood
            self._states.ask(some, batch.number, ahead=ahead)
            batches.append(batch)
        self._stands_since = began
        self._fetching.start(batches)
        self._stand_until(self._fetching.now())

    def _stand_until(self, now: float) -> None:
        if self._stands_since is not None:
            self._stood += now - self._stands_since
            self.metrics.waited_s += now - self._stands_since
        self._stands_since = None

    def _take(self) -> None:
        fetching, metrics = self._fetching, self.metrics
        calls, keys = fetching.calls, fetching.keys
        metrics.calls += calls - self._calls
        metrics.keys += keys - self._asked
        self._calls, self._asked = calls, keys
        for arrival in self._fetching.take():
            self._measure(arrival)
            self._values.arrived(arrival, self.metrics)

    def _measure(self, arrival: FetchResult) -> None:
        batch, metrics = arrival.batch, self.metrics
        stood = self._stood - batch.stood
        if self._stands_since is not None:
            stood += max(arrival.ended - self._stands_since, 0.0)
        metrics.hidden_s += max(arrival.ended - batch.asked - stood, 0.0)
        metrics.retries += max(batch.attempts - (arrival.answer is None), 0)
        if arrival.answer is not None:
            share = LATENCY_WEIGHT if self._measured else 1.0
            self.latency += share * (arrival.seconds - self.latency)
            self._measured = True

    def _evict(self) -> None:
        states, caching = self._states, self.remote.caching
        here = states.here()
        spared = states.is_spared(here)
        left = caching.capacity - int(states.size.all[here[spared]].sum())
        here = here[~spared]
        kept = cache.choose_kept(self._held(here), replace(caching, capacity=max(left, 0)))
        self.metrics.evicted += len(here) - int(np.count_nonzero(kept))
        self._values.drop(here[~kept])

    def _held(self, here: Array) -> cache.CachedElements:
        states, caching = self._states, self.remote.caching
        worth = np.zeros(len(here))
        if caching.policy == "cost":
            worth = self._utility.of(here, caching.cache_weight, self.latency)
        return cache.CachedElements(
            states.size.all[here], states.last_used.all[here], states.certain.all[here], worth
        )

    def _raise(self, failed: Array) -> None:
        """Forgets the failures too, so that a task that is tried again asks again."""
        self._states.state.all[failed] = ABSENT
        self.metrics.failures += len(failed)
        raise self._values.error(int(failed[0]))


# --------------------------------------------------------------------------------------------------
# The lookups that a worker process keeps: one for each source of a query, shared by its buckets.
#
# Caches are never shared between queries: a lookup is found by the token of its query and by a
# scope, in which values count as constant. In batch that is the stage, so that another action on
# the same answer fetches anew; on streams it is the running query, so that values live over
# triggers.
# --------------------------------------------------------------------------------------------------


# A worker process serves few queries at once; what was asked for the longest ago goes.
MOST_LOOKUPS: Final = 16
_LookupKey = tuple[str, str]


@dataclass
class _CachedLookup:
    """`trigger`: of a stream, that the lookup was last asked for in."""

    lookup: Lookup
    scope: str
    trigger: str | None


_cached_lookups: OrderedDict[_LookupKey, _CachedLookup] = OrderedDict()


def get_lookups(
    remotes: Sequence[RemoteSpec], scope: str, trigger: str | None = None
) -> tuple[Lookup, ...]:
    """A lookup for each source, kept as long as the scope stays the same. `trigger`: of a stream;
    lookups are told when another one begins."""
    found = tuple(_get_lookup(remote, scope, trigger) for remote in remotes)
    while len(_cached_lookups) > max(MOST_LOOKUPS, len(remotes)):
        _cached_lookups.popitem(last=False)[1].lookup.close()
    return found


def forget_lookups() -> None:
    """Everything, as in a new worker."""
    for each in _cached_lookups.values():
        each.lookup.close()
    _cached_lookups.clear()


def _get_lookup(remote: RemoteSpec, scope: str, trigger: str | None) -> Lookup:
    key = (remote.token, remote.name)
    found = _cached_lookups.pop(key, None)
    if found is not None and found.scope != scope:
        found.lookup.close()
        found = None
    if found is None:
        found = _CachedLookup(Lookup(remote), scope, trigger)
    elif found.trigger != trigger:
        found.trigger = trigger
        found.lookup.trigger()
    _cached_lookups[key] = found
    return found.lookup


# A forked process is a new worker.
os.register_at_fork(after_in_child=_cached_lookups.clear)
