"""Conditions that the kernel cannot compute, tested one row at a time by the engine's evaluator.

Exact for every type and function that the driver lets through, and thousands of times slower
than the kernel: for decimals beyond 64 bits, user functions, aggregates whose argument names
CLASSIFIER().
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.udfs.rows.flatten import MATCH
from spark_cep.udfs.rows.leaves import with_cells
from spark_cep.udfs.rows.program import Aggregate, Classifier, MatchNumber, Read
from spark_cep.udfs.rows.records import BEGIN, LABELS, NO, NOT_YET, NUMBER, PC, ROW, YES
from spark_cep.udfs.values.evaluate import evaluate, fold, holds
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell, Expression
    from spark_cep.udfs.rows.compiled import Compiled
    from spark_cep.udfs.rows.standing import Ends
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import Tally


@dataclass(frozen=True)
class _Path:
    """The rows of a search so far, the one under test included, and what they are bound to."""

    begin: int
    row: int
    labels: Array
    number: int

    def rows(self, variables: frozenset[int] | None) -> Array:
        rows = np.arange(self.begin, self.row + 1)
        return rows if variables is None else rows[np.isin(self.labels, list(variables))]


class Asking:
    def __init__(self, made: Compiled, table: Table, tally: Tally, ends: Ends) -> None:
        self._made = made
        self._table = table
        self._tally = tally
        self._is_open = ends.open_rows(table)
        self._looked_behind = False

    def answer(self, state: Array, labels: Array) -> int:
        """Whether the condition that the kernel stopped at holds, or whether the match that it
        found can be shown: YES, NO, or NOT_YET where it hangs on rows behind an open end."""
        if self._made.code.op[state[PC]] == MATCH:
            return self._can_be_shown(state, labels)
        self._looked_behind = False
        holds_ = self._condition(state, labels)
        if self._looked_behind:
            return NOT_YET
        return YES if holds_ else NO

    def _can_be_shown(self, state: Array, labels: Array) -> int:
        """The last row that shows the match looks furthest ahead: what a running measure starts
        from only moves on from row to row."""
        begin, behind, base = int(state[BEGIN]), int(state[ROW]), int(state[LABELS])
        bound = labels[base : base + behind - begin]
        program = self._made.program
        shown = np.flatnonzero(bound & 1 == 0) if program.rows != "one" else range(len(bound))
        if not len(shown):
            return YES
        row = begin + int(shown[-1])
        end = int(self._table.end_of[begin])
        path = _Path(begin, row, bound[: row + 1 - begin] >> 1, 0)
        whole = _Path(begin, behind - 1, bound >> 1, 0)
        for measure in program.measures:
            if isinstance(measure, Read) and measure.shift > 0:
                start = _start(measure, whole if measure.final else path)
                if start is not None and start + measure.shift >= end:
                    return NOT_YET
        return YES

    def _condition(self, state: Array, labels: Array) -> bool:
        begin, row, base = int(state[BEGIN]), int(state[ROW]), int(state[LABELS])
        of_path = labels[base : base + row + 1 - begin] >> 1
        path = _Path(begin, row, of_path, int(state[NUMBER]) + 1)
        variable = int(self._made.code.label[state[PC]]) >> 1
        condition = self._made.conditions[variable].path
        assert condition is not None
        read: list[Expression] = []
        expression = with_cells(condition, read)
        found = holds(
            expression,
            lambda cell: self._read(read[cell.variable], path),
            self._table.columns,
            self._tally,
        )
        return bool(np.all(found))

    def _read(self, leaf: Expression, path: _Path) -> Vector:
        if isinstance(leaf, MatchNumber):
            return _one(path.number)
        if isinstance(leaf, Aggregate):
            return self._aggregate(leaf, path)
        assert isinstance(leaf, Read | Classifier)
        row = self._row(leaf, path)
        if isinstance(leaf, Classifier):
            inside = row is not None and path.begin <= row <= path.row
            return _one(int(path.labels[row - path.begin])) if inside and row is not None else _NULL
        if row is None:
            return self._null(leaf)
        if leaf.column is None:
            return _one(True)
        return self._table.columns.gather(leaf.column, leaf.type, np.array([row]))

    def _null(self, leaf: Read) -> Vector:
        if leaf.column is None or not self._table.size:
            return _NULL
        like = self._table.columns.gather(leaf.column, leaf.type, np.array([0]))
        return Vector(like.values, np.zeros(1, np.bool_))

    def _row(self, leaf: Read | Classifier, path: _Path) -> int | None:
        found = _start(leaf, path)
        if found is None:
            return None
        at = found + leaf.shift
        low, high = self._table.begin_of[path.row], self._table.end_of[path.row]
        if at >= high and isinstance(leaf, Read):
            self._look_behind(path)
        return int(at) if low <= at < high else None

    def _look_behind(self, path: _Path) -> None:
        """At the rows behind the partition's last."""
        self._looked_behind |= bool(self._is_open[path.row])

    def _aggregate(self, leaf: Aggregate, path: _Path) -> Vector:
        rows = path.rows(leaf.variables)
        if leaf.argument is not None:
            values = self._argument(leaf.argument, rows, path)
        elif leaf.column is None:
            return _one(len(rows))
        else:
            values = self._table.columns.gather(leaf.column, leaf.type, rows)
        if leaf.distinct:
            values = _distinct(values)
        elements = Vector(
            values.values[np.newaxis], None if values.valid is None else values.valid[np.newaxis]
        )
        return fold(elements, leaf.name, leaf.type, self._tally)  # type: ignore[arg-type]

    def _argument(self, argument: Expression, rows: Array, path: _Path) -> Vector:
        """An expression at each aggregated row, which "current" is here."""
        read: list[Expression] = []
        expression = with_cells(argument, read)

        def value(cell: Cell) -> Vector:
            leaf = read[cell.variable]
            if isinstance(leaf, MatchNumber):
                return Vector(np.full(len(rows), path.number))
            assert isinstance(leaf, Read | Classifier)
            at = rows + leaf.shift
            if isinstance(leaf, Classifier):
                inside = (at >= path.begin) & (at <= path.row)
                return Vector(path.labels[np.where(inside, at, path.begin) - path.begin], inside)
            low, high = self._table.begin_of[path.row], self._table.end_of[path.row]
            inside = (at >= low) & (at < high)
            if (at >= high).any():
                self._look_behind(path)
            if leaf.column is None:
                return Vector(np.ones(len(rows), np.bool_), inside)
            found = self._table.columns.gather(leaf.column, leaf.type, np.where(inside, at, low))
            valid = inside if found.valid is None else inside & found.valid
            return Vector(found.values, valid, found.nan_free)

        vector = evaluate(expression, value, self._table.columns, self._tally)
        shape = (len(rows),)
        valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape)
        return Vector(np.broadcast_to(vector.values, shape), valid)


def _start(leaf: Read | Classifier, path: _Path) -> int | None:
    """The row from which `shift` counts."""
    if leaf.anchor == "current":
        return path.row
    rows = path.rows(leaf.variables)
    if leaf.offset >= len(rows):
        return None
    return int(rows[leaf.offset if leaf.anchor == "first" else -1 - leaf.offset])


def _distinct(values: Vector) -> Vector:
    """Each value once, NULLs dropped. NaN equals NaN, -0.0 equals 0.0."""
    kept = values.values if values.valid is None else values.values[values.valid]
    if kept.dtype == object:
        return Vector(np.array(list(dict.fromkeys(kept.tolist())), object))
    _, first = np.unique(kept + 0 if kept.dtype.kind == "f" else kept, return_index=True)
    return Vector(kept[np.sort(first)])


def _one(value: Any) -> Vector:
    return Vector(np.array([value]))


_NULL = Vector(np.zeros(1, np.bool_), np.zeros(1, np.bool_))
