"""Every known case can be read, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_cep.sql.location import find_clauses
from spark_cep.sql.match_call import prepare_call
from spark_cep.sql.reader import read_clause
from spark_cep.sql.statement import Statement

FILE = Path(__file__).parents[3] / "shared" / "conformance" / "row_patterns.jsonl"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"no cases in {FILE.parent}")


def cases() -> list[Any]:
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return [json.loads(line) for line in lines]


def test_every_case_has_one_clause_that_can_be_read() -> None:
    assert cases()
    for case in cases():
        statement = Statement(case["sql"])
        (found,) = find_clauses(statement)
        read = prepare_call(statement, read_clause(statement, found))
        assert read.options["rows"] == rows(case["features"]), case["name"]
        assert bool(read.options["partition_by"]) == ("partition_by" in case["features"])


def rows(features: list[str]) -> str:
    if "with_unmatched" in features:
        return "all with unmatched"
    return "all" if "all_rows" in features else "one"
