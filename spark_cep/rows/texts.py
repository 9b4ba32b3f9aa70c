"""Expressions of DEFINE and MEASURES with their names resolved to the rows that they are read at.

    x in DEFINE of a        the current row; also a.x, and u.x of a subset u that contains a
    b.x elsewhere           the last row of b so far
    FIRST(b.x, 1)           the second row of b
    PREV(LAST(b.x, 1), 2)   two rows before the last but one row of b
    x, FIRST(x) in MEASURES over all rows of the match

A navigation or an aggregate is over one variable, one subset, or all rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlglot import TokenType, exp

from spark_cep.expressions.aggregates import AGGREGATES, AGGREGATES_HINT, NAVIGATIONS
from spark_cep.expressions.names import (
    PatternNames,
    Reference,
    columns_of,
    name_parts_of,
    quote_name,
)
from spark_cep.expressions.problems import Problems
from spark_cep.expressions.refusals import find_refusals
from spark_cep.expressions.schema import HIDDEN_PREFIX
from spark_cep.expressions.syntax import (
    SPARK_FUNCTIONS,
    ParsedExpression,
    SyntaxProblem,
    apply_edits,
)
from spark_cep.expressions.user_functions import find_user_function
from spark_cep.rows.calls import (
    SEMANTICS_HINT,
    RowCall,
    RowCalls,
    call_kind_of,
    clause_nodes,
    parse_calls,
)
from spark_cep.udfs.program import Variable

if TYPE_CHECKING:
    from spark_cep.expressions.problems import Place
    from spark_cep.expressions.row_variables import RowVariables
    from spark_cep.expressions.schema import ColumnInfo, Typer
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.row_program import VariableSet


Anchor = Literal["current", "first", "last", "each"]


@dataclass(frozen=True)
class RowPosition:
    """The row that is read, as in the engine's RowRead. "each": the rows of an aggregate."""

    anchor: Anchor = "current"
    variables: VariableSet = None
    offset: int = 0
    shift: int = 0
    final: bool = False


CURRENT_ROW = RowPosition()
_FOLLOWS_SEMANTICS = re.compile(r"\b(RUNNING|FINAL)\s+$", re.I)
# Replacements for functions of windows and of other systems.
_REPLACEMENTS = {
    "lag": "write PREV(price), or PREV(price, 2)",
    "lead": "write NEXT(price), or NEXT(price, 2)",
    "row_number": "write count(*), the number of the row in its match so far",
    "approx_count_distinct": "write count(DISTINCT b.price)",
    "nth_value": "write FIRST(b.price, 2) for the third row of b, LAST(b.price, 1) for the last "
    "but one",
}
_OTHER_SYSTEMS = {
    "match_rowtime": "write LAST(ts), the time of the last row",
    "match_proctime": "write current_timestamp()",
    "match_sequence_number": "write count(*), the number of the row in its match",
}


@dataclass(frozen=True)
class RowScope:
    """The scope of names. `own`: the variable being defined; None in measures. `at_end`: the answer
    has one row for each match, so names are read from the last row of the match. `aggregates`: the
    session's own; `python_aggregates`: those of them that are functions in Python."""

    names: PatternNames
    variables: RowVariables
    own: int | None = None
    at_end: bool = False
    aggregates: frozenset[str] = frozenset()
    python_aggregates: frozenset[str] = frozenset()

    @property
    def universal(self) -> int:
        """The number of the universal variable: all rows of the match."""
        return len(self.names.variables)

    def rows(self, number: int) -> VariableSet:
        return None if number == self.universal else self.variables.all()[number][1]

    def describe_rows(self, number: int) -> str:
        return "all rows" if number == self.universal else self.names.variables[number].name

    def row(self, number: int, around: Sequence[RowCall]) -> RowPosition:
        """The row at which a name of a variable inside these calls is read."""
        rows = self.rows(number)
        if any(call.kind == "aggregate" for call in around):
            return RowPosition("each", rows)
        logical = next((call for call in around if call.kind == "logical"), None)
        physical = next((call for call in around if call.kind == "physical"), None)
        shift = 0
        if physical is not None:
            shift = -physical.offset if physical.name == "prev" else physical.offset
        anchor = "last" if logical is None else NAVIGATIONS[logical.name]
        offset = 0 if logical is None else logical.offset
        if self.is_current(rows) and anchor == "last" and offset == 0:
            return RowPosition("current", shift=shift)
        return RowPosition(anchor, rows, offset, shift, self.is_final(logical))

    def is_current(self, rows: VariableSet) -> bool:
        """Whether the current row is the last of these rows."""
        return self.own is not None and (rows is None or self.own in rows)

    def is_final(self, call: RowCall | None) -> bool:
        return self.at_end or (call is not None and bool(call.final))


class RowTypes:
    """Types of texts over one input row, requested from Spark once."""

    def __init__(self, typer: Typer, columns: Iterable[ColumnInfo]) -> None:
        self._typer = typer
        self._known: dict[str, Type | str] = {quote_name(each.name): each.type for each in columns}

    def learn(self, texts: Iterable[str]) -> None:
        """Gets the types of many texts in one call, which costs as much as one type."""
        unknown = list(dict.fromkeys(text for text in texts if text not in self._known))
        if unknown:
            self._known.update(zip(unknown, self._typer.of_row(unknown), strict=True))

    def of(self, text: str) -> Type | str:
        """The type of a text, or Spark's error message."""
        self.learn([text])
        return self._known[text]


def row_pattern_names(variables: RowVariables, names: PatternNames) -> PatternNames:
    """The names of a row pattern: variables, then subsets, over the input's columns."""
    known = [Variable(name) for name, _ in variables.all()]
    return PatternNames(
        known, names.columns, case_sensitive=names.case_sensitive, columns_first=True
    )


class ResolvedRowText:
    """`references`: every name of a column. `about`: by node id of a call, the number of the
    variable or subset that it is over."""

    def __init__(
        self,
        calls: RowCalls,
        scope: RowScope,
        references: Sequence[Reference],
        about: Mapping[int, int],
    ) -> None:
        self.calls = calls
        self.scope = scope
        self.references = tuple(references)
        self.about = about

    @property
    def parsed(self) -> ParsedExpression:
        return self.calls.parsed

    def row_of(self, reference: Reference) -> RowPosition:
        return self.scope.row(reference.variable, self._around(reference.node))

    def row_of_label(self, call: RowCall) -> RowPosition:
        """The row whose variable a CLASSIFIER returns."""
        return self.scope.row(self.about[id(call.node)], call.around())

    def rows_of(self, call: RowCall) -> VariableSet:
        """The rows of an aggregate."""
        return self.scope.rows(self.about[id(call.node)])

    def _around(self, node: exp.Expr) -> list[RowCall]:
        call = self.calls.around[id(node)]
        return [] if call is None else [call, *call.around()]


def resolve_text(text: str, scope: RowScope, problems: Problems) -> ResolvedRowText | None:
    """The text with its names resolved; None, with problems, if it is invalid."""
    before = len(problems.found)
    in_define = scope.own is not None
    try:
        calls = parse_calls(
            text,
            problems,
            in_define=in_define,
            aggregates=scope.aggregates,
            is_name=scope.names.is_name,
        )
    except SyntaxProblem as problem:
        hint = (
            "write conditions as in WHERE: price < PREV(price)"
            if in_define
            else "write measures as in SELECT: LAST(b.price) - FIRST(b.price)"
        )
        if _FOLLOWS_SEMANTICS.search(problem.place.text[: problem.place.start]):
            hint = SEMANTICS_HINT
        if problem.place.text[problem.place.start : problem.place.end] == ":":
            hint = "write variant_get(payload, '$.a.b', 'int') for a path into a variant"
        problems.add(
            f"this is not a Spark SQL expression: {problem.message}", problem.place, hint=hint
        )
        return None
    _check_stars(calls, scope, problems)
    _check_functions(calls, problems, in_define=in_define)
    found = _RowTextResolver(calls, scope, problems).run()
    return found if len(problems.found) == before else None


@dataclass(frozen=True)
class SessionCall:
    """A call of a function that Spark may not have itself, over an input row. `inner`: the
    names of such functions inside it."""

    name: str
    sql: str
    inner: frozenset[str]


# What stands for calls of the matcher where Spark is asked for types.
_SAMPLES = {"classifier": "CAST('' AS STRING)", "number": "1L"}


def session_calls(text: str, scope: RowScope) -> list[SessionCall]:
    """Calls that may be aggregates of the session: they contain no other aggregate."""
    unknown = Problems()
    try:
        calls = parse_calls(text, unknown, in_define=False)
    except SyntaxProblem:
        return []
    parsed, found = calls.parsed, []
    nodes = [each for each in parsed.root.find_all(exp.Anonymous) if _is_of_session(each)]
    if not nodes:
        return []
    references = _RowTextResolver(calls, scope, unknown).run().references
    edits = [each.edit() for each in references if each.column is not None]
    edits += [
        (each.start, each.end, _SAMPLES[each.kind])
        for each in calls.calls.values()
        if each.kind in _SAMPLES
    ]
    for node in nodes:
        if all(each.kind in _SAMPLES for each in calls.below(node)):
            start, end = span_of_call(parsed, node)
            sql = apply_edits(parsed.text, start, end, edits)
            below = [each for each in node.find_all(exp.Anonymous) if each is not node]
            inner = {each.name.lower() for each in below if _is_of_session(each)}
            found.append(SessionCall(node.name.lower(), sql, frozenset(inner)))
    return found


def span_of_call(parsed: ParsedExpression, node: exp.Expr) -> tuple[int, int]:
    """The characters of a call without its FILTER and WITHIN GROUP."""
    while isinstance(node.parent, exp.Filter | exp.WithinGroup | exp.IgnoreNulls):
        node = node.parent
    first, last = parsed.tokens_of(node)
    depth = 0
    for token in parsed.tokens[first + 1 : last + 1]:
        depth += token.token_type == TokenType.L_PAREN
        depth -= token.token_type == TokenType.R_PAREN
        if not depth:
            return parsed.tokens[first].start, token.end + 1
    return parsed.span(node)


def _is_of_session(node: exp.Anonymous) -> bool:
    name = node.name
    return not (
        name.upper() in SPARK_FUNCTIONS
        or call_kind_of(node) is not None
        or name.startswith("__cep_")
        or find_user_function(name.lower()) is not None
    )


def _check_stars(calls: RowCalls, scope: RowScope, problems: Problems) -> None:
    """Refuses a `*` where it would not be the columns of the input: Spark computes measures on the
    answer, and a statement with subqueries adds columns to the input."""
    parsed = calls.parsed
    is_row = not any(each.name.startswith(HIDDEN_PREFIX) for each in scope.names.columns)
    inside = {id(each.node) for each in calls.calls.values()}
    for star in parsed.root.find_all(exp.Star):
        around = list(_ancestors(star))
        if isinstance(star.parent, exp.Column | exp.Count):
            continue
        in_call = any(id(each) in inside for each in around)
        if is_row and (in_call or (scope.own is not None and around)):
            continue
        problems.add(
            "* is not a value here",
            parsed.place(star),
            hint="name the columns, struct(b.price, b.qty), or count rows: count(*)",
        )


def _ancestors(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _check_functions(calls: RowCalls, problems: Problems, *, in_define: bool) -> None:
    parsed = calls.parsed
    clauses = {
        parsed.span(clause) for call in calls.calls.values() for clause in clause_nodes(call)
    }
    for refusal in find_refusals(parsed, parsed.root, in_measure=not in_define):
        place = refusal.place
        shown = place.text[place.start : place.end]
        name = shown.lower()
        if name in AGGREGATES or name in NAVIGATIONS:
            continue
        message, hint = refusal.message, refusal.hint
        if any(each in message for each in ("the aggregate", "FILTER", "window")):
            hint = _REPLACEMENTS.get(name, AGGREGATES_HINT)
        if message.startswith(("FILTER is", "IGNORE NULLS is")):
            if (place.start, place.end) in clauses:
                continue
            if message.startswith("FILTER"):
                message = "FILTER follows an aggregate"
                hint = "write sum(b.price) FILTER (WHERE b.price > 3)"
            elif not hint.startswith("remove"):
                message = "IGNORE NULLS follows FIRST, LAST or any_value"
                hint = "write LAST(b.price) IGNORE NULLS"
        problems.add(message, place, hint=hint)
    for name, place in parsed.calls(parsed.root):
        if name in _OTHER_SYSTEMS:
            problems.add(
                f"{name.upper()}() is not a function of Spark", place, hint=_OTHER_SYSTEMS[name]
            )
        if find_user_function(name) is not None and not in_define:
            problems.add(
                f"the cep.udf {name} is not supported in measures",
                place,
                hint="conditions in DEFINE may call it; here, call a function that is registered "
                "with spark.udf",
            )


class _RowTextResolver:
    def __init__(self, calls: RowCalls, scope: RowScope, problems: Problems) -> None:
        self._calls = calls
        self._scope = scope
        self._problems = problems
        self._about: dict[int, int] = {}
        self._named: dict[int, list[int]] = {}
        self._wrong: set[int] = set()

    def run(self) -> ResolvedRowText:
        references: list[Reference] = []
        for column in columns_of(self._calls.parsed.root):
            found = self._column(column)
            if found is not None:
                references.append(found)
        for call in self._calls.calls.values():
            self._resolve_call(call)
        references.sort(key=lambda each: each.start)
        return ResolvedRowText(self._calls, self._scope, references, self._about)

    def _column(self, column: exp.Column) -> Reference | None:
        """The reference of a column; None for the variable of count(b) or CLASSIFIER(b)."""
        call = self._calls.around[id(column)]
        is_argument = call is not None and any(each is column for each in call.arguments)
        parts = name_parts_of(self._calls.parsed, column)
        if call is not None and call.kind == "number":
            return None
        if call is not None and call.kind == "classifier":
            self._variable(call, parts[0].name, parts[0].place)
            return None
        if call is not None and call.name == "count" and is_argument:
            # count(b.*), or count(b) where b is not a column.
            is_star = isinstance(column.this, exp.Star) and len(parts) == 2
            names = self._scope.names
            is_rows = len(parts) == 1 and names.variable(parts[0].name) is not None
            if is_star or (is_rows and not names.matching(parts[0].name)):
                self._variable(call, parts[0].name, parts[0].place)
                self._check_counts_rows(call, parts[0].name)
                return None
        scope = self._scope
        found = scope.names.references(self._calls.parsed, column, scope.universal, self._problems)
        around = [] if call is None else [call, *call.around()]
        if not found:
            self._wrong.update(id(each.node) for each in around)
            return None
        for each in around:
            self._named.setdefault(id(each.node), []).append(found[0].variable)
        return found[0]

    def _variable(self, call: RowCall, name: str, place: Place) -> None:
        """The argument of CLASSIFIER(u) or count(u.*)."""
        number = self._scope.names.variable(name)
        if number is None:
            self._problems.add(
                f"the pattern has no variable {name}",
                place,
                hint=self._scope.variables.hint_for(name),
            )
            number = self._scope.universal
        for each in [call, *call.around()]:
            self._named.setdefault(id(each.node), []).append(number)

    def _counts_all(self, call: RowCall) -> bool:
        """count(*), whose rows are all rows whatever FILTER names"""
        return not call.arguments or isinstance(call.arguments[0], exp.Star)

    def _check_counts_rows(self, call: RowCall, name: str) -> None:
        """Refuses count(DISTINCT b.*) and count(b.*, x): rows have no value to compare."""
        if call.distinct or len(call.arguments) > 1:
            parsed = self._calls.parsed
            self._problems.add(
                f"{parsed.text_of(call.node)} counts rows of {name}, not values",
                parsed.place(call.node),
                hint=f"write count({name}.*) for the rows, or name columns: "
                f"count(DISTINCT {name}.price)",
            )
            self._wrong.update(id(each.node) for each in [call, *call.around()])

    def _is_checked(self, call: RowCall) -> bool:
        """Whether the rows of the call are to be checked: not if a problem is already reported for
        it, or will be for a call inside it."""
        kinds = {each.kind for each in self._calls.below(call.node) if each is not call}
        if call.kind == "classifier" or not call.operands or id(call.node) in self._wrong:
            return False
        return call.kind == "aggregate" or not kinds & {"logical", "aggregate", "number"}

    def _resolve_call(self, call: RowCall) -> None:
        """Finds the variable or subset of a call, on which all names inside it must agree."""
        if call.kind == "number":
            return
        named = set(self._named.get(id(call.node), ()))
        named |= {
            self._scope.universal
            for each in self._calls.below(call.node)
            if each.kind == "classifier" and not each.arguments
        }
        hint = (
            "use columns of one variable inside a navigation or an aggregate; a bare column refers "
            "to all rows, so write the variable in front of each column"
        )
        if call.name == "count" and call.filter is not None and self._counts_all(call):
            named.add(self._scope.universal)
            hint = "count(*) counts all rows; write count(b.*) FILTER (WHERE b.price > 3)"
        parsed = self._calls.parsed
        self._about[id(call.node)] = min(named, default=self._scope.universal)
        if not self._is_checked(call):
            return
        if len(named) > 1:
            names = " and ".join(self._scope.describe_rows(each) for each in sorted(named))
            self._problems.add(
                f"{parsed.text_of(call.node)} mixes {names}",
                parsed.place(call.node),
                hint=hint,
            )
        elif not named and call.kind in {"physical", "logical"}:
            self._problems.add(
                f"{parsed.text_of(call.node)} does not refer to a column",
                parsed.place(call.node),
                hint="navigation reads a column of another row: PREV(price)",
            )
