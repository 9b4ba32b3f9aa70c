"""Work that falls into a later trigger is charged to the rows that cause it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spark_cep.pattern import Pattern, event, no, seq
from spark_cep.udfs.events import waiting
from spark_cep.udfs.program import Plan
from spark_cep.udfs.shedding.ledger import Charge, Ledger
from spark_cep.udfs.shedding.pace import FIXED_SECONDS, ROW_SECONDS, TriggerArrival
from spark_cep.udfs.shedding.shedder import JoinedRows, Shedder, get_shedder
from spark_cep.udfs.shedding.utility import StreamSheddingSpec
from tests.cases import Case
from tests.programs import prepare
from tests.streaming.triggers import Stream

LATENCY = StreamSheddingSpec(None, 1.0, None, "utility", 0.8, 0, 1)


def charge(rows: int, first: int, last: int, horizon: int, *, came: int | None = None) -> Charge:
    return Charge(came or rows, rows, 2 * rows, 1.0, rows / 100, first, last, horizon)


# ---- the ledger alone --------------------------------------------------------------------------


def test_the_oldest_rows_are_joined_and_the_newest_are_owed() -> None:
    ledger = Ledger(defers=True)
    assert ledger.settle(charge(100, 0, 100, -1, came=300), joined=0, owed=100) is None
    joined = ledger.settle(charge(10, 101, 110, 100), joined=100, owed=10)
    assert joined is not None
    assert (joined.came, joined.kept, joined.seconds) == (300, 100, 1.0)
    # Of the ten, four were not joined; those that came with them are owed too.
    joined = ledger.settle(charge(5, 111, 115, 105), joined=6, owed=9)
    assert joined is not None
    assert (joined.came, joined.kept) == (pytest.approx(6), pytest.approx(6))


def test_rows_that_the_horizon_has_passed_are_due() -> None:
    ledger = Ledger(defers=True)
    ledger.settle(charge(100, 0, 100, -1), joined=0, owed=100)
    assert ledger.due(-1) == (0, 0)
    assert ledger.due(25) == (25, 50)
    assert ledger.due(100) == (100, 200)
    late = Ledger(defers=True, delay=50)
    late.settle(charge(100, 0, 100, -1), joined=0, owed=100)
    assert late.due(75) == (25, 50)


def test_rows_that_came_since_the_horizon_moved_are_joined_together() -> None:
    ledger = Ledger(defers=True)
    ledger.settle(charge(100, 0, 100, -1), joined=0, owed=100)
    ledger.settle(charge(50, 101, 150, -1), joined=0, owed=150)
    assert ledger.seconds_beside(-1) == pytest.approx(1.5)
    assert ledger.seconds_beside(150) == 0


def test_matches_that_overflow_leave_their_rows_to_a_later_trigger() -> None:
    ledger = Ledger(defers=False)
    joined = ledger.settle(charge(100, 0, 100, -1, came=200), joined=100, owed=80)
    assert joined is not None
    assert (joined.came, joined.kept) == (200, 100)
    again = ledger.settle(charge(1, 101, 101, 100), joined=80, owed=1)
    assert again is not None
    assert (again.came, again.kept) == (pytest.approx(160), pytest.approx(80))


def test_a_bucket_that_was_elsewhere_counts_what_its_state_says() -> None:
    ledger = Ledger(defers=True)
    ledger.settle(charge(100, 0, 100, -1), joined=0, owed=100)
    # Meanwhile another worker has joined them.
    joined = ledger.settle(charge(10, 501, 510, 500), joined=7, owed=10)
    assert joined is not None
    assert joined.kept == 7
    # And a worker that never saw the rows takes it that none of them was dropped.
    joined = Ledger(defers=True).settle(charge(10, 501, 510, 500), joined=70, owed=10)
    assert joined is not None
    assert (joined.kept, joined.came) == (70, 70)


# ---- how many rows stay ------------------------------------------------------------------------

# Repeated groups number their iterations in each trigger anew, so their matches cannot wait.
REPEATED = (
    seq(
        event("a", "kind = 'a'"),
        no(event("n", "kind = 'n'")),
        seq(event("b", "kind = 'b'"), event("c", "kind = 'c'")).times(1, 2),
    )
    .where("b.x > a.x", "c.x > b.x")
    .within(60)
)


@dataclass
class Bucket:
    """The only bucket of a stream whose watermark follows its rows, on a clock of its own. A row
    that is joined takes `row_seconds`, whenever that is."""

    row_seconds: float
    now: float = 1000.0
    _came: int = 0
    _number: int = 0
    _owed: int = 0

    def __post_init__(self) -> None:
        self.shedder = Shedder(LATENCY, self._rows(9).program, clock=lambda: self.now)

    def trigger(self, rows: int) -> tuple[int, float]:
        """How many rows were dropped, and the seconds of the trigger."""
        table, horizon = self._rows(rows).table, self._came - 1
        self._came, self._number = self._came + rows, self._number + 1
        arrival = TriggerArrival(self.now, rows)
        turn = self.shedder.turn(0, str(self._number), arrival, rows, horizon)
        admitted = self.shedder.admit(turn, table)
        kept = admitted.rows.num_rows
        work = self.row_seconds * self._owed
        seconds = FIXED_SECONDS + ROW_SECONDS * kept + work
        self.now += seconds
        self.shedder.record(turn, admitted, seconds, JoinedRows(self._owed, kept, defers=True))
        self._owed = kept
        return rows - kept, seconds

    def _rows(self, count: int) -> Any:
        random = np.random.default_rng(0)
        times = np.arange(self._came, self._came + count)
        kinds = np.array(["a", "b", "c"])[times % 3]
        return prepare(REPEATED, {"t": times, "kind": kinds, "x": random.normal(size=count)})


def test_a_light_trigger_is_not_shed_for_the_rows_of_a_full_one() -> None:
    bucket = Bucket(100e-6)
    for _ in range(4):
        assert bucket.trigger(1_000)[0] == 0
    # There is 0.4 s for the work of the rows, which is 1.2 s, in whichever trigger it falls.
    dropped, seconds = bucket.trigger(12_000)
    assert dropped > 6_000
    assert seconds < 0.15
    dropped, seconds = bucket.trigger(200)
    assert dropped == 0
    assert 0.25 < seconds < 0.45
    for _ in range(8):
        assert bucket.trigger(200)[0] == 0
    assert bucket.trigger(12_000)[0] > 6_000
    assert bucket.trigger(200)[0] == 0


def test_full_triggers_in_a_row_have_the_time_of_one_each() -> None:
    bucket = Bucket(100e-6)
    for _ in range(4):
        bucket.trigger(1_000)
    triggers = [bucket.trigger(12_000) for _ in range(8)]
    kept = [12_000 - dropped for dropped, _ in triggers]
    assert min(kept) > 1_500
    assert max(seconds for _, seconds in triggers) < 0.6


# ---- what the engine counts --------------------------------------------------------------------


def stream(pattern: Pattern, triggers: list[int]) -> list[tuple[Any, Any]]:
    """The rows joined in each trigger, and those that the ledger has after it."""
    size = sum(triggers)
    rows = [{"t": t, "u": t, "k": 1, "x": t * 7 % 5, "f": 0.5, "kind": "abc"[t % 3]}
            for t in range(size)]  # fmt: skip
    of = Stream(Case(pattern, rows), Plan("eager"), shed=NEVER)
    shedder = get_shedder(of.job.token, NEVER, of.job.program)
    found, came = [], 0
    for count in triggers:
        metrics = of.metrics
        of.trigger(np.arange(came, came + count), came - 1)
        came += count
        found.append((metrics[-1]["joined_rows"], shedder.owed_rows(0)))
    return found


NEVER = StreamSheddingSpec(None, 3600.0, None, "utility", 0.8, 0, 1)


def test_rows_of_repeated_groups_under_not_are_joined_behind_the_watermark() -> None:
    found = stream(REPEATED.within(6), [60, 90, 3, 6])
    assert found == [(0, 60), (60, 90), (90, 3), (3, 6)]


WAITING = seq(event("a", "kind = 'a'"), no(event("n", "kind = 'n'")), event("b", "kind = 'b'"))


def test_rows_whose_matches_wait_are_joined_at_once() -> None:
    assert stream(WAITING.within(6), [60, 90, 3, 6]) == [(60, 0), (90, 0), (3, 0), (6, 0)]


def test_rows_whose_matches_overflow_are_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_WAITING", 10)
    found = stream(WAITING.within(6), [9, 90, 3, 6])
    assert found[:3] == [(9, 0), (90, 90), (90, 3)]
