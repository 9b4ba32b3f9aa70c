"""Consumption: going through the complete answer in order and using every event once.

Matches are ranked by latest event, earliest event, then the order keys in pattern order; one is
taken when none of its events was used by a taken one. That is sequential within a key, so a
compiled loop walks the ranked matches; everything around it is columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.errors import PatternError

if TYPE_CHECKING:
    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.matching import Found, Matching


def consumed(matching: Matching, matches: Sequence[Found], used: Flags) -> list[Found]:
    """The matches taken; marks their rows in `used`."""
    _refuse_ties(matching)
    matches = [found for found in matches if len(found)]
    if not matches:
        return []
    ends = np.cumsum([len(found) for found in matches])
    rows, offsets = _rows(matches)
    taken = np.zeros(int(ends[-1]), dtype=np.bool_)
    _kernel()(_ranked(matching, matches), offsets, rows, used, taken)
    return [
        found.take(np.flatnonzero(taken[end - len(found) : end]))
        for found, end in zip(matches, ends, strict=True)
        if taken[end - len(found) : end].any()
    ]


def _refuse_ties(matching: Matching) -> None:
    events = matching.events
    candidate = np.zeros(events.size + 1, dtype=np.int64)
    mask = np.zeros(events.size, dtype=np.bool_)
    for variable in range(len(matching.program.variables)):
        mask |= events.candidates(variable)
    np.cumsum(mask, out=candidate[1:])
    tied = np.flatnonzero(candidate[events.tie.end] - candidate[events.tie.start] > 1)
    if len(tied):
        key = events.key_of(int(tied[0]))
        raise PatternError(
            f'consumption "consume" needs a strict order, but partition key {key!r} has rows with '
            f"equal order keys at {events.start_of(int(tied[0]))}",
            hint="add columns to order_by that tell the rows apart",
            details={"key": key},
        )


def _ranked(matching: Matching, matches: Sequence[Found]) -> Positions:
    """Match numbers in rank order. Positions follow the order keys, and without ties they say
    everything; unfilled variables rank first, lists by their elements from the left."""
    width = {
        variable: max(_columns(found, variable) for found in matches)
        for variable in range(len(matching.program.variables))
    }
    keys = [
        np.concatenate([_padded(found, variable, place) for found in matches])
        for variable in range(len(matching.program.variables))
        for place in range(width[variable])
    ]
    earliest = np.concatenate([found.earliest for found in matches])
    latest = np.concatenate([found.latest for found in matches])
    return np.lexsort([*reversed(keys), earliest, latest])


def _columns(found: Found, variable: int) -> int:
    rows = found.rows.get(variable)
    if rows is None:
        return 0
    return 1 if rows.ndim == 1 else rows.shape[1]


def _padded(found: Found, variable: int, place: int) -> Positions:
    if place >= _columns(found, variable):
        return np.full(len(found), -1, dtype=np.int64)
    rows = found.rows[variable]
    return rows if rows.ndim == 1 else rows[:, place]


def _rows(matches: Sequence[Found]) -> tuple[Positions, Positions]:
    """All rows of all matches, and where each match's begin."""
    parts = [
        np.concatenate([r.reshape(len(found), -1) for r in found.rows.values()], axis=1)
        for found in matches
    ]
    lengths = np.concatenate([np.full(len(p), p.shape[1], dtype=np.int64) for p in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return np.concatenate([part.ravel() for part in parts]), offsets


@cache
def _kernel() -> Callable[..., None]:
    """Compiled on first use: importing numba costs most of a second."""
    import numba  # noqa: PLC0415

    compiled: Callable[..., None] = numba.njit(cache=True)(_take_in_order)
    return compiled


def _take_in_order(
    ranked: npt.NDArray[Any],
    offsets: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    used: npt.NDArray[Any],
    taken: npt.NDArray[Any],
) -> None:
    for match in ranked:
        free = True
        for at in range(offsets[match], offsets[match + 1]):
            if used[rows[at]]:
                free = False
                break
        if free:
            taken[match] = True
            for at in range(offsets[match], offsets[match + 1]):
                used[rows[at]] = True
