"""Looking up for rows that only pass by: record batches in, the same with values behind them.

    batch -> ids of its keys -> ask -> (up to AHEAD batches later) wait -> values -> hand on

What a batch wants is certain, so it is asked for as soon as the batch is there, while those before
it are handed on; only "blocking" waits for each batch by itself. Cached values may be dropped
between batches: then waiting asks anew.

Always holds: batches go out in their order, their own columns untouched. Where closing rows of an
engine come by, each takes along what was counted since the one before; elsewhere a column of its
own has what was counted, in the last row of a partition.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.remotes.metrics import LookupMetrics

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spark_cep.udfs.remote_spec import RemoteSpec
    from spark_cep.udfs.remotes.lookup import Lookup


# Batches that are asked for before the first of them is handed on: of 10,000 rows each, Spark's
# default, enough to keep several calls in flight, and little to hold.
BATCHES_AHEAD = 4


@dataclass(frozen=True)
class StageColumn:
    """One value for each row. `keys`: places of the columns with the key's parts."""

    remote: RemoteSpec
    keys: tuple[int, ...]
    type: pa.DataType


@dataclass(frozen=True)
class LookupStage:
    """`names`: the columns that go out, values behind the batch's own. `counts`: the place of the
    closing rows' counts among these, if they come by; else the last column is for our own."""

    asked: tuple[StageColumn, ...]
    names: tuple[str, ...]
    counts: int | None = None

    @property
    def width(self) -> int:
        """How many columns of a batch go out again; those behind are keys."""
        return len(self.names) - len(self.asked) - (self.counts is None)

    def remotes(self) -> tuple[RemoteSpec, ...]:
        """Each source once."""
        return tuple(dict.fromkeys(each.remote for each in self.asked))


@dataclass(frozen=True)
class _PendingBatch:
    batch: pa.RecordBatch
    ids: tuple[npt.NDArray[np.int64], ...]


def look_up_batches(
    asking: LookupStage, batches: Iterator[pa.RecordBatch], lookups: Sequence[Lookup]
) -> Iterator[pa.RecordBatch]:
    """The batches with their values. `lookups`: one for each of `asking.remotes()`."""
    try:
        yield from _StageRunner(asking, lookups).run(batches)
    except CepError as error:
        raise WorkerError(error) from None


class _StageRunner:
    def __init__(self, asking: LookupStage, lookups: Sequence[Lookup]) -> None:
        by_remote = dict(zip(asking.remotes(), lookups, strict=True))
        self._asking = asking
        self._lookups = tuple(lookups)
        self._of = tuple(by_remote[each.remote] for each in asking.asked)
        is_ahead = any(
            each.remote.strategy != "blocking" and not each.remote.is_local for each in asking.asked
        )
        self._ahead = BATCHES_AHEAD if is_ahead else 0

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._asking.counts is not None:
            for columns in self._passed(batches):
                place = self._asking.counts
                columns[place] = self._told_along(columns[place])
                yield self._batch(columns)
            return
        last: list[pa.Array] | None = None
        for columns in self._passed(batches):
            if last is not None:
                yield self._batch([*last, pa.nulls(len(last[0]), pa.string())])
            last = columns
        if last is not None:
            text = self._with_own("{}")
            yield self._batch([*last, pa.array([None] * (len(last[0]) - 1) + [text], pa.string())])

    def _passed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.Array]]:
        """The columns of each batch with its values."""
        queue: deque[_PendingBatch] = deque()
        for batch in (each for each in batches if each.num_rows):
            queue.append(self._begun(batch))
            if len(queue) > self._ahead:
                yield self._done(queue.popleft())
        while queue:
            yield self._done(queue.popleft())

    def _begun(self, batch: pa.RecordBatch) -> _PendingBatch:
        found = []
        for each, lookup in zip(self._asking.asked, self._of, strict=True):
            ids = lookup.ids([batch.column(place) for place in each.keys])
            if self._ahead:
                lookup.ask(ids)
            found.append(ids)
        return _PendingBatch(batch, tuple(found))

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, list(self._asking.names))

    def _done(self, waiting: _PendingBatch) -> list[pa.Array]:
        columns = list(waiting.batch.columns[: self._asking.width])
        for each, lookup, ids in zip(self._asking.asked, self._of, waiting.ids, strict=True):
            lookup.wait(ids)
            columns.append(lookup.arrow(ids, each.type))
        for lookup in self._lookups:
            lookup.settle()
        return columns

    def _told_along(self, counts: pa.Array) -> pa.Array:
        """The counts of closing rows with our own."""
        if counts.null_count == len(counts):
            return counts
        texts = [None if text is None else self._with_own(text) for text in counts.to_pylist()]
        return pa.array(texts, type=counts.type)

    def _with_own(self, text: str) -> str:
        counts: dict[str, Any] = json.loads(text)
        remotes = counts.setdefault("remotes", {})
        for lookup in self._lookups:
            name = lookup.remote.name
            total = LookupMetrics.from_dict(remotes.get(name, {}))
            # A worker keeps its lookups from task to task, so what was told is taken off.
            total.add(lookup.metrics.take())
            remotes[name] = total.to_dict()
        return json.dumps(counts)
