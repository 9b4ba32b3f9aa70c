"""What quotas are dealt by: the paper's work, or less of it where that keeps more matches."""

from __future__ import annotations

import numpy as np

from benchmarks.programs import prepare
from spark_cep import all_of, event, seq
from spark_cep.shedding.looked import measured_recall
from spark_cep.shedding.shed import Shed
from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.planning.generate import models
from spark_cep.udfs.sampling import estimates_of
from spark_cep.udfs.shedding.learning import LEANINGS, Sampled, learn
from spark_cep.udfs.shedding.load import loads
from spark_cep.udfs.shedding.quota import kinds_of, shared, weights_of
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
    assert seen.learnt.leaning < 1
    estimates = estimates_of(prepared.program, prepared.table)
    assert estimates is not None
    program = prepared.program
    work = loads(models(program), program.plan, estimates, TYPICAL)
    rows = {mask: one.rows for mask, one in seen.counts.items()}
    by_work = kinds_of(
        seen.counts, shared(SHARE * seen.rows, rows, weights_of("utility", rows, work))
    )
    assert measured(seen, seen.kinds(SHARE)) > 1.3 * measured(seen, by_work)


def measured(seen: object, kinds: object) -> float:
    found = measured_recall(seen, kinds)  # type: ignore[arg-type]
    assert found is not None
    return found[1] / found[0]


def test_where_nothing_speaks_against_it_quotas_are_the_papers() -> None:
    pattern = all_of(A, B).where("b.x > a.x + 20").within(20)
    prepared = prepare(pattern, columns())
    learnt = learn(prepared.program, Sampled(prepared.table), "utility", TYPICAL)
    assert learnt.leaning == LEANINGS[0] == 1
