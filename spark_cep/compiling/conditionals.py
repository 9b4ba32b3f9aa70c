"""The engine's choices: CASE, IF, NVL2, COALESCE, LEAST, GREATEST, NULLIF.

What is chosen from is brought to one type first, as Spark does. A branch is translated under the
guard of its test, so that what is hoisted from it is computed only where it could be taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.operands import Inexact
from spark_cep.compiling.operations import alike, comparison, negation
from spark_cep.compiling.parts import NOT_TRUE, TRUE, Guards, guard
from spark_cep.udfs.expressions import BOOL, Call, Constant, Expression, Type

if TYPE_CHECKING:
    from spark_cep.compiling.translation import Translation

_NULL = Constant(None, Type("null"))
_FIRST_OF: dict[type[exp.Expr], str] = {
    exp.Coalesce: "coalesce",
    exp.Least: "least",
    exp.Greatest: "greatest",
}


def case(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    if node.args.get("this") is not None:
        return _simple_case(t, node, guards)
    tests, results = [], []
    for branch in node.args["ifs"]:
        tests.append(t.boolean(branch.this, guards))
        taken = guards + guard(t.conjunct, branch.this, TRUE)
        results.append(t.build(branch.args["true"], taken))
        guards += guard(t.conjunct, branch.this, NOT_TRUE)
    return _chosen(t, tests, [*results, _otherwise(t, node.args.get("default"), guards)])


def _simple_case(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """CASE value WHEN other THEN ...: the value is compared with each."""
    value = t.build(node.args["this"], guards)
    tests, results = [], []
    for branch in node.args["ifs"]:
        tests.append(comparison(t, "=", value, t.build(branch.this, guards)))
        results.append(t.build(branch.args["true"], guards))
    return _chosen(t, tests, [*results, _otherwise(t, node.args.get("default"), guards)])


def if_(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    test = t.boolean(node.this, guards)
    then = t.build(node.args["true"], guards + guard(t.conjunct, node.this, TRUE))
    others = guards + guard(t.conjunct, node.this, NOT_TRUE)
    return _chosen(t, [test], [then, _otherwise(t, node.args.get("false"), others)])


def nvl2(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    test = negation(Call("is_null", (t.build(node.this, guards),), BOOL))
    return _chosen(t, [test], [t.build(node.args[key], guards) for key in ("true", "false")])


def first_of(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    """COALESCE, LEAST, GREATEST."""
    operands = [t.build(each, guards) for each in (node.this, *node.expressions)]
    operands = _alike(t, operands)
    return Call(_FIRST_OF[type(node)], tuple(operands), operands[0].type)


def nullif(t: Translation, node: exp.Expr, guards: Guards) -> Expression:
    left, right = (t.build(each, guards) for each in (node.this, node.expression))
    equal = comparison(t, "=", left, right)
    return Call("if", (equal, Constant(None, left.type), left), left.type)


def _otherwise(t: Translation, node: exp.Expr | None, guards: Guards) -> Expression:
    return _NULL if node is None else t.build(node, guards)


def _chosen(
    t: Translation, tests: Sequence[Expression], results: Sequence[Expression]
) -> Expression:
    """Nested ifs, from the last branch inwards."""
    *branches, default = _alike(t, results)
    pairs = reversed(list(zip(tests, branches, strict=True)))
    return reduce(
        lambda otherwise, pair: Call("if", (*pair, otherwise), otherwise.type), pairs, default
    )


def _alike(t: Translation, operands: Sequence[Expression]) -> list[Expression]:
    if all(operand.type.kind == "null" for operand in operands):
        raise Inexact("nothing but NULL")
    return alike(t, operands)
