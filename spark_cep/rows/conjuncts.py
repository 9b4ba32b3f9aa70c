"""Conditions of DEFINE as conjuncts over rows: guards, differences of times, neighbouring rows.

A `RowConjunct` is a conjunct whose variables are the rows at which its names are read. So the rules
for conjuncts of event patterns apply: a part over one variable there is a part over one row here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.conditions import Conjunct, row_part, user_function_of
from spark_cep.expressions.names import quote_name
from spark_cep.expressions.syntax import SyntaxProblem
from spark_cep.expressions.types import UNITS_US
from spark_cep.rows.texts import CURRENT_ROW, ResolvedRowText, RowPosition
from spark_cep.udfs.expressions import BOOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.expressions.names import Reference
    from spark_cep.expressions.schema import OrderBy
    from spark_cep.rows.calls import RowCall
    from spark_cep.rows.texts import RowTypes
    from spark_cep.udfs.row_program import VariableSet


# Added to the names of every call, so that no expression with a call is a part over one row.
CALL_MARKERS = frozenset({-1, -2})
# Arguments of lambda functions are in the names of what is between them and their lambda, as two
# numbers below these.
_FIRST_ARGUMENT = -3


def _markers(argument: int) -> frozenset[int]:
    return frozenset({_FIRST_ARGUMENT - 2 * argument, _FIRST_ARGUMENT - 2 * argument - 1})


class RowConjunct(Conjunct):
    """A condition whose `variables` are the rows at which its names are read, by their number in
    `rows`; number 0 is the current row."""

    def __init__(self, text: ResolvedRowText) -> None:
        self.resolved = text
        self.rows: list[RowPosition] = [CURRENT_ROW]
        references = [replace(each, variable=self._number(each)) for each in text.references]
        super().__init__(text.parsed, text.parsed.root, references, None)

    def number(self, row: RowPosition) -> int:
        if row not in self.rows:
            self.rows.append(row)
        return self.rows.index(row)

    def _number(self, reference: Reference) -> int:
        return self.number(self.resolved.row_of(reference))

    def names_anything(self, node: exp.Expr) -> bool:
        return bool(self.named(node)) or self.calls_user_function(node)

    def calls_user_function(self, node: exp.Expr) -> bool:
        return any(map(user_function_of, node.walk()))

    def depends_on_element(self, node: exp.Expr) -> bool:
        """Whether the node has arguments of a lambda function around it."""
        return min(self.named(node), default=0) <= _FIRST_ARGUMENT

    @cached_property
    def arguments(self) -> dict[int, int]:
        """By node id, the number of a lambda function's argument, where it is bound or used."""
        found: dict[int, int] = {}
        count = 0
        # From the outside in: an inner argument hides an outer one of its name.
        for function in self.node.find_all(exp.Lambda):
            for argument in function.expressions:
                name = argument.name.casefold()
                for each in function.this.find_all(exp.Identifier):
                    is_field = isinstance(each.parent, exp.Dot) and each is each.parent.expression
                    if each.name.casefold() == name and not is_field:
                        found[id(each)] = count
                found[id(argument)] = count
                count += 1
        return found

    @cached_property
    def _named(self) -> dict[int, frozenset[int]]:
        found: dict[int, frozenset[int]] = {}
        for node in reversed(list(self.node.walk())):
            reference = self.reference(node)
            own = frozenset() if reference is None else frozenset({reference.variable})
            if self.resolved.calls.at(node) is not None:
                own |= CALL_MARKERS
            if id(node) in self.arguments:
                own |= _markers(self.arguments[id(node)])
            below = own.union(*(found[id(child)] for child in node.iter_expressions()))
            if isinstance(node, exp.Lambda):
                bound = [_markers(self.arguments[id(each)]) for each in node.expressions]
                below = below.difference(*bound)
            found[id(node)] = below
        return found


def hoistable_texts(conjunct: RowConjunct, node: exp.Expr | None = None) -> Iterator[str]:
    """The texts whose types a translation will probably need."""
    node = conjunct.node if node is None else node
    part = row_part(conjunct, node)
    if part is not None:
        yield part.text
        return
    is_flat = isinstance(node, exp.And | exp.Or)
    for child in node.flatten() if is_flat else node.iter_expressions():
        yield from hoistable_texts(conjunct, child)


# ---- guards by variable --------------------------------------------------------------------------


# A plain column cannot fail, so it is not guarded.
_COLUMN = re.compile(r"\s*`(?:[^`]|``)+`\s*")


class VariableGuards:
    """What is known of a row because it matched a variable.

        DEFINE b AS payload RLIKE '^[0-9]+$'  MEASURES max(CAST(b.payload AS INT)) AS top

    Spark computes the CAST as a column on every row, and under ANSI it fails on rows that are never
    `b`. As `b.payload` is read only at rows of `b`, it is computed where the single-row conditions
    of DEFINE b hold and is NULL elsewhere, which changes no answer. A variable without such
    conditions may be any row and guards nothing. Inside its own DEFINE, a condition is guarded by
    what precedes it in the text (expressions/guards.py).

    `known`: by the number of a variable, SQL that is TRUE at each of its rows.
    """

    def __init__(self, known: Mapping[int, str] | None = None) -> None:
        self._known = dict(known or {})

    def at(self, row: RowPosition, text: str) -> str:
        """SQL over a row, guarded for a reader at this row.

        >>> from spark_cep.rows.texts import RowPosition
        >>> guards = VariableGuards({1: "(x > 0)"})
        >>> guards.at(RowPosition("last", frozenset({1})), "1 / x")
        'CASE WHEN (x > 0) THEN 1 / x END'
        >>> guards.at(RowPosition("last", frozenset({1}), shift=-1), "1 / x")
        '1 / x'
        """
        return text if row.shift or row.anchor == "current" else self.among(row.variables, text)

    def among(self, variables: VariableSet, text: str) -> str:
        """SQL over a row, guarded for an aggregate over the rows of these variables; None: all
        rows."""
        if not variables or _COLUMN.fullmatch(text):
            return text
        known = [self._known.get(each) for each in sorted(variables)]
        if None in known:
            return text
        return f"CASE WHEN {' OR '.join(each for each in known if each)} THEN {text} END"


def guards_by_variable(conjuncts: Mapping[int, RowConjunct], types: RowTypes) -> VariableGuards:
    """The guards from the conditions of DEFINE."""
    found = {}
    for number, conjunct in conjuncts.items():
        texts = [text for text in _row_conditions(conjunct) if types.of(text) == BOOL]
        if texts:
            found[number] = f"({' AND '.join(f'({text})' for text in texts)})"
    return VariableGuards(found)


def _row_conditions(conjunct: RowConjunct) -> list[str]:
    """The conditions between ANDs that are over the row itself."""
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


# ---- differences of times ------------------------------------------------------------------------


_DATES = {"datediff", "date_diff"}
_DAYS = "unix_date(CAST({} AS DATE))"
_LOCAL_US = "timestampdiff(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {})"


@dataclass(frozen=True)
class TimeDifference:
    """The difference of two times as a difference of numbers that Spark computes on each row.

        datediff(b.day, a.day)              unix_date(b.day) - unix_date(a.day)
        timestampdiff(MINUTE, a.ts, b.ts)   (micros(b.ts) - micros(a.ts)) div 60000000

    Spark takes the difference of local times, so the microseconds are those of the session's clock.
    Both functions count whole units. Months and years have no fixed length and are not supported.

    `number`: SQL with {} for a side. `unit`: the divisor, None for 1.
    """

    later: exp.Expr
    earlier: exp.Expr
    number: str
    unit: int | None = None


def difference_of(node: exp.Expr) -> TimeDifference | None:
    """The difference that the node computes; None for other functions."""
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
    length_us = UNITS_US.get(unit.name.lower()) if isinstance(unit, exp.Column) else None
    return None if length_us is None else TimeDifference(later, earlier, _LOCAL_US, length_us)


# ---- neighbouring rows ---------------------------------------------------------------------------


_NAMES = {"lag": "PREV", "lead": "NEXT"}
_PRINTED = re.compile(r"\b(lag|lead)\((.*?), -?(\d+), NULL\) OVER \(.*?FOLLOWING\)", re.S)


def window_clause(partition: Sequence[str], orders: Sequence[OrderBy]) -> str | None:
    """The OVER clause of lag and lead in the partition and order of the pattern; None without an
    order, or if it is a Column that has no SQL text.

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
    """SQL for a node over the current row and rows at fixed distances from it, which do not depend
    on the match:

        levenshtein(kind, PREV(kind)) < 3      levenshtein(`kind`, lag(`kind`, 1) OVER (...)) < 3

    None if the node mentions other rows (a.price, FIRST(price), aggregates), or no neighbour. Spark
    sorts the rows once more for it, so the engine's operations are preferred. Spark and the engine
    may order tied rows differently, as documented.
    """
    if conjunct.depends_on_element(node) or conjunct.calls_user_function(node):
        return None
    rows = [conjunct.rows[number] for number in conjunct.named(node) - CALL_MARKERS]
    calls = conjunct.resolved.calls.below(node)
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
    """A message of Spark with PREV and NEXT in place of lag and lead.

    >>> restore_navigation("(x > lag(y, 2, NULL) OVER (ORDER BY n ROWS ... -2 FOLLOWING)) is wrong")
    '(x > PREV(y, 2)) is wrong'
    """
    return _PRINTED.sub(
        lambda found: f"{_NAMES[found[1]]}({found[2]}{'' if found[3] == '1' else ', ' + found[3]})",
        sentence,
    )


def _neighbour_call_sql(conjunct: RowConjunct, call: RowCall, over: str) -> str:
    """SQL for PREV(x, 2), PREV(LAST(x)), NEXT(x)."""
    argument = call.arguments[0]
    inner = conjunct.resolved.calls.at(argument.unnest())
    if inner is not None:
        argument = inner.arguments[0]
    start, end = conjunct.parsed.span(argument)
    named = [each for each in conjunct.references if start <= each.start < end]
    text = conjunct.parsed.cut(argument, [each.edit() for each in named])
    shift = conjunct.rows[named[0].variable].shift
    if not shift:
        return f"({text})"
    return f"{'lag' if shift < 0 else 'lead'}({text}, {abs(shift)}) {over}"
