"""What calling match_pattern costs: the jobs, tasks and seconds of its sample, and nothing else."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

import spark_cep as cep
from spark_cep import event, seq
from spark_cep.spark import sample
from spark_cep.spark.sample import find_blocking, run_bounded
from tests.spark.jobs import count_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, partitions: int, number: int = 100_000) -> DataFrame:
    return spark.range(0, number, 1, partitions).selectExpr(
        "id % 5 AS k",
        "CAST(id AS INT) AS t",
        "substr('ABC', id % 3 + 1, 1) AS kind",
        "id % 97 AS v",
    )


def pattern(number: int = 0) -> cep.Pattern:
    return (
        seq(event("a", f"kind = 'A' AND v >= {number}"), event("b", "kind = 'B'"))
        .where("a.v < b.v")
        .within(10)
    )


def define(df: DataFrame, number: int = 0, **options: Any) -> DataFrame:
    return cep.match_pattern(df, pattern(number), order_by="t", partition_by="k", **options)


def why(df: DataFrame) -> str:
    return str(cep.plan_of(df).to_dict()["reason"])


def test_jobs_and_tasks_are_counted_in_every_job_group(spark: SparkSession) -> None:
    with count_jobs() as ran:
        spark.sparkContext.parallelize(range(3), 3).count()
        with count_jobs() as inside:
            spark.sparkContext.parallelize(range(2), 2).count()
    assert [job.tasks for job in inside.jobs] == [2]
    assert ran.tasks == 5
    assert inside.jobs[0] in ran.jobs
    with count_jobs() as ran:
        _ = spark.range(10).schema
    assert len(ran) == 0


# ---- how much is read ----------------------------------------------------------------------------


def test_a_sample_reads_the_first_partitions_only(spark: SparkSession) -> None:
    with count_jobs() as ran:
        matches = define(rows(spark, 500, 500_000))
    assert ran.tasks == sample.MORE_PARTITIONS
    assert "the input's first 5,000 rows" in why(matches)


def test_one_partition_is_enough_if_it_has_enough_rows(spark: SparkSession) -> None:
    with count_jobs() as ran:
        matches = define(rows(spark, 7, 200_000))
    assert ran.tasks == 1
    assert "the input's first 5,000 rows" in why(matches)


def test_empty_partitions_do_not_make_a_sample_read_them_all(spark: SparkSession) -> None:
    df = rows(spark, 300, 300_000).filter("v < 0")
    with count_jobs() as ran:
        matches = define(df)
    assert ran.tasks == sample.MOST_PARTITIONS
    assert "no sample: the first 10 of 300 partitions have no rows" in why(matches)


def test_a_small_input_is_sampled_whole(spark: SparkSession) -> None:
    assert "the input's 60 rows" in why(define(rows(spark, 4, 60)))


def test_local_rows_need_no_job(spark: SparkSession) -> None:
    df = spark.sql("SELECT * FROM VALUES (1, 2, 'A', 3), (1, 3, 'B', 4) AS r(k, t, kind, v)")
    with count_jobs() as ran:
        matches = define(df.filter("v > 0"))
    assert len(ran) == 0
    assert "the input's 2 rows" in why(matches)


def test_files_are_read_in_a_few_splits(
    spark: SparkSession, conf: dict[str, str], tmp_path: Path
) -> None:
    path = str(tmp_path / "rows")
    rows(spark, 12, 24_000).write.parquet(path)
    conf["spark.sql.files.maxPartitionBytes"] = "1000"
    df = spark.read.parquet(path)
    with count_jobs() as ran:
        matches = define(df)
    assert 0 < ran.tasks <= sample.MORE_PARTITIONS
    assert "the input's first" in why(matches)


# ---- shared samples ------------------------------------------------------------------------------


def test_patterns_on_one_table_share_a_sample(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "rows")
    rows(spark, 3, 3_000).write.parquet(path)
    with count_jobs() as ran:
        define(spark.read.parquet(path))
    listed = [job for job in ran.jobs if job.tasks]
    with count_jobs() as ran:
        df = spark.read.parquet(path)
    reading = len(ran)
    with count_jobs() as ran:
        for number in range(1, 6):
            define(df, number)
    assert len(ran) == 0
    assert reading <= len(listed)


def test_a_table_that_grew_is_sampled_again(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "rows")
    rows(spark, 1, 100).write.parquet(path)
    assert "the input's 100 rows" in why(define(spark.read.parquet(path)))
    rows(spark, 1, 300).write.mode("append").parquet(path)
    assert "the input's 400 rows" in why(define(spark.read.parquet(path)))


def test_a_pattern_that_reads_other_columns_reads_the_table_again(spark: SparkSession) -> None:
    columns = [f"CAST(id AS DOUBLE) AS x{n}" for n in range(8)]
    df = rows(spark, 2, 2_000).selectExpr("*", *[c.replace("id", "v") for c in columns])
    define(df)
    for number in range(8):
        other = seq(event("a", f"x{number} < 50"), event("b", "kind = 'B'")).within(10)
        with count_jobs() as ran:
            matches = cep.match_pattern(df, other, order_by="t", partition_by="k")
        # The second reading takes all small columns.
        assert (len(ran) > 0) == (number == 0)
        assert "2,000 rows" in why(matches)


def test_columns_of_the_dataframe_itself_are_sampled_apart(spark: SparkSession) -> None:
    df = rows(spark, 2, 2_000)
    own = seq(event("a", df.kind == "A"), event("b", F.col("kind") == "B")).within(10)
    matches = cep.match_pattern(df, own, order_by="t", partition_by="k")
    assert "2,000 rows" in why(matches)
    assert cep.plan_of(matches).to_dict()["cost"] == pytest.approx(
        cep.plan_of(
            cep.match_pattern(
                df, seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within(10),
                order_by="t", partition_by="k",
            )
        ).to_dict()["cost"]
    )  # fmt: skip


def test_threads_share_one_reading(spark: SparkSession) -> None:
    df = rows(spark, 2, 2_000).withColumn("v", F.col("v") + 1)
    threads = [threading.Thread(target=define, args=(df, number)) for number in range(4)]
    with count_jobs() as ran:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ran.tasks == 2


EXACT = {
    "date": "date_add(DATE '1583-01-01', t)",
    "timestamp": "timestamp_micros(t * 1000001L - 62135596800000000L)",
    "ntz": "TIMESTAMP_NTZ '1500-03-10 01:58:00' + make_dt_interval(0, 0, 0, t + 0.000001)",
    "decimal": "CAST(t AS DECIMAL(38, 18)) + 0.000000000000000001",
    "double": "IF(t = 3, double('NaN'), t * 0.1D)",
    "bigint": "9223372036854775000 + t",
}


@pytest.mark.parametrize("time_", EXACT.values(), ids=EXACT.keys())
def test_sampled_values_are_exactly_those_of_the_rows(spark: SparkSession, time_: str) -> None:
    df = rows(spark, 2, 60).withColumn("x", F.expr(time_)).select(
        "x", "kind", F.expr("IF(t % 7 = 0, NULL, kind)").alias("n"), F.expr("t % 2 = 0").alias("b")
    )  # fmt: skip
    first = sample._read_first_rows(df)
    assert isinstance(first, sample.FirstRows)
    found = sample._collect_local(first.df.select("*"), True)
    assert isinstance(found, tuple)
    expected = df.toArrow()
    assert [field.type for field in found[0].schema] == [field.type for field in expected.schema]
    assert list(map(repr, found[0].to_pylist())) == list(map(repr, expected.to_pylist()))


def test_keys_of_any_type_are_sampled(spark: SparkSession) -> None:
    df = rows(spark, 2, 60).withColumn("k", F.expr("named_struct('a', k, 'b', array(k))"))
    assert "the input's 60 rows" in why(define(df))


# ---- plans that are not sampled ------------------------------------------------------------------

REFUSED = {
    "an aggregate": lambda df: df.groupBy("k", "kind", "v").agg(F.max("t").alias("t")),
    "a sort": lambda df: df.orderBy("v"),
    "a join": lambda df: df.join(F.broadcast(df.select("k").distinct()), "k"),
    "a window function": lambda df: df.withColumn("v", F.expr("max(v) OVER (PARTITION BY k)")),
    "a shuffle": lambda df: df.repartition(3),
    "a limit": lambda df: df.limit(1_000),
    "DISTINCT": lambda df: df.distinct(),
    "INTERSECT or EXCEPT": lambda df: df.exceptAll(df.filter("k = 1")),
    "a subquery": lambda df: df.filter(F.expr("v < (SELECT max(id) FROM range(50))")),
    "a function over groups": lambda df: df.groupBy("k").applyInPandas(
        lambda each: each, df.schema
    ),
    "an observation": lambda df: df.observe(Observation(), F.count("*").alias("n")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_is_sampled_behind(spark: SparkSession, what: str) -> None:
    df = REFUSED[what](rows(spark, 3, 3_000))
    with count_jobs() as ran:
        matches = define(df)
    assert len(ran) == 0
    assert f"no sample: the input is behind {what}" in why(matches)


def test_rows_of_an_rdd_are_sampled_unless_they_were_shuffled(spark: SparkSession) -> None:
    schema = T.StructType([T.StructField("t", T.LongType()), T.StructField("kind", T.StringType())])
    plain = spark.sparkContext.parallelize([(n, "AB"[n % 2]) for n in range(40)], 2)
    simple = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within(10)
    read = cep.match_pattern(spark.createDataFrame(plain, schema), simple, order_by="t")
    assert "the input's 40 rows" in why(read)
    shuffled = spark.createDataFrame(plain.sortBy(lambda row: row[0]), schema)
    with count_jobs() as ran:
        refused = cep.match_pattern(shuffled, simple, order_by="t")
    assert len(ran) == 0
    assert "behind a shuffle" in why(refused)


def test_a_cached_result_is_sampled(spark: SparkSession) -> None:
    df = rows(spark, 3, 3_000).orderBy("v").cache()
    try:
        assert "behind a sort" in why(define(df))
        df.count()
        with count_jobs() as ran:
            matches = define(df.select("*"))
        assert ran.tasks > 0
        assert "3,000 rows" in why(matches)
    finally:
        df.unpersist()


def test_operators_are_read_from_the_text_of_plans() -> None:
    assert find_blocking("Repartition 2, true\n+- Range") == "a shuffle"
    assert find_blocking("Repartition 2, false\n+- Range (0, 1, step=1)") is None
    assert find_blocking("Filter (x = Sort)\n+- Relation [x#1] parquet") is None
    cached = "Project [x#1]\n+- InMemoryRelation [x#1], StorageLevel(1)\n      +- *(1) Sort [x#1]"
    assert find_blocking(cached) == "a sort"
    assert find_blocking(cached, skip_cached=True) is None
    assert find_blocking(f"Union\n:- {cached}\n+- Sort [x#1]", skip_cached=True) == "a sort"


def test_no_sample_is_taken_where_nothing_depends_on_it(
    spark: SparkSession, conf: dict[str, str]
) -> None:
    df = rows(spark, 2, 2_000).withColumn("v", F.col("v") + 2)
    with count_jobs() as ran:
        define(df, plan="eager")
        define(df, plan=cep.plans.chain("b", "a"))
        define(df, statistics=cep.Statistics(rates={"a": 1, "b": 2}))
        conf["spark.cep.sample"] = "off"
        define(df)
    assert len(ran) == 0


# ---- bounded in time -----------------------------------------------------------------------------


@pytest.fixture
def sleepy(spark: SparkSession) -> DataFrame:
    def sleep(value: int) -> int:
        time.sleep(60)
        return value

    asleep = F.udf(sleep, "int", useArrow=False)
    return rows(spark, 2, 200).withColumn("t", asleep("t"))


def test_a_slow_input_does_not_hold_up_the_call(
    spark: SparkSession, conf: dict[str, str], sleepy: DataFrame
) -> None:
    conf["spark.cep.sample.seconds"] = "1.5"
    spark.sparkContext.setJobGroup("mine", "my job")
    try:
        start = time.monotonic()
        with count_jobs() as ran:
            matches = define(sleepy)
            took = time.monotonic() - start
        assert took < 30
        assert "no sample: reading it takes longer than 1.5 s (spark.cep.sample.seconds)" in why(
            matches
        )
        assert {job.status for job in ran.jobs} <= {"FAILED"}
        assert {job.group for job in ran.jobs} <= {"mine"}
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
        assert not spark.sparkContext.getJobTags()
        with count_jobs() as ran:
            define(sleepy, 1)  # nor does the next pattern try again
        assert len(ran) == 0
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]


def test_a_time_that_makes_no_sense_is_refused(spark: SparkSession, conf: dict[str, str]) -> None:
    for value in ("soon", "0", "-1", "inf", "nan"):
        conf["spark.cep.sample.seconds"] = value
        with pytest.raises(cep.PlanError, match=r"spark\.cep\.sample\.seconds"):
            define(rows(spark, 1, 10))


def test_problems_and_results_of_bounded_work_reach_the_caller(spark: SparkSession) -> None:
    assert run_bounded(spark, 20, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_bounded(spark, 20, lambda: 1 // 0)
    with pytest.raises(TimeoutError):
        run_bounded(spark, 0.05, lambda: time.sleep(1))
