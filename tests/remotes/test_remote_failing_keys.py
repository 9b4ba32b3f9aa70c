"""Keys that the engine computes and that may fail: such a key is none, and its condition fails,
but only where the key is asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep.pattern import seq
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.expressions import Call, RemoteCall
from tests.cases import Case
from tests.local import Pipeline, Setting
from tests.remotes.looked_up import STRATEGIES, sources
from tests.remotes.scripted import Scripted

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.program import Program

ROWS = [
    {"t": t, "u": t, "k": 1, "x": t % 3, "f": None, "kind": None if t % 5 == 0 else "c"}
    for t in range(30)
]
CONDITIONS = (
    "b.u % 4 >= a.u % b.x",
    "b.x = 0 OR b.u % 4 >= a.u % b.x",
    "CASE WHEN b.x <> 0 THEN b.u % 4 >= a.u % b.x ELSE a.x = 1 END",
    "coalesce(b.x + 0, a.u % b.x) = 1",
)


def by_remainder(node: Expression) -> Expression:
    """Every remainder is looked up; each is its own value."""
    if not isinstance(node, Call):
        return node
    if node.name == "%":
        return RemoteCall(0, (node,), node.type)
    return replace(node, arguments=tuple(map(by_remainder, node.arguments)))


def found(program: Program, shipped: Pipeline, seed: int = 0) -> tuple[Counter[Any], int]:
    """The matches, and how often a condition failed."""
    lookups = tuple(Scripted(remote, seed) for remote in program.remotes)
    step = advance_events(program, EventState(), shipped.table(0), lookups=lookups)  # type: ignore[arg-type]
    matches: Counter[Any] = Counter()
    for each in step.matches:
        matches.update(shipped.read(step.events.table, step.events.rows, each))
    return matches, step.metrics.condition_errors


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_key_that_fails_fails_its_condition_where_it_is_asked_for(
    strategy: Any, condition: str
) -> None:
    case = Case(seq("a", "b").where(condition, "a.kind = 'c'").within(6), ROWS)
    shipped = Pipeline(case, Setting(block_pairs=16))
    program = shipped.program
    asking = replace(
        program,
        conditions=tuple(
            replace(each, expression=by_remainder(each.expression)) for each in program.conditions
        ),
        remotes=sources([strategy] * 3),
    )
    expected = found(program, shipped)
    assert expected[0]
    for seed in range(4):
        assert found(asking, shipped, seed) == expected
