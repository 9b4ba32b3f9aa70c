"""A condition of DEFINE as a conjunct whose variables are the rows that its names are read at.

So what a part over one variable is to an event pattern, a part over one row is here, and the
engine's rules for conjuncts hold for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.conditions import Conjunct
from spark_cep.compiling.parts import row_part
from spark_cep.compiling.rows.texts import CURRENT, Row, RowText

if TYPE_CHECKING:
    from spark_cep.compiling.names import Reference

# Named with every call, so that nothing with a call in it passes for a part over one row.
CALL = frozenset({-1, -2})


class RowConjunct(Conjunct):
    """A condition whose `variables` are the rows that its names are read at, by their number in
    `rows`; number 0 is the row under test."""

    def __init__(self, text: RowText) -> None:
        self.row_text_ = text
        self.rows: list[Row] = [CURRENT]
        references = [replace(each, variable=self._number(each)) for each in text.references]
        super().__init__(text.parsed, text.parsed.root, references, None)

    def number(self, row: Row) -> int:
        if row not in self.rows:
            self.rows.append(row)
        return self.rows.index(row)

    def _number(self, reference: Reference) -> int:
        return self.number(self.row_text_.row_of(reference))

    def names_anything(self, node: exp.Expr) -> bool:
        return bool(self.named(node))

    @cached_property
    def _named(self) -> dict[int, frozenset[int]]:
        found: dict[int, frozenset[int]] = {}
        for node in reversed(list(self.node.walk())):
            reference = self.reference(node)
            own = frozenset() if reference is None else frozenset({reference.variable})
            if self.row_text_.calls.at(node) is not None:
                own |= CALL
            found[id(node)] = own.union(*(found[id(child)] for child in node.iter_expressions()))
        return found


def hoistable(conjunct: RowConjunct, node: exp.Expr | None = None) -> Iterator[str]:
    """The texts that a translation will probably ask Spark about."""
    node = conjunct.node if node is None else node
    part = row_part(conjunct, node)
    if part is not None:
        yield part.text
        return
    is_flat = isinstance(node, exp.And | exp.Or)
    for child in node.flatten() if is_flat else node.iter_expressions():
        yield from hoistable(conjunct, child)
