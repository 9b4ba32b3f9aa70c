"""Programs over numpy columns, for tests of planning, sampling and shedding on thousands of rows.

The compiler is the real one. In place of Spark, pandas evaluates candidate conditions and shipped
expressions: comparisons, boolean logic and arithmetic over columns without NULL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from spark_cep.events.compile import compile_event_query
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.udfs.expressions import BIGINT, DOUBLE, Type
from tests.fake_typer import FakeTyper

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledEventQuery
    from spark_cep.expressions.shipment import ShippedColumn
    from spark_cep.pattern import Pattern
    from spark_cep.udfs.program import Program

TYPES = {"i": BIGINT, "f": DOUBLE, "U": Type("string")}


@dataclass(frozen=True)
class Prepared:
    """A program with the plan "eager", and the table of its rows in the order given."""

    program: Program
    table: pa.Table

    def times(self) -> np.ndarray:
        """The event time of each row."""
        column: np.ndarray = self.table.column(self.program.orders[0].column).to_numpy()
        return column


def prepare(
    pattern: Pattern,
    columns: Mapping[str, np.ndarray],
    *,
    order_by: str = "t",
    partition_by: Sequence[str] = (),
) -> Prepared:
    """Compiles the pattern over the columns and makes the rows that the engine would receive."""
    infos = [ColumnInfo(name, TYPES[column.dtype.kind]) for name, column in columns.items()]
    query = compile_event_query(
        pattern,
        infos,
        order_by=order_by,
        partition_by=list(partition_by),
        typer=FakeTyper(infos),
        time_zone="UTC",
    )
    assert not query.compiled.after
    return Prepared(query.program(), _table(query, pd.DataFrame(columns)))


def _table(query: CompiledEventQuery, rows: pd.DataFrame) -> pa.Table:
    program = query.program()
    mask = np.zeros(len(rows), np.int64)
    for variable, texts in enumerate(query.compiled.masks):
        meets = np.ones(len(rows), np.bool_)
        for text in texts:
            meets &= _evaluate(str(text), rows)
        mask |= meets.astype(np.int64) << variable
    arrays = [pa.array(_shipped(each, mask, rows)) for each in query.shipment.shipped]
    table = pa.Table.from_arrays(arrays, names=list(program.columns))
    window = program.window
    if program.strategy == "strict" or (window is not None and window.kind == "events"):
        return table
    return table.filter(pa.array(mask != 0))


def _shipped(shipped: ShippedColumn, mask: np.ndarray, rows: pd.DataFrame) -> Any:
    if shipped.role == "mask":
        return mask
    if shipped.column:
        return rows[shipped.column].to_numpy()
    return _evaluate(shipped.text(), rows)


def _evaluate(text: str, rows: pd.DataFrame) -> Any:
    """SQL in Python's spelling: `==`, `!=`, `and`, `or`, `not`."""
    text = re.sub(r"\b(AND|OR|NOT)\b", lambda word: word[0].lower(), text)
    text = re.sub(r"(?<![<>=!])=(?!=)", "==", text.replace("<>", "!="))
    return np.asarray(rows.eval(text))
