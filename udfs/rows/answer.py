"""From blocks of matches to the record batches that Spark gets back (`output.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.answer import BATCH_ROWS
from spark_cep.udfs.rows.entries import Entries, entries
from spark_cep.udfs.rows.measures import Measured
from spark_cep.udfs.rows.program import Aggregate
from spark_cep.udfs.rows.search import Block
from spark_cep.udfs.values.arrow_values import whole

if TYPE_CHECKING:
    from spark_cep.udfs.rows.output import RowOutput
    from spark_cep.udfs.rows.search import Counts
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.tally import Tally

# Elements of the lists in one batch.
_LIST_ELEMENTS: Final = 1 << 22
_METRICS_TYPE = pa.string()


def bucket_counts(table: Table, counts: Counts, tally: Tally) -> dict[str, int]:
    """What a search did, as `output.METRICS` names it."""
    return {
        "partitions": len(table.begins),
        "matches": counts.matches,
        "empty_matches": counts.empty_matches,
        "unmatched_rows": counts.unmatched_rows,
        "steps": counts.steps,
        "memo_hits": counts.hits,
        "asked": counts.asked,
        "condition_errors": tally.errors,
        "ignored_rows": table.ignored,
    }


class Answer:
    def __init__(self, table: Table, output: RowOutput) -> None:
        self._table = table
        self._output = output
        self._names = list(output.names(table.program))
        has_lists = any(
            isinstance(measure, Aggregate) and measure.name == "list"
            for measure in table.program.measures
        )
        self._elements = _LIST_ELEMENTS if has_lists else None

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        measured = Measured(self._table, block)
        for part in entries(block, self._table.program.rows).batches(BATCH_ROWS, self._elements):
            columns = self._columns(measured, part)
            yield self._batch([*columns, pa.nulls(len(part), _METRICS_TYPE)])

    def metrics(self, counts: dict[str, int]) -> pa.RecordBatch:
        nothing = Block(*(np.zeros(size, np.int64) for size in (0, 0, 0, 0, 1)))
        part = entries(nothing, self._table.program.rows)
        columns = self._columns(Measured(self._table, nothing), part)
        nulls = [pa.nulls(1, column.type) for column in columns]
        return self._batch([*nulls, pa.array([json.dumps(counts)], _METRICS_TYPE)])

    def _columns(self, measured: Measured, part: Entries) -> list[pa.Array]:
        table = self._table
        rows = pa.array(table.rows(part.row))
        columns = [
            whole(table.shipped.column(field.column)).take(rows) for field in self._output.columns
        ]
        columns += [measured.values(measure, part) for measure in table.program.measures]
        if table.program.rows == "one":
            columns.append(pa.array(table.places(part.row).astype(np.int64)))
        return columns

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, self._names)
