"""The matches of a table by the engine, as rows of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.program import Plan

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.program import Program


def counted_matches(program: Program, table: pa.Table) -> list[np.ndarray]:
    """Arrays with a row for each match, of the rows of the table that it has."""
    step = advance_events(replace(program, plan=Plan("lazy-chain")), EventState(), table, None)
    found = []
    for each in step.matches:
        columns = [step.events.rows(positions) for positions in each.rows.values()]
        if columns:
            parts = [c if c.ndim > 1 else c[:, np.newaxis] for c in columns]
            found.append(np.concatenate(parts, axis=1))
    return found


def share_kept(found: list[np.ndarray], stays: np.ndarray) -> float:
    """The share of the matches all of whose rows stay."""
    every = sum(len(each) for each in found)
    return sum(int(stays[each].all(axis=1).sum()) for each in found) / max(every, 1)
