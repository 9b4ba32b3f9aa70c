"""Shedding on streams: the latency bound under the paper's four peaks, quotas, histories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import spark_cep as cep
from spark_cep import event, no, seq
from tests.spark.streams import Files, drained, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, k long, kind string, x double"
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("k", pa.int64()),
        ("kind", pa.string()),
        ("x", pa.float64()),
    ]
)
KEYED: dict[str, Any] = {"partition_by": "k", "order_by": "ts"}
RISING = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
    .where("b.x > a.x + 1", "c.x > b.x")
    .within("10 seconds")
)
MEASURES = {"times": "a.ts || b.ts || c.ts"}


@pytest.fixture(autouse=True)
def few_buckets(spark: SparkSession) -> Iterator[None]:
    with small(spark):
        yield


def written(folder: Path, sizes: list[int], rate: float = 20.0) -> Files:
    """A file a trigger; `rate` rows a second of event time, whenever they come."""
    files = Files(folder, COLUMNS, SCHEMA)
    random, since = np.random.default_rng(0), 0
    for size in sizes:
        times = (since + np.arange(size)) / rate
        kinds = random.choice(list("ABC"), size)
        values = random.normal(0, 1, size)
        rows = zip(times.tolist(), [1] * size, kinds.tolist(), values.tolist(), strict=True)
        files.put(list(rows))
        since += size
    return files


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """The triggers that rows came in."""
    return [each for each in cep.streaming.metrics(query) if each["rows"] or any_came(each)]


def any_came(each: dict[str, Any]) -> bool:
    return any(sum(shed.values()) for shed in each.get("shed", {}).values())


def kept(each: dict[str, Any]) -> int:
    return sum(shed["kept"] for shed in each["shed"].values())


def dropped(each: dict[str, Any]) -> int:
    return sum(shed["dropped"] for shed in each["shed"].values())


def test_a_stream_keeps_its_share_of_every_trigger(spark: SparkSession, tmp_path: Path) -> None:
    files = written(tmp_path, [1000] * 4)
    stream = files.stream(spark)
    whole, _ = drained(stream.match_pattern(RISING, **KEYED, measures=MEASURES))
    found: dict[str, set[Any]] = {}
    for policy in ("utility", "random"):
        shed = cep.Shed(keep=0.3, policy=policy)
        matches = stream.match_pattern(RISING, **KEYED, measures=MEASURES, shed=shed)
        given, query = drained(matches)
        assert [kept(each) for each in progress(query)] == [300] * 4
        rows = given.collect()
        found[policy] = set(rows)
        assert len(found[policy]) == len(rows)
    every = set(whole.collect())
    assert found["utility"] | found["random"] <= every
    assert len(found["utility"]) > 3 * len(found["random"]) > 0


def test_with_a_history_spark_drops_before_the_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    files = written(tmp_path, [1000] * 3)
    shed = cep.Shed(keep=0.3, history=files.batch(spark))
    matches = files.stream(spark).match_pattern(RISING, **KEYED, measures=MEASURES, shed=shed)
    given, query = drained(matches)
    same = files.batch(spark).match_pattern(
        RISING, **KEYED, measures=MEASURES, shed=cep.Shed(keep=0.3)
    )
    # The very rows that the batch keeps, whatever came in which trigger.
    assert sorted(given.collect()) == sorted(same.collect())
    total = sum(kept(each) for each in progress(query))
    assert total == pytest.approx(900, abs=0.02 * 3000)
    assert sum(dropped(each) for each in progress(query)) == 3000 - total
    assert cep.plan_of(matches).to_dict()["shedding"]["share"] == 0.3


def test_rows_that_a_not_could_need_stay_on_streams_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = written(tmp_path, [500] * 2)
    pattern = seq(
        event("a", "kind = 'A'"), no(event("x", "kind = 'C'")), event("b", "kind = 'B'")
    ).within("2 seconds")
    stream = files.stream(spark)
    every, _ = drained(stream.match_pattern(pattern, **KEYED, measures={"t": "a.ts || b.ts"}))
    for shed in (cep.Shed(keep=0.5), cep.Shed(keep=0.5, history=files.batch(spark))):
        matches = stream.match_pattern(pattern, **KEYED, measures={"t": "a.ts || b.ts"}, shed=shed)
        given, _ = drained(matches)
        assert 0 < given.count() < every.count()
        assert given.exceptAll(every).count() == 0


def test_the_latency_bound_holds_under_four_peaks(spark: SparkSession, tmp_path: Path) -> None:
    """30, 10, 20 and 10 % of the rows come in four triggers, the rest in small ones between. A
    pair takes 6 microseconds, asleep, so what a trigger takes hangs little on the machine: the
    largest one would take eight seconds and what Spark needs."""
    peaks = [60_000, 20_000, 40_000, 20_000]
    calm = [6_000] * 2
    sizes = [*calm, *(size for peak in peaks for size in (peak, *calm))]
    files = written(tmp_path, sizes, rate=100.0)

    def slow(a: Any, b: Any) -> Any:
        import time

        time.sleep(6e-6 * len(a))
        return b > a + 2

    cep.udf(slow, returns="boolean", name="slow_pairs")
    pattern = (
        seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"))
        .where("slow_pairs(a.x, b.x)", "b.x > a.x + 1")
        .within("8 seconds")
    )
    bound = 5.0
    spark.conf.set("spark.cep.buckets", "1")
    matches = files.stream(spark).match_pattern(
        pattern, **KEYED, measures={"x": "a.x"}, shed=cep.Shed(latency=f"{bound} seconds")
    )
    query = matches.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    took = {
        each["batchId"]: each["durationMs"]["triggerExecution"] / 1000
        for each in map(plain, query.recentProgress)
    }
    triggers = progress(query)
    assert len(triggers) == len(sizes)
    # The first one starts workers.
    assert max(took[each["trigger"]] for each in triggers[1:]) < bound
    assert any(dropped(each) for each in triggers)
    # What a function of the user decides is not known, unless whole blocks stay.
    recalls = [each["estimated_recall"] for each in triggers]
    assert all(recall is None or 0 <= recall <= 1 for recall in recalls)
    assert all(each["matches"] for each in triggers[1:])
    assert [each["latency"] >= took[each["trigger"]] for each in triggers] == [True] * len(sizes)
    assert not any(each["missed"] for each in triggers[1:])


def test_a_deadline_holds_the_bound_where_rows_take_longer_than_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A pair takes 50 microseconds, asleep, in the third trigger only, and none in those before.
    That one would take ten seconds."""
    files = Files(tmp_path, COLUMNS, SCHEMA)
    for trigger in range(4):
        kinds = ["A", "B"] * 450
        x = 1.0 if trigger == 2 else 0.0
        files.put([(trigger * 100.0 + n / 100, 1, kind, x) for n, kind in enumerate(kinds)])

    def sometimes_slow(a: Any, b: Any) -> Any:
        import time

        time.sleep(5e-5 * float(a.sum()))
        return b >= a

    cep.udf(sometimes_slow, returns="boolean", name="sometimes_slow")
    pattern = (
        seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"))
        .where("sometimes_slow(a.x, b.x)")
        .within("20 seconds")
    )
    spark.conf.set("spark.cep.buckets", "1")
    matches = files.stream(spark).match_pattern(
        pattern, **KEYED, measures={"x": "a.x"}, shed=cep.Shed(latency="4 seconds")
    )
    query = matches.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    _, second, slow, last = progress(query)[:4]
    assert [each["cut"] for each in (second, slow, last)] == [0, 1, 0]
    assert 0 < slow["left_share"] < 1
    assert 0 < slow["matches"] < second["matches"]
    assert second["latency"] < slow["latency"] < 4
    assert [each["missed"] for each in (second, slow, last)] == [0, 0, 0]


def plain(progress: Any) -> Any:
    import json

    return progress if isinstance(progress, dict) else json.loads(progress.json)


def test_while_there_is_room_a_stream_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    files = written(tmp_path, [500] * 3)
    stream = files.stream(spark)
    every, _ = drained(stream.match_pattern(RISING, **KEYED, measures=MEASURES))
    for bound in ({"latency": "1 hour"}, {"rows_per_second": 1e9}, {"keep": 1.0}):
        shed = cep.Shed(**bound)  # type: ignore[arg-type]
        matches = stream.match_pattern(RISING, **KEYED, measures=MEASURES, shed=shed)
        given, query = drained(matches)
        assert sorted(given.collect()) == sorted(every.collect())
        assert [dropped(each) for each in progress(query)] == [0, 0, 0]
        assert {each["estimated_recall"] for each in progress(query)} == {1.0}
        cuts = {(each["cut"], each["missed"]) for each in progress(query) if "cut" in each}
        assert cuts == ({(0, 0)} if "latency" in bound else set())


def test_a_query_may_go_on_with_another_bound(spark: SparkSession, tmp_path: Path) -> None:
    files = written(tmp_path / "in", [400] * 2)
    checkpoint = str(tmp_path / "checkpoint")

    def ran(**options: Any) -> StreamingQuery:
        matches = files.stream(spark).match_pattern(RISING, **KEYED, measures=MEASURES, **options)
        writer = matches.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    ran(shed=cep.Shed(keep=0.5))
    later = written(tmp_path / "more", [400] * 3, rate=20.0)
    for path in sorted(later.folder.glob("*.parquet"))[2:]:
        path.rename(files.folder / "0002.parquet")
    query = ran(shed=cep.Shed(keep=0.25))
    assert [kept(each) for each in progress(query)] == [100]


def test_matches_that_wait_for_a_not_are_given_by_a_query_that_goes_on_without_a_bound(
    spark: SparkSession, tmp_path: Path
) -> None:
    pattern = seq(
        event("a", "kind = 'A'"), no(event("x", "x > 2")), event("b", "kind = 'B'")
    ).within("2 seconds")
    files = written(tmp_path / "in", [200])

    def ran(**options: Any) -> list[dict[str, Any]]:
        matches = files.stream(spark, "2 seconds").match_pattern(
            pattern, **KEYED, measures={"a_at": "a.ts", "b_at": "b.ts"}, **options
        )
        writer = matches.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return cep.streaming.metrics(query)

    # Spark's last trigger has only moved the watermark: what waits then is in the checkpoint.
    last = ran(shed=cep.Shed(latency="10 minutes"))[-1]
    assert (last["rows"], last["pairs"]) == (0, 0)
    assert last["waiting_matches"] > 0
    # A row at the end that moves the watermark past all others.
    files.put([(1000.0, 1, "A", 0.0)])
    assert ran()[-1]["waiting_matches"] == 0
    given = spark.read.parquet(str(tmp_path / "out"))
    every = files.batch(spark).match_pattern(
        pattern, **KEYED, measures={"a_at": "a.ts", "b_at": "b.ts"}
    )
    assert given.count() == every.count() > last["waiting_matches"]
    assert given.exceptAll(every.select(given.columns)).count() == 0


@pytest.mark.parametrize(
    ("shed", "message"),
    [
        (lambda spark: cep.Shed(keep=0.3, history=spark.range(3)), "has a column ts"),
        (
            lambda spark: cep.Shed(
                keep=0.3, history=spark.sql("SELECT current_timestamp() ts, 1 k, 'A' kind, 1D x")
            ),
            "a column k .bigint., and the history has it as int",
        ),
    ],
)
def test_a_history_has_the_columns_of_its_stream(
    spark: SparkSession, tmp_path: Path, shed: Any, message: str
) -> None:
    files = written(tmp_path, [10])
    with pytest.raises(cep.PlanError, match=message):
        files.stream(spark).match_pattern(RISING, **KEYED, shed=shed(spark))


def test_a_history_is_for_streams_and_none_itself(spark: SparkSession, tmp_path: Path) -> None:
    files = written(tmp_path, [10])
    batch = files.batch(spark)
    with pytest.raises(cep.PlanError, match="history= is for streams"):
        batch.match_pattern(RISING, **KEYED, shed=cep.Shed(keep=0.3, history=batch))
    with pytest.raises(cep.PlanError, match="and is a stream"):
        cep.Shed(keep=0.3, history=files.stream(spark))
    with pytest.raises(cep.PlanError, match="and is of type str"):
        cep.Shed(keep=0.3, history="past.parquet")  # type: ignore[arg-type]


def test_explain_says_where_a_stream_sheds(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = written(tmp_path, [10]).stream(spark)
    cep.explain(stream.match_pattern(RISING, **KEYED, shed=cep.Shed(latency="2 seconds")))
    said = capsys.readouterr().out
    assert "asked     latency 2 seconds, by utility" in said
    assert "in front of the engine, in triggers that would take more than 80% of it" in said


def test_the_answers_name_says_that_it_may_shed(spark: SparkSession, tmp_path: Path) -> None:
    stream = written(tmp_path, [10]).stream(spark)
    matches: DataFrame = stream.match_pattern(RISING, **KEYED, shed=cep.Shed(keep=0.3))
    plan = matches._jdf.queryExecution().analyzed().toString()
    assert "may shed: keep 30%, by utility" in plan
