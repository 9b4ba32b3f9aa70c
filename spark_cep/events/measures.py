"""Measures of event patterns: from the user's SQL to Spark SQL over the columns of the answer.

The answer has a struct for each positive variable, an array of structs if it binds a list. `a.x` is
a field, or the array of a list's values; aggregates over a list become folds of arrays. Bare names
are partition columns, `match_start` and `match_end`. Names and aggregates are replaced by position;
the rest of the text stays the user's, so every function with one value for a match is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.aggregates import count_sql, fold_sql
from spark_cep.expressions.conditions import navigation_argument, navigation_of
from spark_cep.expressions.names import PatternNames, columns_of, name_parts_of, quote_name
from spark_cep.expressions.operands import InexactError
from spark_cep.expressions.problems import Place, Problems, list_names
from spark_cep.expressions.refusals import find_refusals
from spark_cep.expressions.remote_calls import (
    PlaceholderTyper,
    over_lookup_columns,
    separate_remote_calls,
)
from spark_cep.expressions.syntax import Edit, ParsedExpression, SyntaxProblem, parse_expression
from spark_cep.expressions.types import name_of
from spark_cep.udfs.expressions import Type

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.expressions.schema import ColumnInfo, Typer
    from spark_cep.udfs.expressions import CellReading
    from spark_cep.udfs.program import Variable


# The lambda argument for an element of a list.
_ELEMENT = "__cep_e"
_BOUNDS = ("match_start", "match_end")


@dataclass(frozen=True)
class Measure:
    """`text`: Spark SQL over the columns of the answer."""

    name: str
    text: str


@dataclass(frozen=True)
class CompiledMeasures:
    """`reads`: for each variable id the input columns that are read by measures and by conditions
    on finished matches. `sought`: the remote lookups of the measures, with keys over the same
    columns as the measures."""

    measures: tuple[Measure, ...]
    reads: Mapping[int, frozenset[str]]
    sought: tuple[LookupRequest, ...] = ()


def compile_measures(  # noqa: PLR0913
    measures: Mapping[str, str] | Iterable[tuple[str, str]],
    compiled: CompiledPattern,
    columns: Sequence[ColumnInfo],
    *,
    typer: Typer,
    case_sensitive: bool = False,
    column_of: Callable[[str], str] = quote_name,
) -> CompiledMeasures:
    """Raises one PatternError with all problems. `column_of`: the SQL of a column of the answer: a
    variable's struct, `match_start`, `match_end` or a partition column."""
    given = list(measures.items() if isinstance(measures, Mapping) else measures)
    names = PatternNames(compiled.variables, columns, case_sensitive=case_sensitive)
    work = _MeasureReader(names, compiled, typer, Problems(subject="the measures have"))
    _check_names(given, compiled.partition, work.problems)
    read = [(name, text, work.read(text)) for name, text in given]
    made = [
        (Measure(name, body.text(column_of)), Place.whole(text), body.text(quote_name))
        for name, text, body in read
        if body is not None
    ]
    if not work.problems.found:
        _check_types(made, work)
    work.problems.raise_if_any()
    return CompiledMeasures(tuple(measure for measure, _, _ in made), work.reads())


def compile_remote_measures(  # noqa: PLR0913
    measures: Sequence[tuple[str, str]],
    compiled: CompiledPattern,
    columns: Sequence[ColumnInfo],
    *,
    typer: Typer,
    case_sensitive: bool,
    types: Mapping[str, str],
) -> CompiledMeasures:
    """compile_measures for measures with calls of remote(): `c.amount - remote('limits', c.org)` is
    compiled to `c`.`amount` - `__cep_a0`, with a lookup of `__cep_a0` for the key `c`.`org` on the
    matches, where keys are few and may combine several variables. `types`: the value of each source
    as DDL. Raises one PatternError: with the problems of the calls, else with all others."""
    problems = Problems(subject="the measures have")
    separated = separate_remote_calls(measures, types, problems)
    problems.raise_if_any()
    found = compile_measures(
        separated.texts,
        compiled,
        columns,
        typer=PlaceholderTyper(typer, [types[remote] for remote, _ in separated.calls]),
        case_sensitive=case_sensitive,
    )
    texts = {each.name: each.text for each in found.measures}
    shown = tuple(Measure(name, over_lookup_columns(texts[name])) for name, _ in measures)
    return CompiledMeasures(shown, found.reads, separated.sought(texts))


def _check_names(
    given: Sequence[tuple[str, str]], partition: Sequence[str], problems: Problems
) -> None:
    taken = {name.casefold(): f"the partition column {name}" for name in partition}
    for name, _ in given:
        other = taken.get(name.casefold())
        if other is not None:
            problems.add(
                f"the measure {name} has the same name as {other}",
                Place.whole(name),
                hint="give it another name; case does not matter",
            )
        taken[name.casefold()] = f"the measure {name}"


def _check_types(made: Sequence[tuple[Measure, Place, str]], work: _MeasureReader) -> None:
    lists = {v.name: v.is_list for v in work.compiled.variables if not v.negated}
    answers = work.typer.of_match([text for _, _, text in made], lists)
    for (measure, place, _), answer in zip(made, answers, strict=True):
        if isinstance(answer, str):
            work.problems.add(f"the measure {measure.name}: {answer}", place)


@dataclass
class _MeasureReader:
    names: PatternNames
    compiled: CompiledPattern
    typer: Typer
    problems: Problems

    def __post_init__(self) -> None:
        self._reads: dict[int, set[str]] = {}
        for text in self.compiled.after:
            parsed = parse_expression(text, self.names.is_name)
            for column in columns_of(parsed.root):
                self._after(parsed, column)

    def reads(self) -> Mapping[int, frozenset[str]]:
        return {variable: frozenset(names) for variable, names in self._reads.items()}

    def read(self, text: str) -> MeasureBody | None:
        """The measure with its names resolved; None, with problems, if it is invalid."""
        try:
            parsed = parse_expression(text, self.names.is_name)
        except SyntaxProblem as problem:
            self.problems.add(
                f"this is not a Spark SQL expression: {problem.message}",
                problem.place,
                hint='write measures as in SELECT: "c.price - a.price"',
            )
            return None
        before = len(self.problems.found)
        for refusal in find_refusals(parsed, parsed.root, in_measure=True):
            self.problems.add(refusal.message, refusal.place, hint=refusal.hint)
        found = [self._resolved(parsed, column) for column in columns_of(parsed.root)]
        body = MeasureBody(parsed, [each for each in found if each is not None])
        try:
            for node in parsed.root.walk():
                how = navigation_of(node)
                if how is not None:
                    self._fold(body, node, how)
        except SyntaxProblem as problem:
            self.problems.add(problem.message, problem.place)
        return body if len(self.problems.found) == before else None

    # ---- names -----------------------------------------------------------------------------------

    def _resolved(self, parsed: ParsedExpression, node: exp.Column) -> MeasureName | None:
        parts = name_parts_of(parsed, node)
        number = self.names.variable(parts[0].name)
        if number is None:
            return self._bare(parsed, node)
        variable = self.names.variables[number]
        place = Place(parsed.text, parts[0].place.start, parts[-1].place.end)
        if variable.negated:
            self.problems.add(
                f"{variable.name} is negated, so it binds no row",
                place,
                hint="use a variable that is not negated",
            )
            return None
        if len(parts) == 1:
            if not isinstance(node.parent, exp.Count):
                everything = {column.name for column in self.names.columns}
                self._reads.setdefault(number, set()).update(everything)
            return MeasureName(node, place.start, place.end, variable.name, variable)
        column = self.names.column(parts[1].name, parts[1].place, self.problems)
        if column is None:
            return None
        self._reads.setdefault(number, set()).add(column.name)
        end = parts[1].place.end
        return MeasureName(node, place.start, end, variable.name, variable, column)

    def _bare(self, parsed: ParsedExpression, node: exp.Column) -> MeasureName | None:
        first = name_parts_of(parsed, node)[0]
        for known in (*self.compiled.partition, *_BOUNDS):
            if known.casefold() == first.name.casefold():
                return MeasureName(node, first.place.start, first.place.end, known)
        variables = [v.name for v in self.names.variables if not v.negated]
        bare = [*self.compiled.partition, *_BOUNDS]
        example = f"{variables[0] if variables else 'a'}.{first.name}"
        self.problems.add(
            f"{first.name} does not refer to a variable",
            first.place,
            hint=f"write {example}; the only names without a variable are {list_names(bare)}",
        )
        return None

    def _after(self, parsed: ParsedExpression, node: exp.Column) -> None:
        parts = name_parts_of(parsed, node)
        number = self.names.variable(parts[0].name)
        if number is not None and len(parts) > 1:
            if (number, parts[1].name) in self.compiled.hidden:
                self._reads.setdefault(number, set()).add(parts[1].name)
                return
            column = self.names.column(parts[1].name, parts[1].place, self.problems)
            if column is not None:
                self._reads.setdefault(number, set()).add(column.name)

    # ---- folds -----------------------------------------------------------------------------------

    def _fold(self, body: MeasureBody, node: exp.Expr, how: CellReading) -> None:
        text, place = body.parsed.text_of(node), body.parsed.place(node)
        argument = navigation_argument(node)
        if how == "prev":
            self.problems.add(
                f"{text}: prev() is not supported in measures",
                place,
                hint="a measure has the whole list: first(b.price), last(b.price), or b.price, the "
                "array of its values",
            )
            return
        named = [] if argument is None else body.below(argument)
        lists = {each.variable for each in named if each.variable and each.variable.is_list}
        plain = [each.variable for each in named if each.variable and not each.variable.is_list]
        if argument is not None and any(navigation_of(inner) for inner in argument.walk()):
            self.problems.add(
                f"{text}: aggregates cannot be nested",
                place,
                hint="write two measures, or aggregate over columns",
            )
        elif not lists and plain and plain[0] is not None:
            self.problems.add(
                f"{text}: {plain[0].name} binds one row, not a list",
                place,
                hint=f'remove {how}(), or add a quantifier to the variable: "{plain[0].name}+"',
            )
        elif argument is None or len(lists) != 1:
            counts = "; count(b) counts the rows of b" if how == "count" else ""
            self.problems.add(
                f"{text}: {how}() takes one expression over one list",
                place,
                hint=f"write {how}(b.price){counts}",
            )
        elif any(each.variable in lists and each.column is None for each in named):
            self._fold_rows(body, node, how)
        else:
            self._fold_values(body, node, how)

    def _fold_rows(self, body: MeasureBody, node: exp.Expr, how: CellReading) -> None:
        """count(b), first(b) and last(b) take whole rows."""
        if how not in {"count", "first", "last"}:
            self.problems.add(
                f"{body.parsed.text_of(node)}: {how}() takes a column",
                body.parsed.place(node),
                hint=f"write {how}(b.price)",
            )
            return
        body.folds.append(MeasureFold(node, how, None))

    def _fold_values(self, body: MeasureBody, node: exp.Expr, how: CellReading) -> None:
        argument = navigation_argument(node)
        assert argument is not None
        # Types over the columns of one row equal those over the rows of variables.
        (answer,) = self.typer.of_row([body.row_text(argument)])
        if isinstance(answer, str):
            self.problems.add(answer, body.parsed.place(argument))
            return
        try:
            fold_sql(how, "", answer)
        except InexactError as inexact:
            digits = answer.kind == "decimal"
            self.problems.add(
                f"{body.parsed.text_of(node)}: {inexact.reason} cannot be computed exactly"
                if digits
                else f"{body.parsed.text_of(node)}: {how}() does not take {name_of(answer)}",
                body.parsed.place(node),
                hint=f"cast it to fewer digits: {how}(CAST(... AS DECIMAL(18,4)))"
                if digits
                else "use a number",
            )
            return
        body.folds.append(MeasureFold(node, how, answer))


# ---- one measure ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasureName:
    """A name in a measure: characters [start, end) refer to `shown`, a column of the answer, or
    with `column` to a field of it."""

    node: exp.Expr
    start: int
    end: int
    shown: str
    variable: Variable | None = None
    column: ColumnInfo | None = None

    def edit(self, struct: str) -> Edit:
        field = "" if self.column is None else f".{quote_name(self.column.name)}"
        return self.start, self.end, struct + field


@dataclass(frozen=True)
class MeasureFold:
    """An aggregate over a list; `type`: of its argument, None for whole rows."""

    node: exp.Expr
    how: CellReading
    type: Type | None


class MeasureBody:
    """A parsed measure with its resolved names and folds."""

    def __init__(self, parsed: ParsedExpression, names: Sequence[MeasureName]) -> None:
        self.parsed = parsed
        self.names = names
        self.folds: list[MeasureFold] = []

    def below(self, node: exp.Expr) -> list[MeasureName]:
        inside = {id(each) for each in node.walk()}
        return [each for each in self.names if id(each.node) in inside]

    def row_text(self, node: exp.Expr) -> str:
        edits = [
            (each.start, each.end, quote_name(each.column.name))
            for each in self.below(node)
            if each.column is not None
        ]
        return self.parsed.cut(node, edits)

    def text(self, column_of: Callable[[str], str]) -> str:
        folded = [id(each.node) for fold in self.folds for each in self.below(fold.node)]
        edits = [
            each.edit(column_of(each.shown)) for each in self.names if id(each.node) not in folded
        ]
        edits += [
            (*self.parsed.span(fold.node), self._folded(fold, column_of)) for fold in self.folds
        ]
        return self.parsed.cut(self.parsed.root, edits)

    def _folded(self, fold: MeasureFold, column_of: Callable[[str], str]) -> str:
        argument = navigation_argument(fold.node)
        assert argument is not None
        named = self.below(argument)
        the_list = next(each for each in named if each.variable and each.variable.is_list)
        array = column_of(the_list.shown)
        if fold.type is None:
            whole = fold_sql(fold.how, array, Type("other")) if fold.how != "count" else ""
            return whole or count_sql(array)
        if argument is the_list.node and the_list.column is not None:
            return fold_sql(fold.how, f"{array}.{quote_name(the_list.column.name)}", fold.type)
        edits = [
            each.edit(_ELEMENT if each.variable is the_list.variable else column_of(each.shown))
            for each in named
        ]
        values = f"transform({array}, {_ELEMENT} -> {self.parsed.cut(argument, edits)})"
        return fold_sql(fold.how, values, fold.type)
