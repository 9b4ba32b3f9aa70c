"""The evaluator against Spark itself: the same expressions over the same nasty values.

Every pair of nasty values of a type stands in some row, as x and y. Spark's answer for what would
be an ANSI error is taken from its try_ functions, which give NULL there as the engine does.
"""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.expressions import (
    BIGINT,
    BOOL,
    DOUBLE,
    Call,
    Cell,
    CellReading,
    Constant,
    Expression,
    Type,
)
from spark_cep.udfs.program import Condition, Plan, Program, Tree
from spark_cep.udfs.values.arrow_values import plain_type
from spark_cep.udfs.values.evaluate import ErrorTally, evaluate_expression, fold_list
from spark_cep.udfs.values.vectors import EventColumns, Vector, vector_from_arrow

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
UTC = datetime.UTC


def _ints(bits: int) -> list[int]:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    return [least, least + 1, -7, -3, -1, 0, 1, 2, 3, 10, most - 1, most]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    units = [-most, -(10**scale), -1, 0, 1, 3, 5 * 10**scale, most // 2, most]
    return [Decimal(f"{unit}e-{scale}") for unit in units]


_MOMENTS = [
    datetime.datetime(1, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(1970, 1, 1),
    datetime.datetime(2024, 2, 29, 12, 30, 1, 1),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
]
NASTY: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), _ints(8)),
    "i16": (pa.int16(), _ints(16)),
    "i32": (pa.int32(), _ints(32)),
    "i64": (pa.int64(), [*_ints(64), (1 << 53) + 1, 3037000500, 1 << 32]),
    "f32": (
        pa.float32(),
        [-INF, -3.4028235e38, -1.5, -0.0, 0.0, 1e-45, 0.1, 3.0, 16777217.0, INF, NAN],
    ),
    "f64": (
        pa.float64(),
        [-INF, -1.7976931348623157e308, -1.5, -0.0, 0.0, 5e-324, 0.1, 2.5, INF, NAN],
    ),
    "d9": (pa.decimal128(9, 2), _decimals(9, 2)),
    "d18": (pa.decimal128(18, 4), _decimals(18, 4)),
    "d30": (pa.decimal128(30, 10), _decimals(30, 10)),
    "d38": (pa.decimal128(38, 0), _decimals(38, 0)),
    "s": (pa.string(), ["", "a", "A", "ab", "a\0", "é", "e\u0301", "\uffff", "\U0001f600", "Z"]),
    "bin": (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]),
    "dt": (
        pa.date32(),
        [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)],
    ),
    "ts": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in _MOMENTS]),
    "ntz": (pa.timestamp("us"), _MOMENTS),
    "itv": (pa.duration("us"), [-(1 << 63) + 1, -86_400_000_000, -1, 0, 1, (1 << 63) - 1]),
    "b": (pa.bool_(), [False, True]),
}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
INTS = ("i8", "i16", "i32", "i64")


def _table() -> pa.Table:
    columns: dict[str, pa.Array] = {}
    most = max(len(values) + 1 for _, values in NASTY.values()) ** 2
    for name, (type_, values) in NASTY.items():
        pairs = list(itertools.product([*values, None], repeat=2))
        cycle = [pairs[row % len(pairs)] for row in range(most)]
        columns[f"x_{name}"] = pa.array([x for x, _ in cycle], type_)
        columns[f"y_{name}"] = pa.array([y for _, y in cycle], type_)
    columns["n"] = pa.nulls(most, pa.int32())
    return pa.table(columns)


@dataclass(frozen=True)
class Case:
    """An expression, as Spark is asked for it in an ANSI session and without, and as a tree
    (given the type that Spark gives it)."""

    sql: str
    tree: Callable[[Type], Expression]
    wrapping_sql: str | None = None

    def text(self, *, ansi: bool) -> str:
        return self.sql if ansi or self.wrapping_sql is None else self.wrapping_sql


def _cell(name: str) -> Cell:
    side, type_name = name.split("_")
    type_ = plain_type(NASTY[type_name][0])
    kinds = {"s": Type("string"), "bin": Type("binary")}
    column = list(NASTY).index(type_name) * 2 + (side == "y")
    return Cell(int(side == "y"), column, kinds.get(type_name, type_))


def _call(name: str, *arguments: Expression) -> Callable[[Type], Expression]:
    return lambda type_: Call(name, arguments, type_)


def _xy(name: str) -> tuple[Cell, Cell]:
    return _cell(f"x_{name}"), _cell(f"y_{name}")


def _comparisons() -> Iterator[Case]:
    for name in NASTY:
        x, y = _xy(name)
        for comparison in COMPARISONS:
            yield Case(f"x_{name} {comparison} y_{name}", _call(comparison, x, y))
        for choice in ("least", "greatest", "coalesce", "nullif"):
            yield Case(f"{choice}(x_{name}, y_{name})", _call(choice, x, y))
        is_less, items = Call("<", (x, y), BOOL), (y, Constant(None, x.type))
        yield Case(f"IF(x_{name} < y_{name}, x_{name}, y_{name})", _call("if", is_less, x, y))
        yield Case(f"x_{name} IN (y_{name}, NULL)", _call("in", x, *items))
        yield Case(f"x_{name} IS NULL", _call("is_null", x))
        yield Case(f"x_{name} IS NOT NULL", _call("is_not_null", x))
    for name in ("f32", "f64"):
        yield Case(f"isnan(x_{name})", _call("isnan", _cell(f"x_{name}")))
    word, code = Constant("b", Type("string")), Constant(b"\x80", Type("binary"))
    yield Case("x_s < 'b'", _call("<", _cell("x_s"), word))
    yield Case("x_s IN ('a', 'absent', y_s)", _call(
        "in", _cell("x_s"), Constant("a", word.type), Constant("absent", word.type), _cell("y_s")
    ))  # fmt: skip
    yield Case("x_bin >= X'80'", _call(">=", _cell("x_bin"), code))
    for connective in ("and", "or"):
        yield Case(f"x_b {connective} y_b", _call(connective, *_xy("b")))
        yield Case(f"x_b {connective} NULL", _call(connective, _cell("x_b"), Constant(None, BOOL)))
    yield Case("NOT x_b", _call("not", _cell("x_b")))


def _arithmetic() -> Iterator[Case]:
    tries = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "%": "try_mod"}
    for name in (*INTS, "f32", "f64", "d9", "d18", "d30", "d38"):
        x, y = _xy(name)
        for sign, function in tries.items():
            if name == "d30" and sign == "*":
                continue  # Spark rounds the product, so it is never sent to the engine
            wrapping = f"x_{name} {sign} y_{name}"
            yield Case(f"{function}(x_{name}, y_{name})", _call(sign, x, y), wrapping)
        if not name.startswith("d"):
            divided = f"x_{name} / y_{name}"
            yield Case(f"try_divide(x_{name}, y_{name})", _call("/", x, y), divided)
    for name in (*INTS, "d9", "d18", "d30", "d38"):
        x, y = _xy(name)
        fails = f"y_{name} = 0"
        if name == "i64":
            fails = f"{fails} OR (x_i64 = {-(1 << 63)} AND y_i64 = -1)"
        divided = f"x_{name} div y_{name}"
        guarded = f"CASE WHEN {fails} THEN NULL ELSE {divided} END"
        yield Case(guarded, _call("div", x, y), divided)
    for name, (least, zero) in {
        "i8": ("-128Y", "0Y"), "i16": ("-32768S", "0S"),
        "i32": ("-2147483648", "0"), "i64": ("-9223372036854775808L", "0L"),
    }.items():  # fmt: skip
        x = _cell(f"x_{name}")
        negated = f"try_subtract({zero}, x_{name})"
        yield Case(negated, _call("neg", x), f"-x_{name}")
        yield Case(
            f"IF(x_{name} = {least}, NULL, abs(x_{name}))", _call("abs", x), f"abs(x_{name})"
        )
    # Spark negates decimals of more than 34 digits with a loss; the engine refuses them.
    for name in ("f32", "f64", "d9", "d18", "d30"):
        yield Case(f"-x_{name}", _call("neg", _cell(f"x_{name}")))
        yield Case(f"abs(x_{name})", _call("abs", _cell(f"x_{name}")))
    yield Case("try_add(x_itv, y_itv)", _call("+", *_xy("itv")))
    yield Case("try_subtract(x_itv, y_itv)", _call("-", *_xy("itv")))
    yield Case("x_ntz - y_ntz", _call("-", *_xy("ntz")))
    yield Case("x_ts - y_ts", _call("-", *_xy("ts")))
    yield Case("x_dt - y_dt", _call("-", *_xy("dt")))
    small = Constant(90_061_000_001, Type("interval"))
    for name in ("ts", "ntz"):
        text = "INTERVAL '1 01:01:01.000001' DAY TO SECOND"
        yield Case(f"x_{name} + {text}", _call("+", _cell(f"x_{name}"), small))
        yield Case(f"x_{name} - {text}", _call("-", _cell(f"x_{name}"), small))


def _casts() -> Iterator[Case]:
    for source, target in (
        ("i8", "smallint"), ("i8", "double"), ("i16", "int"), ("i32", "bigint"),
        ("i32", "float"), ("i64", "float"), ("i64", "double"), ("f32", "double"),
        ("i32", "decimal(10,0)"), ("i64", "decimal(20,0)"), ("i32", "decimal(14,4)"),
        ("d9", "decimal(18,6)"), ("d9", "decimal(30,20)"), ("d18", "double"), ("d9", "double"),
        ("d30", "double"), ("d38", "double"), ("dt", "timestamp_ntz"),
    ):  # fmt: skip
        yield Case(f"CAST(x_{source} AS {target})", _call("cast", _cell(f"x_{source}")))
    yield Case("try_cast(x_i64 AS decimal(5,0))", _call("cast", _cell("x_i64")))


class _Random:
    """Nested expressions over bigint, double and boolean, the same in SQL and as a tree."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def case(self, depth: int) -> Case:
        ansi, wrapping, tree = self._boolean(depth)
        return Case(ansi, lambda _: tree, wrapping)

    def _boolean(self, depth: int) -> tuple[str, str, Expression]:
        pick = self._random.choice(["and", "or", "not", "compare", "compare", "null", "if"])
        if depth <= 0 or pick == "compare":
            number = self._random.choice([self._bigint, self._double])
            sign = self._random.choice(COMPARISONS)
            return self._infix(sign, number(depth - 1), number(depth - 1), BOOL)
        if pick in ("and", "or"):
            return self._infix(pick, self._boolean(depth - 1), self._boolean(depth - 1), BOOL)
        if pick == "not":
            return self._prefix("NOT ({})", "not", [self._boolean(depth - 1)], BOOL)
        if pick == "null":
            return self._prefix("(({}) IS NULL)", "is_null", [self._bigint(depth - 1)], BOOL)
        parts = [self._boolean(depth - 1) for _ in range(3)]
        return self._prefix("IF({}, {}, {})", "if", parts, BOOL)

    def _bigint(self, depth: int) -> tuple[str, str, Expression]:
        if depth <= 0:
            name = self._random.choice(["x_i64", "y_i64", "5", "0"])
            tree = Constant(int(name), BIGINT) if name.isdigit() else _cell(name)
            text = f"{name}L" if name.isdigit() else name
            return text, text, tree
        return self._number(depth, self._bigint, BIGINT, ["+", "-", "*", "%"])

    def _double(self, depth: int) -> tuple[str, str, Expression]:
        if depth <= 0:
            name = self._random.choice(["x_f64", "y_f64", "x_f64", "0.5"])
            tree = Constant(0.5, DOUBLE) if name == "0.5" else _cell(name)
            text = "0.5D" if name == "0.5" else name
            return text, text, tree
        return self._number(depth, self._double, DOUBLE, ["+", "-", "*", "/", "%"])

    def _number(
        self, depth: int, inner: Callable[[int], Any], type_: Type, signs: list[str]
    ) -> tuple[str, str, Expression]:
        pick = self._random.choice([*signs, *signs, "coalesce", "greatest", "nullif", "if"])
        left, right = inner(depth - 1), inner(depth - 1)
        if pick == "if":
            parts = [self._boolean(depth - 1), left, right]
            return self._prefix("IF({}, {}, {})", "if", parts, type_)
        if pick in ("coalesce", "greatest", "nullif"):
            return self._prefix(f"{pick}({{}}, {{}})", pick, [left, right], type_)
        tries = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "mod"}
        tree = Call(pick, (left[2], right[2]), type_)
        return f"try_{tries[pick]}({left[0]}, {right[0]})", f"({left[1]} {pick} {right[1]})", tree

    def _infix(self, sign: str, left: Any, right: Any, type_: Type) -> tuple[str, str, Expression]:
        return self._prefix(f"(({{}}) {sign} ({{}}))", sign, [left, right], type_)

    def _prefix(
        self, form: str, name: str, parts: list[Any], type_: Type
    ) -> tuple[str, str, Expression]:
        ansi, wrapping, trees = zip(*parts, strict=True)
        return form.format(*ansi), form.format(*wrapping), Call(name, trees, type_)


def _cases() -> list[Case]:
    nested = [_Random(seed).case(depth=4) for seed in range(120)]
    return [*_comparisons(), *_arithmetic(), *_casts(), *nested]


def _spark_type(arrow: pa.DataType) -> Type:
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        return Type("string")
    return Type("binary") if pa.types.is_binary(arrow) else plain_type(arrow)


def _difference(
    expected: pa.ChunkedArray,
    got: Vector,
    type_: Type,
    columns: EventColumns,
    *,
    signs: bool = True,
) -> str:
    """What the first wrong row is; "" if there is none. `signs`: -0.0 is not 0.0."""
    size = len(expected)
    valid = np.broadcast_to(True if got.valid is None else got.valid, (size,))
    values: Any = np.broadcast_to(got.values, (size,))
    if type_.kind in ("string", "binary"):
        values = columns.as_words(Vector(values), type_).values
        wanted = np.array(expected.to_pylist(), object)
        wanted_valid = np.array([value is not None for value in wanted], bool)
    else:
        vector = vector_from_arrow(expected, type_)
        wanted = vector.values
        wanted_valid = np.ones(size, bool) if vector.valid is None else vector.valid
    same = values == wanted
    if values.dtype.kind == "f":
        same = same & ((not signs) | (np.signbit(values) == np.signbit(wanted)))
        same |= np.isnan(values) & np.isnan(wanted)
    if values.dtype != wanted.dtype:
        return f"{values.dtype} instead of {wanted.dtype}"
    wrong = np.flatnonzero((valid != wanted_valid) | (valid & ~same.astype(bool)))
    if not len(wrong):
        return ""
    row = wrong[0]
    ours = values[row] if valid[row] else None
    return f"row {row} and {len(wrong) - 1} more: {ours!r}, Spark {expected[int(row)].as_py()!r}"


def _columns(shipped: pa.Table, trees: list[Expression]) -> EventColumns:
    program = Program(
        columns=tuple(shipped.column_names), keys=(), orders=(), mask=0, variables=(),
        conditions=tuple(Condition(tree, "", frozenset()) for tree in trees),
        tree=Tree("event"), branches=(), plan=Plan("eager"),
    )  # fmt: skip
    return EventColumns(program, shipped)


# The rule reorders (y * 0) * (5 + y) so that it overflows where the text as written does not.
_NO_REORDERING = {
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator"
    )
}


@contextmanager
def _settings(spark: Any, settings: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "wrapping"])
def test_every_expression_gives_what_spark_gives(spark: Any, ansi: bool) -> None:
    cases = _cases()
    with _settings(spark, {"spark.sql.ansi.enabled": str(ansi).lower(), **_NO_REORDERING}):
        frame = spark.createDataFrame(_table()).coalesce(1)
        shipped = frame.toArrow()
        answers = [
            frame.selectExpr(
                *[f"{case.text(ansi=ansi)} AS r{i}" for i, case in enumerate(part)]
            ).toArrow()
            for part in (cases[at : at + 60] for at in range(0, len(cases), 60))
        ]
    expected = [column for answer in answers for column in answer.columns]
    trees = [
        case.tree(_spark_type(column.type)) for case, column in zip(cases, expected, strict=True)
    ]
    columns, rows = _columns(shipped, trees), np.arange(shipped.num_rows)

    def read(cell: Cell) -> Vector:
        assert cell.column is not None
        return columns.gather(cell.column, cell.type, rows)

    wrong = []
    for case, column, tree in zip(cases, expected, trees, strict=True):
        got = evaluate_expression(tree, read, columns, ErrorTally(ansi=ansi))
        difference = _difference(column, got, tree.type, columns)
        if difference:
            wrong.append(f"{case.text(ansi=ansi)}: {difference}")
    assert not wrong, "\n".join(wrong)


LENGTH = 4


def _folds() -> Iterator[tuple[CellReading, str]]:
    for name in NASTY:
        readings: list[CellReading] = ["min", "max", "count", "first", "last"]
        if name in (*INTS, "f32", "f64", "d9", "d18", "d30", "d38", "itv"):
            readings.append("sum")
        # The engine knows the scale of an average only if the type has room for four more digits.
        if name in (*INTS, "f32", "f64", "d9", "d18", "d30"):
            readings.append("avg")
        yield from ((reading, name) for reading in readings)


def test_every_fold_gives_what_spark_aggregates_to(spark: Any) -> None:
    source = random.Random(5)
    size = 200 * LENGTH
    columns_: dict[str, Any] = {"g": np.repeat(np.arange(200), LENGTH)}
    for name, (type_, values) in NASTY.items():
        drawn = [source.choice([*values, None]) for _ in range(size)]
        columns_[f"x_{name}"] = pa.array(drawn, type_)
    cases = list(_folds())
    texts = [
        f"{'try_' if reading in ('sum', 'avg') else ''}{reading}(x_{name}) AS {reading}_{name}"
        for reading, name in cases
    ]
    frame = spark.createDataFrame(pa.table(columns_)).coalesce(1)
    shipped = frame.toArrow()
    answer = frame.groupBy("g").agg(*[_expr(text) for text in texts]).orderBy("g").toArrow()
    cells = [
        Cell(0, 1 + list(NASTY).index(name), _cell(f"x_{name}").type, reading)
        for reading, name in cases
    ]
    columns = _columns(shipped, list(cells))
    wrong = []
    for (reading, name), cell, expected in zip(cases, cells, answer.columns[1:], strict=True):
        assert cell.column is not None
        rows = np.arange(size).reshape(-1, LENGTH)
        type_ = _spark_type(expected.type)
        got = fold_list(columns.gather(cell.column, cell.type, rows), reading, type_, ErrorTally())
        # Which of two equal zeros is the least one is nobody's business.
        difference = _difference(expected, got, type_, columns, signs=False)
        if difference:
            wrong.append(f"{reading}(x_{name}): {difference}")
    assert not wrong, "\n".join(wrong)


def _expr(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)
