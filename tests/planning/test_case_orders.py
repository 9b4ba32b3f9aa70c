"""The order that a trigger runs: a fixed plan as it is, another one as it costs least."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.pattern import event, seq
from spark_cep.udfs.events import case_orders
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.case_orders import CaseOrders
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import Adaptation, BranchPlan, Estimates, Plan
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.pattern import Pattern
    from spark_cep.udfs.events.case_orders import CaseCandidate
    from spark_cep.udfs.events.metrics import Metrics

ABC = tuple(event(name, f"kind = {number}") for number, name in enumerate("abc"))
ROWS = 300  # in a window
TICKS = 100
# Few pairs of a and b are near, and nothing is known of c: beginning with c joins it with a or b
# without a condition.
TIED_AT_THE_START = "(a.x - b.x) * (a.x - b.x) < 4"
TIED_AT_THE_END = "(b.x - c.x) * (b.x - c.x) < 4"


@dataclass(frozen=True)
class Recorded:
    """A stream that can be run again under any plan; its window is `triggers` long."""

    pattern: Pattern
    triggers: int
    shares: tuple[float, float, float] = (0.4, 0.4, 0.2)

    @property
    def window(self) -> int:
        return self.triggers * TICKS

    def columns(self) -> dict[str, np.ndarray]:
        random, count = np.random.default_rng(7), self.length * ROWS // self.triggers
        return {
            "t": np.sort(random.integers(0, self.length * TICKS, count)),
            "kind": random.choice(3, count, p=self.shares),
            "x": random.integers(0, 1000, count),
        }

    def prepared(self) -> Prepared:
        return prepare(self.pattern.within(self.window), self.columns())

    @property
    def length(self) -> int:
        """Triggers: one and a half windows, at least four."""
        return max(4, self.triggers + self.triggers // 2)


@dataclass
class Run:
    matches: int = 0
    pairs: int = 0
    orders: dict[str, int] = field(default_factory=dict)
    kept: int = 0

    @property
    def in_triggers(self) -> int:
        """The pairs of all triggers but the first, in which every row is new."""
        return sum(pairs for order, pairs in self.orders.items() if "new" in order)

    def add(self, metrics: Metrics) -> None:
        self.matches += metrics.matches
        self.pairs += metrics.pairs
        for order, pairs in metrics.orders.items():
            self.orders[order] = self.orders.get(order, 0) + pairs


def run(
    stream: Recorded,
    plan: BranchPlan,
    selectivities: dict[int, float] | None = None,
    *,
    between: BranchPlan | None = None,
    late: int = 0,
) -> Run:
    """`between`: the plan of every third trigger. `late`: by how many triggers a row may be."""
    prepared, found = stream.prepared(), Run()
    estimates = None if selectivities is None else Estimates({}, selectivities)
    program = replace(prepared.program, plan=Plan("lazy-chain", (plan,)), estimates=estimates)
    state, orders = EventState(), CaseOrders(program)
    times = prepared.times()
    delay = np.random.default_rng(8).integers(0, late + 1, len(times))
    arrives = np.minimum(times // TICKS + delay, stream.length - 1)
    for number in range(stream.length):
        rows = prepared.table.filter(pa.array(arrives == number))
        running = between if between is not None and number % 3 == 1 else plan
        step = advance_events(
            replace(program, plan=Plan("lazy-chain", (running,))),
            state,
            rows,
            (number + 1 - late) * TICKS - 1,
            orders=orders,
        )
        for _ in step.matches:
            pass
        state = step.state
        found.add(step.metrics)
    found.kept = sum(len(next(iter(each.rows.values()))) for each in state.kept)
    return found


def named(*order: int) -> BranchPlan:
    return BranchPlan(left_deep_shape(order), fixed=True)


def expected_pairs(stream: Recorded, order: tuple[int, ...]) -> int:
    """What an order costs, counted by brute force: in each trigger the rows of the window, of c
    only the new ones, are joined one slot after the other."""
    columns = stream.columns()
    time = columns["t"]
    total, held = 0, np.zeros(len(time), dtype=np.bool_)
    for number in range(stream.length):
        fresh = (time >= number * TICKS) & (time < (number + 1) * TICKS)
        known = held | fresh
        rows = {v: np.flatnonzero(known & (columns["kind"] == v)) for v in range(3)}
        rows[2] = rows[2][fresh[rows[2]]]
        bound = {order[0]: rows[order[0]]}
        for slot in order[1:]:
            total += _join(bound, slot, rows[slot], columns, stream)
        held = known & ((number + 1) * TICKS - 1 - time < stream.window)
    return total


def _join(
    bound: dict[int, np.ndarray],
    slot: int,
    rows: np.ndarray,
    columns: dict[str, np.ndarray],
    stream: Recorded,
) -> int:
    """Extends `bound` by the rows of a slot; the pairs in order and window."""
    time, x = columns["t"], columns["x"]
    size = len(next(iter(bound.values())))
    left, right = (each.ravel() for each in np.indices((size, len(rows))))
    filled = {**{s: r[left] for s, r in bound.items()}, slot: rows[right]}
    times = np.stack([time[each] for each in filled.values()])
    fits = times.max(axis=0) - times.min(axis=0) <= stream.window
    for earlier in filled:
        for later in filled:
            if earlier < later:
                fits &= time[filled[earlier]] < time[filled[later]]
    filled = {s: r[fits] for s, r in filled.items()}
    pairs = int(np.count_nonzero(fits))
    text = str(stream.pattern.conditions[0])
    first, second = (0, 1) if "a.x" in text else (1, 2)
    if {first, second} <= filled.keys() and slot in {first, second}:
        near = (x[filled[first]] - x[filled[second]]) ** 2 < 4
        filled = {s: r[near] for s, r in filled.items()}
    bound.clear()
    bound.update(filled)
    return pairs


@pytest.mark.parametrize("triggers", [2, 5, 20, 100])
@pytest.mark.parametrize("condition", [TIED_AT_THE_START, TIED_AT_THE_END])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 1, 0)])
def test_a_named_plan_costs_what_its_order_costs(
    order: tuple[int, ...], condition: str, triggers: int
) -> None:
    stream = Recorded(seq(*ABC).where(condition), triggers)
    found = run(stream, named(*order))
    assert found.pairs <= 1.05 * expected_pairs(stream, order)
    name = "→".join("abc"[slot] for slot in order)
    assert found.orders.keys() == {name, f"{name}, new c"}
    assert sum(found.orders.values()) == found.pairs


# The share of pairs with |x - y| < 2 of 1,000 values.
NEAR = 0.003


@pytest.mark.parametrize("triggers", [2, 5, 20, 100])
@pytest.mark.parametrize("condition", [TIED_AT_THE_START, TIED_AT_THE_END])
def test_an_order_that_is_free_costs_no_more_than_the_best_named_one(
    condition: str, triggers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case_orders, "EXACT_SECONDS", 0.0)
    stream = Recorded(seq(*ABC).where(condition), triggers)
    each = {order: run(stream, named(*order)) for order in permutations(range(3))}
    least = min(found.in_triggers for found in each.values())
    for order in ((0, 1, 2), (2, 0, 1)):
        free = run(stream, BranchPlan(left_deep_shape(order)), {0: NEAR})
        assert free.matches == each[order].matches
        assert free.in_triggers <= 1.3 * least


def test_a_choice_is_made_again_when_estimates_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it is remembered."""
    made: list[int] = []
    case_candidates = case_orders.case_candidates

    def counted(*given: Any) -> Iterator[CaseCandidate]:
        made.append(1)
        return case_candidates(*given)

    monkeypatch.setattr(case_orders, "case_candidates", counted)
    stream = Recorded(seq(*ABC).where(TIED_AT_THE_START), 20)
    run(stream, BranchPlan(left_deep_shape((2, 1, 0))), {0: NEAR})
    assert len(made) < stream.length / 2
    made.clear()
    run(stream, named(2, 1, 0), {0: NEAR})
    assert not made


# ---- the order of the pattern --------------------------------------------------------------------

PREFIXES = BranchPlan(left_deep_shape((0, 1, 2)), (0, 1), fixed=True)


@pytest.mark.parametrize("triggers", [2, 20])
def test_eager_joins_new_events_with_the_prefixes_that_it_keeps(triggers: int) -> None:
    stream = Recorded(seq(*ABC).where(TIED_AT_THE_START), triggers)
    found, without = run(stream, PREFIXES), run(stream, named(0, 1, 2))
    assert found.matches == without.matches
    assert found.kept > 0
    assert without.kept == 0
    # Each pair of an a and a b is tested once, in whatever trigger the later one came.
    assert found.orders["a→b, to keep"] == all_pairs(stream)
    assert found.pairs < without.pairs
    assert {"[a b]→c, new c", "a→b, to keep"} <= found.orders.keys()


@pytest.mark.parametrize("late", [1, 3])
def test_late_rows_are_joined_once_with_the_prefixes_too(late: int) -> None:
    stream = Recorded(seq(*ABC).where(TIED_AT_THE_START), 10)
    found, in_time = run(stream, PREFIXES, late=late), run(stream, PREFIXES)
    assert found.matches == in_time.matches
    assert found.orders["a→b, to keep"] == all_pairs(stream)


def test_prefixes_are_found_again_behind_another_plan() -> None:
    stream = Recorded(seq(*ABC).where(TIED_AT_THE_START), 10)
    for other in (named(2, 1, 0), BranchPlan(((2, 0), 1), (0, 2), fixed=True)):
        found = run(stream, PREFIXES, between=other)
        assert found.matches == run(stream, PREFIXES).matches
        assert found.kept == run(stream, PREFIXES).kept
        assert found.orders["a→b, to keep"] > all_pairs(stream)


def test_auto_does_not_join_new_events_that_nothing_connects() -> None:
    stream = Recorded(seq(*ABC).where(TIED_AT_THE_START), 5)
    prepared = stream.prepared()
    adaptation = Adaptation("invariants", to_tree=True, to_hybrid=True)
    program = replace(prepared.program, plan=Plan("lazy-chain"), adaptation=adaptation)
    engine, state, times = AdaptiveEngine(program), EventState(), prepared.times()
    for number in range(stream.length):
        rows = prepared.table.filter(pa.array(times // TICKS == number))
        step = engine.step(state, rows, (number + 1) * TICKS - 1)
        for _ in engine.matches(step):
            pass
        state = step.state
    assert sum(engine.metrics.orders.values()) == engine.metrics.pairs
    assert engine.metrics.pairs < run(stream, named(2, 1, 0)).pairs / 3


def all_pairs(stream: Recorded) -> int:
    columns = stream.columns()
    a, b = (columns["t"][columns["kind"] == kind] for kind in (0, 1))
    apart = b[np.newaxis, :] - a[:, np.newaxis]
    return int(np.count_nonzero((apart > 0) & (apart <= stream.window)))
