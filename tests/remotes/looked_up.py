"""Cases whose conditions read some of their columns, and of what they compute, through a remote
source.

The source gives every key itself, so answers must stay as they are, whatever the strategy, the
order in which data comes and what a cache forgets.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Cell, Expression, RemoteCall, UserCall
from spark_cep.udfs.program import Condition
from spark_cep.udfs.remote_spec import RemoteSpec
from tests.local import Pipeline, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_cep.udfs.program import Program
    from spark_cep.udfs.remote_spec import FetchStrategy
    from tests.cases import Case
    from tests.reference.matcher import Match

KINDS = {"int": pa.int64(), "float": pa.float64(), "string": pa.string()}
# Where what is computed is looked up by: keys may fail.
COMPUTED = {"int": 0, "float": 1}
STRATEGIES: tuple[FetchStrategy, ...] = ("blocking", "cached", "post", "prefetch", "lazy", "hybrid")


@dataclass(frozen=True)
class Looked:
    """A setting, and how remote data is fetched in it: a strategy for each kind of value."""

    setting: Setting
    strategies: tuple[FetchStrategy, ...]
    seed: int
    forgets: bool = False
    seen: list[object] = field(default_factory=list, compare=False)


def answer(
    case: Case, looked: Looked, lookup_of: Callable[[RemoteSpec, int], object]
) -> Counter[Match]:
    """What the engine gives where about half of the columns are looked up."""
    shipped = Pipeline(case, looked.setting)
    remotes = sources(looked.strategies)
    conditions = looked_up(shipped.program, Random(looked.seed))
    program = replace(shipped.program, conditions=conditions, remotes=remotes)
    lookups = tuple(lookup_of(remote, looked.seed) for remote in remotes)
    looked.seen.extend(lookups)
    found: Counter[Match] = Counter()
    state = EventState()
    for place, horizon in enumerate((*looked.setting.horizons, None)):
        if place:
            program = replace(program, plan=shipped.later.plan)
        step = advance_events(program, state, shipped.table(place), horizon, lookups=lookups)  # type: ignore[arg-type]
        for matches in step.matches:
            found.update(shipped.read(step.events.table, step.events.rows, matches))
        state = step.state
    return found


def sources(strategies: Sequence[FetchStrategy], token: str = "") -> tuple[RemoteSpec, ...]:
    return tuple(
        RemoteSpec(kind, itself, (type_,), type_, strategy, token=token)
        for (kind, type_), strategy in zip(KINDS.items(), strategies, strict=True)
    )


def looked_up(program: Program, random: Random) -> tuple[Condition, ...]:
    """The conditions with some cells looked up, and for each variable one that every row meets."""
    changed = [
        replace(each, expression=_swapped(each.expression, random)) for each in program.conditions
    ]
    column = program.orders[0].column
    for number in range(len(program.variables)):
        if random.random() < 0.5:
            cell = Cell(number, column, BIGINT)
            call = RemoteCall(0, (cell,), BIGINT)
            same = Call("<=>", (call, cell), BOOL)
            changed.append(Condition(same, "always", frozenset({number})))
    return tuple(changed)


def _swapped(node: Expression, random: Random) -> Expression:
    if isinstance(node, Cell):
        kinds = list(KINDS)
        is_value = node.column is not None and node.reading in ("each", "prev", "first", "last")
        if is_value and node.type.kind in kinds and random.random() < 0.6:
            return RemoteCall(kinds.index(node.type.kind), (node,), node.type)
        return node
    if isinstance(node, Call) and node.type.kind in COMPUTED and random.random() < 0.4:
        return RemoteCall(COMPUTED[node.type.kind], (node,), node.type)
    if isinstance(node, Call | UserCall):
        return replace(node, arguments=tuple(_swapped(a, random) for a in node.arguments))
    return node


def itself(keys: list[object]) -> dict[object, object]:
    return {key: key for key in keys}
