"""What bounds the matcher: time and memory, whatever the pattern. Limits are made small here."""

from __future__ import annotations

import pytest

from spark_cep.udfs.errors import LimitError, PatternError, WorkerError, parse_error
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant
from spark_cep.udfs.program import Limits
from spark_cep.udfs.row_program import Aggregate, RowPatternNode, Skip
from spark_cep.udfs.rows import arrays, instructions, search
from spark_cep.udfs.rows.compiled import compile_kernel_program
from tests.rows.programs import (
    X,
    alternate,
    answer,
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

A, B, C = range(3)
FALSE = Constant(False, BOOL)


def limit_of(raised: pytest.ExceptionInfo[WorkerError]) -> str:
    error = parse_error(str(raised.value))
    assert isinstance(error, LimitError)
    return str(error.details["limit"])


def test_steps_that_all_succeed_are_limited_too() -> None:
    # Each search matches to the end and none ever fails.
    case = program(
        plus(v(A)), rows="one", skip=Skip("next row"), limits=Limits(backtracking_steps=500)
    )
    assert len(answer(case, rows_of(*range(10)))) == 10
    with pytest.raises(WorkerError, match=r"500 steps .* pattern of A, B, C, D, the") as raised:
        answer(case, rows_of(*range(100)))
    assert limit_of(raised) == "backtracking_steps"


def test_a_step_counts_as_many_as_its_condition_takes_time() -> None:
    limits, total = Limits(backtracking_steps=5000), Aggregate("sum", X, BIGINT)
    rows = rows_of(*[1] * 1000)
    assert len(answer(program(plus(v(A)), limits=limits), rows)) == 1000
    positive = compare(">", total, number(0))
    with pytest.raises(WorkerError, match="more than 5,000 steps") as raised:
        answer(program(plus(v(A)), {A: positive}, limits=limits), rows)
    assert limit_of(raised) == "backtracking_steps"


def test_a_question_to_python_weighs_as_many_steps_as_it_takes_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argument = Call("+", (current(), number(1)), BIGINT)
    asked = Aggregate("max", None, BIGINT, argument=argument)
    case = program(star(v(A)), {A: compare(">=", asked, number(0))})
    steps = search.QUESTION_STEPS + search.EVALUATION_STEPS
    monkeypatch.setattr(arrays, "DEFAULT_STEP_LIMIT", 50 * steps)
    assert len(answer(case, rows_of(*[1] * 10))) == 10
    with pytest.raises(WorkerError, match="steps of the matcher"):
        answer(case, rows_of(*[1] * 100))


def test_the_ways_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FIRST_STACK_SIZE", 4)
    monkeypatch.setattr(search, "MOST_STACK_SIZE", 64)
    case = program(concat(plus(v(A)), v(B)))
    assert len(answer(case, rows_of(*range(50)))) == 50
    with pytest.raises(WorkerError, match="more than 64 alternatives") as raised:
        answer(case, rows_of(*range(100)))
    assert limit_of(raised) == "ways"


def test_a_bucket_holds_as_many_rows_as_have_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_ROWS", 10)
    case = program(plus(v(A)))
    assert len(answer(case, rows_of(*range(8)))) == 8
    with pytest.raises(WorkerError, match="bucket of 12 rows") as raised:
        answer(case, rows_of(*range(12)))
    assert limit_of(raised) == "bucket_rows"


def test_repetitions_of_nothing_multiply_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = RowPatternNode("empty")
    for _ in range(3):
        nested = repeat(nested, 60, 60)
    monkeypatch.setattr(instructions, "MOST_EMITTED", 10_000)
    with pytest.raises(PatternError, match="repetition counts multiply"):
        compile_kernel_program(program(nested))
    compile_kernel_program(program(repeat(RowPatternNode("empty"), 60, 60)))


def test_a_far_look_back_is_not_carried_through_the_whole_program() -> None:
    # LAST(A.x, 300): 300 values would have to be compared at each row.
    case = program(
        concat(plus(alternate(v(A), v(B))), v(C)),
        {C: compare("=", current(), last([A], offset=300))},
    )
    conditions = compile_kernel_program(case).conditions
    assert [need.kind for need in conditions[C].needs] == ["anything"]
    near = program(case.pattern, {C: compare("=", current(), last([A], offset=3))})
    assert [need.kind for need in compile_kernel_program(near).conditions[C].needs] == ["last"]
