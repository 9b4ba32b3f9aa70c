"""Beginnings that branches have in common: their pairs once, the answer the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import strategies as st

from spark_cep.pattern import (
    AllOf,
    AnyOf,
    Event,
    NoEvent,
    OptionalPart,
    Pattern,
    Repeat,
    Seq,
    Within,
    any_of,
    event,
    no,
    seq,
)
from spark_cep.udfs.events import sharing
from spark_cep.udfs.events.engine import EventAdvance, EventState, advance_events
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan, Plan
from tests.cases import Case
from tests.conditions import cross_conditions, own_conditions
from tests.programs import Prepared, prepare
from tests.settings import in_advances, whole
from tests.strategies import rows as drawn_rows
from tests.test_differential import SettingsOf, agree

if TYPE_CHECKING:
    from spark_cep.pattern import EventPatternNode

A, B, C, D = (event(name, f"kind = {number}") for number, name in enumerate("abcd"))


def rows(size: int, seed: int = 1) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(seed)
    return {
        "t": np.arange(size),
        "kind": drawn.integers(0, 4, size),
        "x": drawn.integers(0, 100, size),
    }


def run(prepared: Prepared, *orders: str, block: int = 1 << 17) -> EventAdvance:
    """One advance with an order for each branch; without, the order of the pattern."""
    program = replace(prepared.program, block_pairs=block)
    if orders:
        names = [variable.name for variable in program.variables]
        plans = [
            BranchPlan(left_deep_shape([place[names.index(n)] for n in order]), fixed=True)
            for order, branch in zip(orders, program.branches, strict=True)
            for place in [{s.variables[0]: i for i, s in enumerate(branch.slots)}]
        ]
        program = replace(program, plan=Plan("lazy-chain", tuple(plans)))
    return advance_events(program, EventState(), prepared.table)


def answer(step: EventAdvance) -> Counter[tuple[tuple[int, ...], ...]]:
    return Counter(
        tuple((v, int(r[n])) for v, r in sorted(found.rows.items()))
        for found in step.matches
        for n in range(len(found))
    )


def pairs_apart(prepared: Prepared, *orders: str) -> int:
    """What the branches take if each walks alone."""
    total = 0
    for number, branch in enumerate(prepared.program.branches):
        alone = replace(prepared, program=replace(prepared.program, branches=(branch,)))
        step = run(alone, *orders[number : number + 1])
        answer(step)
        total += step.metrics.pairs
    return total


# ---- what is shared ----------------------------------------------------------------------------


def test_branches_of_an_or_find_what_they_begin_with_once() -> None:
    selective = "a.x + b.x < 20 AND c.x > b.x + 60 AND d.x > b.x + 60"
    pattern = seq(A, B, any_of(C, D)).where(selective).within(200)
    prepared = prepare(pattern, rows(3_000))
    together, apart = run(prepared, "abc", "abd"), run(prepared, "abc", "bad")
    assert answer(together) == answer(apart) != Counter()
    orders = together.metrics.orders
    assert [*orders] == ["a→b, shared", "[a b]→c", "[a b]→d"]
    assert together.metrics.pairs == sum(orders.values())
    assert apart.metrics.pairs - together.metrics.pairs == orders["a→b, shared"]


def test_an_optional_part_shares_the_beginning_and_longer_ones_within() -> None:
    pattern = seq(A, B, C.optional(), D.optional()).within(20)
    prepared = prepare(pattern, rows(300))
    step = run(prepared)
    assert sum(answer(step).values()) == 3_582
    assert [order for order in step.metrics.orders if "shared" in order] == [
        "a→b, shared", "[a b]→c, shared",
    ]  # fmt: skip
    assert step.metrics.pairs < pairs_apart(prepared)


def test_blocks_of_any_size_give_the_same() -> None:
    pattern = seq(A, B, any_of(C, D)).where("a.x < b.x AND b.x < c.x").within(30)
    prepared = prepare(pattern, rows(300))
    one, many = run(prepared), run(prepared, block=16)
    assert answer(one) == answer(many)
    assert one.metrics.orders == many.metrics.orders
    assert one.metrics.nodes == many.metrics.nodes


def test_beginnings_whose_nots_differ_are_not_shared() -> None:
    """With c, the NOT lies between a and c; without, between a and b."""
    x = event("x", "kind = 3 AND x < 50")
    given = rows(300)
    nots = prepare(seq(A, no(x), C.optional(), B, D).within(20), given)
    step = run(nots, "abcd", "abd")
    assert answer(step) == answer(run(nots, "dcba", "abd")) != Counter()
    assert not any("shared" in order for order in step.metrics.orders)
    plain = prepare(seq(A, C.optional(), B, D).within(20), given)
    step = run(plain, "abcd", "abd")
    assert answer(step) == answer(run(plain, "dcba", "abd")) != Counter()
    assert "a→b, shared" in step.metrics.orders


# ---- the answer --------------------------------------------------------------------------------


@st.composite
def beginnings(draw: st.DrawFn) -> Case:
    """Two or three parts, a NOT perhaps, and then an OR or optional parts."""
    a, b, c, d, e = (Event(name, draw(own_conditions())) for name in "abcde")
    parts: list[EventPatternNode] = [a, draw(st.sampled_from([b, Repeat(b, 1, 2)]))]
    if draw(st.booleans()):
        parts.insert(1, NoEvent(Event("x", draw(own_conditions()))))
    ends: list[list[EventPatternNode]] = [
        [AnyOf((c, d))],
        [AnyOf((c, Seq((d, e))))],
        [OptionalPart(c), OptionalPart(d)],
        [Repeat(c, 0, 2), d],
        [c, AnyOf((d, e))],
    ]
    parts += draw(st.sampled_from(ends))
    root = draw(st.sampled_from([Seq, Seq, AllOf]))(tuple(parts))
    pattern = Pattern(root, draw(cross_conditions(root)), Within(draw(st.integers(2, 7))), "any")
    return Case(pattern, draw(drawn_rows()), ("t",), ())


def in_pattern_order(settings_of: SettingsOf) -> SettingsOf:
    """All branches in the order of the pattern, so that they begin alike."""
    order = Plan("eager")
    return lambda case: settings_of(case).map(
        lambda setting: replace(setting, plan=order, later_plan=None)
    )


@pytest.mark.parametrize("settings_of", [whole, in_advances], ids=["whole", "in advances"])
def test_branches_that_begin_alike_give_the_answer(settings_of: SettingsOf) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shared = _count_shared(patch)
        agree(100, beginnings(), in_pattern_order(settings_of))
    assert sum(shared) > 100


def _count_shared(patch: pytest.MonkeyPatch) -> list[int]:
    """The partial matches of common beginnings, set by set."""
    counts: list[int] = []
    extend = sharing.BranchRun.extend

    def counted(run: sharing.BranchRun, *given: Any) -> Any:
        for each in extend(run, *given):
            counts.append(len(each.partials))
            yield each

    patch.setattr(sharing.BranchRun, "extend", counted)
    return counts
