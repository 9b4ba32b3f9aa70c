"""Conditions cut into conjuncts, each a text for Pattern.where.

Each conjunct is a text of its own, because the compiler tests and explains conjuncts, and because
one that names an unfilled variable is not tested: left whole, `a < b < c` without a c would say
nothing of a and b. ∀ is counted out and SAME is tied here: inside OR or NOT they are no conjuncts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.sql.sase_nodes import Expression, ForAll, Joined, Same
from spark_cep.sql.sase_same import equal_pairs
from spark_cep.sql.sase_writing import ALONE, COMPARED, Frame, counted, links, text_of

if TYPE_CHECKING:
    from spark_cep.sql.sase_scope import Scope


@dataclass(frozen=True)
class Conjunct:
    """`variables`: the names of those that it mentions."""

    text: str
    variables: frozenset[str]


def conjuncts(node: Expression, scope: Scope) -> list[Conjunct]:
    """Every conjunct once, in the order of the text."""
    found = _conjuncts(node, Frame(scope, scope.symbols.numbers))
    return list(dict.fromkeys(found))


def _conjuncts(node: Expression, frame: Frame) -> Iterator[Conjunct]:
    if isinstance(node, Joined) and node.operator == "AND":
        for part in node.parts:
            yield from _conjuncts(part, frame)
    elif isinstance(node, ForAll):
        for inner in counted(node, frame):
            yield from _conjuncts(node.body, inner)
    elif isinstance(node, Same):
        for attribute in node.attributes:
            for text, variables in _equalities(attribute, frame):
                yield Conjunct(text, variables)
    else:
        for part in links(node):
            inner = replace(frame, named=set())
            text = text_of(part, inner, ALONE)
            yield Conjunct(text, frozenset(inner.named))


def _equalities(attribute: Expression, frame: Frame) -> Iterator[tuple[str, frozenset[str]]]:
    for one, other in equal_pairs(frame.scope.variables):
        right = text_of(attribute, replace(frame, own=other, named=set()), COMPARED)
        if one is other:
            left, right = right, f"prev({right})"
        else:
            left = text_of(attribute, replace(frame, own=one, named=set()), COMPARED)
        yield f"{left} = {right}", frozenset({one.name, other.name})
