"""The leaves of a row pattern's expressions, how they are shipped, and CLASSIFIER.

While a condition is translated its leaves are still text, so that a CAST in the text can convert
them (operands.py): a `RowOperand` is read at a row, by the row's number, a `RowAggregate` is over
rows, a `RowLabel` is the variable of a row. A label has type STRING, but the engine has numbers of
variables only: a comparison of a label with constants compares numbers, any other use is a choice
between names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.conditions import TypeMismatch
from spark_cep.expressions.operands import ConstantOperand, InexactError, RowOperand
from spark_cep.expressions.translation import CompilerSession, Translation
from spark_cep.rows.conjuncts import CALL_MARKERS, RowConjunct, restore_navigation
from spark_cep.rows.texts import CURRENT_ROW, RowPosition
from spark_cep.udfs.expressions import BOOL, Call, Constant, Expression, Type, UserCall
from spark_cep.udfs.row_program import Aggregate, Classifier, RowRead, VariableSet

if TYPE_CHECKING:
    from spark_cep.expressions.aggregates import EngineAggregate
    from spark_cep.expressions.schema import ColumnRequests
    from spark_cep.rows.calls import RowCall
    from spark_cep.rows.conjuncts import VariableGuards
    from spark_cep.rows.folds import EngineFold
    from spark_cep.rows.texts import RowTypes


STRING = Type("string")
LABEL_NUMBER = Type("int", 32)
_EQUALITIES = {"=", "<>", "<=>"}


@dataclass(frozen=True)
class RowLabel(Expression):
    """CLASSIFIER at a row. `known`: the variable, if it is known while compiling."""

    row: RowPosition
    known: int | None = None
    type: Type = STRING


@dataclass(frozen=True)
class RowPresence(Expression):
    """Whether the row exists."""

    row: RowPosition
    type: Type = BOOL


@dataclass(frozen=True)
class RowAggregate(Expression):
    """An aggregate of SQL over a row; `text` None: of `argument`, or else of the rows. `by`: SQL
    over the row, too, and its type, by which max_by and min_by choose it."""

    name: EngineAggregate | EngineFold
    text: str | None
    variables: VariableSet
    type: Type
    distinct: bool = False
    argument: Expression | None = None
    by: tuple[str, Type] | None = None


@dataclass(frozen=True)
class LeafContext:
    """The context in which leaves are shipped: rows by number, names of the variables."""

    shipment: ColumnRequests
    rows: Sequence[RowPosition]
    names: Sequence[str]


def ship_row_expression(expression: Expression, to: LeafContext) -> Expression:  # noqa: PLR0911
    """The expression for the engine."""
    if isinstance(expression, ConstantOperand):
        return expression.constant
    if isinstance(expression, RowOperand):
        assert expression.text is not None
        column = to.shipment.column(expression.text)
        return read_at(to.rows[expression.variable], column, expression.type)
    if isinstance(expression, RowPresence):
        return read_at(expression.row, None, BOOL)
    if isinstance(expression, RowAggregate):
        return _ship_aggregate(expression, to)
    if isinstance(expression, RowLabel):
        return _label_name(expression, to)
    if isinstance(expression, UserCall):
        return replace(expression, arguments=_ship_all(expression.arguments, to))
    if isinstance(expression, Call):
        compared = _compare_label(expression, to)
        if compared is not None:
            return compared
        return replace(expression, arguments=_ship_all(expression.arguments, to))
    return expression


def read_at(row: RowPosition, column: int | None, type_: Type) -> RowRead:
    # In the argument of an aggregate each row is the current one.
    if row.anchor == "each":
        return RowRead("current", column, type_)
    return RowRead(row.anchor, column, type_, row.variables, row.offset, row.shift, row.final)


def classifier_at(row: RowPosition) -> Classifier:
    if row.anchor == "each":
        return Classifier(LABEL_NUMBER)
    return Classifier(LABEL_NUMBER, row.anchor, row.variables, row.offset, row.shift, row.final)


def _ship_all(arguments: Sequence[Expression], to: LeafContext) -> tuple[Expression, ...]:
    return tuple(ship_row_expression(argument, to) for argument in arguments)


def _ship_aggregate(folded: RowAggregate, to: LeafContext) -> Aggregate:
    return Aggregate(
        folded.name,
        None if folded.text is None else to.shipment.column(folded.text),
        folded.type,
        folded.variables,
        folded.distinct,
        argument=None if folded.argument is None else ship_row_expression(folded.argument, to),
        by=None if folded.by is None else (to.shipment.column(folded.by[0]), folded.by[1]),
    )


# ---- labels --------------------------------------------------------------------------------------


def _label_name(label: RowLabel, to: LeafContext) -> Expression:
    """The label as a string."""
    if label.known is not None:
        return Constant(to.names[label.known], STRING)
    return choose_by_label(classifier_at(label.row), [Constant(name, STRING) for name in to.names])


def choose_by_label(
    number: Classifier, values: Sequence[Expression], none: Expression | None = None
) -> Call:
    """The value of the row's variable; `none` for a row without a variable."""
    type_ = values[0].type
    found = Constant(None, type_) if none is None else none
    for place in reversed(range(len(values))):
        is_variable = Call("=", (number, Constant(place, LABEL_NUMBER)), BOOL)
        found = Call("if", (is_variable, values[place], found), type_)
    assert isinstance(found, Call)
    return found


def _compare_label(call: Call, to: LeafContext) -> Expression | None:
    """A comparison of a label with constants as one of numbers; None for other calls."""
    labels = [each for each in call.arguments if isinstance(each, RowLabel)]
    names = [_constant(each) for each in call.arguments if not isinstance(each, RowLabel)]
    if call.name not in _EQUALITIES | {"in"} or len(labels) != 1 or None in names:
        return None
    if call.name == "in" and call.arguments[0] is not labels[0]:
        return None
    label = labels[0]
    numbers = [_label_number(each.value, to.names) for each in names if each is not None]
    if label.known is None:
        own: Expression = classifier_at(label.row)
        arguments = [own if each is label else numbers.pop(0) for each in call.arguments]
        return replace(call, arguments=tuple(arguments))
    return _compare_known_label(call.name, label.known, [each.value for each in numbers])


def _compare_known_label(name: str, known: int, numbers: Sequence[int | None]) -> Constant:
    """A comparison of a known label with constants."""
    is_equal = known in numbers
    if name == "<=>":
        return Constant(is_equal, BOOL)
    if name == "<>":
        return Constant(None if None in numbers else not is_equal, BOOL)
    return Constant(True if is_equal else (None if None in numbers else False), BOOL)


def _constant(expression: Expression) -> Constant | None:
    if isinstance(expression, ConstantOperand):
        expression = expression.constant
    return expression if isinstance(expression, Constant) else None


def _label_number(name: object, names: Sequence[str]) -> Constant:
    """The number of a variable; -1 if no variable has this name."""
    if name is None:
        return Constant(None, LABEL_NUMBER)
    return Constant(names.index(name) if name in names else -1, LABEL_NUMBER)


# ---- CLASSIFIER in DEFINE ------------------------------------------------------------------------


# Comparisons with constants are shipped as comparisons of numbers (_compare_label).
_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In)
_LOGIC = (exp.Paren, exp.And, exp.Or, exp.Not)


@dataclass(frozen=True)
class ConditionContext:
    """The context of a condition. `over`: the OVER clause for neighbouring rows; None if Spark
    cannot see them. `where`: as messages say it."""

    types: RowTypes
    guarding: VariableGuards
    over: str | None = None
    where: str = "in DEFINE"


class LabelTranslation(Translation):
    """A translation with CLASSIFIER.

    A function of one label, and of columns of the same row, that the engine does not compute has a
    value for each variable: Spark computes each now or as a column, and the engine picks the one of
    the row's variable.
    """

    conjunct: RowConjunct

    def __init__(
        self, conjunct: RowConjunct, session: CompilerSession, around: ConditionContext
    ) -> None:
        super().__init__(conjunct, session, {})
        self._around = around
        self._text = conjunct.resolved

    def _type(self, text: str, node: exp.Expr) -> Type:
        found = self._around.types.of(text)
        if isinstance(found, str):
            raise TypeMismatch(restore_navigation(found), node)
        return found

    def _label(self, call: RowCall) -> RowLabel:
        row = self._text.row_of_label(call)
        is_own = row == CURRENT_ROW
        return RowLabel(row, self._text.scope.own if is_own else None)

    def _is_of_label(self, node: exp.Expr) -> bool:
        """Whether the node is a function of one CLASSIFIER and columns of the same row that the
        engine does not compute."""
        below = self._text.calls.below(node)
        if len(below) != 1 or below[0].kind != "classifier" or below[0].node is node:
            return False
        if self.conjunct.depends_on_element(node) or self.conjunct.calls_user_function(node):
            return False
        if isinstance(node, _LOGIC) or not self._is_at(self._label(below[0]).row, node):
            return False
        operands = [each.unnest() for each in node.iter_expressions()]
        return not (isinstance(node, _COMPARISONS) and any(o is below[0].node for o in operands))

    def _is_at(self, row: RowPosition, node: exp.Expr) -> bool:
        """Whether all columns below the node are read at the row."""
        numbers = self.conjunct.named(node) - CALL_MARKERS
        return all(self.conjunct.rows[number] == row for number in numbers)

    def _of_label(self, node: exp.Expr) -> Expression:
        """The value of the node for the row's variable."""
        (call,) = self._text.calls.below(node)
        label = self._label(call)
        names = self._text.scope.variables.names
        if label.known is not None:
            return self._at_label(node, call, _literal(names[label.known]))
        values = [
            self._at_label(node, call, _literal(name), number) for number, name in enumerate(names)
        ]
        none = self._at_label(node, call, "CAST(NULL AS STRING)")
        if len({each.type for each in values}) > 1:
            raise InexactError(self.describe(node))
        return choose_by_label(
            classifier_at(label.row), values, self.conversion.to(none, values[0].type)
        )

    def _at_label(
        self, node: exp.Expr, call: RowCall, text: str, variable: int | None = None
    ) -> Expression:
        """The node with this text in place of the label. It is read at rows of the variable only,
        so it is computed where they may be."""
        parsed = self.conjunct.parsed
        numbers = self.conjunct.named(node) - CALL_MARKERS
        edits = [each.edit() for each in self.conjunct.references if each.column]
        cut = parsed.cut(node, [*edits, (call.start, call.end, text)])
        if numbers:
            type_ = self._type(cut, node)
            if variable is not None:
                cut = self._around.guarding.among(frozenset({variable}), cut)
            return RowOperand(next(iter(numbers)), cut, type_, may_fail=True)
        try:
            return ConstantOperand(self.conversion.constant(cut), cut)
        except ValueError as problem:
            raise TypeMismatch(str(problem), node) from None


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
