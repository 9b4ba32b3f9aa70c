"""A rule drops partial matches by their rows alone: of the full answer those matches stay whose way
through the plan has none that is dropped, however rows come and are divided."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spark_cep.pattern import all_of, any_of, event, no, seq
from spark_cep.udfs.events.dropping import PAIR_BINS, WINDOW_PARTS, hash_events
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan, DroppingRule, PartialState, Plan
from tests.cases import Case
from tests.local import Pipeline, Setting
from tests.programs import prepare

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.pattern import Pattern
    from spark_cep.udfs.events.context import MatchSet
    from spark_cep.udfs.events.table import Events
    from spark_cep.udfs.program import Program
    from tests.reference.matcher import Match

LONGEST = 3
MASK = 2**64 - 1
# Rules for each pattern.
ROUNDS = 5
SEEN: Counter[str] = Counter()


# ---- the rule in plain Python --------------------------------------------------------------------


def mixed(number: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        number = (number ^ (number >> shift)) * factor & MASK
    return number ^ (number >> 31)


def share_of(rows: list[tuple[int, int]], hashes: np.ndarray) -> float:
    """The number in [0, 1) of some rows, each with the slot that it fills."""
    step = 0x9E3779B97F4A7C15
    total = sum(mixed((int(hashes[row]) + (slot + 1) * step) & MASK) for slot, row in rows)
    return (mixed(total & MASK) >> 11) / 2**53


def is_followed(
    rule: DroppingRule, events: Events, order: tuple[int, ...], rows: dict[int, list[int]]
) -> bool:
    """Whether no partial match on the way to a match is dropped. `rows`: of each slot."""
    window = events.program.window.size or 1  # type: ignore[union-attr]
    hashes = hash_events(events, rule.seed)
    bound: list[tuple[int, int]] = []
    for place, slot in enumerate(order):
        is_last = place == len(order) - 1
        for length, row in enumerate(rows[slot]):
            at = PartialState(0, frozenset(order[:place]), slot, min(length, LONGEST))
            shares = rule.kept.get(at)
            times = [events.time[each] for _, each in bound]
            bound.append((slot, row))
            part: float | None = None
            if rule.drops == "pairs" and times:
                part = (events.time[row] - min(times)) / window * WINDOW_PARTS + WINDOW_PARTS
            elif rule.drops == "partials" and not is_last:
                every = [*times, events.time[row]]
                part = (max(every) - min(every)) / window * WINDOW_PARTS
            if part is not None:
                share = rule.others
                if shares is not None:
                    share = shares[min(max(int(np.floor(part)), 0), len(shares) - 1)]
                if not share_of(bound, hashes) < share:
                    return False
    return True


def rows_by_slot(program: Program, found: MatchSet, match: int) -> dict[int, list[int]]:
    return {
        place: np.atleast_1d(found.rows[slot.variables[0]][match]).tolist()
        for place, slot in enumerate(program.branches[0].slots)
    }


# ---- rules and plans -----------------------------------------------------------------------------


def chain_plan(order: tuple[int, ...]) -> Plan:
    return Plan("lazy-chain", (BranchPlan(left_deep_shape(order), fixed=True),))


X, Y, Z = (event(name, f"kind = '{name.upper()}'") for name in "abc")
W = event("w", "kind = 'D'")
# Each has one branch.
CHAINS = (
    seq(X, Y, Z).where("a.x <= b.x"),
    seq(X, no(W), Y, Z).where("w.x > a.x"),
    seq(X, Y, no(W)),
    seq(no(W), X, Y),
    seq(X, no(seq(W, event("v", "kind = 'C'"))), Y).where("w.x <= v.x"),
    all_of(X, Y, Z).where("a.x <= c.x"),
    seq(X, all_of(Y, Z)),
    seq(X, Y.times("+"), Z).where("b.x >= prev(b.x)"),
    seq(X, Y.times("{2,3}")),
    seq(event("a"), event("b"), event("c")).where("a.x < b.x", "b.x < c.x"),
    seq(X, Y, Z).where("a.x = b.x"),
)


def rows_of(random: np.random.Generator, count: int = 36) -> list[dict[str, Any]]:
    times = np.sort(random.integers(0, 40, count)).tolist()
    return [
        {
            "t": t,
            "u": u,
            "k": int(random.integers(0, 2)),
            "x": int(random.integers(0, 4)),
            "f": 0.5,
            "kind": "ABCD"[random.integers(0, 4)],
        }
        for u, t in enumerate(times)
    ]


def rule_of(random: np.random.Generator, order: tuple[int, ...]) -> DroppingRule:
    """Shares of their own for some states, one for the others."""
    drops: Any = random.choice(["pairs", "partials"])
    bins = PAIR_BINS if drops == "pairs" else WINDOW_PARTS
    kept = {
        PartialState(0, frozenset(order[:place]), slot, length): tuple(
            random.choice([0.0, 0.4, 0.7, 1.0, 1.0], bins).tolist()
        )
        for place, slot in enumerate(order)
        for length in range(LONGEST + 1)
        if random.random() < 0.6
    }
    others = float(random.choice([0.6, 0.8, 1.0]))
    return DroppingRule(drops, kept, others, int(random.integers(-3, 3)))


@pytest.fixture(params=range(len(CHAINS) * ROUNDS))
def dropped(request: pytest.FixtureRequest) -> tuple[Case, tuple[int, ...], DroppingRule]:
    """A pattern with rows, an order of its slots, and a rule."""
    random = np.random.default_rng(request.param)
    pattern = CHAINS[request.param % len(CHAINS)].within(int(random.integers(6, 14)))
    case = Case(pattern, rows_of(random), partition_by=("k",))
    slots = Pipeline(case, Setting()).program.branches[0].slots
    order = tuple(random.permutation(len(slots)).tolist())
    return case, order, rule_of(random, order)


def answer_of(case: Case, setting: Setting, rule: DroppingRule | None) -> Counter[Match]:
    """What the engine gives, in the advances of the setting."""
    pipeline = Pipeline(case, setting)
    found: Counter[Match] = Counter()
    state = EventState()
    for place, horizon in enumerate((*setting.horizons, None)):
        program = replace(pipeline.program, dropping=rule)
        step = advance_events(program, state, pipeline.table(place), horizon)
        for matches in step.matches:
            found.update(pipeline.read(step.events.table, step.events.rows, matches))
        state = step.state
    return found


def test_those_stay_whose_way_through_the_plan_is_not_dropped(
    dropped: tuple[Case, tuple[int, ...], DroppingRule],
) -> None:
    case, order, rule = dropped
    pipeline = Pipeline(case, Setting(chain_plan(order)))
    expected: Counter[Match] = Counter()
    step = advance_events(pipeline.program, EventState(), pipeline.table(0), None)
    for found in step.matches:
        stays = [
            is_followed(rule, step.events, order, rows_by_slot(pipeline.program, found, match))
            for match in range(len(found))
        ]
        some = found.take(np.array(stays, dtype=np.bool_))
        expected.update(pipeline.read(step.events.table, step.events.rows, some))
    SEEN.update(all=step.metrics.matches > 0, part=0 < expected.total() < step.metrics.matches)
    assert answer_of(case, Setting(chain_plan(order)), rule) == expected


def test_of_most_of_these_patterns_some_matches_stay() -> None:
    """Of what the test before has seen, if it ran in this process."""
    assert SEEN["part"] > 0.4 * SEEN["all"] or not SEEN


def by_name(case: Case, found: Counter[Match]) -> Counter[Any]:
    """Matches with what the rows say of themselves in place of their numbers."""

    def name(rows: Any) -> Any:
        return case.rows[rows]["u"] if isinstance(rows, int) else tuple(map(name, rows))

    return Counter({tuple((v, name(rows)) for v, rows in match): n for match, n in found.items()})


def test_the_answer_is_the_same_however_rows_come_and_are_divided(
    dropped: tuple[Case, tuple[int, ...], DroppingRule],
) -> None:
    case, order, rule = dropped
    plan = chain_plan(order)
    expected = answer_of(case, Setting(plan), rule)
    for other in (
        Setting(plan, block_pairs=1),
        Setting(plan, slice_length=5),
        Setting(plan, horizons=(9, 17, 30)),
    ):
        assert answer_of(case, other, rule) == expected
    backwards = replace(case, rows=case.rows[::-1])
    found = answer_of(backwards, Setting(plan), rule)
    assert by_name(backwards, found) == by_name(case, expected)


# ---- by hand -------------------------------------------------------------------------------------

A, B, C, D = (event(name, f"kind = {place}") for place, name in enumerate("abcd"))


def ticks(pattern: Pattern, count: int = 400) -> tuple[Program, pa.Table]:
    random = np.random.default_rng(5)
    columns = {
        "t": np.arange(count) * 3,
        "k": random.integers(0, 3, count),
        "kind": random.integers(0, 4, count),
        "x": random.random(count),
    }
    prepared = prepare(pattern.within(40), columns, partition_by=["k"])
    return replace(prepared.program, plan=Plan("eager")), prepared.table


def found_in(program: Program, table: pa.Table) -> Counter[Any]:
    step = advance_events(program, EventState(), table, None)
    found: Counter[Any] = Counter()
    times = table.column(program.orders[0].column).to_numpy()
    for each in step.matches:
        columns = {v: times[step.events.rows(rows)] for v, rows in each.rows.items()}
        for match in range(len(each)):
            found[
                tuple((v, tuple(np.atleast_1d(c[match]))) for v, c in sorted(columns.items()))
            ] += 1
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        seq(A, B, C).where("a.x < b.x"),
        seq(A, no(D), B, C).where("d.x > a.x"),
        seq(A, B, no(D)),
        seq(A, no(seq(B, C)), D).where("b.x < c.x"),
        all_of(A, B, C),
        seq(A, any_of(B, C), D),
        seq(A, B.optional(), C),
        seq(A, B.times("+"), C).where("b.x > prev(b.x)"),
        seq(any_of(A, B).times("+"), C).where("a.x < c.x"),
        seq(A, B.times("*"), C),
    ],
)  # fmt: skip
@pytest.mark.parametrize("drops", ["pairs", "partials"])
def test_no_match_is_invented_or_comes_twice(pattern: Pattern, drops: Any) -> None:
    program, table = ticks(pattern)
    full = found_in(program, table)
    kept = found_in(replace(program, dropping=DroppingRule(drops, {}, 0.6)), table)
    assert 0 < kept.total() < full.total()
    assert not kept - full


def test_what_is_not_dropped_costs_nothing_and_all_may_be() -> None:
    program, table = ticks(seq(A, B, C).where("a.x < b.x"))
    full = found_in(program, table)
    for drops in ("pairs", "partials"):
        every = replace(program, dropping=DroppingRule(drops, {}, 1.0))  # type: ignore[arg-type]
        assert found_in(every, table) == full
        none = replace(program, dropping=DroppingRule(drops, {}, 0.0))  # type: ignore[arg-type]
        step = advance_events(none, EventState(), table, None)
        assert not list(step.matches)
        assert step.metrics.pairs == 0
        assert max(step.metrics.dropped_pairs, step.metrics.dropped_partials) > 0


def test_another_seed_drops_others() -> None:
    program, table = ticks(seq(A, B, C))
    one, other = (
        found_in(replace(program, dropping=DroppingRule("partials", {}, 0.5, seed)), table)
        for seed in (0, 1)
    )
    assert one != other
    assert 0.5 < one.total() / other.total() < 2
