"""One partition in ranges of its order: the answer of one search, whatever the ranges are.

The oracle is `run` over all rows, which other tests compare with a reference.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.errors import WorkerError
from spark_cep.udfs.execution import spilling
from spark_cep.udfs.execution.ranges import match_borders, match_range
from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Call
from spark_cep.udfs.output import Field, RowOutput
from spark_cep.udfs.program import Order, Window
from spark_cep.udfs.row_program import MatchNumber, RowPatternNode, Skip
from spark_cep.udfs.rows import cuts
from spark_cep.udfs.rows.compiled import KernelProgram
from spark_cep.udfs.rows.cuts import StartFinder, cut_refusal, endless_refusal
from spark_cep.udfs.values.codes import sort_codes
from tests.random_cases import random_cases
from tests.rows.programs import (
    NAMES,
    SCHEMA,
    STRING,
    VARIABLES,
    F,
    S,
    T,
    X,
    cases,
    compare,
    concat,
    current,
    first,
    last,
    number,
    plus,
    program,
    repeat,
    star,
    v,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spark_cep.udfs.row_program import RowProgram

EXAMPLES = 150
EVERYTHING = 1 << 40
OUTPUT = RowOutput((Field(T, "t"), Field(X, "x")))
BY_TIME = Order(T, BIGINT)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pieces and prefixes of a few rows, files in a directory of the test's own."""
    monkeypatch.setattr(spilling, "PIECE_BYTES", 100)
    monkeypatch.setattr(cuts, "FIRST_ROWS", 4)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


def table_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows], SCHEMA)


def split(batches: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of an answer, and the counts."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    counts = [json.loads(row["metrics"]) for row in rows if row["metrics"] is not None]
    found = [row for row in rows if row.pop("metrics") is None]
    for row in found:
        # Nobody reads it, and a range does not know it.
        row.pop("first_row", None)
    return found, counts


def one_search(case: RowProgram, table: pa.Table) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    batches = iter(table.to_batches(max_chunksize=3))
    rows, counts = split(run(compile_row_program(case), OUTPUT, batches, 0, memory=EVERYTHING))
    return rows, counts[0] if counts else {}


def in_ranges(
    case: RowProgram, ranges: Sequence[pa.Table], memory: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """As Spark runs it: the matches of the ranges, then those of the borders, in any order."""
    compiled = compile_row_program(case)
    matched: dict[int, list[pa.RecordBatch]] = {}
    for place, table in enumerate(ranges):
        batches = table.to_batches(max_chunksize=3)
        for batch in match_range(compiled, OUTPUT, batches, place, len(ranges), memory=memory):
            for at in range(batch.num_rows):
                row = batch.slice(at, 1)
                matched.setdefault(row.column("task")[0].as_py(), []).append(row)
    rows, counts = [], []
    for task in sorted(matched):
        # The rows of one task come from several others, in any order.
        given = sorted(matched[task], key=str) if task == len(ranges) else matched[task]
        found, counted = split(match_borders(compiled, OUTPUT, iter(given), memory=memory))
        rows += found
        counts += counted
    return rows, counts


def counted(counts: Sequence[dict[str, Any]], name: str) -> int:
    return sum(each.get(name, 0) for each in counts)


def cut_at(table: pa.Table, order: Order, places: Sequence[int]) -> list[pa.Table]:
    """Rows by ranges of an order: one begins with the value of the row at each place."""
    codes = sort_codes(table.column(order.column), order)
    bounds = sorted({codes[place] for place in places if place < len(codes)})
    which = np.searchsorted(np.array(bounds, codes.dtype), codes, "right")
    return [table.filter(pa.array(which == number)) for number in range(len(bounds) + 1)]


def agree(case: RowProgram, table: pa.Table, ranges: Sequence[pa.Table], memory: int) -> int:
    """How many rows of borders there are."""
    wanted, wanted_counts = one_search(case, table)
    found, counts = in_ranges(case, ranges, memory)
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    for name in (
        "rows", "partitions", "matches", "empty_matches", "unmatched_rows", "ignored_rows",
    ):  # fmt: skip
        assert counted(counts, name) == wanted_counts.get(name, 0), name
    return counted(counts, "border_rows")


# ---- random patterns -----------------------------------------------------------------------------


@st.composite
def long_rows(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Enough rows for several ranges, with ties and gaps in time."""
    count = draw(st.integers(0, 40))
    steps = draw(st.lists(st.sampled_from([0, 1, 1, 1, 2, 9]), min_size=count, max_size=count))
    values = draw(
        st.lists(st.one_of(st.none(), *[st.integers(0, 2)] * 6), min_size=count, max_size=count)
    )
    rows, time = [], 0
    for step, x in zip(steps, values, strict=True):
        time += step
        rows.append((1, time, x, "abc"[time % 3], float(time % 4)))
    return rows


row_conditions = st.one_of(
    *[st.integers(0, 2).map(lambda value: compare("=", current(), number(value)))] * 4,
    st.sampled_from(["<", ">", "<=", "="]).map(
        lambda name: compare(name, current(), current(shift=-1))
    ),
    st.sampled_from(["<", ">"]).map(lambda name: compare(name, current(), current(shift=1))),
    st.sampled_from(["<", ">="]).map(lambda name: compare(name, current(), current(shift=-2))),
)
path_conditions = st.one_of(
    st.just(compare(">=", current(), first(None))),
    st.integers(0, VARIABLES - 1).map(lambda a: compare("<=", current(), last([a]))),
    st.integers(0, VARIABLES - 1).map(lambda a: compare(">", last([a], shift=1), number(0))),
)


@st.composite
def cuttable(draw: st.DrawFn) -> tuple[RowProgram, list[tuple[Any, ...]]]:
    """Patterns as users write them, whose conditions leave rows that no match can have."""
    case, _ = draw(cases().filter(lambda drawn: cut_refusal(replace(drawn[0], keys=())) is None))
    defines = {}
    for variable in range(VARIABLES):
        if draw(st.sampled_from([True, True, True, False])):
            define = draw(row_conditions)
            if draw(st.sampled_from([True, False, False])):
                define = Call("and", (define, draw(path_conditions)), BOOL)
            defines[variable] = define
    drawn = program(
        case.pattern, defines, keys=(), rows=case.rows, skip=case.skip, measures=case.measures,
        within=case.within,
    )  # fmt: skip
    return drawn, draw(long_rows())


splits = st.lists(st.integers(0, 40), max_size=4).map(sorted)
memories = st.sampled_from([EVERYTHING, EVERYTHING, 400, 2000])


def try_cases(examples: int, drawn: Any) -> None:
    @random_cases(examples)
    @given(drawn, splits, memories)
    def try_one(case_and_rows: Any, bounds: list[int], memory: int) -> None:
        case, rows = case_and_rows
        table = table_of(rows)
        ranges = cut_at(table, case.orders[0], bounds)
        try:
            one_search(case, table)
        except WorkerError:
            with pytest.raises(WorkerError):
                in_ranges(case, ranges, memory)
            return
        agree(case, table, ranges, memory)

    try_one()


def test_ranges_give_the_rows_of_one_search() -> None:
    try_cases(EXAMPLES, cuttable())


def test_ranges_give_the_rows_of_one_search_for_any_conditions() -> None:
    unkeyed = cases().map(lambda drawn: replace(drawn[0], keys=()))
    try_cases(EXAMPLES, st.tuples(unkeyed.filter(lambda c: cut_refusal(c) is None), long_rows()))


# Conditions that most rows meet, so that searches are open everywhere.
lax_conditions = st.one_of(
    st.just(compare(">=", current(), number(1))),
    st.just(compare("<>", current(), current(shift=-1))),
    st.just(compare("<=", current(), current(shift=1))),
    st.integers(0, VARIABLES - 1).map(lambda a: compare("<=", current(), last([a]))),
    st.just(compare(">=", current(), first(None))),
)
lax_patterns = st.one_of(
    st.just(concat(v(0), plus(v(1)))),
    st.just(concat(v(0), plus(v(1)), plus(v(2)))),
    st.just(concat(v(0), repeat(v(1), 0, 3), v(2))),
    st.just(concat(repeat(v(0), 1, 2), repeat(v(1), 0, None, greedy=False), v(2))),
    st.just(star(v(1))),
)


@st.composite
def meeting(draw: st.DrawFn) -> tuple[RowProgram, list[tuple[Any, ...]]]:
    """Patterns with WITHIN, or of bounded length, over rows without gaps."""
    chosen = st.dictionaries(st.integers(0, 2), lax_conditions, min_size=1)
    case, _ = draw(cases().filter(lambda drawn: cut_refusal(replace(drawn[0], keys=())) is None))
    case = program(
        draw(lax_patterns), draw(chosen), keys=(), measures=case.measures,
        rows=draw(st.sampled_from(["one", "all", "all omit empty"])),
        skip=Skip(draw(st.sampled_from(["past last row", "past last row", "next row"]))),
        within=Window("time", draw(st.integers(0, 4))),
    )  # fmt: skip
    if draw(st.sampled_from([True, False, False])):
        case = replace(case, within=None)
    count = draw(st.integers(20, 60))
    values = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return case, [(1, at, x, "abc"[x % 3], float(x)) for at, x in enumerate(values)]


def test_searches_that_meet_give_the_rows_of_one_search() -> None:
    try_cases(EXAMPLES, meeting())


@pytest.mark.parametrize(
    "orders",
    [
        (Order(T, BIGINT, descending=True),),
        (Order(F, DOUBLE), BY_TIME),
        (Order(F, DOUBLE, nulls_first=False), BY_TIME),
        (Order(F, DOUBLE, descending=True), BY_TIME),
        (Order(X, BIGINT, descending=True, nulls_first=False), BY_TIME),
    ],
    ids=["descending", "NaN and NULL", "NULL last", "NaN first", "descending, NULL last"],
)
def test_any_order_gives_the_rows_of_one_search(orders: tuple[Order, ...]) -> None:
    floats = [None, float("nan"), -0.0, 0.0, 0.5, 1.5, float("inf"), 2.5]

    def reordered(drawn: tuple[RowProgram, list[tuple[Any, ...]]]) -> Any:
        case, rows = drawn
        changed = [(k, t, x, s, floats[t * 7 % 8]) for k, t, x, s, _ in rows]
        return replace(case, orders=orders, within=None), changed

    try_cases(EXAMPLES // 3, cuttable().map(reordered))


# ---- where a range begins, on rows few enough to check ------------------------------------------

A, B, C = range(3)
DOWN = compare("<", current(), current(shift=-1))
UP = compare(">", current(), current(shift=-1))
V_SHAPE = program(concat(v(A), plus(v(B)), plus(v(C))), {B: DOWN, C: UP}, keys=())


def start_of(case: RowProgram, *values: Any) -> tuple[int, int] | None:
    rows = [(1, at, x, None, None) for at, x in enumerate(values)]
    made = compile_row_program(case).matcher
    assert isinstance(made, KernelProgram)
    found = StartFinder(made).find(table_of(rows))
    return None if found is None else (found.begin, found.seen)


def test_a_row_that_no_match_goes_on_to_is_a_cut() -> None:
    # The second 7 is neither below nor above the row before.
    assert start_of(V_SHAPE, 9, 8, 9, 7, 7, 6, 8) == (4, 5)
    # A row above one that is neither b nor c.
    assert start_of(V_SHAPE, 5, 5, 6, 4) == (2, 3)
    assert start_of(V_SHAPE, 9, 8, 9, 8, 9, 8) is None


def test_the_first_rows_of_a_range_lack_those_before_them() -> None:
    # Its PREV is in another range, so nothing is known of the first row.
    assert start_of(V_SHAPE, 7, 7) is None
    assert start_of(V_SHAPE, 7, 7, 7) == (2, 3)


def test_rows_that_searches_before_the_start_read_are_handed_on() -> None:
    case = replace(V_SHAPE, measures=(last([C], shift=2),))
    assert start_of(case, 5, 5, 5, 4, 6, 7) == (2, 5)
    assert start_of(case, 5, 5, 5, 4) is None


def test_a_gap_longer_than_within_is_a_cut() -> None:
    case = program(plus(v(A)), keys=(), within=Window("time", 3), rows="all with unmatched")
    rows = [(1, t, 1, None, None) for t in (1, 2, 3, 9, 10)]
    made = compile_row_program(case).matcher
    assert isinstance(made, KernelProgram)
    found = StartFinder(made).find(table_of(rows))
    assert found is not None
    assert (found.begin, found.seen) == (3, 4)


def test_searches_from_all_rows_of_a_window_meet() -> None:
    # a b with b at most a: 5 4 | 3 2 | ... or 5 | 4 3 | 2 ...; at 9, which is no b, they meet.
    case = program(
        concat(v(A), v(B)), {B: compare("<=", current(), last([A]))}, keys=(),
        within=Window("time", 1),
    )  # fmt: skip
    assert start_of(case, 5, 4, 3, 2, 9, 1, 1, 1, 1, 1, 1) == (4, 6)
    assert start_of(replace(case, skip=Skip("next row")), 5, 4, 3, 2) == (0, 3)
    # Two searches that never meet.
    assert start_of(case, *[1] * 40) is None


def test_a_pattern_of_bounded_length_needs_no_within() -> None:
    case = program(concat(v(A), v(B)), {B: compare("<=", current(), last([A]))}, keys=())
    assert start_of(case, 5, 4, 3, 2, 9, 1, 1, 1, 1, 1, 1) == (4, 6)


def test_ranges_without_a_start_are_matched_with_the_borders() -> None:
    case = program(concat(plus(v(A)), v(B)), {A: compare(">=", current(), number(0))}, keys=())
    table = table_of([(1, t, 1, None, None) for t in range(30)])
    assert agree(case, table, cut_at(table, BY_TIME, [10, 20]), 400) == 30


def test_few_rows_are_borders_where_cuts_are_frequent() -> None:
    table = table_of([(1, t, t * t % 7, None, None) for t in range(1000)])
    assert agree(V_SHAPE, table, cut_at(table, BY_TIME, [300, 600]), EVERYTHING) < 60


def test_what_is_about_the_whole_partition_is_not_cut() -> None:
    anchored = replace(V_SHAPE, pattern=concat(RowPatternNode("start"), v(A)))
    assert "^" in (cut_refusal(anchored) or "")
    ends = replace(V_SHAPE, pattern=concat(v(A), RowPatternNode("end")))
    assert "$" in (cut_refusal(ends) or "")
    counted_matches = replace(V_SHAPE, measures=(MatchNumber(BIGINT),))
    assert "numbered" in (cut_refusal(counted_matches) or "")
    assert "no order" in (cut_refusal(replace(V_SHAPE, orders=())) or "")
    assert "string" in (cut_refusal(replace(V_SHAPE, orders=(Order(S, STRING),))) or "")
    assert cut_refusal(V_SHAPE) is None


def endless(case: RowProgram) -> str | None:
    made = compile_row_program(case).matcher
    assert isinstance(made, KernelProgram)
    return endless_refusal(made)


def test_a_pattern_that_goes_on_at_any_row_has_no_cut() -> None:
    free = program(concat(plus(v(A)), v(B)), {B: compare(">", current(), number(1))}, keys=())
    assert "restricts A" in (endless(free) or "")
    of_path = program(free.pattern, {A: compare(">", last([A]), first([A]))}, keys=())
    assert "restricts A" in (endless(of_path) or "")
    assert endless(replace(free, within=Window("time", 3))) is None
    assert endless(replace(free, pattern=concat(repeat(v(A), 1, 5), v(B)))) is None
    assert endless(V_SHAPE) is None


def test_a_row_of_a_match_in_a_range_is_not_unmatched_in_the_border() -> None:
    # The last row of the first range ends a match, and begins a search that waits for more.
    case = program(
        concat(v(A), v(B)),
        {A: compare(">=", current(), number(1)), B: compare("=", current(), number(2))},
        keys=(), rows="all with unmatched", skip=Skip("next row"),
    )  # fmt: skip
    table = table_of([(1, t, x, None, None) for t, x in enumerate([0, 0, 1, 2, 0, 0, 0, 0])])
    for memory in (EVERYTHING, 400):
        assert agree(case, table, cut_at(table, BY_TIME, [4]), memory) < 8
