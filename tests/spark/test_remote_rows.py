"""Remote data in row patterns: in DEFINE as a column of the row, in measures on the answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep import row_pattern
from tests.spark.streams import LAST, Files, drained, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LIMITS = {"x": {"max": 5.0, "who": ["u", "v"]}, "y": {"max": 40.0, "who": []}}


def limits() -> cep.Remote:
    known = LIMITS
    return cep.Remote.fetch(
        lambda keys: {key: known[key] for key in keys if key in known},
        "struct<max: double, who: array<string>>",
    )


def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        """SELECT * FROM VALUES
        (0, 'x', 10.0D, '1'), (1, 'y', 30.0D, '2'), (2, 'y', 50.0D, '3'), (3, 'x', 4.0D, 'no'),
        (4, 'z', 9.0D, 'no'), (5, NULL, 9.0D, '6'), (6, 'x', 6.0D, '7')
        t(id, org, amount, note)"""
    )


def found(spark: SparkSession, pattern: str, define: Any, **options: Any) -> list[Any]:
    options.setdefault("remotes", {"limits": limits()})
    matches = rows(spark).match_pattern(row_pattern(pattern, define), order_by="id", **options)
    return sorted(tuple(row) for row in matches.collect())


def test_a_condition_reads_the_value_of_the_row_and_of_other_rows(spark: SparkSession) -> None:
    define = {
        "over": "amount > remote('limits', org).max",
        "back": "remote('limits', PREV(org)).max > 10 AND PREV(remote('limits', org).max) > 10 "
        "AND NOT coalesce(array_contains(remote('limits', over.org).who, 'v'), FALSE)",
    }
    # 0 and 6 are over x's limit, 2 over y's; only 2 is followed by a row, whose PREV is of y.
    assert found(spark, "over back", define, measures={"id": "FIRST(id)"}) == [(2,)]


def test_a_key_that_fails_elsewhere_is_computed_where_the_row_may_match(
    spark: SparkSession,
) -> None:
    squares = cep.Remote.fetch(lambda keys: {key: key * key for key in keys}, "bigint")
    define = {"a": "note <> 'no' AND remote('squares', CAST(note AS INT)) > 5"}
    ids = found(spark, "a", define, measures={"id": "id"}, remotes={"squares": squares})
    assert ids == [(2,), (5,), (6,)]


def test_measures_look_up_by_keys_of_several_rows(spark: SparkSession) -> None:
    pairs = cep.Remote.fetch(lambda keys: {(a, b): f"{a}{b}" for a, b in keys}, "string")
    answer = found(
        spark, "a b", {"b": "amount > a.amount"},
        measures={
            "id": "a.id",
            "both": "upper(remote('pairs', a.org, FINAL LAST(b.org)))",
            "total": "sum(remote('limits', org).max)",
            "last": "LAST(remote('limits', b.org).max) + remote('limits', FIRST(org)).max",
        },
        remotes={"limits": limits(), "pairs": pairs},
    )  # fmt: skip
    assert answer == [(0, "XY", 45.0, 45.0), (3, "XZ", 5.0, None)]


def test_tables_are_joined_and_no_column_of_ours_is_shown(spark: SparkSession) -> None:
    table = spark.sql("SELECT * FROM VALUES ('x', 5.0D), ('y', 40.0D) t(org, most)")
    matches = rows(spark).match_pattern(
        row_pattern("over", {"over": "amount > remote('most', org)"}),
        order_by="id",
        rows="all",
        measures={"by": "amount - remote('most', over.org)"},
        remotes={"most": cep.Remote.table(table, "org", "most")},
    )
    assert matches.columns == ["id", "by", "org", "amount", "note"]
    assert sorted((row.id, row.by) for row in matches.collect()) == [(0, 5.0), (2, 10.0), (6, 1.0)]
    (told,) = cep.plan_of(matches).to_dict()["remotes"]
    assert [place["where"] for place in told["places"]] == ["before matching", "on the matches"]
    assert "broadcast: about" in told["places"][0]["how"]


def test_explain_speaks_of_calls_and_metrics_count_both_places(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    matches = rows(spark).match_pattern(
        row_pattern("over", {"over": "abs(remote('limits', org).max) < amount"}),
        order_by="id",
        measures={"who": "remote('limits', over.org).who"},
        remotes={"limits": limits()},
    )
    assert matches.count() == 3
    assert cep.metrics(matches)["remotes"]["limits"]["keys"] >= 5
    cep.explain(matches)
    text = capsys.readouterr().out
    assert "__cep" not in text
    assert "over:     abs(remote('limits', org).max) < amount" in text
    assert "fetched by org for each row" in text
    assert "cached: all keys of a batch of rows are known at once" in text
    assert "( remote(" not in text


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("amount > remote('limits', a.org, org)", "is not over a single row"),
        ("amount > remote('limits', a.org || org)", "is not over a single row"),
        ("amount > remote('limits', count(a.id))", "is not over a single row"),
        ("amount > remote('limit', org)", "there is no remote source 'limit'"),
        ("exists(array(org), o -> remote('limits', o) > 1)", "depends on the lambda argument o"),
    ],
)
def test_what_define_cannot_look_up_is_refused(
    spark: SparkSession, condition: str, says: str
) -> None:
    with pytest.raises(cep.PatternError, match=says):
        found(spark, "a b", {"b": condition}, measures={"id": "a.id"})


def test_a_stream_looks_up_before_and_behind_the_matcher(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path / "rows")
    for row in [(1.0, 1, "A", 5, 0), (2.0, 1, "B", 7, 0), (3.0, 1, "A", 1, 0), LAST]:
        files.put([row])
    kinds = cep.Remote.fetch(lambda keys: {"A": 3, "B": 4}, "bigint", on_error="null")
    pattern = row_pattern("a b", {"a": "x > remote('kinds', kind)", "b": "x > a.x"}).within("5 s")

    def answer(df: DataFrame) -> DataFrame:
        return df.match_pattern(
            pattern,
            order_by="ts",
            partition_by="k",
            measures={"m": "remote('kinds', b.kind) * 10"},
            remotes={"kinds": kinds},
        )

    expected = [row.m for row in answer(files.batch(spark)).collect()]
    with small(spark):
        given, query = drained(answer(files.stream(spark)))
    assert [row.m for row in given.collect()] == expected == [40]
    counted = [
        each["remotes"]["kinds"] for each in cep.streaming.metrics(query) if "remotes" in each
    ]
    assert sum(each["keys"] for each in counted) >= 2


CONNECT = """
import spark_cep as cep
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
df = spark.sql("SELECT * FROM VALUES (0, 'x', 9.0D), (1, 'y', 1.0D), (2, 'x', 2.0D) t(id, org, v)")
limits = cep.Remote.fetch(lambda keys: {key: 5.0 for key in keys if key == "x"}, "double")
matches = df.match_pattern(
    cep.row_pattern("over", {"over": "v > remote('limits', org)"}), order_by="id",
    measures={"id": "id", "by": "v - remote('limits', over.org)"}, remotes={"limits": limits},
)
found = [tuple(row) for row in matches.collect()]
print(found, cep.metrics(matches)["remotes"]["limits"]["keys"] > 2)
spark.stop()
"""


@pytest.mark.slow
def test_a_connect_session_looks_up_too() -> None:
    run = subprocess.run(
        [sys.executable, "-c", CONNECT], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.stdout.splitlines()[-1:] == ["[(0, 4.0)] True"], run.stderr[-2000:]
