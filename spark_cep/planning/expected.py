"""What a choice expects, as plain data for `explain`: statistics, each plan's joins with their
pairs and partial matches, the invariants that hold as long as the plan is the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_cep.udfs.planning.invariants import invariants
from spark_cep.udfs.planning.model import BranchModel, Node, plan_nodes

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Compiled
    from spark_cep.planning.choice import Choice
    from spark_cep.udfs.program import Adaptation, Shape

# Plans that no worker changes.
_WHY_NOT = {
    "tree": "each partial match chooses for itself",
    "eager": "eager keeps the order of the pattern",
    "hybrid": "a hybrid plan keeps its groups",
}


def planned(compiled: Compiled, choice: Choice, adaptation: Adaptation) -> dict[str, Any]:
    """The part of a plan's facts that is about its cost."""
    models = [BranchModel(b, compiled.conditions, compiled.variables) for b in compiled.branches]
    return {
        "statistics": _statistics(compiled, choice),
        "branches": [_branch(compiled, choice, number, m) for number, m in enumerate(models)],
        "invariants": list(_invariants(choice, adaptation, models)),
        "adaptation": _adaptation(choice, adaptation),
    }


def _statistics(compiled: Compiled, choice: Choice) -> dict[str, Any] | None:
    known = choice.estimates
    if known is None:
        return None
    names = [each.name for each in compiled.variables]
    return {
        "source": choice.source,
        "unit": choice.unit,
        "rates": {names[v]: rate for v, rate in sorted(known.rates.items())},
        "selectivities": [
            {"condition": each.text, "selectivity": known.selectivities.get(place)}
            for place, each in enumerate(compiled.conditions)
        ],
        "windows": known.windows,
    }


def _branch(compiled: Compiled, choice: Choice, number: int, model: BranchModel) -> dict[str, Any]:
    plan = choice.plan.branches[number] if choice.plan.branches is not None else None
    shape = None if plan is None else plan.shape
    nodes: Sequence[Node] = ()
    if shape is not None and choice.estimates is not None:
        nodes = plan_nodes(model, shape, choice.estimates)
    return {
        "variables": list(model.names),
        "shape": None if shape is None else _named(shape, model.names),
        "eager": [model.names[slot] for slot in (() if plan is None else plan.eager)],
        "nodes": [_node(compiled, number, model, node) for node in nodes],
    }


def _node(compiled: Compiled, number: int, model: BranchModel, node: Node) -> dict[str, Any]:
    return {
        "binds": [model.names[slot] for slot in node.binds],
        "key": f"{number}:{','.join(map(str, sorted(node.slots)))}",
        "pairs": node.pairs,
        "partials": node.partials,
        "conditions": [compiled.conditions[place].text for place in node.conditions],
    }


def _named(shape: Shape, names: Sequence[str]) -> Any:
    if isinstance(shape, int):
        return names[shape]
    return [_named(shape[0], names), _named(shape[1], names)]


def _invariants(
    choice: Choice, adaptation: Adaptation, models: Sequence[BranchModel]
) -> Iterator[str]:
    if adaptation.kind != "invariants" or choice.estimates is None:
        return
    for generated, model in zip(choice.generated, models, strict=False):
        for each in invariants(generated, adaptation.k, choice.estimates):
            yield each.text(model.names)


def _adaptation(choice: Choice, adaptation: Adaptation) -> str:
    if not choice.adapts:
        return "no: " + {
            "strategy": "runs follow the pattern",
            "one variable": "there is one order",
        }.get(choice.rung, _WHY_NOT.get(choice.plan.kind, "the order was forced"))
    return {
        "off": 'no: adapt="off"',
        "always": "always: the plan is made anew before each chunk of a bucket",
        "threshold": f"threshold, {adaptation.threshold:.0%}: the plan is made anew when a rate or "
        "a selectivity has changed by more",
        "invariants": f"invariants, k={adaptation.k or 'all'}, distance={adaptation.distance}: the "
        "plan is made anew when a comparison that led to it fails",
    }[adaptation.kind]
