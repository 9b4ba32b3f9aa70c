"""The lookup stage: record batches in, the same batches with looked-up values behind them.

    batch -> ids of its keys -> request -> (up to BATCHES_AHEAD batches later) wait -> values

The values of a batch are certainly needed, so they are requested as soon as the batch arrives,
while the batches before it are passed on; only "blocking" waits for each batch by itself. Cached
values may be evicted between batches; waiting then requests them again.

Always holds: batches leave in their order, with their own columns untouched. Where closing rows of
the engine pass, each takes the counts since the one before; elsewhere a column of the stage has
the counts, in the last row of a partition.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.remote_spec import LookupMetrics

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spark_cep.udfs.remote_spec import RemoteSpec
    from spark_cep.udfs.remotes.lookup import Lookup


# How many batches are requested before the first of them is passed on: at Spark's default of 10,000
# rows each, enough to keep several calls in flight, and little to hold in memory.
BATCHES_AHEAD = 4


@dataclass(frozen=True)
class StageColumn:
    """A looked-up column. `keys`: the places of the columns with the parts of the key."""

    remote: RemoteSpec
    keys: tuple[int, ...]
    type: pa.DataType


@dataclass(frozen=True)
class LookupStage:
    """`names`: the output columns, values behind the batch's own. `counts`: the place of the
    closing rows' counts, if they pass; otherwise the last column has the counts of the stage."""

    columns: tuple[StageColumn, ...]
    names: tuple[str, ...]
    counts: int | None = None

    @property
    def width(self) -> int:
        """How many columns of a batch are passed on; the others are keys."""
        return len(self.names) - len(self.columns) - (self.counts is None)

    def remotes(self) -> tuple[RemoteSpec, ...]:
        """Each source once, in order."""
        return tuple(dict.fromkeys(each.remote for each in self.columns))


@dataclass(frozen=True)
class _PendingBatch:
    batch: pa.RecordBatch
    ids: tuple[npt.NDArray[np.int64], ...]


def look_up_batches(
    stage: LookupStage, batches: Iterator[pa.RecordBatch], lookups: Sequence[Lookup]
) -> Iterator[pa.RecordBatch]:
    """The batches with their values. `lookups`: one for each of `stage.remotes()`."""
    try:
        yield from _StageRunner(stage, lookups).run(batches)
    except CepError as error:
        raise WorkerError(error) from None
    finally:
        # Also where Spark closes the generator, because it needs no more rows.
        for lookup in lookups:
            lookup.end()


class _StageRunner:
    def __init__(self, stage: LookupStage, lookups: Sequence[Lookup]) -> None:
        by_remote = dict(zip(stage.remotes(), lookups, strict=True))
        self._stage = stage
        self._lookups = tuple(lookups)
        self._lookup_of = tuple(by_remote[each.remote] for each in stage.columns)
        is_ahead = any(
            each.remote.strategy != "blocking" and not each.remote.is_local
            for each in stage.columns
        )
        self._ahead = BATCHES_AHEAD if is_ahead else 0

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._stage.counts is not None:
            for columns in self._with_values(batches):
                place = self._stage.counts
                columns[place] = self._add_own_counts(columns[place])
                yield self._to_batch(columns)
            return
        last: list[pa.Array] | None = None
        for columns in self._with_values(batches):
            if last is not None:
                yield self._to_batch([*last, pa.nulls(len(last[0]), pa.string())])
            last = columns
        if last is not None:
            text = self._merge_counts("{}")
            yield self._to_batch(
                [*last, pa.array([None] * (len(last[0]) - 1) + [text], pa.string())]
            )

    def _with_values(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.Array]]:
        """The columns of each batch with its values."""
        queue: deque[_PendingBatch] = deque()
        for batch in (each for each in batches if each.num_rows):
            queue.append(self._request(batch))
            if len(queue) > self._ahead:
                yield self._complete(queue.popleft())
                self._forget_keys(queue)
        while queue:
            yield self._complete(queue.popleft())

    def _request(self, batch: pa.RecordBatch) -> _PendingBatch:
        all_ids = []
        for each, lookup in zip(self._stage.columns, self._lookup_of, strict=True):
            ids = lookup.ids([batch.column(place) for place in each.keys])
            if self._ahead:
                lookup.ask(ids)
            all_ids.append(ids)
        return _PendingBatch(batch, tuple(all_ids))

    def _to_batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, list(self._stage.names))

    def _complete(self, waiting: _PendingBatch) -> list[pa.Array]:
        columns = list(waiting.batch.columns[: self._stage.width])
        for each, lookup, ids in zip(
            self._stage.columns, self._lookup_of, waiting.ids, strict=True
        ):
            lookup.wait(ids)
            columns.append(lookup.arrow(ids, each.type))
        for lookup in self._lookups:
            lookup.settle()
        return columns

    def _forget_keys(self, queue: Iterable[_PendingBatch]) -> None:
        """Keeps the keys of a source within its cache, but for those of the batches that wait."""
        for lookup in self._lookups:
            lookup.forget_keys(
                [
                    ids
                    for waiting in queue
                    for ids, own in zip(waiting.ids, self._lookup_of, strict=True)
                    if own is lookup
                ]
            )

    def _add_own_counts(self, counts: pa.Array) -> pa.Array:
        """The counts of closing rows, with those of the stage added."""
        if counts.null_count == len(counts):
            return counts
        texts = [None if text is None else self._merge_counts(text) for text in counts.to_pylist()]
        return pa.array(texts, type=counts.type)

    def _merge_counts(self, text: str) -> str:
        counts: dict[str, Any] = json.loads(text)
        remotes = counts.setdefault("remotes", {})
        for lookup in self._lookups:
            name = lookup.remote.name
            total = LookupMetrics.from_dict(remotes.get(name, {}))
            # A worker keeps its lookups from task to task, so reported counts are taken off.
            total.add(lookup.metrics.take())
            remotes[name] = total.to_dict()
        return json.dumps(counts)
