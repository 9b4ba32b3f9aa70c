"""The facts behind `explain` of a row pattern: the same facts as an event pattern's, where they
mean something; the picture is the automaton that the text of the pattern draws."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.explaining.explanation import MatchPlan, window_text
from spark_cep.explaining.report import unquoted
from spark_cep.udfs.rows.arrays import STEPS
from spark_cep.udfs.rows.compiled import PYTHON, compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.compiling.rows.compiled import CompiledRows
    from spark_cep.compiling.rows.grammar import PatternNode
    from spark_cep.options import RowOptions
    from spark_cep.planning.layout import Layout
    from spark_cep.planning.rows import MatcherChoice
    from spark_cep.row_patterns import RowPattern
    from spark_cep.shipping.shipment import Shipment
    from spark_cep.udfs.rows.compiled import Tested
    from spark_cep.udfs.rows.program import Matcher, RowProgram, Skip

# Spark cuts longer names off, and the answer's number stands at the end.
_LONGEST_PATTERN = 60
_BY_SPARK = "as a column, in Spark"
_ROWS = {
    "one": "one row per match",
    "all": "all rows per match",
    "all omit empty": "all rows per match, omitting empty matches",
    "all with unmatched": "all rows per match, with unmatched rows",
}


@dataclass(frozen=True)
class RowFacts:
    """What was decided."""

    pattern: RowPattern
    compiled: CompiledRows
    options: RowOptions
    program: RowProgram
    layout: Layout
    choice: MatcherChoice


def row_title(facts: RowFacts, number: int) -> str:
    """The name that Spark shows. What a name may not hold in Spark's plan is left out of it."""
    text = " ".join(facts.pattern.text.split()).replace("[", "(").replace("]", ")")
    if len(text) > _LONGEST_PATTERN:
        text = f"{text[:_LONGEST_PATTERN]}..."
    within = window_text(facts.pattern.window)
    by = "" if facts.choice.matcher == "walk" else " by gaps"
    parts = [f"rows{by} {text}", *([f"within {within}"] if within else []), facts.compiled.rows]
    return f"match_pattern[{', '.join(parts)}  #{number}]"


def row_report(
    facts: RowFacts, shipment: Shipment, columns: Sequence[str], number: int
) -> MatchPlan:
    """Everything that explain shows. Raises PatternError for a program that is too large to run:
    this is still the driver, before any job."""
    given, conditions = facts.compiled, _conditions(facts)
    names = [each.name for each in given.variables]
    return MatchPlan(
        {
            "number": number,
            "kind": "row pattern",
            "pattern": facts.pattern.text,
            "parts": pattern_parts(facts.pattern.root),
            "strategy": _ROWS[given.rows],
            "consumption": _skip(given.skip, names),
            "window": window_text(facts.pattern.window),
            "partition_by": list(given.partition),
            "inferred_keys": [],
            "order_by": [_order(each) for each in given.orders],
            "plan": facts.choice.matcher,
            "shown": facts.choice.shown,
            "order": names,
            "rung": facts.choice.rung,
            "reason": facts.choice.reason,
            "cost": None,
            "unit": "in all",
            "rejected": [asdict(each) for each in facts.choice.rejected],
            "adaptation": "no: the choice hangs on the pattern alone",
            "before": {
                "candidates": {
                    name: [f"{text}  ({where})"] if where else []
                    for name, (text, where) in conditions.items()
                },
                "computed": [each.text() for each in shipment.shipped if each.column is None],
                "shipped": [each.text() for each in shipment.shipped],
                "drops": "nothing: every row counts",
            },
            "buckets": {"count": facts.layout.buckets, "reason": facts.layout.buckets_reason},
            "slices": "none: the rows of a key stay together",
            "engine": {
                "conditions": [
                    f"{name}: {text}"
                    for name, (text, where) in conditions.items()
                    if where and where != _BY_SPARK
                ]
            },
            "limits": {"backtracking_steps": facts.program.limits.backtracking_steps or STEPS},
            "after": {"conditions": [], "columns": _shown(columns, given)},
        }
    )


def pattern_parts(node: PatternNode) -> dict[str, Any]:
    """The pattern's structure as plain data.

    >>> from spark_cep.compiling.rows.grammar import parse_pattern
    >>> pattern_parts(parse_pattern("^ a"))["parts"]
    [{'kind': 'mark', 'text': '^'}, {'kind': 'event', 'variable': 'a'}]
    """
    if node.kind == "variable":
        return {"kind": "event", "variable": node.name}
    if node.kind in {"empty", "start", "end"}:
        return {"kind": "mark", "text": {"empty": "()", "start": "^", "end": "$"}[node.kind]}
    parts = [pattern_parts(each) for each in node.parts]
    if node.kind == "exclude":
        return parts[0]
    if node.kind == "repeat":
        if (node.low, node.high) == (0, 1):
            return {"kind": "optional", "parts": parts}
        return {"kind": "repeat", "parts": parts, "low": node.low, "high": node.high}
    kinds = {"concat": "seq", "alternate": "any", "permute": "all"}
    return {"kind": kinds[node.kind], "parts": parts}


def _conditions(facts: RowFacts) -> dict[str, tuple[str, str]]:
    """What each variable asks of a row, and who tests it; nothing where any row will do."""
    made = compiled(facts.program).conditions
    given = facts.compiled
    found = {}
    for variable, (text, by_spark), tested in zip(
        given.variables, given.conditions, made, strict=True
    ):
        where = _BY_SPARK if by_spark else _where(tested, facts.choice.matcher)
        found[variable.name] = ("", "") if text is None else (_in_a_line(text), where)
    return found


def _in_a_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)


def _where(tested: Tested, matcher: Matcher) -> str:
    if tested.path is None:
        return "as a column, in the engine"
    if matcher == "gaps":
        return "as rows are joined, in the engine"
    return "row by row, in Python" if tested.start == PYTHON else "row by row, in the engine"


def _shown(columns: Sequence[str], compiled: CompiledRows) -> list[str]:
    texts = {each.name: _in_a_line(each.text) for each in compiled.measures}
    return [f"{texts[name]} AS {name}" if name in texts else name for name in columns]


def _skip(skip: Skip, names: Sequence[str]) -> str:
    if skip.kind == "past last row":
        return "skip past the last row"
    if skip.kind == "next row":
        return "skip to the next row"
    members = " or ".join(names[number] for number in sorted(skip.variables))
    return f"skip to the {skip.kind} {members}"


def _order(order: Any) -> str:
    text = unquoted(order.expression)
    return f"{text} DESC" if order.descending else text
