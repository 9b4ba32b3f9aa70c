"""Row patterns in window frames: the engine against the definition (`tests/rows/framed.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.expressions import BIGINT, BOOL, Call
from spark_cep.udfs.row_program import (
    Aggregate,
    Classifier,
    MatchNumber,
    RowPatternNode,
    RowProgram,
    Skip,
)
from spark_cep.udfs.rows import arrays, search
from spark_cep.udfs.rows.cuts import cut_refusal
from spark_cep.udfs.rows.frames import bind_frame, rows_before
from spark_cep.udfs.rows.gaps.pattern import recognize_gaps
from tests.random_cases import random_cases
from tests.rows.framed import expected, found, framed, framed_cases
from tests.rows.programs import (
    INT,
    X,
    alternate,
    compare,
    concat,
    current,
    first,
    last,
    number,
    permute,
    plus,
    program,
    repeat,
    rows_of,
    star,
    v,
)
from tests.rows.reference import SkipError, TooMany

if TYPE_CHECKING:
    from tests.rows.reference import Row

A, B, C = v(0), v(1), v(2)
FALLS = compare("<", current(), current(shift=-1))
ROWS = Aggregate("list", X, BIGINT, final=True)


def agree(examples: int) -> None:
    @random_cases(examples)
    @given(framed_cases())
    def try_one(drawn: tuple[RowProgram, list[Row]]) -> None:
        case, rows = drawn
        try:
            bound = bind_frame(case)
        except CepError:
            assume(False)
        assert bound is not case
        try:
            wanted = expected(case, rows)
        except TooMany:
            assume(False)
        except SkipError as error:
            with pytest.raises(WorkerError, match=str(error)):
                found(case, rows)
            return
        assert repr(found(case, rows)) == repr(wanted)

    try_one()


def test_the_engine_agrees_with_the_definition() -> None:
    agree(250)


def test_little_room_does_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MERGE_AFTER", -1)
    monkeypatch.setattr(arrays, "MERGED_PLACES", 2)
    monkeypatch.setattr(arrays, "MOST_MARK_WORDS", 2)
    monkeypatch.setattr(search, "BLOCK_ROWS", 1)
    monkeypatch.setattr(search, "FIRST_STACK_SIZE", 1)
    agree(120)


def lists(case: RowProgram, *values: int) -> list[list[int]]:
    """The rows of the match of each row."""
    return [row[2] for row in found(replace(case, measures=(ROWS,)), rows_of(*values))]


def test_prev_does_not_see_the_row_before_the_frame() -> None:
    falling = framed(program(plus(A), {0: FALLS}))
    assert lists(falling, 3, 2, 1) == [[], [], []]
    after_any = framed(program(concat(A, plus(B)), {1: FALLS}))
    assert lists(after_any, 3, 2, 1) == [[3, 2, 1], [], []]


def test_next_does_not_see_the_row_after_the_frame() -> None:
    case = program(plus(A), {0: compare("<", current(), current(shift=1))}, skip=Skip("next row"))
    assert lists(framed(case), 1, 2, 3, 4) == [[1, 2, 3], [2, 3], [3], []]
    assert lists(framed(case, following=2), 1, 2, 3, 4) == [[1, 2], [2, 3], [3], []]


def test_a_match_ends_with_the_frame() -> None:
    case = program(plus(A), skip=Skip("next row"))
    assert lists(framed(case, following=1), 1, 2, 3) == [[1, 2], [2, 3], [3]]
    assert lists(framed(case, following=0), 1, 2, 3) == [[1], [2], [3]]
    assert lists(framed(case, bound=X), 1, 0, 2, 9) == [[1, 0], [0], [2, 9], [9]]


def test_seek_finds_the_next_match_in_the_frame() -> None:
    ones = program(plus(A), {0: compare("=", current(), number(1))}, skip=Skip("next row"))
    assert lists(framed(ones, seeks=True), 0, 0, 1, 1, 0) == [[1, 1], [1, 1], [1, 1], [1], []]
    assert lists(framed(ones, seeks=True, following=1), 0, 0, 1, 1, 0) == [
        [], [1], [1, 1], [1], [],
    ]  # fmt: skip
    past = replace(ones, skip=Skip())
    assert lists(framed(past, seeks=True), 0, 0, 1, 1, 0) == [[1, 1], [], [], [], []]


def test_prev_sees_the_rows_that_seek_skips() -> None:
    falling = program(A, {0: FALLS}, measures=(last(None, shift=-1), last(None, shift=-2)))
    case = framed(falling, seeks=True)
    assert [row[2:] for row in found(case, rows_of(1, 5, 4))] == [(5, 1), (None,) * 2, (None,) * 2]


def test_a_row_without_a_match_has_the_measures_of_an_empty_match() -> None:
    measures = (
        Aggregate("count", None, BIGINT), Aggregate("sum", X, BIGINT), ROWS, MatchNumber(BIGINT),
        Classifier(INT), first(None),
    )  # fmt: skip
    empty = (0, None, [], None, None, None)
    case = framed(program(concat(A, B), {1: FALLS}, measures=measures))
    assert [row[2:] for row in found(case, rows_of(2, 1, 5))] == [
        (2, 3, [2, 1], 1, 1, 2), empty, empty,
    ]  # fmt: skip
    nothing = framed(program(RowPatternNode("empty"), measures=measures))
    assert [row[2:] for row in found(nothing, rows_of(2))] == [(0, None, [], 1, None, None)]


def test_a_frame_that_ends_before_its_row_is_an_error() -> None:
    with pytest.raises(WorkerError, match="row 2 is NULL or negative"):
        found(framed(program(A), bound=X), rows_of(1, -1))


def test_reads_that_stay_in_the_frame_are_columns() -> None:
    after_any = bind_frame(framed(program(concat(A, plus(B)), {1: FALLS})))
    assert after_any.variables[1].define == FALLS
    at_start = bind_frame(framed(program(plus(B), {1: FALLS}))).variables[1].define
    assert at_start is not None
    assert any(isinstance(each, Call) and each.name == "if" for each in at_start.walk())


def test_the_rows_in_front_of_a_variable() -> None:
    def ranges(node: RowPatternNode) -> list[tuple[int, int | None]]:
        return rows_before(node, 3)

    assert ranges(concat(A, plus(B), C)) == [(0, 0), (1, None), (2, None)]
    assert ranges(concat(star(A), B, C)) == [(0, None), (0, None), (1, None)]
    assert ranges(permute(A, B, C)) == [(0, 2), (0, 2), (0, 2)]
    assert ranges(alternate(concat(A, B), concat(B, B, C))) == [(0, 0), (0, 1), (2, 2)]
    assert ranges(repeat(concat(A, B), 1, 3)) == [(0, 4), (1, 5), (0, 0)]
    assert ranges(concat(repeat(A, 2, 3), B)) == [(0, 2), (2, 3), (0, 0)]


def test_only_the_row_by_row_matcher_knows_frames() -> None:
    case = framed(program(concat(A, star(B), C)))
    assert recognize_gaps(case) == "the pattern is in a window frame"
    assert cut_refusal(case) is not None


def test_what_the_frame_cannot_bound_is_refused() -> None:
    inner = Call("if", (compare("=", current(shift=-1), number(1)), number(1), number(0)), BIGINT)
    summed = Aggregate("sum", None, BIGINT, argument=inner)
    define = Call(">", (summed, number(0)), BOOL)
    with pytest.raises(CepError, match="cannot be bounded by a window frame"):
        bind_frame(framed(program(plus(A), {0: define})))
