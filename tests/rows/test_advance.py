"""When answers become certain, and what is kept until then, on rows few enough to check."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.execution.row_engine import RowEngine, compile_row_program
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant, UserCall
from spark_cep.udfs.output import RowOutput
from spark_cep.udfs.program import Order, Window
from spark_cep.udfs.row_program import MatchNumber, RowPatternNode, RowVariable, Skip
from spark_cep.udfs.rows.advance import RowState, row_program_fingerprint
from spark_cep.udfs.rows.leaves import unbounded_reason
from tests.rows.advances import Step, advanced, answered
from tests.rows.programs import (
    T,
    alternate,
    compare,
    concat,
    current,
    last,
    number,
    plus,
    program,
    repeat,
    rows_of,
    star,
    v,
)

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowProgram
    from tests.rows.reference import Row

A, B, C = range(3)
DOWN = compare("<", current(), current(shift=-1))
UP = compare(">", current(), current(shift=-1))
NUMBER = MatchNumber(BIGINT)


def times(case: RowProgram, *steps: tuple[list[Row], int | None]) -> list[list[int]]:
    """The times of the rows that each step gives; a horizon None ends the input."""
    found, _ = answered(case, [Step(tuple(rows), at) for rows, at in steps])
    return [sorted(row[1] for rows in step.values() for row in rows) for step in found]


def kept(case: RowProgram, *steps: tuple[list[Row], int | None]) -> list[int]:
    _, states = answered(case, [Step(tuple(rows), at) for rows, at in steps])
    return [state.size for state in states]


def engine_of(case: RowProgram) -> RowEngine:
    return RowEngine(compile_row_program(case), RowOutput())


# ---- when ----------------------------------------------------------------------------------------


def test_a_greedy_match_waits_for_the_row_that_ends_it() -> None:
    case = program(concat(v(A), plus(v(B))), {B: DOWN})
    rows = rows_of(9, 8, 7, 9, 5)
    assert times(case, (rows[:3], 2), (rows[3:4], 3), (rows[4:], 4), ([], None)) == [
        [], [0, 1, 2], [], [3, 4],
    ]  # fmt: skip


def test_a_reluctant_or_bounded_match_is_given_with_its_last_row() -> None:
    case = program(concat(v(A), repeat(v(B), 1, None, greedy=False)))
    assert times(case, (rows_of(1, 2, 3)[:2], 1), ([], None)) == [[0, 1], []]
    case = program(concat(v(A), repeat(v(B), 1, 2)))
    rows = rows_of(1, 2, 3)
    assert times(case, (rows[:2], 1), (rows[2:], 2)) == [[], [0, 1, 2]]


def test_within_decides_when_the_horizon_is_a_window_further() -> None:
    case = program(plus(v(A)), within=Window("time", 2))
    assert times(case, (rows_of(1), 0), ([], 1), ([], 2)) == [[], [], [0]]
    # The first row of the next window shows that this one has passed.
    rows = [*rows_of(1, 1), (1, 5, 1, None, None)]
    assert times(case, (rows, 5), ([], 7)) == [[0, 1], [5]]


def test_a_condition_on_the_next_row_waits_for_it_unless_the_rest_rejects() -> None:
    falls = compare(">", current(), current(shift=1))
    large = compare(">", current(), number(5))
    case = program(v(A), {A: Call("and", (falls, large), BOOL)}, rows="all with unmatched")
    rows = rows_of(9, 1, 7, 3)
    assert times(case, (rows[:1], 0), (rows[1:3], 2), (rows[3:], 3)) == [[], [0, 1], [2, 3]]


def test_a_look_ahead_from_an_earlier_row_waits_for_just_that_row() -> None:
    # B looks at the row two behind the last A.
    case = program(concat(v(A), v(B)), {B: compare("=", last([A], shift=2), number(7))})
    rows = rows_of(1, 2, 7)
    assert times(case, (rows[:2], 1), (rows[2:], 2)) == [[], [0, 1]]


def test_what_is_computed_of_the_next_row_waits_for_it_beside_a_read_of_the_path() -> None:
    both = Call("+", (current(), current(shift=1)), BIGINT)
    case = program(concat(v(A), v(B)), {B: compare(">", both, last([A]))})
    rows = rows_of(5, 2, 7)
    assert times(case, (rows[:2], 1), (rows[2:], 2)) == [[], [0, 1]]


def test_a_condition_that_is_null_before_it_looks_ahead_rejects_at_once() -> None:
    unknown = compare("=", last([C]), number(1))
    ahead = compare("=", last([A], shift=2), number(7))
    case = program(concat(v(A), v(B)), {B: Call("and", (unknown, ahead), BOOL)},
                   rows="all with unmatched")  # fmt: skip
    assert times(case, (rows_of(1, 2), 1)) == [[0]]


def test_a_measure_on_the_next_row_waits_for_it_where_there_is_one_to_show() -> None:
    case = program(concat(v(A), v(B)), measures=(last([A], shift=2),))
    rows = rows_of(1, 2, 3)
    assert times(case, (rows[:2], 1), (rows[2:], 2), ([], None)) == [[], [0, 1], []]
    # There is no C, so nothing is looked at.
    case = program(concat(v(A), v(B)), measures=(last([C], shift=2),))
    assert times(case, (rows[:2], 1)) == [[0, 1]]


def test_conditions_that_python_tests_wait_too() -> None:
    def above(value: Any) -> Any:
        return value > 2

    define = UserCall("above", above, (last([A], shift=2),), BOOL)
    case = program(concat(v(A), v(B)), {B: define})
    rows = rows_of(1, 2, 3)
    assert times(case, (rows[:2], 1), (rows[2:], 2)) == [[], [0, 1]]


def test_unmatched_rows_and_empty_matches_come_when_they_are_certain() -> None:
    large = compare(">", current(), number(5))
    case = program(concat(v(B), v(B)), {B: large}, rows="all with unmatched")
    rows = rows_of(1, 9, 1)
    assert times(case, (rows[:2], 1), (rows[2:], 2)) == [[0], [1, 2]]
    case = program(star(v(B)), {B: large}, measures=(NUMBER,))
    assert times(case, (rows[:2], 1), (rows[2:], 2)) == [[0], [1, 2]]


def test_the_end_of_a_partition_is_its_end_only_when_the_input_ends() -> None:
    case = program(concat(v(A), RowPatternNode("end")))
    rows = rows_of(1, 2)
    assert times(case, (rows[:1], 0), (rows[1:], 1), ([], None)) == [[], [], [1]]


def test_only_the_first_row_ever_is_the_start_of_a_partition() -> None:
    case = program(concat(RowPatternNode("start"), v(A)))
    rows = rows_of(1, 2, 3)
    assert times(case, (rows[:1], 0), (rows[1:], 2)) == [[0], []]
    # What is kept begins with a row that is not the first.
    waits = concat(v(B), v(B), v(C))
    case = program(
        alternate(concat(RowPatternNode("start"), v(A)), waits), {C: Constant(False, BOOL)}
    )
    assert times(case, (rows, 2), (rows_of(1, 2, 3, 4)[3:], 3), ([], None)) == [[0], [], []]


def test_rows_beyond_the_horizon_are_kept_unmatched() -> None:
    case = program(concat(v(A), v(B)))
    first, second = rows_of(1, 2)
    assert times(case, ([second], -1), ([], 0)) == [[], []]
    assert times(case, ([second], -1), ([first], 1)) == [[], [0, 1]]
    assert kept(case, ([second], -1), ([first], 0), ([], 1)) == [1, 2, 0]


def test_matches_are_numbered_and_rows_covered_across_advances() -> None:
    case = program(concat(v(A), v(B)), measures=(NUMBER,), skip=Skip("next row"),
                   rows="all with unmatched")  # fmt: skip
    rows = rows_of(1, 2, 3)
    steps = [
        Step(tuple(rows[:2]), 1),
        Step(tuple(rows[2:]), 2),
        Step((), None),
    ]
    found, _ = answered(case, steps)
    assert [[row[1:] for row in step.get(1, [])] for step in found] == [
        [(0, 1), (1, 1)], [(1, 2), (2, 2)], [],
    ]  # fmt: skip


# ---- what is kept --------------------------------------------------------------------------------


def test_rows_are_dropped_once_no_search_can_read_them() -> None:
    case = program(concat(v(A), v(B)), rows="one")
    rows = rows_of(*range(7))
    assert kept(case, (rows[:4], 3), (rows[4:], 6), ([], None)) == [0, 1, 0]
    # PREV of the first row reaches two rows back.
    case = replace(case, measures=(last([A], shift=-2),))
    assert kept(case, (rows[:4], 3), (rows[4:], 6)) == [2, 3]


def test_a_partition_is_forgotten_unless_its_matches_are_counted_or_its_start_matters() -> None:
    rows = rows_of(1, 2)
    assert kept(program(v(A)), (rows, 1)) == [0]
    assert kept(program(v(A), measures=(NUMBER,)), (rows, 1)) == [1]
    assert kept(program(concat(RowPatternNode("start"), v(A))), (rows, 1)) == [1]


def test_a_window_bounds_what_is_kept() -> None:
    case = program(plus(v(A)), within=Window("time", 5), skip=Skip("next row"))
    steps = [([(key, t, 1, None, None) for key in (1, 2)], t) for t in range(60)]
    sizes = kept(case, *steps)
    assert max(sizes) == 2 * 5
    assert sizes[20:] == [2 * 5] * 40


def test_a_partition_without_new_rows_is_not_searched_again() -> None:
    engine = engine_of(program(concat(plus(v(A)), v(B)), {B: Constant(False, BOOL)}))
    _, state = advanced(engine, RowState(), Step(tuple(rows_of(*range(50))), 100))
    assert engine.take_metrics()["steps"] > 0
    advanced(engine, state, Step((), 101))
    assert engine.take_metrics()["steps"] == 0


# ---- what is refused -----------------------------------------------------------------------------


def test_a_horizon_needs_an_order_that_ascends() -> None:
    case = program(v(A), orders=(Order(T, BIGINT, descending=True),))
    with pytest.raises(CepError, match="ascends"):
        advanced(engine_of(case), RowState(), Step((), 1))


def test_a_state_is_read_by_its_own_program_only() -> None:
    case = program(concat(v(A), plus(v(B))), {B: DOWN})
    _, state = advanced(engine_of(case), RowState(), Step(tuple(rows_of(3, 2)), 1))
    data = state.to_bytes(case)
    assert RowState.from_bytes(data, case).rows == state.rows
    with pytest.raises(CepError, match="another pattern"):
        RowState.from_bytes(data, replace(case, skip=Skip("next row")))
    with pytest.raises(CepError, match="cut short"):
        RowState.from_bytes(data[:200], case)
    with pytest.raises(CepError, match="cut short"):
        RowState.from_bytes(data[:3], case)
    with pytest.raises(CepError, match="no state"):
        RowState.from_bytes(b"SCEP" + data[4:], case)
    with pytest.raises(CepError, match="format 99"):
        RowState.from_bytes(data[:4] + b"\x63\x00" + data[6:], case)


def test_sets_and_functions_have_the_same_fingerprint_in_every_process() -> None:
    def above(value: Any) -> Any:
        return value > 2

    # The order in which a set prints hangs on the order in which it was filled.
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert repr(one) != repr(other)

    def case(members: frozenset[int]) -> RowProgram:
        read = replace(last([A]), variables=members)
        define = UserCall("above", above, (read,), BOOL)
        return program(v(A), variables=(RowVariable("A", define),))

    assert row_program_fingerprint(case(one)) == row_program_fingerprint(case(other))


def test_what_can_wait_for_ever_is_known_from_the_program() -> None:
    endless = concat(v(A), plus(v(B)))
    assert "repetition of B has no upper bound" in (unbounded_reason(program(endless)) or "")
    assert unbounded_reason(program(endless, within=Window("time", 1))) is None
    assert unbounded_reason(program(concat(v(A), repeat(v(B), 0, 9)))) is None
    assert unbounded_reason(program(star(RowPatternNode("start")))) is None
    ends = program(concat(v(A), RowPatternNode("end")), within=Window("time", 1))
    assert "$ matches the end" in (unbounded_reason(ends) or "")
