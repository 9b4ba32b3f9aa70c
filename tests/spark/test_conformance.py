"""MATCH_RECOGNIZE cases with known answers, read where they lie beside the project."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = Path(__file__).parents[3] / "shared" / "conformance" / "row_patterns.jsonl"
# Cases that contradict what docs/sql.md says, and why the page is right.
CONTRADICTED: dict[str, str] = {}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FILE.exists(), reason=f"no cases in {FILE.parent}"),
    # Some cases are about patterns that match whatever the order is.
    pytest.mark.filterwarnings("ignore::spark_cep.PatternWarning"),
]


def cases() -> list[Any]:
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    read = [json.loads(line) for line in lines]
    return [pytest.param(case, id=case["name"]) for case in read]


def expected(value: Any, type_: str) -> Any:
    """A value of the file as Spark gives one of its type."""
    if value is None:
        return None
    if type_.startswith("array("):
        return [expected(each, type_[len("array(") : -1]) for each in value]
    kind = type_.split("(", maxsplit=1)[0]
    if kind == "timestamp":
        return datetime.fromisoformat(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind == "decimal":
        return Decimal(str(value))
    return float(value) if kind in {"double", "real"} else value


@pytest.mark.parametrize("case", cases())
def test_the_answer_is_the_known_one(spark: SparkSession, case: dict[str, Any]) -> None:
    if case["name"] in CONTRADICTED:
        pytest.skip(CONTRADICTED[case["name"]])
    found = [list(row) for row in cep.sql(spark, case["sql"]).collect()]
    types = case["types"] or []
    wanted = [
        [expected(value, type_) for value, type_ in zip(row, types, strict=True)]
        for row in case["expected"]
    ]
    if case["ordered"]:
        assert found == wanted
    else:
        assert Counter(map(repr, found)) == Counter(map(repr, wanted))
