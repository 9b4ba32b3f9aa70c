"""From sets of matches of event patterns to the record batches of `udfs/output.py`.

Values are taken from the shipped, unsorted columns with Arrow's `take`, whatever their types, so
they come out bit for bit as they went in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.events.context import MatchSet
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.udfs.events.table import Events, Positions
    from spark_cep.udfs.output import EventOutput, Field, Struct


# Rows of one record batch: enough that a batch costs nothing, few enough that the JVM can hold a
# batch of a wide answer.
BATCH_ROWS = 1 << 16

_METRICS_TYPE = pa.string()


class EventAnswer:
    """Builds the batches of one advance, and numbers its matches from `first_number`."""

    def __init__(self, events: Events, output: EventOutput, first_number: int) -> None:
        self.events = events
        self._output = output
        self.next_number = first_number
        self._columns: dict[int, pa.Array] = {}

    def batches(self, found: MatchSet) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(found), BATCH_ROWS):
            part = found
            if len(found) > BATCH_ROWS:
                part = found.take(np.arange(start, min(start + BATCH_ROWS, len(found))))
            numbers = np.arange(self.next_number, self.next_number + len(part))
            self.next_number += len(part)
            yield (
                self._all(part, numbers) if self._output.rows == "all" else self._one(part, numbers)
            )

    def schema(self) -> pa.Schema:
        """The columns of the batches."""
        empty = np.zeros(0, dtype=np.int64)
        build = self._one if self._output.rows == "one" else self._all
        return build(_NO_MATCHES, empty).schema

    # ---- one row for each match ----------------------------------------------------------------

    def _one(self, found: MatchSet, numbers: Positions) -> pa.RecordBatch:
        columns = self._one_columns(found, numbers)
        return self._batch([*columns, pa.nulls(len(found), _METRICS_TYPE)])

    def _one_columns(self, found: MatchSet, numbers: Positions) -> list[pa.Array]:
        earliest = self._rows(found.earliest)
        output = self._output
        columns = [pa.array(numbers)] if output.numbered else []
        for struct in output.structs:
            columns += self._flat(struct, found) if struct.flat else [self._struct(struct, found)]
        if output.bounds:
            columns.append(self._take(output.order, earliest))
            columns.append(self._take(output.order, self._rows(found.latest)))
        return columns + [self._take(field.column, earliest) for field in output.partition]

    def _flat(self, struct: Struct, found: MatchSet) -> list[pa.Array]:
        rows = self._rows(found.rows.get(struct.variable, _NO_ROWS))
        return [self._take(field.column, rows) for field in struct.fields]

    def _struct(self, struct: Struct, found: MatchSet) -> pa.Array:
        variable = struct.variable
        is_list = self.events.program.variables[variable].is_list
        positions = found.rows.get(variable)
        if positions is None:
            type_ = self._record(struct.fields, self._rows(_NO_ROWS)).type
            if not is_list:
                return pa.nulls(len(found), type_)
            if variable not in found.empty:
                return pa.nulls(len(found), pa.list_(type_))
            positions = np.zeros((len(found), 0), dtype=np.int64)
        record = self._record(struct.fields, self._rows(positions.ravel()))
        if not is_list:
            return record
        ends = np.arange(len(found) + 1, dtype=np.int32) * positions.shape[1]
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), record)

    def _record(self, fields: tuple[Field, ...], rows: pa.Array) -> pa.StructArray:
        return pa.StructArray.from_arrays(
            [self._take(field.column, rows) for field in fields], [field.name for field in fields]
        )

    # ---- one row for each event ----------------------------------------------------------------

    def _all(self, found: MatchSet, numbers: Positions) -> pa.RecordBatch:
        columns = self._all_columns(found, numbers)
        return self._batch([*columns, pa.nulls(len(columns[0]), _METRICS_TYPE)])

    def _all_columns(self, found: MatchSet, numbers: Positions) -> list[pa.Array]:
        positions, variables = _sort_by_event(found)
        rows = self._rows(positions.ravel())
        return [
            pa.array(np.repeat(numbers, positions.shape[1])),
            pa.array(variables.ravel().astype(np.int32)),
            *(self._take(field.column, rows) for field in self._output.row),
        ]

    # ---- columns -------------------------------------------------------------------------------

    def _rows(self, positions: Positions) -> pa.Array:
        return pa.array(self.events.rows(positions))

    def _take(self, column: int, rows: pa.Array) -> pa.Array:
        if column not in self._columns:
            self._columns[column] = to_single_array(self.events.table.column(column))
        return self._columns[column].take(rows)

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, list(self._output.names()))


def _sort_by_event(found: MatchSet) -> tuple[Positions, npt.NDArray[np.int64]]:
    """Each match's rows in event order, and the variable of each."""
    parts = [
        (variable, rows if rows.ndim > 1 else rows[:, np.newaxis])
        for variable, rows in found.rows.items()
    ]
    if not parts:
        return np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0), dtype=np.int64)
    positions = np.concatenate([rows for _, rows in parts], axis=1)
    variables = np.concatenate([np.full(rows.shape[1], variable) for variable, rows in parts])
    order = np.argsort(positions, axis=1, kind="stable")
    return np.take_along_axis(positions, order, axis=1), variables[order]


_NO_ROWS = np.zeros(0, dtype=np.int64)
_NO_MATCHES = MatchSet({}, _NO_ROWS, _NO_ROWS)
