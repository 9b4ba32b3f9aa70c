"""A stream that runs for long, 300 triggers in a time that slides on: nothing grows."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.pattern import event, no, seq
from spark_cep.udfs.execution import state
from spark_cep.udfs.program import Window
from tests.cases import Case
from tests.local import EAGER
from tests.rows.programs import compare, concat, current, plus, program, v
from tests.streaming.row_triggers import RowStream
from tests.streaming.triggers import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.streaming.triggers import InMemory

pytestmark = pytest.mark.slow

TRIGGERS = 300
# Two rows in every unit of time, ten units a trigger; the watermark stays a trigger behind.
UNITS, ROWS_A_UNIT, LAG = 10, 2, 10
WINDOW = 30
# Rows from a window behind the watermark on.
HELD = (WINDOW + LAG) * ROWS_A_UNIT
# The first window has passed, and all caches are filled.
SETTLED = 100
# In 200 triggers. One that kept its rows would come to several times that; what there is beside
# comes from the test's own lists and from caches that fill ever more slowly.
GROWTH = 128 << 10

A, B, C = (event(name, f"kind = '{name.upper()}'") for name in "abc")
BS = event("b+", "kind = 'B'")
KINDS = {
    "any": seq(A, B, C).where("a.x < b.x"),
    "next": seq(A, BS, C).strategy("skip till next match"),
    "not at the end": seq(A, B, no(C)),
    "consume": seq(A, B).consumption("consume"),
}


def row(u: int) -> dict[str, Any]:
    kind = "ABBC"[u * 7 % 4 if u % 3 else 1]
    return {"t": u // ROWS_A_UNIT, "u": u, "k": u % 5, "x": u % 7, "f": 0.5, "kind": kind}


def event_stream(kind: str) -> tuple[Callable[[int], int], Stream]:
    rows = [row(u) for u in range(TRIGGERS * UNITS * ROWS_A_UNIT)]
    order = ("t", "u") if kind == "consume" else ("t",)
    stream = Stream(Case(KINDS[kind].within(WINDOW), rows, order), EAGER)
    times = np.array([rows[place]["t"] for place in stream.ids])

    def trigger(number: int) -> int:
        mine = np.flatnonzero(times // UNITS == number)
        return sum(stream.trigger(mine, (number + 1) * UNITS - 1 - LAG).values())

    return trigger, stream


def row_stream() -> tuple[Callable[[int], int], RowStream]:
    """A V of any length that fits in the window."""
    down = compare("<", current(), current(shift=-1))
    up = compare(">", current(), current(shift=-1))
    pattern = concat(v(0), plus(v(1)), plus(v(2)))
    stream = RowStream(program(pattern, {1: down, 2: up}, within=Window("time", WINDOW)))

    def trigger(number: int) -> int:
        begin, end = (UNITS * ROWS_A_UNIT * each for each in (number, number + 1))
        rows = [(u % 5, u // ROWS_A_UNIT, u * 7 % 11, None, None) for u in range(begin, end)]
        return len(stream.trigger(rows, (number + 1) * UNITS - 1 - LAG))

    return trigger, stream


def size(store: InMemory) -> int:
    return len(store.kept or b"") + sum(map(len, store.blobs.values()))


@pytest.mark.parametrize("kind", [*KINDS, "rows"])
def test_state_and_memory_stay_flat(kind: str) -> None:
    trigger, stream = row_stream() if kind == "rows" else event_stream(kind)
    matches, sizes, blobs, traced, arrow = 0, [], [], [], []
    tracemalloc.start()
    try:
        for number in range(TRIGGERS):
            if number % 50 == 49:
                # As if another worker went on.
                state.forget_states()
            matches += trigger(number)
            sizes.append(size(stream.store))
            blobs.append(len(stream.store.blobs))
            if number in (SETTLED, TRIGGERS - 1):
                gc.collect()
                # What the test itself counts.
                stream.metrics[:-1] = [{} for _ in stream.metrics[:-1]]
                traced.append(tracemalloc.get_traced_memory()[0])
                arrow.append(pa.total_allocated_bytes())
    finally:
        tracemalloc.stop()
    assert matches > TRIGGERS
    assert stream.metrics[-1]["state_rows"] <= HELD
    # Four triggers are within reach; a segment each, and the flags.
    assert max(blobs) <= (WINDOW + LAG) // UNITS + 3
    assert max(sizes[SETTLED:]) <= 1.05 * max(sizes[20:SETTLED])
    assert traced[1] - traced[0] < GROWTH
    assert arrow[1] - arrow[0] < GROWTH
