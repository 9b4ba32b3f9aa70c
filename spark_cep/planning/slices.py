"""Time slices: one partition, or a hot key, cut so that many cores can work on it.

Under skip-till-any with reuse and a time window w, a match and everything that can block it lie
within w of its latest row. So time is cut into slices of 16 w, each row is copied into the slices
that its window reaches, and a match is kept only in the slice where its latest row is *home*.
One row in sixteen is copied: no statistics are needed.

Always holds: `slice_of` never decreases with time, in exact and in floating arithmetic. Then two
rows at most w apart share a slice: the earlier one is copied to every slice up to that of its
time plus w. Where a negation looks beyond the latest row (NOT at the end, NOT under AND), rows
are copied back by w as well. What lies before a match, back to its latest row minus w, is there
already through the copies forward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.expressions import Kind, Type
    from spark_cep.udfs.program import Branch, Consumption, Strategy, Window

WINDOWS_IN_A_SLICE = 16

_INTEGERS: frozenset[Kind] = frozenset({"int", "date", "timestamp", "timestamp_ntz"})
_LARGEST = 2**63 - 1
# Doubles further out than so many slices are all in one: there, rounding exceeds the window.
_FURTHEST = 2**45


@dataclass(frozen=True)
class Slicing:
    """How time is cut. `type` is that of the event time, `window` in the unit of `coordinate`;
    `back`: a negation looks beyond the latest row.

    All methods take and give SQL text, over the shipped event time.
    """

    type: Type
    window: float
    back: bool

    def home(self, time: str) -> str:
        """The slice that a row belongs to, a bigint."""
        return self._slice(coordinate(self.type, time))

    def slices(self, time: str) -> str:
        """All slices that need the row, as an array; [NULL] where the time is NULL.

        >>> from spark_cep.udfs.expressions import Type
        >>> Slicing(Type("int"), 10, back=False).home("c1")
        '(CAST(c1 AS BIGINT)) DIV 160L'
        """
        at = coordinate(self.type, time)
        first = self._slice(self._moved(at, "subtract") if self.back else at)
        last = self._slice(self._moved(at, "add"))
        # NULL < ... is not TRUE: a row without a time goes to the slice NULL.
        return f"CASE WHEN {first} < {last} THEN sequence({first}, {last}) ELSE array({first}) END"

    def _slice(self, at: str) -> str:
        if self.type.kind in _INTEGERS:
            # DIV truncates toward zero: slice 0 is twice as long, which does no harm.
            length = min(max(1, math.ceil(self.window) * WINDOWS_IN_A_SLICE), _LARGEST)
            return f"({at}) DIV {length}L"
        share = f"({at}) / {self.window * WINDOWS_IN_A_SLICE!r}D"
        return f"floor(greatest(least({share}, {_FURTHEST}D), -{_FURTHEST}D))"

    def _moved(self, at: str, how: str) -> str:
        if self.type.kind in _INTEGERS:
            shift = min(math.ceil(self.window), _LARGEST)
            edge = _LARGEST if how == "add" else -_LARGEST
            return (
                f"CASE WHEN {at} IS NOT NULL THEN coalesce(try_{how}({at}, {shift}L), {edge}L) END"
            )
        # A difference that rounds to w may be a little more than w.
        sign = "+" if how == "add" else "-"
        return f"{at} {sign} ({self.window!r}D * 1.000000001D + abs({at}) * 1e-15D)"


def coordinate(type_: Type, time: str) -> str:
    """Event time as a number that never decreases with it: SQL text of a bigint or double."""
    if type_.kind == "timestamp":
        return f"unix_micros({time})"
    if type_.kind == "timestamp_ntz":
        return f"({time} - TIMESTAMP_NTZ '1970-01-01') DIV INTERVAL '0.000001' SECOND"
    if type_.kind == "date":
        return f"CAST(unix_date({time}) AS BIGINT)"
    return f"CAST({time} AS {'BIGINT' if type_.kind == 'int' else 'DOUBLE'})"


def slicing(
    branches: Sequence[Branch],
    window: Window | None,
    type_: Type,
    rules: tuple[Strategy, Consumption],
) -> Slicing | None:
    """How time may be cut for a pattern; None where a slice could change the answer."""
    if window is None or window.kind != "time" or rules != ("any", "reuse"):
        return None
    negations = [
        negation
        for branch in branches
        for group in (branch.negations, *branch.covered)
        for negation in group
    ]
    back = any(negation.place in ("end", "around") for negation in negations)
    size = window.size / 10**type_.scale if type_.kind == "decimal" else window.size
    # Slices may be longer than they must: a window of 0 is sliced like one of 1.
    return Slicing(type_, float(size) or 1.0, back)
