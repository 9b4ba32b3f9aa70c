"""How long a bucket may take of its trigger.

A trigger has to end `latency` after it began, and Spark needs a part of that: planning before the
rows come, writing the state and the answer after. What is left when a bucket's turn comes is
shared out by rows among the buckets still to come, as many at a time as there are workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark_cep.udfs.shedding.arrival import Arrival

# Spark's part of a trigger: planning and offsets before the first task, commits after the last.
# Measured with 8 to 16 buckets on two cores: 0.3 to 0.45 s, 0.9 beside other programs. What lies
# between the end of a trigger's last bucket here and the first task of the next is seen. Where a
# stream waits for rows that is no work, so no more counts than this, or a part of the bound.
SPARK_SECONDS: Final = 0.4
SPARKS_PART: Final = 0.25
LEAST_SPARK_SECONDS: Final = 0.1
_REMEMBERED: Final = 8


@dataclass
class Budget:
    """Of one query in one worker process."""

    latency: float
    safety: float
    parallel: int
    _trigger: str | None = None
    _done: int = 0
    _ended: float | None = None
    _gaps: list[float] = field(default_factory=list)

    def seconds(self, trigger: str | None, arrival: Arrival, rows: int, now: float) -> float:
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
        most = max(SPARK_SECONDS, SPARKS_PART * self.latency)
        return min(max(seen, LEAST_SPARK_SECONDS), most)

    def _begin(self, trigger: str | None, arrival: Arrival) -> None:
        if self._ended is not None and arrival.began > self._ended:
            self._gaps = [*self._gaps, arrival.began - self._ended][-_REMEMBERED:]
        self._trigger, self._done = trigger, 0
