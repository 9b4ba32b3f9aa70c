"""Partial matches that are not followed: load shedding inside the engine.

A rule says which share stays of the pairs of a partial match and a row, or of the partial matches,
by state and by the time between their rows. Between 0 and 1, a hash of the rows decides.

Always holds: a decision depends on the values of the rows, the slots that are filled and the rule,
not on what else is there. So a match is given if none of the partial matches that lead to it in
the plan's order is dropped, however rows come and are divided; and none is given that is not one of
the full answer. Walks that look for what a NOT forbids have no observer (`walk.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.values.arrow_values import to_single_array
from spark_cep.udfs.values.codes import hash_values, mix_hashes

if TYPE_CHECKING:
    from spark_cep.udfs.events.metrics import Metrics
    from spark_cep.udfs.events.partials import Partials
    from spark_cep.udfs.events.table import Events, Flags, Positions
    from spark_cep.udfs.program import DroppingRule, PartialState

# Parts of the window that are told apart.
WINDOW_PARTS: Final = 20
# Of pairs: the row may be up to a window before the first row so far, or behind it.
PAIR_BINS: Final = 2 * WINDOW_PARTS
_STEP: Final = 0x9E3779B97F4A7C15

Hashes = npt.NDArray[np.uint64]


class PartialDropper:
    """Applies a rule to the partial matches among some events, and counts what it drops."""

    def __init__(self, rule: DroppingRule, events: Events, metrics: Metrics) -> None:
        self._rule = rule
        self._events = events
        self._metrics = metrics
        self._kept = {at: np.array(shares) for at, shares in rule.kept.items()}

    def offered(
        self, at: PartialState, partials: Partials, pick: Positions, elements: Positions
    ) -> Flags | None:
        if self._rule.drops != "pairs":
            return None

        def bins() -> Positions:
            return pair_bins(self._events, partials.earliest[pick], elements)

        def hashes() -> Hashes:
            # Of the pair as a set of rows, each with the slot that it fills.
            return self._hash_partials(partials)[pick] + self._hash_rows(at.slot, elements)

        stays = self._decide(at, len(pick), bins, hashes)
        if stays is not None:
            self._metrics.dropped_pairs += len(stays) - int(np.count_nonzero(stays))
        return stays

    def extended(self, at: PartialState, partials: Partials, *, is_whole: bool) -> Partials:
        if self._rule.drops != "partials" or is_whole or not len(partials):
            return partials
        stays = self._decide(
            at,
            len(partials),
            lambda: partial_bins(self._events, partials),
            lambda: self._hash_partials(partials),
        )
        if stays is None:
            return partials
        self._metrics.dropped_partials += len(stays) - int(np.count_nonzero(stays))
        return partials.take(stays)

    def finished(self, partials: Partials) -> None:
        """Matches are not dropped."""

    def _decide(
        self,
        at: PartialState,
        size: int,
        bins: Callable[[], Positions],
        hashes: Callable[[], Hashes],
    ) -> Flags | None:
        """Flags of what stays; None for all."""
        table = self._kept.get(at)
        shares = np.full(size, self._rule.others) if table is None else table[bins()]
        if (shares >= 1).all():
            return None
        stays: Flags = shares >= 1
        if (open_ := (shares > 0) & ~stays).any():
            stays |= open_ & (as_shares(mix_hashes(hashes())) < shares)
        return stays

    # ---- hashes --------------------------------------------------------------------------------

    def _hash_partials(self, partials: Partials) -> Hashes:
        found = np.zeros(len(partials), dtype=np.uint64)
        for slot, bound in partials.elements.items():
            rows = bound if bound.ndim == 2 else bound[:, np.newaxis]
            found += self._hash_rows(slot, rows).sum(axis=1, dtype=np.uint64)
        return found

    def _hash_rows(self, slot: int, rows: Positions) -> Hashes:
        return mix_hashes(self._of_events[rows] + np.uint64((slot + 1) * _STEP % 2**64))

    @cached_property
    def _of_events(self) -> Hashes:
        return hash_events(self._events, self._rule.seed)


def as_shares(hashes: Hashes) -> npt.NDArray[np.float64]:
    """Hashes as numbers in [0, 1)."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def hash_events(events: Events, seed: int) -> Hashes:
    """A hash of each position, of the row's keys and order columns. Slices of time are no keys."""
    program, table = events.program, events.table
    keys = program.keys if program.home is None else program.keys[:-1]
    found = np.full(table.num_rows, (seed + 1) * _STEP % 2**64, dtype=np.uint64)
    for column in (*keys, *(order.column for order in program.orders)):
        found = mix_hashes(found * np.uint64(31) + _hash_column(table.column(column)))
    return np.asarray(found[events.permutation])


def _hash_column(column: pa.ChunkedArray) -> Hashes:
    """Numbers and times by their bits: there may be as many as rows."""
    array = to_single_array(column)
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if array.null_count or not (is_number or pa.types.is_temporal(array.type)):
        return hash_values(array)
    numbers: npt.NDArray[Any] = column_to_numpy(column)
    if numbers.dtype.kind == "f":
        # Zeros are equal, whatever their sign.
        numbers = numbers.astype(np.float64) + 0.0
    return numbers.view(np.uint64)


# ---- the time between rows -----------------------------------------------------------------------


def pair_bins(events: Events, earliest: Positions, rows: Positions) -> Positions:
    """The part of the window that a row lies in, counted from a window before the first row of the
    partial match on."""
    parts = _window_parts(events, earliest, rows) + WINDOW_PARTS
    return np.clip(parts, 0, PAIR_BINS - 1)


def partial_bins(events: Events, partials: Partials) -> Positions:
    """The part of the window that has passed between the first row of a partial match and its
    last."""
    parts = _window_parts(events, partials.earliest, partials.latest)
    return np.clip(parts, 0, WINDOW_PARTS - 1)


def _window_parts(events: Events, begin: Positions, end: Positions) -> Positions:
    window = events.program.window
    assert window is not None
    passed = (events.time[end] - events.time[begin]) / (window.size or 1)
    return np.floor(passed * WINDOW_PARTS).astype(np.int64)
