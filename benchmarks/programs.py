"""Programs and their rows without Spark: what the planner and the engine get, from numpy columns.

The compiler and the engine are the real ones. What Spark does before them (candidate masks,
hoisted expressions, dropping rows that match nothing, canonical keys) numpy does here, over whole
columns, so a million rows are ready in a fraction of a second. It knows plain arithmetic,
comparisons and boolean logic over columns without NULL, which is what benchmarks use.

An expression's type is the type of its value over no rows, so one evaluator does both.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from spark_cep.events.compile import compile_event_query
from spark_cep.events.compiled import drops_rows
from spark_cep.expressions.lookups import Lookups, RemoteSchema, TypeTree
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.expressions.types import parse_literal
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.expressions import DOUBLE, Constant, Type
from spark_cep.udfs.program import BranchPlan, Plan

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledEventQuery
    from spark_cep.expressions.shipment import ShippedColumn
    from spark_cep.pattern import Pattern
    from spark_cep.udfs.events.metrics import Metrics
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.remote_spec import RemoteSpec

# A column of values, or an Arrow array of what only a `cep.udf` looks into, such as lists.
Column = np.ndarray | pa.Array
Columns = Mapping[str, Column]

_OPERATORS: dict[type[exp.Expr], Callable[..., Any]] = {
    exp.EQ: np.equal, exp.NEQ: np.not_equal, exp.LT: np.less, exp.LTE: np.less_equal,
    exp.GT: np.greater, exp.GTE: np.greater_equal, exp.And: np.logical_and,
    exp.Or: np.logical_or, exp.Not: np.logical_not, exp.Add: np.add, exp.Sub: np.subtract,
    exp.Mul: np.multiply, exp.Div: np.divide, exp.Mod: np.fmod, exp.Neg: np.negative,
    exp.Abs: np.abs, exp.Paren: lambda value: value,
    exp.Between: lambda value, low, high: (low <= value) & (value <= high),
    exp.In: lambda value, *items: np.isin(value, items),
}  # fmt: skip
_CASTS = {"DOUBLE": np.float64, "BIGINT": np.int64, "INT": np.int32}


@dataclass(frozen=True)
class Prepared:
    """A program with the neutral plan "eager", and the table of its rows, in the order given."""

    program: Program
    table: pa.Table

    def times(self) -> np.ndarray:
        """The event time of each row."""
        column: np.ndarray = self.table.column(self.program.orders[0].column).to_numpy()
        return column


@dataclass(frozen=True)
class Run:
    """What one walk over rows counted, and the engine's time."""

    metrics: Metrics
    seconds: float


def prepare(
    pattern: Pattern,
    columns: Columns,
    *,
    order_by: str = "t",
    partition_by: Sequence[str] = (),
    remotes: Mapping[str, RemoteSpec] | None = None,
) -> Prepared:
    """Compiles the pattern over the columns and makes the rows that the engine would get.
    `remotes`: what it looks up while matching, each value a double."""
    remotes = remotes or {}
    query = compile_event_query(
        pattern,
        [ColumnInfo(name, _type(column)) for name, column in columns.items()],
        order_by=order_by,
        partition_by=list(partition_by),
        typer=_NumpyTyper(columns),
        time_zone="UTC",
        lookups=Lookups({name: RemoteSchema(name, TypeTree(DOUBLE, "double")) for name in remotes}),
    )
    compiled = query.compiled
    if compiled.after or compiled.lookups:
        raise NotImplementedError(f"only Spark can evaluate {compiled.after or compiled.lookups}")
    program = query.program(remotes=[remotes[of.remote.name] for of in compiled.remotes])
    return Prepared(program, _table(query, columns))


def chain(*order: int, kind: Any = "lazy-chain") -> Plan:
    """The plan that binds the slots of the only branch in this order."""
    shape: Any = order[0]
    for slot in order[1:]:
        shape = (shape, slot)
    return Plan(kind, (BranchPlan(shape, fixed=True),))


def run(prepared: Prepared, plan: Plan) -> Run:
    """All matches in one advance, dropped as they come."""
    return next(iter(run_pieces(prepared, plan, [(prepared.table, None)])))


def run_pieces(
    prepared: Prepared, plan: Plan, pieces: Sequence[tuple[pa.Table, int | float | None]]
) -> Iterator[Run]:
    """One advance for each piece of rows with its horizon, under one plan."""
    program, state = replace(prepared.program, plan=plan), EventState()
    for table, horizon in pieces:
        started = time.perf_counter()
        step = advance_events(program, state, table, horizon)
        for _ in step.matches:
            pass
        yield Run(step.metrics, time.perf_counter() - started)
        state = step.state


def cut(prepared: Prepared, rows: int) -> list[tuple[pa.Table, int | float | None]]:
    """The table, which has to be in the order of time, in pieces of about `rows` rows, each with
    its horizon: rows of one time stay together, and the last piece has no horizon. A small rest
    goes with the last piece."""
    times, size = prepared.times(), prepared.table.num_rows
    ends = np.searchsorted(times, times[np.arange(rows - 1, size - rows // 2, rows)], side="right")
    ends = [int(end) for end in np.unique(ends) if end < size]
    bounds = [0, *ends, size]
    return [
        (prepared.table.slice(start, end - start), None if end == size else times[end - 1].item())
        for start, end in itertools.pairwise(bounds)
    ]


# ---- the rows ----------------------------------------------------------------------------------


def _table(query: CompiledEventQuery, columns: Columns) -> pa.Table:
    mask = np.zeros(len(next(iter(columns.values()))), dtype=np.int64)
    for variable, texts in enumerate(query.compiled.masks):
        meets = np.ones(len(mask), dtype=np.bool_)
        for text in texts:
            meets &= value_of(str(text), columns)
        mask |= meets.astype(np.int64) << variable
    arrays = [_shipped(each, mask, columns) for each in query.shipment.shipped]
    table = pa.Table.from_arrays(arrays, names=list(query.shipment.names()))
    return table.filter(pa.array(mask != 0)) if drops_rows(query.compiled) else table


def _shipped(shipped: ShippedColumn, mask: np.ndarray, columns: Columns) -> pa.Array:
    if shipped.role == "mask":
        return pa.array(mask)
    column = columns[shipped.column] if shipped.column else value_of(shipped.text(), columns)
    return column if isinstance(column, pa.Array) else pa.array(column)


# ---- expressions -------------------------------------------------------------------------------


class _NumpyTyper:
    """Answers the compiler's questions about types."""

    def __init__(self, columns: Columns) -> None:
        self._nothing = {name: column[:0] for name, column in columns.items()}

    def of_row(self, expressions: Sequence[Any]) -> list[Type | str]:
        return [_type(value_of(str(each), self._nothing)) for each in expressions]

    def of_match(
        self, expressions: Sequence[str], variables: Mapping[str, bool]
    ) -> list[Type | str]:
        raise NotImplementedError(f"only Spark can evaluate {list(expressions)} over {variables}")

    def constants(self, expressions: Sequence[str]) -> list[Constant | str]:
        return [parse_literal(each) or f"{each} is no literal" for each in expressions]


def _type(column: Column) -> Type:
    if isinstance(column, pa.Array):
        return Type("other")
    if column.dtype.kind in "if":
        kind: Any = "int" if column.dtype.kind == "i" else "float"
        return Type(kind, 8 * column.dtype.itemsize)
    return Type("bool") if column.dtype.kind == "b" else Type("string")


def value_of(text: str, columns: Columns) -> Any:
    """An expression over columns, which are named without their variable."""
    return _evaluated(sqlglot.parse_one(text, dialect="spark"), columns)


def _evaluated(node: exp.Expr, columns: Columns) -> Any:
    if isinstance(node, exp.Column):
        return columns[node.name]
    if isinstance(node, exp.Literal):
        # A decimal beside a double is a double, as in Spark.
        return node.name if node.is_string else int(node.name) if node.is_int else float(node.name)
    if isinstance(node, exp.Cast):
        return _evaluated(node.this, columns).astype(_CASTS[node.to.sql("spark").upper()])
    if type(node) not in _OPERATORS:
        raise NotImplementedError(f"numpy has no rule for {node.sql('spark')}")
    operands = [_evaluated(each, columns) for each in node.iter_expressions()]
    return _OPERATORS[type(node)](*operands)
