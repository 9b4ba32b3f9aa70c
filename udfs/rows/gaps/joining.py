"""The points of a pattern as an event pattern over positions, for the join engine.

Each point is a variable of a SEQ whose order key is the row's position, so no two rows are tied.
Conditions over several points are the program's conditions; what concerns one row is in the
candidate mask already. Distances, gaps and WITHIN are ranges of positions (`distances.py`) and
no conditions at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.events import NEW, Events
from spark_cep.udfs.expressions import BIGINT
from spark_cep.udfs.joining.any_match import BranchMatcher
from spark_cep.udfs.joining.cases import Case
from spark_cep.udfs.matching import Matching
from spark_cep.udfs.metrics import Meter, Metrics
from spark_cep.udfs.program import (
    Branch,
    BranchPlan,
    Condition,
    Limits,
    Order,
    Plan,
    Program,
    Slot,
    Tree,
    Variable,
)
from spark_cep.udfs.rows import physical
from spark_cep.udfs.values.arrow_values import whole

if TYPE_CHECKING:
    from spark_cep.udfs.joining.walk import Walk
    from spark_cep.udfs.rows.gaps.conditions import Source
    from spark_cep.udfs.rows.gaps.recognize import Gapped
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import Tally

_PARTITION, _POSITION, _MASK = "partition", "position", "mask"


def walk_over(gapped: Gapped, table: Table, possible: Array, tally: Tally) -> Walk:
    """A walk of the join engine over the rows of a bucket. `possible`: a bit for each point that
    a row may be."""
    program = _program(gapped, ansi=tally.ansi)
    events = Events(program, _events(gapped, table, possible))
    status = np.full(events.size, NEW)
    matching = Matching(program, events, status, Meter(events, program.limits, Metrics()), tally)
    return BranchMatcher(matching, 0).walk(Case(), range(len(gapped.points)))


def possible(gapped: Gapped, table: Table, tally: Tally) -> Array:
    """For each row the points whose own conditions it meets, as bits."""
    bits = np.zeros(table.size, np.int64)
    for place, point in enumerate(gapped.points):
        bit = np.int64(1 << place)
        if point.alone is None:
            bits |= bit
        else:
            bits |= np.where(physical.holds(point.alone, table, tally), bit, np.int64(0))
    return bits


def _program(gapped: Gapped, *, ansi: bool) -> Program:
    points = range(len(gapped.points))
    sources = tuple(f"source {place}" for place in range(len(gapped.sources)))
    conditions = tuple(Condition(each.expression, "", each.points) for each in gapped.crossing)
    in_order = frozenset((a, b) for a in points for b in points if a < b)
    branch = Branch(tuple(Slot((place,)) for place in points), in_order)
    return Program(
        columns=(_PARTITION, _POSITION, _MASK, *sources),
        keys=(0,),
        orders=(Order(1, BIGINT),),
        mask=2,
        variables=tuple(Variable(str(place)) for place in points),
        conditions=conditions,
        tree=Tree("seq", parts=tuple(Tree("event", place) for place in points)),
        branches=(branch,),
        plan=Plan("tree", (BranchPlan(None),)),
        # What is tried is counted and bounded by the search itself.
        limits=Limits(None, None),
        ansi=ansi,
    )


def _events(gapped: Gapped, table: Table, possible: Array) -> pa.Table:
    sizes = table.ends - table.begins
    columns = {
        _PARTITION: pa.array(np.repeat(np.arange(len(sizes)), sizes)),
        _POSITION: pa.array(np.arange(table.size)),
        _MASK: pa.array(possible),
    }
    for place, source in enumerate(gapped.sources):
        columns[f"source {place}"] = _values(source, table)
    return pa.table(columns)


def _values(source: Source, table: Table) -> pa.Array:
    """The values in the order of positions, NULL where there is no such row."""
    outside = ~table.inside(source.shift)
    if source.column is None:
        return pa.array(np.ones(table.size, np.bool_), mask=outside)
    column = whole(table.shipped.column(source.column))
    if source.shift == 0:
        return column if table.permutation is None else column.take(pa.array(table.permutation))
    at = np.where(outside, 0, np.arange(table.size) + source.shift)
    return column.take(pa.array(table.rows(at), mask=outside))
