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

from spark_cep.expressions.conditions import (
    Guards,
    RowPart,
    TypeMismatch,
    is_column,
    over_one_row,
    row_part,
    user_function_of,
)
from spark_cep.expressions.names import Reference, quote_name
from spark_cep.expressions.operands import ConstantOperand, InexactError, RowOperand
from spark_cep.expressions.syntax import apply_edits
from spark_cep.expressions.types import name_of
from spark_cep.rows.conjuncts import CALL_MARKERS, TimeDifference, difference_of, neighbour_sql
from spark_cep.rows.define_aggregates import AggregateTranslation
from spark_cep.rows.functions import FunctionConversion, sql_name_of, translate_function
from spark_cep.rows.leaves import RowPresence
from spark_cep.rows.nested import translate_nested
from spark_cep.rows.texts import CURRENT_ROW, RowPosition
from spark_cep.udfs.expressions import (
    BIGINT,
    Call,
    Constant,
    Expression,
    LambdaArgument,
    Type,
    UserCall,
)
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


class ConditionTranslation(AggregateTranslation):
    """Translates one condition of DEFINE."""

    def __init__(
        self, conjunct: RowConjunct, session: CompilerSession, around: ConditionContext
    ) -> None:
        super().__init__(conjunct, session, around)
        self.conversion = FunctionConversion(session)
        self._built: dict[tuple[int, Guards], Expression] = {}
        self.arguments: dict[int, LambdaArgument] = {}

    def build(self, node: exp.Expr, guards: Guards) -> Expression:
        known = self._built.get((id(node), guards))
        if known is None:
            known = self._built[id(node), guards] = self._build(node, guards)
        return known

    def _build(self, node: exp.Expr, guards: Guards) -> Expression:  # noqa: PLR0911
        call = self._text.calls.at(node)
        if call is not None:
            return self._call(call)
        number = self.conjunct.arguments.get(id(node))
        if number is not None:
            return self.arguments[number]
        if isinstance(node, exp.Lambda):
            raise InexactError("a lambda function here", node)
        part = row_part(self.conjunct, node)
        if part is not None:
            return self._over_one_row(part, guards)
        if not self.conjunct.names_anything(node):
            return self.fixed(node)
        function = user_function_of(node)
        if function is not None:
            arguments = tuple(self.build(each, guards) for each in node.expressions)
            return UserCall(function.name, function.function, arguments, function.returns)
        if self._is_of_label(node):
            return self._of_label(node)
        try:
            return self.by_rule(node, guards)
        except InexactError:
            found = (
                self._without_rule(node, guards)
                or translate_nested(self, node, guards)
                or translate_function(self, node, guards)
            )
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
        """The type that Spark gives the node: that of its text at one row."""
        return self._type(self.text_between_rows(node), node)

    def text_between_rows(self, node: exp.Expr) -> str:
        """The node with all names read at one row and a NULL in place of each other call."""
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
                null = f"CAST(NULL AS {sql_name_of(self._call(call).type)})"
                edits.append((call.start, call.end, null))
        elements, nulls = self._nulls_of_elements(node), self._nulls_of_functions(node)
        covered = [(call.start, call.end) for call in replaced]
        covered += [(start, end) for start, end, _ in nulls]
        start, end = parsed.span(node)
        edits += [
            *nulls,
            *(
                each
                for each in [*(each.edit() for each in self.conjunct.references), *elements]
                if start <= each[0] < end and not any(a <= each[0] < b for a, b in covered)
            ),
        ]
        if elements:
            return apply_edits(parsed.text, start, end, edits)
        return parsed.cut(node, edits)

    def _nulls_of_elements(self, node: exp.Expr) -> list[tuple[int, int, str]]:
        """NULLs of their types for the arguments of lambda functions around the node. The tree has
        no places for them, so they are found among the tokens."""
        parsed, numbers = self.conjunct.parsed, self.conjunct.arguments
        inner = [(f, [each.name.casefold() for each in f.expressions])
                 for f in node.find_all(exp.Lambda)]  # fmt: skip
        bound = {numbers[id(each)] for f, _ in inner for each in f.expressions}
        free = {
            each.name.casefold(): numbers[id(each)]
            for each in node.find_all(exp.Identifier)
            if numbers.get(id(each), -1) not in {-1, *bound}
        }
        hidden = [(*parsed.tokens_of(f), names) for f, names in inner if free.keys() & set(names)]
        found = []
        first, last = parsed.tokens_of(node)
        for at in range(first, last + 1):
            token, name = parsed.tokens[at], parsed.tokens[at].text.casefold()
            before = parsed.tokens[at - 1].text.upper() if at else ""
            is_hidden = any(a <= at <= b and name in names for a, b, names in hidden)
            if name in free and before not in {".", "AS"} and not is_hidden:
                null = f"CAST(NULL AS {sql_name_of(self.arguments[free[name]].type)})"
                found.append((token.start, token.end + 1, null))
        return found

    def _nulls_of_functions(self, node: exp.Expr) -> list[tuple[int, int, str]]:
        """NULLs of their types for calls of user functions, which Spark does not know."""
        found: list[tuple[int, int, str]] = []
        for each in node.walk():
            function = user_function_of(each)
            start, end = self.conjunct.parsed.span(each) if function else (0, 0)
            if function and not any(a <= start < b for a, b, _ in found):
                found.append((start, end, f"CAST(NULL AS {name_of(function.returns)})"))
        return found

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
        if self.conjunct.depends_on_element(node) or self.conjunct.calls_user_function(node):
            return None
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
        self._check_inside(call)
        if call.kind == "number":
            return MatchNumber(BIGINT)
        if call.kind == "classifier":
            return self._label(call)
        if call.kind == "aggregate":
            return self._aggregate(call)
        return self._navigation(call)

    def _check_inside(self, call: RowCall) -> None:
        """Refuses what only the worker computes in a call that reads other rows."""
        spelled, node = self.conjunct.parsed.call_name(call.node) or call.name, call.node
        if self.conjunct.calls_user_function(node):
            raise TypeMismatch(
                f"{spelled.upper()} cannot contain a call of a cep.udf",
                node,
                "call the function with its value: near(PREV(price), price)",
            )
        if self.conjunct.depends_on_element(node):
            raise TypeMismatch(
                f"{spelled.upper()} cannot contain the argument of a lambda function",
                node,
                "it takes columns: exists(a.tags, t -> t = PREV(kind))",
            )

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


def _null_of_column(reference: Reference) -> str:
    """NULL of a column's type."""
    assert reference.column is not None
    if reference.column.type.kind in {"other", "null", "interval", "months"}:
        return f"(CASE WHEN FALSE THEN {quote_name(reference.column.name)} END)"
    return f"(CAST(NULL AS {name_of(reference.column.type)}))"
