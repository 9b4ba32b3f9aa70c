"""The function that Spark runs where values are looked up outside the engine, and for whom.

It is pickled by value and finds the rest by import, so imports stand inside, as in
`shipping/worker_entry.py`. What is cached lives as long as its scope: a stage of a batch query,
so that two actions share nothing; a streaming query over all its triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.remotes.asking import Asking

# Under these names Spark tells tasks whose they are.
_QUERY, _TRIGGER = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class Scope:
    """Whose values a task looks up. `trigger`: the number of a stream's trigger, None in a
    batch."""

    name: str
    trigger: str | None = None


def stage_entry(
    asking: Asking,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Looks up for one partition."""

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.remotes.asking import looked_up  # noqa: PLC0415
        from spark_cep.udfs.remotes.known import lookups  # noqa: PLC0415

        task = scope()
        known = lookups(asking.remotes(), task.name, task.trigger)
        yield from looked_up(asking, batches, known)

    names = ", ".join(each.name for each in asking.remotes())
    look_up.__name__ = look_up.__qualname__ = f"look_up[{names}]"
    return look_up


def scope() -> Scope:
    """The scope of the task that this runs in."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    if context is None:
        return Scope("driver")
    query = context.getLocalProperty(_QUERY)
    if query is None:
        return Scope(f"stage {context.stageId()}")
    return Scope(f"query {query}", context.getLocalProperty(_TRIGGER))
