"""One partition in ranges of its order: the answer of one search, whatever the ranges are.

The oracle is `run` over all rows, which other tests compare with a reference.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_cep.udfs.errors import WorkerError
from spark_cep.udfs.execution import spilling
from spark_cep.udfs.execution.ranges import match_borders, match_range
from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.expressions import BIGINT, BOOL, Call
from spark_cep.udfs.output import Field, RowOutput
from spark_cep.udfs.program import Order, Window
from spark_cep.udfs.row_program import Skip
from spark_cep.udfs.rows import cuts
from spark_cep.udfs.rows.cuts import cut_refusal
from tests.rows.programs import (
    NAMES,
    SCHEMA,
    VARIABLES,
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


def tries(examples: int) -> Any:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize="SPARK_CEP_EXPLORE" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


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


def cut_at(table: pa.Table, column: int, bounds: Sequence[float]) -> list[pa.Table]:
    """Rows by ranges of a column's values, NULL before and NaN behind all of them."""
    values = table.column(column).to_pylist()
    places = [
        0 if value is None else len(bounds) if isnan(value) else sum(value >= b for b in bounds)
        for value in values
    ]
    return [
        table.filter(pa.array([place == which for place in places], pa.bool_()))
        for which in range(len(bounds) + 1)
    ]


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
    @tries(examples)
    @given(drawn, splits, memories)
    def try_one(case_and_rows: Any, bounds: list[int], memory: int) -> None:
        case, rows = case_and_rows
        table = table_of(rows)
        ranges = cut_at(table, T, bounds)
        try:
            one_search(case, table)
        except WorkerError:
            with pytest.raises(WorkerError):
                in_ranges(case, ranges, memory)
            return
        agree(case, table, ranges, memory)

    try_one()


@pytest.mark.parametrize(
    "examples",
    [EXAMPLES, pytest.param(30 * EXAMPLES, marks=pytest.mark.slow)],
    ids=["quick", "slow"],
)
def test_ranges_give_the_rows_of_one_search(examples: int) -> None:
    try_cases(examples, cuttable())


@pytest.mark.parametrize(
    "examples",
    [EXAMPLES, pytest.param(30 * EXAMPLES, marks=pytest.mark.slow)],
    ids=["quick", "slow"],
)
def test_ranges_give_the_rows_of_one_search_for_any_conditions(examples: int) -> None:
    unkeyed = cases().map(lambda drawn: replace(drawn[0], keys=()))
    try_cases(examples, st.tuples(unkeyed.filter(lambda c: cut_refusal(c) is None), long_rows()))


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


@pytest.mark.parametrize(
    "examples",
    [EXAMPLES, pytest.param(30 * EXAMPLES, marks=pytest.mark.slow)],
    ids=["quick", "slow"],
)
def test_searches_that_meet_give_the_rows_of_one_search(examples: int) -> None:
    try_cases(examples, meeting())
