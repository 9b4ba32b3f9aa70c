"""Guards: conditions under which Spark evaluates an operand.

Hoisting must not raise an error that Spark would not raise: in
`a.kind <> 'n' OR CAST(a.payload AS INT) > b.x` the cast is computed only where the first operand is
not TRUE. The same holds for the branches of conditional functions. A guard over another variable
is dropped: its row is not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import exp

if TYPE_CHECKING:
    from spark_cep.expressions.conditions import Guards


TRUE, FALSE = "({})", "(NOT ({}))"
NOT_TRUE, NOT_FALSE = "(NOT (({}) <=> TRUE))", "(NOT (({}) <=> FALSE))"
_IS_NULL, _IS_NOT_NULL = "(({}) IS NULL)", "(({}) IS NOT NULL)"
_EQUAL, _NOT_LESS = "({}) = ({})", "({}) >= ({})"
_NEGATED = {TRUE: FALSE, FALSE: TRUE, NOT_TRUE: NOT_FALSE, NOT_FALSE: NOT_TRUE}

# The only variable that nodes mention, and their texts on its row (conditions.over_one_row).
OneRow = Callable[[Sequence["exp.Expr"]], tuple[int, tuple[str, ...]] | None]


def guarded_operands(node: exp.Expr, one_row: OneRow) -> Iterator[tuple[exp.Expr, Guards]]:
    """The operands of a node in Spark's order of evaluation, each with the guards that the operands
    before it imply."""
    rule = _RULES.get(type(node))
    if rule is not None:
        return rule(node, one_row)
    return ((operand, ()) for operand in node.iter_expressions())


def _connected(node: exp.And | exp.Or, one_row: OneRow) -> Iterator[tuple[exp.Expr, Guards]]:
    form = NOT_FALSE if isinstance(node, exp.And) else NOT_TRUE
    guards: Guards = ()
    for operand in node.flatten():
        yield operand, guards
        guards += _implied(operand, form, one_row)


def _case(node: exp.Case, one_row: OneRow) -> Iterator[tuple[exp.Expr, Guards]]:
    value, default = node.args.get("this"), node.args.get("default")
    guards: Guards = ()
    if value is not None:
        yield value, guards
    for branch in node.args["ifs"]:
        yield branch.this, guards
        yield branch.args["true"], guards + _tested(value, branch.this, TRUE, one_row)
        guards += _tested(value, branch.this, NOT_TRUE, one_row)
    if default is not None:
        yield default, guards


def _tested(value: exp.Expr | None, test: exp.Expr, form: str, one_row: OneRow) -> Guards:
    """CASE value WHEN test compares the two; CASE WHEN test is a condition."""
    if value is None:
        return _implied(test, form, one_row)
    return _guard_of((value, test), form.format(_EQUAL), one_row)


def _if(node: exp.If, one_row: OneRow) -> Iterator[tuple[exp.Expr, Guards]]:
    if isinstance(node.parent, exp.Case):
        return  # WHEN ... THEN ...: _case has yielded its operands
    yield node.this, ()
    yield node.args["true"], _implied(node.this, TRUE, one_row)
    if node.args.get("false") is not None:
        yield node.args["false"], _implied(node.this, NOT_TRUE, one_row)


def _nvl2(node: exp.Nvl2, one_row: OneRow) -> Iterator[tuple[exp.Expr, Guards]]:
    yield node.this, ()
    yield node.args["true"], _guard_of((node.this,), _IS_NOT_NULL, one_row)
    yield node.args["false"], _guard_of((node.this,), _IS_NULL, one_row)


def _coalesce(node: exp.Coalesce, one_row: OneRow) -> Iterator[tuple[exp.Expr, Guards]]:
    """NVL and IFNULL are parsed as COALESCE."""
    guards: Guards = ()
    for operand in (node.this, *node.expressions):
        yield operand, guards
        guards += _guard_of((operand,), _IS_NULL, one_row)


def _between(node: exp.Between, one_row: OneRow) -> Iterator[tuple[exp.Expr, Guards]]:
    value, low, high = (node.args[key] for key in ("this", "low", "high"))
    yield value, ()
    yield low, ()
    yield high, _guard_of((value, low), NOT_FALSE.format(_NOT_LESS), one_row)


def _in(node: exp.In, one_row: OneRow) -> Iterator[tuple[exp.Expr, Guards]]:
    yield node.this, ()
    guards: Guards = ()
    for earlier, item in pairwise((None, *node.expressions)):
        if earlier is not None:
            guards += _guard_of((node.this, earlier), NOT_TRUE.format(_EQUAL), one_row)
        yield item, guards


def _guard_of(nodes: Sequence[exp.Expr], form: str, one_row: OneRow) -> Guards:
    """`form` over the nodes, if they mention one variable."""
    found = one_row(nodes)
    return () if found is None else ((found[0], form.format(*found[1])),)


def _implied(node: exp.Expr, form: str, one_row: OneRow) -> Guards:
    """The guards on single rows that follow from a condition which is TRUE, FALSE, not TRUE or not
    FALSE."""
    whole = _guard_of((node,), form, one_row)
    if whole:
        return whole
    node = node.unnest()
    if isinstance(node, exp.Not):
        return _implied(node.this, _NEGATED[form], one_row)
    if isinstance(node, exp.And if form in {TRUE, NOT_FALSE} else exp.Or):
        operands = [_implied(operand, form, one_row) for operand in node.flatten()]
        return tuple(guard for guards in operands for guard in guards)
    return ()


_RULES: dict[type[exp.Expr], Callable[[Any, OneRow], Iterator[tuple[exp.Expr, Guards]]]] = {
    exp.And: _connected,
    exp.Or: _connected,
    exp.Case: _case,
    exp.If: _if,
    exp.Nvl2: _nvl2,
    exp.Coalesce: _coalesce,
    exp.Between: _between,
    exp.In: _in,
}
