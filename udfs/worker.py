"""The worker's entry: the record batches of one bucket in, those of its answer out.

One call serves a whole Spark partition, which is one bucket of many keys (or of time slices).
Matches are handed back block by block while matching goes on, so a large answer is never held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cep.udfs.answer import Answer
from spark_cep.udfs.engine import State, advance
from spark_cep.udfs.errors import CepError, WorkerError

if TYPE_CHECKING:
    from spark_cep.udfs.output import Output
    from spark_cep.udfs.program import Program

# A partition's matches are numbered within a range of their own: 2^33 of them, 2^30 partitions.
NUMBERS_SHIFT = 33


def run(
    program: Program, output: Output, batches: Iterator[pa.RecordBatch], partition: int
) -> Iterator[pa.RecordBatch]:
    """All matches of the batches, then one row of metrics. An empty bucket gives no row."""
    read = [batch for batch in batches if batch.num_rows]
    if not read:
        return
    table = pa.Table.from_batches(read)
    del read
    try:
        step = advance(program, State(), table)
        answer = Answer(step.events, output, partition << NUMBERS_SHIFT)
        for found in step.matches:
            yield from answer.batches(found)
        yield answer.metrics(step.metrics)
    except CepError as error:
        raise WorkerError(error) from None
