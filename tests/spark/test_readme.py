"""The code of the README and of some pages of docs/ runs as printed, and prints what stands
under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pages import blocks, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "page",
    [
        "README.md", "docs/remote-data.md", "docs/row-patterns.md", "docs/shedding.md",
        "docs/streaming.md",
    ],
)  # fmt: skip
def test_the_code_of_a_page_prints_what_stands_under_it(spark: SparkSession, page: str) -> None:
    assert any(block.output is not None for block in blocks(page))
    # A session of its own: pages install MATCH_RECOGNIZE and make views.
    assert differences(page, spark.newSession()) == []
