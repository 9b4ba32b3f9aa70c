"""The demo finds the cards that its data says were stolen."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from spark_cep.cli import demo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 100_000
STOLEN = [number * demo.CARDS_FOR_ONE_FRAUD for number in range(demo.stolen_cards(ROWS))]


def test_the_stolen_cards_are_found(spark: SparkSession) -> None:
    matches = demo.find_fraud(demo.generate(spark, ROWS))
    assert sorted({row["card"] for row in matches.collect()}) == STOLEN


def test_the_same_is_found_in_every_language(spark: SparkSession) -> None:
    payments = demo.generate(spark, ROWS)
    found = demo.find_fraud(payments).select("card", "tried", "taken")
    expected = sorted(map(tuple, found.collect()))
    in_sase = demo.find_fraud_in_sase(payments).select("card", "d.amount", "e.amount")
    assert sorted(map(tuple, in_sase.collect())) == expected
    assert sorted(map(tuple, demo.find_fraud_in_sql(payments).collect())) == expected


def test_people_get_the_plan_and_the_matches_as_text(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    matches = demo.find_fraud(demo.generate(spark, 1_000))
    rows = [row.asDict() for row in matches.collect()]
    demo._print_text(demo.FraudReport(matches, rows, 1.0, {"SASE": 1, "SQL": 1}), 1_000)
    text = capsys.readouterr().out
    assert f"{len(rows)} matches in 1,000 rows" in text
    assert "The same in SQL: 1 matches" in text


def test_as_many_rows_are_generated_as_asked(spark: SparkSession) -> None:
    assert demo.generate(spark, 4_321).count() == 4_321


@pytest.mark.slow
def test_the_command_prints_json_and_nothing_else() -> None:
    command = [sys.executable, "-m", "spark_cep.cli", "demo", "--json", "--rows", str(ROWS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["rows"] == ROWS
    assert sorted({match["card"] for match in answer["matches"]}) == STOLEN
    assert answer["same"] == {"SASE": len(answer["matches"]), "SQL": len(answer["matches"])}
