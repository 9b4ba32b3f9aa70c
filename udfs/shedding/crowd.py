"""How dense a bucket's rows lie in event time.

A trigger may bring less than a window of event time; its rows meet those of the triggers before.
So the rows of the latest window count, whichever trigger brought them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass
class Crowd:
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
