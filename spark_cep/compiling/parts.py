"""The parts of a conjunct that concern one variable, which Spark computes on a row.

Hoisting must not wake an error that a guard in the text keeps asleep: in
`a.kind <> 'n' OR CAST(a.payload AS INT) > b.x` the cast is computed only where its own
variable's earlier alternatives leave the question open. Guards over other variables cannot be
kept, as their rows are not known yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from spark_cep.compiling.conditions import Conjunct

# (variable, text on its row): a part is evaluated only where all texts for its variable are TRUE.
Guards = tuple[tuple[int, str], ...]
TRUE, NOT_TRUE, NOT_FALSE = "({})", "(NOT (({}) <=> TRUE))", "(NOT (({}) <=> FALSE))"


@dataclass(frozen=True)
class Part:
    """A maximal sub-expression over one variable: its node, variable and text on a row."""

    node: exp.Expr
    variable: int
    text: str

    def guarded(self, guards: Guards) -> str:
        mine = " AND ".join(text for variable, text in guards if variable == self.variable)
        return f"CASE WHEN {mine} THEN {self.text} END" if mine else self.text


def row_part(conjunct: Conjunct, node: exp.Expr) -> Part | None:
    """The node as a part over one variable, if it is one that Spark can evaluate on a row."""
    named = conjunct.named(node)
    if len(named) != 1 or not conjunct.is_of_rows(node):
        return None
    reference = conjunct.reference(node)
    if reference is not None and reference.column is None:
        return None
    if isinstance(node, exp.If) and isinstance(node.parent, exp.Case):
        return None  # a WHEN ... THEN ..., which is no expression
    if _is_inside_not(conjunct, node):
        return None
    return Part(node, next(iter(named)), conjunct.row_text(node))


def _is_inside_not(conjunct: Conjunct, node: exp.Expr) -> bool:
    """In `x IS NOT NULL` the text of `x IS NULL` does not stand by itself."""
    parent = node.parent
    return isinstance(parent, exp.Not) and conjunct.parsed.span(node) == conjunct.parsed.span(
        parent
    )


def is_column(conjunct: Conjunct, node: exp.Expr) -> bool:
    """Whether the node is a plain column (or a field of one), which cannot fail on any row."""
    while isinstance(node, exp.Paren | exp.Dot):
        node = node.this
    reference = conjunct.reference(node)
    return reference is not None and reference.column is not None


def guard(conjunct: Conjunct, node: exp.Expr, form: str) -> Guards:
    """What a condition in the text says about the rows of the one variable that it is about."""
    part = row_part(conjunct, node)
    return () if part is None else ((part.variable, form.format(part.text)),)


class TypeMismatch(Exception):
    """The user's mistake: an operation on types that it has not. `node` is where."""

    def __init__(self, message: str, node: exp.Expr, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint
