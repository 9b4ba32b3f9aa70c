"""Row patterns: any split into triggers, in any order that the watermark allows, gives what one
trigger gives, which is the answer of a batch up to what rows to come may change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.execution import state
from spark_cep.udfs.expressions import BIGINT, BOOL, Call
from spark_cep.udfs.program import Window
from spark_cep.udfs.row_program import Aggregate
from spark_cep.udfs.rows.leaves import rows_ahead, unbounded_reason
from tests.random_cases import random_cases
from tests.rows.advances import Step, by_key, cut, in_order
from tests.rows.folded import folded_cases
from tests.rows.programs import X, answer, cases, current, program, rows_of, v
from tests.streaming.row_triggers import RowStream

EXAMPLES = 150
# Behind every row and every window of the cases.
FAR = 1000


def streamed(case: Any, steps: list[Step], forgets: frozenset[int]) -> dict[Any, list[Any]]:
    stream = RowStream(case)
    found = []
    for number, step in enumerate(steps):
        if number in forgets:
            state.forget_states()
        horizon = FAR if step.horizon is None else step.horizon
        found += stream.trigger(step.rows, horizon)
    return by_key(found)


def any_split_agrees(drawn_from: Any, examples: int = EXAMPLES) -> None:
    @random_cases(examples)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        case, rows = data.draw(drawn_from)
        steps = data.draw(cut(rows))
        forgets = data.draw(st.frozensets(st.integers(0, len(steps))), label="forgets")
        try:
            batch = by_key(answer(case, in_order(steps)))
            whole = streamed(case, [Step(tuple(in_order(steps)), steps[-1].horizon)], frozenset())
        except (WorkerError, CepError):
            assume(False)
        found = streamed(case, steps, forgets)
        assert repr(sorted(found.items())) == repr(sorted(whole.items()))
        for key, given_ in found.items():
            assert repr(batch[key][: len(given_)]) == repr(given_)

    compare()


def test_any_split_into_triggers_gives_the_answer_of_one() -> None:
    any_split_agrees(cases())


def test_any_split_gives_the_answer_of_one_with_folds_along_the_path() -> None:
    any_split_agrees(folded_cases, EXAMPLES // 3)


def test_a_fold_over_next_rows_waits_for_them() -> None:
    next_sum = Aggregate("try_sum", None, BIGINT, argument=current(X, 1))
    case = program(v(0), {0: Call("is_null", (next_sum,), BOOL)})
    rows = rows_of(1, 2)
    steps = [Step(tuple(rows[:1]), 0), Step(tuple(rows[1:]), 1)]
    # The first row has a next one, and nothing says yet that the second has none.
    assert streamed(case, steps, frozenset()) == {}


def test_a_match_of_a_trigger_without_new_rows_is_given_once() -> None:
    # PREV keeps the row, so the state is as large after the match as before.
    case = program(v(0), measures=(current(shift=-1),), rows="one")
    steps = [
        Step(((1, 0, None, None, None),), -1),
        Step((), 0),
        Step((), 1),
    ]
    found = streamed(case, steps, frozenset({0, 1, 2}))
    assert [len(given_) for given_ in found.values()] == [1]


def test_rows_behind_the_last_horizon_are_dropped_and_counted() -> None:
    stream = RowStream(program(v(0)))
    rows = rows_of(1, 2, 3, 4)
    assert len(stream.trigger(rows[:3], 2)) == 3
    assert len(stream.trigger(rows, 3)) == 1
    assert [each["late_rows"] for each in stream.metrics] == [0, 3]


def within_agrees(drawn_from: Any, examples: int = EXAMPLES) -> None:
    @random_cases(examples)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        case, rows = data.draw(drawn_from)
        case = replace(case, within=case.within or Window("time", 3))
        defines = [each.define for each in case.variables if each.define is not None]
        assume(
            unbounded_reason(case) is None and not any(map(rows_ahead, [*defines, *case.measures]))
        )
        steps = data.draw(cut(rows))
        forgets = data.draw(st.frozensets(st.integers(0, len(steps))), label="forgets")
        try:
            batch = by_key(answer(case, in_order(steps)))
        except WorkerError:
            assume(False)
        found = streamed(case, steps, forgets)
        assert repr(sorted(found.items())) == repr(sorted(batch.items()))

    compare()


def test_within_decides_all_that_looks_at_no_row_behind() -> None:
    within_agrees(cases())


def test_within_decides_all_with_folds_along_the_path() -> None:
    within_agrees(folded_cases, EXAMPLES // 3)
