"""Shedding of partial matches on a stream: the engine receives every row, and a rule.

rows of a bucket -> how much of their work there is time for -> what the engine drops
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.events.table import column_to_numpy, drop_null_times
from spark_cep.udfs.program import DroppingRule
from spark_cep.udfs.shedding.learning import Way, estimate_seconds, variable_masks
from spark_cep.udfs.shedding.matches import ALL_MATCHES
from spark_cep.udfs.shedding.partial_matches import PartialStatistics, learn_partials
from spark_cep.udfs.shedding.shedder import MOST_ROWS, Admission, Shedder
from spark_cep.udfs.shedding.utility import SheddingStatistics, utilities_of

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.shedding.shedder import BucketTurn


@dataclass
class PartialShedder(Shedder):
    """The shedding of one query in a worker process, by a policy that drops partial matches."""

    partials: PartialStatistics | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spec.partials is not None:
            self._take_over(self.spec.partials, MOST_ROWS)

    def admit(self, turn: BucketTurn, rows: pa.Table) -> Admission:
        """All new rows of a bucket, with what the engine is to drop."""
        self._remember(rows)
        if self._is_cold(turn, rows):
            turn = self._learn_in(turn)
        count = rows.num_rows
        density = 0.0 if self._budget is None else self._density(turn.bucket, rows)
        share = self._share(turn, count, density)
        mask = column_to_numpy(rows.column(self.program.mask)).astype(np.int64)
        counts = self._counts(mask, mask)
        if share >= 1:
            return Admission(rows, count, density, counts)
        most = self._rows_under_load(turn)
        if self._wants_to_learn(rows, most, under_load=True):
            turn = self._learn_in(turn)
            share = min(share, self._share(turn, count, density))
        rule = self._rule(share)
        return Admission(rows, count, density, counts, self.recall(share), rule, share)

    def recall(self, share: float) -> float | None:
        if share >= 1:
            return 1.0
        return None if self.partials is None else self.partials.model.recall(share).value

    def work_part(self, share: float) -> float:
        """A share is one of the work."""
        return max(share, 0.0)

    def least_part(self, share: float) -> float:
        return self.work_part(share)

    def _share(self, turn: BucketTurn, rows: int, density: float) -> float:
        """The share of the work that stays."""
        if turn.share is not None:
            return turn.share
        quota = self._quota(turn, (rows, density), np.ones(rows, dtype=np.bool_))
        return 1.0 if quota is None or not rows else min(quota / rows, 1.0)

    def _rule(self, share: float) -> DroppingRule:
        if self.partials is not None:
            return self.partials.model.rule(share, self.spec.seed)
        # As if the last step of the longest branch made all the work.
        slots = max(len(branch.slots) for branch in self.program.branches)
        return DroppingRule("partials", {}, share ** (1 / max(slots - 1, 1)), self.spec.seed)

    def _learn_from(self, recent: pa.Table) -> None:
        table = drop_null_times(self.program, recent)
        self.learnings += 1
        self._recent = []
        costs = self.program.costs or TYPICAL_COSTS
        estimates = estimate_from_table(self.program, table)
        if estimates is not None:
            seconds = estimate_seconds(self.program, estimates, costs) / max(table.num_rows, 1)
            model = learn_partials(self.program, table, self.spec.policy)
            self._take_over(PartialStatistics(model, seconds), table.num_rows)

    def _take_over(self, partials: PartialStatistics, rows: int) -> None:
        """Values of rows decide nothing, so no drift of them is looked for."""
        self.partials = partials
        even = Way(1.0, utilities_of((), *variable_masks(self.program)), ALL_MATCHES, 1.0, 1.0)
        self._know(SheddingStatistics((even,), {}, partials.work, ()), rows)
