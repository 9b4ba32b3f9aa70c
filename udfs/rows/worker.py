"""The worker's entry for row patterns: the record batches of one bucket in, its answer's out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.rows.answer import Answer, bucket_counts
from spark_cep.udfs.rows.compiled import compiled
from spark_cep.udfs.rows.search import Search
from spark_cep.udfs.rows.table import Table
from spark_cep.udfs.values.tally import Tally

if TYPE_CHECKING:
    from spark_cep.udfs.rows.gaps.search import GapSearch
    from spark_cep.udfs.rows.output import RowOutput
    from spark_cep.udfs.rows.program import RowProgram


def run(
    program: RowProgram, output: RowOutput, batches: Iterator[pa.RecordBatch], partition: int
) -> Iterator[pa.RecordBatch]:
    """All matches of the batches, then one row of metrics. An empty bucket gives no row.

    `partition` says nothing here: matches are numbered in their partition of the input.
    """
    read = [batch for batch in batches if batch.num_rows]
    if not read:
        return
    # One chunk a column: each reader of several would put them together again.
    shipped = pa.Table.from_batches(read).combine_chunks()
    del read
    try:
        yield from _run(program, output, shipped)
    except CepError as error:
        raise WorkerError(error) from None


def _search(program: RowProgram, table: Table, tally: Tally) -> Search | GapSearch:
    if program.matcher == "walk":
        return Search(compiled(program), table, tally)
    # Joins need much that the kernel does not.
    from spark_cep.udfs.rows.gaps.search import GapSearch  # noqa: PLC0415

    return GapSearch(table, tally)


def _run(program: RowProgram, output: RowOutput, shipped: pa.Table) -> Iterator[pa.RecordBatch]:
    began, handing = time.perf_counter(), 0.0
    tally = Tally(ansi=program.ansi)
    table = Table(program, shipped)
    search = _search(program, table, tally)
    answer = Answer(table, output)
    for block in search.blocks():
        for batch in answer.batches(block):
            paused = time.perf_counter()
            yield batch
            handing += time.perf_counter() - paused
    yield answer.metrics(
        {
            "rows": shipped.num_rows,
            **bucket_counts(table, search.counts, tally),
            "matching_us": round((time.perf_counter() - began - handing) * 1e6),
        }
    )
