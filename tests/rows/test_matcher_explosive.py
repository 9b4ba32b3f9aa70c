"""Patterns with exponentially many ways: what failed once is not tried again, so the steps stay
proportional to the rows. Steps are counted and not seconds, so that a busy machine does not fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_cep.udfs.expressions import BOOL, Constant
from spark_cep.udfs.rows import arrays
from tests.rows.programs import (
    alternate,
    answer_and_metrics,
    compare,
    concat,
    current,
    last,
    plus,
    program,
    repeat,
    rows_of,
    star,
    v,
)

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowPatternNode, RowProgram

A, B, C = range(3)
NEVER = Constant(False, BOOL)


def steps(case: RowProgram, rows: int) -> int:
    _, metrics = answer_and_metrics(case, rows_of(*[1] * rows))
    return int(metrics["steps"])


@pytest.mark.parametrize(
    "pattern",
    [
        concat(plus(plus(v(A))), v(B)),
        concat(star(star(star(v(A)))), v(B)),
        concat(plus(alternate(v(A), v(A), concat(v(A), v(A)))), v(B)),
        concat(plus(v(A)), plus(v(A)), plus(v(A)), v(B)),
        concat(repeat(v(A), 1, 20), repeat(v(A), 1, 20), v(B)),
        concat(star(concat(star(v(A)), star(v(C)))), v(B)),
    ],
)
def test_steps_grow_with_the_rows_where_no_condition_reads_the_path(
    pattern: RowPatternNode,
) -> None:
    case = program(pattern, {B: NEVER})
    few, many = steps(case, 200), steps(case, 2000)
    assert many < 12 * few
    assert many < 200 * 2000


def test_many_optional_rows_before_as_many_rows() -> None:
    n = 300
    case = program(concat(repeat(repeat(v(A), 0, 1), n, n), repeat(v(A), n, n)))
    found, metrics = answer_and_metrics(case, rows_of(*[1] * n))
    assert len(found) == n
    assert metrics["steps"] < 4 * n * n


def test_paths_that_read_the_same_are_one_path(monkeypatch: pytest.MonkeyPatch) -> None:
    # B reads the last A: all rows are equal, so the paths differ in nothing that matters.
    defines = {B: compare(">=", current(), last([A])), C: NEVER}
    case = program(concat(plus(v(A)), plus(v(B)), v(C)), defines)
    few, many = steps(case, 300), steps(case, 3000)
    assert many < 15 * few
    monkeypatch.setattr(arrays, "MERGE_AFTER", 1 << 40)
    assert steps(case, 300) > 10 * few


def test_a_failure_is_remembered_from_one_match_to_the_next() -> None:
    # Every second way ahead is looked for to the end of the rows, in vain, at every row.
    case = program(alternate(concat(plus(v(A)), v(B)), v(A)), {B: NEVER}, rows="one")
    assert steps(case, 2000) < 20 * 2000
