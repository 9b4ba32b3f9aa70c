"""Translation of a condition of DEFINE into a typed expression for the engine.

    over the current row           one column, computed by Spark
    over one other row             the same, read at that row; needs a value for a missing row
    across rows                    operations that the engine computes exactly as Spark does
    across PREV, NEXT and the row  otherwise Spark, with lag and lead (conjuncts.py)
    a function of Spark            in Python, by the worker's own functions (functions.py)
    else                           refused: a condition decides which rows match, so Spark cannot
                                   test it afterwards

Spark computes a column on every row; guards in the condition are kept, so that it raises no error
where Spark would not evaluate the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.aggregates import AGGREGATES, NAVIGATIONS, AggregateRule
from spark_cep.expressions.conditions import (
    Guards,
    RowPart,
    TypeMismatch,
    is_column,
    over_one_row,
    row_part,
)
from spark_cep.expressions.names import Reference, quote_name
from spark_cep.expressions.operands import ConstantOperand, InexactError, RowOperand
from spark_cep.expressions.types import aggregate_type, name_of
from spark_cep.rows.conjuncts import CALL_MARKERS, TimeDifference, difference_of, neighbour_sql
from spark_cep.rows.folds import DEFINE_HINT, EXTREMES, LIST_HINT, SPREADS
from spark_cep.rows.functions import FunctionConversion, translate_function
from spark_cep.rows.leaves import LabelTranslation, RowAggregate, RowPresence
from spark_cep.rows.texts import CURRENT_ROW, RowPosition
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Call, Constant, Expression, Type
from spark_cep.udfs.row_program import MatchNumber

if TYPE_CHECKING:
    from spark_cep.expressions.translation import CompilerSession
    from spark_cep.rows.calls import RowCall
    from spark_cep.rows.conjuncts import RowConjunct
    from spark_cep.rows.leaves import ConditionContext


# NULL wherever an operand is.
_STRICT = (
    exp.Column, exp.Identifier, exp.Dot, exp.Literal, exp.Paren, exp.Neg, exp.Abs, exp.Add,
    exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT,
    exp.GTE, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Boolean, exp.Not,
)  # fmt: skip


ONE = Constant(1, BIGINT)
# What max_by and min_by choose a row by.
_ORDERED_BY = {
    "int", "float", "decimal", "bool", "date", "timestamp", "timestamp_ntz", "interval", "months",
}  # fmt: skip


class ConditionTranslation(LabelTranslation):
    """Translates one condition of DEFINE."""

    conversion: FunctionConversion

    def __init__(
        self, conjunct: RowConjunct, session: CompilerSession, around: ConditionContext
    ) -> None:
        super().__init__(conjunct, session, around)
        self.conversion = FunctionConversion(session)
        self._built: dict[tuple[int, Guards], Expression] = {}

    def build(self, node: exp.Expr, guards: Guards) -> Expression:
        known = self._built.get((id(node), guards))
        if known is None:
            known = self._built[id(node), guards] = self._build(node, guards)
        return known

    def _build(self, node: exp.Expr, guards: Guards) -> Expression:
        call = self._text.calls.at(node)
        if call is not None:
            return self._call(call)
        part = row_part(self.conjunct, node)
        if part is not None:
            return self._over_one_row(part, guards)
        if not self.conjunct.names_anything(node):
            return self.fixed(node)
        if self._is_of_label(node):
            return self._of_label(node)
        try:
            return self.by_rule(node, guards)
        except InexactError:
            found = self._without_rule(node, guards) or translate_function(self, node, guards)
            if found is None:
                raise
            return found

    def fixed(self, node: exp.Expr) -> Expression:
        try:
            return super().fixed(node)
        except TypeMismatch:
            # An array is no constant of the engine, but it may be a column.
            text = self.conjunct.parsed.cut(node)
            type_ = self._type(text, node)
            if type_.kind != "other":
                raise
            return RowOperand(0, text, type_, may_fail=True)

    def type_between_rows(self, node: exp.Expr) -> Type:
        """The type that Spark gives the node: that of the same text with all names read at one row
        and a NULL in place of each other call."""
        parsed = self.conjunct.parsed
        if isinstance(node.parent, exp.Not) and parsed.span(node) == parsed.span(node.parent):
            node = node.parent  # NOT stands inside the text: k NOT RLIKE a.k
        calls = self._text.calls.below(node)
        edits: list[tuple[int, int, str]] = []
        replaced = [call for call in calls if call.kind not in {"physical", "logical"}]
        for call in calls:
            if call not in replaced:
                opens, closes = parsed.span(call.arguments[0])
                inner = self._text.calls.at(call.arguments[0])
                opens = opens if inner is None else inner.start
                edits += [(call.start, opens, "("), (closes, call.end, ")")]
            elif call.inside not in replaced:
                null = f"CAST(NULL AS {name_of(self._call(call).type)})"
                edits.append((call.start, call.end, null))
        start, end = parsed.span(node)
        edits += [
            each.edit()
            for each in self.conjunct.references
            if start <= each.start < end
            and not any(call.start <= each.start < call.end for call in replaced)
        ]
        return self._type(parsed.cut(node, edits), node)

    def one_row(self, nodes: Sequence[exp.Expr]) -> tuple[int, tuple[str, ...]] | None:
        """As in an event pattern, and through navigation: PREV(kind) = 'n' is over one row."""
        found = over_one_row(self.conjunct, nodes)
        if found is not None:
            return found
        rows = {self._row_of(node) for node in nodes if self.conjunct.names_anything(node)}
        row = next(iter(rows), None)
        if row is None or len(rows) > 1:
            return None
        return row, tuple(self._navigated(node, row).text for node in nodes)

    def _row_of(self, node: exp.Expr) -> int | None:
        part = row_part(self.conjunct, node)
        return self._one_row(node) if part is None else part.variable

    def _without_rule(self, node: exp.Expr, guards: Guards) -> Expression | None:
        """The node without an operation of the engine: over one row, a difference of times, or over
        neighbouring rows."""
        row = self._one_row(node)
        if row is not None:
            return self._with_default(self._navigated(node, row), guards)
        difference = difference_of(node)
        if difference is not None:
            found = self._difference(difference)
            if found is not None:
                return found
        over = self._around.over
        text = None if over is None else neighbour_sql(self.conjunct, node, over)
        if text is None:
            return None
        guarded = RowPart(node, 0, text).guarded(guards)
        return RowOperand(0, guarded, self._type(text, node), may_fail=True)

    def _difference(self, difference: TimeDifference) -> Expression | None:
        later, earlier = (
            self._numbered(each, difference) for each in (difference.later, difference.earlier)
        )
        if later is None or earlier is None:
            return None
        found = Call("-", (later, earlier), later.type)
        if difference.unit is None:
            return found
        return Call("div", (found, Constant(difference.unit, BIGINT)), BIGINT)

    def _numbered(self, node: exp.Expr, difference: TimeDifference) -> Expression | None:
        """A side of the difference as a number; None unless it is over one row."""
        part, row = row_part(self.conjunct, node), self._row_of(node)
        if row is None:
            return None
        part = self._navigated(node, row) if part is None else part
        number = RowPart(node, row, difference.number.format(part.text))
        if all(isinstance(each, _STRICT) or self._text.calls.at(each) for each in node.walk()):
            return self._hoisted(number, ())
        return self._with_default(number, (), difference.number)

    # ---- one row ---------------------------------------------------------------------------------

    def _over_one_row(self, part: RowPart, guards: Guards) -> Expression:
        """The part, read at its row. Reading a missing row gives NULL, which is right only for an
        expression that is NULL when its columns are."""
        row = self.conjunct.rows[part.variable]
        if row.anchor in {"current", "each"} and not row.shift:
            return self._hoisted(part, guards)
        if all(isinstance(each, _STRICT) for each in part.node.walk()):
            return self._hoisted(part, guards)
        try:
            return self.by_rule(part.node, guards)
        except InexactError:
            return self._with_default(part, guards)

    def _hoisted(self, part: RowPart, guards: Guards) -> RowOperand:
        if is_column(self.conjunct, part.node):
            return RowOperand(part.variable, part.text, self._type(part.text, part.node))
        text = self._around.guarding.at(self.conjunct.rows[part.variable], part.guarded(guards))
        return RowOperand(part.variable, text, self._type(part.text, part.node), may_fail=True)

    def _with_default(self, part: RowPart, guards: Guards, form: str = "{}") -> Expression:
        """The part at its row; if the row is missing, its value for NULLs, as a constant if
        possible, else as a column. `form`: the SQL around the node's text."""
        value = self._hoisted(part, guards)
        row = self.conjunct.rows[part.variable]
        if row == CURRENT_ROW:
            return value
        text = form.format(self._over_row(part.node, _null_of_column))
        try:
            known = self.conversion.constant(text)
        except ValueError:
            known = None
        if known is not None and known.value is None:
            return value
        default: Expression = RowOperand(0, text, value.type)
        if known is not None:
            default = self.conversion.to(ConstantOperand(known, text), value.type)
        return Call("if", (RowPresence(row), value, default), value.type)

    def _one_row(self, node: exp.Expr) -> int | None:
        """The only row that a node mentions; None if there are several, or other calls than
        navigation."""
        numbers = self.conjunct.named(node) - CALL_MARKERS
        below = self._text.calls.below(node)
        is_plain = all(each.kind in {"physical", "logical"} for each in below)
        return next(iter(numbers)) if is_plain and len(numbers) == 1 else None

    def _navigated(self, node: exp.Expr, row: int) -> RowPart:
        """The node without navigation: upper(PREV(kind)) is upper(kind) at the previous row."""
        return RowPart(node, row, self._over_row(node, lambda each: each.edit()[2]))

    def _over_row(self, node: exp.Expr, column: Callable[[Reference], str]) -> str:
        """The node's text over its row, without navigation."""
        parsed = self.conjunct.parsed
        start, end = parsed.span(node)
        edits = [
            (each.start, each.end, column(each))
            for each in self.conjunct.references
            if start <= each.start < end
        ]
        for call in self._text.calls.below(node):
            opens, closes = parsed.span(call.arguments[0])
            inner = self._text.calls.at(call.arguments[0])
            opens = opens if inner is None else inner.start
            edits += [(call.start, opens, "("), (closes, call.end, ")")]
        return parsed.cut(node, edits)

    # ---- calls -----------------------------------------------------------------------------------

    def _call(self, call: RowCall) -> Expression:
        if call.kind == "number":
            return MatchNumber(BIGINT)
        if call.kind == "classifier":
            return self._label(call)
        if call.kind == "aggregate":
            return self._aggregate(call)
        return self._navigation(call)

    def _navigation(self, call: RowCall) -> Expression:
        argument = call.arguments[0]
        inner = self._text.calls.at(argument.unnest())
        if inner is not None:
            return self._call(inner)
        part = row_part(self.conjunct, argument)
        if part is not None:
            return self._hoisted(part, ())
        value = self.build(argument, ())
        row = self._row(argument)
        if row == CURRENT_ROW:
            return value
        nothing = Constant(None, value.type)
        return Call("if", (RowPresence(row), value, nothing), value.type)

    def _row(self, argument: exp.Expr) -> RowPosition:
        """The row at which the argument of a navigation is evaluated."""
        label = next(each for each in self._text.calls.below(argument) if each.kind == "classifier")
        return self._text.row_of_label(label)

    # ---- aggregates ------------------------------------------------------------------------------

    def _aggregate(self, call: RowCall) -> Expression:
        how = AGGREGATES[call.name]
        if call.name in SPREADS:
            return self._spread(call)
        if call.name in EXTREMES:
            return self._extreme(call)
        if call.name in NAVIGATIONS:
            raise TypeMismatch(
                f"{call.name}() with FILTER is not supported in DEFINE",
                call.node,
                "of the rows that meet a condition, max_by(price, ts) FILTER (WHERE ...) has the "
                "last and min_by the first",
            )
        if how.engine is None:
            is_list = call.name in {"collect_list", "collect_set", "array_agg"}
            raise TypeMismatch(
                f"{call.name}() is not supported in DEFINE",
                call.node,
                LIST_HINT.format(name=call.name) if is_list else DEFINE_HINT,
            )
        rows = self._text.rows_of(call)
        if not call.arguments or isinstance(call.arguments[0], exp.Star):
            return self._count_rows(call)
        if len(call.arguments) > 1:
            raise TypeMismatch(
                f"{call.name}() with several arguments is not supported in DEFINE",
                call.node,
                "use one argument",
            )
        argument = call.arguments[0]
        if self._is_rows(argument):
            return self._count_rows(call)
        if not self._is_of_columns(call):
            return self._of_argument(call, how)
        text = how.argument.format(self._row_text(argument))
        type_ = self._folded_type(call, how, self._type(text, argument))
        guarded = self._around.guarding.among(rows, self._filtered(call, text))
        return RowAggregate(how.engine, guarded, rows, type_, call.distinct)

    def _count_rows(self, call: RowCall) -> Expression:
        """count(*), count(b.*)"""
        rows = self._text.rows_of(call)
        if call.filter is None:
            return RowAggregate("count", None, rows, BIGINT)
        if not self._is_over_columns(call.filter):
            return RowAggregate("count", None, rows, BIGINT, argument=self._chosen(call, ONE))
        text = self._around.guarding.among(rows, self._filtered(call, "1"))
        return RowAggregate("count", text, rows, BIGINT)

    def _is_of_columns(self, call: RowCall) -> bool:
        """Whether Spark can evaluate all that is in the call, on a row."""
        return all(map(self._is_over_columns, call.operands))

    def _is_over_columns(self, node: exp.Expr) -> bool:
        names_anything = self.conjunct.names_anything(node)
        return row_part(self.conjunct, node) is not None or not names_anything

    def _row_text(self, node: exp.Expr) -> str:
        part = row_part(self.conjunct, node)
        return part.text if part else self.conjunct.parsed.cut(node)

    def _filtered(self, call: RowCall, text: str) -> str:
        """What is aggregated of a row; NULL for rows that FILTER leaves out."""
        if call.filter is None:
            return text
        condition = self._row_text(call.filter)
        self._check_filter(call.filter, self._type(condition, call.filter))
        return f"CASE WHEN {condition} THEN {text} END"

    def _chosen(self, call: RowCall, value: Expression) -> Expression:
        """The same where the matcher evaluates it."""
        if call.filter is None:
            return value
        condition = self.build(call.filter, ())
        self._check_filter(call.filter, condition.type)
        return Call("if", (condition, value, Constant(None, value.type)), value.type)

    def _check_filter(self, node: exp.Expr, type_: Type) -> None:
        if type_ != BOOL:
            raise TypeMismatch(
                f"FILTER takes a condition, not {name_of(type_)}", node, "compare it with something"
            )

    def _spread(self, call: RowCall) -> Expression:
        """Variance or standard deviation, of doubles as in Spark."""
        (argument,) = call.arguments
        rows, name = self._text.rows_of(call), SPREADS[call.name]
        if not self._is_of_columns(call):
            value = self.build(argument, ())
            self._check_number(call, value.type)
            if value.type != DOUBLE:
                value = Call("cast", (value,), DOUBLE)
            value = self._chosen(call, value)
            return RowAggregate(name, None, rows, DOUBLE, call.distinct, value)
        text = self._row_text(argument)
        self._check_number(call, self._type(text, argument))
        text = self._filtered(call, f"CAST({text} AS DOUBLE)")
        return RowAggregate(
            name, self._around.guarding.among(rows, text), rows, DOUBLE, call.distinct
        )

    def _check_number(self, call: RowCall, type_: Type) -> None:
        if type_.kind not in {"int", "float", "decimal", "null"}:
            raise TypeMismatch(
                f"{call.name}() does not take {name_of(type_)}", call.node, "use a number"
            )

    def _extreme(self, call: RowCall) -> Expression:
        """max_by(x, y), min_by(x, y)"""
        if len(call.arguments) != 2 or call.distinct:
            raise TypeMismatch(
                f"{call.name}() with {'DISTINCT' if call.distinct else 'a number of rows'} is not "
                "supported in DEFINE",
                call.node,
                f"write {call.name}(x, y)",
            )
        if not self._is_of_columns(call):
            raise TypeMismatch(
                f"{call.name}() of CLASSIFIER or MATCH_NUMBER is not supported in DEFINE",
                call.node,
                "use columns",
            )
        rows, guarding = self._text.rows_of(call), self._around.guarding
        x, y = map(self._row_text, call.arguments)
        type_, by = (self._type(*each) for each in zip((x, y), call.arguments, strict=True))
        if by.kind not in _ORDERED_BY:
            raise TypeMismatch(
                f"{call.name}() by {name_of(by)} is not supported in DEFINE",
                call.arguments[1],
                "choose by a number or a time",
            )
        chosen = guarding.among(rows, self._filtered(call, y))
        x = guarding.among(rows, x)
        return RowAggregate(EXTREMES[call.name], x, rows, type_, by=(chosen, by))

    def _is_rows(self, argument: exp.Expr) -> bool:
        """count(b.*), count(b)"""
        is_name = isinstance(argument, exp.Column)
        return is_name and self.conjunct.reference(argument) is None

    def _of_argument(self, call: RowCall, how: AggregateRule) -> Expression:
        """An aggregate whose argument the engine evaluates: it has CLASSIFIER or MATCH_NUMBER."""
        value = self.build(call.arguments[0], ())
        if how.argument != "{}":
            value = self._tested(call, value)
        value = self._chosen(call, value)
        assert how.engine is not None
        type_ = self._folded_type(call, how, value.type)
        return RowAggregate(how.engine, None, self._text.rows_of(call), type_, call.distinct, value)

    def _tested(self, call: RowCall, value: Expression) -> Expression:
        """The argument of count_if, bool_or and bool_and, which must be BOOLEAN."""
        if value.type != BOOL:
            raise TypeMismatch(
                f"{call.name}() takes a BOOLEAN, not {name_of(value.type)}", call.node
            )
        if call.name != "count_if":
            return value
        return Call("if", (value, ONE, Constant(None, BIGINT)), BIGINT)

    def _folded_type(self, call: RowCall, how: AggregateRule, type_: Type) -> Type:
        assert how.engine is not None
        found = aggregate_type(how.engine, type_)
        if found is None or (call.distinct and type_.kind == "other"):
            raise TypeMismatch(
                f"{call.name}() does not take {name_of(type_)}",
                call.node,
                "use a value that can be ordered"
                if how.engine in {"min", "max"}
                else "cast it to fewer digits: CAST(... AS DECIMAL(18,4))"
                if type_.kind == "decimal"
                else "use a number",
            )
        return found


def _null_of_column(reference: Reference) -> str:
    """NULL of a column's type."""
    assert reference.column is not None
    if reference.column.type.kind in {"other", "null", "interval", "months"}:
        return f"(CASE WHEN FALSE THEN {quote_name(reference.column.name)} END)"
    return f"(CAST(NULL AS {name_of(reference.column.type)}))"
