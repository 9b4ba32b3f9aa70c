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
    from pyspark.sql import Row, SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST_DIP = timedelta(hours=2)

pytestmark = pytest.mark.spark


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run_here() -> None:
    tests = Path(__file__).read_text()
    assert [each for each in EXAMPLES.glob("*.py") if f'load("{each.stem}")' not in tests] == []


def test_exactly_the_stolen_cards_are_found(spark: SparkSession) -> None:
    example = load("card_fraud")
    rows = example.main(spark).collect()
    assert sorted(row["card"] for row in rows) == sorted(example.STOLEN)
    assert all(row["taken"] > 10 * row["tested"] for row in rows)


def test_utility_keeps_many_times_the_matches_that_chance_keeps(spark: SparkSession) -> None:
    shares = load("overload").main(spark)
    assert shares["utility"] > 5 * shares["random"] > 0
    assert shares["utility"] > 5 * shares["frequency"] > 0


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


def test_the_dips_are_those_of_a_plain_loop(spark: SparkSession) -> None:
    example = load("v_shapes")
    session = spark.newSession()  # the example installs MATCH_RECOGNIZE
    rows = example.prices(session).orderBy("symbol", "at").collect()
    expected = []
    for symbol, name in example.NAMES.items():
        of = [row for row in rows if row.symbol == symbol]
        at = 0
        while at < len(of):
            end = dip(of, at)
            if end is not None:
                expected.append((name, of[at].at, of[end].at, of[at].price))
            at = at + 1 if end is None else end
    found = example.main(session).select("name", "since", "till", "before").collect()
    assert sorted(map(tuple, found)) == sorted(expected)
    assert expected


def dip(rows: list[Row], start: int) -> int | None:
    """Where a dip that begins at `start` ends. Each way is forced: prices fall, then they rise."""
    top, bottom = rows[start].price, start
    while bottom + 1 < len(rows) and rows[bottom + 1].price < rows[bottom].price:
        bottom += 1
    for end in range(bottom + 1, len(rows)):
        if rows[end].price <= rows[end - 1].price or rows[end].at - rows[start].at > LONGEST_DIP:
            return None
        if rows[end].price >= top:
            return end if bottom > start and rows[bottom].price <= 0.9 * top else None
    return None


def test_a_session_ends_where_a_pause_is_longer_than_half_an_hour(spark: SparkSession) -> None:
    example = load("sessions")
    expected = []
    of: dict[int, list[Row]] = {}
    for row in example.clicks(spark).orderBy("visitor", "at").collect():
        of.setdefault(row.visitor, []).append(row)
    for visitor, rows in of.items():
        session = click = 0
        for before, row in zip([None, *rows], rows, strict=False):
            starts = before is None or row.at - before.at > timedelta(minutes=30)
            session, click = (session + 1, 1) if starts else (session, click + 1)
            expected.append((visitor, row.at, session, click, row.page))
    found = example.main(spark).select("visitor", "at", "session", "click", "page").collect()
    assert sorted(map(tuple, found)) == sorted(expected)


def test_both_sinks_have_each_door_that_was_left_open_once(spark: SparkSession) -> None:
    example = load("streaming")
    opened = {
        door: example.MORNING + timedelta(minutes=minute + 2)
        for door, minute in example.FORGOTTEN.items()
    }
    expected = sorted((door, f"{at:%Y-%m-%d %H:%M:%S}") for door, at in opened.items())
    in_files, in_table = example.main(spark)
    assert sorted(in_files) == expected
    assert sorted(in_table) == expected


def test_exactly_the_thieves_pay_above_their_limits_in_unknown_places(spark: SparkSession) -> None:
    example = load("remote_limits")
    rows = example.main(spark).collect()
    assert {row["user"] for row in rows} == example.THIEVES
    assert all(row["place"] not in example.known(row["user"]) for row in rows)
    assert all(row["over"] == row["amount"] - 50 - row["user"] % 7 * 10 for row in rows)
