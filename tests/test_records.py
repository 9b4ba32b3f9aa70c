"""What the driver remembers of answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep.explanation.plan import MatchPlan
from spark_cep.spark import metrics
from spark_cep.spark.metrics import AnswerRecord, keep_record, new_answer_number, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def answer() -> Any:
    """Stands for a DataFrame: anything that takes attributes does."""
    df: Any = SimpleNamespace()
    observation: Any = None
    record = AnswerRecord(
        new_answer_number(), MatchPlan({}), observation, 1, lambda: (df, observation)
    )
    return keep_record(df, record)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, AnswerRecord]]:
    monkeypatch.setattr(metrics, "_records", {})
    monkeypatch.setattr(metrics, "MAX_RECORDS", 5)
    monkeypatch.setattr(metrics, "MAX_RERUNS", 2)
    return metrics._records


def test_only_the_latest_answers_can_be_made_again_from_what_was_derived_of_them(
    few: dict[int, AnswerRecord],
) -> None:
    for _ in range(4):
        answer()
    assert [record.rerun is None for record in few.values()] == [True, True, False, False]


def test_a_dataframe_can_be_made_again_as_long_as_it_lives() -> None:
    first = answer()
    for _ in range(9):
        answer()
    assert records_of(first)[0].rerun is not None


def test_the_oldest_answers_are_forgotten(few: dict[int, AnswerRecord]) -> None:
    numbers = [records_of(answer())[0].number for _ in range(8)]
    assert list(few) == numbers[-5:]
