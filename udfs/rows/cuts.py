"""Where a partition may be cut, so that several tasks match it: by the pattern, then by its rows.

A partition in ranges of its order is matched as by one search if each range knows a row at which
that search begins, whatever the rows before the range are. From there on the search is the same,
for it remembers nothing but where it begins. Two ways lead to such a row:

- *a cut*: no match has both the row before it and the row itself, by the conditions that look at
  rows alone, and by WITHIN. A match before it ends there at the latest, so a search begins there.
- *a meeting*: where matches have a longest length, in time or in rows, the search begins somewhere
  in the first such length of the range. Searches that begin at all these places soon go on from
  the same row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.row_program import Skip
from spark_cep.udfs.rows.arrays import kernel_rows
from spark_cep.udfs.rows.compiled import PYTHON_CONDITION
from spark_cep.udfs.rows.instructions import CHAR, END_BIT, OVERFLOW_BIT
from spark_cep.udfs.rows.leaves import (
    has_anchor,
    longest_match,
    reads_match_number,
    rows_ahead_of_program,
    rows_back,
)
from spark_cep.udfs.rows.search import KernelSearch
from spark_cep.udfs.rows.table import PartitionEnds, RowTable, SearchProgress
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.rows.compiled import KernelProgram
    from spark_cep.udfs.values.arrow_values import Array


# ---- by the pattern ----------------------------------------------------------------------------


# Types that Spark sorts as the worker does, and of which a worker takes parts in order.
_ORDERED: Final = frozenset({"int", "float", "date", "timestamp", "timestamp_ntz"})
_ANCHORS: Final = {"^": "start", "$": "end"}


def cut_refusal(program: RowProgram) -> str | None:
    """Why one partition cannot be matched in ranges, as far as it does not depend on conditions;
    None: it can."""
    anchors = [mark for mark, kind in _ANCHORS.items() if has_anchor(program.pattern, kind)]
    if program.frame is not None:
        return "each row gets the match of its window frame"
    if program.longest:
        return "the longest match is wanted"
    if program.matcher != "walk":
        return "gaps are joined over all rows"
    if anchors:
        return f"{anchors[0]} is about the whole partition"
    if reads_match_number(program):
        return "matches are numbered, for MATCH_NUMBER() or to tell unmatched rows apart"
    return _order_refusal(program)


def _order_refusal(program: RowProgram) -> str | None:
    if not program.orders:
        return "the rows have no order"
    order = program.orders[0]
    if order.type.kind not in _ORDERED:
        return f"the first order column is of type {order.type.kind}, not a number or a time"
    if order.descending and program.within is not None:
        return "the order descends and there is a WITHIN"
    return None


def endless_refusal(made: KernelProgram) -> str | None:
    """Why no row of any input is a cut or a meeting; None: there may be some."""
    program = made.program
    if program.within is not None or longest_match(program.pattern) is not None:
        return None
    free = {
        number for number, condition in enumerate(made.conditions) if condition.physical is None
    }
    for variable, follow in sorted(_followers(made).items()):
        for other in sorted(free):
            if variable in free and follow >> min(other, OVERFLOW_BIT) & 1:
                names = [program.variables[each].name for each in dict.fromkeys((variable, other))]
                return (
                    "a search may be open at any row: no condition on the row itself restricts "
                    + " or ".join(names)
                )
    return None


def _followers(made: KernelProgram) -> dict[int, int]:
    """For each variable those that the next row of a match may be, as bits."""
    found: dict[int, int] = {}
    code = made.code
    for here in np.flatnonzero(code.op == CHAR).tolist():
        variable = min(int(code.label[here]) >> 1, OVERFLOW_BIT)
        behind = int(made.first[code.first[here]]) & ~END_BIT
        found[variable] = found.get(variable, 0) | behind
    return found


# ---- by the rows -------------------------------------------------------------------------------


# A cut is looked for among so many rows first, then among more and more.
FIRST_ROWS: Final = 1 << 10
_GROWTH: Final = 8
# Of the matcher, to find a meeting: about a second. Without one, cuts are still looked for.
MEETING_STEPS: Final = 1 << 24


@dataclass(frozen=True)
class FixedStart:
    """`begin`: the position of a row at which a search begins, whatever is before the rows.
    `seen`: searches that begin before it look at no row from this position on."""

    begin: int
    seen: int


class StartFinder:
    """Finds the first fixed start among rows that are sorted and have all their neighbours."""

    def __init__(self, made: KernelProgram) -> None:
        self._made = made
        program = made.program
        self._back = rows_back(program)
        self._ahead = rows_ahead_of_program(program)
        self._followers = _followers(made)
        self._longest = longest_match(program.pattern)
        self._may_meet = (
            (program.within is not None or self._longest is not None)
            # A search that begins where none does may fail with an error.
            and program.skip.kind in ("past last row", "next row")
            # A row that is shown as unmatched is one that no match has, wherever that began.
            and program.rows != "all with unmatched"
            and all(each.start != PYTHON_CONDITION for each in made.conditions)
        )

    @property
    def overlap(self) -> int:
        """As many rows at the end of rows without a start have to be looked at again with the
        next ones."""
        return self._back + self._ahead + 2

    def find(self, rows: pa.Table) -> FixedStart | None:
        size = min(FIRST_ROWS, rows.num_rows)
        while True:
            table = RowTable(self._made.program, rows.slice(0, size))
            found = self._next_row(table) or self._cut(table) or self._meeting(table)
            if found is not None or size == rows.num_rows:
                break
            size = min(_GROWTH * size, rows.num_rows)
        # The rows behind come with other rows before them: a meeting there would say nothing.
        self._may_meet &= found is not None
        return found

    def _checked(self, begin: int, seen: int, table: RowTable) -> FixedStart | None:
        """A start, if all rows are there that searches before it look at."""
        seen += self._ahead
        return FixedStart(begin, seen) if self._back <= begin < seen <= table.size else None

    def _cut(self, table: RowTable) -> FixedStart | None:
        made, size = self._made, table.size
        ends = _open_ends(table)
        rows = kernel_rows(made, table, ErrorTally(ansi=made.program.ansi), ends)
        before, here = rows.may[:-1], rows.may[1:]
        is_crossed = np.zeros(max(size - 1, 0), np.bool_)
        for variable, follow in self._followers.items():
            goes_on = (here & np.uint64(follow)) != 0
            is_crossed |= goes_on & ((before >> np.uint64(variable) & np.uint64(1)) != 0)
        if len(rows.limit):
            is_crossed &= rows.limit[:-1] > np.arange(1, size)
        # The first rows lack rows before them, so their conditions are not known.
        cuts = self._back + 1 + np.flatnonzero(~is_crossed[self._back :])
        return self._checked(int(cuts[0]), int(cuts[0]) + 1, table) if len(cuts) else None

    # ---- meetings ------------------------------------------------------------------------------

    def _next_row(self, table: RowTable) -> FixedStart | None:
        """With SKIP TO NEXT ROW a search begins at every row."""
        if not self._may_meet or self._made.program.skip.kind != "next row":
            return None
        begin = self._back
        if begin >= table.size:
            return None
        return self._checked(begin, int(self._ends(table)[max(begin - 1, 0)]) + 1, table)

    def _meeting(self, table: RowTable) -> FixedStart | None:
        first = self._back
        if not self._may_meet or self._made.program.skip.kind == "next row" or first >= table.size:
            return None
        ends = self._ends(table)
        last = int(ends[first])
        if last >= table.size:
            return None
        try:
            following, known = self._following(table)
        except LimitError:
            self._may_meet = False
            return None
        # A search that began before `first` goes on from `first` to `last`: its match has at most
        # the rows up to the one before `last`.
        pending = np.zeros(table.size + 1, np.bool_)
        pending[first : last + 1] = True
        count, begin = last + 1 - first, first
        while count > 1 and begin < known:
            if pending[begin]:
                count -= 1
                count += not pending[following[begin]]
                pending[following[begin]] = True
            begin += 1
        left = begin + np.flatnonzero(pending[begin:])
        if count > 1 or not 0 < int(left[0]) < table.size:
            return None
        return self._checked(int(left[0]), int(ends[int(left[0]) - 1]) + 1, table)

    def _following(self, table: RowTable) -> tuple[Array, int]:
        """For each row, where the search goes on that begins there; and up to which row that is
        known."""
        program = self._made.program
        limits = replace(program.limits, backtracking_steps=MEETING_STEPS)
        every = replace(program, skip=Skip("next row"), rows="one", limits=limits)
        search = KernelSearch(
            replace(self._made, program=every),
            table,
            ErrorTally(ansi=program.ansi),
            _open_ends(table),
        )
        following = np.arange(1, table.size + 1)
        for block in search.blocks():
            following[block.start] = block.start + np.maximum(block.length, 1)
        return following, int(search.standing.begin[0])

    def _ends(self, table: RowTable) -> Array:
        """For each row, the first one that a match from there cannot have."""
        found = [each for each in (table.limits(),) if each is not None]
        if self._longest is not None:
            found.append(np.minimum(np.arange(table.size) + max(self._longest, 1), table.size))
        return np.asarray(np.minimum.reduce(found))


def _open_ends(table: RowTable) -> PartitionEnds:
    """Rows may follow, and of any time from the last one on."""
    return PartitionEnds(SearchProgress.at_start(table, is_open=True))
