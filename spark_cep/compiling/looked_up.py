"""Which calls of `remote(...)` become columns of the rows.

A table's, where the key is of one variable's row: Spark joins it before matching. A fetched
source's only where the engine cannot compute on its value, and then by the same rule. Wherever a
call became a column, the conjunct has a name in its place; so masks, hoisting, inferred keys and
conditions after matching work on it as on the input's own columns, and every place in a message
is still one of the user's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.lookups import LookedUp
from spark_cep.compiling.names import Reference
from spark_cep.compiling.parts import NOT_FALSE, NOT_TRUE, TRUE, guard, is_column
from spark_cep.compiling.remote_calls import is_remote, lambda_argument

if TYPE_CHECKING:
    from spark_cep.compiling.conditions import Conjunct
    from spark_cep.compiling.lookups import Lookups
    from spark_cep.compiling.problems import Problems
    from spark_cep.compiling.remote_calls import RemoteText
    from spark_cep.compiling.spans import Parsed


def is_sound_call(parsed: Parsed, call: RemoteText, lookups: Lookups, problems: Problems) -> bool:
    """Whether the call can be meant so; else it becomes a problem."""
    argument = lambda_argument(call)
    if argument is not None:
        problems.add(
            f"the key of {call.name!r} is {argument} of a lambda, another one for each element",
            call.place,
            hint="explode the array before matching, and look up by the column",
        )
        return False
    known = lookups.known[call.name]
    if known.keys is not None and len(known.keys) != len(call.keys):
        columns = ", ".join(name for name, _ in known.keys)
        wanted = f"{len(known.keys)} part{'s' * (len(known.keys) > 1)}"
        problems.add(
            f"the key of {call.name!r} has {wanted}, {columns}, and this call gives "
            f"{len(call.keys)}",
            call.place,
            hint=f"write remote('{call.name}', {', '.join(f'a.{n}' for n, _ in known.keys)})",
        )
        return False
    return True


def variable_of(conjunct: Conjunct, call: RemoteText) -> int | None:
    """The one variable on whose row the key can be computed."""
    if not all(conjunct.is_of_rows(key) for key in call.keys):
        return None
    named = frozenset[int]().union(*(conjunct.named(key) for key in call.keys))
    if not named and conjunct.is_of_rows(conjunct.node) and len(conjunct.variables) == 1:
        named = conjunct.variables
    return next(iter(named)) if len(named) == 1 else None


def with_columns(conjunct: Conjunct, lookups: Lookups, *, fetched: bool = False) -> Conjunct:
    """The conjunct with columns in place of its calls, those of tables or all."""
    left, references = [], list(conjunct.references)
    outer = _without_calls(conjunct)
    for call in conjunct.calls:
        known = lookups.known[call.name]
        variable = variable_of(outer, call) if known.is_table or fetched else None
        if variable is None:
            left.append(call)
            continue
        start, end = call.place.start, call.place.end
        column = _column(outer, call, variable, lookups)
        references = [r for r in references if not start <= r.start < end]
        references.append(Reference(call.node, variable, column.column, start, end))
    if len(left) == len(conjunct.calls):
        return conjunct
    return type(conjunct)(conjunct.parsed, conjunct.node, references, conjunct.own, left)


def _without_calls(conjunct: Conjunct) -> Conjunct:
    """Of calls nobody asks whether they are there: so a call does not hinder itself."""
    return type(conjunct)(conjunct.parsed, conjunct.node, conjunct.references, conjunct.own)


def _column(conjunct: Conjunct, call: RemoteText, variable: int, lookups: Lookups) -> LookedUp:
    known = lookups.known[call.name]
    keys = tuple(conjunct.row_text(key) for key in call.keys)
    places = [conjunct.parsed.place(key) for key in call.keys]
    wanted = LookedUp("", known, keys)
    if not all(isinstance(k, exp.Literal) or is_column(conjunct, k) for k in call.keys):
        mine = [text for v, text in _guards(conjunct, call.node) if v == variable]
        wanted = LookedUp("", known, keys, variable, tuple(mine))
    return lookups.column(wanted, places)


def _guards(conjunct: Conjunct, node: exp.Expr) -> Iterator[tuple[int, str]]:
    """What the text around a node says about the rows on which it is evaluated."""
    while node is not conjunct.node and node.parent is not None:
        inner, node = node, node.parent
        if isinstance(node, exp.And | exp.Or) and inner is node.expression:
            form = NOT_FALSE if isinstance(node, exp.And) else NOT_TRUE
            for operand in node.this.flatten() if type(node.this) is type(node) else [node.this]:
                yield from _guard(conjunct, operand, form)
        elif isinstance(node, exp.If):
            if inner is node.args.get("true"):
                yield from _guard(conjunct, node.this, TRUE)
            elif inner is node.args.get("false"):
                yield from _guard(conjunct, node.this, NOT_TRUE)
        elif isinstance(node, exp.Case) and node.args.get("this") is None:
            for branch in node.args["ifs"]:
                if branch is inner:
                    break
                yield from _guard(conjunct, branch.this, NOT_TRUE)


def _guard(conjunct: Conjunct, node: exp.Expr, form: str) -> Iterator[tuple[int, str]]:
    """Not what asks for a value itself: that is not there yet."""
    if not any(is_remote(each) for each in node.walk()):
        yield from guard(conjunct, node, form)
