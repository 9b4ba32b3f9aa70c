"""What may be tried: the limit of steps, as it is counted here.

A step is one pair of a partial match and a candidate that was tested; the kernel's is one
instruction at one row. Both are counted for each partition, and both end a query that runs away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.rows.arrays import STEPS

if TYPE_CHECKING:
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array


class Budget:
    def __init__(self, table: Table) -> None:
        given = table.program.limits.backtracking_steps
        self._table = table
        self._allowed = STEPS if given is None else given
        self._spent = np.zeros(len(table.begins), np.int64)
        self._partition = np.repeat(np.arange(len(table.begins)), table.ends - table.begins)

    @property
    def steps(self) -> int:
        return int(self._spent.sum())

    def spend(self, starts: Array, counts: Array) -> None:
        """So many pairs were tried for matches that begin at these rows."""
        partition = self._partition[starts]
        np.add.at(self._spent, partition, counts)
        over = np.flatnonzero(self._spent[partition] > self._allowed)
        if len(over):
            raise self._exceeded(int(starts[over[0]]), int(self._spent[partition[over[0]]]))

    def _exceeded(self, start: int, reached: int) -> LimitError:
        table, allowed = self._table, self._allowed
        key = table.key_of(start)
        where = f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"
        row = start - int(table.begin_of[start])
        return LimitError(
            f"{where} took more than {allowed:,} steps of the matcher, which are pairs of rows "
            f"here; it was trying row {row + 1:,}",
            hint="the gaps of the pattern are matched by joins, and their conditions leave too "
            'many rows to try: add WITHIN or a partition key, bound the gaps, try plan="walk", or '
            f"raise it: limits=cep.Limits(backtracking_steps={allowed * 10})",
            details={
                "key": key, "row": row, "limit": "backtracking_steps", "allowed": allowed,
                "reached": reached,
            },
        )  # fmt: skip
