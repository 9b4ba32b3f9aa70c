"""What cannot be matched on a stream is said before it starts, or in its first trigger."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import spark_cep as cep
from spark_cep import event, row_pattern, seq
from spark_cep.spark.stream import prepare_session
from tests.spark.streams import Files, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within("5 seconds")
FALL = row_pattern("a b{1,3}", define={"b": "x < PREV(x)"})
LAST_X = {"x": "LAST(x)"}
KEYED: dict[str, Any] = {"partition_by": "k", "order_by": "ts"}


@pytest.fixture(autouse=True, scope="module")
def _small(spark: SparkSession) -> Iterator[None]:
    with small(spark):
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    files = Files(tmp_path_factory.mktemp("refused") / "in")
    files.put([(1, 1, "A", 1, 1), (2, 1, "B", 2, 2)])
    return files


# ---- on the driver -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "options", "message"),
    [
        (PAIR.within(5), {"order_by": "u"}, "'u' is BIGINT"),
        (PAIR, {"order_by": "other"}, "no watermark on 'other'"),
        (PAIR, {"order_by": "ts + INTERVAL 1 SECOND"}, "no watermark on"),
        (seq("a", "b"), {"order_by": "ts"}, "keep every row forever"),
        (FALL, {"order_by": ["x", "ts"], "measures": LAST_X}, "'x' is BIGINT"),
        (FALL, {"measures": LAST_X}, "has no order_by"),
        (
            row_pattern("a b+"),
            {"order_by": "ts", "measures": LAST_X},
            "repetition of b has no upper bound",
        ),
        (
            row_pattern("a b$").within("5 seconds"),
            {"order_by": "ts", "measures": LAST_X},
            "which a stream does not",
        ),
    ],
)
def test_what_could_never_be_certain_is_refused_on_the_driver(
    spark: SparkSession, files: Files, pattern: Any, options: dict[str, Any], message: str
) -> None:
    stream = files.stream(spark).selectExpr("*", "ts + INTERVAL 1 SECOND AS other")
    with pytest.raises(cep.PatternError, match=message) as refused:
        stream.match_pattern(pattern, **options)
    assert refused.value.hint


@pytest.mark.parametrize("pattern", [PAIR, FALL], ids=["events", "rows"])
def test_a_stream_without_a_watermark_is_refused(
    spark: SparkSession, files: Files, pattern: Any
) -> None:
    stream = spark.readStream.schema(files.columns).parquet(str(files.folder))
    with pytest.raises(cep.PatternError, match="no watermark on 'ts'") as refused:
        stream.match_pattern(pattern, **KEYED)
    assert 'withWatermark("ts"' in (refused.value.hint or "")


def test_a_limit_on_rows_stands_in_for_a_window(spark: SparkSession, files: Files) -> None:
    stream = files.stream(spark)
    for pattern in (seq("a", "b"), row_pattern("a b+")):
        assert stream.match_pattern(pattern, limits=cep.Limits(rows=10), **KEYED).isStreaming


def test_a_session_that_does_not_let_the_state_store_be_chosen_is_told_what_to_set() -> None:
    class Conf:
        def get(self, _name: str, _default: str) -> str:
            return ""

        def set(self, name: str, _value: str) -> None:
            raise RuntimeError(f"{name} cannot be modified")

    class Session:
        conf = Conf()

    class Frame:
        sparkSession = Session()

    with pytest.raises(cep.CepError, match=r"does not allow to set it: .* cannot be") as refused:
        prepare_session(Frame())  # type: ignore[arg-type]
    assert "RocksDBStateStoreProvider" in (refused.value.hint or "")


# ---- in the first trigger ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def began(spark: SparkSession, files: Files) -> Path:
    """A checkpoint of PAIR that has seen the first file; a second file is there."""
    checkpoint = files.folder.parent / "checkpoint"
    run(files.stream(spark).match_pattern(PAIR, **KEYED), checkpoint)
    files.put([(3, 1, "A", 1, 3), (4, 1, "B", 2, 4)])
    return checkpoint


def run(matches: DataFrame, checkpoint: Path) -> None:
    writer = matches.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as failure:
        # Both what is raised and what the query holds give the library's error.
        found, held = cep.error_of(failure), cep.error_of(query.exception())  # type: ignore[arg-type]
        assert found is not None
        assert held is not None
        assert str(found) == str(held)
        raise found from None


CHANGED: dict[str, tuple[Any, str, str]] = {
    "the condition of a variable": (
        seq(event("a", "kind = 'B'"), event("b", "kind = 'A'")).within("5 seconds"),
        "k",
        "another pattern",
    ),
    "the window": (PAIR.within("6 seconds"), "k", "another pattern"),
    "the partition column": (PAIR, "x", "another pattern or with other columns"),
    "rows instead of events": (FALL, "k", "another pattern"),
}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(name, marks=() if place == 0 else pytest.mark.slow)
        for place, name in enumerate(CHANGED)
    ],
)
def test_a_changed_pattern_is_refused(
    spark: SparkSession, files: Files, began: Path, tmp_path: Path, change: str
) -> None:
    pattern, key, message = CHANGED[change]
    shutil.copytree(began, tmp_path / "checkpoint")
    matches = files.stream(spark).match_pattern(pattern, partition_by=key, order_by="ts")
    with pytest.raises(cep.CepError, match=message) as refused:
        run(matches, tmp_path / "checkpoint")
    assert "new checkpoint location" in (refused.value.hint or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "columns", [("*", "x + 1 AS y"), ("ts", "k", "kind", "CAST(x AS INT)", "u")]
)
def test_changed_columns_are_refused(
    spark: SparkSession, files: Files, began: Path, tmp_path: Path, columns: tuple[str, ...]
) -> None:
    shutil.copytree(began, tmp_path / "checkpoint")
    matches = files.stream(spark).selectExpr(*columns).match_pattern(PAIR, **KEYED)
    with pytest.raises(cep.CepError, match="other columns"):
        run(matches, tmp_path / "checkpoint")


@pytest.mark.slow
def test_another_number_of_buckets_is_refused_and_the_old_one_goes_on(
    spark: SparkSession, files: Files, began: Path, tmp_path: Path
) -> None:
    shutil.copytree(began, tmp_path / "checkpoint")
    spark.conf.set("spark.cep.buckets", "3")
    try:
        matches = files.stream(spark).match_pattern(PAIR, **KEYED)
        with pytest.raises(cep.CepError, match="with 2 buckets, this query has 3") as refused:
            run(matches, tmp_path / "checkpoint")
        assert "set spark.cep.buckets to 2" in (refused.value.hint or "")
    finally:
        spark.conf.set("spark.cep.buckets", "2")
    # Nothing was written over the state, and another plan is no other pattern.
    run(files.stream(spark).match_pattern(PAIR, plan="eager", **KEYED), tmp_path / "checkpoint")


@pytest.mark.slow
def test_more_rows_than_the_limit_end_the_query_with_the_key(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    limits = cep.Limits(rows=1)
    matches = files.stream(spark).match_pattern(seq("a", "b"), limits=limits, **KEYED)
    with pytest.raises(cep.LimitError) as refused:
        run(matches, tmp_path / "checkpoint")
    assert refused.value.details["key"] == [1]


@pytest.mark.slow
def test_a_trigger_that_takes_too_long_ends_the_query_with_the_key(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    limits = cep.Limits(seconds=1e-6)
    matches = files.stream(spark).match_pattern(PAIR, limits=limits, **KEYED)
    with pytest.raises(cep.LimitError) as refused:
        run(matches, tmp_path / "checkpoint")
    assert refused.value.details["limit"] == "seconds"
    assert refused.value.details["key"] == [1]
