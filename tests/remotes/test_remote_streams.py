"""Remote data on streams: the same matches in every trigger, values kept between triggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.pattern import event, seq
from spark_cep.udfs.expressions import BIGINT, Call, RemoteCall
from spark_cep.udfs.program import Plan
from spark_cep.udfs.remote_spec import RemoteSpec
from spark_cep.udfs.remotes import lookup as lookups
from tests.cases import Case
from tests.random_cases import random_cases
from tests.reference.assignments import TooMany
from tests.reference.matcher import matches
from tests.remotes.looked_up import STRATEGIES, looked_up, sources
from tests.strategies import cases
from tests.streaming.triggers import Stream, courses, followed

if TYPE_CHECKING:
    from tests.reference.matcher import Match

_tokens = count()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    lookups.forget_lookups()


def with_remotes(stream: Stream, strategies: Any, seed: int) -> Stream:
    program = stream.job.program
    remotes = sources(strategies, f"query {next(_tokens)}")
    conditions = looked_up(program, Random(seed))  # type: ignore[arg-type]
    changed = replace(program, conditions=conditions, remotes=remotes)
    stream.job = replace(stream.job, program=changed)
    return stream


@pytest.mark.parametrize("selection", ["any", "next"])
def test_every_trigger_gives_what_it_gives_without_remote_data(selection: str) -> None:
    @random_cases(120)
    @given(cases((selection,)), st.data())
    def compare(case: Case, data: st.DataObject) -> None:
        assume(case.pattern.window is not None and case.pattern.window.events is None)
        course = data.draw(courses(case), label="course")
        strategies = [data.draw(st.sampled_from(STRATEGIES)) for _ in range(3)]
        try:
            matches(case.pattern, case.rows, order_by=case.order_by,
                    partition_by=case.partition_by, steps=20_000)  # fmt: skip
        except TooMany:
            assume(False)
        plain = [each.matches for each in followed(case, course)]
        seed = data.draw(st.integers(0, 99))
        stream = with_remotes(Stream(case, course.plan), strategies, seed)
        assert [each.matches for each in followed(case, course, stream)] == plain

    compare()


# ---- what is kept, and what is fetched ahead ---------------------------------------------------


class Calls:
    """A source that notes the keys of each call."""

    def __init__(self) -> None:
        self.keys: list[int] = []

    def __call__(self, keys: list[int]) -> dict[int, int]:
        self.keys += keys
        return {key: key for key in keys}


ROWS = [
    {"t": t, "k": 1, "x": t % 3, "f": 0.0, "kind": "A" if t < 6 else "B", "u": t} for t in range(9)
]


CASE = Case(
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).where("a.x <= b.t").within(100),
    ROWS, order_by=("t",), partition_by=("k",),
)  # fmt: skip


def stream_of(remote: RemoteSpec, case: Case = CASE) -> Stream:
    """a then b with a looked-up value of a's x, which always holds."""
    stream = Stream(case, Plan("eager"))
    program = stream.job.program
    (condition,) = program.conditions
    compared = condition.expression
    assert isinstance(compared, Call)
    cell, other = compared.arguments
    expression = replace(compared, arguments=(RemoteCall(0, (cell,), BIGINT), other))
    changed = replace(program, conditions=(replace(condition, expression=expression),),
                      remotes=(remote,))  # fmt: skip
    stream.job = replace(stream.job, program=changed)
    return stream


def remote_of(calls: Calls, strategy: Any, **more: Any) -> RemoteSpec:
    token = f"query {next(_tokens)}"
    return RemoteSpec("r", calls, (pa.int64(),), pa.int64(), strategy, token=token, **more)


def in_triggers(stream: Stream, *rows: list[int]) -> list[Counter[Match]]:
    return [stream.trigger(np.array(each, dtype=np.int64), 0) for each in rows]


def test_values_live_over_triggers() -> None:
    calls = Calls()
    stream = stream_of(remote_of(calls, "cached"))
    found = in_triggers(stream, [0, 1, 2, 6], [3, 4, 7], [8])
    assert [sum(each.values()) for each in found] == [3, 2 + 5, 5]
    assert sorted(calls.keys) == [0, 1, 2]


def test_values_are_fetched_anew_when_they_are_too_old() -> None:
    calls = Calls()
    stream = stream_of(remote_of(calls, "cached", ttl=0.0))
    in_triggers(stream, [0, 1, 2, 6], [7], [8])
    assert sorted(calls.keys) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_rows_that_wait_for_a_partner_are_looked_up_between_triggers() -> None:
    calls = Calls()
    remote = remote_of(calls, "prefetch")
    stream = stream_of(remote)
    in_triggers(stream, [0, 1, 2])
    (lookup,) = lookups.get_lookups((remote,), "stream", "0")
    lookup.wait(lookup.ids([pa.array([0, 1, 2])]))
    assert sorted(calls.keys) == [0, 1, 2]
    in_triggers(stream, [6])
    assert sorted(calls.keys) == [0, 1, 2]
    assert stream.metrics[-1]["remotes"]["r"]["prefetched_used"] == 3


def test_without_prefetching_nothing_is_fetched_before_it_is_needed() -> None:
    calls = Calls()
    stream = stream_of(remote_of(calls, "lazy"))
    in_triggers(stream, [0, 1, 2])
    assert calls.keys == []
