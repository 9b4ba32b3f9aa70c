"""Conditions on rows at fixed distances that the engine has no operation for.

    levenshtein(kind, PREV(kind)) < 3   ->   levenshtein(`kind`, lag(`kind`, 1) OVER (...)) < 3

Which rows PREV and NEXT see from the row under test does not depend on the match, so Spark can
compute such a part whole, as one column. It sorts the rows once more for that, so what the engine
computes itself never comes here. Of tied rows Spark and the engine may each see another order,
as the docs say of ties anyway.

Rows that depend on the match (a.price, FIRST(price), aggregates) are known to the engine alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_cep.compiling.names import quoted
from spark_cep.compiling.rows.conjunct import CALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from spark_cep.compiling.compiled import OrderBy
    from spark_cep.compiling.rows.calls import Call
    from spark_cep.compiling.rows.conjunct import RowConjunct


_NAMES = {"lag": "PREV", "lead": "NEXT"}
_PRINTED = re.compile(r"\b(lag|lead)\((.*?), -?(\d+), NULL\) OVER \(.*?FOLLOWING\)", re.S)


def window_of_rows(partition: Sequence[str], orders: Sequence[OrderBy]) -> str | None:
    """What stands behind lag(x), so that it sees the partition in the pattern's order; None if
    there is no order, or Spark cannot be told it as text.

    >>> from spark_cep.compiling.compiled import OrderBy
    >>> from spark_cep.udfs.expressions import Type
    >>> window_of_rows(["k"], [OrderBy("`ts`", True, False, Type("timestamp"))])
    'OVER (PARTITION BY `k` ORDER BY `ts` DESC NULLS LAST)'
    """
    if not orders or not all(isinstance(each.expression, str) for each in orders):
        return None
    keys = f"PARTITION BY {', '.join(map(quoted, partition))} " if partition else ""
    return f"OVER ({keys}ORDER BY {', '.join(map(_direction, orders))})"


def _direction(order: OrderBy) -> str:
    direction = "DESC" if order.descending else "ASC"
    return f"{order.expression} {direction} NULLS {'FIRST' if order.nulls_first else 'LAST'}"


def seen_from_row(conjunct: RowConjunct, node: exp.Expr, over: str) -> str | None:
    """The node over a row and its neighbours; None if it is about other rows, or about none but
    the row itself."""
    rows = [conjunct.rows[number] for number in conjunct.named(node) - CALL]
    calls = conjunct.row_text_.calls.below(node)
    is_near = all(row.anchor == "current" for row in rows) and any(row.shift for row in rows)
    if not is_near or any(call.kind not in {"physical", "logical"} for call in calls):
        return None
    outer = [call for call in calls if call.inside is None or call.inside not in calls]
    start, end = conjunct.parsed.span(node)
    edits = [(call.start, call.end, _neighbour(conjunct, call, over)) for call in outer]
    edits += [
        each.edit()
        for each in conjunct.references
        if start <= each.start < end
        and not any(call.start <= each.start < call.end for call in outer)
    ]
    return conjunct.parsed.cut(node, edits)


def as_navigation(sentence: str) -> str:
    """What Spark says of lag and lead, as the user wrote it.

    >>> as_navigation("(x > lag(y, 2, NULL) OVER (ORDER BY n ROWS ... -2 FOLLOWING)) is wrong")
    '(x > PREV(y, 2)) is wrong'
    """
    return _PRINTED.sub(
        lambda found: f"{_NAMES[found[1]]}({found[2]}{'' if found[3] == '1' else ', ' + found[3]})",
        sentence,
    )


def _neighbour(conjunct: RowConjunct, call: Call, over: str) -> str:
    """PREV(x, 2), PREV(LAST(x)) and their like."""
    argument = call.arguments[0]
    inner = conjunct.row_text_.calls.at(argument.unnest())
    if inner is not None:
        argument = inner.arguments[0]
    start, end = conjunct.parsed.span(argument)
    named = [each for each in conjunct.references if start <= each.start < end]
    text = conjunct.parsed.cut(argument, [each.edit() for each in named])
    shift = conjunct.rows[named[0].variable].shift
    if not shift:
        return f"({text})"
    return f"{'lag' if shift < 0 else 'lead'}({text}, {abs(shift)}) {over}"
