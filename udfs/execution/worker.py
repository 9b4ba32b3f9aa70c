"""The worker's entry in a batch: the record batches of one bucket in, those of its answer out.

One call serves a whole Spark partition, which is one bucket of many keys (or of time slices).
Matches are handed back block by block while matching goes on, so a large answer is never held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.execution.engine import make_engine, metrics_row

if TYPE_CHECKING:
    from spark_cep.udfs.execution.row_engine import CompiledRowProgram
    from spark_cep.udfs.output import EventOutput, RowOutput
    from spark_cep.udfs.program import Program


def run(
    program: Program | CompiledRowProgram,
    output: EventOutput | RowOutput,
    batches: Iterator[pa.RecordBatch],
    bucket: int,
    scope: str = "",
) -> Iterator[pa.RecordBatch]:
    """All matches of the batches, then one row of metrics. An empty bucket gives no row. `scope`:
    within which remote values count as constant."""
    read = [batch for batch in batches if batch.num_rows]
    if not read:
        return
    try:
        engine = make_engine(program, output, bucket)
        engine.open_remotes(scope)
        advance = engine.advance(engine.empty_state(), pa.Table.from_batches(read), None)
        # From here on only the engine holds the rows, so it may let go of them.
        del read
        yield from advance
        yield metrics_row(engine.answer_schema(), engine.take_metrics())
    except CepError as error:
        raise WorkerError(error) from None
