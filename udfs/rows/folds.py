"""Aggregates that Python computes along the path of a search, or along a match for a measure.

A path mostly differs from the one tested before by a row at its end, so a fold keeps an entry for
each row and going back drops entries. A `StateFold` has a state after each value and takes the same
time for each row. A `ListFold` needs all values for a result; what that costs is counted, so that
the limit on steps covers it. NULL is skipped, as Spark's aggregates do.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import Call
from spark_cep.udfs.functions.nested import key_of
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead
from spark_cep.udfs.rows.leaves import leaves_of, replace_with_cells
from spark_cep.udfs.values.evaluate import evaluate_expression
from spark_cep.udfs.values.functions import python_values
from spark_cep.udfs.values.tally import all_active
from spark_cep.udfs.values.vectors import WORD_KINDS, Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression, Type
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally

Values = tuple[Any, ...]
# What the limit on steps counts, with a step of 8 to 19 ns. To add a row takes 0.5 to 1.8 us, to
# drop it 0.2 us, and to evaluate an expression on it 40 to 50 us. To look at a value of a list
# takes 20 to 60 ns, to count it for a mode 0.3 us, to sort it 0.4 us for each key.
ROW_STEPS: Final = 120
DROP_STEPS: Final = 20
EXPRESSION_STEPS: Final = 3_600
VALUE_STEPS: Final = 5
COUNT_STEPS: Final = 25
SORT_STEPS: Final = 35
MAX_PRECISION: Final = 38
# The sum of decimals has so many digits more than they.
_SUM_DIGITS: Final = 10
# Values of columns are read for so many rows at once: a call costs as much as reading hundreds.
_CHUNK: Final = 1 << 10


# ---- the aggregates ------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateFold:
    """`needed`: how many of the arguments may not be NULL, None for all."""

    start: Any
    step: Callable[..., Any]
    result: Callable[[Any], Any]
    needed: int | None = None


@dataclass(frozen=True)
class ListFold:
    """`result`: of the arguments of all rows. `price`: of the result, in steps for each row."""

    result: Callable[[Sequence[Values]], Any]
    needed: int | None = None
    price: int = VALUE_STEPS


@dataclass(frozen=True)
class OrderedFold:
    """`result`: of the sorted values of the first argument, and the other arguments."""

    result: Callable[[Sequence[Any], Values], Any]
    needed: int | None = None


AnyFold = StateFold | ListFold | OrderedFold


def _quotient(dividend: float, divisor: float) -> float | None:
    return None if divisor == 0 else dividend / divisor


def _root(value: float) -> float:
    return math.sqrt(value) if value >= 0 or math.isnan(value) else math.nan


# Pairs: count, means of both, co-moment, and the sums of squared deviations of both, by the
# operations of Spark in their order.
_Pairs = tuple[float, float, float, float, float, float]


def _add_pair(state: _Pairs, x: float, y: float) -> _Pairs:
    n, x_mean, y_mean, co_moment, x_square, y_square = state
    n += 1.0
    dx, dy = x - x_mean, y - y_mean
    x_mean += dx / n
    y_mean += dy / n
    return (
        n, x_mean, y_mean,
        co_moment + dx * (y - y_mean),
        x_square + dx * (x - x_mean),
        y_square + dy * (y - y_mean),
    )  # fmt: skip


def _correlation(state: _Pairs) -> float | None:
    n, _, _, co_moment, x_square, y_square = state
    return None if n < 2 else _quotient(co_moment, _root(x_square * y_square))


def _covariance(lost: int) -> Callable[[_Pairs], float | None]:
    return lambda state: state[3] / (state[0] - lost) if state[0] > lost else None


def _determination(state: _Pairs) -> float | None:
    """regr_r2(y, x): the first of a pair is y."""
    n, _, _, co_moment, y_square, x_square = state
    if n == 0 or x_square == 0:
        return None
    if y_square == 0:
        return 1.0
    found = _quotient(co_moment, _root(y_square * x_square))
    return None if found is None else found * found


# Lines: pairs of x and y, and the count, mean and squared deviations of x by the other formula that
# Spark has for a variance.
_Line = tuple[_Pairs, float, float, float]


def _add_to_line(state: _Line, y: float, x: float) -> _Line:
    pairs, n, mean, square = state
    n += 1.0
    delta = x - mean
    step = delta / n
    return _add_pair(pairs, x, y), n, mean + step, square + delta * (delta - step)


def _slope(state: _Line) -> float | None:
    return None if state[1] == 0 else _quotient(state[0][3], state[3])


def _intercept(state: _Line) -> float | None:
    slope = _slope(state)
    return None if slope is None else state[0][2] - slope * state[0][1]


_NO_PAIRS: Final[_Pairs] = (0.0,) * 6
_NO_LINE: Final[_Line] = (_NO_PAIRS, 0.0, 0.0, 0.0)

# Count, mean, and the sums of the second, third and fourth powers of deviations.
_Moments = tuple[float, float, float, float, float]


def _add_moment(state: _Moments, value: float) -> _Moments:
    n, mean, m2, m3, m4 = state
    n += 1.0
    delta = value - mean
    step = delta / n
    m2 = m2 + delta * (delta - step)
    delta2, step2 = delta * delta, step * step
    m3 = m3 - 3.0 * step * m2 + delta * (delta2 - step2)
    m4 = m4 - 4.0 * step * m3 - 6.0 * step2 * m2 + delta * (delta * delta2 - step * step2)
    return n, mean + step, m2, m3, m4


def _skewness(state: _Moments) -> float | None:
    n, _, m2, m3, _ = state
    return None if n == 0 or m2 == 0 else _quotient(_root(n) * m3, _root(m2 * m2 * m2))


def _kurtosis(state: _Moments) -> float | None:
    n, _, m2, _, m4 = state
    found = None if n == 0 or m2 == 0 else _quotient(n * m4, m2 * m2)
    return None if found is None else found - 3.0


# Count, mean and the sum of squared deviations.
_Spread = tuple[float, float, float]


def _add_to_spread(state: _Spread, value: float) -> _Spread:
    n, mean, square = state
    n += 1.0
    delta = value - mean
    step = delta / n
    return n, mean + step, square + delta * (delta - step)


def _variance(lost: int) -> Callable[[_Spread], float | None]:
    return lambda state: state[2] / (state[0] - lost) if state[0] > lost else None


def _deviation(lost: int) -> Callable[[_Spread], float | None]:
    return lambda state: _root(state[2] / (state[0] - lost)) if state[0] > lost else None


def _sum_of(index: int) -> Callable[[Any], float | None]:
    return lambda state: state[index] if state[0] else None


def _bits(name: str) -> StateFold:
    steps: dict[str, Callable[[Any, int], int]] = {
        "bit_and": lambda state, value: value if state is None else state & value,
        "bit_or": lambda state, value: value if state is None else state | value,
        "bit_xor": lambda state, value: value if state is None else state ^ value,
    }
    return StateFold(None, steps[name], lambda state: state)


# A sum that has left its type stays NULL, as in Spark.
_LOST: Final = "lost"


def _try_sum(types: Sequence[Type]) -> AnyFold:
    least, limit = -(1 << 63), 1 << 63
    if types[0].kind == "decimal":
        limit = 10 ** min(MAX_PRECISION, types[0].precision + _SUM_DIGITS)
        least = 1 - limit

    def step(state: Any, value: int) -> Any:
        if state is _LOST:
            return state
        total = value if state is None else state + value
        return total if least <= total < limit else _LOST

    return StateFold(None, step, lambda state: None if state is _LOST else state)


_MOMENTS_START: Final[_Moments] = (0.0,) * 5
_NO_SPREAD: Final[_Spread] = (0.0,) * 3
_STATES: Final[dict[str, StateFold]] = {
    "corr": StateFold(_NO_PAIRS, _add_pair, _correlation),
    "covar_pop": StateFold(_NO_PAIRS, _add_pair, _covariance(0)),
    "covar_samp": StateFold(_NO_PAIRS, _add_pair, _covariance(1)),
    "regr_r2": StateFold(_NO_PAIRS, _add_pair, _determination),
    "regr_sxy": StateFold(_NO_PAIRS, _add_pair, _sum_of(3)),
    "regr_slope": StateFold(_NO_LINE, _add_to_line, _slope),
    "regr_intercept": StateFold(_NO_LINE, _add_to_line, _intercept),
    "regr_sxx": StateFold(
        _MOMENTS_START, lambda state, _, x: _add_moment(state, x), _sum_of(2)
    ),
    "regr_syy": StateFold(
        _MOMENTS_START, lambda state, y, _: _add_moment(state, y), _sum_of(2)
    ),
    "var_pop": StateFold(_NO_SPREAD, _add_to_spread, _variance(0)),
    "var_samp": StateFold(_NO_SPREAD, _add_to_spread, _variance(1)),
    "stddev_pop": StateFold(_NO_SPREAD, _add_to_spread, _deviation(0)),
    "stddev_samp": StateFold(_NO_SPREAD, _add_to_spread, _deviation(1)),
    "skewness": StateFold(_MOMENTS_START, _add_moment, _skewness),
    "kurtosis": StateFold(_MOMENTS_START, _add_moment, _kurtosis),
    **{name: _bits(name) for name in ("bit_and", "bit_or", "bit_xor")},
}  # fmt: skip


def _rank(value: Any) -> Any:
    """NaN is the largest float."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def _as_double(type_: Type) -> Callable[[Any], float]:
    if type_.kind == "decimal":
        return lambda value: float(value / 10**type_.scale)
    if type_.kind == "float":
        return lambda ranked: math.nan if ranked[0] else float(ranked[1])
    return float


def _percentile(types: Sequence[Type]) -> AnyFold:
    """Arguments: the value, the share, whether it is counted from the largest, and whether Spark
    interpolates by the difference of two values."""
    double = _as_double(types[0])

    def result(ordered: Sequence[Any], options: Values) -> Any:
        share, descends, by_difference = options
        position = (len(ordered) - 1) * share
        low, high = math.floor(position), math.ceil(position)
        last = len(ordered) - 1
        lower, higher = (ordered[last - n if descends else n] for n in (low, high))
        a, b = double(lower), double(higher)
        if lower == higher:
            return a
        if by_difference:
            return a + (position - low) * (b - a)
        return (high - position) * a + (position - low) * b

    return OrderedFold(result)


def _mode(_: Sequence[Type]) -> AnyFold:
    """Arguments: the value, and whether of equally frequent ones the largest is taken."""

    def result(values: Sequence[Values]) -> Any:
        counts = Counter(_rank(each[0]) for each in values)
        most = max(counts.values())
        found = [each for each, count in counts.items() if count == most]
        best = max(found) if values[0][1] else min(found)
        return next(value for value, _ in values if _rank(value) == best)

    return ListFold(result, price=COUNT_STEPS)


# The value, the separator and the directions; keys follow.
_JOINED_OPTIONS: Final = 3


def _joined(types: Sequence[Type]) -> AnyFold:
    """Arguments: the value, the separator, directions, and the keys of WITHIN GROUP. A direction is
    d or a, with n where NULLs come first."""
    nothing: Any = b"" if types[0].kind == "binary" else ""

    def result(values: Sequence[Values]) -> Any:
        _, separator, directions = values[0][:_JOINED_OPTIONS]
        ordered = list(values)
        keys = enumerate(directions.split(), _JOINED_OPTIONS)
        for place, direction in reversed(list(keys)):
            ordered = _sorted_by(ordered, place, direction)
        return (nothing if separator is None else separator).join(each[0] for each in ordered)

    sorting = SORT_STEPS * len(types[_JOINED_OPTIONS:])
    return ListFold(result, needed=1, price=VALUE_STEPS + sorting)


def _sorted_by(values: Sequence[Values], place: int, direction: str) -> list[Values]:
    """Stable, so that keys can be sorted by one after the other, the last one first."""
    missing = [each for each in values if each[place] is None]
    known = [each for each in values if each[place] is not None]
    known.sort(key=lambda each: _rank(each[place]), reverse="d" in direction)
    return missing + known if "n" in direction else known + missing


def _list(_: Sequence[Type]) -> AnyFold:
    return ListFold(lambda values: tuple(each[0] for each in values))


def _list_with_nulls(_: Sequence[Type]) -> AnyFold:
    # The second argument is TRUE for the rows that FILTER leaves.
    return ListFold(lambda values: tuple(each[0] for each in values), needed=-1)


def _chosen(name: str) -> Callable[[Sequence[Type]], AnyFold]:
    """max_by, min_by: of equal ones the last; first, last: where the second argument is TRUE."""

    def step(state: Any, value: Any, by: Any) -> Any:
        rank = _rank(by)
        if state is None or name == "last":
            return rank, value
        if name == "first":
            return state
        is_worse = rank < state[0] if name == "max_by" else rank > state[0]
        return state if is_worse else (rank, value)

    # The arguments come with the chosen one last, which alone may not be NULL.
    fold = StateFold(None, step, lambda state: None if state is None else state[1], needed=-1)
    return lambda _: fold


_BY_TYPES: Final[dict[str, Callable[[Sequence[Type]], AnyFold]]] = {
    "percentile": _percentile,
    "mode": _mode,
    "try_sum": _try_sum,
    "listagg": _joined,
    "collect_list": _list,
    "collect_list with nulls": _list_with_nulls,
    **{name: _chosen(name) for name in ("max_by", "min_by", "first", "last")},
}
# The aggregates that have a value over no rows.
_OF_NOTHING: Final[dict[str, Any]] = {"collect_list": (), "collect_list with nulls": ()}


def is_python_fold(name: str) -> bool:
    return name in _STATES or name in _BY_TYPES


def is_folded(measure: Expression) -> bool:
    return isinstance(measure, Aggregate) and is_python_fold(measure.name)


def _fold_of(name: str, types: Sequence[Type]) -> AnyFold:
    if name in _STATES:
        return _STATES[name]
    if name in _BY_TYPES:
        return _BY_TYPES[name](types)
    raise CepError(f"the engine has no aggregate {name}")


# ---- along the path ------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoldedPath:
    """The rows of a search so far from `begin` on, and the variables that they are bound to.
    `shared`: how many of them are those of the path before, if that is known."""

    begin: int
    labels: Array
    number: int
    shared: int | None = None


class RunningFold:
    """One aggregate along the path that was tested last. `cost`: in steps, of the last value."""

    def __init__(self, leaf: Aggregate, table: RowTable, tally: ErrorTally) -> None:
        self._leaf = leaf
        self._table = table
        self._tally = tally
        self._parts = _parts_of(leaf)
        self._fold = _fold_of(leaf.name, [part.type for part in self._parts])
        read = [each for part in self._parts for each in leaves_of(part)]
        self._is_of_columns = all(isinstance(each, RowRead) and not each.shift for each in read)
        self._row_steps = ROW_STEPS
        if not self._is_of_columns:
            self._row_steps += EXPRESSION_STEPS * len(self._parts)
        # What reads rows behind the aggregated one changes when the path grows.
        self._ahead = max((getattr(each, "shift", 0) for each in read), default=0)
        self._is_stable = self._ahead <= 0
        self._members = None if leaf.variables is None else np.array(sorted(leaf.variables))
        self._chunks: dict[int, list[Values | None]] = {}
        self._path = FoldedPath(-1, np.zeros(0, np.int64), -1)
        self.cost = 0
        self._clear()

    def _clear(self) -> None:
        # Of each row of the set: its place in the path, and whether it was skipped, added, or
        # failed.
        self._places: list[int] = []
        self._outcomes: list[str] = []
        self._failures = 0
        self._entries: list[Any] = []
        self._ordered: list[Any] = []
        self._seen: Counter[Any] = Counter()
        self._keys: list[Any] = []
        self._known: Any = None
        self._is_known = False

    def value(self, path: FoldedPath) -> Vector:
        self._advance(path)
        if self._failures:
            self._tally.fail(np.ones(1, np.bool_), None, all_active, always=True)
            return vector_of([None], self._leaf.type)
        if self._leaf.by is None:
            return vector_of([self._known], self._leaf.type)
        assert self._leaf.column is not None
        row = np.array([0 if self._known is None else self._known])
        found = self._table.columns.gather(self._leaf.column, self._leaf.type, row)
        return found if self._known is not None else Vector(found.values, np.zeros(1, np.bool_))

    def plain_value(self, path: FoldedPath) -> Any:
        """The value as Python has it, for a measure: an error in an argument is one of the task."""
        self._advance(path)
        if self._failures:
            raise CepError(
                f"an argument of {self._leaf.name} in a measure fails on a row of the match",
                hint="Spark raises an error here, too: leave out such rows with FILTER (WHERE "
                "...), or use try_divide, try_add or TRY_CAST",
            )
        return self._known

    def _advance(self, path: FoldedPath) -> None:
        self.cost = 0
        self._follow(path)
        if self._failures:
            return
        if not self._is_known:
            self._known, self._is_known = self._result(), True
            if isinstance(self._fold, ListFold):
                self.cost += self._fold.price * len(self._entries)
        elif self._leaf.type.kind == "other":
            self.cost += VALUE_STEPS * len(self._entries)  # of the function that reads the list

    @property
    def reads_past_end(self) -> bool:
        """Whether the last value would have read a row behind the partition's last one."""
        if self._ahead <= 0 or not self._places:
            return False
        last = self._path.begin + self._places[-1]
        return bool(last + self._ahead >= self._table.end_of[last])

    def _result(self) -> Any:
        fold, entries = self._fold, self._entries
        if not entries:
            return _OF_NOTHING.get(self._leaf.name)
        if isinstance(fold, StateFold):
            return fold.result(entries[-1])
        if isinstance(fold, OrderedFold):
            return fold.result(self._ordered, entries[-1][1:])
        return fold.result(entries)

    # ---- rows ----------------------------------------------------------------------------------

    def _follow(self, path: FoldedPath) -> None:
        """Goes back to where the paths part, and adds the rows from there."""
        before = self._path
        self._path = path
        shared = path.shared or 0
        is_same = (path.begin, path.number) == (before.begin, before.number)
        if path.shared is None and is_same:
            size = min(len(path.labels), len(before.labels))
            differ = np.flatnonzero(path.labels[:size] != before.labels[:size])
            shared = int(differ[0]) if len(differ) else size
        if not self._is_stable:
            shared = 0
        if not shared:
            self._clear()
        while self._places and self._places[-1] >= shared:
            self._drop()
            self.cost += DROP_STEPS
        added = path.labels[shared:]
        places = (
            np.arange(len(added))
            if self._members is None
            else np.flatnonzero(np.isin(added, self._members))
        )
        self.cost += self._row_steps * len(places)
        for place in (places + shared).tolist():
            self._add(place)

    def _add(self, place: int) -> None:
        self._places.append(place)
        values = self._values(self._path.begin + place)
        if values is None:
            self._failures += 1
            self._outcomes.append("failed")
            return
        if self._leaf.by is not None:
            values = (self._path.begin + place, *values)
        if not self._is_needed(values):
            self._outcomes.append("skipped")
            return
        if self._leaf.distinct:
            key = tuple(map(key_of, self._compared(values)))
            self._keys.append(key)
            self._seen[key] += 1
            if self._seen[key] > 1:
                self._outcomes.append("repeated")
                return
            values = tuple(each + 0.0 if isinstance(each, float) else each for each in values)
        self._outcomes.append("added")
        self._is_known = False
        fold, entries = self._fold, self._entries
        if isinstance(fold, StateFold):
            entries.append(fold.step(entries[-1] if entries else fold.start, *values))
            return
        entries.append(values)
        if isinstance(fold, OrderedFold):
            insort(self._ordered, _rank(values[0]))

    def _drop(self) -> None:
        self._places.pop()
        outcome = self._outcomes.pop()
        if outcome == "failed":
            self._failures -= 1
        if self._leaf.distinct and outcome in {"added", "repeated"}:
            self._seen[self._keys.pop()] -= 1
        if outcome == "added":
            self._is_known = False
            dropped = self._entries.pop()
            if isinstance(self._fold, OrderedFold):
                self._ordered.pop(bisect_left(self._ordered, _rank(dropped[0])))

    def _is_needed(self, values: Values) -> bool:
        needed = self._fold.needed
        if needed is None:
            return None not in values
        return None not in (values[:needed] if needed >= 0 else values[needed:])

    def _compared(self, values: Values) -> Values:
        """What DISTINCT compares: all arguments but the options."""
        return values[:1] if isinstance(self._fold, ListFold | OrderedFold) else values

    # ---- arguments -----------------------------------------------------------------------------

    def _values(self, row: int) -> Values | None:
        """The arguments at a row; None if Spark would raise an error."""
        if not self._is_of_columns:
            return self._evaluate(np.array([row]))[0]
        number, place = divmod(row, _CHUNK)
        chunk = self._chunks.get(number)
        if chunk is None:
            begin = number * _CHUNK
            rows = np.arange(begin, min(begin + _CHUNK, self._table.size))
            chunk = self._chunks[number] = self._evaluate(rows)
        return chunk[place]

    def _evaluate(self, rows: Array) -> list[Values | None]:
        failed = np.zeros(len(rows), np.bool_)
        columns: list[list[Any]] = []
        for part in self._parts:
            read: list[Expression] = []
            cells = replace_with_cells(part, read)
            with self._tally.uncounted():
                vector = evaluate_expression(
                    cells,
                    lambda cell: self._leaf_values(read[cell.variable], rows),  # noqa: B023
                    self._table.columns,
                    self._tally,
                )
                for each in self._tally.take_failed():
                    failed |= np.broadcast_to(each, failed.shape)
            valid = vector.valid
            shaped = Vector(
                np.broadcast_to(vector.values, rows.shape),
                None if valid is None else np.broadcast_to(valid, rows.shape),
            )
            columns.append(python_values(cells, shaped, self._table.columns))
        found = zip(*columns, strict=True)
        return [None if bad else each for each, bad in zip(found, failed.tolist(), strict=True)]

    def _leaf_values(self, leaf: Expression, rows: Array) -> Vector:
        if isinstance(leaf, MatchNumber):
            return Vector(np.full(len(rows), self._path.number))
        assert isinstance(leaf, RowRead | Classifier)
        at = rows + leaf.shift
        if isinstance(leaf, Classifier):
            begin, labels = self._path.begin, self._path.labels
            inside = (at >= begin) & (at < begin + len(labels))
            return Vector(labels[np.where(inside, at - begin, 0)], inside)
        low, high = self._table.begin_of[rows], self._table.end_of[rows]
        inside = (at >= low) & (at < high)
        if leaf.column is None:
            return Vector(np.ones(len(rows), np.bool_), inside)
        found = self._table.columns.gather(leaf.column, leaf.type, np.where(inside, at, low))
        valid = inside if found.valid is None else inside & found.valid
        return Vector(found.values, None if valid.all() else valid, found.nan_free)


def _parts_of(leaf: Aggregate) -> tuple[Expression, ...]:
    """The arguments of an aggregate: several are one struct. With `by`, what chooses a row."""
    if leaf.by is not None:
        return (RowRead("current", *leaf.by),)
    if leaf.argument is None:
        return (RowRead("current", leaf.column, leaf.type),)
    if isinstance(leaf.argument, Call) and leaf.argument.name == "struct":
        return leaf.argument.arguments
    return (leaf.argument,)


def vector_of(found: Sequence[Any], type_: Type) -> Vector:
    """The values of aggregates as a vector."""
    known = [each is not None for each in found]
    valid = None if all(known) else np.array(known, np.bool_)
    if type_.kind in WORD_KINDS or type_.kind == "other":
        nothing = {"string": "", "binary": b""}.get(type_.kind, ())
        values = np.empty(len(found), object)
        for place, each in enumerate(found):
            values[place] = nothing if each is None else each
        return Vector(values, valid)
    return Vector(np.array([0 if each is None else each for each in found], dtype_of(type_)), valid)
