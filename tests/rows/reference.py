"""MATCH_RECOGNIZE by the book, slowly: every way through the pattern in the order of preference,
every value looked up anew. It shares nothing with the engine but the program's classes.

SEMANTICS section 3 and ISO/IEC 19075-5: 4.12 (rows per match), 4.13 (skipping), 5 (navigation,
running and final), 7.2 (preferment; an iteration that matches nothing is allowed to reach the
lower bound, and as the last one).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

from spark_cep.udfs.expressions import Call, Constant
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead
from tests.rows.reference_folds import FOLDS, fold, key

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import RowPatternNode, RowProgram

Row = Sequence[Any]
# (variable, excluded) of each row of a match, in order.
Labels = tuple[tuple[int, bool], ...]


class TooMany(Exception):
    """The case is too large for brute force."""


class SkipError(Exception):
    """AFTER MATCH SKIP cannot go on."""


@dataclass(frozen=True)
class At:
    """One search: where it began, for which match, and whether an exclusion is open."""

    begin: int
    number: int
    excluded: bool = False


@dataclass
class Reference:
    """`rows` of one partition, sorted."""

    program: RowProgram
    rows: Sequence[Row]
    budget: int = 100_000
    number: int = 0

    def answer(self) -> list[tuple[Any, ...]]:
        """(row's place, *measures) for each row of the answer."""
        found: list[tuple[Any, ...]] = []
        begin, covered = 0, 0
        mode = self.program.rows
        while begin < len(self.rows):
            labels = self.match(begin, self.number + 1)
            if labels is None:
                if mode == "all with unmatched" and begin >= covered:
                    found.append((begin, *[None] * len(self.program.measures)))
                begin += 1
                continue
            self.number += 1
            found += self._shown(begin, labels)
            covered = max(covered, begin + len(labels))
            begin = self._skip(begin, labels)
        return found

    def match(self, begin: int, number: int) -> Labels | None:
        ways = self._ways(self.program.pattern, (), At(begin, number))
        return max(ways, key=len, default=None) if self.program.longest else next(ways, None)

    # ---- the ways through a pattern ------------------------------------------------------------

    def _ways(self, node: RowPatternNode, labels: Labels, at: At) -> Iterator[Labels]:  # noqa: PLR0912
        self.budget -= 1
        if self.budget < 0:
            raise TooMany
        row = at.begin + len(labels)
        if node.kind == "variable":
            if row < len(self.rows):
                bound = (*labels, (node.variable, at.excluded))
                if self._holds(node.variable, bound, at):
                    yield bound
        elif node.kind == "empty":
            yield labels
        elif node.kind == "start":
            if row == 0:
                yield labels
        elif node.kind == "end":
            if row == len(self.rows):
                yield labels
        elif node.kind == "exclude":
            yield from self._ways(node.parts[0], labels, replace(at, excluded=True))
        elif node.kind == "alternate":
            for part in node.parts:
                yield from self._ways(part, labels, at)
        elif node.kind == "concat":
            yield from self._sequence(node.parts, labels, at)
        elif node.kind == "permute":
            for order in permutations(node.parts):
                yield from self._sequence(order, labels, at)
        else:
            yield from self._iterations(node, 0, labels, at)

    def _sequence(
        self, parts: Sequence[RowPatternNode], labels: Labels, at: At
    ) -> Iterator[Labels]:
        if not parts:
            yield labels
            return
        for head in self._ways(parts[0], labels, at):
            yield from self._sequence(parts[1:], head, at)

    def _iterations(
        self, node: RowPatternNode, done: int, labels: Labels, at: At
    ) -> Iterator[Labels]:
        may_stop = done >= node.low
        if may_stop and not node.greedy:
            yield labels
        if node.high is None or done < node.high:
            for once in self._ways(node.parts[0], labels, at):
                if len(once) == len(labels) and done + 1 >= node.low:
                    yield once
                else:
                    yield from self._iterations(node, done + 1, once, at)
        if may_stop and node.greedy:
            yield labels

    def _holds(self, variable: int, labels: Labels, at: At) -> bool:
        row = at.begin + len(labels) - 1
        within = self.program.within
        if within is not None:
            time = self.program.orders[0].column
            if self.rows[row][time] - self.rows[at.begin][time] > within.size:
                return False
        define = self.program.variables[variable].define
        seen = Seen(self.rows, at.begin, labels, row, at.number)
        try:
            return define is None or value(define, seen) is True
        except ArithmeticError:
            return False

    # ---- what is shown, and where it goes on -----------------------------------------------------

    def _shown(self, begin: int, labels: Labels) -> Iterator[tuple[Any, ...]]:
        mode = self.program.rows
        if not labels:
            if mode != "all omit empty":
                yield (begin, *self._measures(begin, labels, None))
        elif mode == "one":
            yield (begin, *self._measures(begin, labels, begin + len(labels) - 1))
        else:
            for place, (_, excluded) in enumerate(labels):
                if not excluded:
                    yield (begin + place, *self._measures(begin, labels, begin + place))

    def _measures(self, begin: int, labels: Labels, row: int | None) -> Iterator[Any]:
        seen = Seen(self.rows, begin, labels, row, self.number)
        return (value(measure, seen) for measure in self.program.measures)

    def _skip(self, begin: int, labels: Labels) -> int:
        skip = self.program.skip
        if not labels or skip.kind == "next row":
            return begin + 1
        if skip.kind == "past last row":
            return begin + len(labels)
        places = [place for place, (v, _) in enumerate(labels) if v in skip.variables]
        if not places:
            raise SkipError("has nowhere to go")
        to = places[0] if skip.kind == "first" else places[-1]
        if to == 0:
            raise SkipError("would go to the first row")
        return begin + to


@dataclass(frozen=True)
class Seen:
    """What an expression can look at. `row`: the current row, None for an empty match."""

    rows: Sequence[Row]
    begin: int
    labels: Labels
    row: int | None
    number: int

    def bound(self, variables: frozenset[int] | None, final: bool) -> list[int]:
        last = -1 if self.row is None else self.row
        return [
            self.begin + place
            for place, (variable, _) in enumerate(self.labels)
            if (variables is None or variable in variables)
            and (final or self.begin + place <= last)
        ]

    def place(self, leaf: RowRead | Classifier) -> int | None:
        if leaf.anchor == "current":
            at = self.row
        else:
            rows = self.bound(leaf.variables, leaf.final)
            if leaf.offset >= len(rows):
                return None
            at = rows[leaf.offset] if leaf.anchor == "first" else rows[-1 - leaf.offset]
        if at is None or not 0 <= at + leaf.shift < len(self.rows):
            return None
        return at + leaf.shift

    def label(self, row: int | None) -> int | None:
        if row is None or not 0 <= row - self.begin < len(self.labels):
            return None
        return self.labels[row - self.begin][0]


def value(node: Expression, seen: Seen) -> Any:  # noqa: PLR0911
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, MatchNumber):
        return seen.number
    if isinstance(node, Classifier):
        return seen.label(seen.place(node))
    if isinstance(node, RowRead):
        at = seen.place(node)
        if at is None:
            return None
        return True if node.column is None else seen.rows[at][node.column]
    if isinstance(node, Aggregate):
        return aggregate(node, seen)
    assert isinstance(node, Call)
    return call(node, seen)


def aggregate(node: Aggregate, seen: Seen) -> Any:  # noqa: PLR0911
    rows = seen.bound(node.variables, node.final)
    if node.name in FOLDS:
        return fold(node, [_arguments(node, replace(seen, row=row)) for row in rows])
    if node.argument is not None:
        values = [
            value(node.argument, Seen(seen.rows, seen.begin, seen.labels, row, seen.number))
            for row in rows
        ]
    elif node.column is None:
        labels = [seen.label(row) for row in rows]
        return labels if node.name == "list" else len(rows)
    else:
        values = [seen.rows[row][node.column] for row in rows]
    if node.name == "list":
        return values
    values = [each for each in values if each is not None]
    if node.distinct:
        values = list({key(each): each for each in reversed(values)}.values())[::-1]
    if node.name == "count":
        return len(values)
    if not values:
        return None
    if node.name in ("min", "max"):
        return (min if node.name == "min" else max)(values, key=key)
    if node.name in SPREADS:
        return _spread(node.name, values)
    total: Any = 0
    for each in values:
        total = total + each
    if node.name == "sum":
        return float(total) if node.type.kind == "float" else _fitting(total, node)
    return total / len(values)


SPREADS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")


def _spread(name: str, values: list[Any]) -> Any:
    """As Spark's aggregate takes one value after the other."""
    count, mean, squares = 0.0, 0.0, 0.0
    for each in map(float, values):
        count += 1
        delta = each - mean
        mean += delta / count
        squares += delta * (delta - delta / count)
    divisor = count - 1 if name.endswith("samp") else count
    if divisor <= 0:
        return None
    found = squares / divisor
    return math.sqrt(found) if name.startswith("stddev") and found == found else found  # noqa: PLR0124


def _arguments(node: Aggregate, seen: Seen) -> tuple[Any, ...]:
    """Of an aggregate at the current row; several are one struct."""
    if isinstance(node.argument, Call) and node.argument.name == "struct":
        return tuple(value(each, seen) for each in node.argument.arguments)
    if node.argument is not None:
        return (value(node.argument, seen),)
    assert node.column is not None
    assert seen.row is not None
    row = seen.rows[seen.row]
    return (row[node.column],) if node.by is None else (row[node.column], row[node.by[0]])


def _fitting(result: Any, node: Call | Aggregate) -> Any:
    """ANSI: an integer beyond its type is an error."""
    if (
        node.type.kind == "int"
        and result is not None
        and not -(1 << node.type.bits - 1) <= result < 1 << node.type.bits - 1
    ):
        raise OverflowError
    return result


def call(node: Call, seen: Seen) -> Any:  # noqa: PLR0911
    name = node.name
    if name in ("and", "or"):
        decides, unknown = name == "or", False
        for argument in node.arguments:
            found = value(argument, seen)
            if found is decides:
                return decides
            unknown = unknown or found is None
        return None if unknown else not decides
    if name == "coalesce":
        return next((v for a in node.arguments if (v := value(a, seen)) is not None), None)
    if name == "if":
        condition, then, otherwise = node.arguments
        return value(then if value(condition, seen) is True else otherwise, seen)
    values = [value(argument, seen) for argument in node.arguments]
    if name == "is_null":
        return values[0] is None
    if name == "is_not_null":
        return values[0] is not None
    if any(each is None for each in values):
        return None
    if name == "not":
        return not values[0]
    return _fitting(OPERATIONS[name](*values), node)


OPERATIONS: Mapping[str, Any] = {
    "=": lambda a, b: key(a) == key(b),
    "<>": lambda a, b: key(a) != key(b),
    "<": lambda a, b: key(a) < key(b),
    "<=": lambda a, b: key(a) <= key(b),
    ">": lambda a, b: key(a) > key(b),
    ">=": lambda a, b: key(a) >= key(b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "%": lambda a, b: int(math.fmod(a, b)),
    "neg": lambda a: -a,
    "size": len,
    "array_contains": lambda each, a: (
        key(a) in [key(b) for b in each] or (None if None in each else False)
    ),
    "get": lambda each, n: each[n] if 0 <= n < len(each) else None,
    "abs": abs,
}
