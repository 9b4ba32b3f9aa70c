"""The worker's entry: the record batches of one bucket in, those of its answer out.

One call serves a whole Spark partition, which is one bucket of many keys (or of time slices).
Matches are handed back block by block while matching goes on, so a large answer is never held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.events.adaptive import AdaptiveEngine, cut_chunks
from spark_cep.udfs.events.answer import EventAnswer
from spark_cep.udfs.events.table import Events

if TYPE_CHECKING:
    from spark_cep.udfs.output import EventOutput
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.remotes.lookup import Lookup


# A partition's matches are numbered within a range of their own: 2^33 of them, 2^30 partitions.
MATCH_NUMBER_SHIFT = 33


def run_events(
    program: Program,
    output: EventOutput,
    batches: Iterator[pa.RecordBatch],
    partition: int,
    scope: str = "",
) -> Iterator[pa.RecordBatch]:
    """All matches of the batches, then one row of metrics. An empty bucket gives no row. `scope`:
    within which remote values count as constant."""
    read = [batch for batch in batches if batch.num_rows]
    if not read:
        return
    table = pa.Table.from_batches(read)
    del read
    try:
        matching = AdaptiveEngine(program, _open_lookups(program, scope))
        answer = None
        for step, found in matching.run(cut_chunks(program, table)):
            if answer is None or answer.events is not step.events:
                first = partition << MATCH_NUMBER_SHIFT if answer is None else answer.next_number
                answer = EventAnswer(step.events, output, first)
            yield from answer.batches(found)
        closing = answer or EventAnswer(Events(program, table.slice(0, 0)), output, 0)
        yield closing.metrics(matching.metrics)
    except CepError as error:
        raise WorkerError(error) from None


def _open_lookups(program: Program, scope: str) -> tuple[Lookup, ...]:
    if not program.remotes:
        return ()
    from spark_cep.udfs.remotes.lookup import get_lookups  # noqa: PLC0415 - few queries need it

    return get_lookups(program.remotes, scope)
