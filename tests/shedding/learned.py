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
from spark_cep.udfs.shedding.blocks import block_codes, block_hashes, choose_stretch, cut_blocks
from spark_cep.udfs.shedding.learning import RowSample, learn_model
from spark_cep.udfs.shedding.passing import tables_of
from spark_cep.udfs.shedding.quota import LEVEL_PARTS, ScoreCounts, levels_in_blocks
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from spark_cep import Pattern
    from spark_cep.shed import Shed
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.shedding.learning import Choice, SheddingModel
    from spark_cep.udfs.shedding.passing import PassTable

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


def tables(prepared: Prepared) -> dict[tuple[str, str], PassTable]:
    """By the variable and the text of the condition."""
    program = prepared.program
    found = tables_of(make_sample_context(program, prepared.table))
    return {
        (program.variables[each.variable].name, program.conditions[each.conditions[0]].text): each
        for each in found
    }


def scores(
    choice: Choice, blocks: np.ndarray, below: float, program: Program, table: pa.Table
) -> dict[int, ScoreCounts]:
    """Counted as Spark counts them, with random numbers in place of the rows' own. `blocks`: the
    hash of each row's block, of which those `below` a number are preferred."""
    mask = column_to_numpy(table.column(program.mask)).astype(np.int64)
    own = np.random.default_rng(1).random(len(mask))
    levels = choice.utilities.levels(mask, table)
    if choice.blocks < 1:
        levels = levels_in_blocks(levels, blocks, below)
    places = np.floor((levels + own) * LEVEL_PARTS).astype(np.int64)
    may_be_shed = choice.utilities.may_be_shed(mask)
    found = {}
    for kind in np.unique(mask[may_be_shed]):
        at, counts = np.unique(places[may_be_shed & (mask == kind)], return_counts=True)
        found[int(kind)] = ScoreCounts(at, counts)
    return found


def looked(
    program: Program,
    table: pa.Table,
    shed: Shed,
    keys: Sequence[Type] = (),
    model: SheddingModel | None = None,
) -> SheddingAnalysis:
    """As if the sample were all rows, or as a model that was learnt before has it."""
    rows = drop_null_times(program, table)
    stretch = choose_stretch(lambda windows: len(np.unique(block_codes(program, rows, windows))))
    blocks = block_hashes(program, rows, shed.seed, stretch)
    sampled = RowSample(rows, blocks=blocks, keys=keys, stretch=stretch)
    learnt = model or learn_model(program, sampled, shed.policy, TYPICAL_COSTS, shed.keep)
    choice = learnt.choose(shed.keep if shed.keep is not None else 1.0)
    assert sampled.blocks is not None
    below = cut_blocks(sampled.blocks, choice.blocks)
    counts = scores(choice, sampled.blocks, below, program, rows)
    return SheddingAnalysis(program, shed, learnt, sampled, choice, counts, below)
