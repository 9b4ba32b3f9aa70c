"""The code of the README and of some pages of docs/ runs as printed, and prints what stands
under it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import spark_cep as cep
from tests.migration import PAGE, pasted_statements
from tests.pages import blocks, differences, printed, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "page",
    [
        "README.md", PAGE, "docs/remote-data.md", "docs/row-patterns.md", "docs/shedding.md",
        "docs/streaming.md",
    ],
)  # fmt: skip
def test_the_code_of_a_page_prints_what_stands_under_it(spark: SparkSession, page: str) -> None:
    assert any(block.output is not None for block in blocks(page))
    # A session of its own: pages install MATCH_RECOGNIZE and make views.
    assert differences(page, spark.newSession()) == []


def test_what_a_pasted_statement_changes_is_needed(spark: SparkSession) -> None:
    changing = [each for each in pasted_statements() if each.block.changes]
    session = spark.newSession()
    for block, _ in printed(PAGE, session):
        if block.language == "sql" and "MATCH_RECOGNIZE" in block.code:
            break  # The tables are there.
    needless = []
    for each in changing:
        with contextlib.suppress(cep.CepError, PySparkException):
            if shown(each.block.code, session).strip() == (each.block.output or "").strip():
                needless.append(each.name)
    assert changing
    assert needless == []
