"""Any split of the rows into triggers, in any order that the watermark allows, gives the answer
over all of them, each match once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.pattern import event, no, seq
from spark_cep.udfs.events import adaptive
from spark_cep.udfs.execution import segments
from spark_cep.udfs.planning import streams
from spark_cep.udfs.program import Plan
from tests.cases import Case, has_two_readings
from tests.random_cases import random_cases
from tests.reference.assignments import TooMany
from tests.reference.matcher import matches
from tests.strategies import cases
from tests.streaming.triggers import Course, courses, filled, streamed

if TYPE_CHECKING:
    import pytest

QUICK = 200
STEPS = 20_000


def agree(examples: int, drawn: st.SearchStrategy[Case], *, adapts: bool = False) -> None:
    @random_cases(examples)
    @given(drawn, st.data())
    def compare(case: Case, data: st.DataObject) -> None:
        assume(case.pattern.window is not None and case.pattern.window.events is None)
        course = data.draw(courses(case), label="course")
        check(case, replace(course, adapts=adapts))

    compare()


def check(case: Case, course: object) -> None:
    try:
        expected = Counter(
            matches(
                case.pattern,
                case.rows,
                order_by=case.order_by,
                partition_by=case.partition_by,
                steps=STEPS,
            )
        )
    except TooMany:
        assume(False)
    found = filled(sum(streamed(case, course), Counter()))  # type: ignore[arg-type]
    shown = filled(expected)
    if has_two_readings(case.pattern.root):
        shown, found = Counter(set(shown)), Counter(set(found))
    missing, surplus = shown - found, found - shown
    assert {"missing": dict(missing), "surplus": dict(surplus)} == {"missing": {}, "surplus": {}}


def test_skip_till_any_match() -> None:
    agree(QUICK, cases(("any",)))


def test_plans_that_change_and_keep_partial_matches_between_triggers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adaptive, "REPLANNING_SECONDS", 0.0)
    monkeypatch.setattr(adaptive, "MAX_NEW_SHARE", 1.0)
    monkeypatch.setattr(adaptive, "CLEAR_GAIN", 1.0)
    monkeypatch.setattr(streams, "KEEPING_SECONDS", 0.0)
    monkeypatch.setattr(streams, "PREFIX_SECONDS", 0.0)
    agree(QUICK, cases(("any",)), adapts=True)


def test_skip_till_next_match() -> None:
    agree(QUICK, cases(("next",)))


def test_strict() -> None:
    agree(QUICK, cases(("strict",)))


def test_consume() -> None:
    agree(QUICK, cases(("any", "next", "strict"), consuming=True))


def test_segments_that_are_always_written_anew_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segments, "_LITTLE_WASTE", 0)
    monkeypatch.setattr(segments, "_MOST_SEGMENTS", 2)
    agree(QUICK // 4, cases(("any", "next", "strict")))
    agree(QUICK // 4, cases(("any", "next"), consuming=True))


def test_partial_matches_are_found_again_among_rows_that_still_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adaptive, "REPLANNING_SECONDS", 0.0)
    monkeypatch.setattr(adaptive, "MAX_NEW_SHARE", 1.0)
    monkeypatch.setattr(adaptive, "CLEAR_GAIN", 1.0)
    monkeypatch.setattr(streams, "KEEPING_SECONDS", 0.0)
    monkeypatch.setattr(streams, "PREFIX_SECONDS", 0.0)
    kinds = [event("a", "kind = 'B'"), event("b", "kind = 'A'"), event("c", "kind = 'A'")]
    pattern = seq(no(event("y", "kind = 'A'")), *kinds).within(3).strategy("skip till any match")
    # The row of time 2 waits in the state between rows that do not.
    times = [*[0] * 8, 0, 2, 1, 2, 0, 0]
    rows = [
        {"t": t, "u": u, "k": 1, "x": 0, "f": 0.0, "kind": "B" if u == 8 else "A"}
        for u, t in enumerate(times)
    ]
    arrives = tuple(int(u == 11) for u in range(len(rows)))
    check(Case(pattern, rows), Course(Plan("lazy-chain"), arrives, 2, adapts=True))
