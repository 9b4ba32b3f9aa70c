"""Compiles a row pattern against a schema.

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
from spark_cep.expressions.shipment import (
    Shipment,
    plain_keys,
    ship_keys,
    ship_orders,
    ship_shown_keys,
)
from spark_cep.expressions.syntax import SyntaxProblem
from spark_cep.expressions.translation import CompilerSession
from spark_cep.expressions.types import is_fixed_zone, name_of
from spark_cep.expressions.windows import window_of
from spark_cep.rows.compiled import CompiledRowPattern, CompiledRowQuery
from spark_cep.rows.conditions import ConditionTranslation
from spark_cep.rows.conjuncts import RowConjunct, guards_by_variable, hoistable_texts, window_clause
from spark_cep.rows.leaves import ConditionContext, LeafContext, ship_row_expression
from spark_cep.rows.measures import MeasureRequest, RowReadings, compile_row_measures
from spark_cep.rows.replacements import replacement_of
from spark_cep.rows.texts import (
    CURRENT_ROW,
    RowPosition,
    RowScope,
    RowTypes,
    resolve_text,
    row_pattern_names,
)
from spark_cep.rows.windows import check_neighbours
from spark_cep.udfs.expressions import BOOL, Constant, Expression
from spark_cep.udfs.program import Limits
from spark_cep.udfs.row_program import RowRead, RowVariable

if TYPE_CHECKING:
    from spark_cep.expressions.schema import (
        ColumnExpression,
        ColumnInfo,
        ColumnRequests,
        OrderBy,
        Typer,
    )
    from spark_cep.expressions.shipment import KeyResolver
    from spark_cep.row_patterns import RowPattern
    from spark_cep.rows.compiled import RowAnswerLayout
    from spark_cep.rows.windows import WindowRequest
    from spark_cep.udfs.program import Window
    from spark_cep.udfs.row_program import RowsMode


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
    """What one compilation is given, and what it knows so far."""

    pattern: RowPattern
    names: PatternNames
    session: CompilerSession
    types: RowTypes
    shipment: ColumnRequests
    problems: Problems = field(default_factory=Problems)

    @property
    def typer(self) -> Typer:
        return self.session.typer


def compile_row_query(  # noqa: PLR0913 - the compiler's inputs are many
    pattern: RowPattern,
    columns: Sequence[ColumnInfo],
    *,
    order_by: Any,
    partition_by: Any,
    typer: Typer,
    time_zone: str,
    measures: Sequence[tuple[str, str]] = (),
    rows: RowsMode = "one",
    after_match: str | None = None,
    canonical_keys: KeyResolver = plain_keys,
    lay_out_answer: RowAnswerLayout | None = None,
    case_sensitive: bool = False,
    ansi: bool = True,
    in_batch: bool = True,
    limits: Limits | None = None,
    window: WindowRequest | None = None,
) -> CompiledRowQuery:
    """The pattern with all columns that rows need for it: those of DEFINE and MEASURES, partition
    keys, order columns, what the answer shows. They are shipped in this order, which the state of
    a stream depends on.

    Raises one PatternError with all problems of the pattern; `details["problems"]` lists them.
    """
    shipment = Shipment([each.name for each in columns], case_sensitive=case_sensitive)
    compiled = compile_row_pattern(
        pattern,
        columns,
        order_by=order_by,
        partition_by=partition_by,
        typer=typer,
        shipment=shipment,
        time_zone=time_zone,
        measures=measures,
        rows=rows,
        after_match=after_match,
        case_sensitive=case_sensitive,
        ansi=ansi,
        in_batch=in_batch,
        window=window,
    )
    keys = tuple(canonical_keys(compiled.partition, ()))
    key_columns = ship_keys(shipment, keys)
    shown = () if lay_out_answer is None else ship_shown_keys(shipment, compiled.partition, keys)
    orders = ship_orders(shipment, compiled.orders)
    frame = None if window is None else window.frame(shipment)
    if frame is not None:
        check_neighbours(compiled, shipment, frame)
    answer = None if lay_out_answer is None else lay_out_answer(compiled, shipment, shown)
    if not shipment.shipped:
        # Arrow does not count rows that have no column.
        shipment.column("CAST(1 AS TINYINT)")
    return CompiledRowQuery(
        compiled, shipment, keys, key_columns, orders, limits or Limits(), ansi, answer, frame
    )


def compile_row_pattern(  # noqa: PLR0913 - the compiler's inputs are many
    pattern: RowPattern,
    columns: Sequence[ColumnInfo],
    *,
    order_by: Any,
    partition_by: Any,
    typer: Typer,
    shipment: ColumnRequests,
    time_zone: str,
    measures: Sequence[tuple[str, str]] = (),
    rows: RowsMode = "one",
    after_match: str | None = None,
    case_sensitive: bool = False,
    ansi: bool = True,
    in_batch: bool = True,
    window: WindowRequest | None = None,
) -> CompiledRowPattern:
    """Raises one PatternError with all problems; `details["problems"]` lists them. `in_batch`: all
    rows are there, so Spark can read neighbouring rows too."""
    plain = PatternNames((), columns, case_sensitive=case_sensitive)
    names = row_pattern_names(pattern.variables, plain)
    session = CompilerSession(typer, ansi, is_fixed_zone(time_zone), time_zone=time_zone)
    work = _RowCompilation(pattern, names, session, RowTypes(typer, columns), shipment)
    problems, variables = work.problems, pattern.variables
    timed = pattern.window is not None
    orders = row_orders_of(order_by, plain, typer, problems, timed=timed)
    partition = partition_of(partition_by, plain, problems)
    within = _window(work, orders)
    conjuncts = _parse_conditions(work)
    guarding = guards_by_variable(conjuncts, work.types)
    over = window_clause(partition, orders) if in_batch else None
    around = ConditionContext(work.types, guarding, over)
    defined = _compile_conditions(work, conjuncts, around)
    readings = RowReadings(shipment, work.types, guarding, None if in_batch else session)
    wanted = MeasureRequest(
        measures,
        rows in ("all with unmatched", "each row"),
        frozenset() if window is None else window.folds,
    )
    scope = RowScope(names, variables, at_end=rows in ("one", "each row"))
    compiled_measures = compile_row_measures(wanted, scope, readings, typer, problems)
    skip = skip_of(after_match, variables, problems)
    if rows == "all with unmatched":
        _refuse_exclusions(work)
    problems.raise_if_any()
    return CompiledRowPattern(
        variables=tuple(
            RowVariable(name, _ship_condition(each, work))
            for name, each in zip(variables.names, defined, strict=True)
        ),
        pattern=number_pattern(pattern.root, variables),
        skip=skip,
        rows=rows,
        window=within,
        partition=partition,
        orders=orders,
        readings=tuple(readings.found),
        measures=compiled_measures,
        conditions=tuple((each.text, each.is_of_row) for each in defined),
        aggregates=tuple(readings.aggregates),
        longest=pattern.is_longest,
    )


def _window(work: _RowCompilation, orders: Sequence[OrderBy]) -> Window | None:
    within = work.pattern.window
    if within is None or not orders:
        return None
    try:
        return window_of(within, orders[0].type)
    except PatternError as error:
        work.problems.take(error, Place.whole(str(within.duration)))
        return None


def _refuse_exclusions(work: _RowCompilation) -> None:
    pattern = work.pattern
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
    variables = work.pattern.variables
    found = {}
    for name, condition in work.pattern.define:
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
    variables = work.pattern.variables
    found = [_DefineCondition(None)] * len(variables.names)
    for name, condition in work.pattern.define:
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
        except (SyntaxProblem, RecursionError):
            continue
    work.types.learn(asked)


def _translate_condition(
    number: int, conjunct: RowConjunct, work: _RowCompilation, around: ConditionContext
) -> _DefineCondition:
    name = work.pattern.variables.names[number]
    expression: Expression | None = None
    try:
        expression = ConditionTranslation(conjunct, work.session, around).condition()
    except TypeMismatch as mismatch:
        place = conjunct.parsed.place(mismatch.node)
        work.problems.add(f"DEFINE {name}: {mismatch.message}", place, hint=mismatch.hint)
    except SyntaxProblem as problem:
        work.problems.add(f"DEFINE {name}: {problem.message}", problem.place)
    except InexactError as inexact:
        reason, node = inexact.reason.replace("several variables", "several rows"), inexact.node
        work.problems.add(
            f"DEFINE {name} cannot be tested: the engine does not compute {reason}",
            conjunct.place if node is None else conjunct.parsed.place(node),
            hint=replacement_of(conjunct, node) or _hint_for(reason),
        )
    return _DefineCondition(expression, conjunct.rows, conjunct.text)


def _hint_for(reason: str) -> str:  # noqa: PLR0911
    """What to write instead of what the engine does not compute."""
    if "DECIMAL" in reason:
        return "compute with DOUBLE: CAST(d AS DOUBLE)"
    if "collated" in reason:
        return "compare parts of them, or texts without a collation: lower(CAST(name AS STRING))"
    if " mix " in reason:
        return "cast one of them to the type of the other"
    if reason.startswith("array_sort()"):
        return "sort structs whose first field is what decides: array_sort(transform(...))"
    if reason.startswith(("to_json(", "from_json(")):
        return "compare the values themselves: struct(a.x, y) = struct(x, a.y)"
    if reason.startswith(("to_date(", "to_timestamp(", "unix_timestamp(")):
        return "read the text of each row before you combine the two: to_date(a.day, 'dd.MM.yyyy')"
    return (
        "every function may stand around one row's columns, upper(a.kind), and around those of the "
        "row with its PREV and NEXT; between rows of the match there are the functions of the page "
        "SQL, Functions between rows"
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
    (type_,) = work.typer.of_row([column])
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
        return RowRead("current", work.shipment.column(defined.column), BOOL)
    if defined.expression is None:
        return None
    names = work.pattern.variables.names
    found = ship_row_expression(defined.expression, LeafContext(work.shipment, defined.rows, names))
    return None if found == Constant(True, BOOL) else found
