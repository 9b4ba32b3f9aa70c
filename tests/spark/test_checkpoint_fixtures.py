"""Checkpoints that an earlier commit wrote (tests/fixtures/make_checkpoints.py).

A release that cannot read these is a release that says so: its changelog tells users to finish
their queries first, and these fixtures are made again with another number of the format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.make_checkpoints import KINDS, ran, unpacked
from tests.spark.streams import Files, small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def _small(spark: SparkSession) -> Iterator[None]:
    with small(spark):
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_goes_on_from_the_checkpoint_of_an_earlier_commit(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    told = unpacked(kind, tmp_path)
    files = Files(tmp_path / "in")
    for rows in told["rows"]["after"]:
        files.put(rows)
    assert ran(spark, files, kind, tmp_path) == told["matches"]["after"]
    seen = {row[-1] for rows in told["rows"]["before"] for row in rows}
    assert told["matches"]["before"]
    assert any(first_of(match) in seen for match in told["matches"]["after"])


def first_of(match: str) -> int:
    """The number of its first row."""
    found: dict[str, int] = json.loads(match)
    return found["first"] if "first" in found else found["a"]
