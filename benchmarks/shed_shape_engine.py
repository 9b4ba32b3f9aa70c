"""The cells of `shed_shapes.py` without Spark: the driver's choice and the engine, on one core.

Every row is in the sample, and blocks are hashed as the workers of a stream do it. So the same
policies keep other rows than with Spark, and as many.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.programs import Prepared, prepare
from benchmarks.programs import run as run_engine
from benchmarks.shed_shape_figures import BY_HAND, Outcome
from benchmarks.shed_shape_rows import in_blocks
from spark_cep import Shed
from spark_cep.spark.shedding import SheddingAnalysis
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.planning.planner import assemble_plan, branch_models, generate_plans
from spark_cep.udfs.program import Plan
from spark_cep.udfs.shedding.blocks import STRETCHES, block_hashes, choose_stretch, cut_blocks
from spark_cep.udfs.shedding.learning import RowSample, learn_model
from spark_cep.udfs.shedding.partial_matches import drops_partials, learn_partials
from spark_cep.udfs.shedding.quota import LEVEL_PARTS, ScoreCounts, levels_in_blocks

if TYPE_CHECKING:
    from benchmarks.programs import Run
    from benchmarks.shed_shape_figures import Setting
    from benchmarks.shed_shape_rows import Shape


def measure(shape: Shape, setting: Setting) -> list[Outcome]:
    columns = shape.make()
    prepared = prepare(shape.pattern, columns, partition_by=shape.partition)
    full = _count(prepared)
    found = []
    for keep in setting.keeps:
        for seed in setting.seeds:
            for policy in setting.policies:
                shed = Shed(keep=keep, policy=policy, seed=seed)
                found.append(_ask(shape, prepared, shed, full))
            if setting.by_hand:
                here = in_blocks(shape, columns, keep, seed)
                some = {name: values[here] for name, values in columns.items()}
                few = _count(prepare(shape.pattern, some, partition_by=shape.partition))
                kept = few.matches / max(full.matches, 1)
                found.append(Outcome(shape.name, keep, BY_HAND, seed, kept, full.seconds))
    return found


@dataclass(frozen=True)
class Counted:
    """What one walk over rows found and tested, and its seconds."""

    matches: int
    seconds: float
    pairs: int

    @classmethod
    def of(cls, ran: Run) -> Counted:
        return cls(ran.metrics.matches, ran.seconds, ran.metrics.pairs)


def _count(prepared: Prepared) -> Counted:
    return Counted.of(run_engine(prepared, Plan("lazy-chain")))


def _ask_for_partials(shape: Shape, prepared: Prepared, shed: Shed, full: Counted) -> Outcome:
    """As `spark_cep/spark/partial_shedding.py` does it. What stays is a share of the pairs, so
    nothing is said of rows."""
    assert shed.keep is not None
    started = time.perf_counter()
    program, costs = prepared.program, TYPICAL_COSTS
    estimates = estimate_from_table(program, prepared.table)
    assert estimates is not None
    made = generate_plans("lazy-chain", branch_models(program), estimates, costs)
    branches = assemble_plan("lazy-chain", made).branches
    assert branches is not None
    plan = Plan("lazy-chain", tuple(replace(each, fixed=True) for each in branches))
    program = replace(program, plan=plan)
    model = learn_partials(program, prepared.table, shed.policy)
    recall, rule = model.recall(shed.keep), model.rule(shed.keep, shed.seed)
    call = time.perf_counter() - started
    kept = Counted.of(run_engine(replace(prepared, program=replace(program, dropping=rule)), plan))
    known = recall.value is not None
    return Outcome(
        shape.name, shed.keep, shed.policy, shed.seed,
        kept.matches / max(full.matches, 1),
        full.seconds,
        None,
        recall.value,
        (recall.low, recall.high) if known else None,
        None if known else recall.unknown,
        call,
        kept.seconds,
        kept.pairs / max(full.pairs, 1),
    )  # fmt: skip


def _ask(shape: Shape, prepared: Prepared, shed: Shed, full: Counted) -> Outcome:
    assert shed.keep is not None
    if drops_partials(shed.policy):
        return _ask_for_partials(shape, prepared, shed, full)
    started = time.perf_counter()
    analysis = _analyse(prepared, shed)
    stays = analysis.stays(analysis.kinds(shed.keep))
    call = time.perf_counter() - started
    kept = _count(replace(prepared, table=prepared.table.filter(pa.array(stays))))
    may_go = analysis.choice.utilities.may_be_shed(_mask(prepared))
    recall = analysis.choice.recall
    known = recall.value is not None
    return Outcome(
        shape.name,
        shed.keep,
        shed.policy,
        shed.seed,
        kept.matches / max(full.matches, 1),
        full.seconds,
        float(stays[may_go].mean()),
        recall.value,
        (recall.low, recall.high) if known else None,
        None if known else recall.unknown,
        call,
        kept.seconds,
        kept.pairs / max(full.pairs, 1),
    )


def _analyse(prepared: Prepared, shed: Shed) -> SheddingAnalysis:
    """As `spark_cep/spark/shedding.py` does it, with counts of the scores of all rows."""
    program, table = prepared.program, prepared.table
    assert shed.keep is not None
    hashes = {windows: block_hashes(program, table, shed.seed, windows) for windows in STRETCHES}
    length = choose_stretch(lambda windows: len(np.unique(hashes[windows])))
    blocks = hashes[length]
    keys = tuple(Type("int", 64) for _ in program.keys)
    sample = RowSample(table, 1.0, blocks, keys, length)
    learnt = learn_model(program, sample, shed.policy, TYPICAL_COSTS, shed.keep)
    choice = learnt.choose(shed.keep)
    below = cut_blocks(blocks, choice.blocks)
    mask = _mask(prepared)
    levels = choice.utilities.levels(mask, table)
    if choice.blocks < 1:
        levels = levels_in_blocks(levels, blocks, below)
    scores = levels + np.random.default_rng(shed.seed).random(len(mask))
    places = np.floor(scores * LEVEL_PARTS).astype(np.int64)
    may_go = choice.utilities.may_be_shed(mask)
    counts = {
        int(kind): ScoreCounts(*np.unique(places[may_go & (mask == kind)], return_counts=True))
        for kind in np.unique(mask[may_go])
    }
    return SheddingAnalysis(program, shed, learnt, sample, choice, counts, below)


def _mask(prepared: Prepared) -> np.ndarray:
    mask: np.ndarray = column_to_numpy(prepared.table.column(prepared.program.mask))
    return mask.astype(np.int64)
