"""The payload joined to the matches, compared with answers whose payload was shipped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import all_of, any_of, event, no, seq
from spark_cep.spark import payload
from spark_cep.spark.source import plan_text
from tests.spark.jobs import count_jobs

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

pytestmark = pytest.mark.spark

PAYLOAD = "spark.cep.payload"
A, B, C = event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'")
PAIR = seq(A, B).where("a.price < b.price").within(12)
# Columns of every kind of type, and one whose field names differ in case only.
TYPES = """
    CAST(id AS DECIMAL(20, 4)) / 7 AS price_exact,
    CAST(CONCAT('bytes ', id) AS BINARY) AS bytes,
    TIMESTAMP_NTZ '2024-01-01 00:00:00' + MAKE_DT_INTERVAL(0, 0, 0, id) AS local_time,
    TIMESTAMP_SECONDS(id * 1000) AS at,
    MAKE_DT_INTERVAL(0, 0, 0, id) AS lasts,
    MAKE_YM_INTERVAL(0, CAST(id AS INT)) AS months,
    NAMED_STRUCT('x', id, 'inner', ARRAY(NAMED_STRUCT('y', CAST(id AS STRING)))) AS nested,
    MAP('id', id) AS by_name,
    IF(id % 5 = 0, NULL, CONCAT('text ', id)) AS note,
    DOUBLE('NaN') AS nan,
    -0.0D AS zero
"""


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 rows in three files, each row twice; `day` is a partition of the folders."""
    folder = tmp_path_factory.mktemp("ticks") / "ticks"
    rows = spark.range(200).selectExpr(
        "id % 3 AS k",
        "CAST(id AS INT) AS t",
        "element_at(array('A', 'B', 'C', 'D'), CAST(pmod(xxhash64(id), 4) AS INT) + 1) AS kind",
        "CAST(pmod(xxhash64(id, 1), 50) AS INT) AS price",
        "id DIV 100 AS day",
        *[each.strip() for each in TYPES.split(",\n")],
    )
    twice = rows.union(rows).repartition(3)
    twice.write.partitionBy("day").parquet(str(folder))
    return folder


@pytest.fixture(scope="module")
def ticks(spark: SparkSession, files: Path) -> DataFrame:
    return spark.read.parquet(str(files))


@pytest.fixture
def join(conf: dict[str, str]) -> None:
    conf[PAYLOAD] = "join"


def match(df: DataFrame, pattern: Pattern, mode: str, **options: object) -> DataFrame:
    df.sparkSession.conf.set(PAYLOAD, mode)
    try:
        return cep.match_pattern(df, pattern, **{"order_by": "t", "partition_by": "k", **options})
    finally:
        df.sparkSession.conf.unset(PAYLOAD)


def mode_of(matches: DataFrame) -> str:
    return str(cep.plan_of(matches).to_dict()["payload"]["mode"])


def reason_of(matches: DataFrame) -> str:
    return str(cep.plan_of(matches).to_dict()["payload"]["reason"])


def as_text(matches: DataFrame) -> DataFrame:
    """NaN is equal to itself then, and Python knows no intervals of months."""
    return matches.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))


def rows_of(matches: DataFrame) -> list[str]:
    return sorted(row[0] for row in as_text(matches).collect())


def check(df: DataFrame, pattern: Pattern, **options: object) -> int:
    """How many matches both answers have."""
    shipped, joined = (match(df, pattern, mode, **options) for mode in ("ship", "join"))
    assert mode_of(shipped) == "ship"
    assert mode_of(joined) == "join", reason_of(joined)
    assert joined.schema == shipped.schema
    expected = rows_of(shipped)
    assert rows_of(joined) == expected
    counts = cep.metrics(joined)
    assert counts["complete"]
    for name in ("rows", "matches"):
        assert counts[name] == cep.metrics(shipped)[name]
    return len(expected)


# ---- the same answer ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(PAIR, id="seq"),
        pytest.param(all_of(A, B, C).within(12), id="all"),
        pytest.param(seq(A, any_of(B, C), event("d", "kind = 'D'")).within(12), id="any"),
        pytest.param(seq(A, no(C), B).within(12), id="not"),
        pytest.param(
            seq(A, event("b", "kind = 'B'").times("+"), C).within(15), id="list"
        ),
        pytest.param(
            seq(A, event("b", "kind = 'B'").times("*"), event("c", "kind = 'C'").optional()
            ).within(9), id="empty lists and optional",
        ),
        pytest.param(PAIR.strategy("skip till next match"), id="next"),
        pytest.param(event("a", "kind = 'A' AND price > 40"), id="one event"),
    ],
)  # fmt: skip
def test_kinds_of_patterns_have_the_same_answer(ticks: DataFrame, pattern: Pattern) -> None:
    assert check(ticks, pattern) > 10


def test_conditions_of_spark_on_matches_are_tested_before_the_join(ticks: DataFrame) -> None:
    pattern = seq(A, B).where("levenshtein(a.note, b.note) = 1").within(12)
    assert cep.plan_of(match(ticks, pattern, "join")).to_dict()["after"]["conditions"]
    assert check(ticks, pattern) > 10


def test_filters_and_columns_above_the_scan(ticks: DataFrame) -> None:
    changed = (
        ticks.filter("price > 5").withColumn("twice", F.col("price") * 2)
        .withColumn("fixed", F.lit("x")).drop("note").alias("u")
        .select("u.*", F.expr("named_struct('n', price, 'never', 1)").alias("made"))
    )  # fmt: skip
    optional = seq(A, event("b", "kind = 'B'").optional(), event("c", "kind = 'C'").times("+"))
    assert check(changed, PAIR) > 10
    assert check(changed, optional.within(3), partition_by=None) > 10


def test_types_are_those_of_a_shipped_payload(ticks: DataFrame) -> None:
    """Comments of columns, for example, stay behind on the way through the workers."""
    commented = ticks.withMetadata("bytes", {"comment": "c"}).withColumn("one", F.lit(1))
    matches = match(commented, PAIR, "join")
    assert matches.schema["a"].dataType["bytes"].metadata == {}  # type: ignore[index]
    assert check(commented, PAIR) > 10


def test_a_partition_column_may_be_the_key_or_a_name_be_taken(ticks: DataFrame) -> None:
    renamed = ticks.withColumnsRenamed({"price": "metrics", "note": "a b`c"})
    pattern = seq(event("K", "kind = 'A'"), B).where("K.metrics < b.metrics").within(4)
    assert check(renamed, pattern, partition_by="day") > 10


def test_hot_keys_are_matched_in_slices_of_time(ticks: DataFrame, conf: dict[str, str]) -> None:
    conf["spark.cep.slices"] = "on"
    assert check(ticks, PAIR, partition_by=None) > 10


def test_an_answer_without_matches_has_its_metrics(ticks: DataFrame) -> None:
    nothing = seq(A, B).where("a.price + 100 < b.price").within(12)
    assert check(ticks, nothing) == 0
    assert check(ticks.filter("day = 77"), PAIR) == 0


def test_shuffled_joins_have_the_same_answer(ticks: DataFrame, conf: dict[str, str]) -> None:
    conf["spark.sql.autoBroadcastJoinThreshold"] = "-1"
    assert check(ticks, PAIR) > 10


# ---- how it runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda df: df, id="all columns"),
        pytest.param(lambda df: df.select("match_start"), id="no payload"),
        pytest.param(lambda df: df.filter("match_start > 50 AND k = 1"), id="a filter"),
        pytest.param(lambda df: df.filter("a.price > 10").select("b.note"), id="fields"),
        pytest.param(lambda df: df.groupBy("k").count(), id="a count"),
        pytest.param(lambda df: df.limit(3), id="a limit"),
    ],
)
def test_the_engine_runs_once_whatever_is_read(
    ticks: DataFrame, use: Callable[[DataFrame], DataFrame]
) -> None:
    matches = match(ticks, PAIR, "join")
    used = as_text(use(matches))
    found = sorted(row[0] for row in used.collect())
    if "GlobalLimit" not in plan_text(used, "extended"):
        assert found == rows_of(use(match(ticks, PAIR, "ship")))
    plan = plan_text(used).partition("== Initial Plan ==")[0]
    assert plan.count("MapInArrow") == 1
    assert plan.count("ReusedExchange") >= 2
    assert cep.metrics(used)["complete"]


def test_only_what_matching_reads_is_shuffled(ticks: DataFrame) -> None:
    plan = plan_text(match(ticks, PAIR, "join"))
    first, second = sorted(set(re.findall(r"ReadSchema: struct<(\S+)", plan)), key=len)
    assert [each.split(":")[0] for each in first.rstrip(">").split(",")] == [
        "k", "t", "kind", "price", "_tmp_metadata_row_index",
    ]  # fmt: skip
    assert "bytes" in second
    # Price, key, time, three columns of identity, the mask.
    assert re.search(r"MapInArrow match_pattern\[[^\]]*\]\(([^)]*)\)", plan)[1].count("#") == 7  # type: ignore[index]


def test_defining_a_join_runs_no_job(ticks: DataFrame) -> None:
    with count_jobs() as ran:
        match(ticks, PAIR, "join", plan="eager")
    assert len(ran) == 0


def test_analyze_runs_a_join_again(ticks: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    matches = match(ticks, PAIR, "join")
    cep.explain(matches, mode="analyze")
    expected = match(ticks, PAIR, "ship").count()
    assert re.search(rf"a b +\S+ +{expected}\b", capsys.readouterr().out)


def test_actions_that_stop_early(ticks: DataFrame) -> None:
    matches = match(ticks, PAIR, "join")
    assert len(matches.select("a.t").take(3)) == 3
    assert len(matches.select("b.t").limit(5).collect()) == 5


# ---- the choice ----------------------------------------------------------------------------------


def test_explain_names_the_choice_and_its_reason(ticks: DataFrame) -> None:
    joined, shipped = (match(ticks, PAIR, mode) for mode in ("join", "ship"))
    plan = cep.plan_of(joined)
    assert "  payload   joined to the matches: set by spark.cep.payload" in str(plan)
    assert plan.to_dict()["before"]["shipped"] == [
        "price", "k", "t", "__cep_file", "__cep_path", "__cep_number", "candidates",
    ]  # fmt: skip
    assert "  payload   shipped: set by spark.cep.payload" in str(cep.plan_of(shipped))
    measured = match(ticks, PAIR, "join", measures={"x": "a.price"})
    assert "payload" not in cep.plan_of(measured).to_dict()


def test_small_payloads_are_shipped_unless_a_join_is_set(ticks: DataFrame) -> None:
    assert reason_of(match(ticks, PAIR, "auto")).startswith("the payload has only")
    wide = ticks.select("*", *[F.lit(0).alias(f"c{n}") for n in range(64)])
    assert re.fullmatch("the payload has only 0 MiB of files", reason_of(match(wide, PAIR, "auto")))


def test_wide_rows_with_few_matches_are_joined(
    ticks: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_cep.planner.payload.LEAST_FILE_BYTES", 0)
    wide = ticks.select("*", *[F.lit(0).alias(f"c{n}") for n in range(64)])
    few = match(wide, seq("a", "b").where("a.price + 48 < b.price").within(12), "auto")
    assert mode_of(few) == "join", reason_of(few)
    many = match(wide, seq("a", "b").within(100), "auto")
    assert mode_of(many) == "ship"
    assert "matches are expected" in reason_of(many)


def test_an_unknown_setting_is_refused(ticks: DataFrame) -> None:
    with pytest.raises(cep.PlanError, match=r"spark\.cep\.payload is 'both'"):
        match(ticks, PAIR, "both")


def uncertain_inputs(spark: SparkSession, files: Path) -> Iterator[tuple[DataFrame, str]]:
    ticks = spark.read.parquet(str(files))
    yield ticks.join(spark.range(3).toDF("k"), "k"), "its plan has Join"
    yield ticks.dropDuplicates(["t"]), "its plan has Deduplicate"
    yield ticks.withColumn("r", F.rand()), "may differ between two scans"
    yield ticks.withColumn("r", F.expr("uuid()")), "may differ between two scans"
    yield ticks.withColumn("r", F.udf(lambda t: t + 1)("t")), "a function in Python"
    yield ticks.filter("k IN (SELECT id FROM range(2))"), "a subquery"
    yield ticks.union(ticks), "its plan has Union"
    yield ticks.withColumnRenamed("note", "_metadata"), "is called _metadata"
    folders = [str(files / f"day={day}") for day in (0, 1, 1)]
    yield spark.read.parquet(*folders), "reads a file twice"
    ticks.createOrReplaceTempView("ticks_view")
    yield spark.table("ticks_view"), "its plan has View"
    ticks.write.mode("overwrite").json(f"{files}_json")
    yield spark.read.schema(ticks.schema).json(f"{files}_json"), "only the rows of Parquet files"
    columns = ("id % 3 AS k", "id AS t", "'A' AS kind", "1 AS price", "id AS x")
    yield spark.range(5).selectExpr(*columns), "its plan has Range"
    yield ticks.select("*", F.lit(7).alias("cached")).cache(), "the input is cached"


def test_rows_that_cannot_be_found_again_are_shipped(spark: SparkSession, files: Path) -> None:
    for df, reason in uncertain_inputs(spark, files):
        matches = match(df, PAIR, "join")
        assert mode_of(matches) == "ship", reason
        assert reason in reason_of(matches)
        df.unpersist()


def test_other_ways_to_run_ship_the_payload(
    spark: SparkSession, ticks: DataFrame, conf: dict[str, str]
) -> None:
    a_udf = seq(event("a", F.udf(lambda kind: kind == "A", "boolean")("kind")), B).within(12)
    assert "a function in Python" in reason_of(match(ticks, a_udf, "join"))
    shed = match(ticks, PAIR, "join", shed=cep.Shed(keep=0.5))
    assert reason_of(shed) == "rows are shed"
    limits = spark.createDataFrame([(0, 1)], "k INT, most INT")
    remote = match(
        ticks, seq(A, B).where("a.price < remote('limits', b.k)").within(12), "join",
        remotes={"limits": cep.Remote.table(limits, key="k", value="most")},
    )  # fmt: skip
    assert reason_of(remote) == "the pattern reads remote data"
    conf["spark.sql.adaptive.enabled"] = "false"
    assert reason_of(match(ticks, PAIR, "join")) == "spark.sql.adaptive.enabled is off"


def test_rows_that_are_not_found_again_are_an_error_of_the_library(spark: SparkSession) -> None:
    match = f"array(named_struct('{payload._PLACE}', 0)) AS {payload._EVENTS}"
    events = spark.range(1).selectExpr(match, f"array(2) AS {payload._SIZES}")
    with pytest.raises(Exception, match="were changed") as raised:
        events.selectExpr(payload._ordered_events()).collect()
    found = cep.error_of(raised.value)
    assert found is not None
    assert "spark.cep.payload" in str(found.hint)
