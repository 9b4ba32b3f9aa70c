"""What is learnt of rows without Spark, tables from numpy, scores by random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.spark.shedding import SheddingAnalysis
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.sampling import make_sample_context
from spark_cep.udfs.events.table import column_to_numpy, drop_null_times
from spark_cep.udfs.shedding.learning import RowSample, learn_model
from spark_cep.udfs.shedding.passing import tables_of
from spark_cep.udfs.shedding.quota import LEVEL_PARTS, ScoreCounts
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from spark_cep import Pattern
    from spark_cep.shed import Shed
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.shedding.passing import PassTable
    from spark_cep.udfs.shedding.utility import Utilities

# Bins of so few draws are left out where shares are compared with the truth.
FEW = 50


def prepared_of(
    pattern: Pattern,
    columns: Mapping[str, np.ndarray],
    nulls: Mapping[str, np.ndarray] | None = None,
    partition_by: Sequence[str] = (),
) -> Prepared:
    """`nulls`: where a column is NULL, if every row may be something."""
    prepared = prepare(pattern, columns, partition_by=partition_by)
    table = prepared.table
    for name, missing in (nulls or {}).items():
        place = next(
            place
            for place, each in enumerate(table.columns)
            if np.array_equal(each.to_numpy(), columns[name], equal_nan=True)
        )
        found = pa.array(columns[name], mask=missing)
        table = table.set_column(place, table.column_names[place], found)
    return replace(prepared, table=table)


def tables(prepared: Prepared, keys: Sequence[Type] = ()) -> dict[tuple[str, str], PassTable]:
    """By the variable and the text of the condition."""
    program = prepared.program
    found = tables_of(make_sample_context(program, prepared.table), keys)
    return {
        (program.variables[each.variable].name, program.conditions[each.condition].text): each
        for each in found
    }


def scores(utilities: Utilities, program: Program, table: pa.Table) -> dict[int, ScoreCounts]:
    """Counted as Spark counts them, with random numbers in place of the rows' own."""
    mask = column_to_numpy(table.column(program.mask)).astype(np.int64)
    own = np.random.default_rng(1).random(len(mask))
    places = ((utilities.levels(mask, table) + own) * LEVEL_PARTS).astype(np.int64)
    may_be_shed = utilities.may_be_shed(mask)
    found = {}
    for kind in np.unique(mask[may_be_shed]):
        at, counts = np.unique(places[may_be_shed & (mask == kind)], return_counts=True)
        found[int(kind)] = ScoreCounts(at, counts)
    return found


def looked(
    program: Program, table: pa.Table, shed: Shed, keys: Sequence[Type] = ()
) -> SheddingAnalysis:
    """As if the sample were all rows."""
    rows = drop_null_times(program, table)
    sampled = RowSample(rows)
    learnt = learn_model(program, sampled, shed.policy, TYPICAL_COSTS, keys)
    return SheddingAnalysis(program, shed, learnt, sampled, scores(learnt.utilities, program, rows))
