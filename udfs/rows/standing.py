"""Where the searches of each partition of a table stand: before its first row in a batch, and
where they were left in an advance of several.

Always holds: what lies before `begin` is decided and shown, and nothing of the rest is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.rows import records as r

if TYPE_CHECKING:
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array


@dataclass(frozen=True)
class Standing:
    """One entry for each partition; positions are the table's. `begin`: the next search's first
    row. `covered`: the row behind all that a match has. `number`: of the last match. `dropped`:
    rows of the partition before the table's first. `is_open`: rows may still come."""

    begin: Array
    covered: Array
    number: Array
    dropped: Array
    is_open: Array

    @classmethod
    def at_start(cls, table: Table, *, is_open: bool = False) -> Standing:
        begins = table.begins
        return cls(
            begins.copy(),
            begins.copy(),
            np.zeros(len(begins), np.int64),
            np.zeros(len(begins), np.int64),
            np.full(len(begins), is_open),
        )


class Ends:
    """Which partitions of a table end, and which only have no more rows yet. `parts`: what the
    kernel reads and writes. `horizon`: rows at this time and before it have come, all of them."""

    def __init__(self, standing: Standing, horizon: int | float | None = None) -> None:
        self.horizon = horizon
        self._before = standing
        self._is_open = standing.is_open
        self.any_open = bool(standing.is_open.any())
        self.parts = np.zeros((len(standing.begin), r.PART_SIZE), np.int64)
        self.parts[:, r.NEXT] = standing.begin
        self.parts[:, r.NEXT_COVERED] = standing.covered
        self.parts[:, r.NEXT_NUMBER] = standing.number
        self.parts[:, r.HAS_FIRST] = standing.dropped == 0
        self.parts[:, r.IS_OPEN] = standing.is_open

    def standing(self) -> Standing:
        """As the kernel left it."""
        return replace(
            self._before,
            begin=self.parts[:, r.NEXT],
            covered=self.parts[:, r.NEXT_COVERED],
            number=self.parts[:, r.NEXT_NUMBER],
        )

    def open_rows(self, table: Table) -> Array:
        """The rows of partitions that are open."""
        return np.repeat(self._is_open, table.ends - table.begins)

    def behind(self, table: Table, reach: int) -> Array:
        """The rows from which so many rows further on is behind an open end."""
        return ~table.inside(max(reach, 0)) & self.open_rows(table)
