"""Gaps matched by joins, against the kernel and against brute force, on random patterns.

How many candidates and starts are tried at a time, and how much fits into a block, may change how
long an answer takes, never the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import assume, given

from spark_cep.udfs.rows import search
from spark_cep.udfs.rows.gaps import candidates, matches
from spark_cep.udfs.rows.gaps.pattern import recognize_gaps
from tests.random_cases import random_cases
from tests.rows.gapped import by, gap_cases
from tests.rows.programs import expected
from tests.rows.reference import Row, SkipError, TooMany

if TYPE_CHECKING:
    import pytest

    from spark_cep.udfs.row_program import RowProgram

EXAMPLES = 400


def agree(examples: int, *, with_reference: bool = False) -> None:
    """Fails with the smallest case for which joins and kernel differ, in answer or error."""
    joined = 0

    @random_cases(examples)
    @given(gap_cases())
    def try_one(drawn: tuple[RowProgram, list[Row]]) -> None:
        nonlocal joined
        case, rows = drawn
        assume(not isinstance(recognize_gaps(case), str))
        joined += 1
        found = by("gaps", case, rows)
        if not with_reference:
            assert repr(found) == repr(by("walk", case, rows))
            return
        wanted = by_reference(case, rows)
        if isinstance(wanted, str):
            assert wanted in found
        else:
            assert repr(found) == repr(wanted)

    try_one()
    assert joined > examples / 2


def by_reference(case: RowProgram, rows: list[Row]) -> list[tuple[Any, ...]] | str:
    try:
        return expected(case, rows)
    except TooMany:
        assume(False)
        raise
    except SkipError as error:
        return str(error)


def test_joins_find_what_the_kernel_finds() -> None:
    agree(EXAMPLES)


def test_joins_find_what_brute_force_finds() -> None:
    agree(EXAMPLES, with_reference=True)


def test_how_many_are_tried_at_a_time_does_not_change_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates, "FIRST_CANDIDATES", 1)
    monkeypatch.setattr(candidates, "CANDIDATE_GROWTH", 2)
    monkeypatch.setattr(matches, "FIRST_STARTS", 1)
    monkeypatch.setattr(matches, "MOST_STARTS", 3)
    monkeypatch.setattr(search, "BLOCK_ROWS", 2)
    agree(EXAMPLES)
