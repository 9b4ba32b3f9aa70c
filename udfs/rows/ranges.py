"""Expressions evaluated over ranges: what they can be in a search, from a row on.

What depends on the row under test alone, or on the first row of the match alone, is computed as it
is, whatever functions it has. The rest is computed from the least and the greatest value of each
part. Ranges only ever contain too much: what is not understood can be anything, and NULL is always
possible.

NaN is the largest value, as in Spark, and stands above all as infinity. What floats of 64 bits
cannot hold exactly (long integers and decimals) is widened to the floats around it. Decimals are
their digits, without the point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import BOOL, DOUBLE, Call, Constant
from spark_cep.udfs.row_program import Aggregate, MatchNumber, RowRead
from spark_cep.udfs.rows.bytecode import SPREADS
from spark_cep.udfs.rows.instructions import OVERFLOW_BIT
from spark_cep.udfs.rows.leaves import is_physical, leaves_of, replace_with_cells
from spark_cep.udfs.rows.table import expression_values
from spark_cep.udfs.values.evaluate import evaluate_expression
from spark_cep.udfs.values.operators import is_true
from spark_cep.udfs.values.tally import ErrorTally
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell, Expression, Type
    from spark_cep.udfs.row_program import VariableSet
    from spark_cep.udfs.rows.bounds import PatternShape
    from spark_cep.udfs.rows.records import KernelRows
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array

    # A column, its type, and the shift; or an expression over single rows.
    _Source = tuple[int, Type, int] | Expression


_EXACT_DOUBLE: Final = float(1 << 53)
_MOST_FLOAT: Final = float(np.finfo(np.float64).max)
# Sums of this many are not computed: 64 bits may wrap around.
_MOST_SUM: Final = float(1 << 62)
# What averages and deviations of floats may differ from their exact values, relatively.
_ROUNDING: Final = 1e-9
_ORDERED: Final = (
    "int", "float", "bool", "date", "timestamp", "timestamp_ntz", "interval", "months", "decimal",
    "string", "binary",
)  # fmt: skip
_NUMBERS: Final = ("int", "float", "interval", "decimal", "timestamp", "timestamp_ntz", "date")
_MICROSECONDS: Final = {"timestamp", "timestamp_ntz", "interval"}
# How far products in floats are off, relatively.
_TIE: Final = 2.0**-48
# Digits that rounding may keep or drop.
_MOST_DIGITS: Final = 20
# The rows of a set end at any row of the match.
ANYWHERE: Final = -1 << 40


# ---- ranges ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ValueRange:
    """For each search or row the least and the greatest value; where `low` is above `high`, none.
    A `high` of infinity includes NaN, and a `low` of infinity nothing else."""

    low: Array
    high: Array

    @property
    def is_empty(self) -> Array:
        return np.asarray(self.low > self.high)

    def at(self, rows: Array) -> ValueRange:
        return ValueRange(self.low[rows], self.high[rows])

    def where(self, known: Array) -> ValueRange:
        """None elsewhere."""
        return ValueRange(np.where(known, self.low, np.inf), np.where(known, self.high, -np.inf))

    def hull(self, other: ValueRange) -> ValueRange:
        return ValueRange(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def meet(self, low: Array, high: Array) -> ValueRange:
        """What is in this range and in that one, none where this one has none."""
        found = ValueRange(np.maximum(self.low, low), np.minimum(self.high, high))
        return found.where(~self.is_empty)

    def widened(self, by: Array) -> ValueRange:
        found = ValueRange(_number(self.low - by, -np.inf), _number(self.high + by, np.inf))
        return found.where(~self.is_empty)


@dataclass(frozen=True)
class TruthRange:
    """For each search whether a condition may be TRUE, and whether it may be FALSE."""

    true: Array
    false: Array


_YES: Final = np.ones(1, np.bool_)
_ANY_VALUE: Final = ValueRange(np.full(1, -np.inf), np.full(1, np.inf))
_ANY_TRUTH: Final = TruthRange(_YES, _YES)


def _number(values: Array, otherwise: float) -> Array:
    """The values, with `otherwise` in place of NaN."""
    return np.where(np.isnan(values), otherwise, values)


def _outward(low: Array, high: Array, beyond: float = _EXACT_DOUBLE) -> tuple[Array, Array]:
    """The floats around the values where these may be rounded."""
    low = np.where(np.abs(low) > beyond, np.nextafter(low, -np.inf), low)
    return low, np.where(np.abs(high) > beyond, np.nextafter(high, np.inf), high)


def range_of_values(vector: Vector, type_: Type) -> ValueRange | None:
    """Each value as a range; None if its type has no order here."""
    values, kind = vector.values, type_.kind
    if kind not in _ORDERED:
        return None
    valid = np.ones(values.shape, np.bool_) if vector.valid is None else vector.valid
    values, valid = np.broadcast_arrays(values, valid)
    if values.dtype == object:
        if kind != "decimal":
            return None
        values = np.where(valid, values, 0)
    found = values.astype(np.float64)
    if kind == "float":
        is_nan = np.isnan(found)
        # Infinity is below NaN.
        low = np.where(is_nan, np.inf, np.minimum(found, _MOST_FLOAT))
        high = np.where(is_nan, np.inf, found)
    else:
        low, high = _outward(found, found)
    return ValueRange(low, high).where(valid)


# ---- the rows of a partition -------------------------------------------------------------------


class PartitionValues:
    """What columns can be from each row of a partition on. Rows count from its first."""

    def __init__(self, table: RowTable, rows: KernelRows, partition: int) -> None:
        self.low, self.high = int(rows.begin[partition]), int(rows.end[partition])
        self.size = self.high - self.low
        self.columns = table.columns
        self.ansi = table.program.ansi
        self._table = table
        self._rows = rows
        self._values: dict[object, ValueRange | None] = {}
        self._ranges: dict[object, ValueRange | None] = {}
        self._sums: dict[object, _Sums] = {}
        # From which first row to which, and the values.
        self._first_rows: dict[object, tuple[int, int, tuple[Vector, Array] | None]] = {}

    def may_be(self, variables: VariableSet) -> Array:
        """The rows that the physical conditions of any of the variables admit."""
        if variables is None:
            return np.ones(self.size, np.bool_)
        none = np.zeros(self.size, np.bool_)
        return reduce(np.logical_or, map(self._may_be, sorted(variables)), none)

    def _may_be(self, variable: int) -> Array:
        here = slice(self.low, self.high)
        if variable >= OVERFLOW_BIT:
            return np.asarray(self._rows.more[variable - OVERFLOW_BIT, here])
        return np.asarray(self._rows.may[here] >> np.uint64(variable) & np.uint64(1), np.bool_)

    def values(self, source: _Source) -> ValueRange | None:
        """The value at each row."""
        if source not in self._values:
            self._values[source] = self._find_values(source)
        return self._values[source]

    def _find_values(self, source: _Source) -> ValueRange | None:
        here = slice(self.low, self.high)
        if isinstance(source, tuple):
            found = range_of_values(self._table.shifted(*source), source[1])
            return None if found is None else found.at(here)  # type: ignore[arg-type]
        try:
            tally = ErrorTally(ansi=self.ansi)
            with tally.uncounted():
                vector, failed = expression_values(source, self._table, tally)
        except CepError:
            return None
        found = range_of_values(vector, source.type)
        if found is None:
            return None
        if failed is not None:
            found = found.hull(_ANY_VALUE.where(failed))
        return found.at(here)  # type: ignore[arg-type]

    def at_first_rows(self, node: Expression, begin: Array) -> tuple[Vector, Array] | None:
        """The value of an expression that reads the first row of each search and its neighbours
        only, and where it failed."""
        low, high = int(begin.min()), int(begin.max()) + 1
        known = self._first_rows.get(node)
        if known is None or not known[0] <= low < high <= known[1]:
            known = low, high, self._evaluate_at(node, np.arange(low, high))
            self._first_rows[node] = known
        if known[2] is None:
            return None
        vector, failed = known[2]
        return vector.at(begin - known[0]), failed[begin - known[0]]

    def _evaluate_at(self, node: Expression, rows: Array) -> tuple[Vector, Array] | None:
        read: list[Expression] = []
        cells = replace_with_cells(node, read)
        table, tally = self._table, ErrorTally(ansi=self.ansi)

        def value(cell: Cell) -> Vector:
            leaf = read[cell.variable]
            assert isinstance(leaf, RowRead)
            at = rows + leaf.shift
            inside = (at >= 0) & (at < self.size)
            at = np.where(inside, at, 0) + self.low
            if leaf.column is None:
                return Vector(np.ones(len(at), np.bool_), inside)
            found = table.columns.gather(leaf.column, leaf.type, at)
            valid = inside if found.valid is None else inside & found.valid
            return Vector(found.values, valid, found.nan_free)

        try:
            with tally.uncounted():
                vector = evaluate_expression(cells, value, table.columns, tally)
                failures = tally.take_failed()
        except CepError:
            return None
        failed = reduce(np.logical_or, failures, np.zeros(len(rows), np.bool_))
        values = np.broadcast_to(vector.values, len(rows))
        valid = None if vector.valid is None else np.broadcast_to(vector.valid, len(rows))
        return Vector(values, valid), np.broadcast_to(failed, len(rows))

    def counted(self, column: int | None) -> Array:
        """The rows that count(column) counts."""
        if column is None:
            return np.ones(self.size, np.bool_)
        vector = self._table.shifted(column, self.columns.type_of(column), 0)
        if vector.valid is None:
            return np.ones(self.size, np.bool_)
        return np.asarray(vector.valid[self.low : self.high])

    def range_of(
        self, source: _Source, variables: VariableSet, *, backward: bool = False
    ) -> ValueRange | None:
        """The range over all rows of the variables from each row on, or, `backward`, over those
        before each row; one more entry for none."""
        key = (source, variables, backward)
        if key not in self._ranges:
            found = self.values(source)
            if found is not None:
                found = found.where(self.may_be(variables))
                found = ValueRange(
                    _accumulated(np.minimum, found.low, np.inf, backward),
                    _accumulated(np.maximum, found.high, -np.inf, backward),
                )
            self._ranges[key] = found
        return self._ranges[key]

    def sums(
        self, node: Aggregate, values: ValueRange, keys: ValueRange | None, every: frozenset[int]
    ) -> _Sums:
        """Sums of the values over rows of the node's variables. `keys`: what DISTINCT compares.
        `every`: all variables of the pattern."""
        key = (node.name == "count", node.column, node.variables, node.distinct)
        if key not in self._sums:
            self._sums[key] = self._find_sums(node, values, keys, every)
        return self._sums[key]

    def _find_sums(
        self, node: Aggregate, values: ValueRange, keys: ValueRange | None, every: frozenset[int]
    ) -> _Sums:
        valid = ~values.is_empty
        may_be = self.may_be(node.variables) & valid
        # NaN, or beyond all floats.
        is_beyond = valid & np.isposinf(values.high)
        low = np.where(valid & ~is_beyond, values.low, 0.0)
        high = np.where(valid & ~is_beyond, values.high, 0.0)
        forced = np.zeros(self.size, np.bool_)
        first = last = may_be
        if node.distinct:
            first, last = (may_be, may_be) if keys is None else _distinct_rows(keys, may_be)
        elif node.variables is not None:
            forced = may_be & ~self.may_be(every - node.variables)
        else:
            forced = may_be
        lowest = np.where(forced, low, np.where(last, np.minimum(low, 0.0), 0.0))
        highest = np.where(forced, high, np.where(last, np.maximum(high, 0.0), 0.0))
        total = float(np.maximum(np.abs(low), np.abs(high)).sum())
        return _Sums(
            prefix=_prefixes(lowest, highest),
            running=_prefixes(low, high),
            before=ValueRange(
                _accumulated(np.add, np.where(first, np.minimum(low, 0.0), 0.0), 0.0, True),
                _accumulated(np.add, np.where(first, np.maximum(high, 0.0), 0.0), 0.0, True),
            ),
            beyond=tuple(  # type: ignore[arg-type]
                _accumulated(np.maximum, is_beyond & may_be, False, backward)
                for backward in (False, True)
            ),
            total=total,
            # Each addition is off by half a unit in the last place.
            margin=(self.size + 1) * total * 2.0**-51,
        )


def _distinct_rows(values: ValueRange, may_be: Array) -> tuple[Array, Array]:
    """Of the rows with equal values the first, and the last. Where floats cannot tell values apart,
    all of them."""
    found = [np.zeros(len(may_be), np.bool_) for _ in range(2)]
    rows = np.flatnonzero(may_be)
    if not (values.low == values.high)[rows].all():
        return may_be, may_be
    for which, ordered in enumerate((rows, rows[::-1])):
        found[which][ordered[np.unique(values.low[ordered], return_index=True)[1]]] = True
    return found[0], found[1]


def _prefixes(low: Array, high: Array) -> _Prefixes:
    """Of the sums of the values before each row."""
    lows, highs = (np.append(0.0, np.cumsum(each)) for each in (low, high))
    return _Prefixes(
        ValueRange(lows, highs),
        ValueRange(
            _accumulated(np.minimum, lows[:-1], lows[-1], False),
            _accumulated(np.maximum, highs[:-1], highs[-1], False),
        ),
    )


def _accumulated(how: np.ufunc, values: Array, start: float, backward: bool) -> Array:
    """Of the values from each place on, or of those before it; begins with `start`."""
    values = np.append(start, values if backward else values[::-1])
    found = how.accumulate(values)
    return np.asarray(found if backward else found[::-1])


@dataclass(frozen=True)
class _Prefixes:
    """`sums`: of the rows before each one. `later`: what that is from there on."""

    sums: ValueRange
    later: ValueRange

    def between(self, begin: Array, behind: Array) -> tuple[Array, Array]:
        """Of the rows from `begin` to one before a row from `behind` on."""
        low = self.later.low[behind] - self.sums.low[begin]
        return low, self.later.high[behind] - self.sums.high[begin]


@dataclass(frozen=True)
class _Sums:
    """`prefix`: of rows that are in the set if they are in a match, and of the others as far as
    that makes the sum less, or more. `running`: of all rows. `before`: the same over any rows of
    the set before each. `beyond`: whether there is NaN from each row on, and before it. `total`: of
    the magnitudes. `margin`: what sums may be off."""

    prefix: _Prefixes
    running: _Prefixes
    before: ValueRange
    beyond: tuple[Array, Array]
    total: float
    margin: float


@dataclass(frozen=True)
class Searches:
    """Searches by their first row, and the row from which on a condition is tested; both count
    from the first row of the partition. Without `begin`: any search, and that row only. `number`:
    the greatest number that a match of each search can have, not below `least_number`."""

    row: Array
    begin: Array | None = None
    number: Array | None = None
    least_number: float = 1.0


class RangeEvaluator:
    """Evaluates the condition of one variable over ranges."""

    def __init__(
        self, variable: int, shape: PatternShape, values: PartitionValues, searches: Searches
    ) -> None:
        self._variable = variable
        self._shape = shape
        self._values = values
        self._searches = searches

    # ---- conditions ----------------------------------------------------------------------------

    def truth(self, node: Expression) -> TruthRange:
        if isinstance(node, Call) and node.name in ("and", "or", "not"):
            return _CONDITIONS[node.name](self, node)
        found = self._of_first_row(node)
        if found is not None:
            vector, failed = found
            true = is_true(vector)
            false = ~true if vector.valid is None else ~true & vector.valid
            return TruthRange(true | failed, false | failed)
        if isinstance(node, Call) and not is_physical(node):
            how = _CONDITIONS.get(node.name)
            return _ANY_TRUTH if how is None else how(self, node)
        if node.type.kind != "bool":
            return _ANY_TRUTH
        value = self.value(node)
        return TruthRange(value.high >= 1, value.low <= 0)

    def and_(self, node: Call) -> TruthRange:
        parts = [self.truth(each) for each in node.arguments]
        return TruthRange(
            reduce(np.logical_and, [each.true for each in parts]),
            reduce(np.logical_or, [each.false for each in parts]),
        )

    def or_(self, node: Call) -> TruthRange:
        parts = [self.truth(each) for each in node.arguments]
        return TruthRange(
            reduce(np.logical_or, [each.true for each in parts]),
            reduce(np.logical_and, [each.false for each in parts]),
        )

    def not_(self, node: Call) -> TruthRange:
        found = self.truth(node.arguments[0])
        return TruthRange(found.false, found.true)

    def if_(self, node: Call) -> TruthRange:
        taken = self._branch(node)
        if taken is None:
            return _ANY_TRUTH
        then, otherwise = (self.truth(each) for each in node.arguments[1:])
        return TruthRange(
            then.true & taken[0] | otherwise.true & taken[1],
            then.false & taken[0] | otherwise.false & taken[1],
        )

    def in_(self, node: Call) -> TruthRange:
        head, *items = node.arguments
        return self.or_(Call("or", tuple(Call("=", (head, i), node.type) for i in items), BOOL))

    def comparison(self, node: Call) -> TruthRange:
        left, right = node.arguments
        types = {(each.type.kind, each.type.scale) for each in (left, right)}
        if len(types) > 1 or left.type.kind not in _ORDERED:
            return _ANY_TRUTH
        true, false = _RELATIONS[node.name](self.value(left), self.value(right))
        return TruthRange(np.asarray(true), np.asarray(false))

    # ---- values --------------------------------------------------------------------------------

    def value(self, node: Expression) -> ValueRange:  # noqa: PLR0911 - one for each kind of node
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, RowRead):
            return self._read(node)
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, MatchNumber) and self._searches.number is not None:
            most = self._searches.number.astype(np.float64)
            return ValueRange(np.full(len(most), self._searches.least_number), most)
        if not isinstance(node, Call):
            return _ANY_VALUE
        if is_physical(node):
            return self._of_tested_row(node)
        found = self._of_first_row(node)
        if found is None:
            return self._call(node)
        value = range_of_values(found[0], node.type)
        if value is None:
            return _ANY_VALUE
        return value.hull(_ANY_VALUE.where(found[1]))

    def _branch(self, node: Call) -> tuple[Array, Array] | None:
        """Where the branches of an IF may be taken, if the first row of the match decides it."""
        found = self._of_first_row(node.arguments[0])
        if found is None:
            return None
        holds = is_true(found[0])
        return holds | found[1], ~holds | found[1]

    def _of_first_row(self, node: Expression) -> tuple[Vector, Array] | None:
        """The value, and where it failed, if the first row of the match determines it."""
        begin = self._searches.begin
        if begin is None or not len(begin):
            return None
        leaves = list(leaves_of(node))
        if not leaves or not all(
            isinstance(leaf, RowRead) and leaf.anchor == "first" and self._is_known(leaf)
            for leaf in leaves
        ):
            return None
        return self._values.at_first_rows(node, begin)

    def _call(self, node: Call) -> ValueRange:
        if node.name in ("if", "coalesce", "least", "greatest"):
            chosen = node.arguments[1:] if node.name == "if" else node.arguments
            if all(each.type == node.type for each in chosen):
                ranges = [self.value(each) for each in chosen]
                taken = self._branch(node) if node.name == "if" else None
                if taken is not None:
                    ranges = [ranges[0].where(taken[0]), ranges[1].where(taken[1])]
                return reduce(ValueRange.hull, ranges)
        if node.name == "cast":
            return self._cast(node)
        if node.name in _ROUNDED:
            return self._rounded(node)
        if node.name in _COMPUTED and node.type.kind in _NUMBERS:
            return self._computed(node)
        return _ANY_VALUE

    def _constant(self, node: Constant) -> ValueRange:
        if node.value is None:
            return ValueRange(np.full(1, np.inf), np.full(1, -np.inf))
        vector = self._values.columns.constant(node)
        found = range_of_values(Vector(np.reshape(vector.values, 1)), node.type)
        return _ANY_VALUE if found is None else found

    def _computed(self, node: Call) -> ValueRange:
        type_, types = node.type, [each.type for each in node.arguments]
        kinds = {each.kind for each in types}
        if type_.kind == "decimal" and kinds <= {"decimal", "int"}:
            return self._decimals(node)
        # A float of 32 bits is rounded after each operation, a range is not.
        if type_.kind == "float" and type_.bits < DOUBLE.bits:
            return _ANY_VALUE
        if kinds != {type_.kind} and not kinds | {type_.kind} <= _MICROSECONDS:
            return _ANY_VALUE
        operands = [self.value(each) for each in node.arguments]
        found = _result(type_, *_COMPUTE[node.name](*operands))
        return found.where(~_any_empty(operands))

    def _decimals(self, node: Call) -> ValueRange:
        """Decimals of several scales, also where the result has fewer digits than it needs."""
        scales = [each.type.scale for each in node.arguments]
        operands = [self.value(each) for each in node.arguments]
        how = _OF_DECIMALS.get(node.name, node.name)
        if how == "*":
            scale = sum(scales)
        elif how == "/":
            scale = scales[0] - scales[1]
        else:
            scale = max(scales)
            operands = [
                _rescaled(each, scale - own) for each, own in zip(operands, scales, strict=True)
            ]
        found = _result(node.type, *_COMPUTE[how](*operands)).where(~_any_empty(operands))
        found = _rescaled(found, node.type.scale - scale)
        return found.widened(np.full(1, 1.0)) if how == "/" else found

    def _rounded(self, node: Call) -> ValueRange:
        """round, floor and the like."""
        source, type_ = node.arguments[0].type, node.type
        digits = 0
        if len(node.arguments) > 1:
            given = node.arguments[1]
            if not isinstance(given, Constant) or not isinstance(given.value, int):
                return _ANY_VALUE
            digits = given.value
        if abs(digits) > _MOST_DIGITS or not {source.kind, type_.kind} <= {"float", "int"}:
            return _ANY_VALUE
        found = self.value(node.arguments[0])
        low, high = _ROUNDED[node.name](found, digits)
        return _result(type_, low, high).where(~found.is_empty)

    def _cast(self, node: Call) -> ValueRange:
        source, target = node.arguments[0].type, node.type
        found = self.value(node.arguments[0])
        kinds = (source.kind, target.kind)
        widens = source.kind == target.kind in ("int", "float") and source.bits <= target.bits
        if widens or (kinds == ("int", "float") and target.bits == DOUBLE.bits):
            return found
        if kinds in (("int", "decimal"), ("decimal", "decimal")):
            scale = source.scale if source.kind == "decimal" else 0
            return found if scale == target.scale else _rescaled(found, target.scale - scale)
        if kinds == ("decimal", "float") and target.bits == DOUBLE.bits:
            factor = 10.0**-source.scale
            exact = _outward(found.low * factor, found.high * factor, 0.0)
            return _result(target, *_outward(*exact, 0.0)).where(~found.is_empty)
        return _ANY_VALUE

    def _of_tested_row(self, node: Expression) -> ValueRange:
        """Of what the row under test and its neighbours determine."""
        source: _Source = node
        if isinstance(node, RowRead):
            assert node.column is not None
            source = (node.column, node.type, node.shift)
        if self._searches.begin is None:
            found = self._values.values(source)
        else:
            found = self._values.range_of(source, frozenset([self._variable]))
        return _ANY_VALUE if found is None else found.at(self._searches.row)

    def _read(self, node: RowRead) -> ValueRange:
        if node.column is None:
            return _ANY_VALUE
        if node.anchor == "current":
            return self._of_tested_row(node)
        read, begin = (node.column, node.type, node.shift), self._searches.begin
        if node.anchor != "first" or begin is None or not self._is_known(node, node.offset):
            return self._of_path(read, node.variables)
        found = self._values.values(read)
        if found is None:
            return _ANY_VALUE
        rows = begin + node.offset
        inside = rows < self._values.size
        return found.at(np.where(inside, rows, 0)).where(inside)

    def _is_known(self, node: RowRead, offset: int = 0) -> bool:
        """Whether the row is so many rows behind the first of the match, if there is one."""
        if node.offset != offset:
            return False
        if node.variables is None:
            return True
        return node.offset == 0 and self._shape.begins_with(node.variables)

    def _of_path(self, read: tuple[int, Type, int], variables: VariableSet) -> ValueRange:
        """Over the rows that the path may bind to the variables."""
        backward = self._searches.begin is None
        found = self._values.range_of(read, variables, backward=backward)
        return _ANY_VALUE if found is None else found.at(self._path_rows(variables))

    def _path_rows(self, variables: VariableSet) -> Array:
        """Where to look in what is accumulated from each row on, or before each row."""
        if self._searches.begin is not None:
            return self._searches.begin
        return self._searches.row + int(self._is_in(variables))

    def _is_in(self, variables: VariableSet) -> bool:
        return variables is None or self._variable in variables

    # ---- aggregates ----------------------------------------------------------------------------

    def _aggregate(self, node: Aggregate) -> ValueRange:  # noqa: PLR0911 - one for each kind
        if node.argument is not None:
            return _ANY_VALUE
        if node.name == "count":
            return self._count(node)
        if node.column is None:
            return _ANY_VALUE
        if node.name in ("min", "max", "min_by", "max_by", "first", "last"):
            return self._of_path((node.column, node.type, 0), node.variables)
        type_ = self._values.columns.type_of(node.column)
        read = (node.column, type_, 0)
        found = self._values.values(read)
        if found is None or type_.kind not in ("int", "float", "decimal"):
            return _ANY_VALUE
        every = self._of_path(read, node.variables)
        if node.name == "sum":
            return self._sum(node, found, every, type_)
        if node.name == "avg":
            return self._mean(node.type, every, type_)
        if node.name in SPREADS and type_.kind != "decimal":
            return _spread(node.name, every)
        return _ANY_VALUE

    def _mean(self, type_: Type, every: ValueRange, source: Type) -> ValueRange:
        # Values of one sign are off by less than the least of them.
        low = np.where(every.low >= 0, np.abs(every.low), _most(every))
        high = np.where(every.high <= 0, np.abs(every.high), _most(every))
        found = ValueRange(
            _number(every.low - _ROUNDING * low, -np.inf),
            _number(every.high + _ROUNDING * high, np.inf),
        ).where(~every.is_empty)
        if source.kind == "decimal":
            return _rescaled(found, type_.scale - source.scale)
        return _result(type_, found.low, found.high).where(~every.is_empty)

    def _count(self, node: Aggregate) -> ValueRange:
        counted = self._values.counted(node.column).astype(np.float64)
        keys = None
        if node.column is not None and node.distinct:
            type_ = self._values.columns.type_of(node.column)
            keys = self._values.values((node.column, type_, 0))
        ones = ValueRange(counted, counted)
        low, high = self._between(node, self._values.sums(node, ones, keys, self._shape.variables))
        return ValueRange(np.maximum(low, 0.0), high)

    def _sum(
        self, node: Aggregate, values: ValueRange, every: ValueRange, type_: Type
    ) -> ValueRange:
        if type_.kind == "decimal" and node.type.scale != type_.scale:
            return _ANY_VALUE
        sums = self._values.sums(node, values, values, self._shape.variables)
        if type_.kind == "int" and sums.total > _MOST_SUM:
            return _ANY_VALUE
        low, high = self._between(node, sums)
        if type_.kind == "float" or sums.total > _EXACT_DOUBLE:
            low, high = low - sums.margin, high + sums.margin
        is_beyond = sums.beyond[self._searches.begin is None][self._path_rows(node.variables)]
        high = np.where(is_beyond, np.inf, high)
        # At least one value is added, and a sum of values of one sign is none but these.
        low = np.where(every.low >= 0, np.maximum(low, np.minimum(every.low, _MOST_FLOAT)), low)
        high = np.where(every.high <= 0, np.minimum(high, every.high), high)
        return _result(node.type, low, high).where(~every.is_empty)

    def _between(self, node: Aggregate, sums: _Sums) -> tuple[Array, Array]:
        """The least and the greatest sum over the rows of the set."""
        begin, row, size = self._searches.begin, self._searches.row, self._values.size
        if begin is None:
            found = sums.before.at(self._path_rows(node.variables))
            return found.low, found.high
        behind = np.minimum(row + int(self._is_in(node.variables)), size)
        if node.distinct:
            return sums.prefix.between(begin, np.full_like(begin, size))
        low, high = sums.prefix.between(begin, np.maximum(behind, begin))
        ends = self._shape.last_of_prefix(node.variables, self._variable)
        if ends is not None:
            # The rows are those from the first of the match on.
            behind = np.minimum(np.maximum(row + ends, begin + 1), size)
            all_low, all_high = sums.running.between(begin, behind)
            low, high = np.maximum(low, all_low), np.minimum(high, all_high)
        return low, high


def _any_empty(operands: list[ValueRange]) -> Array:
    return np.asarray(reduce(np.logical_or, [each.is_empty for each in operands]))


def _most(found: ValueRange) -> Array:
    """The greatest magnitude."""
    return np.where(found.is_empty, 0.0, np.maximum(np.abs(found.low), np.abs(found.high)))


def _result(type_: Type, low: Array, high: Array) -> ValueRange:
    """The range of an operation that was computed in floats."""
    low, high = _number(low, -np.inf), _number(high, np.inf)
    if type_.kind == "float":
        # Beyond the largest float is infinity, which is not NaN.
        return ValueRange(np.minimum(low, _MOST_FLOAT), high)
    low, high = _outward(low, high)
    if type_.kind == "int":
        most = 2.0 ** (type_.bits - 1) - 1
        # It may wrap around.
        wraps = (low < -most - 1) | (high > most)
        low, high = np.where(wraps, -np.inf, low), np.where(wraps, np.inf, high)
    return ValueRange(low, high)


def _rescaled(found: ValueRange, digits: int) -> ValueRange:
    """With so many more digits behind the point, or less; rounded to one unit."""
    low, high = _outward(found.low * 10.0**digits, found.high * 10.0**digits, 0.0)
    rescaled = ValueRange(_number(low, -np.inf), _number(high, np.inf))
    return rescaled.where(~found.is_empty).widened(np.full(1, 1.0 if digits < 0 else 0.0))


def _spread(name: str, every: ValueRange) -> ValueRange:
    """Of variances and deviations: not negative, and not above those of the two extremes."""
    width = _number(np.maximum(every.high - every.low, 0.0), np.inf)
    # The mean is rounded with each value.
    width = width + _ROUNDING * _most(every)
    if name.startswith("var"):
        width = width * width
    # The deviation of a sample is at most that of the two alone, which is below their distance.
    return ValueRange(np.zeros(len(width)), width).where(~every.is_empty)


# ---- comparison --------------------------------------------------------------------------------


def _less(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    return a.low < b.high, a.high >= b.low


def _at_most(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    return a.low <= b.high, a.high > b.low


def _equal(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    differ = (a.low < b.high) | (a.high > b.low)
    return (a.low <= b.high) & (b.low <= a.high), differ


def _swapped(truth: tuple[Array, Array]) -> tuple[Array, Array]:
    return truth[1], truth[0]


_RELATIONS: Final[dict[str, Callable[[ValueRange, ValueRange], tuple[Array, Array]]]] = {
    "<": _less,
    "<=": _at_most,
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: _at_most(b, a),
    "=": _equal,
    "<>": lambda a, b: _swapped(_equal(a, b)),
}


_CONDITIONS: Final[dict[str, Callable[[RangeEvaluator, Call], TruthRange]]] = {
    "and": RangeEvaluator.and_,
    "or": RangeEvaluator.or_,
    "not": RangeEvaluator.not_,
    "in": RangeEvaluator.in_,
    "if": RangeEvaluator.if_,
    **dict.fromkeys(_RELATIONS, RangeEvaluator.comparison),
}


# ---- arithmetic --------------------------------------------------------------------------------
#
# What may be NaN has a `high` of infinity, before and after. NaN in a bound computed here says that
# nothing is known of it (`_result`).


def _plus(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    return a.low + b.low, a.high + b.high


def _minus(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    return a.low - b.high, np.where(np.isposinf(b.high), np.inf, a.high - b.low)


def _is_finite(*operands: ValueRange) -> Array:
    return reduce(
        np.logical_and, [np.isfinite(each.low) & np.isfinite(each.high) for each in operands]
    )


def _corners(
    how: Callable[[Array, Array], Array], a: ValueRange, b: ValueRange
) -> tuple[Array, Array]:
    corners = [how(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    is_finite = _is_finite(a, b)
    low, high = reduce(np.minimum, corners), reduce(np.maximum, corners)
    return np.where(is_finite, low, -np.inf), np.where(is_finite, high, np.inf)


def _product(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    return _corners(np.multiply, a, b)


def _quotient(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    low, high = _corners(np.divide, a, b)
    has_sign = (b.low > 0) | (b.high < 0)
    return np.where(has_sign, low, -np.inf), np.where(has_sign, high, np.inf)


def _whole_quotient(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    low, high = _quotient(a, b)
    return np.floor(low) - 1, np.ceil(high) + 1


def _magnitude(a: ValueRange) -> tuple[Array, Array]:
    most = np.maximum(np.abs(a.low), np.abs(a.high))
    return np.where(a.low > 0, a.low, np.where(a.high < 0, -a.high, 0.0)), most


def _remainder(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    """It has the sign of the dividend and is smaller than both."""
    most = np.minimum(_magnitude(a)[1], _magnitude(b)[1])
    low, high = np.where(a.low < 0, -most, 0.0), np.where(a.high > 0, most, 0.0)
    is_finite = _is_finite(a, b)
    return np.where(is_finite, low, -np.inf), np.where(is_finite, high, np.inf)


def _negative(a: ValueRange) -> tuple[Array, Array]:
    return -a.high, np.where(np.isposinf(a.high), np.inf, -a.low)


_COMPUTE: Final[dict[str, Callable[..., tuple[Array, Array]]]] = {
    "+": _plus,
    "-": _minus,
    "*": _product,
    "/": _quotient,
    "div": _whole_quotient,
    "%": _remainder,
    "neg": _negative,
    "abs": _magnitude,
}
_OF_DECIMALS: Final = {
    "add_decimals": "+",
    "subtract_decimals": "-",
    "multiply_decimals": "*",
    "divide_decimals": "/",
    "mod_decimals": "%",
}
_COMPUTED: Final = frozenset((*_COMPUTE, *_OF_DECIMALS))


def _nearest(a: ValueRange, digits: int) -> tuple[Array, Array]:
    """Ties may go either way."""
    unit = 10.0**digits
    low, high = a.low * unit, a.high * unit
    low = np.floor(low + 0.5 - _TIE * (1.0 + np.abs(low))) / unit
    high = np.floor(high + 0.5 + _TIE * (1.0 + np.abs(high))) / unit
    return _outward(low, high, 0.0) if digits else (low, high)


_ROUNDED: Final[dict[str, Callable[[ValueRange, int], tuple[Array, Array]]]] = {
    "round": _nearest,
    "bround": _nearest,
    "floor": lambda a, digits: (np.floor(a.low), np.floor(a.high)),
    "ceil": lambda a, digits: (np.ceil(a.low), np.ceil(a.high)),
    "ceiling": lambda a, digits: (np.ceil(a.low), np.ceil(a.high)),
}
