"""Fetching ahead for whole sets of rows: the keys that the candidates of a variable know.

Where partial matches are walked, they ask for themselves (`postponed.py`). Rows say what will be
needed before there are any: under skip till next match, whose runs look at nearly all candidates
in their order, and between the triggers of a stream, for the rows that stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.events import numbers
from spark_cep.udfs.expressions import Cell, RemoteCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.udfs.program import Program
    from spark_cep.udfs.values.vectors import RemoteValues


def ask_ahead(program: Program, table: pa.Table, lookups: tuple[RemoteValues, ...]) -> None:
    """Starts fetching for all candidates among the rows, where the strategy says so."""
    if not table.num_rows or not any(lookup.remote.prefetches for lookup in lookups):
        return
    mask = numbers(table.column(program.mask))
    for variable, call, columns in _keyed_by_rows(program):
        lookup = lookups[call.remote]
        if lookup.remote.prefetches:
            rows = pa.array(np.flatnonzero(mask >> variable & 1))
            keys = [table.column(column).take(rows).combine_chunks() for column in columns]
            lookup.ask(lookup.ids(keys), ahead=True)


def _keyed_by_rows(program: Program) -> Iterator[tuple[int, RemoteCall, tuple[int, ...]]]:
    """Calls whose key is columns of one row: of which variable, and which columns."""
    seen = set()
    for condition in program.conditions:
        for node in condition.expression.walk():
            if not isinstance(node, RemoteCall):
                continue
            cells = [each for each in node.arguments if isinstance(each, Cell)]
            columns = tuple(cell.column for cell in cells if cell.column is not None)
            variables = {cell.variable for cell in cells}
            known = (node.remote, columns, *variables)
            if len(columns) == len(node.arguments) and len(variables) == 1 and known not in seen:
                seen.add(known)
                yield variables.pop(), node, columns
