"""Statements with MATCH_RECOGNIZE over a streaming view: the answer of a batch, whatever the
triggers, and one clear error before a query starts where no answer could be certain."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep.spark import stream
from spark_cep.udfs.execution.state import make_identity
from tests.spark.streams import LAST, LAST_KEY, Files, assert_same, drained, small

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# {} is the table. Column `part` is the partition key, so that the row that moves the watermark can
# be left out.
STATEMENTS = {
    "filters, functions between rows, earlier measures, a subquery": """
        SELECT * FROM {} MATCH_RECOGNIZE (
          PARTITION BY k % 2 AS part, k ORDER BY ts, u
          MEASURES count(b.*) FILTER (WHERE b.x > 3) AS n, sum(b.x) AS total, total * 2 AS twice,
            avg(x) FILTER (WHERE kind <> 'C') AS middle, a.kind || '-' || b.kind AS kinds,
            array_join(collect_list(kind), '') AS word, round(stddev(x), 3) AS spread,
            max_by(kind, x) AS top, (SELECT max(id) FROM range(4)) AS most
          ONE ROW PER MATCH
          PATTERN (a b+ c) WITHIN INTERVAL 20 SECONDS
          DEFINE a AS kind <> 'C', b AS upper(kind) LIKE '%' || a.kind || '%' OR
              round(x / (a.x + 1), 1) > 0.5 AND x <> (SELECT count(*) FROM range(7)),
            c AS concat(FIRST(kind), kind) <> 'AA')""",
    "aggregates of DEFINE with FILTER": """
        SELECT * FROM {} AS q MATCH_RECOGNIZE (
          PARTITION BY abs(k) AS part ORDER BY ts, u % 5, u DESC
          MEASURES MATCH_NUMBER() AS number, MATCH_SEQUENCE_NUMBER() AS place,
            MATCH_ROWTIME() AS till, LAG(q.x, 1, -1) AS earlier,
            FINAL count(*) AS length, CLASSIFIER() AS values
          ALL ROWS PER MATCH
          AFTER MATCH SKIP TO NEXT ROW
          PATTERN (values show*? date) WITHIN INTERVAL 15 SECONDS
          DEFINE show AS stddev_pop(x) < 3 AND max_by(x, u) <= 8,
            date AS sum(x) FILTER (WHERE kind <> 'C') > 6 AND q.x > LAG(q.x, 1, 0)
              AND count(*) FILTER (WHERE x < 4) >= 1)""",
    "parts in another order, no AS, a bounded repetition": """
        SELECT part, number, low FROM {} MATCH_RECOGNIZE (
          PATTERN (strt down{{1,2}} up)
          DEFINE down AS x < LAG(x, 1, 9) AND levenshtein(kind, strt.kind) < 2,
            up AS x > LAST(down.x) AND greatest(x, strt.x) >= 1
          AFTER MATCH SKIP TO LAST up
          MEASURES MATCH_NUMBER() number, min(down.x) low
          ORDER BY ts, u PARTITION BY coalesce(k, 0) AS part)""",
    "event pattern": """
        SELECT k AS part, gain, kinds FROM {} MATCH_RECOGNIZE (
          PARTITION BY k ORDER BY ts
          MEASURES b.x - a.x AS gain, concat(a.kind, b.kind) AS kinds
          PATTERN SEQ(a, b) WITHIN INTERVAL '5' SECONDS
          DEFINE a AS kind = 'A', b AS kind = 'B' AND b.x > a.x)""",
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Rows of a minute, up to 5 seconds out of their order, in three triggers."""
    chance = random.Random(13)
    rows = [
        (chance.randrange(60), chance.choice([1, 2, 3]), chance.choice("AABBC"),
         chance.randrange(9), u)
        for u in range(80)
    ]  # fmt: skip
    rows.sort(key=lambda row: row[0] + chance.random() * 5)
    files = Files(tmp_path_factory.mktemp("statements"))
    files.put(rows[:30])
    files.put(rows[30:])
    files.put([LAST])
    return files


@pytest.fixture(autouse=True, scope="module")
def _views(spark: SparkSession, files: Files) -> Iterator[None]:
    with small(spark):
        files.stream(spark).createOrReplaceTempView("streamed")
        files.batch(spark).createOrReplaceTempView("stored")
        yield


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_over_a_stream_gives_the_answer_of_a_batch(
    spark: SparkSession, name: str
) -> None:
    decided = F.expr(f"part IS NULL OR NOT part IN ({LAST_KEY}, {LAST_KEY % 2}) OR part < 4")
    if name.startswith("filters"):
        decided = F.expr(f"k <> {LAST_KEY}")
    text = STATEMENTS[name]
    wanted = cep.sql(spark, text.format("stored")).filter(decided)
    given, _ = drained(cep.sql(spark, text.format("streamed")))
    given = given.filter(decided)
    assert wanted.count() > 3
    if name.startswith("parts"):
        # Without WITHIN the last search of each key waits for more rows.
        assert given.count() > 3
        assert given.exceptAll(wanted).count() == 0
        return
    assert_same(given, wanted)


# ---- refused -----------------------------------------------------------------------------------

# The statement, what its error says, what is underlined, and the hint.
REFUSED = {
    "an aggregate of Spark": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, u
           MEASURES approx_percentile(b.x, 0.5) AS m PATTERN (a b{1,3}) DEFINE b AS x > 1)""",
        "on a stream approx_percentile() cannot be computed", "approx_percentile(b.x, 0.5)",
        "percentile(b.price, 0.5)",
    ),
    "an aggregate of Spark with FILTER": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, u
           MEASURES max_by(x, u, 2) FILTER (WHERE x > 1) AS c PATTERN (a b{1,3})
           DEFINE b AS x > 1)""",
        "is not supported in measures on a stream", "max_by(x, u, 2) FILTER (WHERE x > 1)",
        "max_by(x, y)",
    ),
    "a function on neighbours": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, u
           MEASURES b.x AS x PATTERN (a b)
           DEFINE b AS to_json(struct(kind, PREV(kind) AS p)) > '{')""",
        "to_json", "to_json(struct(kind, PREV(kind) AS p))", "",
    ),
    "a window": (
        """SELECT count(*) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED
           FOLLOWING PATTERN (a b) DEFINE b AS x > 1) AS n FROM streamed""",
        "a row pattern in a window cannot be answered on a stream", "OVER (",
        "MATCH_RECOGNIZE in FROM",
    ),
    "a subquery over a stream": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, u
           MEASURES b.x AS x PATTERN (a b) DEFINE b AS x > (SELECT max(x) FROM streamed))""",
        "cannot read a stream", "(SELECT max(x) FROM streamed)", "read a table",
    ),
    "a descending event time": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts DESC, u
           MEASURES b.x AS x PATTERN (a b) DEFINE b AS x > 1)""",
        "event time, which is ascending", "ts DESC", "remove DESC",
    ),
    "the end of the partition": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, u
           MEASURES b.x AS x PATTERN (a b $) DEFINE b AS x > 1)""",
        "which a stream does not", "$", "leave out the anchor",
    ),
    "no bound": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, u
           MEASURES count(*) AS n PATTERN (a b+) DEFINE b AS x > 1)""",
        "repetition of b has no upper bound", "b+", "WITHIN",
    ),
    "another order": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k
           ORDER BY date_trunc('minute', ts), u
           MEASURES b.x AS x PATTERN (a b) DEFINE b AS x > 1)""",
        "no watermark on", "date_trunc('minute', ts)", "",
    ),
    "no order": (
        """SELECT * FROM streamed MATCH_RECOGNIZE (PARTITION BY k
           MEASURES b.x AS x PATTERN (a b) DEFINE b AS x > 1)""",
        "ORDER BY", "MATCH_RECOGNIZE", "",
    ),
}  # fmt: skip


def underlined(error: cep.CepError) -> str:
    lines = str(error).splitlines()
    for above, line in pairwise(lines):
        if line.strip() and not line.strip("^ "):
            return above[line.index("^") : line.rindex("^") + 1]
    return ""


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_stream_can_answer_is_refused_before_a_query_starts(
    spark: SparkSession, name: str
) -> None:
    text, message, place, hint = REFUSED[name]
    with pytest.raises(cep.CepError) as caught:
        cep.sql(spark, text)
    assert message in caught.value.message
    assert underlined(caught.value) == place
    assert hint in (caught.value.hint or "")
    assert not spark.streams.active


# ---- restarts ----------------------------------------------------------------------------------

KEPT = """SELECT * FROM streamed MATCH_RECOGNIZE (
    PARTITION BY k % {n} AS part ORDER BY ts, u
    MEASURES count(*) FILTER (WHERE x > {m}) AS n
    PATTERN (a b) DEFINE b AS x > (SELECT max(id) FROM range({r}))
        AND {f}(x / (a.x + 1), 1) < 9 AND max(x) FILTER (WHERE x < {w}) > 0)"""
BASE: dict[str, object] = {"n": 2, "m": 3, "r": 3, "f": "round", "w": 9}


def identity(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, **args: Any) -> Any:
    found: list[Any] = []

    def noted(*of: Any) -> Any:
        found.append(make_identity(*of))
        return found[-1]

    monkeypatch.setattr(stream, "make_identity", noted)
    cep.sql(spark, text, **args)
    (only,) = found
    return only


def test_a_statement_of_another_meaning_is_another_query(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = identity(spark, monkeypatch, KEPT.format(**BASE))
    spaced = KEPT.replace(" % ", "%").replace("max(id)", "MAX( id )").format(**BASE)
    assert identity(spark, monkeypatch, spaced) == base
    for name, value in {"n": 3, "m": 4, "r": 4, "f": "bround", "w": 8}.items():
        text = KEPT.format(**{**BASE, name: value})
        assert identity(spark, monkeypatch, text) != base, text
    with_parameter = KEPT.format(**{**BASE, "n": ":n"})
    one, other, again = (
        identity(spark, monkeypatch, with_parameter, args={"n": n}) for n in (2, 3, 2)
    )
    assert one == again != other


def test_a_checkpoint_is_not_continued_with_another_computed_key(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    def run(text: str) -> None:
        writer = cep.sql(spark, text).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run(KEPT.format(**BASE))
    files.put([(7200.0, LAST_KEY, "Z", None, -2)])
    with pytest.raises(StreamingQueryException) as failed:
        run(KEPT.format(**{**BASE, "n": 3}))
    error = cep.error_of(failed.value)
    assert error is not None
    assert "other order or partition columns" in error.message
