"""CLASSIFIER in DEFINE: labels, and functions of them.

A label compared with constants becomes a comparison of numbers (leaves.py). Any other function of
one label, and of columns of the same row, has a value for each variable: Spark computes it now, or
as a column each, and the engine picks the one of the row's label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.operands import Fixed, Hoisted, Inexact
from spark_cep.compiling.parts import TypeMismatch
from spark_cep.compiling.rows.conjunct import CALL, RowConjunct
from spark_cep.compiling.rows.leaves import Label, chosen, classifier
from spark_cep.compiling.rows.neighbours import as_navigation
from spark_cep.compiling.rows.texts import CURRENT, Row
from spark_cep.compiling.translation import Session, Translation

if TYPE_CHECKING:
    from spark_cep.compiling.rows import calls
    from spark_cep.compiling.rows.guarding import Guarding
    from spark_cep.compiling.rows.types import Types
    from spark_cep.udfs.expressions import Expression, Type

# A label compared with constants becomes a comparison of numbers.
_COMPARED = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In)
_LOGIC = (exp.Paren, exp.And, exp.Or, exp.Not)


@dataclass(frozen=True)
class Around:
    """What a condition may use besides its text. `over`: how Spark sees the rows beside a row,
    None if it cannot."""

    types: Types
    guarding: Guarding
    over: str | None = None


class Labelled(Translation):
    """A translation that knows labels."""

    conjunct: RowConjunct

    def __init__(self, conjunct: RowConjunct, session: Session, around: Around) -> None:
        super().__init__(conjunct, session, {})
        self._around = around
        self._text = conjunct.row_text_

    def _type(self, text: str, node: exp.Expr) -> Type:
        found = self._around.types.of(text)
        if isinstance(found, str):
            raise TypeMismatch(as_navigation(found), node)
        return found

    def _label(self, call: calls.Call) -> Label:
        row = self._text.row_of_label(call)
        is_own = row == CURRENT
        return Label(row, self._text.scope.own if is_own else None)

    def _is_of_label(self, node: exp.Expr) -> bool:
        """Whether the node is a function of one CLASSIFIER, and of columns of the same row, that
        the engine does not compute."""
        below = self._text.calls.below(node)
        if len(below) != 1 or below[0].kind != "classifier" or below[0].node is node:
            return False
        if isinstance(node, _LOGIC) or not self._is_at(self._label(below[0]).row, node):
            return False
        operands = [each.unnest() for each in node.iter_expressions()]
        return not (isinstance(node, _COMPARED) and any(o is below[0].node for o in operands))

    def _is_at(self, row: Row, node: exp.Expr) -> bool:
        """Whether all columns below the node are read at the row."""
        numbers = self.conjunct.named(node) - CALL
        return all(self.conjunct.rows[number] == row for number in numbers)

    def _of_label(self, node: exp.Expr) -> Expression:
        """Its value for each variable: Spark computes it now, or as a column each."""
        (call,) = self._text.calls.below(node)
        label = self._label(call)
        names = self._text.scope.variables.names
        if label.known is not None:
            return self._at_label(node, call, _literal(names[label.known]))
        values = [self._at_label(node, call, _literal(name)) for name in names]
        none = self._at_label(node, call, "CAST(NULL AS STRING)")
        if len({each.type for each in values}) > 1:
            raise Inexact(self.described(node))
        return chosen(classifier(label.row), values, self.conversion.to(none, values[0].type))

    def _at_label(self, node: exp.Expr, call: calls.Call, text: str) -> Expression:
        parsed = self.conjunct.parsed
        numbers = self.conjunct.named(node) - CALL
        edits = [each.edit() for each in self.conjunct.references if each.column]
        cut = parsed.cut(node, [*edits, (call.start, call.end, text)])
        if numbers:
            return Hoisted(next(iter(numbers)), cut, self._type(cut, node), may_fail=True)
        try:
            return Fixed(self.conversion.constant(cut), cut)
        except ValueError as problem:
            raise TypeMismatch(str(problem), node) from None


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
