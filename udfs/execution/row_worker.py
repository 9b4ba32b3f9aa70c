"""The worker's entry for row patterns: the record batches of one bucket in, its answer's out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.rows.answer import RowAnswerWriter, bucket_counts
from spark_cep.udfs.rows.compiled import compile_kernel_program
from spark_cep.udfs.rows.search import KernelSearch
from spark_cep.udfs.rows.table import RowTable
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from spark_cep.udfs.output import RowOutput
    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.rows.gaps.matches import GapSearch


def run_rows(
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
        yield from _match_rows(program, output, shipped)
    except CepError as error:
        raise WorkerError(error) from None


def _make_search(
    program: RowProgram, table: RowTable, tally: ErrorTally
) -> KernelSearch | GapSearch:
    if program.matcher == "walk":
        return KernelSearch(compile_kernel_program(program), table, tally)
    # Joins need much that the kernel does not.
    from spark_cep.udfs.rows.gaps.matches import GapSearch  # noqa: PLC0415

    return GapSearch(table, tally)


def _match_rows(
    program: RowProgram, output: RowOutput, shipped: pa.Table
) -> Iterator[pa.RecordBatch]:
    began, handing = time.perf_counter(), 0.0
    tally = ErrorTally(ansi=program.ansi)
    table = RowTable(program, shipped)
    search = _make_search(program, table, tally)
    answer = RowAnswerWriter(table, output)
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
