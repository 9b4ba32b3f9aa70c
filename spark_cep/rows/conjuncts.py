"""Conditions on rows at fixed distances that the engine has no operation for.

    levenshtein(kind, PREV(kind)) < 3   ->   levenshtein(`kind`, lag(`kind`, 1) OVER (...)) < 3

Which rows PREV and NEXT see from the row under test does not depend on the match, so Spark can
compute such a part whole, as one column. It sorts the rows once more for that, so what the engine
computes itself never comes here. Of tied rows Spark and the engine may each see another order,
as the docs say of ties anyway.

Rows that depend on the match (a.price, FIRST(price), aggregates) are known to the engine alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.conditions import Conjunct, row_part
from spark_cep.expressions.names import quote_name
from spark_cep.expressions.syntax import SyntaxProblem
from spark_cep.rows.texts import CURRENT_ROW, ResolvedRowText, RowPosition
from spark_cep.udfs.expressions import BOOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.expressions.names import Reference
    from spark_cep.expressions.schema import OrderBy
    from spark_cep.rows.calls import RowCall
    from spark_cep.rows.texts import RowTypes
    from spark_cep.udfs.row_program import VariableSet


# --------------------------------------------------------------------------------------------------
# A condition of DEFINE as a conjunct whose variables are the rows that its names are read at.
#
# So what a part over one variable is to an event pattern, a part over one row is here, and the
# engine's rules for conjuncts hold for both.
# --------------------------------------------------------------------------------------------------


# Named with every call, so that nothing with a call in it passes for a part over one row.
CALL_MARKERS = frozenset({-1, -2})


class RowConjunct(Conjunct):
    """A condition whose `variables` are the rows that its names are read at, by their number in
    `rows`; number 0 is the row under test."""

    def __init__(self, text: ResolvedRowText) -> None:
        self.row_text_ = text
        self.rows: list[RowPosition] = [CURRENT_ROW]
        references = [replace(each, variable=self._number(each)) for each in text.references]
        super().__init__(text.parsed, text.parsed.root, references, None)

    def number(self, row: RowPosition) -> int:
        if row not in self.rows:
            self.rows.append(row)
        return self.rows.index(row)

    def _number(self, reference: Reference) -> int:
        return self.number(self.row_text_.row_of(reference))

    def names_anything(self, node: exp.Expr) -> bool:
        return bool(self.named(node))

    @cached_property
    def _named(self) -> dict[int, frozenset[int]]:
        found: dict[int, frozenset[int]] = {}
        for node in reversed(list(self.node.walk())):
            reference = self.reference(node)
            own = frozenset() if reference is None else frozenset({reference.variable})
            if self.row_text_.calls.at(node) is not None:
                own |= CALL_MARKERS
            found[id(node)] = own.union(*(found[id(child)] for child in node.iter_expressions()))
        return found


def hoistable_texts(conjunct: RowConjunct, node: exp.Expr | None = None) -> Iterator[str]:
    """The texts that a translation will probably ask Spark about."""
    node = conjunct.node if node is None else node
    part = row_part(conjunct, node)
    if part is not None:
        yield part.text
        return
    is_flat = isinstance(node, exp.And | exp.Or)
    for child in node.flatten() if is_flat else node.iter_expressions():
        yield from hoistable_texts(conjunct, child)


# --------------------------------------------------------------------------------------------------
# datediff and timestampdiff between rows, as differences of numbers that Spark computes on each.
#
#     datediff(b.day, a.day)              ->   unix_date(b.day) - unix_date(a.day)
#     timestampdiff(MINUTE, a.ts, b.ts)   ->   (micros(b.ts) - micros(a.ts)) div 60000000
#
# Spark takes the difference of the local times of day, so the micros are those of the session's
# clock; both count whole units only. Months and years have no fixed length, and are not here.
# --------------------------------------------------------------------------------------------------


_DATES = {"datediff", "date_diff"}
_UNIT_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_DAYS = "unix_date(CAST({} AS DATE))"
_LOCAL_US = "timestampdiff(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {})"


@dataclass(frozen=True)
class TimeDifference:
    """`number` of the later minus that of the earlier, in units of so many; None: as it is."""

    later: exp.Expr
    earlier: exp.Expr
    number: str
    unit: int | None = None


def difference_of(node: exp.Expr) -> TimeDifference | None:
    """What the node is the difference of, if it is one of these functions."""
    if not isinstance(node, exp.Anonymous):
        return None
    name, arguments = node.name.lower(), node.expressions
    if name in _DATES and len(arguments) == len(("later", "earlier")):
        return TimeDifference(arguments[0], arguments[1], _DAYS)
    if name in {*_DATES, "timestampdiff", "timediff"}:
        return _in_units(arguments)
    return None


def _in_units(arguments: Sequence[exp.Expr]) -> TimeDifference | None:
    if len(arguments) != len(("unit", "earlier", "later")):
        return None
    unit, earlier, later = arguments
    length_us = _UNIT_US.get(unit.name.lower()) if isinstance(unit, exp.Column) else None
    return None if length_us is None else TimeDifference(later, earlier, _LOCAL_US, length_us)


_NAMES = {"lag": "PREV", "lead": "NEXT"}
_PRINTED = re.compile(r"\b(lag|lead)\((.*?), -?(\d+), NULL\) OVER \(.*?FOLLOWING\)", re.S)


def window_clause(partition: Sequence[str], orders: Sequence[OrderBy]) -> str | None:
    """What stands behind lag(x), so that it sees the partition in the pattern's order; None if
    there is no order, or Spark cannot be told it as text.

    >>> from spark_cep.expressions.schema import OrderBy
    >>> from spark_cep.udfs.expressions import Type
    >>> window_clause(["k"], [OrderBy("`ts`", True, False, Type("timestamp"))])
    'OVER (PARTITION BY `k` ORDER BY `ts` DESC NULLS LAST)'
    """
    if not orders or not all(isinstance(each.expression, str) for each in orders):
        return None
    keys = f"PARTITION BY {', '.join(map(quote_name, partition))} " if partition else ""
    return f"OVER ({keys}ORDER BY {', '.join(map(_direction, orders))})"


def _direction(order: OrderBy) -> str:
    direction = "DESC" if order.descending else "ASC"
    return f"{order.expression} {direction} NULLS {'FIRST' if order.nulls_first else 'LAST'}"


def neighbour_sql(conjunct: RowConjunct, node: exp.Expr, over: str) -> str | None:
    """The node over a row and its neighbours; None if it is about other rows, or about none but
    the row itself."""
    rows = [conjunct.rows[number] for number in conjunct.named(node) - CALL_MARKERS]
    calls = conjunct.row_text_.calls.below(node)
    is_near = all(row.anchor == "current" for row in rows) and any(row.shift for row in rows)
    if not is_near or any(call.kind not in {"physical", "logical"} for call in calls):
        return None
    outer = [call for call in calls if call.inside is None or call.inside not in calls]
    start, end = conjunct.parsed.span(node)
    edits = [(call.start, call.end, _neighbour_call_sql(conjunct, call, over)) for call in outer]
    edits += [
        each.edit()
        for each in conjunct.references
        if start <= each.start < end
        and not any(call.start <= each.start < call.end for call in outer)
    ]
    return conjunct.parsed.cut(node, edits)


def restore_navigation(sentence: str) -> str:
    """What Spark says of lag and lead, as the user wrote it.

    >>> restore_navigation("(x > lag(y, 2, NULL) OVER (ORDER BY n ROWS ... -2 FOLLOWING)) is wrong")
    '(x > PREV(y, 2)) is wrong'
    """
    return _PRINTED.sub(
        lambda found: f"{_NAMES[found[1]]}({found[2]}{'' if found[3] == '1' else ', ' + found[3]})",
        sentence,
    )


def _neighbour_call_sql(conjunct: RowConjunct, call: RowCall, over: str) -> str:
    """PREV(x, 2), PREV(LAST(x)) and their like."""
    argument = call.arguments[0]
    inner = conjunct.row_text_.calls.at(argument.unnest())
    if inner is not None:
        argument = inner.arguments[0]
    start, end = conjunct.parsed.span(argument)
    named = [each for each in conjunct.references if start <= each.start < end]
    text = conjunct.parsed.cut(argument, [each.edit() for each in named])
    shift = conjunct.rows[named[0].variable].shift
    if not shift:
        return f"({text})"
    return f"{'lag' if shift < 0 else 'lead'}({text}, {abs(shift)}) {over}"


# --------------------------------------------------------------------------------------------------
# What is known of a row because a variable was matched at it.
#
#     DEFINE b AS payload RLIKE '^[0-9]+$'  MEASURES max(CAST(b.payload AS INT)) AS top
#
# Spark computes the CAST as a column, on every row, and in ANSI mode it fails on rows that never
# are `b`. Whoever asks for `b.payload` sees rows of `b` only, so it is computed where the
# conditions that DEFINE b has on single rows are met, and is NULL elsewhere. A row that is read
# as `b` meets them, so no answer changes. A variable without such conditions may be any row, and
# guards nothing.
#
# Inside its own DEFINE a condition is guarded by what stands to its left in the text, as in WHERE
# (see parts.py): to test the row is what it is for.
# --------------------------------------------------------------------------------------------------


# A column of the input cannot fail.
_COLUMN = re.compile(r"\s*`(?:[^`]|``)+`\s*")


class VariableGuards:
    """`known`: by number of a variable, SQL over a row that holds at each of its rows."""

    def __init__(self, known: Mapping[int, str] | None = None) -> None:
        self._known = dict(known or {})

    def at(self, row: RowPosition, text: str) -> str:
        """A text over a row, for who reads it at this row.

        >>> from spark_cep.rows.texts import RowPosition
        >>> guarding = VariableGuards({1: "(x > 0)"})
        >>> guarding.at(RowPosition("last", frozenset({1})), "1 / x")
        'CASE WHEN (x > 0) THEN 1 / x END'
        >>> guarding.at(RowPosition("last", frozenset({1}), shift=-1), "1 / x")
        '1 / x'
        """
        return text if row.shift or row.anchor == "current" else self.among(row.variables, text)

    def among(self, variables: VariableSet, text: str) -> str:
        """The same for who goes through all rows of these variables; None: all rows."""
        if not variables or _COLUMN.fullmatch(text):
            return text
        known = [self._known.get(each) for each in sorted(variables)]
        if None in known:
            return text
        return f"CASE WHEN {' OR '.join(each for each in known if each)} THEN {text} END"


def guards_by_variable(conjuncts: Mapping[int, RowConjunct], types: RowTypes) -> VariableGuards:
    """From the condition of each variable that has one."""
    found = {}
    for number, conjunct in conjuncts.items():
        texts = [text for text in _row_conditions(conjunct) if types.of(text) == BOOL]
        if texts:
            found[number] = f"({' AND '.join(f'({text})' for text in texts)})"
    return VariableGuards(found)


def _row_conditions(conjunct: RowConjunct) -> list[str]:
    """The conditions between ANDs that are about the row itself."""
    root = conjunct.node.unnest()
    found = []
    for node in root.flatten() if isinstance(root, exp.And) else [root]:
        try:
            part = row_part(conjunct, node)
        except SyntaxProblem:
            continue
        if part is not None and part.variable == 0:
            found.append(part.text)
    return found
