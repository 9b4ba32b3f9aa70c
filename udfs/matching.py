"""What all engines of one advance share, and what they give: sets of matches as positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Literal as Choice

if TYPE_CHECKING:
    from spark_cep.udfs.events import Events, Flags, Positions
    from spark_cep.udfs.metrics import Meter
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.values.tally import Tally


# Which row of a match says in which advance it is given: `deciding.py`.
GivenBy = Choice["any", "latest", "earliest", "start"]


@dataclass
class Matching:
    """What all branches of one advance share. `status` has OLD, NEW or AHEAD for each row, and
    `given_by` says of which row of a match it counts."""

    program: Program
    events: Events
    status: Positions
    meter: Meter
    tally: Tally
    given_by: GivenBy = "latest"


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
