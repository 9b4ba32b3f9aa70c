"""What to write instead of a refused operation of DEFINE, in the user's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.syntax import Expr, apply_edits
from spark_cep.expressions.translation import COMPARISONS

if TYPE_CHECKING:
    from spark_cep.rows.conjuncts import RowConjunct


_ROUNDING = {"round", "bround", "ceil", "ceiling", "floor", "rint"}


def replacement_of(conjunct: RowConjunct, node: exp.Expr | None) -> str | None:
    """The comparison around the operation, rewritten:

        floor(price / a.price, 1) > 1      without floor(): price / a.price > 1

    None if there is no such rewriting.
    """
    if node is None:
        return None
    parsed = conjunct.parsed
    around = node.find_ancestor(*COMPARISONS) or node
    name, start_end = parsed.call_name(node), parsed.span(around)
    argument = _first_argument(node)
    if name not in _ROUNDING or argument is None or around is node:
        return None
    inner = parsed.text_of(argument)
    edited = apply_edits(parsed.text, *start_end, [(*parsed.span(node), inner)])
    return f"compare without {name}(): {edited.strip()}"


def _first_argument(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.Anonymous):
        return node.expressions[0] if node.expressions else None
    return node.this if isinstance(node, exp.Func) and isinstance(node.this, Expr) else None
