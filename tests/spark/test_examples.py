"""The examples run and find what their data was made to contain."""

from __future__ import annotations

import importlib.util
from datetime import timedelta
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.spark


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_exactly_the_stolen_cards_are_found(spark: SparkSession) -> None:
    example = load("card_fraud")
    rows = example.main(spark).collect()
    assert sorted(row["card"] for row in rows) == sorted(example.STOLEN)
    assert all(row["taken"] > 10 * row["tested"] for row in rows)


def test_exactly_the_intruders_are_found(spark: SparkSession) -> None:
    example = load("security_cameras")
    rows = example.main(spark).collect()
    assert sorted(row["person_id"] for row in rows) == sorted(example.INTRUDERS)
    assert all(row["gate"] < row["lobby"] < row["inside"] for row in rows)


def test_the_rising_stocks_are_those_of_a_plain_loop(spark: SparkSession) -> None:
    example = load("stock_sequence")
    quotes = example.quotes(spark).collect()
    of = {ticker: [row for row in quotes if row.ticker == ticker] for ticker in example.QUOTES}
    expected = sorted(
        (a.price, b.price, c.price)
        for a, b, c in product(of["MSFT"], of["GOOG"], of["AAPL"])
        if a.ts < b.ts < c.ts and a.price < b.price < c.price and c.ts - a.ts <= timedelta(hours=4)
    )
    found = example.main(spark).select("msft", "goog", "aapl").collect()
    assert sorted(tuple(row) for row in found) == expected
    assert expected
