"""The utility of a row by its position in the window: eSPICE.

eSPICE (Slo, Bhowmik and Rothermel, Middleware 2019) gives an event the utility of its type and its
position in the window: the share of such events that were part of a match. A type is a variable of
the pattern here, and a window a stretch of event time as long as WITHIN, one after the other. The
windows of a pattern slide with each match, so a row has a position in as many of them as there are
rows that a match may begin with, and no position of its own in any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.shedding.passing import (
    ORDERED_KINDS,
    PRIOR_DRAWS,
    Feature,
    PassTable,
    round_shares,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.program import Program
    from spark_cep.udfs.shedding.matches import MatchSample

# Positions that are told apart; the paper joins neighboring ones to keep its table small.
POSITIONS: Final = 20


def position_tables(
    program: Program, table: pa.Table, matches: MatchSample
) -> tuple[PassTable, ...]:
    """For each positive variable the shares of its rows, by position, that were in matches."""
    feature = position_feature(program)
    if feature is None:
        return ()
    mask = column_to_numpy(table.column(program.mask)).astype(np.int64)
    bins = feature.bins(table.column(feature.column))
    found = []
    for variable, each in enumerate(program.variables):
        here = matches.searched & ((mask >> variable & 1) != 0)
        if each.negated or not here.any():
            continue
        rows = np.bincount(bins[here], minlength=feature.size)
        used = np.bincount(bins[here & matches.contains(variable)], minlength=feature.size)
        mean = float(used.sum() / rows.sum())
        shares = (used + PRIOR_DRAWS * mean) / (rows + PRIOR_DRAWS)
        found.append(PassTable(variable, (), (feature,), round_shares(shares), mean))
    return tuple(found)


def position_feature(program: Program) -> Feature | None:
    """The position of an event time in its window, in equal parts; None if times of this type have
    no place on a scale."""
    order, window = program.orders[0], program.window
    if window is None or order.type.kind not in ORDERED_KINDS:
        return None
    size = window.size / 10**order.type.scale if order.type.kind == "decimal" else window.size
    period = float(size) or 1.0
    splits = tuple(period * part / POSITIONS for part in range(1, POSITIONS))
    return Feature(order.column, order.type, splits, period=period)
