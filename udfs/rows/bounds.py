"""How far from its first row a search can still find the rows that it needs.

    PATTERN (a+ b+ c) DEFINE c AS x < FIRST(x)

Every match has a row of c, so a search that begins at row i fails as soon as it is beyond the last
row whose x is below that of row i. Such a last row is found without searching: a condition is
evaluated over ranges, the least and the greatest value that each thing it reads can have from a row
on. Where not even the ranges make it TRUE, no row can.

Ranges only ever contain too much: what is not understood can be anything, and NULL is always
possible. So a search that is cut short would have failed. They are computed when a partition turns
out to take many steps, and for one stretch of its rows after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.expressions import BOOL, Call, Constant
from spark_cep.udfs.row_program import Aggregate, MatchNumber, RowRead
from spark_cep.udfs.rows.instructions import (
    CHAR,
    MATCH,
    OVERFLOW_BIT,
    SPLIT,
    InstructionList,
)
from spark_cep.udfs.rows.records import IS_OPEN, KernelBounds

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression, Type
    from spark_cep.udfs.row_program import VariableSet
    from spark_cep.udfs.rows.compiled import CompiledDefine, KernelProgram
    from spark_cep.udfs.rows.records import KernelRows
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.vectors import Vector


# The rows whose searches get their bounds at once: some ms of work, and 8 bytes for each group.
STRETCH: Final = 1 << 13
# Different sets of variables that may still be needed; what more sets need is not looked for.
MOST_GROUPS: Final = 16
# Programs beyond this are not analysed: it would take longer than most searches.
MOST_ANALYSED: Final = 50_000
_NO_BOUND: Final = np.iinfo(np.int64).max
_EXACT_DOUBLE: Final = float(1 << 53)
# Sums of floats are compared with sums in another order, which round differently.
_ROUNDING: Final = 1e-9
_ORDERED: Final = (
    "int", "float", "bool", "date", "timestamp", "timestamp_ntz", "interval", "months", "decimal",
    "string", "binary",
)  # fmt: skip
_NUMBERS: Final = ("int", "float", "interval", "decimal", "timestamp", "timestamp_ntz", "date")


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


# ---- ranges ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ValueRange:
    """For each search the least and the greatest value; where `low` is above `high`, none."""

    low: Array
    high: Array

    def hull(self, other: ValueRange) -> ValueRange:
        return ValueRange(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def computed(self, other: ValueRange, low: Array, high: Array, *, exact: bool) -> ValueRange:
        """The range of an operation on both. `exact`: integers, which floats hold up to 2^53."""
        most = _EXACT_DOUBLE if exact else np.finfo(np.float64).max
        known = (np.abs(low) <= most) & (np.abs(high) <= most)
        empty = (self.low > self.high) | (other.low > other.high)
        low, high = np.where(known, low, -np.inf), np.where(known, high, np.inf)
        return ValueRange(np.where(empty, np.inf, low), np.where(empty, -np.inf, high))


@dataclass(frozen=True)
class TruthRange:
    """For each search whether a condition may be TRUE, and whether it may be FALSE."""

    true: Array
    false: Array


_YES: Final = np.ones(1, np.bool_)
_ANY_VALUE: Final = ValueRange(np.full(1, -np.inf), np.full(1, np.inf))
_ANY_TRUTH: Final = TruthRange(_YES, _YES)


class _PartitionValues:
    """What columns can be from each row of a partition on. Rows count from its first."""

    def __init__(self, table: RowTable, rows: KernelRows, partition: int) -> None:
        self.low, self.high = int(rows.begin[partition]), int(rows.end[partition])
        self.size = self.high - self.low
        self.columns = table.columns
        self._table = table
        self._rows = rows
        self._values: dict[object, tuple[Array, Array] | None] = {}
        self._ranges: dict[object, ValueRange | None] = {}
        self._sums: dict[object, _Sums] = {}

    def may_be(self, variables: VariableSet) -> Array:
        """The rows that the physical conditions of any of the variables admit."""
        if variables is None:
            return np.ones(self.size, np.bool_)
        return reduce(np.logical_or, map(self._may_be, sorted(variables)))

    def _may_be(self, variable: int) -> Array:
        here = slice(self.low, self.high)
        if variable >= OVERFLOW_BIT:
            return np.asarray(self._rows.more[variable - OVERFLOW_BIT, here])
        return np.asarray(self._rows.may[here] >> np.uint64(variable) & np.uint64(1), np.bool_)

    def values(self, column: int, type_: Type, shift: int = 0) -> tuple[Array, Array] | None:
        """The values as floats, and where there are any; None if floats cannot hold them."""
        key = (column, type_, shift)
        if key not in self._values:
            self._values[key] = self._as_floats(column, type_, shift)
        return self._values[key]

    def _as_floats(self, column: int, type_: Type, shift: int) -> tuple[Array, Array] | None:
        vector = self._table.shifted(column, type_, shift)
        if type_.kind not in _ORDERED or vector.values.dtype == object:
            return None
        values = vector.values[self.low : self.high].astype(np.float64)
        valid = self._valid(vector)
        most = np.finfo(np.float64).max if type_.kind == "float" else _EXACT_DOUBLE
        if not (np.abs(values[valid]) <= most).all():
            return None
        return np.where(valid, values, 0.0), valid

    def counted(self, column: int | None) -> Array:
        """The rows that count(column) counts."""
        if column is None:
            return np.ones(self.size, np.bool_)
        return self._valid(self._table.shifted(column, self.columns.type_of(column), 0))

    def _valid(self, vector: Vector) -> Array:
        if vector.valid is None:
            return np.ones(self.size, np.bool_)
        return np.asarray(vector.valid[self.low : self.high])

    def range_of(
        self, read: tuple[int, Type, int], variables: VariableSet, *, backward: bool = False
    ) -> ValueRange | None:
        """The range over all rows of the variables from each row on, or, `backward`, over those
        before each row; one more entry for none. `read`: the column, its type, and the shift."""
        key = (read, variables, backward)
        if key not in self._ranges:
            found = self.values(*read)
            self._ranges[key] = None
            if found is not None:
                valid = found[1] & self.may_be(variables)
                low, high = np.where(valid, found[0], np.inf), np.where(valid, found[0], -np.inf)
                self._ranges[key] = ValueRange(
                    _accumulated(np.minimum, low, np.inf, backward),
                    _accumulated(np.maximum, high, -np.inf, backward),
                )
        return self._ranges[key]

    def sums(self, node: Aggregate, values: Array, *, backward: bool) -> _Sums:
        """Sums of the values, in which NULLs are zeros, over rows of the node's variables."""
        key = (node.name, node.column, node.variables, backward)
        if key not in self._sums:
            kept = np.where(self.may_be(node.variables), values, 0.0)
            running = np.append(0.0, np.cumsum(values))
            self._sums[key] = _Sums(
                ValueRange(
                    _accumulated(np.add, np.minimum(kept, 0.0), 0.0, backward),
                    _accumulated(np.add, np.maximum(kept, 0.0), 0.0, backward),
                ),
                running,
                ValueRange(
                    _accumulated(np.minimum, running[:-1], running[-1], False),
                    _accumulated(np.maximum, running[:-1], running[-1], False),
                ),
                float(np.abs(values).sum()),
            )
        return self._sums[key]


def _accumulated(how: np.ufunc, values: Array, start: float, backward: bool) -> Array:
    """Of the values from each place on, or of those before it; begins with `start`."""
    values = np.append(start, values if backward else values[::-1])
    found = how.accumulate(values)
    return np.asarray(found if backward else found[::-1])


@dataclass(frozen=True)
class _Sums:
    """`of_any`: over any rows of a set from each row on, or before each. `running`: over all rows
    before each row, and `later` what that is from there on. `total`: of the magnitudes."""

    of_any: ValueRange
    running: Array
    later: ValueRange
    total: float


@dataclass(frozen=True)
class _Searches:
    """Searches by their first row, and the row from which on a condition is tested; both count
    from the first row of the partition. Without `begin`: any search, and that row only. `number`:
    the greatest number that a match of each search can have, not below `least_number`."""

    row: Array
    begin: Array | None = None
    number: Array | None = None
    least_number: float = 1.0


class _RangeEvaluator:
    """Evaluates the condition of one variable over ranges."""

    def __init__(
        self, variable: int, shape: _PatternShape, values: _PartitionValues, searches: _Searches
    ) -> None:
        self._variable = variable
        self._shape = shape
        self._values = values
        self._searches = searches

    # ---- conditions ----------------------------------------------------------------------------

    def truth(self, node: Expression) -> TruthRange:
        if isinstance(node, Call):
            how = _CONDITIONS.get(node.name)
            return _ANY_TRUTH if how is None else how(self, node)
        if node.type.kind != "bool":
            return _ANY_TRUTH
        found = self.value(node)
        return TruthRange(found.high >= 1, found.low <= 0)

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

    def value(self, node: Expression) -> ValueRange:
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, RowRead):
            return self._read(node)
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, MatchNumber) and self._searches.number is not None:
            most = self._searches.number.astype(np.float64)
            return ValueRange(np.full(len(most), self._searches.least_number), most)
        return self._call(node) if isinstance(node, Call) else _ANY_VALUE

    def _call(self, node: Call) -> ValueRange:
        if node.name in _COMPUTE and node.type.kind in _NUMBERS:
            return self._computed(node)
        if node.name == "cast":
            return self._cast(node)
        if node.name in ("if", "coalesce", "least", "greatest"):
            chosen = node.arguments[1:] if node.name == "if" else node.arguments
            if all(each.type == node.type for each in chosen):
                return reduce(ValueRange.hull, map(self.value, chosen))
        return _ANY_VALUE

    def _constant(self, node: Constant) -> ValueRange:
        if node.value is None:
            return ValueRange(np.full(1, np.inf), np.full(1, -np.inf))
        value = float(self._values.columns.constant(node).values)
        exact = np.finfo(np.float64).max if node.type.kind == "float" else _EXACT_DOUBLE
        if node.type.kind not in _ORDERED or not abs(value) <= exact:
            return _ANY_VALUE
        return ValueRange(np.full(1, value), np.full(1, value))

    def _computed(self, node: Call) -> ValueRange:
        # A float of 32 bits is rounded after each operation, a range is not. Decimals of several
        # scales are rescaled first.
        scales = {each.type.scale for each in node.arguments}
        narrow = node.type.kind == "float" and node.type.bits < 64
        if narrow or (len(scales) > 1 and node.type.kind == "decimal"):
            return _ANY_VALUE
        if {each.type.kind for each in node.arguments} != {node.type.kind}:
            return _ANY_VALUE
        operands = [self.value(each) for each in node.arguments]
        with np.errstate(all="ignore"):
            low, high = _COMPUTE[node.name](*operands)
        last = operands[-1]
        return operands[0].computed(last, low, high, exact=node.type.kind != "float")

    def _cast(self, node: Call) -> ValueRange:
        source, target = node.arguments[0].type, node.type
        widens = source.kind == target.kind in ("int", "float") and source.bits <= target.bits
        if widens or (source.kind == "int" and target.kind == "float" and target.bits == 64):
            return self.value(node.arguments[0])
        return _ANY_VALUE

    def _read(self, node: RowRead) -> ValueRange:
        if node.column is None:
            return _ANY_VALUE
        read, searches = (node.column, node.type, node.shift), self._searches
        if node.anchor == "current":
            if searches.begin is None:
                return self._exactly(read, searches.row)
            own = frozenset([self._variable])
            return _at(self._values.range_of(read, own), searches.row)
        if node.anchor == "first" and searches.begin is not None and self._is_known(node):
            return self._exactly(read, searches.begin + node.offset)
        return self._of_path(read, node.variables)

    def _is_known(self, node: RowRead) -> bool:
        """Whether the row is determined by the first row of the match."""
        if node.variables is None:
            return True
        return node.offset == 0 and self._shape.begins_with(node.variables)

    def _exactly(self, read: tuple[int, Type, int], rows: Array) -> ValueRange:
        found = self._values.values(*read)
        if found is None:
            return _ANY_VALUE
        inside = rows < self._values.size
        rows = np.where(inside, rows, 0)
        inside = inside & found[1][rows]
        value = found[0][rows]
        return ValueRange(np.where(inside, value, np.inf), np.where(inside, value, -np.inf))

    def _of_path(self, read: tuple[int, Type, int], variables: VariableSet) -> ValueRange:
        """Over the rows that the path may bind to the variables."""
        backward = self._searches.begin is None
        found = self._values.range_of(read, variables, backward=backward)
        return _at(found, self._path_rows(variables))

    def _path_rows(self, variables: VariableSet) -> Array:
        """Where to look in what is accumulated from each row on, or before each row."""
        if self._searches.begin is not None:
            return self._searches.begin
        is_included = variables is None or self._variable in variables
        return self._searches.row + int(is_included)

    # ---- aggregates ----------------------------------------------------------------------------

    def _aggregate(self, node: Aggregate) -> ValueRange:
        if node.argument is not None:
            return _ANY_VALUE
        if node.name == "count":
            return self._count(node)
        if node.column is None:
            return _ANY_VALUE
        if node.name in ("min", "max"):
            return self._of_path((node.column, node.type, 0), node.variables)
        read = (node.column, self._values.columns.type_of(node.column), 0)
        found = self._values.values(*read)
        if found is None or read[1].kind not in ("int", "float"):
            return _ANY_VALUE
        return self._fold(node, found[0], self._of_path(read, node.variables), read[1])

    def _fold(self, node: Aggregate, values: Array, every: ValueRange, type_: Type) -> ValueRange:
        if node.name == "sum":
            return self._sum(node, values, every, exact=type_.kind != "float")
        if node.name != "avg":
            return _ANY_VALUE
        margin = _ROUNDING * np.maximum(np.abs(every.low), np.abs(every.high))
        margin = np.where(np.isfinite(margin), margin, 0)
        return ValueRange(every.low - margin, every.high + margin)

    def _count(self, node: Aggregate) -> ValueRange:
        counted = self._values.counted(node.column).astype(np.float64)
        least, most = self._sums(node, counted, exact=True)
        return ValueRange(np.maximum(least, 0.0), most)

    def _sum(self, node: Aggregate, values: Array, every: ValueRange, *, exact: bool) -> ValueRange:
        least, most = self._sums(node, values, exact=exact)
        # At least one value is added, and a sum of values of one sign is none but these.
        low = np.where(every.low >= 0, np.maximum(least, every.low), least)
        high = np.where(every.high <= 0, np.minimum(most, every.high), most)
        return every.computed(every, low, high, exact=exact)

    def _sums(self, node: Aggregate, values: Array, *, exact: bool) -> tuple[Array, Array]:
        """The least and the greatest sum over the rows of the set."""
        begin, size = self._searches.begin, self._values.size
        sums = self._values.sums(node, values, backward=begin is None)
        if exact and sums.total > _EXACT_DOUBLE:
            return np.full(1, -np.inf), np.full(1, np.inf)
        at = self._path_rows(node.variables)
        low, high = sums.of_any.low[at], sums.of_any.high[at]
        ends = None
        if begin is not None and not node.distinct:
            ends = self._shape.last_of_prefix(node.variables, self._variable)
        if begin is not None and ends is not None:
            # The rows are those from the first of the match on: a difference of running sums.
            behind = np.minimum(np.maximum(self._searches.row + ends, begin + 1), size)
            low = np.maximum(low, sums.later.low[behind] - sums.running[begin])
            high = np.minimum(high, sums.later.high[behind] - sums.running[begin])
        if not exact:
            low, high = low - _ROUNDING * sums.total, high + _ROUNDING * sums.total
        return low, high


def _at(found: ValueRange | None, rows: Array) -> ValueRange:
    return _ANY_VALUE if found is None else ValueRange(found.low[rows], found.high[rows])


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


_CONDITIONS: Final[dict[str, Callable[[_RangeEvaluator, Call], TruthRange]]] = {
    "and": _RangeEvaluator.and_,
    "or": _RangeEvaluator.or_,
    "not": _RangeEvaluator.not_,
    "in": _RangeEvaluator.in_,
    **dict.fromkeys(_RELATIONS, _RangeEvaluator.comparison),
}


def _product(a: ValueRange, b: ValueRange) -> tuple[Array, Array]:
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return reduce(np.minimum, corners), reduce(np.maximum, corners)


def _magnitude(a: ValueRange) -> tuple[Array, Array]:
    most = np.maximum(np.abs(a.low), np.abs(a.high))
    return np.where(a.low > 0, a.low, np.where(a.high < 0, -a.high, 0.0)), most


_COMPUTE: Final[dict[str, Callable[..., tuple[Array, Array]]]] = {
    "+": lambda a, b: (a.low + b.low, a.high + b.high),
    "-": lambda a, b: (a.low - b.high, a.high - b.low),
    "*": _product,
    "neg": lambda a: (-a.high, -a.low),
    "abs": _magnitude,
}


# ---- the shape of a pattern --------------------------------------------------------------------


# The rows of a set end at any row of the match.
_ANYWHERE: Final = -1 << 40


@dataclass(frozen=True)
class _PatternShape:
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
        row before; `_ANYWHERE` if it may be any row; None if they are not the first."""
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
        return _ANYWHERE if any(ahead[each] >> tested & 1 for each in after) else 0

    @cached_property
    def _ahead(self) -> list[int]:
        return variables_ahead(self.code, all_ways=False)


# ---- the bounds of searches --------------------------------------------------------------------


@dataclass(frozen=True)
class _Tested:
    """The condition of a variable in a partition. `number`: of the last match."""

    variable: int
    condition: Expression
    values: _PartitionValues
    number: int


class SearchBounds:
    """Fills `kernel`, the bounds that the kernel reads, for one stretch of searches at a time."""

    def __init__(self, made: KernelProgram, table: RowTable, rows: KernelRows) -> None:
        self._made = made
        self._table = table
        self._rows = rows
        self._shape = _PatternShape(made.code, made.first)
        self._needed: Sequence[int] | None = None
        self._values: tuple[int, _PartitionValues] | None = None
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

    def _last_row(self, variable: int, values: _PartitionValues) -> int:
        """The position after the last row that can be the variable in any search."""
        may_be = values.may_be(frozenset([variable]))
        condition = self._made.conditions[variable].path
        if condition is not None:
            searches = _Searches(np.arange(values.size))
            evaluator = _RangeEvaluator(variable, self._shape, values, searches)
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
            searches = _Searches(row, begin, numbers[chosen], tested.number + 1.0)
            evaluator = _RangeEvaluator(tested.variable, self._shape, tested.values, searches)
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

    def _partition_values(self, partition: int) -> _PartitionValues:
        if self._values is None or self._values[0] != partition:
            self._values = partition, _PartitionValues(self._table, self._rows, partition)
            self._last.clear()
        return self._values[1]


def can_be_bounded(made: KernelProgram) -> bool:
    return len(made.code.op) <= MOST_ANALYSED and any(map(_is_guarded, made.conditions))


def _is_guarded(condition: CompiledDefine) -> bool:
    return condition.physical is not None or condition.path is not None
