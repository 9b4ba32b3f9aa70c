"""From a row pattern and a schema to what Spark and the engine are to do.

    orders, window -> DEFINE -> MEASURES -> AFTER MATCH SKIP

Everything that can be wrong is found on the way and reported at once. Nothing here reads data or
imports pyspark; Spark is asked for types through the typer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_cep.compiling.forbidden import column_refusal
from spark_cep.compiling.names import Names
from spark_cep.compiling.operands import Hoisted, Inexact
from spark_cep.compiling.orders import row_orders_of
from spark_cep.compiling.partitions import partition_of
from spark_cep.compiling.parts import TypeMismatch
from spark_cep.compiling.problems import Place, Problems
from spark_cep.compiling.rows.compiled import CompiledRows
from spark_cep.compiling.rows.conditions import Condition
from spark_cep.compiling.rows.conjunct import RowConjunct, hoistable
from spark_cep.compiling.rows.grammar import exclusions_of
from spark_cep.compiling.rows.guarding import guarding_of
from spark_cep.compiling.rows.labelled import Around
from spark_cep.compiling.rows.leaves import Shipping, shipped
from spark_cep.compiling.rows.measures import Wanted, compile_row_measures
from spark_cep.compiling.rows.neighbours import window_of_rows
from spark_cep.compiling.rows.readings import Readings
from spark_cep.compiling.rows.skip import skip_of
from spark_cep.compiling.rows.texts import CURRENT, Row, Scope, names_of, read
from spark_cep.compiling.rows.types import Types
from spark_cep.compiling.rows.variables import numbered
from spark_cep.compiling.spans import SyntaxProblem
from spark_cep.compiling.translation import Session
from spark_cep.compiling.types import is_fixed_zone, name_of
from spark_cep.compiling.windows import window_of
from spark_cep.errors import PatternError
from spark_cep.udfs.expressions import BOOL, Constant, Expression
from spark_cep.udfs.rows.program import Read, Rows, RowVariable

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_cep.compiling.compiled import ColumnInfo, OrderBy, Shipment, Typer
    from spark_cep.row_patterns import RowPattern
    from spark_cep.udfs.program import Window


@dataclass(frozen=True)
class RowQuery:
    """What the user asks for."""

    pattern: RowPattern
    order_by: Any = None
    partition_by: Any = None
    measures: Sequence[tuple[str, str]] = ()
    rows: Rows = "one"
    after_match: str | None = None


@dataclass(frozen=True)
class RowInput:
    """What it is asked of. `case_sensitive`, `ansi`, `time_zone`: as the session has it.
    `in_batch`: all rows are there, so Spark can look at neighbours too."""

    columns: Sequence[ColumnInfo]
    typer: Typer
    shipment: Shipment
    time_zone: str
    case_sensitive: bool = False
    ansi: bool = True
    in_batch: bool = True


@dataclass(frozen=True)
class _Defined:
    """A condition as it was understood: an expression with its rows by number, or the user's own
    Column; neither: any row."""

    expression: Expression | None
    rows: Sequence[Row] = (CURRENT,)
    text: str | None = None
    column: Column | None = None

    @property
    def is_of_row(self) -> bool:
        """Whether Spark computes it whole, on single rows."""
        return self.column is not None or isinstance(self.expression, Hoisted)


@dataclass
class _Work:
    query: RowQuery
    given: RowInput
    names: Names
    types: Types
    problems: Problems = field(default_factory=Problems)


def compile_rows(query: RowQuery, given: RowInput) -> CompiledRows:
    """Raises one PatternError with all problems; `details["problems"]` lists them."""
    plain = Names((), given.columns, case_sensitive=given.case_sensitive)
    names = names_of(query.pattern.variables, plain)
    work = _Work(query, given, names, Types(given.typer, given.columns))
    problems, variables = work.problems, query.pattern.variables
    timed = query.pattern.window is not None
    orders = row_orders_of(query.order_by, plain, given.typer, problems, timed=timed)
    partition = partition_of(query.partition_by, plain, problems)
    window = _window(work, orders)
    conjuncts = _conjuncts(work)
    guarding = guarding_of(conjuncts, work.types)
    over = window_of_rows(partition, orders) if given.in_batch else None
    around = Around(work.types, guarding, over)
    defined = _defined(work, conjuncts, around)
    readings = Readings(given.shipment, work.types, guarding)
    wanted = Wanted(query.measures, query.rows == "all with unmatched")
    scope = Scope(names, variables, at_end=query.rows == "one")
    measures = compile_row_measures(wanted, scope, readings, given.typer, problems)
    skip = skip_of(query.after_match, variables, problems)
    _check_exclusions(work)
    problems.raise_if_any()
    return CompiledRows(
        variables=tuple(
            RowVariable(name, _shipped(each, work))
            for name, each in zip(variables.names, defined, strict=True)
        ),
        pattern=numbered(query.pattern.root, variables),
        skip=skip,
        rows=query.rows,
        window=window,
        partition=partition,
        orders=orders,
        readings=tuple(readings.found),
        measures=measures,
        conditions=tuple((each.text, each.is_of_row) for each in defined),
    )


def _window(work: _Work, orders: Sequence[OrderBy]) -> Window | None:
    within = work.query.pattern.window
    if within is None or not orders:
        return None
    try:
        return window_of(within, orders[0].type)
    except PatternError as error:
        work.problems.take(error, Place.whole(str(within.duration)))
        return None


def _check_exclusions(work: _Work) -> None:
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


def _conjuncts(work: _Work) -> dict[int, RowConjunct]:
    """The conditions that are texts, by the number of their variable."""
    variables = work.query.pattern.variables
    found = {}
    for name, condition in work.query.pattern.define:
        number = variables.number(name)
        assert number is not None, "row_pattern() has checked the names"
        if isinstance(condition, str):
            text = read(condition, Scope(work.names, variables, number), work.problems)
            if text is not None:
                found[number] = RowConjunct(text)
    _learn(list(found.values()), work)
    return found


def _defined(work: _Work, conjuncts: Mapping[int, RowConjunct], around: Around) -> list[_Defined]:
    """For each variable of the pattern."""
    variables = work.query.pattern.variables
    found = [_Defined(None)] * len(variables.names)
    for name, condition in work.query.pattern.define:
        number = variables.number(name)
        assert number is not None, "row_pattern() has checked the names"
        if not isinstance(condition, str):
            found[number] = _of_column(name, condition, work)
        elif number in conjuncts:
            found[number] = _translated(number, conjuncts[number], work, around)
    return found


def _learn(conjuncts: Sequence[RowConjunct], work: _Work) -> None:
    """Asks for most types at once. A part that cannot be cut is a problem when it is met again."""
    asked: list[str] = []
    for conjunct in conjuncts:
        try:
            asked += hoistable(conjunct)
        except SyntaxProblem:
            continue
    work.types.learn(asked)


def _translated(number: int, conjunct: RowConjunct, work: _Work, around: Around) -> _Defined:
    given, name = work.given, work.query.pattern.variables.names[number]
    session = Session(given.typer, given.ansi, is_fixed_zone(given.time_zone))
    expression: Expression | None = None
    try:
        expression = Condition(conjunct, session, around).condition()
    except TypeMismatch as mismatch:
        place = conjunct.parsed.place(mismatch.node)
        work.problems.add(f"DEFINE {name}: {mismatch.message}", place, hint=mismatch.hint)
    except SyntaxProblem as problem:
        work.problems.add(f"DEFINE {name}: {problem.message}", problem.place)
    except Inexact as inexact:
        reason = inexact.reason.replace("several variables", "several rows")
        work.problems.add(
            f"DEFINE {name} cannot be tested: the engine does not compute {reason}",
            conjunct.place,
            hint=_way_out(reason),
        )
    return _Defined(expression, conjunct.rows, conjunct.text)


def _way_out(reason: str) -> str:
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


def _of_column(name: str, column: Column, work: _Work) -> _Defined:
    """A condition that was given as a Column, which concerns the row under test."""
    printed, problems = str(column), work.problems
    refusal = column_refusal(column)
    if refusal is not None:
        problems.add(refusal.message, refusal.place, hint=refusal.hint)
        return _Defined(None)
    (type_,) = work.given.typer.of_row([column])
    if isinstance(type_, str):
        problems.add(f"DEFINE {name}: {type_}", Place.whole(printed))
    elif type_ != BOOL:
        problems.add(
            f"DEFINE {name}: a condition must be TRUE or FALSE, but this is {name_of(type_)}",
            Place.whole(printed),
            hint="compare it with something",
        )
    return _Defined(None, text=printed, column=column)


def _shipped(defined: _Defined, work: _Work) -> Expression | None:
    if defined.column is not None:
        return Read("current", work.given.shipment.column(defined.column), BOOL)
    if defined.expression is None:
        return None
    names = work.query.pattern.variables.names
    found = shipped(defined.expression, Shipping(work.given.shipment, defined.rows, names))
    return None if found == Constant(True, BOOL) else found
