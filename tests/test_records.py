"""What the driver remembers of answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep.explaining import records
from spark_cep.explaining.explanation import MatchPlan
from spark_cep.explaining.records import Record, new_number, records_of, remember

if TYPE_CHECKING:
    from collections.abc import Iterator


def answer() -> Any:
    """Stands for a DataFrame: anything that takes attributes does."""
    df: Any = SimpleNamespace()
    observation: Any = None
    record = Record(new_number(), MatchPlan({}), observation, 1, lambda: (df, observation))
    return remember(df, record)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, Record]]:
    monkeypatch.setattr(records, "_records", {})
    monkeypatch.setattr(records, "REMEMBERED", 5)
    monkeypatch.setattr(records, "REPEATABLE", 2)
    return records._records


def test_only_the_latest_answers_can_be_made_again_from_what_was_derived_of_them(
    few: dict[int, Record],
) -> None:
    for _ in range(4):
        answer()
    assert [record.rerun is None for record in few.values()] == [True, True, False, False]


def test_a_dataframe_can_be_made_again_as_long_as_it_lives() -> None:
    first = answer()
    for _ in range(9):
        answer()
    assert records_of(first)[0].rerun is not None


def test_the_oldest_answers_are_forgotten(few: dict[int, Record]) -> None:
    numbers = [records_of(answer())[0].number for _ in range(8)]
    assert list(few) == numbers[-5:]
