"""How long a bucket's triggers take, and so how many rows one may have: the paper's N_in.

    seconds = fixed + rows that stay * ROW_SECONDS + rows that came * work * part(share)
              + again * what matching took in the trigger before

The mean `work` of a row is measured. If only a share of the rows stays, matching does a part of
the work: less than that share, for the rows of a match have to meet. Work grows with how dense
rows are in event time, for a row meets more partners then: by the pattern's number of other slots
at the most, which is what is reckoned with until such density has been seen. The rows of the
trigger before are in the state, for the watermark has not passed them yet, and some plans go over
them once more: what that takes is seen when few rows come after many.

Rows with the best chances keep more matches than work. `part` is what matching takes if it takes as
much as the matches are worth, `least` what it takes of rows dropped at random; where between them
the truth lies is seen when rows are dropped.
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


# --------------------------------------------------------------------------------------------------
# When a trigger's rows came and how many there are of all buckets: told beside each blob.
#
# A bucket sees its own rows only. The task that packs rows notes when it began and how many it had
# for all buckets, so a bucket can tell its part of the trigger's rows, and how much of the time is
# over.
# --------------------------------------------------------------------------------------------------


_ARRIVAL_KEY: Final = b"spark_cep_arrival"


@dataclass(frozen=True)
class TriggerArrival:
    """`began`: when the first task of the trigger began to pack, in seconds since 1970. `rows`: of
    the trigger, all buckets together."""

    began: float
    rows: int


def note_arrival(began: float) -> Callable[[pa.Table], pa.Table]:
    """For the pieces of a task that began then: each with what the task knows."""

    def noted(piece: pa.Table) -> pa.Table:
        note = json.dumps([began, piece.num_rows]).encode()
        return piece.replace_schema_metadata({_ARRIVAL_KEY: note})

    return noted


def read_arrival(blobs: Sequence[bytes]) -> TriggerArrival | None:
    """What the tasks noted; None if nothing came."""
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


# --------------------------------------------------------------------------------------------------
# How long a bucket may take of its trigger.
#
# A trigger has to end `latency` after it began, and Spark needs a part of that: planning before the
# rows come, writing the state and the answer after. What is left when a bucket's turn comes is
# shared out by rows among the buckets still to come, as many at a time as there are workers.
# --------------------------------------------------------------------------------------------------


# Spark's part of a trigger: planning and offsets before the first task, commits after the last.
# Measured with 8 to 16 buckets on two cores: 0.3 to 0.45 s, 0.9 beside other programs. What lies
# between the end of a trigger's last bucket here and the first task of the next is seen. Where a
# stream waits for rows that is no work, so no more counts than this, or a part of the bound.
SPARK_SECONDS: Final = 0.4
SPARK_SHARE: Final = 0.25
LEAST_SPARK_SECONDS: Final = 0.1
_MOST_GAPS: Final = 8


@dataclass
class TimeBudget:
    """Of one query in one worker process."""

    latency: float
    safety: float
    parallel: int
    _trigger: str | None = None
    _done: int = 0
    _ended: float | None = None
    _gaps: list[float] = field(default_factory=list)

    def seconds(self, trigger: str | None, arrival: TriggerArrival, rows: int, now: float) -> float:
        """What a bucket with so many rows may take from now on."""
        if trigger != self._trigger:
            self._begin(trigger, arrival)
        left = self.latency * self.safety - self.spark_seconds - max(now - arrival.began, 0.0)
        ahead = max(arrival.rows - self.parallel * self._done, rows, 1)
        return max(left, 0.0) * min(1.0, self.parallel * rows / ahead)

    def ended(self, rows: int, now: float) -> None:
        """A bucket with so many rows is done."""
        self._done += rows
        self._ended = now

    @property
    def spark_seconds(self) -> float:
        """What Spark is reckoned to need."""
        seen = min(self._gaps, default=SPARK_SECONDS)
        most = max(SPARK_SECONDS, SPARK_SHARE * self.latency)
        return min(max(seen, LEAST_SPARK_SECONDS), most)

    def _begin(self, trigger: str | None, arrival: TriggerArrival) -> None:
        if self._ended is not None and arrival.began > self._ended:
            self._gaps = [*self._gaps, arrival.began - self._ended][-_MOST_GAPS:]
        self._trigger, self._done = trigger, 0


# --------------------------------------------------------------------------------------------------
# How dense a bucket's rows lie in event time.
#
# A trigger may bring less than a window of event time; its rows meet those of the triggers before.
# So the rows of the latest window count, whichever trigger brought them.
# --------------------------------------------------------------------------------------------------


@dataclass
class RowDensity:
    """Of one bucket. `window`: in the unit of the event time."""

    window: float
    _pieces: list[tuple[float, float, int]] = field(default_factory=list)

    def density(self, times: npt.NDArray[Any]) -> float:
        """Rows in a unit of event time, with a trigger's rows, which have these times."""
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
        # At the beginning of a stream partners are as few as if the window were empty before.
        return rows / (max(span, self.window) or 1.0)


# What a trigger of a bucket takes without rows, at the least: state, header, answer.
FIXED_SECONDS: Final = 3e-3
# Sorting and gathering a row.
ROW_SECONDS: Final = 1.5e-6
# So many rows, of one trigger or of several, say what a row takes; so few what a trigger takes
# without any.
ENOUGH_ROWS: Final = 1000
FEW_ROWS: Final = 100
# Where less than this part of the rows of the trigger before come, what those take again is seen.
# With the stock patterns of `benchmarks/darling.py` next to nothing for a chain that begins with
# the last event, 0.4 to 1 of what they took when they came for one that begins with the first.
FEWER_ROWS_SHARE: Final = 0.5
# Rows that take less leave nothing to save.
LITTLE_SECONDS: Final = 5e-3
# Being slower than thought is believed at once, being faster bit by bit.
SPEEDUP_WEIGHT: Final = 0.3
# How fast it is forgotten that many rows spoke once, with each time that fewer have spoken.
EVIDENCE_DECAY: Final = 0.95
# Densities within this factor are the same.
SAME_DENSITY_FACTOR: Final = 1.5
# Where the most and the least differ by less, nothing is seen of which it is.
EASE_RANGE: Final = 1.2
# Seeing that it takes less than thought; that it takes more is believed at once.
EASE_WEIGHT: Final = 0.7
# By how much triggers were longer than planned is kept in hand, as long as it is not forgotten:
# what a row takes goes up and down by a fifth from trigger to trigger. Shorter plans tell nothing.
MOST_MARGIN: Final = 0.5
MARGIN_DECAY: Final = 0.9
PLAN_SECONDS: Final = 0.05
_HALVINGS: Final = 20


@dataclass
class TriggerTimeModel:
    """`work`: seconds a row that came, where `density` of them came in a unit of event time; before
    any was seen, what the cost model expects. `growth`: the power of the density with which that
    grows beyond. `part`: of the work at the most, by the share of the rows that stays; `least`: of
    the work at the least. `ease`: where between them it lies, 0 is at the most."""

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
    _planned: float = 0.0
    _before: float = 0.0
    _came_before: int = 0
    _evidence: float = 0.0
    _waiting: tuple[int, float, float] = (0, 0.0, 0.0)

    def saw(self, came: int, kept: int, density: float, seconds: float) -> None:
        """A trigger to which so many rows came, of which these were kept, took so long."""
        if not came:
            return
        if self._planned >= PLAN_SECONDS:
            over = min(seconds / self._planned - 1, MOST_MARGIN)
            self.margin = max(over, MARGIN_DECAY * self.margin)
        share = kept / came
        part = self.part_of(share)
        beside = kept * ROW_SECONDS
        matching = max(seconds - self.fixed - beside, 0.0)
        before, came_before = self._before, self._came_before
        self._before, self._came_before = matching, came
        if came < FEWER_ROWS_SHARE * came_before:
            self._saw_again(matching - came * part * self._work(density), before)
        elif came < FEW_ROWS:
            left = seconds - beside - self.again * before - came * self._work(density) * part
            self.fixed += SPEEDUP_WEIGHT * (max(left, FIXED_SECONDS) - self.fixed)
        else:
            own = max(matching - self.again * before, 0.0)
            if self.seen and came >= ENOUGH_ROWS:
                self._saw_ease(share, own / max(came * self._work(density), 1e-12))
                part = self.part_of(share)
            rows, whole, taken = self._waiting
            self._waiting = rows + came, whole + came * part, taken + own
            if self._waiting[0] >= ENOUGH_ROWS and self._waiting[1] > 0:
                self._measured(density)

    def _saw_again(self, seconds: float, before: float) -> None:
        """Few rows came after many. How long theirs took is not told apart well enough."""
        if before >= LITTLE_SECONDS:
            seen = min(max(seconds / before, 0.0), 1.0)
            self.again += (1.0 if seen > self.again else SPEEDUP_WEIGHT) * (seen - self.again)

    def part_of(self, share: float) -> float:
        """What is expected to be left of the work."""
        most = self.part(share)
        if self.least is None or not self.ease or most <= 0:
            return most
        return float(most * (self.least(share) / most) ** self.ease)

    def _saw_ease(self, share: float, part: float) -> None:
        """Of the work so much was left, if a row takes what it took."""
        most = self.part(share)
        least = most if self.least is None else self.least(share)
        if least <= 0 or most < EASE_RANGE * least:
            return
        seen = log(max(part, least) / most) / log(least / most)
        self.ease += (EASE_WEIGHT if seen > self.ease else 1.0) * (max(seen, 0.0) - self.ease)

    def _measured(self, density: float) -> None:
        """Enough rows have come to say what one takes. `density`: of the last ones. Fewer rows than
        before say less, for a trigger may take long for reasons of its own, a new plan say."""
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
        """What a trigger with so many rows is expected to take if a share of them stays."""
        work = rows * self._work(density) * self.part_of(share)
        return self.fixed + self.again * self._before + rows * share * ROW_SECONDS + work

    def share(self, rows: int, density: float, budget: float) -> float:
        """The share of the rows that can be had for the budget."""
        found = self._share(rows, density, budget / (1 + self.margin))
        self._planned = self.seconds(rows, found, density)
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
        """A sparser trigger than the last is not reckoned to be faster."""
        times = density / self.density if self.density else 1.0
        return float(self.work * times**self.growth) if times > SAME_DENSITY_FACTOR else self.work
