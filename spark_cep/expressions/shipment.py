"""The columns that are shipped to the engine: collected while compiling, selected at once.

The compiler requests the expressions that it needs and gets indexes into `Program.columns`. Equal
expressions are shipped once. A computed expression is guarded: it is evaluated only on rows that
may be one of the variables that need it, because it may fail on others (`cast(payload AS int)`).
A plain column cannot fail and is never guarded.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_cep.udfs.canonical import normalized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.expressions.schema import RowExpression


ColumnRole = Literal["value", "mask", "slice", "home"]


@dataclass
class ShippedColumn:
    """One shipped column. `guards`: the variables that need it; None: computed on every row.
    `column`: the name of the input column if the expression is a plain one."""

    expression: RowExpression
    guards: frozenset[int] | None
    column: str | None = None
    role: ColumnRole = "value"

    def text(self) -> str:
        return str(self.expression) if self.column is None else self.column


class Shipment:
    """Columns to ship, by index; `columns`: the names of the input's columns, each once."""

    def __init__(self, columns: Sequence[str], *, case_sensitive: bool = False) -> None:
        self._fold = (lambda name: name) if case_sensitive else str.casefold
        self._columns = {self._fold(name): name for name in columns}
        self._index: dict[object, int] = {}
        self.shipped: list[ShippedColumn] = []

    def column(self, expression: RowExpression, *, guards: frozenset[int] = frozenset()) -> int:
        """The index of `expression`, computed on the candidates of `guards` (empty: on all rows).

        >>> shipment = Shipment(["ts", "price"])
        >>> shipment.column("ts"), shipment.column("abs(price)", guards=frozenset({0}))
        (0, 1)
        >>> shipment.column(" `TS` "), shipment.column("abs(price)", guards=frozenset({2}))
        (0, 1)
        >>> shipment.shipped[1].guards
        frozenset({0, 2})
        """
        name = self._plain(expression) if isinstance(expression, str) else None
        if name is not None:
            return self._add(("column", name), ShippedColumn(expression, None, name))
        wanted = ShippedColumn(expression, guards or None)
        if isinstance(expression, str):
            return self._add(("text", normalized(expression)), wanted)
        return self._add(("object", id(expression)), wanted)

    def special(self, role: ColumnRole, expression: RowExpression) -> int:
        """The index of the mask, the slice or the home flag; each is shipped once."""
        return self._add((role,), ShippedColumn(expression, None, role=role))

    def names(self) -> tuple[str, ...]:
        """The names of the shipped columns: c0, c1, ..."""
        return tuple(f"c{place}" for place in range(len(self.shipped)))

    def as_now(self) -> Shipment:
        """A copy that later requests do not change."""
        frozen = copy(self)
        frozen.shipped, frozen._index = list(self.shipped), dict(self._index)
        return frozen

    def _add(self, key: object, wanted: ShippedColumn) -> int:
        place = self._index.get(key)
        if place is None:
            self._index[key] = len(self.shipped)
            self.shipped.append(wanted)
            return len(self.shipped) - 1
        known = self.shipped[place]
        if known.guards is None or wanted.guards is None:
            known.guards = None
        else:
            known.guards |= wanted.guards
        return place

    def _plain(self, text: str) -> str | None:
        """The input column that the text names, if it is a plain reference."""
        text = text.strip()
        if re.fullmatch(r"[^\W\d]\w*", text):
            return self._columns.get(self._fold(text))
        found = re.fullmatch(r"`((?:[^`]|``)+)`", text)
        return self._columns.get(self._fold(found[1].replace("``", "`"))) if found else None
