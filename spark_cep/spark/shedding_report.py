"""The decisions about shedding, as facts of the plan and in its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_cep.explanation.plan import MatchPlan
from spark_cep.explanation.shedding import format_percent
from spark_cep.shed import Shed
from spark_cep.udfs.execution.shedding import overtime
from spark_cep.udfs.shedding.utility import tables_in

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.spark.shedding import SheddingPlan, StreamSheddingPlan
    from spark_cep.udfs.program import Variable
    from spark_cep.udfs.shedding.utility import Utilities


def shedding_flags(shedding: SheddingPlan | Shed | None) -> list[str]:
    """The words for the name of the plan; none if all rows stay."""
    if isinstance(shedding, Shed):
        return [f"may shed: {shedding.asked()}, by {shedding.policy}"]
    if shedding is None or not shedding.kinds:
        return []
    return [f"shed to {format_percent(shedding.share)} by {shedding.asked.policy}"]


def add_shedding_facts(
    plan: MatchPlan, shedding: SheddingPlan, compiled: CompiledPattern
) -> MatchPlan:
    """The plan with the facts about shedding."""
    variables, counts = compiled.variables, shedding.looked.counts
    kinds = {kind.mask: kind for kind in shedding.kinds}
    facts = {
        "asked": shedding.asked.asked(),
        "policy": shedding.asked.policy,
        "seed": shedding.asked.seed,
        "share": shedding.share,
        "reason": shedding.reason,
        "estimated_recall": shedding.recall,
        "dealt": _describe_quota(shedding),
        "looked_at": "a sample" if shedding.asked.history is None else "a sample of the history",
        "kinds": [
            {
                "variables": _variable_names(variables, mask),
                "rows": one.rows,
                "kept": kinds[mask].kept if mask in kinds else one.rows,
                "threshold": kinds[mask].threshold if mask in kinds else 0.0,
            }
            for mask, one in sorted(counts.items())
        ],
        "utility": _utility_facts(shedding.looked.learnt.utilities, compiled),
        "never": [each.name for each in variables if each.negated],
    }
    return MatchPlan({**plan.facts, "shedding": facts})


def add_stream_shedding_facts(
    plan: MatchPlan, shedding: StreamSheddingPlan, compiled: CompiledPattern
) -> MatchPlan:
    """The plan of a stream. If its workers shed, what they drop is known only when it runs."""
    if shedding.before is not None:
        return add_shedding_facts(plan, shedding.before, compiled)
    shed, in_front = shedding.asked, shedding.in_front
    known = None if in_front is None else in_front.known
    facts = {
        "asked": shed.asked(),
        "policy": shed.policy,
        "seed": shed.seed,
        "where": _describe_where(shed),
        "utility": [] if known is None else _utility_facts(known.utilities, compiled),
        "never": [each.name for each in compiled.variables if each.negated],
    }
    return MatchPlan({**plan.facts, "shedding": facts})


def _describe_where(shed: Shed) -> str:
    learnt = "the history" if shed.history is not None else "rows from triggers that were not full"
    by = f", by utilities learnt from {learnt}" if shed.policy == "utility" else ""
    if shed.latency is not None:
        when = f"in triggers that would take more than {100 * shed.safety:g}% of it"
    elif shed.rows_per_second is not None:
        when = "in triggers that bring more"
    else:
        when = "in every trigger"
    stops = "" if shed.latency is None else f"; matching stops at {stop_percent(shed)} of it"
    return f"in front of the engine, {when}{by}{stops}"


def stop_percent(shed: Shed) -> str:
    """When matching stops, as a part of the latency that was asked for."""
    return format_percent(shed.safety * overtime(shed.safety))


def _variable_names(variables: Sequence[Variable], mask: int) -> list[str]:
    return [each.name for place, each in enumerate(variables) if mask >> place & 1]


def _describe_quota(shedding: SheddingPlan) -> str:
    """How the quota was divided among the kinds."""
    if shedding.asked.policy != "utility":
        return {"random": "by rows", "frequency": "as many rows of each kind"}[
            shedding.asked.policy
        ]
    words = {1.0: "by load, Z(T)·R(T)", 0.5: "by rows and the root of their load", 0.0: "by rows"}
    load_power = shedding.looked.learnt.load_power
    more = "" if load_power == 1 else ": the recall on drawn matches is better than by load alone"
    return f"{words[load_power]}{more}"


def _utility_facts(utilities: Utilities, compiled: CompiledPattern) -> list[dict[str, Any]]:
    """The parts of the utility: for each variable its conditions, and how much rows differ."""
    tables = tables_in(utilities)
    return [
        {
            "variable": compiled.variables[table.variable].name,
            "condition": compiled.conditions[table.condition].text,
            "least": float(table.shares.min()),
            "mean": table.mean,
            "most": float(table.shares.max()),
            "by_key": table.by_key,
        }
        for table in tables
    ]
