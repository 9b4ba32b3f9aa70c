"""Condition text as conjuncts, and whether one holds.

Interpretation that the engine shares: an ANSI error (division by zero) makes the whole conjunct
NULL, not the part that it is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from tests.reference.expressions import FOLDS, AnsiError, Scope, evaluate, is_prev


@dataclass(frozen=True)
class Conjunct:
    """One top-level AND part of a condition, and how it reads each variable that it names."""

    text: str
    tree: exp.Expr
    own: str | None
    each: frozenset[str]
    previous: frozenset[str]
    folded: frozenset[str]

    @property
    def variables(self) -> frozenset[str]:
        return self.each | self.previous | self.folded

    def concerns_one_row(self) -> bool:
        """Whether a row alone decides it."""
        return len(self.each) == 1 and not self.previous and not self.folded


def conjuncts(text: str, names: frozenset[str], own: str | None = None) -> list[Conjunct]:
    """'They are split at top-level ANDs.' `own`: whose columns the bare names are.

    >>> [c.text for c in conjuncts("a.x < b.x AND (a.y = 1 OR b.y = 2)", frozenset("ab"))]
    ['a.x < b.x', '(a.y = 1 OR b.y = 2)']
    """
    return [
        _conjunct(tree, names, own) for tree in _split(sqlglot.parse_one(text, dialect="spark"))
    ]


def holds(conjunct: Conjunct, scope: Scope) -> bool:
    """'A conjunct holds when it is TRUE; NULL and FALSE reject.'"""
    try:
        return evaluate(conjunct.tree, scope) is True
    except AnsiError:
        return False


# ---- what a conjunct names ---------------------------------------------------------------------


def _split(tree: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(tree, exp.And):
        yield from _split(tree.left)
        yield from _split(tree.right)
    else:
        yield tree


def _conjunct(tree: exp.Expr, names: frozenset[str], own: str | None) -> Conjunct:
    found: dict[str, set[str]] = {"each": set(), "previous": set(), "folded": set()}
    _collect(tree, "each", found, names, own)
    return Conjunct(
        tree.sql(dialect="spark"), tree, own, **{how: frozenset(v) for how, v in found.items()}
    )


def _collect(
    node: exp.Expr,
    how: str,
    found: dict[str, set[str]],
    names: frozenset[str],
    own: str | None,
) -> None:
    if isinstance(node, exp.Column):
        found[how].add(_variable(node, names, own))
        return
    if isinstance(node, FOLDS):
        how = "folded"
    elif is_prev(node):
        how = "previous"
    for child in node.iter_expressions():
        _collect(child, how, found, names, own)


def _variable(column: exp.Column, names: frozenset[str], own: str | None) -> str:
    """Whose row a column is read at; `count(b)` names the variable itself."""
    if column.table:
        return str(column.table)
    if own is None or (isinstance(column.parent, exp.Count) and column.name in names):
        return str(column.name)
    return own
