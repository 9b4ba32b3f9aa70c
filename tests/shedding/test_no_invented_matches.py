"""Of the rows that may be shed any may go: what stays are exactly the matches that lost no row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spark_cep.expressions.windows import Within
from spark_cep.pattern import all_of, event, iter_events, no, seq
from spark_cep.shed import Shed
from spark_cep.spark.shedding import measure_recall
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.shedding.learning import variable_masks
from spark_cep.udfs.shedding.utility import utilities_of
from tests.cases import Case, has_two_readings
from tests.local import Pipeline, Setting
from tests.reference.assignments import TooMany
from tests.reference.matcher import matches, without_marks
from tests.shedding.learned import looked
from tests.strategies import cases

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern
    from spark_cep.udfs.shedding.utility import SheddingPolicy
    from tests.reference.matcher import Match

EXAMPLES, STEPS = 300, 20_000
FEWER = 60

same_examples = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def with_time_windows(draw: st.DrawFn) -> Case:
    """Any operators, with the rules under which something may be shed."""
    case = draw(cases(("any",)))
    window = case.pattern.window
    if window is not None and window.events is None:
        return case
    return replace(case, pattern=replace(case.pattern, window=Within(draw(st.integers(2, 6)))))


def all_matches(case: Case) -> set[Match]:
    try:
        return matches(
            case.pattern,
            case.rows,
            order_by=case.order_by,
            partition_by=case.partition_by,
            steps=STEPS,
        )
    except TooMany:
        assume(False)
        return set()


def of_engine(pipeline: Pipeline, table: pa.Table) -> Counter[Match]:
    step = advance_events(pipeline.program, EventState(), table, None)
    found: Counter[Match] = Counter()
    for each in step.matches:
        found.update(pipeline.read(step.events.table, step.events.rows, each))
    return found


def without(dropped: set[int], found: Iterable[Match]) -> list[Match]:
    """The matches that have none of these rows."""

    def rows(match: Match) -> set[int]:
        bound = [each if isinstance(each, tuple) else (each,) for _, each in match]
        return {row for each in bound for row in each if row is not None}

    return [match for match in found if not rows(match) & dropped]


def agree(case: Case, found: Counter[Match], expected: list[Match]) -> None:
    if has_two_readings(case.pattern.root):
        expected, found = without_marks(expected), Counter(without_marks(found.elements()))
    wanted = Counter(expected)
    assert {"lost": dict(wanted - found), "invented": dict(found - wanted)} == {
        "lost": {},
        "invented": {},
    }


def positions(pipeline: Pipeline, case: Case, table: pa.Table, chosen: np.ndarray) -> set[int]:
    """The rows of the case that stand at these places of the table."""
    ids = {row["u"]: place for place, row in enumerate(case.rows)}
    names = table.column(pipeline.row).to_pylist()
    return {ids[names[place]] for place in np.flatnonzero(chosen)}


def mask_of(pipeline: Pipeline, table: pa.Table) -> np.ndarray:
    return np.array(table.column(pipeline.program.mask).to_pylist(), dtype=np.int64)


def test_any_rows_that_may_be_shed_may_be_missing() -> None:
    seen: Counter[str] = Counter()

    @same_examples
    @given(with_time_windows(), st.data())
    def holds(case: Case, data: st.DataObject) -> None:
        full = all_matches(case)
        pipeline = Pipeline(case, Setting())
        table = pipeline.table(0)
        utilities = utilities_of((), *variable_masks(pipeline.program))
        count = table.num_rows
        drawn = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
        gone = utilities.may_be_shed(mask_of(pipeline, table)) & np.array(drawn, dtype=np.bool_)
        found = of_engine(pipeline, table.filter(pa.array(~gone)))
        expected = without(positions(pipeline, case, table, gone), full)
        negated = any(is_negated for _, is_negated in iter_events(case.pattern.root))
        seen["lost some, kept some"] += 0 < len(expected) < len(full)
        seen["with a NOT"] += negated and len(expected) < len(full)
        agree(case, found, expected)

    holds()
    assert min(seen.values()) > EXAMPLES / 20


@pytest.mark.parametrize("policy", ["utility", "random", "frequency", "espice"])
def test_no_policy_and_share_invents_a_match(policy: SheddingPolicy) -> None:
    lost = 0

    @settings(same_examples, max_examples=FEWER)
    @given(with_time_windows(), st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    def holds(case: Case, share: float) -> None:
        nonlocal lost
        full = all_matches(case)
        pipeline = Pipeline(case, Setting())
        table = pipeline.table(0)
        assume(table.num_rows)
        found = looked(pipeline.program, table, Shed(keep=share, policy=policy))
        kinds = found.kinds(share)
        stays = found.stays(kinds)
        gone = positions(pipeline, case, found.sample, ~stays)
        expected = without(gone, full)
        lost += len(expected) < len(full)
        agree(case, of_engine(pipeline, found.sample.filter(pa.array(stays))), expected)
        counted = measure_recall(found, kinds)
        if not has_two_readings(case.pattern.root):
            assert counted == (len(full), len(expected))

    holds()
    assert lost > FEWER / 10


# ---- by hand -----------------------------------------------------------------------------------

A, B, X = event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("x", "kind <> 'C'")


@pytest.mark.parametrize(
    ("pattern", "may_go"),
    [
        (seq(A, B), ["A", "B", "A"]),
        (seq(A, no(event("x", "kind = 'C'")), B), ["A", "B", "A"]),
        # A row that may be a variable and what NOT looks for stays.
        (seq(A, no(X), B), []),
        (seq(A, no("x"), B), []),
        (all_of(A, no(event("x", "kind = 'A'"))), []),
        (seq(no(event("x", "kind = 'B'")), A.times("+")), ["A", "A"]),
        (seq(seq(A, no(event("x", "kind = 'A'")), B).times("+")), ["B"]),
    ],
)
def test_what_a_not_could_need_is_never_among_them(pattern: Pattern, may_go: list[str]) -> None:
    rows = [
        {"t": t, "u": t, "k": 1, "x": 0, "f": 0.0, "kind": kind} for t, kind in enumerate("ABCA")
    ]
    pipeline = Pipeline(Case(pattern.within(9), rows), Setting())
    utilities = utilities_of((), *variable_masks(pipeline.program))
    found = utilities.may_be_shed(mask_of(pipeline, pipeline.table(0)))
    assert [kind for kind, may in zip("ABCA", found, strict=True) if may] == may_go
