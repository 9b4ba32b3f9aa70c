"""What quotas are dealt by: the paper's work, or less of it where that keeps more matches."""

from __future__ import annotations

import numpy as np

from spark_cep import all_of, event, seq
from spark_cep.shed import Shed
from spark_cep.spark.shedding import measure_recall
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.planning.planner import branch_models
from spark_cep.udfs.shedding.learning import LOAD_POWERS, RowSample, estimate_loads, learn_model
from spark_cep.udfs.shedding.quota import kinds_of, share_quota, weights_of
from tests.programs import prepare
from tests.shedding.learned import looked

A, B, C = (event(name, f"kind = {number}") for number, name in enumerate("abc"))
LISTED = seq(A, event("b{1,3}", "kind = 1"), C).where("b.x > a.x + 20", "c.x > b.x").within(20)
SHARE = 0.3


def columns(rows: int = 6000) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    kinds = random.integers(0, 3, rows)
    return {"t": np.arange(rows), "kind": kinds, "x": 100 * random.random(rows)}


def test_beside_a_list_other_kinds_are_not_starved() -> None:
    prepared = prepare(LISTED, columns())
    seen = looked(prepared.program, prepared.table, Shed(keep=SHARE))
    assert seen.learnt.load_power < 1
    estimates = estimate_from_table(prepared.program, prepared.table)
    assert estimates is not None
    program = prepared.program
    work = estimate_loads(branch_models(program), program.plan, estimates, TYPICAL_COSTS)
    rows = {mask: one.rows for mask, one in seen.counts.items()}
    by_work = kinds_of(
        seen.counts, share_quota(SHARE * seen.rows, rows, weights_of("utility", rows, work))
    )
    assert measured(seen, seen.kinds(SHARE)) > 1.3 * measured(seen, by_work)


def measured(seen: object, kinds: object) -> float:
    found = measure_recall(seen, kinds)  # type: ignore[arg-type]
    assert found is not None
    return found[1] / found[0]


def test_where_nothing_speaks_against_it_quotas_are_the_papers() -> None:
    pattern = all_of(A, B).where("b.x > a.x + 20").within(20)
    prepared = prepare(pattern, columns())
    learnt = learn_model(prepared.program, RowSample(prepared.table), "utility", TYPICAL_COSTS)
    assert learnt.load_power == LOAD_POWERS[0] == 1
