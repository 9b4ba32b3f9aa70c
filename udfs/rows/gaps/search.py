"""The matches of a pattern with gaps, as `rows/search.py` gives those of any pattern.

    recognize -> join the points, the preferred first -> skip -> blocks

What is held: one line of rows for each match that is taken, and a few blocks of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.rows.gaps.blocks import blocks, uncovered
from spark_cep.udfs.rows.gaps.budget import Budget
from spark_cep.udfs.rows.gaps.preferred import Preferred
from spark_cep.udfs.rows.gaps.recognize import recognized
from spark_cep.udfs.rows.gaps.waves import taken
from spark_cep.udfs.rows.search import Block, Counts

if TYPE_CHECKING:
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.tally import Tally


class GapSearch:
    def __init__(self, table: Table, tally: Tally) -> None:
        gapped = recognized(table.program)
        if isinstance(gapped, str):
            raise CepError(f"the pattern cannot be matched by joins: {gapped}")
        self._gapped = gapped
        self._table = table
        self._tally = tally
        self.counts = Counts()

    def blocks(self) -> Iterator[Block]:
        table, gapped, counts = self._table, self._gapped, self.counts
        if not table.size:
            return
        budget = Budget(table)
        matches = taken(gapped, table, Preferred(gapped, table, self._tally, budget))
        counts.matches, counts.steps = len(matches), budget.steps
        if table.program.rows == "all with unmatched":
            counts.unmatched_rows = len(uncovered(table.size, matches))
        yield from blocks(gapped, table, matches)
