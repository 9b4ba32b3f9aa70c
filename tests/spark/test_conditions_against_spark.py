"""Translated conditions against Spark's own answer on every pair of rows.

A conjunct over two variables goes through the compiler; what it hoists is computed by Spark, the
rest by the engine. Spark alone evaluates the same text on a cross join. Both must keep the same
pairs, in ANSI sessions and others, in a time zone with and one without clock changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_cep import seq
from spark_cep.events.compile import compile_pattern
from spark_cep.events.measures import compile_measures
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.expressions.shipment import Shipment
from spark_cep.expressions.types import arithmetic_rule, common_type
from spark_cep.spark.typing import SparkTyper, type_of
from spark_cep.udfs.expressions import BIGINT, Type
from spark_cep.udfs.program import Plan, Program
from spark_cep.udfs.values.evaluate import ErrorTally, condition_holds
from spark_cep.udfs.values.vectors import EventColumns

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern

pytestmark = pytest.mark.spark

ROWS = """
    (0, 1Y, 1S, 1, 1L, 1.0F, 1.0D, 1.50BD, 1.500000000000000000BD, 'a', TRUE,
        DATE '2024-03-10', TIMESTAMP '2024-03-09 12:00:00', TIMESTAMP_NTZ '2024-03-09 12:00:00',
        X'01', INTERVAL '1' DAY, ARRAY(1, 2), NAMED_STRUCT('x', 1, 'y', 'p')),
    (1, -2Y, 300S, 70000, 9007199254740993L, 16777216.0F, 9007199254740992.0D, 70000.00BD,
        0.000000000000000001BD, '1', FALSE,
        DATE '2024-11-03', TIMESTAMP '2024-03-10 12:00:00', TIMESTAMP_NTZ '2024-03-10 02:30:00',
        X'ff', INTERVAL '2 03:04:05' DAY TO SECOND, ARRAY(), NAMED_STRUCT('x', 2, 'y', 'q')),
    (2, 0Y, 0S, 0, 0L, FLOAT('NaN'), DOUBLE('NaN'), -0.01BD, -3.000000000000000000BD,
        'Ab', NULL, DATE '1969-12-31', TIMESTAMP '2024-11-03 05:30:00',
        TIMESTAMP_NTZ '2024-11-03 01:30:00', X'', INTERVAL '-1' MINUTE, ARRAY(3), NULL),
    (3, 7Y, -7S, 16777217, -1L, -0.0F, 0.1D, 0.10BD, 0.100000000000000000BD, '2024-03-10',
        TRUE, DATE '2024-03-09', TIMESTAMP '2024-03-11 00:00:00',
        TIMESTAMP_NTZ '2024-03-11 00:00:00', NULL, NULL, NULL, NAMED_STRUCT('x', 1, 'y', NULL)),
    (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL)
"""
NAMES = "id i8 i16 i32 i64 f32 f64 dec big s b d ts ntz bin itv arr st".split()  # noqa: SIM905
NUMBERS = ("i8", "i16", "i32", "i64", "f32", "f64", "dec", "big")
COMPARISONS = ("=", "<>", "<", ">=", "<=>")


def _texts() -> Iterator[str]:
    for x, y in itertools.combinations_with_replacement(NUMBERS, 2):
        yield f"a.{x} < b.{y}"
        yield f"b.{x} <=> a.{y}"
        yield f"coalesce(a.{x}, b.{y}) = 1.5"
        yield f"a.{y} IN (b.{x}, 7, 0.1)"
        yield f"a.{x} + b.{x} > b.{y} + 1"
    for x, y in itertools.product(("d", "ts", "ntz"), repeat=2):
        yield f"a.{x} <= b.{y}"
        yield f"a.{x} - b.{y} > INTERVAL '12' HOURS"
        yield f"a.{x} - b.{y} = INTERVAL '1' DAY"
        yield f"greatest(a.{x}, b.{y}) = b.{y}"
    for x, comparison in itertools.product(("s", "b", "bin", "itv", "d", "ts"), COMPARISONS):
        yield f"a.{x} {comparison} b.{x}"
    yield from (
        "a.ts + INTERVAL 12 HOURS <= b.ts",
        "a.ts + INTERVAL 1 DAY <= b.ts",
        "b.ts < a.ts + INTERVAL '1 01:00:00' DAY TO SECOND",
        "a.itv + b.itv > INTERVAL 1 DAY",
        "a.itv * b.i8 > INTERVAL 1 DAY",
        "abs(a.itv - b.itv) < INTERVAL 5 HOURS",
        "a.ntz + b.itv > b.ntz",
        "a.itv div b.itv = 1",
        "CASE WHEN b.i8 <> 0 THEN a.i32 / b.i8 END > 0.5",
        "CASE WHEN b.i8 <> 0 THEN a.i8 % b.i8 END = 1",
        "CASE WHEN b.i8 <> 0 THEN a.i64 div b.i8 ELSE 3 END > 1",
        "CASE WHEN b.dec <> 0 THEN a.dec % b.dec END < 1",
        "a.dec * b.dec > 1.5",
        "a.dec - b.dec < 0.5 * a.i32",
        "a.dec + b.i32 > 1",
        "2 * a.dec = b.dec + 1",
        "-a.f64 < abs(b.f32 - a.f32)",
        "isnan(a.f64 + b.f64)",
        "isnan(a.f32) OR b.i8 = 1",
        "a.b AND b.b",
        "a.b OR b.b",
        "NOT (a.b AND b.b)",
        "(a.b = b.b) IS NULL",
        "(a.i8 > b.i8) IS NOT TRUE",
        "a.i8 IS DISTINCT FROM b.i8",
        "a.s IS NOT DISTINCT FROM b.s",
        "a.i8 BETWEEN b.i8 AND b.i16",
        "a.f64 NOT BETWEEN b.f32 AND 100",
        "a.i32 NOT IN (b.i32, b.i64, NULL)",
        "if(a.i8 > b.i8, a.f64, b.i32) > 1",
        "CASE a.i8 WHEN b.i8 THEN 'x' WHEN b.i16 THEN b.s ELSE a.s END < 'b'",
        "nvl2(a.b, a.i8, b.dec) > 0",
        "nvl(a.s, b.s) = 'a'",
        "upper(a.s) = upper(b.s)",
        "concat(a.s, 'x') > lower(b.s) OR a.i8 = b.i8",
        "a.st.x = b.st.x AND a.st.y <> b.st.y",
        "size(a.arr) < size(b.arr)",
        "exists(a.arr, x -> x > 1) = b.b",
        "(a.i8 <> 0 AND 10 / a.i8 > b.i8) OR a.s = b.s",
        "a.i8 = 0 OR 10 / a.i8 > b.i8",
        "CASE WHEN a.i8 = 0 THEN b.i8 ELSE 10 div a.i8 END > b.i8",
        "if(a.i8 = 0, b.i8, 10 % a.i8) > b.i8",
        "CASE a.s WHEN '1' THEN CAST(a.s AS INT) + b.i8 ELSE 0 END > 5",
        "CASE a.i8 WHEN 0 THEN b.i8 WHEN 7 THEN 70 div a.i8 + b.i8 ELSE 10 div a.i8 END > b.i8",
        "nvl2(nullif(a.i8, 0), 10 div a.i8 + b.i8, b.i8) > 0",
        "nvl(if(a.i8 = 0, a.i8, NULL), 10 div a.i8 + b.i8) > 0",
        "if(a.i8 = 0 OR b.i8 = 0, 0, 10 div a.i8 + b.i8) > 0",
        "a.i8 IN (0, 10 div a.i8 + b.i8)",
        "a.i8 BETWEEN 1 AND 10 div a.i8 + b.i8",
        "CAST(a.i32 - b.i32 AS DOUBLE) > 0.5",
        "a.i8 + b.i8 > 1L",
        "a.f32 = b.f32 + 0.0",
        "a.f32 > 0.1 * b.f32",
        "a.i64 - b.i64 > 1.5",
        "isnull(a.i8) AND isnotnull(b.i8)",
        "a.d > DATE '2024-01-01' OR b.ts < TIMESTAMP '2024-03-10 00:00:00'",
        "greatest(a.ts, b.ts) > '2024-03-10'",
        "a.d = '2024-03-10' OR b.i8 = 7",
        "a.i8 = -2 OR b.f64 = 1e0",
        "positive(a.i8) > b.i8",
        "a.i64 = b.f64",
        "least(a.i16, b.big) >= 1",
        "nullif(a.dec, b.f64) > 0",
    )


@pytest.fixture(scope="module", params=["ansi, UTC", "ansi, New York", "not ansi, New York"])
def df(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[DataFrame]:
    ansi = "false" if "not" in request.param else "true"
    zone = "UTC" if "UTC" in request.param else "America/New_York"
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.session.timeZone", zone)
    # Or Spark computes what stands twice behind an AND before it looks at the guard.
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    yield spark.sql(f"SELECT * FROM VALUES {ROWS} AS t({', '.join(NAMES)})")
    spark.conf.unset("spark.sql.ansi.enabled")
    spark.conf.unset("spark.sql.subexpressionElimination.enabled")
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def _compiled(df: DataFrame, text: str) -> tuple[CompiledPattern, Shipment]:
    shipment = Shipment(df.columns)
    compiled = compile_pattern(
        seq("a", "b").where(text),
        [ColumnInfo(field.name, type_of(field.dataType)) for field in df.schema],
        order_by="id",
        partition_by=None,
        typer=SparkTyper(df),
        shipment=shipment,
        ansi=df.sparkSession.conf.get("spark.sql.ansi.enabled") == "true",
        time_zone=df.sparkSession.conf.get("spark.sql.session.timeZone"),
    )
    return compiled, shipment


def _shipped(df: DataFrame, found: list[tuple[CompiledPattern, Shipment]]) -> Any:
    """What all patterns ship and test on single rows, in one table."""
    columns = []
    for number, (compiled, shipment) in enumerate(found):
        for place, each in enumerate(shipment.shipped):
            columns.append(F.expr(str(each.expression)).alias(f"p{number}_{place}"))
        for variable, mask in enumerate(compiled.masks):
            whole = " AND ".join(f"({text})" for text in mask) or "TRUE"
            columns.append(F.expr(f"coalesce({whole}, FALSE)").alias(f"m{number}_{variable}"))
    return df.orderBy("id").select(*columns).toArrow()


def _pairs(table: Any, number: int, compiled: CompiledPattern, ansi: bool) -> set[tuple[int, int]]:
    """The pairs of rows that the masks and the engine let through."""
    prefix = f"p{number}_"
    mine = table.select([name for name in table.column_names if name.startswith(prefix)])
    program = Program(
        columns=tuple(mine.column_names), keys=(), orders=(), mask=0,
        variables=compiled.variables, conditions=compiled.conditions, tree=compiled.tree,
        branches=compiled.branches, plan=Plan("eager"),
    )  # fmt: skip
    size = table.num_rows
    columns = EventColumns(program, mine)
    rows = {0: np.arange(size)[:, None], 1: np.arange(size)[None, :]}
    kept = np.ones((size, size), np.bool_)
    for variable in rows:
        mask = np.asarray(table.column(f"m{number}_{variable}").to_pylist(), np.bool_)
        kept &= mask[rows[variable]]
    for condition in compiled.conditions:
        kept &= condition_holds(
            condition.expression,
            lambda cell: columns.gather(cell.column, cell.type, rows[cell.variable]),
            columns,
            ErrorTally(ansi=ansi),
        )
    return {(int(a), int(b)) for a, b in np.argwhere(kept)}


def test_the_engine_keeps_the_pairs_that_spark_keeps(df: DataFrame) -> None:
    ansi = df.sparkSession.conf.get("spark.sql.ansi.enabled") == "true"
    texts = list(_texts())
    found = [_compiled(df, text) for text in texts]
    table = _shipped(df, found)
    row = F.struct(*df.columns)
    pairs = df.select(row.alias("a")).crossJoin(df.select(row.alias("b")))
    exact = [number for number, (compiled, _) in enumerate(found) if not compiled.after]
    asked = [F.expr(f"coalesce({texts[n]}, FALSE)").alias(f"t{n}") for n in exact]
    answers = pairs.select("a.id", F.col("b.id").alias("other"), *asked).collect()
    wrong = []
    for number in exact:
        expected = {(r["id"], r["other"]) for r in answers if r[f"t{number}"]}
        given = _pairs(table, number, found[number][0], ansi)
        if given != expected:
            wrong.append((texts[number], sorted(given - expected), sorted(expected - given)))
    assert wrong == []
    assert len(exact) > 0.9 * len(texts), [t for n, t in enumerate(texts) if n not in exact]


def test_the_type_rules_are_sparks(df: DataFrame) -> None:
    ansi = df.sparkSession.conf.get("spark.sql.ansi.enabled") == "true"
    names = [name for name in NAMES if name not in {"id", "arr", "st"}]
    types = dict(zip(names, SparkTyper(df).of_row(names), strict=True))
    expected, texts = [], []
    for x, y in itertools.product(names, repeat=2):
        left, right = types[x], types[y]
        assert isinstance(left, Type)
        assert isinstance(right, Type)
        wider = common_type(left, right, ansi=ansi)
        if wider is not None:
            texts.append(f"coalesce({x}, {y})")
            expected.append(wider)
        for operator in ("+", "-", "*", "/", "%", "div"):
            rule = arithmetic_rule(operator, left, right, ansi=ansi, fixed_zone=True)
            if rule is not None:
                texts.append(f"{x} {operator} {y}")
                expected.append(rule.type)
    given = SparkTyper(df).of_row(texts)
    assert [(t, g, e) for t, g, e in zip(texts, given, expected, strict=True) if g != e] == []


def test_folds_of_arrays_equal_aggregates_of_rows(spark: SparkSession) -> None:
    df = spark.sql(
        """SELECT id AS t, id % 7 AS k, CAST(id % 7 AS TINYINT) AS g,
             CASE WHEN id % 5 <> 0 THEN CAST(id * 37 % 11 - 5 AS INT) END AS i,
             CASE WHEN id % 7 > 1 THEN CAST(sin(id) AS FLOAT) END AS f,
             CASE WHEN id % 3 > 0 AND id % 7 <> 2 THEN CAST(id * 7919 % 1000 AS DECIMAL(9,3)) / 7
               END AS d,
             CAST(id * id / 13 - 20 AS DECIMAL(27,17)) AS e,
             CAST(id AS DECIMAL(38,18)) / 3 AS w,
             CASE WHEN id % 4 > 0 THEN concat('s', id * 31 % 17) END AS s,
             MAKE_DT_INTERVAL(0, 0, 0, id * 1.7) AS v
           FROM range(60)"""
    )
    shipment = Shipment(df.columns)
    columns = [ColumnInfo(field.name, type_of(field.dataType)) for field in df.schema]
    compiled = compile_pattern(
        seq("b+"), columns, order_by="t", partition_by="k", typer=SparkTyper(df),
        shipment=shipment, time_zone="UTC",
    )  # fmt: skip
    texts = {"n": "count(b)"} | {
        f"{fold}_{name}": f"{fold}(b.{name})"
        for name in "ifdewsv"
        for fold in ("count", "first", "last", "min", "max", "sum", "avg")
        if not (name == "s" and fold in {"sum", "avg"}) and (name, fold) != ("w", "avg")
    }
    texts["both"] = "sum(b.i * 2 + b.d)"
    typer = SparkTyper(df, order="t", partition=("k",))
    measures = compile_measures(texts, compiled, columns, typer=typer).measures
    row = F.struct(*df.columns)
    rows = (
        df.repartition(1)
        .orderBy("t")
        .groupBy("k")
        .agg(F.array_sort(F.collect_list(row)).alias("b"))
    )
    empty = rows.limit(1).select(F.lit(-1).alias("k"), F.expr("filter(b, x -> FALSE) AS b"))
    given = rows.union(empty).select("k", *[F.expr(m.text).alias(m.name) for m in measures])
    ordered = {
        "first": "min_by({0}, t)",
        "last": "max_by({0}, t)",
    }
    aggregates = [
        F.expr(ordered.get(fold, f"{fold}({{0}})").format(name)).alias(f"{fold}_{name}")
        for fold, name in (each.split("_") for each in texts if "_" in each)
    ]
    expected = (
        df.repartition(1)
        .orderBy("t")
        .coalesce(1)
        .groupBy("k")
        .agg(F.count("*").alias("n"), *aggregates, F.expr("sum(i * 2 + d)").alias("both"))
    )
    names = list(texts)
    kinds = {f.name: f.dataType for f in expected.schema}
    assert {f.name: f.dataType for f in given.schema if f.name != "k"} == {
        name: kinds[name] for name in names
    }
    by_key = {r["k"]: r for r in expected.collect()}
    for r in given.collect():
        for name in names:
            value = r[name]
            if r["k"] == -1:
                assert value == (0 if name == "n" or name.startswith("count") else None), name
            elif isinstance(value, float):
                assert value == pytest.approx(by_key[r["k"]][name], rel=1e-12), (r["k"], name)
            else:
                assert value == by_key[r["k"]][name], (r["k"], name)
    assert type_of(kinds["n"]) == BIGINT
