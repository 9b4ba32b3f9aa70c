"""How far from its first row a search can still find the rows that it needs.

    PATTERN (a+ b+ c) DEFINE c AS x < FIRST(x)

Every match has a row of c, so a search that begins at row i fails as soon as it is beyond the last
row whose x is below that of row i. Such a last row is found without searching: a condition is
evaluated over ranges, the least and the greatest value that each thing it reads can have from a row
on (`ranges.py`). Where not even the ranges make it TRUE, no row can.

A search that is cut short would have failed. Bounds are computed when a partition turns out to take
many steps, and for one stretch of its rows after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.rows.instructions import (
    CHAR,
    MATCH,
    OVERFLOW_BIT,
    SPLIT,
    InstructionList,
)
from spark_cep.udfs.rows.ranges import ANYWHERE, PartitionValues, RangeEvaluator, Searches
from spark_cep.udfs.rows.records import IS_OPEN, KernelBounds

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import VariableSet
    from spark_cep.udfs.rows.compiled import CompiledDefine, KernelProgram
    from spark_cep.udfs.rows.records import KernelRows
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array


# The rows whose searches get their bounds at once: some ms of work, and 8 bytes for each group.
STRETCH: Final = 1 << 13
# Different sets of variables that may still be needed; what more sets need is not looked for.
MOST_GROUPS: Final = 16
# Programs beyond this are not analysed: it would take longer than most searches.
MOST_ANALYSED: Final = 50_000
_NO_BOUND: Final = np.iinfo(np.int64).max


# ---- what a pattern still needs ----------------------------------------------------------------


def variables_ahead(code: InstructionList, *, all_ways: bool) -> list[int]:
    """For each instruction the variables, as bits, that every way from it to the end of a match
    takes (`all_ways`), or that some way takes."""
    found = [-1 if all_ways else 0] * len(code.op)
    before: list[list[int]] = [[] for _ in code.op]
    op, first, second = code.op.tolist(), code.first.tolist(), code.second.tolist()
    label = code.label.tolist()
    for here, what in enumerate(op):
        if what != MATCH:
            before[first[here]].append(here)
        if what == SPLIT:
            before[second[here]].append(here)
    waiting = list(range(len(op)))
    while waiting:
        here = waiting.pop()
        what = op[here]
        bits = 0 if what == MATCH else found[first[here]]
        if what == SPLIT:
            bits = bits & found[second[here]] if all_ways else bits | found[second[here]]
        elif what == CHAR:
            bits |= 1 << (label[here] >> 1)
        if bits != found[here]:
            found[here] = bits
            waiting += before[here]
    return found


# ---- the shape of a pattern --------------------------------------------------------------------


@dataclass(frozen=True)
class PatternShape:
    """What follows from the instructions alone."""

    code: InstructionList
    first: Array

    def begins_with(self, variables: frozenset[int]) -> bool:
        """Whether the first row of every match is one of the variables."""
        bits = sum(1 << each for each in variables if each < OVERFLOW_BIT)
        begins = int(self.first[self.code.entry])
        return not begins & ((1 << OVERFLOW_BIT + 1) - 1) & ~bits

    def last_of_prefix(self, variables: VariableSet, tested: int) -> int | None:
        """Where the rows of the set end if they are the first rows of every match, in the rows
        before `tested` is tested at some row: 1 if that row is the last of them, 0 if it is the
        row before; `ANYWHERE` if it may be any row; None if they are not the first."""
        if variables is None:
            return 1
        ahead = self._ahead
        inside = sum(1 << each for each in variables)
        code = self.code
        chars = np.flatnonzero(code.op == CHAR).tolist()
        others = [each for each in chars if not inside >> (int(code.label[each]) >> 1) & 1]
        if any(ahead[int(code.first[each])] & inside for each in others):
            return None
        if tested in variables:
            return 1
        after = [int(code.first[each]) for each in others]
        return ANYWHERE if any(ahead[each] >> tested & 1 for each in after) else 0

    @cached_property
    def variables(self) -> frozenset[int]:
        """All that the pattern has."""
        return frozenset((self.code.label[self.code.op == CHAR] >> 1).tolist())

    @cached_property
    def _ahead(self) -> list[int]:
        return variables_ahead(self.code, all_ways=False)


# ---- the bounds of searches --------------------------------------------------------------------


@dataclass(frozen=True)
class _Tested:
    """The condition of a variable in a partition. `number`: of the last match."""

    variable: int
    condition: Expression
    values: PartitionValues
    number: int


class SearchBounds:
    """Fills `kernel`, the bounds that the kernel reads, for one stretch of searches at a time."""

    def __init__(self, made: KernelProgram, table: RowTable, rows: KernelRows) -> None:
        self._made = made
        self._table = table
        self._rows = rows
        self._shape = PatternShape(made.code, made.first)
        self._needed: Sequence[int] | None = None
        self._values: tuple[int, PartitionValues] | None = None
        # Of the partition of `_values`, by variable.
        self._last: dict[int, int] = {}
        size = len(made.code.op) if can_be_bounded(made) else 0
        self.kernel = KernelBounds(
            np.full(size, -1, np.int32),
            np.zeros((MOST_GROUPS if size else 0, STRETCH if size else 0), np.int64),
        )

    def compute(self, partition: int, begin: int, number: int) -> int:
        """For the searches from `begin` on; returns the position up to which they are known.
        `number`: of the last match."""
        end = int(self._rows.end[partition])
        upto = min(begin + STRETCH, end)
        width = max(upto - begin, 0)
        if self._needed is None:
            self._needed = self._group()
        until = np.full((len(self._needed), width), _NO_BOUND)
        if not self._rows.parts[partition, IS_OPEN] and width:
            for variable in self._guarded():
                if not any(each >> variable & 1 for each in self._needed):
                    continue
                # The difference of two infinities is NaN, which bounds nothing.
                with np.errstate(all="ignore"):
                    found = self._last_rows(variable, partition, np.arange(begin, upto), number)
                for group, needed in enumerate(self._needed):
                    if needed >> variable & 1:
                        np.minimum(until[group], found, out=until[group])
        self.kernel.until[: len(self._needed), :width] = until
        return upto

    def _guarded(self) -> list[int]:
        return [v for v, each in enumerate(self._made.conditions) if _is_guarded(each)]

    def _group(self) -> list[int]:
        """The sets of guarded variables that instructions need, by group."""
        guarded = sum(1 << each for each in self._guarded())
        groups: dict[int, int] = {}
        needed = variables_ahead(self._made.code, all_ways=True)
        # In the order of the pattern: what its beginning needs is worth most.
        for here in range(len(needed) - 1, -1, -1):
            wanted = needed[here] & guarded
            if wanted and (wanted in groups or len(groups) < MOST_GROUPS):
                self.kernel.group[here] = groups.setdefault(wanted, len(groups))
        return list(groups)

    def _last_rows(self, variable: int, partition: int, begins: Array, number: int) -> Array:
        """For each search the position after the last row that can be the variable."""
        values = self._partition_values(partition)
        if variable not in self._last:
            self._last[variable] = self._last_row(variable, values)
        last = self._last[variable]
        condition = self._made.conditions[variable].path
        if condition is None or not last:
            return np.full(len(begins), last + values.low)
        tested = _Tested(variable, condition, values, number)
        return self._halve(tested, begins - values.low, last) + values.low

    def _last_row(self, variable: int, values: PartitionValues) -> int:
        """The position after the last row that can be the variable in any search."""
        may_be = values.may_be(frozenset([variable]))
        condition = self._made.conditions[variable].path
        if condition is not None:
            searches = Searches(np.arange(values.size))
            evaluator = RangeEvaluator(variable, self._shape, values, searches)
            may_be = may_be & evaluator.truth(condition).true
        rows = np.flatnonzero(may_be)
        return int(rows[-1]) + 1 if len(rows) else 0

    def _halve(self, tested: _Tested, begins: Array, last: int) -> Array:
        """The ranges only shrink from row to row, so the last row is found by halving."""
        size = tested.values.size

        # Not more matches than rows have begun since.
        numbers = tested.number + 1 + np.arange(len(begins))

        def may_hold(chosen: Array, row: Array) -> Array:
            begin = begins[chosen]
            searches = Searches(row, begin, numbers[chosen], tested.number + 1.0)
            evaluator = RangeEvaluator(tested.variable, self._shape, tested.values, searches)
            return np.broadcast_to(evaluator.truth(tested.condition).true, begin.shape)

        behind = np.maximum(begins, last)
        rows = np.maximum(np.minimum(behind - 1, size - 1), begins)
        every = np.arange(len(begins))
        open_ = np.flatnonzero((behind > begins) & ~may_hold(every, rows))
        # It may hold at `low`, or that is before the first row; it may not at `high`.
        low, high = begins[open_] - 1, rows[open_]
        for _ in range(int(size).bit_length()):
            middle = (low + high + 1) // 2
            holds = may_hold(open_, middle)
            is_between = middle < high
            low = np.where(is_between & holds, middle, low)
            high = np.where(is_between & ~holds, middle, high)
        behind[open_] = high
        return behind

    def _partition_values(self, partition: int) -> PartitionValues:
        if self._values is None or self._values[0] != partition:
            self._values = partition, PartitionValues(self._table, self._rows, partition)
            self._last.clear()
        return self._values[1]


def can_be_bounded(made: KernelProgram) -> bool:
    return len(made.code.op) <= MOST_ANALYSED and any(map(_is_guarded, made.conditions))


def _is_guarded(condition: CompiledDefine) -> bool:
    return condition.physical is not None or condition.path is not None
