"""Rows of a stream that are delayed in front of the engine, until their remote values are there.

A source with `max_wait` holds a trigger up for that long. What is undecided then is decided by
rows: a row whose key has no answer yet stays in the state of its bucket, as if it had not arrived,
and the engine's horizon stays before it, as if the watermark had waited for it. So the engine gives
what it gives for any other order of arrival, and each match once: when its last row has its values.

Values of rows that the engine has already may be gone, by `ttl`, an eviction or a restart. Then all
new rows of the bucket are delayed, since the engine would wait for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.coroutines import POLL_SECONDS, Wait, pass_turn
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.expressions import Cell, RemoteCall, variables_of
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.execution.state import StateHeader, StateStore
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.remotes.lookup import Lookup


# Beside the blobs of `segments.py`.
DELAYED_BLOB: Final = -3


@dataclass(frozen=True)
class RowKey:
    """A key of a source that is made of columns of one variable's rows."""

    remote: int
    variable: int
    columns: tuple[int, ...]


def has_delay(program: Program) -> bool:
    return any(each.max_wait is not None for each in program.remotes)


def row_keys(program: Program) -> tuple[list[RowKey], list[RemoteCall]]:
    """The keys that decide which rows are delayed, and the calls that do not allow it: those with
    keys of several rows."""
    keys: dict[RowKey, None] = {}
    others: list[RemoteCall] = []
    for condition in program.conditions:
        for node in condition.expression.walk():
            if not isinstance(node, RemoteCall) or program.remotes[node.remote].max_wait is None:
                continue
            cells = [each for each in node.arguments if isinstance(each, Cell)]
            columns = tuple(each.column for each in cells if each.column is not None)
            variables = set(variables_of(node))
            if len(columns) == len(node.arguments) and len(variables) == 1:
                keys[RowKey(node.remote, variables.pop(), columns)] = None
            else:
                others.append(node)
    return list(keys), others


class RowDelay:
    """Decides which rows the engine of one bucket gets in one trigger. `until`: when the trigger
    stops waiting, by `time.monotonic`."""

    def __init__(self, program: Program, lookups: Sequence[Lookup], until: float) -> None:
        self._program = program
        self._lookups = lookups
        self._until = until
        self._keys, _ = row_keys(program)

    def split(self, kept: pa.Table | None, rows: pa.Table) -> Flags | None:
        """Which rows are to be delayed, when all values are there or the time is over. None: all of
        them, and the engine must not match, because it would wait for values of rows that it has,
        `kept`."""
        waiting = [*self._ids(rows)]
        needed = [] if kept is None else [*self._ids(kept)]
        every = [*waiting, *needed]
        for lookup, _, ids in every:
            lookup.ask(np.unique(ids))
        while not self._is_over(every):
            wait = Wait(_Poll([lookup for lookup, _, _ in every]), lambda: self._is_over(every))
            if not pass_turn(wait):
                wait.source.wait_for_result()
        if any(lookup.is_open(ids).any() for lookup, _, ids in needed):
            return None
        delayed = np.zeros(rows.num_rows, dtype=np.bool_)
        for lookup, places, ids in waiting:
            delayed[places[lookup.is_open(ids)]] = True
        return delayed

    def _is_over(self, every: Sequence[tuple[Lookup, Positions, Positions]]) -> bool:
        if time.monotonic() >= self._until:
            return True
        return not any(lookup.is_open(ids).any() for lookup, _, ids in every)

    def _ids(self, rows: pa.Table) -> Iterator[tuple[Lookup, Positions, Positions]]:
        """For each key its lookup, the rows that may need its value, and their ids."""
        if not rows.num_rows:
            return
        mask = column_to_numpy(to_single_array(rows.column(self._program.mask)))
        for key in self._keys:
            places = np.flatnonzero(mask >> key.variable & 1)
            taken = pa.array(places)
            columns = [to_single_array(rows.column(c)).take(taken) for c in key.columns]
            lookup = self._lookups[key.remote]
            yield lookup, places, lookup.ids(columns)


class _Poll:
    """Looks at sources in short intervals, so that the time does not pass unnoticed."""

    def __init__(self, lookups: Sequence[Lookup]) -> None:
        self._lookup = lookups[0]

    def wait_for_result(self, seconds: float | None = None) -> None:
        del seconds
        self._lookup.wait_for_result(POLL_SECONDS)


# ---- the delayed rows of a bucket ----------------------------------------------------------------


def load_delayed(store: StateStore, header: StateHeader) -> pa.Table | None:
    from spark_cep.udfs.execution.job import from_blob  # noqa: PLC0415

    return from_blob(store.read(DELAYED_BLOB)) if header.delayed else None


def save_delayed(store: StateStore, header: StateHeader, delayed: pa.Table | None) -> None:
    from spark_cep.udfs.execution.job import to_blob  # noqa: PLC0415

    had, header.delayed = header.delayed, 0 if delayed is None else delayed.num_rows
    if delayed is not None and header.delayed:
        store.write(DELAYED_BLOB, to_blob(delayed.combine_chunks()))
    elif had:
        store.remove(DELAYED_BLOB)


def horizon_before(horizon: int, delayed: pa.Table | None, time_column: int) -> int:
    """The event time up to which all rows but the delayed ones have come. Those without a time are
    ignored anyway."""
    if delayed is None or not delayed.num_rows:
        return horizon
    times = to_single_array(delayed.column(time_column)).drop_null()
    if not len(times):
        return horizon
    return min(horizon, int(column_to_numpy(times).min()) - 1)
