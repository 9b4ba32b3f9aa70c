"""Which group of slots a stream keeps: APAM's equations over triggers."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from spark_cep.udfs.costs import OperationCosts
from spark_cep.udfs.planning.streams import (
    MAX_SLOTS_FOR_ALL_GROUPS,
    GroupComparison,
    StreamPlanGenerator,
    StreamPlanOptions,
)
from spark_cep.udfs.program import Estimates, StreamLoad
from tests.planning.branches import compared, estimates, model

SLOW = OperationCosts(pair=1e-6, result=1e-6, insert=1e-6)
CHAIN = [compared(0, 1), compared(1, 2)]


def known(*selectivities: float, load: StreamLoad | None = None) -> Estimates:
    return replace(estimates([50, 50, 50], *selectivities), load=load)


def test_without_a_load_there_is_no_latency() -> None:
    options = StreamPlanOptions(model(3, CHAIN), known(0.01, 0.5), SLOW)
    assert all(options.option(group).latency == inf for group in options.groups())


def test_a_queue_that_grows_has_no_latency_and_is_worse_than_one_that_does_not() -> None:
    generator = StreamPlanGenerator(model(3, CHAIN), SLOW)
    lazy = StreamPlanOptions(model(3, CHAIN), known(0.01, 0.5, load=StreamLoad(30.0)), SLOW)
    each = lazy.option(()).seconds / 30
    slow = StreamLoad(30.0, dict.fromkeys(range(3), 0.5 / each / 3))
    fast = StreamLoad(30.0, dict.fromkeys(range(3), 2.0 / each / 3))
    for load, keeps_up in ((slow, True), (fast, False)):
        now = known(0.01, 0.5, load=load)
        option = generator.options(now).option(())
        assert (option.latency < inf) is keeps_up
        assert (generator.value(now, ()) < 1e3 * option.seconds) is keeps_up


def test_a_match_waits_for_the_other_events_of_its_trigger() -> None:
    branch = model(3, CHAIN)
    arrivals = dict.fromkeys(range(3), 1e-9)
    one, many = (
        StreamPlanOptions(branch, known(0.01, 0.5, load=StreamLoad(events, arrivals)), SLOW)
        for events in (1.0, 100.0)
    )
    for group in one.groups():
        service = many.option(group).seconds - one.option(group).seconds
        assert many.option(group).latency - one.option(group).latency == pytest.approx(service)


def test_few_events_make_the_last_one_fast_and_many_make_the_work_small() -> None:
    # Pairs of a and b hardly ever fit, but there are many of both: keeping them is work for every
    # event, and saves work of the few last ones.
    now = estimates([400, 400, 1], 0.2, 0.5)
    arrivals = {0: 4e-6, 1: 4e-6, 2: 1e-8}
    few = replace(now, load=StreamLoad(1.0, arrivals))
    by_latency = StreamPlanGenerator(model(3, CHAIN), SLOW, "latency").make(few)
    by_work = StreamPlanGenerator(model(3, CHAIN), SLOW, "throughput").make(few)
    assert by_latency.eager == (0, 1)
    assert by_work.eager == ()


def test_balanced_is_latency_while_triggers_keep_up() -> None:
    branch, arrivals = model(3, CHAIN), dict.fromkeys(range(3), 1e-6)
    values = {
        (objective, is_idle): StreamPlanGenerator(branch, SLOW, objective).value(
            known(0.01, 0.5, load=StreamLoad(5.0, arrivals, is_idle)), (0, 1)
        )
        for objective in ("balanced", "latency", "throughput")
        for is_idle in (True, False)
    }
    assert values["balanced", True] == values["latency", True] != values["throughput", True]
    assert values["balanced", False] == values["throughput", False] != values["latency", False]


def test_the_comparisons_of_the_best_group_hold_until_another_is_better() -> None:
    generator = StreamPlanGenerator(model(3, CHAIN), SLOW)
    then = known(0.01, 0.5, load=StreamLoad(5.0))
    made = generator.make(then)
    (block,) = made.blocks
    assert all(isinstance(each, GroupComparison) and each.holds(then) for each in block.conditions)
    assert len(block.conditions) == len(list(generator.options(then).groups())) - 1
    for first in (0.01, 0.1, 0.9):
        for second in (0.001, 0.5):
            now = known(first, second, load=StreamLoad(5.0))
            is_same = generator.make(now).eager == made.eager
            assert all(each.holds(now) for each in block.conditions) == is_same


def test_many_slots_have_the_prefixes_of_two_orders_only() -> None:
    size = MAX_SLOTS_FOR_ALL_GROUPS + 2
    branch = model(size, [compared(i, i + 1) for i in range(size - 1)])
    found = list(StreamPlanOptions(branch, estimates([5] * size, *[0.5] * 6), SLOW).groups())
    assert len(found) <= 2 * size
    assert found[0] == ()
    assert all(len(group) < size for group in found)
