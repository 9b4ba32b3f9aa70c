"""Work that falls into a later trigger than the one whose rows cause it.

Where a NOT is certain only behind the watermark, and matches cannot wait in the state until then
(repeated groups, remote data, too many matches), rows are joined when the watermark passes them.
That is often in a trigger of few rows, which have nothing to do with it. So the work is charged to
the rows that cause it, when they arrive, and what it has taken is measured for them.

Always holds: the rows in the ledger of a bucket are the newest ones; what is joined is the oldest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from math import inf

_Time = int | float


@dataclass(frozen=True)
class Charge:
    """Rows that came in one trigger. `came`: before shedding, in this bucket; `total`: in all of
    them; `kept`: after it. `seconds`: what joining them is expected to take. `first`, `last`: their
    event times. `horizon`: of the trigger that brought them."""

    came: float
    kept: float
    total: float
    density: float
    seconds: float
    first: _Time
    last: _Time
    horizon: _Time

    def part(self, share: float) -> Charge:
        return replace(
            self,
            came=self.came * share,
            kept=self.kept * share,
            total=self.total * share,
            seconds=self.seconds * share,
        )

    def due_share(self, horizon: _Time) -> float:
        """The share of its rows that the horizon has passed, if they come evenly."""
        if horizon >= self.last:
            return 1.0
        if horizon <= self.first:
            return 0.0
        return (horizon - self.first) / (self.last - self.first)


@dataclass
class Ledger:
    """The rows of one bucket that are still to be joined. `defers`: whether the next ones will be
    joined in a later trigger. `delay`: how far the horizon has to be behind a row for that."""

    defers: bool
    delay: float = 0.0
    _charges: deque[Charge] = field(default_factory=deque)

    def due(self, horizon: _Time) -> tuple[float, float]:
        """How many rows there were, here and in all buckets, of those that are joined now."""
        shares = [(each, each.due_share(horizon - self.delay)) for each in self._charges]
        return sum(e.came * s for e, s in shares), sum(e.total * s for e, s in shares)

    def seconds_beside(self, horizon: _Time) -> float:
        """What the rows will take that are joined together with those that come now: the ones that
        have come since the horizon last moved."""
        return sum(each.seconds for each in self._charges if each.horizon == horizon)

    def settle(self, came: Charge, joined: int, owed: int) -> Charge | None:
        """The rows that were joined in a trigger, as one charge; None if there were none. `came`:
        the rows that it brought. `joined`: how many rows were, `owed`: how many are still to be.
        These two are counted in the state. The bucket may have been in another worker before."""
        if came.kept:
            self._charges.append(came)
        known = self.rows
        if known < joined:
            missing = joined - known
            self._charges.appendleft(replace(came, came=missing, kept=missing, total=0.0))
        self._take_oldest(known - joined - owed)
        done = self._take_oldest(joined)
        if not done:
            return None
        found = _sum_charges(done)
        missing = owed - self.rows
        if missing > 0 and found.kept:
            # They were joined, but more matches than may wait were found, and none is kept.
            self._charges.appendleft(found.part(missing / found.kept))
        return found

    @property
    def rows(self) -> float:
        """How many rows are to be joined."""
        return sum(each.kept for each in self._charges)

    def _take_oldest(self, rows: float) -> list[Charge]:
        """Takes out so many rows."""
        taken = []
        while rows > 0 and self._charges:
            oldest = self._charges.popleft()
            if oldest.kept > rows:
                share = rows / oldest.kept
                self._charges.appendleft(oldest.part(1 - share))
                oldest = oldest.part(share)
            rows -= oldest.kept
            taken.append(oldest)
        return taken


def _sum_charges(charges: list[Charge]) -> Charge:
    """Rows joined together. Their density is that of the densest: they are not spread evenly."""
    return Charge(
        came=sum(each.came for each in charges),
        kept=sum(each.kept for each in charges),
        total=sum(each.total for each in charges),
        density=max(each.density for each in charges),
        seconds=sum(each.seconds for each in charges),
        first=min((each.first for each in charges), default=inf),
        last=max((each.last for each in charges), default=-inf),
        horizon=charges[-1].horizon,
    )
