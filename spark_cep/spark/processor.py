"""The stateful operator: Spark's side of one trigger of one bucket.

It is pickled into the plan and found by import in the workers. A timer one millisecond behind the
present watermark wakes every bucket when the watermark moves. So windows also close where no rows
come, and every bucket knows which rows are late.

Where buckets wait for remote data, a bucket only begins when its rows come, and finishes in a timer
of the same trigger: Spark calls timers when all buckets of the task have had their rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_cep.spark.versions import StatefulProcessor

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from spark_cep.udfs.execution.job import StreamJob, TriggerInput
    from spark_cep.udfs.execution.trigger import TaskTriggers


BLOB_SCHEMA = "blob binary"


class BucketProcessor(StatefulProcessor):
    def __init__(self, job: StreamJob) -> None:
        self._job = job

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._header = handle.getValueState("header", "blob binary, timer bigint")
        self._blobs = handle.getMapState("blobs", "number bigint", "blob binary")
        self._triggers: TaskTriggers | None = None
        self._stores: dict[int, SparkStateStore] = {}

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        from spark_cep.udfs.execution.job import GUARD_BUCKET  # noqa: PLC0415
        from spark_cep.udfs.execution.trigger import takes_turns  # noqa: PLC0415

        blobs = tuple(bytes(blob) for frame in rows for blob in frame["blob"])
        if int(key[0]) == GUARD_BUCKET:
            self._guard()
            return iter(())
        if takes_turns(self._job):
            store = self._begin(key, blobs, timerValues)
            self._wake(store, timerValues)
            return iter(())
        return self._trigger(key, blobs, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        from spark_cep.udfs.execution.trigger import takes_turns  # noqa: PLC0415

        del expiredTimerInfo
        if not takes_turns(self._job):
            return self._trigger(key, (), timerValues)
        if self._triggers is None or not self._triggers.has_begun(int(key[0])):
            self._begin(key, (), timerValues)
        return self._finish(key, timerValues)

    def close(self) -> None:
        from spark_cep.udfs.execution.trigger import TaskTriggers, takes_turns  # noqa: PLC0415

        if self._triggers is None and takes_turns(self._job):
            self._triggers = TaskTriggers(self._job)  # timers may have looked values up
        if self._triggers is not None:
            self._triggers.close()

    def _guard(self) -> None:
        from spark_cep.udfs.execution.trigger import check_checkpoint  # noqa: PLC0415

        store = SparkStateStore(self._header.get(), self._blobs)
        check_checkpoint(self._job, store)
        if store.written is not None:
            self._header.update((store.written, 0))

    def _trigger(
        self, key: Any, blobs: tuple[bytes, ...], timer_values: TimerValues
    ) -> Iterator[pd.DataFrame]:
        from spark_cep.udfs.execution.trigger import run_trigger  # noqa: PLC0415

        watermark = int(timer_values.getCurrentWatermarkInMs())
        store = SparkStateStore(self._header.get(), self._blobs)
        arrived = _trigger_input(key, blobs, watermark)
        yield from _to_frames(run_trigger(self._job, store, arrived))
        timer = watermark + 1
        if store.timer != timer:
            if blobs and store.timer is not None:
                self._handle.deleteTimer(store.timer)
            self._handle.registerTimer(timer)
        self._header.update((store.written, timer))

    # ---- two phases ----------------------------------------------------------------------------

    def _begin(
        self, key: Any, blobs: tuple[bytes, ...], timer_values: TimerValues
    ) -> SparkStateStore:
        from spark_cep.udfs.execution.trigger import TaskTriggers  # noqa: PLC0415

        if self._triggers is None:
            self._triggers = TaskTriggers(self._job)
        watermark = int(timer_values.getCurrentWatermarkInMs())
        store = SparkStateStore(self._header.get(), self._blobs)
        self._stores[int(key[0])] = store
        self._triggers.begin(store, _trigger_input(key, blobs, watermark))
        return store

    def _wake(self, store: SparkStateStore, timer_values: TimerValues) -> None:
        """Sees to it that a timer of the bucket is due in this trigger."""
        due = int(timer_values.getCurrentWatermarkInMs()) - 1
        if store.timer is None or store.timer > due:
            if store.timer is not None:
                self._handle.deleteTimer(store.timer)
            self._handle.registerTimer(due)

    def _finish(self, key: Any, timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        assert self._triggers is not None
        yield from _to_frames(self._triggers.finish(int(key[0])))
        store = self._stores.pop(int(key[0]))
        # Spark deletes the timer that has brought us here.
        timer = int(timer_values.getCurrentWatermarkInMs()) + 1
        self._handle.registerTimer(timer)
        self._header.update((store.written, timer))


def _trigger_input(key: Any, blobs: tuple[bytes, ...], watermark: int) -> TriggerInput:
    from spark_cep.spark.entry import task_scope  # noqa: PLC0415
    from spark_cep.udfs.execution.job import TriggerInput, horizon_of  # noqa: PLC0415

    scope = task_scope()
    return TriggerInput(int(key[0]), blobs, horizon_of(watermark), scope.name, scope.trigger)


def _to_frames(blobs: Iterator[bytes]) -> Iterator[pd.DataFrame]:
    import pandas as pd  # noqa: PLC0415

    for blob in blobs:
        yield pd.DataFrame({"blob": [blob]})


class SparkStateStore:
    """A bucket's state in Spark's state store (`spark_cep.udfs.execution.state.StateStore`)."""

    def __init__(self, row: Any, blobs: Any) -> None:
        self._row = row
        self._blobs = blobs
        self.timer: int | None = None if row is None else int(row[1])
        self.written: bytes | None = None

    def header(self) -> bytes | None:
        return None if self._row is None else bytes(self._row[0])

    def put_header(self, header: bytes) -> None:
        self.written = header

    def read(self, number: int) -> bytes:
        return bytes(self._blobs.getValue((number,))[0])

    def write(self, number: int, blob: bytes) -> None:
        self._blobs.updateValue((number,), (blob,))

    def remove(self, number: int) -> None:
        self._blobs.removeKey((number,))
