"""The matcher against the reference, on random patterns, conditions and rows.

How much room the matcher has, whether it looks for equal paths from the first step on, and whether
conditions are bytecode may change how long an answer takes, never the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given

from spark_cep.udfs.errors import WorkerError
from spark_cep.udfs.rows import arrays, bounds, bytecode, search
from tests.random_cases import random_cases
from tests.rows.folded import folded_cases
from tests.rows.programs import answer, cases, expected, overflowing, spread
from tests.rows.reference import Row, SkipError, TooMany

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from spark_cep.udfs.row_program import RowProgram

    Drawn = SearchStrategy[tuple[RowProgram, list[Row]]]

EXAMPLES = 300


def agree(examples: int, drawn_from: Drawn | None = None) -> None:
    """Fails with the smallest case for which matcher and reference differ."""

    @random_cases(examples)
    @given(cases() if drawn_from is None else drawn_from)
    def try_one(drawn: tuple[RowProgram, list[Row]]) -> None:
        case, rows = drawn
        try:
            wanted = expected(case, rows)
        except TooMany:
            assume(False)
        except SkipError as error:
            with pytest.raises(WorkerError, match=str(error)):
                answer(case, rows)
            return
        assert repr(answer(case, rows)) == repr(wanted)

    try_one()


def test_the_matcher_agrees_with_brute_force() -> None:
    agree(EXAMPLES)


def test_merging_equal_paths_does_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    monkeypatch.setattr(arrays, "MERGED_PLACES", 1 << 10)
    agree(EXAMPLES)


def test_little_room_does_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    monkeypatch.setattr(arrays, "MERGED_PLACES", 2)
    monkeypatch.setattr(arrays, "MOST_MARK_WORDS", 2)
    monkeypatch.setattr(search, "BLOCK_ROWS", 1)
    monkeypatch.setattr(search, "FIRST_STACK_SIZE", 1)
    agree(EXAMPLES)


def test_looking_at_the_clock_after_each_step_does_not_change_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "CALL_STEPS", 0)
    agree(EXAMPLES)
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    monkeypatch.setattr(arrays, "MOST_MARK_WORDS", 2)
    agree(EXAMPLES // 3)


def test_conditions_in_python_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> int:
        raise bytecode.UnsupportedExpression

    monkeypatch.setattr(bytecode.Bytecode, "compile_condition", unknown)
    agree(EXAMPLES // 3)


def test_longest_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = cases().map(lambda drawn: (replace(drawn[0], longest=True), drawn[1]))
    agree(EXAMPLES, longest)
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    monkeypatch.setattr(arrays, "BOUND_AFTER", 0)
    agree(EXAMPLES // 2, longest)


def test_variables_beyond_those_that_have_a_bit_are_matched_alike() -> None:
    agree(EXAMPLES // 3, cases().map(lambda drawn: (spread(drawn[0]), drawn[1])))


def test_a_condition_that_overflows_is_not_true(monkeypatch: pytest.MonkeyPatch) -> None:
    agree(EXAMPLES // 3, overflowing)
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    agree(EXAMPLES // 3, overflowing)


def test_bounds_of_searches_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BOUND_AFTER", 0)
    agree(EXAMPLES)
    monkeypatch.setattr(bounds, "STRETCH", 2)
    monkeypatch.setattr(bounds, "MOST_GROUPS", 1)
    agree(EXAMPLES // 3)


def test_folds_along_the_path_agree_with_brute_force() -> None:
    agree(EXAMPLES, folded_cases)


def test_folds_in_python_alone_agree_with_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> int:
        raise bytecode.UnsupportedExpression

    monkeypatch.setattr(bytecode.Bytecode, "compile_condition", unknown)
    agree(EXAMPLES, folded_cases)


def test_folds_of_merged_and_of_longest_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = folded_cases.map(lambda drawn: (replace(drawn[0], longest=True), drawn[1]))
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    agree(EXAMPLES, folded_cases)
    agree(EXAMPLES, longest)
    monkeypatch.setattr(arrays, "BOUND_AFTER", 0)
    agree(EXAMPLES // 2, folded_cases)
