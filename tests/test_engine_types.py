"""Matching over types, and at the edges of types, that the random cases do not have: dates,
doubles as event time, narrow integers, values near the ends of 64 bits, sessions without ANSI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.events.compile import compile_event_query
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.pattern import event, seq
from spark_cep.udfs.events.candidates import CandidateIndex, PositionRanges
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.expressions import Cell, Type
from spark_cep.udfs.values.vectors import Vector
from tests.fake_typer import LocalTyper
from tests.local import _value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_cep.pattern import Pattern
    from spark_cep.udfs.events.metrics import Metrics

KIND, INT, BIGINT = Type("int", 32), Type("int", 32), Type("int")
DATE, DOUBLE = Type("date"), Type("float")
ARROW = {INT: pa.int32(), BIGINT: pa.int64(), DATE: pa.date32(), DOUBLE: pa.float64()}
A, B, C = (event(name, f"k = {number}") for number, name in enumerate("abc", 1))
MOST = 2**63 - 1


def matched(
    pattern: Pattern,
    types: Mapping[str, Type],
    rows: Sequence[tuple[Any, ...]],
    *,
    ansi: bool = True,
) -> tuple[int, Metrics]:
    """How many matches there are in rows of k, t and the other columns of `types`."""
    types = {"k": KIND, **types}
    records = [dict(zip(types, row, strict=True)) for row in rows]
    query = compile_event_query(
        pattern,
        [ColumnInfo(name, type_) for name, type_ in types.items()],
        order_by="t",
        partition_by=None,
        typer=LocalTyper(types, ansi=ansi),
        ansi=ansi,
        time_zone="UTC",
    )
    compiled, program = query.compiled, query.program()
    assert not compiled.after
    masks = [
        sum(
            1 << v
            for v, texts in enumerate(compiled.masks)
            if all(_value(str(text), record) is True for text in texts)
        )
        for record in records
    ]
    arrays = [
        pa.array(masks, pa.int64())
        if each.role == "mask"
        else pa.array(
            [record[str(each.column)] for record in records], ARROW[types[str(each.column)]]
        )
        for each in query.shipment.shipped
    ]
    table = pa.Table.from_arrays(arrays, names=list(program.columns))
    step = advance_events(program, EventState(), table)
    return sum(len(found) for found in step.matches), step.metrics


def count(*arguments: Any, **options: Any) -> int:
    return matched(*arguments, **options)[0]


def test_a_difference_of_dates_is_in_days_however_it_is_bounded() -> None:
    two_days = seq(A, B).where("b.t - a.t >= INTERVAL '2' DAY")
    assert count(two_days, {"t": DATE}, [(1, 0), (2, 5)]) == 1
    assert count(two_days, {"t": DATE}, [(1, 0), (2, 1)]) == 0


def test_a_difference_of_doubles_is_not_rewritten_as_a_sum() -> None:
    # 0.9 - 0.2 is at most 0.7, yet 0.2 + 0.7 is less than 0.9.
    near = seq(A, B).where("b.t - a.t <= 0.7D")
    assert count(near, {"t": DOUBLE}, [(1, 0.2), (2, 0.9)]) == 1


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize(
    ("type_", "values", "limit"),
    [(INT, (10, 20), "5000000000"), (BIGINT, (MOST - 10, MOST - 5), "100")],
)
def test_a_bound_that_overflows_loses_no_match(
    type_: Type, values: tuple[int, int], limit: str, ansi: bool
) -> None:
    rows = [(1, 0, values[0]), (2, 1, values[1])]
    near = seq(A, B).where(f"b.x - a.x < {limit}")
    found, metrics = matched(near, {"t": BIGINT, "x": type_}, rows, ansi=ansi)
    assert (found, metrics.condition_errors) == (1, 0)


def test_an_error_fails_its_own_pairs_only() -> None:
    # One of three sums a.x + b.x overflows; it stands in an equality, which is looked up.
    rows = [(1, 0, 1, 0), (2, 1, MOST, 0), (2, 2, 1, 0), (3, 3, 2, 1), (3, 4, 2, 1)]
    pattern = seq(A, B, C).where("c.x = a.x + b.x", "c.y > a.y")
    found, metrics = matched(pattern, {"t": BIGINT, "x": BIGINT, "y": BIGINT}, rows)
    assert (found, metrics.condition_errors) == (2, 1)


def test_a_fold_that_overflows_fails_its_own_lists_only() -> None:
    half = 2**62
    rows = [(1, 0, 0), (2, 1, half), (2, 2, half), (2, 3, 1), (3, 4, 1), (3, 5, 1)]
    pattern = seq(A, event("b{2}", "k = 2"), C).where("sum(b.x) > c.x")
    found, metrics = matched(pattern, {"t": BIGINT, "x": BIGINT}, rows)
    # Of the lists {1,2}, {1,3}, {2,3} the first overflows; the others match with each c.
    assert (found, metrics.condition_errors) == (4, 1)


def test_times_at_both_ends_of_64_bits_are_far_apart() -> None:
    wide = seq(A, B).within(2**62)
    assert count(wide, {"t": BIGINT}, [(1, -MOST), (2, MOST)]) == 0
    assert count(wide, {"t": BIGINT}, [(1, MOST - 2**62), (2, MOST)]) == 1


def test_a_window_below_the_unit_of_time_is_a_window_of_nothing() -> None:
    both = seq(A, B).within(0.5)
    assert count(both, {"t": BIGINT}, [(1, 1), (2, 1), (2, 2)]) == 0


class _Columns:
    """Five columns of many values."""

    def __init__(self, columns: list[np.ndarray[Any, Any]]) -> None:
        self._columns = columns

    def gather(self, column: int, _type: Type, rows: np.ndarray[Any, Any]) -> Vector:
        return Vector(self._columns[column][rows])


def test_many_equalities_of_many_values_are_told_apart() -> None:
    # 65,536 values in each of five columns: their product does not fit into 64 bits.
    size = 1 << 16
    columns = [np.arange(size) for _ in range(5)]
    rows = np.arange(size)
    cells = [Cell(0, column, BIGINT) for column in range(5)]
    pool = CandidateIndex(rows, rows, [(cell, rows) for cell in cells], _Columns(columns), size)  # type: ignore[arg-type]
    sought = [Vector(np.array([first, 9])) for first in (7, 9, 9, 9, 9)]
    everywhere = PositionRanges(np.array([0, 0]), np.array([size, size]))
    found = pool.find(everywhere, sought)
    assert (found.high - found.low).tolist() == [0, 1]
