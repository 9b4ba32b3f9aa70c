"""The facts behind `explain`, gathered from what was decided."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from spark_cep.explaining.explanation import MatchPlan, pattern_parts, pattern_text, window_text
from spark_cep.explaining.figures import amount
from spark_cep.planning.expected import planned
from spark_cep.shedding.told import flag
from spark_cep.shipping.prepare import drops_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column

    from spark_cep.answering.answer import Answer
    from spark_cep.compiling.compiled import Compiled
    from spark_cep.pattern import Pattern
    from spark_cep.planning.choice import Choice
    from spark_cep.planning.layout import Layout
    from spark_cep.shedding.batch import Shedding
    from spark_cep.shedding.shed import Shed
    from spark_cep.shipping.shipment import Shipment
    from spark_cep.udfs.program import Program, Variable

_STRATEGIES = {
    "any": "skip till any match",
    "next": "skip till next match",
    "strict": "strict",
}
# Literals and quoted names of Spark SQL, so that what looks like a name in a literal stays.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)


def title(
    pattern: Pattern,
    compiled: Compiled,
    decided: tuple[Choice, Shedding | Shed | None],
    number: int,
) -> str:
    """The name that Spark shows: plan, order, window, estimate with the runner-up's, strategy,
    what was shed, and the answer's number."""
    choice, shedding = decided
    within = window_text(pattern.window)
    shown = "" if choice.shown == choice.plan.kind else f" {choice.shown}"
    parts = [
        f"{choice.plan.kind}{shown}",
        *([f"within {within}"] if within else []),
        *_estimate(choice),
        compiled.strategy,
        *flag(shedding),
    ]
    return f"match_pattern[{', '.join(parts)}  #{number}]"


def _estimate(choice: Choice) -> Iterator[str]:
    if choice.cost is None:
        return
    unit = "" if choice.unit == "in all" else f" {choice.unit}"
    others = [each for each in choice.rejected if each.cost is not None]
    # Two kinds may come to one and the same order, which is no alternative to itself.
    another = [each for each in others if each.shown != choice.shown] or others
    best = next((each for each in another if (each.cost or 0) >= choice.cost), None)
    best = best or next(iter(another), None)
    runner_up = f" ({best.plan} {amount(best.cost)})" if best else ""
    yield f"est. {amount(choice.cost)} pairs{unit}{runner_up}"


def report(
    pattern: Pattern,
    compiled: Compiled,
    shipment: Shipment,
    decided: tuple[Choice, Layout, Answer, Program],
    number: int,
) -> MatchPlan:
    """Everything that explain shows."""
    choice, layout, answer, program = decided
    return MatchPlan(
        {
            "number": number,
            "pattern": pattern_text(pattern.root),
            "parts": pattern_parts(pattern.root),
            "strategy": _STRATEGIES[compiled.strategy],
            "consumption": compiled.consumption,
            "window": window_text(pattern.window),
            "partition_by": list(compiled.partition),
            "inferred_keys": list(compiled.inferred),
            "order_by": [_order(each) for each in compiled.orders],
            "plan": choice.plan.kind,
            "shown": choice.shown,
            "order": _names(compiled.variables, choice.order),
            "rung": choice.rung,
            "reason": choice.reason,
            "cost": choice.cost,
            "unit": choice.unit,
            "rejected": [asdict(each) for each in choice.rejected],
            **planned(compiled, choice, program.adaptation),
            "before": _before(compiled, shipment),
            "buckets": {"count": layout.buckets, "reason": layout.buckets_reason},
            "slices": layout.slices_reason,
            "engine": {"conditions": [each.text for each in compiled.conditions]},
            "limits": asdict(program.limits),
            "after": {"conditions": list(compiled.after), "columns": _columns(answer, compiled)},
        }
    )


def _before(compiled: Compiled, shipment: Shipment) -> dict[str, Any]:
    computed = [
        f"{unquoted(each.text())}{_for(each.guards, compiled.variables)}"
        for each in shipment.shipped
        if each.column is None and each.role == "value"
    ]
    drops = "rows that no variable accepts" if all(compiled.masks) else "nothing: any row may match"
    if not drops_rows(compiled):
        drops = "nothing: every row counts"
    return {
        "candidates": {
            each.name: [unquoted(condition) for condition in conditions]
            for each, conditions in zip(compiled.variables, compiled.masks, strict=True)
        },
        "computed": computed,
        "shipped": [
            each.text() if each.column is not None else unquoted(each.text())
            for each in shipment.shipped
        ],
        "drops": drops,
    }


def _for(guards: frozenset[int] | None, variables: Sequence[Variable]) -> str:
    return f"  (for {', '.join(_names(variables, sorted(guards)))})" if guards else ""


def _columns(answer: Answer, compiled: Compiled) -> list[str]:
    if answer.shape == "rows":
        return ["match_id", "variable", *answer.names]
    if answer.shape == "measures":
        return [*answer.partition, *(f"{each.text} AS {each.name}" for each in answer.measures)]
    positive = [each.name for each in compiled.variables if not each.negated]
    return [*answer.partition, *positive, "match_start", "match_end"]


def _order(order: Any) -> str:
    text = unquoted(order.expression)
    return f"{text} DESC" if order.descending else text


def unquoted(sql: str | Column) -> str:
    """SQL for people: names that need no quotes have none, and a Column is what it shows.

    >>> unquoted("`ticker` = 'the `x`' AND `a b` > `st`.p")
    "ticker = 'the `x`' AND `a b` > st.p"
    """

    def bare(quoted: re.Match[str]) -> str:
        name = quoted[0][1:-1]
        is_plain = quoted[0][0] == "`" and re.fullmatch("[A-Za-z_][A-Za-z_0-9]*", name)
        return name if is_plain else quoted[0]

    return _QUOTED.sub(bare, re.sub(r"^Column<'(.*)'>$", r"\1", str(sql), flags=re.DOTALL))


def _names(variables: Sequence[Variable], numbers: Sequence[int]) -> list[str]:
    return [variables[number].name for number in numbers]
