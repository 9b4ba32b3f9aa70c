"""From a row pattern and a schema to what Spark and the engine are to do.

    orders, window -> DEFINE -> MEASURES -> AFTER MATCH SKIP

Everything that can be wrong is found on the way and reported at once. Nothing here reads data or
imports pyspark; Spark is asked for types through the typer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_cep.errors import PatternError
from spark_cep.expressions.conditions import TypeMismatch
from spark_cep.expressions.names import PatternNames
from spark_cep.expressions.operands import InexactError, RowOperand
from spark_cep.expressions.orders import partition_of, row_orders_of
from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.refusals import column_refusal
from spark_cep.expressions.row_grammar import exclusions_of
from spark_cep.expressions.row_variables import number_pattern, skip_of
from spark_cep.expressions.syntax import SyntaxProblem
from spark_cep.expressions.translation import CompilerSession
from spark_cep.expressions.types import is_fixed_zone, name_of
from spark_cep.expressions.windows import window_of
from spark_cep.rows.compiled import CompiledRowPattern
from spark_cep.rows.conditions import ConditionTranslation
from spark_cep.rows.conjuncts import RowConjunct, guards_by_variable, hoistable_texts, window_clause
from spark_cep.rows.leaves import ConditionContext, LeafContext, ship_row_expression
from spark_cep.rows.measures import MeasureRequest, RowReadings, compile_row_measures
from spark_cep.rows.texts import (
    CURRENT_ROW,
    RowPosition,
    RowScope,
    RowTypes,
    resolve_text,
    row_pattern_names,
)
from spark_cep.udfs.expressions import BOOL, Constant, Expression
from spark_cep.udfs.row_program import RowRead, RowsMode, RowVariable

if TYPE_CHECKING:
    from spark_cep.expressions.schema import (
        ColumnExpression,
        ColumnInfo,
        ColumnRequests,
        OrderBy,
        Typer,
    )
    from spark_cep.row_patterns import RowPattern
    from spark_cep.udfs.program import Window


@dataclass(frozen=True)
class RowPatternRequest:
    """What the user asks for."""

    pattern: RowPattern
    order_by: Any = None
    partition_by: Any = None
    measures: Sequence[tuple[str, str]] = ()
    rows: RowsMode = "one"
    after_match: str | None = None


@dataclass(frozen=True)
class CompilerInput:
    """What it is asked of. `case_sensitive`, `ansi`, `time_zone`: as the session has it.
    `in_batch`: all rows are there, so Spark can look at neighbours too."""

    columns: Sequence[ColumnInfo]
    typer: Typer
    shipment: ColumnRequests
    time_zone: str
    case_sensitive: bool = False
    ansi: bool = True
    in_batch: bool = True


@dataclass(frozen=True)
class _DefineCondition:
    """A condition as it was understood: an expression with its rows by number, or the user's own
    Column; neither: any row."""

    expression: Expression | None
    rows: Sequence[RowPosition] = (CURRENT_ROW,)
    text: str | None = None
    column: ColumnExpression | None = None

    @property
    def is_of_row(self) -> bool:
        """Whether Spark computes it whole, on single rows."""
        return self.column is not None or isinstance(self.expression, RowOperand)


@dataclass
class _RowCompilation:
    query: RowPatternRequest
    given: CompilerInput
    names: PatternNames
    types: RowTypes
    problems: Problems = field(default_factory=Problems)


def compile_row_pattern(query: RowPatternRequest, given: CompilerInput) -> CompiledRowPattern:
    """Raises one PatternError with all problems; `details["problems"]` lists them."""
    plain = PatternNames((), given.columns, case_sensitive=given.case_sensitive)
    names = row_pattern_names(query.pattern.variables, plain)
    work = _RowCompilation(query, given, names, RowTypes(given.typer, given.columns))
    problems, variables = work.problems, query.pattern.variables
    timed = query.pattern.window is not None
    orders = row_orders_of(query.order_by, plain, given.typer, problems, timed=timed)
    partition = partition_of(query.partition_by, plain, problems)
    window = _window(work, orders)
    conjuncts = _parse_conditions(work)
    guarding = guards_by_variable(conjuncts, work.types)
    over = window_clause(partition, orders) if given.in_batch else None
    around = ConditionContext(work.types, guarding, over)
    defined = _compile_conditions(work, conjuncts, around)
    readings = RowReadings(given.shipment, work.types, guarding)
    wanted = MeasureRequest(query.measures, query.rows == "all with unmatched")
    scope = RowScope(names, variables, at_end=query.rows == "one")
    measures = compile_row_measures(wanted, scope, readings, given.typer, problems)
    skip = skip_of(query.after_match, variables, problems)
    _check_exclusions(work)
    problems.raise_if_any()
    return CompiledRowPattern(
        variables=tuple(
            RowVariable(name, _ship_condition(each, work))
            for name, each in zip(variables.names, defined, strict=True)
        ),
        pattern=number_pattern(query.pattern.root, variables),
        skip=skip,
        rows=query.rows,
        window=window,
        partition=partition,
        orders=orders,
        readings=tuple(readings.found),
        measures=measures,
        conditions=tuple((each.text, each.is_of_row) for each in defined),
    )


def _window(work: _RowCompilation, orders: Sequence[OrderBy]) -> Window | None:
    within = work.query.pattern.window
    if within is None or not orders:
        return None
    try:
        return window_of(within, orders[0].type)
    except PatternError as error:
        work.problems.take(error, Place.whole(str(within.duration)))
        return None


def _check_exclusions(work: _RowCompilation) -> None:
    if work.query.rows != "all with unmatched":
        return
    pattern = work.query.pattern
    for node in exclusions_of(pattern.root)[:1]:
        work.problems.add(
            "an exclusion has no meaning where unmatched rows are shown",
            Place(pattern.text, node.start, node.end),
            hint='drop {- -}, or ask for rows="all" (ALL ROWS PER MATCH without WITH UNMATCHED '
            "ROWS)",
        )


# ---- DEFINE ------------------------------------------------------------------------------------


def _parse_conditions(work: _RowCompilation) -> dict[int, RowConjunct]:
    """The conditions that are texts, by the number of their variable."""
    variables = work.query.pattern.variables
    found = {}
    for name, condition in work.query.pattern.define:
        number = variables.number(name)
        assert number is not None, "row_pattern() has checked the names"
        if isinstance(condition, str):
            text = resolve_text(condition, RowScope(work.names, variables, number), work.problems)
            if text is not None:
                found[number] = RowConjunct(text)
    _learn_types(list(found.values()), work)
    return found


def _compile_conditions(
    work: _RowCompilation, conjuncts: Mapping[int, RowConjunct], around: ConditionContext
) -> list[_DefineCondition]:
    """For each variable of the pattern."""
    variables = work.query.pattern.variables
    found = [_DefineCondition(None)] * len(variables.names)
    for name, condition in work.query.pattern.define:
        number = variables.number(name)
        assert number is not None, "row_pattern() has checked the names"
        if not isinstance(condition, str):
            found[number] = _column_condition(name, condition, work)
        elif number in conjuncts:
            found[number] = _translate_condition(number, conjuncts[number], work, around)
    return found


def _learn_types(conjuncts: Sequence[RowConjunct], work: _RowCompilation) -> None:
    """Asks for most types at once. A part that cannot be cut is a problem when it is met again."""
    asked: list[str] = []
    for conjunct in conjuncts:
        try:
            asked += hoistable_texts(conjunct)
        except SyntaxProblem:
            continue
    work.types.learn(asked)


def _translate_condition(
    number: int, conjunct: RowConjunct, work: _RowCompilation, around: ConditionContext
) -> _DefineCondition:
    given, name = work.given, work.query.pattern.variables.names[number]
    session = CompilerSession(given.typer, given.ansi, is_fixed_zone(given.time_zone))
    expression: Expression | None = None
    try:
        expression = ConditionTranslation(conjunct, session, around).condition()
    except TypeMismatch as mismatch:
        place = conjunct.parsed.place(mismatch.node)
        work.problems.add(f"DEFINE {name}: {mismatch.message}", place, hint=mismatch.hint)
    except SyntaxProblem as problem:
        work.problems.add(f"DEFINE {name}: {problem.message}", problem.place)
    except InexactError as inexact:
        reason = inexact.reason.replace("several variables", "several rows")
        work.problems.add(
            f"DEFINE {name} cannot be tested: the engine does not compute {reason}",
            conjunct.place,
            hint=_hint_for(reason),
        )
    return _DefineCondition(expression, conjunct.rows, conjunct.text)


def _hint_for(reason: str) -> str:
    """What to write instead of what the engine does not compute."""
    if "DECIMAL" in reason:
        return "multiply instead of dividing (d > a.d * 1.1), or CAST(d AS DOUBLE)"
    if "collated" in reason:
        return "compare parts of them, or texts without a collation: lower(CAST(name AS STRING))"
    if " beside " in reason:
        return "cast one of them to the type of the other"
    return (
        "between rows of the match there are = < > + - * / % BETWEEN IN CASE abs least greatest "
        "coalesce datediff timestampdiff and the aggregates; every function may stand around one "
        "row's columns, upper(a.kind), and around those of the row with its PREV and NEXT"
    )


def _column_condition(
    name: str, column: ColumnExpression, work: _RowCompilation
) -> _DefineCondition:
    """A condition that was given as a Column, which concerns the row under test."""
    printed, problems = str(column), work.problems
    refusal = column_refusal(column)
    if refusal is not None:
        problems.add(refusal.message, refusal.place, hint=refusal.hint)
        return _DefineCondition(None)
    (type_,) = work.given.typer.of_row([column])
    if isinstance(type_, str):
        problems.add(f"DEFINE {name}: {type_}", Place.whole(printed))
    elif type_ != BOOL:
        problems.add(
            f"DEFINE {name}: a condition must be TRUE or FALSE, but this is {name_of(type_)}",
            Place.whole(printed),
            hint="compare it with something",
        )
    return _DefineCondition(None, text=printed, column=column)


def _ship_condition(defined: _DefineCondition, work: _RowCompilation) -> Expression | None:
    if defined.column is not None:
        return RowRead("current", work.given.shipment.column(defined.column), BOOL)
    if defined.expression is None:
        return None
    names = work.query.pattern.variables.names
    found = ship_row_expression(
        defined.expression, LeafContext(work.given.shipment, defined.rows, names)
    )
    return None if found == Constant(True, BOOL) else found
