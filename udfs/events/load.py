"""How much a bucket of a stream has to do: what its triggers bring, and how often they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.events.table import NEW
from spark_cep.udfs.program import StreamLoad

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import AdvanceContext


# The weight of the latest trigger in the averages.
LATEST_WEIGHT: Final = 0.2
# Triggers keep up easily while matching takes less than this share of the time between them.
IDLE_SHARE: Final = 0.5


class LoadMeter:
    """Averages over the triggers in which rows came: candidates of each variable, and seconds from
    one such trigger to the next, by the clock of the worker."""

    def __init__(self) -> None:
        self._counts: dict[int, float] = {}
        self._seconds: float | None = None
        self._matching = 0.0
        self._latest: float | None = None

    def begin(self, matching: AdvanceContext, now: float) -> None:
        """A trigger has begun at the time `now`, in seconds."""
        is_new = matching.status == NEW
        if not is_new.any():
            return
        counts = {v: float(n) for v, n in matching.events.count_among(is_new).items()}
        is_first = not self._counts
        for v, count in counts.items():
            self._counts[v] = count if is_first else _blend(self._counts[v], count)
        if self._latest is not None:
            passed = now - self._latest
            self._seconds = passed if self._seconds is None else _blend(self._seconds, passed)
        self._latest = now

    def end(self, seconds: float) -> None:
        """The trigger's matching has taken so long."""
        self._matching = _blend(self._matching, seconds) if self._matching else seconds

    def estimate(self) -> StreamLoad:
        events = sum(self._counts.values())
        if not self._seconds:
            return StreamLoad(events)
        arrivals = {v: count / self._seconds for v, count in self._counts.items()}
        return StreamLoad(events, arrivals, self._matching < IDLE_SHARE * self._seconds)

    # ---- between the triggers of a stream ------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        counts = [[v, count] for v, count in self._counts.items()]
        return {"counts": counts, "seconds": self._seconds, "matching": self._matching}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._counts = {int(v): float(count) for v, count in learnt.get("counts", ())}
        self._seconds = learnt.get("seconds")
        self._matching = float(learnt.get("matching", 0.0))


def _blend(average: float, latest: float) -> float:
    return average + LATEST_WEIGHT * (latest - average)
