"""A text of DEFINE or MEASURES with its names resolved: which row each name is read at.

    x in DEFINE of a        the row under test; so are a.x, and u.x of a subset with a in it
    b.x elsewhere           the last row of b so far
    FIRST(b.x, 1)           the second row of b
    PREV(LAST(b.x, 1), 2)   two rows before the last but one of b
    x, FIRST(x) in MEASURES of all rows of the match

A navigation or an aggregate is about one variable, one subset, or all rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from spark_cep.expressions.aggregates import AGGREGATES, AGGREGATES_HINT, NAVIGATIONS
from spark_cep.expressions.names import (
    PatternNames,
    Reference,
    columns_of,
    name_parts_of,
    quote_name,
)
from spark_cep.expressions.refusals import find_refusals
from spark_cep.expressions.syntax import ParsedExpression, SyntaxProblem
from spark_cep.expressions.user_functions import find_user_function
from spark_cep.rows.calls import SEMANTICS_HINT, RowCall, RowCalls, parse_calls
from spark_cep.udfs.program import Variable

if TYPE_CHECKING:
    from spark_cep.expressions.problems import Place, Problems
    from spark_cep.expressions.row_variables import RowVariables
    from spark_cep.expressions.schema import ColumnInfo, Typer
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.row_program import VariableSet


# --------------------------------------------------------------------------------------------------
# What Spark says about the types of texts over one input row, asked for once.
# --------------------------------------------------------------------------------------------------


class RowTypes:
    def __init__(self, typer: Typer, columns: Iterable[ColumnInfo]) -> None:
        self._typer = typer
        self._known: dict[str, Type | str] = {quote_name(each.name): each.type for each in columns}

    def learn(self, texts: Iterable[str]) -> None:
        """Asks for many at once, which costs as much as asking for one."""
        asked = list(dict.fromkeys(text for text in texts if text not in self._known))
        if asked:
            self._known.update(zip(asked, self._typer.of_row(asked), strict=True))

    def of(self, text: str) -> Type | str:
        """The type, or a sentence about what is wrong with the text."""
        self.learn([text])
        return self._known[text]


Anchor = Literal["current", "first", "last", "each"]


@dataclass(frozen=True)
class RowPosition:
    """Which row is read, as the engine's Read says it. "each": the rows that an aggregate goes
    through."""

    anchor: Anchor = "current"
    variables: VariableSet = None
    offset: int = 0
    shift: int = 0
    final: bool = False


CURRENT_ROW = RowPosition()
_FOLLOWS_SEMANTICS = re.compile(r"\b(RUNNING|FINAL)\s+$", re.I)
# What to write instead of what other systems, and windows, have.
_INSTEAD = {
    "lag": "write PREV(price), or PREV(price, 2)",
    "lead": "write NEXT(price), or NEXT(price, 2)",
    "row_number": "count(*) is the number of the row in its match so far",
    "approx_count_distinct": "write count(DISTINCT b.price)",
    "nth_value": "FIRST(b.price, 2) is the third row of b, LAST(b.price, 1) the last but one",
}
_ELSEWHERE = {
    "match_rowtime": "the time of a match is that of its last row: LAST(ts)",
    "match_proctime": "write current_timestamp()",
    "match_sequence_number": "count(*) is the number of the row in its match",
}


@dataclass(frozen=True)
class RowScope:
    """What names mean. `own`: the variable that is being defined; None in measures. `at_end`: the
    answer has one row a match, so that everything is looked at from the match's last row."""

    names: PatternNames
    variables: RowVariables
    own: int | None = None
    at_end: bool = False

    @property
    def universal(self) -> int:
        """The number of the universal variable, which is all rows of the match."""
        return len(self.names.variables)

    def rows(self, number: int) -> VariableSet:
        return None if number == self.universal else self.variables.all()[number][1]

    def called(self, number: int) -> str:
        return "all rows" if number == self.universal else self.names.variables[number].name

    def row(self, number: int, around: Sequence[RowCall]) -> RowPosition:
        """Where a name of a variable is read that stands inside these calls."""
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
        """Whether the row under test is the last of these rows."""
        return self.own is not None and (rows is None or self.own in rows)

    def is_final(self, call: RowCall | None) -> bool:
        return self.at_end or (call is not None and bool(call.final))


def row_pattern_names(variables: RowVariables, names: PatternNames) -> PatternNames:
    """The input's columns, with the variables and subsets in front of them."""
    known = [Variable(name) for name, _ in variables.all()]
    return PatternNames(known, names.columns, case_sensitive=names.case_sensitive)


class ResolvedRowText:
    """`references`: every column that is named. `about`: by node id of a call, the number of what
    it is about."""

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
        """Which row's variable a CLASSIFIER is."""
        return self.scope.row(self.about[id(call.node)], call.around())

    def rows_of(self, call: RowCall) -> VariableSet:
        """What an aggregate goes through."""
        return self.scope.rows(self.about[id(call.node)])

    def _around(self, node: exp.Expr) -> list[RowCall]:
        call = self.calls.around[id(node)]
        return [] if call is None else [call, *call.around()]


def resolve_text(text: str, scope: RowScope, problems: Problems) -> ResolvedRowText | None:
    """The text with its names resolved; what is wrong with it becomes problems."""
    before = len(problems.found)
    in_define = scope.own is not None
    try:
        calls = parse_calls(text, problems, in_define=in_define)
    except SyntaxProblem as problem:
        hint = (
            "conditions are written as in WHERE: price < PREV(price)"
            if in_define
            else "measures are written as in SELECT: LAST(b.price) - FIRST(b.price)"
        )
        if _FOLLOWS_SEMANTICS.search(problem.place.text[: problem.place.start]):
            hint = SEMANTICS_HINT
        if problem.place.text[problem.place.start : problem.place.end] == ":":
            hint = "paths into variants are written variant_get(payload, '$.a.b', 'int')"
        problems.add(f"not a Spark SQL expression: {problem.message}", problem.place, hint=hint)
        return None
    _check_functions(calls.parsed, problems, in_define=in_define)
    found = _RowTextResolver(calls, scope, problems).run()
    return found if len(problems.found) == before else None


def _check_functions(parsed: ParsedExpression, problems: Problems, *, in_define: bool) -> None:
    for refusal in find_refusals(parsed, parsed.root, in_measure=not in_define):
        name = refusal.place.text[refusal.place.start : refusal.place.end].lower()
        if name in AGGREGATES or name in NAVIGATIONS:
            continue
        hint = refusal.hint
        if any(each in refusal.message for each in ("aggregate that", "FILTER", "window")):
            hint = _INSTEAD.get(name, AGGREGATES_HINT)
        if re.search(
            r"\bFILTER\s*\(", refusal.place.text[refusal.place.start : refusal.place.end], re.I
        ):
            hint = "put the condition inside: sum(CASE WHEN b.flag THEN b.price END)"
        problems.add(refusal.message, refusal.place, hint=hint)
    for part in parsed.root.find_all(exp.WithinGroup):
        problems.add(
            "WITHIN GROUP has no place here",
            parsed.place(part),
            hint="an aggregate goes through the rows in their order: listagg(b.kind, ',')",
        )
    for name, place in parsed.calls(parsed.root):
        if name in _ELSEWHERE:
            problems.add(f"{name.upper()}() is another system's", place, hint=_ELSEWHERE[name])
        if find_user_function(name) is not None:
            problems.add(
                f"{name} is a cep.udf, and row patterns have no place for it",
                place,
                hint="compute it as a column of the input before matching",
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
            self._settle(call)
        references.sort(key=lambda each: each.start)
        return ResolvedRowText(self._calls, self._scope, references, self._about)

    def _column(self, column: exp.Column) -> Reference | None:
        """What is no variable in the place of an argument is a column."""
        call = self._calls.around[id(column)]
        is_argument = call is not None and any(each is column for each in call.arguments)
        parts = name_parts_of(self._calls.parsed, column)
        if call is not None and call.kind == "number":
            return None
        if call is not None and call.kind == "classifier":
            self._variable(call, parts[0].name, parts[0].place)
            return None
        if call is not None and call.name == "count" and is_argument:
            # count(b.*), or count(b) where b is no column.
            is_star = isinstance(column.this, exp.Star) and len(parts) == 2
            names = self._scope.names
            is_rows = len(parts) == 1 and names.variable(parts[0].name) is not None
            if is_star or (is_rows and not names.matching(parts[0].name)):
                self._variable(call, parts[0].name, parts[0].place)
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
        """CLASSIFIER(u), count(u.*)"""
        number = self._scope.names.variable(name)
        if number is None:
            self._problems.add(
                f"the pattern has no variable {name}",
                place,
                hint=self._scope.variables.meant(name),
            )
            number = self._scope.universal
        for each in [call, *call.around()]:
            self._named.setdefault(id(each.node), []).append(number)

    def _says_what_it_is_about(self, call: RowCall) -> bool:
        """Whether a problem with it has not been told of this call, or of one inside it."""
        kinds = {each.kind for each in self._calls.below(call.node) if each is not call}
        if call.kind == "classifier" or not call.arguments or id(call.node) in self._wrong:
            return False
        return call.kind == "aggregate" or not kinds & {"logical", "aggregate", "number"}

    def _settle(self, call: RowCall) -> None:
        """What the call is about: all names inside it must agree."""
        if call.kind == "number":
            return
        named = set(self._named.get(id(call.node), ()))
        named |= {
            self._scope.universal
            for each in self._calls.below(call.node)
            if each.kind == "classifier" and not each.arguments
        }
        parsed = self._calls.parsed
        self._about[id(call.node)] = min(named, default=self._scope.universal)
        if not self._says_what_it_is_about(call):
            return
        if len(named) > 1:
            names = " and ".join(self._scope.called(each) for each in sorted(named))
            self._problems.add(
                f"{parsed.text_of(call.node)} is about {names}",
                parsed.place(call.node),
                hint="inside a navigation or an aggregate all columns are of one variable; a bare "
                "column is of all rows, so write the variable in front of each",
            )
        elif not named and call.kind in {"physical", "logical"}:
            self._problems.add(
                f"{parsed.text_of(call.node)} names no column",
                parsed.place(call.node),
                hint="navigation reads a column of another row: PREV(price)",
            )
