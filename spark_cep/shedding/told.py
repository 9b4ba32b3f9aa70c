"""What was decided about shedding, as facts of the plan and in its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_cep.explaining.explanation import MatchPlan
from spark_cep.explaining.shedding import percent

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Compiled
    from spark_cep.shedding.batch import Shedding
    from spark_cep.udfs.program import Variable


def flag(shedding: Shedding) -> str:
    """What the plan's name says."""
    return f"shed to {percent(shedding.share)} by {shedding.asked.policy}"


def with_shedding(plan: MatchPlan, shedding: Shedding, compiled: Compiled) -> MatchPlan:
    """The plan with what was decided about shedding."""
    variables, counts = compiled.variables, shedding.looked.counts
    kinds = {kind.mask: kind for kind in shedding.kinds}
    facts = {
        "asked": shedding.asked.asked(),
        "policy": shedding.asked.policy,
        "seed": shedding.asked.seed,
        "share": shedding.share,
        "reason": shedding.reason,
        "estimated_recall": shedding.recall,
        "kinds": [
            {
                "variables": _names(variables, mask),
                "rows": one.rows,
                "kept": kinds[mask].kept if mask in kinds else one.rows,
                "threshold": kinds[mask].threshold if mask in kinds else 0.0,
            }
            for mask, one in sorted(counts.items())
        ],
        "utility": _utility(shedding, compiled),
        "never": [each.name for each in variables if each.negated],
    }
    return MatchPlan({**plan.facts, "shedding": facts})


def _names(variables: Sequence[Variable], mask: int) -> list[str]:
    return [each.name for place, each in enumerate(variables) if mask >> place & 1]


def _utility(shedding: Shedding, compiled: Compiled) -> list[dict[str, Any]]:
    """What worth is made of: for each variable the conditions, and by how much rows differ."""
    tables = [table for each in shedding.looked.learnt.utilities.tables.values() for table in each]
    return [
        {
            "variable": compiled.variables[table.variable].name,
            "condition": compiled.conditions[table.condition].text,
            "least": float(table.shares.min()),
            "mean": table.mean,
            "most": float(table.shares.max()),
            "by_key": len(table.features) > 1 and not table.features[0].is_ordered,
        }
        for table in tables
    ]
