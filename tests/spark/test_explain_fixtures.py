"""What explain prints, word for word. `python -m tests.fixtures.regenerate` writes the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.explained import explained, path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_explain_prints_what_it_did(spark: SparkSession) -> None:
    for name, text, json_ in explained(spark):
        assert text == path(name, "txt").read_text(), name
        assert json_ == path(name, "json").read_text(), name
