"""How long the triggers of a bucket take, and so how many rows one may have: DARLING's N_in, the
global constraint.

`TriggerTimeModel` predicts the time of a trigger, `TimeBudget` says how much of the trigger a
bucket may use, `RowDensity` how many rows meet in event time, and `TriggerArrival` when the rows of
the trigger arrived and how many all buckets have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt


# ---- arrival -------------------------------------------------------------------------------------
#
# A bucket sees only its own rows. The task that packs rows notes when it began and how many rows it
# had for all buckets. So a bucket knows its part of the trigger's rows, and how much of the time
# has passed.


_ARRIVAL_KEY: Final = b"spark_cep_arrival"


@dataclass(frozen=True)
class TriggerArrival:
    """`began`: when the first task of the trigger began to pack, in seconds since 1970. `rows`: the
    rows of the trigger in all buckets."""

    began: float
    rows: int


def note_arrival(began: float) -> Callable[[pa.Table], pa.Table]:
    """A function that adds the note of a task to each of its pieces."""

    def noted(piece: pa.Table) -> pa.Table:
        note = json.dumps([began, piece.num_rows]).encode()
        return piece.replace_schema_metadata({_ARRIVAL_KEY: note})

    return noted


def read_arrival(blobs: Sequence[bytes]) -> TriggerArrival | None:
    """The notes of all tasks together; None if there were no rows."""
    notes = [note for blob in blobs if (note := _read_note(blob)) is not None]
    if not notes:
        return None
    return TriggerArrival(min(began for began, _ in notes), sum(rows for _, rows in notes))


def _read_note(blob: bytes) -> tuple[float, int] | None:
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        metadata: Mapping[bytes, bytes] = reader.schema.metadata or {}
    if _ARRIVAL_KEY not in metadata:
        return None
    began, rows = json.loads(metadata[_ARRIVAL_KEY])
    return float(began), int(rows)


# ---- time budget ---------------------------------------------------------------------------------


# Spark's part of a trigger: planning and offsets before the first task, commits after the last.
# Measured with 8 to 16 buckets on two cores: 0.3 to 0.45 s, 0.9 s beside other programs. The gap
# between the last bucket of a trigger here and the first task of the next is measured. It also has
# the time in which a stream waits for rows, so no more than this counts, or a share of the bound.
SPARK_SECONDS: Final = 0.4
SPARK_SHARE: Final = 0.25
LEAST_SPARK_SECONDS: Final = 0.1
_MOST_GAPS: Final = 8


@dataclass
class TimeBudget:
    """How long a bucket may take, for one query in one worker process.

    A trigger has to end `latency` seconds after it began, and Spark needs a part of that: planning
    before the rows arrive, writing the state and the matches afterwards. What is left when it is a
    bucket's turn is divided by rows among the buckets still to come, `parallel` at a time. `began`:
    the trigger, as far as its buckets tell.
    """

    latency: float
    safety: float
    parallel: int
    began: float | None = None
    _trigger: str | None = None
    _done: int = 0
    _ended: float | None = None
    _gaps: list[float] = field(default_factory=list)

    def seconds(self, trigger: str | None, arrival: TriggerArrival, rows: int, now: float) -> float:
        """The seconds that a bucket with so many rows may take from now on."""
        if trigger != self._trigger:
            self._begin(trigger, arrival)
        self.began = arrival.began
        left = self._left(arrival.began, now)
        ahead = max(arrival.rows - self.parallel * self._done, rows, 1)
        return max(left, 0.0) * min(1.0, self.parallel * rows / ahead)

    def later_seconds(self, arrival: TriggerArrival, rows: int) -> float:
        """The seconds that so many rows of the trigger may take in a later one."""
        whole = max(self.latency * self.safety - self.spark_seconds, 0.0)
        return whole * min(1.0, self.parallel * rows / max(arrival.rows, rows, 1))

    def rest(self, trigger: str | None, now: float) -> float:
        """The seconds that are left for a bucket without rows. Their turns come last."""
        if trigger != self._trigger or self.began is None:
            # No task has packed rows, so when the trigger began is not known.
            self._trigger, self._done, self.began = trigger, 0, now
        return max(self._left(self.began, now), 0.0)

    def ended(self, rows: int, now: float) -> None:
        """A bucket with so many rows is done."""
        self._done += rows
        self._ended = now

    @property
    def spark_seconds(self) -> float:
        """The seconds that Spark is expected to need."""
        seen = min(self._gaps, default=SPARK_SECONDS)
        most = max(SPARK_SECONDS, SPARK_SHARE * self.latency)
        return min(max(seen, LEAST_SPARK_SECONDS), most)

    def _begin(self, trigger: str | None, arrival: TriggerArrival) -> None:
        if self._ended is not None and arrival.began > self._ended:
            self._gaps = [*self._gaps, arrival.began - self._ended][-_MOST_GAPS:]
        self._trigger, self._done = trigger, 0

    def _left(self, began: float, now: float) -> float:
        return self.latency * self.safety - self.spark_seconds - max(now - began, 0.0)


# ---- density -------------------------------------------------------------------------------------


@dataclass
class RowDensity:
    """The rows of one bucket per unit of event time; `window` is in that unit.

    A trigger may bring less than a window of event time, and its rows meet those of the triggers
    before. So the rows of the latest window count, whichever trigger brought them.
    """

    window: float
    _pieces: list[tuple[float, float, int]] = field(default_factory=list)

    def density(self, times: npt.NDArray[Any]) -> float:
        """Adds the event times of a trigger's rows, and returns the density."""
        if times.dtype.kind == "f":
            times = times[np.isfinite(times)]
        if len(times):
            self._pieces.append((float(times.min()), float(times.max()), len(times)))
        if not self._pieces:
            return 0.0
        latest = max(last for _, last, _ in self._pieces)
        self._pieces = [each for each in self._pieces if each[1] > latest - self.window]
        span = latest - min(first for first, _, _ in self._pieces)
        rows = sum(rows for _, _, rows in self._pieces)
        # At the start of a stream the window counts as empty before the first row.
        return rows / (max(span, self.window) or 1.0)


# ---- time of a trigger -------------------------------------------------------------------------

# The least time of a trigger of a bucket without rows: state, header, answer.
FIXED_SECONDS: Final = 3e-3
# The time to sort and gather a row.
ROW_SECONDS: Final = 1.5e-6
# From this many rows, of one trigger or of several, the time per row is measured; with this few,
# the fixed time of a trigger.
ENOUGH_ROWS: Final = 1000
FEW_ROWS: Final = 100
# If fewer than this share of the rows of the previous trigger arrive, the time for matching the
# previous rows again is measured. With the stock patterns of `benchmarks/darling.py` it is next to
# nothing for a chain that begins with the last event, and 0.4 to 1 of the first time for one that
# begins with the first event.
FEWER_ROWS_SHARE: Final = 0.5
# If matching takes less, there is nothing to save.
LITTLE_SECONDS: Final = 5e-3
# A slower trigger than expected is believed at once, a faster one with this weight.
SPEEDUP_WEIGHT: Final = 0.3
# The decay of the evidence of an earlier measurement with more rows.
EVIDENCE_DECAY: Final = 0.95
# Densities within this factor count as equal.
SAME_DENSITY_FACTOR: Final = 1.5
# If the most and the least differ by less than this, the ease cannot be measured.
EASE_RANGE: Final = 1.2
# The weight of less work than expected; more work is believed at once.
EASE_WEIGHT: Final = 0.7
# The overrun of planned triggers is kept as a margin, which decays: the time per row varies by a
# fifth from trigger to trigger. Plans shorter than PLAN_SECONDS are not compared.
MOST_MARGIN: Final = 0.5
MARGIN_DECAY: Final = 0.9
PLAN_SECONDS: Final = 0.05
_HALVINGS: Final = 20


@dataclass
class TriggerTimeModel:
    """Predicts the time of a bucket's trigger from its rows, and learns from each trigger:

        seconds = fixed + kept rows * ROW_SECONDS + rows * work * part(share)
                  + again * matching time of the previous trigger

    `work`: seconds per row that arrived, at `density` rows per unit of event time; before the first
    measurement, the expectation of the cost model. A row meets more partners in denser rows, so
    beyond that density the work grows with its power `growth`, at most the number of the pattern's
    other slots, which is assumed until such density was measured.

    If only a share of the rows stays, less than that share of the work remains, because the rows of
    a match have to meet. But rows of high utility keep more matches than work falls: `part` is the
    most that remains (work falls as the matches do), `least` is what remains if rows are dropped at
    random, and `ease`, from 0 (most) to 1 (least), is learnt when rows are dropped.

    `again`: the rows of the previous trigger are still in the state, and some plans match them once
    more; this is measured when few rows follow many.
    """

    growth: int
    part: Callable[[float], float]
    work: float = 0.0
    least: Callable[[float], float] | None = None
    ease: float = 0.0
    density: float = 0.0
    fixed: float = FIXED_SECONDS
    seen: int = 0
    again: float = 0.0
    margin: float = 0.0
    planned: float = 0.0
    _before: float = 0.0
    _came_before: int = 0
    _evidence: float = 0.0
    _waiting: tuple[int, float, float] = (0, 0.0, 0.0)

    def observe(
        self,
        came: int,
        kept: int,
        density: float,
        seconds: float,
        planned: float | None = None,
    ) -> None:
        """Learns from a trigger with `came` rows, of which `kept` stayed, that took `seconds`.
        `planned`: for these rows, where that was not the last plan."""
        if not came:
            return
        planned = self.planned if planned is None else planned
        if planned >= PLAN_SECONDS:
            over = min(seconds / planned - 1, MOST_MARGIN)
            self.margin = max(over, MARGIN_DECAY * self.margin)
        share = kept / came
        part = self.part_of(share)
        beside = kept * ROW_SECONDS
        matching = max(seconds - self.fixed - beside, 0.0)
        before, came_before = self._before, self._came_before
        self._before, self._came_before = matching, came
        if came < FEWER_ROWS_SHARE * came_before:
            self._observe_replay(matching - came * part * self._work(density), before)
        elif came < FEW_ROWS:
            left = seconds - beside - self.again * before - came * self._work(density) * part
            self.fixed += SPEEDUP_WEIGHT * (max(left, FIXED_SECONDS) - self.fixed)
        else:
            own = max(matching - self.again * before, 0.0)
            if self.seen and came >= ENOUGH_ROWS:
                self._observe_ease(share, own / max(came * self._work(density), 1e-12))
                part = self.part_of(share)
            rows, whole, taken = self._waiting
            self._waiting = rows + came, whole + came * part, taken + own
            if self._waiting[0] >= ENOUGH_ROWS and self._waiting[1] > 0:
                self._update_work(density)

    def _observe_replay(self, seconds: float, before: float) -> None:
        """Learns `again` from a trigger with few rows after one with many; the time of the few
        rows themselves is too uncertain to learn from."""
        if before >= LITTLE_SECONDS:
            seen = min(max(seconds / before, 0.0), 1.0)
            self.again += (1.0 if seen > self.again else SPEEDUP_WEIGHT) * (seen - self.again)

    def part_of(self, share: float) -> float:
        """The part of the work that is expected to remain."""
        most = self.part(share)
        if self.least is None or not self.ease or most <= 0:
            return most
        return float(most * (self.least(share) / most) ** self.ease)

    def _observe_ease(self, share: float, part: float) -> None:
        """Learns `ease` from the part of the work that remained."""
        most = self.part(share)
        least = most if self.least is None else self.least(share)
        if least <= 0 or most < EASE_RANGE * least:
            return
        seen = log(max(part, least) / most) / log(least / most)
        self.ease += (EASE_WEIGHT if seen > self.ease else 1.0) * (max(seen, 0.0) - self.ease)

    def _update_work(self, density: float) -> None:
        """Updates `work` once enough rows were measured. `density`: of the last ones. Fewer rows
        than before weigh less: a single trigger may take long for other reasons, such as a new
        plan."""
        rows, whole, taken = self._waiting
        self._waiting = (0, 0.0, 0.0)
        measured, expected = taken / whole, self._work(density)
        weight = rows / (rows + self._evidence)
        if 2 * rows >= self._evidence:
            more = (rows - self._evidence) / (rows + self._evidence)
            weight = max(more, SPEEDUP_WEIGHT) if self.seen and measured < expected else 1.0
        self.work = expected + weight * (measured - expected)
        self._evidence = max(rows, EVIDENCE_DECAY * self._evidence)
        self.density = density
        self.seen += 1

    def seconds(self, rows: int, share: float, density: float) -> float:
        """The expected time of a trigger with so many rows if a share of them stays."""
        work = rows * self._work(density) * self.part_of(share)
        return self.fixed + self.again * self._before + rows * share * ROW_SECONDS + work

    def share(self, rows: int, density: float, budget: float) -> float:
        """The largest share of the rows that fits into the budget."""
        found = self._share(rows, density, budget / (1 + self.margin))
        self.planned = self.seconds(rows, found, density)
        return found

    def _share(self, rows: int, density: float, budget: float) -> float:
        everything = self.seconds(rows, 1.0, density)
        if everything <= max(budget, self.fixed + LITTLE_SECONDS):
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            fits = self.seconds(rows, middle, density) <= budget
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _work(self, density: float) -> float:
        """The seconds per row at a density; a lower one than measured does not count as faster."""
        times = density / self.density if self.density else 1.0
        return float(self.work * times**self.growth) if times > SAME_DENSITY_FACTOR else self.work
