"""What all engines of one advance share, and what they give: sets of matches as positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.udfs.events import Events, Flags, Positions
    from spark_cep.udfs.metrics import Meter
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.values.tally import Tally


@dataclass
class Matching:
    """What all branches of one advance share. `status` has OLD, NEW or AHEAD for each row."""

    program: Program
    events: Events
    status: Positions
    meter: Meter
    tally: Tally


@dataclass(frozen=True)
class Found:
    """Matches as row positions: (n,) for a variable, (n, length) for a list. Variables that are
    not in `rows` are unfilled, those in `empty` bound to the empty list."""

    rows: Mapping[int, Positions]
    earliest: Positions
    latest: Positions
    empty: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.earliest)

    def take(self, index: Positions | Flags) -> Found:
        return Found(
            {variable: rows[index] for variable, rows in self.rows.items()},
            self.earliest[index],
            self.latest[index],
            self.empty,
        )
