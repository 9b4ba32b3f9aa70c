"""A match is given in the trigger in which it becomes certain, and not before.

Certain: it is in the answer whatever rows later than the horizon follow. Not before is compared
with that definition itself, by brute force. As soon as holds to the trigger for

    skip-till-any without NOT      at once, also where rows have come ahead of the horizon
    NOT behind the last part       when the horizon is a window behind the earliest row
    next and strict                when all runs from the match's first row have ended

and where a program has parts of several kinds, for the one that waits longest. The engine is later
than the definition, and never later than `due` here says, where

    NOT lies between parts         the horizon has to pass the latest row, not that behind the NOT
    an OR has a NOT in one branch  matches of the other branch wait as if they had it
    several runs leave one row     matches of those that have ended wait for the last one
    matches are consumed           the horizon has to pass the latest row, and where one with NOT at
                                   the end or of next and strict could take its rows, a window more
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.pattern import all_of, any_of, event, no, seq
from spark_cep.udfs.events.context import deciding_row, latest_row_waits
from tests.cases import Case
from tests.local import EAGER, Pipeline, Setting
from tests.random_cases import random_cases
from tests.reference.assignments import TooMany
from tests.reference.matcher import matches
from tests.strategies import cases
from tests.strategies import rows as random_rows
from tests.streaming.triggers import Course, Stream, courses, filled, followed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.pattern import Pattern
    from spark_cep.udfs.program import Program
    from tests.reference.matcher import Match

EXAMPLES = 50
STEPS = 5_000
A, B, C = (event(name, f"kind = '{name.upper()}'") for name in "abc")
BS = event("b+", "kind = 'B'")
X = no(event("x", "kind = 'X'"))


# ---- by hand -----------------------------------------------------------------------------------


def when(pattern: Pattern, *triggers: tuple[str, int]) -> list[int]:
    """How many matches each trigger gives. A trigger is rows like "A1 B3", kind and time, and the
    horizon."""
    texts = [(text, at) for at, (rows, _) in enumerate(triggers) for text in rows.split()]
    rows = [
        {"t": int(text[1:]), "u": u, "k": 1, "x": 0, "f": None, "kind": text[0]}
        for u, (text, _) in enumerate(texts)
    ]
    stream = Stream(Case(pattern, rows), EAGER)
    arrives = np.array([at for _, at in texts])
    return [
        sum(stream.trigger(np.flatnonzero(arrives == at), horizon).values())
        for at, (_, horizon) in enumerate(triggers)
    ]


def test_any_match_is_given_at_once_ahead_of_the_watermark() -> None:
    pattern = seq(A, B).within(5)
    assert when(pattern, ("A1 B3", -9), ("B2", -9), ("", 9)) == [1, 1, 0]
    assert when(pattern, ("B3", -9), ("A1", 0), ("", 9)) == [0, 1, 0]
    assert when(all_of(A, B).within(5), ("B3", -9), ("A4", 0)) == [0, 1]
    assert when(seq(A, BS).within(5), ("A1 B2", -9), ("B3", -9), ("", 9)) == [1, 2, 0]


def test_a_not_behind_the_last_part_waits_for_the_end_of_its_window() -> None:
    pattern = seq(A, B, X).within(5)
    assert when(pattern, ("A1 B3", 3), ("", 5), ("", 6), ("", 9)) == [0, 0, 1, 0]
    assert when(pattern, ("A1 B3", 3), ("X6", 5), ("", 9)) == [0, 0, 0]
    assert when(pattern, ("A1 B3 X7", 3), ("", 6)) == [0, 1]
    assert when(all_of(A, X).within(5), ("A1", 5), ("", 6)) == [0, 1]


def test_a_not_between_or_before_waits_for_the_watermark_to_pass_the_match() -> None:
    between = seq(A, X, B).within(5)
    assert when(between, ("A1 B3", 2), ("", 3)) == [0, 1]
    assert when(between, ("A1 B3", 1), ("X2", 3)) == [0, 0]
    before = seq(X, A, B).within(5)
    assert when(before, ("A2 B3", 2), ("", 3)) == [0, 1]
    # Nothing can come between them any more, but C has not been passed.
    assert when(seq(A, X, B, C).within(5), ("A1 B2 C4", 3), ("", 4)) == [0, 1]


def test_a_not_inside_a_repeated_group_waits_for_the_watermark_too() -> None:
    pairs = seq(seq(A, X, B).times("{1,2}")).within(5)
    assert when(pairs, ("A1 B3", 2), ("", 3)) == [0, 1]
    assert when(pairs, ("A1 B3", 1), ("X2", 3)) == [0, 0]


def test_a_run_of_next_or_strict_ends_with_its_last_row_or_its_window() -> None:
    pairs = seq(A, B).within(5)
    for strategy in ("skip till next match", "strict"):
        pattern = pairs.strategy(strategy)
        assert when(pattern, ("A1 B3", 1), ("", 2), ("", 3)) == [0, 0, 1]
    pattern = seq(A, BS).within(5).strategy("skip till next match")
    # It can grow until its window has passed, and only the longest is given.
    assert when(pattern, ("A1 B2", 2), ("B4", 5), ("", 6)) == [0, 0, 1]
    # Under strict the first row that is no B ends it.
    pattern = seq(A, BS).within(5).strategy("strict")
    assert when(pattern, ("A1 B2", 2), ("B3", 3), ("C4", 4)) == [0, 0, 1]
    bounded = seq(A, event("b{1,2}", "kind = 'B'")).within(9).strategy("skip till next match")
    assert when(bounded, ("A1 B2", 2), ("B4", 4)) == [0, 1]
    closed = seq(A, BS, C).within(9).strategy("skip till next match")
    assert when(closed, ("A1 B2", 2), ("B4 C5", 4), ("", 5)) == [0, 0, 1]


def test_consumed_matches_come_in_the_order_of_their_latest_rows() -> None:
    pattern = seq(A, B).within(5).consumption("consume")
    # A row at 2 could still take A.
    assert when(pattern, ("A1 B3", 1), ("B2", 2), ("", 3)) == [0, 1, 0]
    pattern = pattern.strategy("skip till next match")
    assert sum(when(pattern, ("A1 B3", 1), ("B2", 2), ("", 3), ("", 8))) == 1


def test_a_window_of_events_waits_for_the_watermark() -> None:
    pattern = seq(A, B).within(events=3)
    assert when(pattern, ("A1 B3", 1), ("C2", 2), ("", 3)) == [0, 0, 1]
    assert when(pattern, ("A1 B4", 1), ("C2 C3", 3), ("", 4)) == [0, 0, 0]


def test_branches_of_an_or_wait_together() -> None:
    pattern = any_of(A, seq(B, X)).within(5)
    # Nothing can change the match of A; it waits as if it had the NOT.
    assert when(pattern, ("A1", 1), ("", 5), ("", 6)) == [0, 0, 1]


# ---- by the definition -------------------------------------------------------------------------


def answered(case: Case, rows: Sequence[Any]) -> set[Match]:
    try:
        found = matches(
            case.pattern,
            rows,
            order_by=case.order_by,
            partition_by=case.partition_by,
            steps=STEPS,
        )
    except TooMany:
        assume(False)
    return set(filled(Counter(found)))


def due(case: Case, program: Program, match: Any, horizon: int) -> bool:
    """Whether the match has to have been given by now, if it is in the answer."""
    assert program.window is not None
    places = [p for _, value in match for p in (value if isinstance(value, tuple) else (value,))]
    times = [case.rows[place]["t"] for place in places]
    by, window = deciding_row(program), int(program.window.size)
    if by == "any":
        return True
    if by == "latest":
        waits = program.consumption == "consume" and latest_row_waits(program)
        return max(times) + (window if waits else 0) <= horizon
    return min(times) + window <= horizon


def named(found: set[Match], known: Sequence[int]) -> set[Any]:
    """Matches of the known rows by the rows' places in the case; others are left out."""

    def places(value: Any) -> Any:
        return tuple(map(places, value)) if isinstance(value, tuple) else known[value]

    def rows(value: Any) -> tuple[int, ...]:
        return value if isinstance(value, tuple) else (value,)

    return {
        tuple((name, places(value)) for name, value in match)
        for match in found
        if all(row < len(known) for _, value in match for row in rows(value))
    }


def later_rows(data: st.DataObject, horizon: int, first: int) -> list[dict[str, Any]]:
    """A few rows that may still come. Most of them soon, where they can do something."""
    drawn = data.draw(random_rows(), label="later")[:4]
    return [
        {**row, "t": max(horizon, -3) + 1 + abs(row["t"] or 0) % 6, "u": first + place}  # type: ignore[call-overload]
        for place, row in enumerate(drawn)
    ]


def agree(examples: int, drawn: st.SearchStrategy[Case]) -> None:
    @random_cases(examples)
    @given(drawn, st.data())
    def compare(case: Case, data: st.DataObject) -> None:
        window = case.pattern.window
        assume(window is not None and window.events is None)
        course = data.draw(courses(case), label="course")
        check(case, course, data)

    compare()


def check(case: Case, course: Course, data: st.DataObject) -> None:
    so_far: set[Any] = set()
    program = Pipeline(case, Setting(EAGER)).program
    for trigger in followed(case, course):
        so_far |= set(filled(trigger.matches))
        rows = [case.rows[place] for place in trigger.known]
        now = named(answered(case, rows), trigger.known)
        missing = {match for match in now - so_far if due(case, program, match, trigger.horizon)}
        for _ in range(2):
            later = later_rows(data, trigger.horizon, len(case.rows))
            then = named(answered(case, [*rows, *later]), trigger.known)
            assert not so_far - then, f"given, and no match with {later}"
            # What later rows can undo need not have been given.
            missing &= then
        assert not missing, f"certain at {trigger.horizon}"


def test_skip_till_any_match() -> None:
    agree(EXAMPLES, cases(("any",)))


def test_skip_till_next_match_and_strict() -> None:
    agree(EXAMPLES, cases(("next", "strict")))


def test_consume() -> None:
    agree(EXAMPLES, cases(("any", "next", "strict"), consuming=True))
