"""Conditions that Python tests, for a stretch of rows at once.

In `(a b+)` with `b AS round(price / a.price, 2) > 1` the row of `a` stays while one row after the
other is tested as `b`, and in `(a+ b)` with `b AS round(price / FIRST(a.price), 2) > 1` one before
the other. So the condition is evaluated for the rows that follow in this direction too, and their
answers are kept for as long as everything that it reads of the path stays at the same rows. Each
answer is what a test of this row alone would give; an error counts when its row is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.row_program import RowRead
from spark_cep.udfs.rows.leaves import replace_with_cells
from spark_cep.udfs.values.evaluate import evaluate_expression
from spark_cep.udfs.values.operators import is_true
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell, Expression
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally

Rows = tuple[int | None, ...]
# A call of the evaluator costs as much as a few dozen elements.
FIRST_ROWS: Final = 16
MOST_ROWS: Final = 1 << 12
MOST_STRETCHES: Final = 1 << 8
_CHUNK: Final = 64


@dataclass
class _Stretch:
    """The answers from row `begin` on. `errors`: of each row. `asked`: how many were needed."""

    begin: int
    holds: Array
    errors: Array
    asked: int = 0

    @property
    def end(self) -> int:
        return self.begin + len(self.holds)


class PathPlace:
    """The row of the path that a leaf is anchored at."""

    def __init__(self, leaf: RowRead, variables: int) -> None:
        self.leaf = leaf
        self._is_first = leaf.anchor == "first"
        self._is_member: Array | None = None
        if leaf.variables is not None:
            # By the label of a row: twice its variable, plus 1 or not.
            self._is_member = np.zeros(2 * variables, np.bool_)
            for each in leaf.variables:
                self._is_member[2 * each : 2 * each + 2] = True

    def row(self, labels: Array, begin: int) -> int | None:
        """`labels`: of each row of the path, which begins at row `begin`."""
        size, missing = len(labels), self.leaf.offset
        if self._is_member is None:
            place = missing if self._is_first else size - 1 - missing
            return begin + place if 0 <= place < size else None
        ordered = labels if self._is_first else labels[::-1]
        done, length = 0, _CHUNK
        while done < size:
            hits = self._is_member[ordered[done : done + length]].nonzero()[0]
            if len(hits) > missing:
                place = done + int(hits[missing])
                return begin + (place if self._is_first else size - 1 - place)
            missing, done, length = missing - len(hits), done + length, 2 * length
        return None


class StretchEvaluator:
    """One condition whose leaves all read columns. `anchored`: those that read the path."""

    def __init__(self, condition: Expression, table: RowTable, tally: ErrorTally) -> None:
        leaves: list[Expression] = []
        self._cells = replace_with_cells(condition, leaves)
        self._leaves = [leaf for leaf in leaves if isinstance(leaf, RowRead)]
        self.is_possible = len(self._leaves) == len(leaves)
        self.anchored = [
            PathPlace(leaf, len(table.program.variables))
            for leaf in self._leaves
            if leaf.anchor != "current"
        ]
        self.most_ahead = max(
            [0, *(leaf.shift for leaf in self._leaves if leaf.anchor == "current")]
        )
        self._table = table
        self._tally = tally
        self._known: dict[Rows, _Stretch] = {}
        self._last: _Stretch | None = None
        # Rows, for what they cost.
        self.evaluated = 0

    def holds(self, row: int, rows: Rows) -> bool:
        """Whether the condition holds at a row; `rows`: where the anchored leaves are read."""
        found = self._known.get(rows)
        if found is None or not found.begin <= row < found.end:
            found = self._evaluate(row, rows, found)
        at = row - found.begin
        found.asked += 1
        self._tally.errors += int(found.errors[at])
        return bool(found.holds[at])

    def _evaluate(self, row: int, rows: Rows, before: _Stretch | None) -> _Stretch:
        low, high = self._rows_around(row, before)
        try:
            holds, errors = self._answers(np.arange(low, high), rows)
        except CepError:
            # It may be about a row that is never asked for.
            low = row
            holds, errors = self._answers(np.arange(row, row + 1), rows)
        found = _Stretch(low, holds, errors, 0 if before is None else 1)
        if len(self._known) >= MOST_STRETCHES:
            self._known.clear()
        self._known[rows] = self._last = found
        return found

    def _rows_around(self, row: int, before: _Stretch | None) -> tuple[int, int]:
        """The rows to evaluate with a row: those behind it, or before it."""
        low, high = int(self._table.begin_of[row]), int(self._table.end_of[row])
        if before is not None and before.end == row:
            return row, min(row + min(2 * len(before.holds), MOST_ROWS), high)
        if before is not None and row == before.begin - 1:
            return max(row + 1 - min(2 * len(before.holds), MOST_ROWS), low), row + 1
        # If the path moves on with each row, no answer is needed twice.
        is_needed_once = self._last is not None and self._last.asked <= 1
        return row, min(row + (1 if is_needed_once else FIRST_ROWS), high)

    def _answers(self, tested: Array, rows: Rows) -> tuple[Array, Array]:
        """Whether the condition holds at each row, and the errors of each."""
        self.evaluated += len(tested)
        with self._tally.uncounted():
            vector = evaluate_expression(
                self._cells,
                lambda cell: self._read(cell, tested, rows),
                self._table.columns,
                self._tally,
            )
            failures = self._tally.take_failed()
        errors = np.zeros(len(tested), np.int64)
        for each in failures:
            errors += np.broadcast_to(each, tested.shape)
        return np.broadcast_to(is_true(vector), tested.shape) & (errors == 0), errors

    def _read(self, cell: Cell, tested: Array, rows: Rows) -> Vector:
        leaf, table = self._leaves[cell.variable], self._table
        if leaf.anchor == "current":
            at = tested + leaf.shift
            low, high = table.begin_of[tested[0]], table.end_of[tested[0]]
            inside = (at >= low) & (at < high)
            at = np.where(inside, at, low)
        else:
            row = rows[[each.leaf for each in self.anchored].index(leaf)]
            inside = np.array([row is not None])
            at = np.array([0 if row is None else row])
        if leaf.column is None:
            return Vector(np.ones(inside.shape, np.bool_), inside)
        found = table.columns.gather(leaf.column, leaf.type, at)
        if inside.all():
            return found
        valid = inside if found.valid is None else inside & found.valid
        return Vector(found.values, valid, found.nan_free)
