"""Advances against the batch and against brute force: any split of the rows gives the same
answer, never earlier than it is certain, and as soon as the matcher has decided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.rows import arrays, bytecode, search
from spark_cep.udfs.rows.leaves import rows_back
from tests.random_cases import random_cases
from tests.rows.advances import (
    OpenReference,
    Step,
    answered,
    by_key,
    cut,
    in_order,
    together,
)
from tests.rows.programs import K, T, answer, cases, random_row
from tests.rows.reference import Row, SkipError, TooMany

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowProgram

EXAMPLES = 120


def agree(examples: int, *, longest: bool = False) -> None:
    @random_cases(examples)
    @given(st.data())
    def try_one(data: st.DataObject) -> None:
        case, rows = data.draw(cases())
        case = replace(case, longest=longest)
        steps = data.draw(cut(rows))
        wanted = in_a_batch(case, in_order(steps))
        if isinstance(wanted, WorkerError):
            with pytest.raises(CepError) as raised:
                answered(case, steps)
            # Which partition fails first hangs on the split; each fails as it would by itself. One
            # that was forgotten counts its rows anew.
            (key,) = raised.value.details["key"]
            alone = in_a_batch(case, [row for row in in_order(steps) if row[K] == key])
            assert isinstance(alone, WorkerError)
            assert raised.value.message.split(" row ")[0] in str(alone)
            return
        found, states = answered(case, steps)
        assert repr(sorted_by_key(together(found))) == repr(sorted_by_key(wanted))
        assert states[-1].size == 0

    try_one()


def in_a_batch(case: RowProgram, rows: list[Row]) -> Any:
    try:
        return by_key(answer(case, rows))
    except WorkerError as error:
        return error


def sorted_by_key(found: Any) -> Any:
    return sorted(found.items(), key=lambda each: each[0])


def test_any_split_gives_the_batch_answer() -> None:
    agree(EXAMPLES)


def test_any_split_gives_the_longest_matches_of_a_batch() -> None:
    agree(EXAMPLES, longest=True)


def test_little_room_and_merging_do_not_change_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    monkeypatch.setattr(arrays, "MERGED_PLACES", 1 << 10)
    monkeypatch.setattr(arrays, "MOST_MARK_WORDS", 2)
    monkeypatch.setattr(search, "BLOCK_ROWS", 1)
    monkeypatch.setattr(search, "FIRST_STACK_SIZE", 1)
    monkeypatch.setattr(search, "CALL_STEPS", 0)
    agree(EXAMPLES)
    agree(EXAMPLES // 3, longest=True)


def test_conditions_in_python_do_not_change_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> int:
        raise bytecode.UnsupportedExpression

    monkeypatch.setattr(bytecode.Bytecode, "compile_condition", unknown)
    agree(EXAMPLES // 3)


def test_an_answer_is_given_when_it_is_certain_and_not_before() -> None:
    @random_cases(EXAMPLES)
    @given(st.data())
    def try_one(data: st.DataObject) -> None:
        case, rows = data.draw(cases())
        horizon = data.draw(st.integers(0, 9))
        known = [row for row in rows if row[T] <= horizon]
        try:
            certain, waiting = by_the_book(case, known, horizon)
        except (TooMany, SkipError):
            assume(False)
        try:
            found, states = answered(case, [Step(tuple(known), horizon)])
        except CepError:
            assume(False)
        for key, wanted in certain.items():
            given_ = found[0].get(key, [])
            assert repr(given_[: len(wanted)]) == repr(wanted), "as soon as"
        kept = sum(left + rows_back(case) + 1 for left in waiting.values())
        assert states[0].size <= kept
        later = st.lists(random_row.filter(lambda row: row[T] > horizon), max_size=5)
        for _ in range(3):
            extended = in_a_batch(case, known + data.draw(later))
            if isinstance(extended, WorkerError):
                continue
            for key, rows_ in found[0].items():
                assert repr(extended.get(key, [])[: len(rows_)]) == repr(rows_), "not before"

    try_one()


def by_the_book(case: RowProgram, known: list[Row], horizon: int) -> tuple[Any, dict[Any, int]]:
    """The certain answers by key, and how many rows of each key wait."""
    certain, waiting = {}, {}
    for key in {row[K] for row in known}:
        ordered = sorted((row for row in known if row[K] == key), key=lambda row: row[T])
        reference = OpenReference(case, ordered)
        reference.horizon = horizon
        certain[key] = [
            (ordered[place][K], ordered[place][T], *measures)
            for place, *measures in reference.certain()
        ]
        waiting[key] = len(ordered) - reference.begin
    return certain, waiting
