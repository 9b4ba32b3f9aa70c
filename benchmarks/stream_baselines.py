"""What keeping a window's rows costs on a stream when nothing is done with them.

`kept_blobs` is the library's way without the matching: rows packed by bucket, one stateful
operator, a segment a trigger in the same store, the same timer. `kept_rows` is what one writes by
hand: rows grouped by their key, a list state each. Both drop what lies a window behind the
watermark and answer with counts, or with the values of one column, each once: when they arrive
in the sink says what Spark's own way takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_cep.spark.processor import BLOB_SCHEMA, SparkStateStore
from spark_cep.udfs.execution.job import from_blob, pack_rows, to_blob, unpack_answer

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from spark_cep.udfs.execution.state import StateStore

MICROSECONDS = 1000


@dataclass
class Kept:
    """Segments as [number, rows, latest time]."""

    segments: list[list[int]] = field(default_factory=list)
    next_segment: int = 0

    def keep(self, store: StateStore, blobs: tuple[bytes, ...], time: str, horizon: int) -> int:
        """Adds a trigger's rows, drops the segments up to the horizon; the rows that are left."""
        if blobs:
            rows = pa.concat_tables([from_blob(blob) for blob in blobs]).combine_chunks()
            latest = pa.compute.max(rows.column(time)).cast(pa.int64()).as_py()
            store.write(self.next_segment, to_blob(rows))
            self.segments.append([self.next_segment, rows.num_rows, latest])
            self.next_segment += 1
        for number, _, latest in self.segments:
            if latest < horizon:
                store.remove(number)
        self.segments = [each for each in self.segments if each[2] >= horizon]
        store.put_header(json.dumps(vars(self)).encode())
        return sum(rows for _, rows, _ in self.segments)


def kept_by(store: StateStore) -> Kept:
    header = store.header()
    return Kept() if header is None else Kept(**json.loads(header))


class KeepBlobs(StatefulProcessor):
    def __init__(self, time: str, window_us: int, echoed: str | None) -> None:
        self._time = time
        self._window_us = window_us
        self._echoed = echoed

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._header = handle.getValueState("header", "blob binary, timer bigint")
        self._blobs = handle.getMapState("blobs", "number bigint", "blob binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        blobs = tuple(bytes(blob) for frame in rows for blob in frame["blob"])
        return self._trigger(blobs, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        return self._trigger((), timerValues)

    def close(self) -> None:
        pass

    def _trigger(
        self, blobs: tuple[bytes, ...], timer_values: TimerValues
    ) -> Iterator[pd.DataFrame]:
        watermark = int(timer_values.getCurrentWatermarkInMs())
        store = SparkStateStore(self._header.get(), self._blobs)
        horizon = watermark * MICROSECONDS - self._window_us
        left = kept_by(store).keep(store, blobs, self._time, horizon)
        yield pd.DataFrame({"blob": [self._answer(blobs, left)]})
        if store.timer != watermark + 1:
            if blobs and store.timer is not None:
                self._handle.deleteTimer(store.timer)
            self._handle.registerTimer(watermark + 1)
        self._header.update((store.written, watermark + 1))

    def _answer(self, blobs: tuple[bytes, ...], left: int) -> bytes:
        if self._echoed is None:
            return to_blob(pa.table({"rows": [left]}))
        columns = [from_blob(blob).column(self._echoed) for blob in blobs]
        values = pa.chunked_array([part for each in columns for part in each.chunks], pa.int64())
        return to_blob(pa.table({"rows": values.unique()}))


class KeepRows(StatefulProcessor):
    """A list of rows for each key, rewritten without those that are too old."""

    def __init__(self, columns: str, window_us: int) -> None:
        self._columns = columns
        self._window_us = window_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._rows = handle.getListState("rows", self._columns)

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        oldest = int(timerValues.getCurrentWatermarkInMs()) * MICROSECONDS - self._window_us
        held = [row for row in self._rows.get() if row[0] >= oldest]
        for frame in rows:
            held += frame[["at", "mask", "price"]].itertuples(index=False, name=None)
        self._rows.put(held)
        yield pd.DataFrame({"symbol": [key[0]], "rows": [len(held)]})

    def close(self) -> None:
        pass


def kept_blobs(below: DataFrame, time: str, window_us: int, echoed: str | None = None) -> DataFrame:
    """`below`: the shipped columns and, last, the bucket. `echoed`: a column of long."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from pack_rows(batches)

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from unpack_answer(batches)

    keeping = KeepBlobs(time, window_us, echoed)
    return (
        below.mapInArrow(pack, f"bucket int, {BLOB_SCHEMA}")
        .groupBy("bucket")
        .transformWithStateInPandas(keeping, BLOB_SCHEMA, "append", "eventTime")
        .mapInArrow(unpack, "rows long")
    )


def kept_rows(ticks: DataFrame, window_us: int) -> DataFrame:
    """`ticks`: the columns symbol, ts, kind and price."""
    columns = ticks.selectExpr(
        "symbol", "ts", "unix_micros(ts) AS at", "CASE kind WHEN 'A' THEN 1 WHEN 'B' THEN 2 "
        "ELSE 4 END AS mask", "price",
    )  # fmt: skip
    keeping = KeepRows("at bigint, mask int, price double", window_us)
    return columns.groupBy("symbol").transformWithStateInPandas(
        keeping, "symbol long, rows long", "append", "eventTime"
    )


def below_engine(matches: DataFrame) -> DataFrame:
    """The rows that a stream's operator is given: its plan below the packing, as it is."""
    spark: Any = matches.sparkSession
    node: Any = matches._jdf.queryExecution().analyzed()
    for _ in range(2):  # the unpacking of answers, then the packing of rows
        while node.nodeName() != "MapInArrow":
            node = node.children().head()
        node = node.children().head()
    of_rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows
    return DataFrame(of_rows(spark._jsparkSession, node), spark)
