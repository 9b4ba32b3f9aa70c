"""The decisions about shedding, as facts of the plan and in its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_cep.explanation.plan import MatchPlan
from spark_cep.explanation.shedding import format_percent
from spark_cep.shed import Shed
from spark_cep.spark.partial_shedding import PartialSheddingPlan
from spark_cep.udfs.execution.shedding import overtime
from spark_cep.udfs.shedding.learning import takes_blocks
from spark_cep.udfs.shedding.partial_matches import drops_partials

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.spark.shedding import SheddingPlan, StreamSheddingPlan
    from spark_cep.udfs.program import Variable
    from spark_cep.udfs.shedding.matches import Recall
    from spark_cep.udfs.shedding.utility import Utilities


def shedding_flags(shedding: SheddingPlan | PartialSheddingPlan | Shed | None) -> list[str]:
    """The words for the name of the plan; none if all rows stay."""
    if isinstance(shedding, PartialSheddingPlan):
        if shedding.in_front is not None:
            return shedding_flags(shedding.asked)
        stays = format_percent(shedding.share)
        return [f"shed to {stays} by {shedding.asked.policy}"] if shedding.share < 1 else []
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
        "cost": {
            "spent": round(shedding.cost.spent, 2),
            "saved": round(shedding.cost.saved, 2),
        },
        **_recall_facts(shedding.recall),
        "dealt": _describe_quota(shedding),
        "blocks": _describe_blocks(shedding),
        "looked_at": "a sample" if shedding.asked.history is None else "a sample of the history",
        "counted": shedding.looked.size is None or shedding.looked.size.is_exact,
        "kinds": [
            {
                "variables": _variable_names(variables, mask),
                "rows": one.rows,
                "kept": kinds[mask].kept if mask in kinds else one.rows,
                "threshold": kinds[mask].threshold if mask in kinds else 0.0,
            }
            for mask, one in sorted(counts.items())
        ],
        "utility": _utility_facts(shedding.looked.choice.utilities, compiled),
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


def add_partial_shedding_facts(
    plan: MatchPlan, shedding: PartialSheddingPlan, compiled: CompiledPattern
) -> MatchPlan:
    """The plan with the facts about partial matches that are dropped."""
    shed = shedding.asked
    facts: dict[str, Any] = {
        "asked": shed.asked(),
        "policy": shed.policy,
        "seed": shed.seed,
        "drops": _DROPS[shed.policy],
        "utility": [],
        "never": [each.name for each in compiled.variables if each.negated],
    }
    if shedding.in_front is not None:
        facts["where"] = _describe_where(shed)
    else:
        facts |= {
            "share": shedding.share,
            "reason": shedding.reason,
            **_recall_facts(shedding.recall()),
            "blocks": "",
            "dealt": _describe_rule(shedding),
            "kinds": [],
            "looked_at": "a sample",
        }
    return MatchPlan({**plan.facts, "shedding": facts})


_DROPS = {
    "hspice": "rows, from partial matches of which they complete few",
    "pspice": "partial matches that complete seldom, for the pairs that they cause",
    "random-partials": "partial matches, at random",
}


def _describe_rule(shedding: PartialSheddingPlan) -> str:
    """How many of the states, at times in the window, stay."""
    rule = shedding.rule
    if rule is None:
        return "nothing is dropped"
    if not rule.kept and rule.others < 1:
        return f"of the partial matches {format_percent(rule.others)} stay, at each step"
    assert shedding.model is not None
    gone = {state: shares for state, shares in rule.kept.items() if min(shares) < 1}
    cells = [gone.get(state, (1.0,) * shedding.model.bins)[n] for state, n in shedding.model.cells]
    whole, none = sum(each >= 1 for each in cells), sum(each <= 0 for each in cells)
    return f"of {len(cells):,} states at a time in the window {whole:,} stay, {none:,} do not"


def _describe_where(shed: Shed) -> str:
    by_worth = shed.policy in ("utility", "darling", "espice", "hspice", "pspice")
    learnt = "the history" if shed.history is not None else "rows from triggers that were not full"
    by = f", by utilities learnt from {learnt}" if by_worth else ""
    if shed.latency is not None:
        when = f"in triggers that would take more than {100 * shed.safety:g}% of it"
    elif shed.rows_per_second is not None:
        when = "in triggers that bring more"
    else:
        when = "in every trigger"
    stops = "" if shed.latency is None else f"; matching stops at {stop_percent(shed)} of it"
    place = "in the engine" if drops_partials(shed.policy) else "in front of the engine"
    return f"{place}, {when}{by}{stops}"


def stop_percent(shed: Shed) -> str:
    """When matching stops, as a part of the latency that was asked for."""
    return format_percent(shed.safety * overtime(shed.safety))


def _variable_names(variables: Sequence[Variable], mask: int) -> list[str]:
    return [each.name for place, each in enumerate(variables) if mask >> place & 1]


def _recall_facts(recall: Recall) -> dict[str, Any]:
    if recall.value is None:
        return {"estimated_recall": None, "recall_unknown": recall.unknown}
    return {"estimated_recall": recall.value, "recall_interval": [recall.low, recall.high]}


def _describe_quota(shedding: SheddingPlan) -> str:
    """How the quota was divided among the kinds."""
    if takes_blocks(shedding.asked.policy):
        by_worth = bool(shedding.looked.choice.kept)
        return "by worth" if by_worth else "by the hash of the blocks"
    return {
        "darling": "by load, Z(T)·R(T)",
        "random": "by rows",
        "frequency": "as many rows of each kind",
        "espice": "by the share of such rows that are in matches",
    }[shedding.asked.policy]


def _describe_blocks(shedding: SheddingPlan) -> str:
    """Which part whole blocks have in what stays; empty if none."""
    blocks = shedding.looked.choice.blocks
    if not takes_blocks(shedding.asked.policy) or blocks >= 1 or not shedding.kinds:
        return ""
    if not blocks:
        return f"{format_percent(shedding.share)} of the blocks, whole"
    within = format_percent(shedding.share / blocks)
    return f"{format_percent(blocks)} of the blocks, and {within} of their rows by worth"


def _utility_facts(utilities: Utilities, compiled: CompiledPattern) -> list[dict[str, Any]]:
    """The parts of the utility: for each variable its conditions, and how much rows differ."""
    return [
        {
            "variable": compiled.variables[table.variable].name,
            "condition": " AND ".join(compiled.conditions[c].text for c in table.conditions),
            "least": float(table.shares.min()),
            "mean": table.mean,
            "most": float(table.shares.max()),
            "by_key": table.by_key,
        }
        for table in utilities.tables
    ]
