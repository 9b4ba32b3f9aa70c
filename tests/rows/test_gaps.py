"""Patterns with gaps: which are recognized, what joins find in them, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spark_cep.udfs.errors import CepError, LimitError, WorkerError, parse_error
from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant
from spark_cep.udfs.program import Limits, Window
from spark_cep.udfs.row_program import (
    Aggregate,
    Classifier,
    MatchNumber,
    RowPatternNode,
    RowProgram,
    RowRead,
    RowVariable,
    Skip,
)
from spark_cep.udfs.rows import arrays
from spark_cep.udfs.rows.gaps import candidates, matches, preferred
from spark_cep.udfs.rows.gaps.candidates import points_read_ahead
from spark_cep.udfs.rows.gaps.pattern import MOST_POINTS, GapPattern, recognize_gaps
from tests.rows.gapped import NAMES, by, gap_program
from tests.rows.programs import (
    INT,
    X,
    alternate,
    answer_and_metrics,
    compare,
    concat,
    current,
    exclude,
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

A, B, C, D, Y, Z = range(6)
LABEL = Classifier(INT)


def text(case: RowProgram, *values: Any) -> list[str]:
    """The variables of the matched rows in order, matches apart, as joins find them."""
    case = replace(case, measures=(MatchNumber(BIGINT), LABEL))
    found: dict[int, str] = {}
    answer = by("gaps", case, rows_of(*values))
    assert not isinstance(answer, str), answer
    for _, _, match, label in answer:
        found[match] = found.get(match, "") + ("." if label is None else NAMES[label])
    return list(found.values())


def is_(value: int) -> Call:
    return compare("=", current(), number(value))


def why_not(pattern: RowPatternNode, **defines: Any) -> str:
    found = recognize_gaps(gap_program(pattern, {NAMES.index(n): d for n, d in defines.items()}))
    assert isinstance(found, str), found
    return found


def gapped(pattern: RowPatternNode, **defines: Any) -> GapPattern:
    found = recognize_gaps(gap_program(pattern, {NAMES.index(n): d for n, d in defines.items()}))
    assert not isinstance(found, str), found
    return found


LAZY = repeat(v(Z), 0, None, greedy=False)
ABC = concat(v(A), star(v(Z)), v(B), star(v(Z)), v(C))


# ---- what is recognized ------------------------------------------------------------------------


def test_points_and_what_lies_between_them_are_told_apart() -> None:
    pattern = concat(v(A), concat(star(v(Z)), v(B), v(C)), exclude(repeat(v(Y), 2, 5)))
    found = gapped(pattern)
    assert [point.variable for point in found.points] == [A, B, C]
    between, nothing, behind = found.gaps
    assert between is not None
    assert (between.variable, between.low, between.high, between.greedy) == (Z, 0, None, True)
    assert nothing is None
    assert behind is not None
    assert (behind.variable, behind.low, behind.high, behind.label) == (Y, 2, 5, 2 * Y + 1)


def test_a_condition_on_one_row_is_no_condition_of_a_join_wherever_it_stands() -> None:
    found = gapped(ABC, B=compare("<", current(), current(shift=-1)), C=is_(1))
    assert found.join_conjuncts == ()
    of_a = compare(">", last([A]), number(1))
    found = gapped(ABC, C=Call("and", (is_(1), of_a), BOOL))
    assert found.join_conjuncts == ()
    assert found.points[0].own_condition == compare(">", current(), number(1))
    assert found.points[2].own_condition == is_(1)


def test_what_names_a_point_is_that_points_row() -> None:
    def read(reading: RowRead) -> frozenset[int]:
        (join_conjunct,) = gapped(ABC, C=compare("<", current(), reading)).join_conjuncts
        return join_conjunct.points

    assert read(last([A])) == {0, 2}
    assert read(first([B], shift=-1)) == {1, 2}
    assert read(first(None)) == {0, 2}
    assert read(first([A, Z])) == {0, 2}
    assert read(last([A, B], offset=1)) == {0, 2}
    assert read(first([A, B, C], offset=1)) == {1, 2}


def test_a_point_that_is_not_bound_yet_reads_as_null() -> None:
    found = gapped(ABC, B=Call("is_null", (last([C]),), BOOL))
    assert found.join_conjuncts == ()
    assert found.points[1].own_condition == Call("is_null", (Constant(None, BIGINT),), BOOL)


LESS = compare("<", current(), last([A]))
REASONS = [
    (concat(v(A), v(B)), {}, "no variable between two others is repeated"),
    (concat(v(A), plus(v(B))), {}, "no variable between two others is repeated"),
    (concat(star(v(Z)), v(A), star(v(Z)), v(B)), {}, "begins with the repeated variable Z"),
    (
        concat(v(A), star(v(Y)), star(v(Z)), v(B)),
        {},
        "the adjacent variables Y and Z are both repeated",
    ),
    (concat(v(A), star(v(Z)), v(A)), {}, "A appears more than once"),
    (concat(v(A), star(v(B)), v(B)), {}, "B appears both repeated and not repeated"),
    (concat(v(A), star(concat(v(Y), v(Z))), v(B)), {}, "a group is repeated"),
    (concat(v(A), star(alternate(v(Y), v(Z))), v(B)), {}, "a group is repeated"),
    (concat(v(A), star(v(Z)), alternate(v(B), v(C))), {}, "the pattern has alternatives"),
    (permute(v(A), star(v(Z)), v(B)), {}, "the pattern has PERMUTE"),
    (concat(RowPatternNode("start"), ABC), {}, "the pattern has the anchor ^"),
    (concat(ABC, RowPatternNode("end")), {}, "the pattern has the anchor $"),
    (ABC, {"Z": LESS}, "the condition of the repeated variable Z reads the match so far"),
    (
        ABC,
        {"C": compare("<", current(), last([Z]))},
        "C reads rows that may belong to a repeated variable",
    ),
    (ABC, {"C": compare("<", current(), last(None, offset=1))}, "C reads rows that may belong"),
    (ABC, {"C": compare("<", current(), first(None, offset=1))}, "C reads rows that may belong"),
    (
        ABC,
        {"C": compare("<", current(), Aggregate("sum", X, BIGINT, frozenset([A])))},
        "the condition of C has an aggregate",
    ),
    (
        ABC,
        {"C": compare("=", Classifier(INT, "first"), Constant(0, INT))},
        "the condition of C reads the CLASSIFIER() of another row",
    ),
    (
        ABC,
        {"C": compare("=", MatchNumber(BIGINT), number(1))},
        "the condition of C reads MATCH_NUMBER()",
    ),
]


@pytest.mark.parametrize(("pattern", "defines", "reason"), REASONS)
def test_what_is_not_recognized_says_why(
    pattern: RowPatternNode, defines: dict[str, Any], reason: str
) -> None:
    assert reason in why_not(pattern, **defines)


def test_more_points_than_a_mask_has_bits_are_not_recognized() -> None:
    count = MOST_POINTS + 2
    parts = [v(0), star(v(count - 1)), *[v(place) for place in range(1, count - 1)]]
    names = tuple(RowVariable(f"v{place}") for place in range(count))
    case = program(concat(*parts), variables=names)
    assert recognize_gaps(case) == (
        f"more than {MOST_POINTS} variables of the pattern take a single row"
    )


def test_a_pattern_that_is_not_recognized_is_not_run() -> None:
    with pytest.raises(CepError, match="cannot be matched by joins: no variable"):
        compile_row_program(gap_program(v(A), {}, matcher="gaps"))


# ---- preferment --------------------------------------------------------------------------------


def test_a_greedy_gap_prefers_the_latest_next_row_and_a_reluctant_one_the_earliest() -> None:
    defines = {A: is_(1), B: is_(2)}
    greedy = gap_program(concat(v(A), star(v(Z)), v(B)), defines)
    assert text(greedy, 1, 2, 0, 2, 0) == ["AZZB"]
    assert text(replace(greedy, pattern=concat(v(A), LAZY, v(B))), 1, 2, 0, 2, 0) == ["AB"]


def test_the_first_gap_decides_before_the_second() -> None:
    near = compare(">", current(), last([B]))
    defines = {A: is_(1), B: compare(">", current(), number(1)), C: near}
    assert text(gap_program(ABC, defines), 1, 2, 3, 4, 2, 3) == ["AZZZBC"]
    lazy_first = concat(v(A), LAZY, v(B), star(v(Z)), v(C))
    assert text(gap_program(lazy_first, defines), 1, 2, 3, 4, 2, 3) == ["ABZZZC"]


def test_the_latest_next_row_is_given_up_where_nothing_fits_behind_it() -> None:
    defines = {
        A: is_(1),
        B: is_(2),
        C: compare("=", current(), Call("+", (last([B]), last([A])), BIGINT)),
    }
    assert text(gap_program(ABC, defines), 1, 2, 0, 2, 3, 0, 2) == ["AZZBC"]


def test_bounds_of_a_gap_hold() -> None:
    def found(gap: RowPatternNode) -> list[str]:
        return text(gap_program(concat(v(A), gap, v(B)), {A: is_(1), B: is_(2)}), 1, 2, 2, 2, 2)

    assert found(repeat(v(Z), 0, 2)) == ["AZZB"]
    assert found(repeat(v(Z), 1, 2, greedy=False)) == ["AZB"]
    assert found(repeat(v(Z), 2, 2)) == ["AZZB"]
    assert found(repeat(v(Z), 4, None)) == []


def test_a_row_that_fails_the_gaps_condition_ends_it() -> None:
    defines = {A: is_(1), B: is_(2), Z: compare("<>", current(), number(9))}
    case = gap_program(concat(v(A), star(v(Z)), v(B)), defines)
    assert text(case, 1, 0, 2, 9, 2) == ["AZB"]
    assert text(case, 1, 9, 2) == []


def test_a_gap_at_the_end_takes_what_it_prefers() -> None:
    defines = {A: is_(1), B: is_(2), Z: compare("<>", current(), number(9))}

    def found(behind: RowPatternNode, *values: int) -> list[str]:
        return text(gap_program(concat(v(A), star(v(Y)), v(B), behind), defines), *values)

    assert found(star(v(Z)), 1, 2, 0, 0, 9, 0) == ["ABZZ"]
    assert found(LAZY, 1, 2, 0, 0) == ["AB"]
    assert found(repeat(v(Z), 1, 2, greedy=False), 1, 2, 0, 0) == ["ABZ"]
    # The later 2 has not the two rows behind it.
    assert found(repeat(v(Z), 2, None), 1, 2, 0, 0, 2, 0) == ["ABZZZZ"]
    assert found(repeat(v(Z), 2, None), 1, 2, 0, 0, 2, 9, 0) == ["ABZZZ"]


def test_adjacent_rows_have_nothing_between() -> None:
    case = gap_program(concat(v(A), v(B), star(v(Z)), v(C)), {A: is_(1), B: is_(2), C: is_(3)})
    assert text(case, 1, 0, 2, 3) == []
    assert text(case, 1, 2, 0, 3) == ["ABZC"]


def test_within_holds_for_every_row() -> None:
    case = gap_program(concat(v(A), star(v(Z)), v(B), star(v(Y))), {A: is_(1), B: is_(2)})
    within = replace(case, within=Window("time", 3))
    assert text(within, 1, 0, 2, 0, 2) == ["AZBY"]
    assert text(within, 1, 0, 0, 0, 2) == []
    needs_two = replace(within, pattern=concat(v(A), star(v(Z)), v(B), repeat(v(Y), 2, None)))
    assert text(needs_two, 1, 2, 2, 0, 0) == ["ABYY"]


# ---- skipping ----------------------------------------------------------------------------------


CASE = gap_program(concat(v(A), star(v(Z)), v(B)), {A: is_(1), B: is_(2)}, rows="all")


def test_unmatched_rows_are_those_that_no_match_has() -> None:
    case = replace(CASE, rows="all with unmatched", measures=(LABEL,), skip=Skip("next row"))
    found = by("gaps", case, rows_of(0, 1, 1, 2, 0))
    assert found == by("walk", case, rows_of(0, 1, 1, 2, 0))
    assert [label for *_, label in found] == [None, A, Z, B, A, B, None]


@pytest.mark.parametrize(
    ("skip", "says"),
    [
        (Skip("first", frozenset([A])), "TO FIRST A would go to the first row of the match"),
        (Skip("last", frozenset([Z])), "TO LAST Z has nowhere to go: the match that begins at row"),
    ],
)
def test_skipping_fails_as_it_does_when_rows_are_walked(skip: Skip, says: str) -> None:
    case = replace(CASE, skip=skip)
    found = by("gaps", case, rows_of(0, 1, 2))
    assert says in found
    assert found == by("walk", case, rows_of(0, 1, 2))


def test_a_match_that_is_skipped_raises_no_error() -> None:
    """The second 1 begins a match without a gap, which the first one's match covers."""
    case = replace(CASE, skip=Skip("last", frozenset([Z, B])))
    assert text(case, 1, 1, 2, 1, 2) == ["AZZZB"]


# ---- cost --------------------------------------------------------------------------------------


def steps(case: RowProgram, matcher: Any, *values: Any) -> int:
    _, metrics = answer_and_metrics(replace(case, matcher=matcher), rows_of(*values))
    return int(metrics["steps"])


def test_rows_of_a_gap_are_not_walked() -> None:
    tied = compare("=", current(), Call("+", (last([A]), number(1)), BIGINT))
    case = gap_program(concat(v(A), star(v(Z)), v(B)), {B: tied}, rows="one")
    values = [10 * value for value in range(500)]
    assert steps(case, "gaps", *values) == 0
    assert steps(case, "walk", *values) > 500


def test_a_start_without_a_last_row_is_given_up_before_anything_between_is_tried() -> None:
    tied = compare("=", current(), Call("+", (last([A]), number(1)), BIGINT))
    case = gap_program(ABC, {A: is_(1), C: tied}, rows="one")
    assert steps(case, "gaps", 1, *[7] * 500) == 0


def test_a_row_that_failed_is_not_tried_again_for_another_start() -> None:
    """Nothing behind B reads A, so which B fail is found out once."""
    defines = {
        A: is_(1),
        B: compare(">", current(), last([A])),
        C: compare(">", Call("-", (current(), last([B])), BIGINT), number(100)),
    }
    case = gap_program(ABC, defines, rows="one", skip=Skip("next row"))
    values = [1, 2, 3] * 40
    few = steps(case, "gaps", *values)
    found = recognize_gaps(case)
    assert isinstance(found, GapPattern)
    assert points_read_ahead(found, 1) == frozenset()
    assert few < 8 * len(values) ** 2 / 3


def test_a_limit_of_steps_ends_work_that_runs_away() -> None:
    never = compare(">", Call("-", (current(), last([A])), BIGINT), number(100))
    case = gap_program(concat(v(A), star(v(Z)), v(B)), {B: never}, skip=Skip("next row"))
    case = replace(case, limits=Limits(backtracking_steps=1000), matcher="gaps")
    with pytest.raises(WorkerError) as raised:
        answer_and_metrics(case, rows_of(*[1, 2] * 100, key=7))
    error = parse_error(str(raised.value))
    assert isinstance(error, LimitError)
    assert "partition key [7] took more than 1,000 steps" in error.message
    assert "pairs of rows" in error.message
    assert error.details["limit"] == "backtracking_steps"
    assert "backtracking_steps=10000" in (error.hint or "")


def test_a_limit_counts_each_partition_for_itself() -> None:
    never = compare(">", Call("-", (current(), last([A])), BIGINT), number(100))
    case = gap_program(concat(v(A), star(v(Z)), v(B)), {B: never}, skip=Skip("next row"))
    case = replace(case, limits=Limits(backtracking_steps=1000), matcher="gaps")
    rows = [row for key in range(20) for row in rows_of(*[1, 2] * 10, key=key)]
    _, metrics = answer_and_metrics(case, rows)
    assert int(metrics["steps"]) > 1000


def test_what_is_tried_in_vain_is_within_a_factor_of_what_had_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges = preferred.PositionRanges(np.array([0]), np.array([10_000]))
    galloping = candidates.GallopingSearch(ranges, np.array([0]), downwards=True, block=1 << 17)
    seen: list[int] = []
    while (now := galloping.round()) is not None:
        seen += now[1].tolist()
        if 9_000 in now[1]:
            galloping.settle(np.array([0]))
    assert seen == sorted(seen, reverse=True)
    assert 1_000 <= len(seen) <= (1 + candidates.CANDIDATE_GROWTH) * 1_000


def test_the_default_limit_is_the_kernels() -> None:
    assert CASE.limits.backtracking_steps is None
    assert arrays.DEFAULT_STEP_LIMIT > 1_000_000_000


def test_of_skips_that_fail_the_first_partitions_is_named() -> None:
    """The first row of the second partition fails before the later one of the first is tried."""
    case = replace(CASE, skip=Skip("last", frozenset([Z])))
    rows = [*rows_of(*[1, 0, 2] * 9, 1, 2, key=1), *rows_of(1, 2, key=2)]
    found = by("gaps", case, rows)
    assert "partition key [1]" in found
    assert found == by("walk", case, rows)


# ---- what is remembered ------------------------------------------------------------------------


def apart(point: int, by_: int, way: str = "=") -> Call:
    """x is so much more than that point's."""
    further = Call("+", (last([point]), number(by_)), BIGINT)
    return compare(way, current(), further)


CHAIN = {B: apart(A, 1, ">="), C: apart(B, 2), D: apart(C, 1)}
STAR = {B: apart(A, 1, ">="), C: apart(A, 2, ">="), D: apart(A, 3)}
MIXED = {
    B: apart(A, 1, ">="),
    C: apart(A, 1, ">="),
    D: Call("and", (apart(B, 2), apart(A, 3)), BOOL),
}
LATE = {C: apart(A, 1), D: apart(B, 2)}


@pytest.mark.parametrize("within", [None, Window("time", 15)])
@pytest.mark.parametrize("starts", [1, 3, matches.MOST_STARTS])
@pytest.mark.parametrize("defines", [CHAIN, STAR, MIXED, LATE])
def test_what_is_remembered_does_not_change_the_answer(
    defines: dict[int, Any], starts: int, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matches, "MOST_STARTS", starts)
    pattern = concat(v(A), star(v(Z)), v(B), star(v(Z)), v(C), LAZY, v(D))
    case = gap_program(
        pattern, defines, rows="all", measures=(LABEL, MatchNumber(BIGINT)),
        skip=Skip("next row"), within=within,
    )  # fmt: skip
    for seed in range(3):
        values = np.random.default_rng(seed).integers(0, 7, 60).tolist()
        found = by("gaps", case, rows_of(*values))
        assert found == by("walk", case, rows_of(*values))
        assert len(found) > 30


def test_what_conditions_ahead_read_is_known() -> None:
    pattern = concat(v(A), star(v(Z)), v(B), star(v(Z)), v(C), star(v(Z)), v(D))

    def read(defines: dict[int, Any]) -> list[set[int]]:
        found = recognize_gaps(gap_program(pattern, defines))
        assert isinstance(found, GapPattern)
        return [set(points_read_ahead(found, place)) for place in (1, 2)]

    assert read(CHAIN) == [set(), set()]
    assert read(STAR) == [{0}, {0}]
    assert read(MIXED) == [{0}, {0, 1}]
    assert read(LATE) == [{0}, {1}]
