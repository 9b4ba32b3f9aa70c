"""The facts behind `explain`, from what was decided for a pattern, and the name of its Spark job.

Facts are plain data. Row patterns have the same ones as event patterns, as far as they apply;
streams have two more.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.events.compiled import drops_rows
from spark_cep.explanation.numbers import format_amount
from spark_cep.explanation.plan import MatchPlan, pattern_parts, pattern_text, window_text
from spark_cep.planner.choice import describe_costs
from spark_cep.spark.shedding_report import shedding_flags
from spark_cep.udfs.events.context import (
    deciding_row,
    latest_row_waits,
    needs_two_windows,
    negation_places,
)
from spark_cep.udfs.events.waiting import can_keep_matches, may_keep_by_cost
from spark_cep.udfs.planning.planner import branch_models
from spark_cep.udfs.program import Program
from spark_cep.udfs.rows.arrays import DEFAULT_STEP_LIMIT
from spark_cep.udfs.rows.compiled import PYTHON_CONDITION, compile_defines
from spark_cep.udfs.rows.leaves import keeps_partitions, rows_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column

    from spark_cep.events.answer import AnswerShape
    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.expressions.row_grammar import PatternNode
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.options import RowOptions
    from spark_cep.pattern import Pattern
    from spark_cep.planner.choice import PlanChoice
    from spark_cep.planner.layout import Layout
    from spark_cep.planner.matcher import MatcherChoice
    from spark_cep.planner.payload import PayloadChoice
    from spark_cep.row_patterns import RowPattern
    from spark_cep.rows.compiled import CompiledRowPattern
    from spark_cep.shed import Shed
    from spark_cep.spark.partial_shedding import PartialSheddingPlan
    from spark_cep.spark.shedding import SheddingPlan
    from spark_cep.udfs.program import Variable
    from spark_cep.udfs.row_program import MatcherKind, RowProgram, Skip
    from spark_cep.udfs.rows.compiled import CompiledDefine


# ---- event patterns ----------------------------------------------------------------------------

_STRATEGIES = {
    "any": "skip till any match",
    "next": "skip till next match",
    "strict": "strict",
}
# Literals and quoted names of Spark SQL: a quote inside a literal is not that of a name.
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)


def job_title(
    pattern: Pattern,
    compiled: CompiledPattern,
    decided: tuple[PlanChoice, SheddingPlan | PartialSheddingPlan | Shed | None],
    number: int,
) -> str:
    """The name that Spark shows: plan, order, window, estimated cost and that of the next best
    plan, strategy, shedding, and the number of the answer."""
    choice, shedding = decided
    within = window_text(pattern.window)
    shown = "" if choice.shown == choice.plan.kind else f" {choice.shown}"
    parts = [
        f"{choice.plan.kind}{shown}",
        *([f"within {within}"] if within else []),
        *_estimate_parts(choice),
        compiled.strategy,
        *shedding_flags(shedding),
    ]
    return f"match_pattern[{', '.join(parts)}  #{number}]"


def _estimate_parts(choice: PlanChoice) -> Iterator[str]:
    if choice.cost is None:
        return
    unit = "" if choice.unit == "in all" else f" {choice.unit}"
    others = [each for each in choice.rejected if each.cost is not None]
    # Two kinds of plan may have the same order; that is not an alternative.
    another = [each for each in others if each.shown != choice.shown] or others
    best = next((each for each in another if (each.cost or 0) >= choice.cost), None)
    best = best or next(iter(another), None)
    runner_up = f" ({best.plan} {format_amount(best.cost)})" if best else ""
    yield f"est. {format_amount(choice.cost)} pairs{unit}{runner_up}"


def build_report(
    pattern: Pattern,
    compiled: CompiledPattern,
    shipment: Shipment,
    decided: tuple[PlanChoice, Layout, AnswerShape, Program],
    number: int,
) -> MatchPlan:
    """All facts of an event pattern."""
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
            "order_by": [_order_text(each) for each in compiled.orders],
            "plan": choice.plan.kind,
            "shown": choice.shown,
            "order": _names_of(compiled.variables, choice.order),
            "rung": choice.rung,
            "reason": choice.reason,
            "cost": choice.cost,
            "unit": choice.unit,
            "rejected": [asdict(each) for each in choice.rejected],
            **describe_costs(compiled, choice, program.adaptation),
            **({"optimize": program.optimize} if program.adaptation.to_hybrid else {}),
            "before": _before_facts(compiled, shipment),
            "buckets": {"count": layout.buckets, "reason": layout.buckets_reason},
            "slices": layout.slices_reason,
            "engine": {"conditions": [each.text for each in compiled.conditions]},
            "limits": asdict(program.limits),
            "after": {
                "conditions": list(compiled.after),
                "columns": _answer_columns(answer, compiled),
            },
        }
    )


def add_payload_facts(plan: MatchPlan, payload: PayloadChoice) -> MatchPlan:
    """The plan with `payload`, how the columns get into the answer that matching does not read."""
    facts = {"mode": payload.mode, "reason": payload.reason}
    return MatchPlan({**plan.facts, "payload": facts})


def _before_facts(compiled: CompiledPattern, shipment: Shipment) -> dict[str, Any]:
    computed = [
        f"{strip_quotes(each.text())}{_guard_text(each.guards, compiled.variables)}"
        for each in shipment.shipped
        if each.column is None and each.role == "value"
    ]
    drops = "rows that no variable accepts" if all(compiled.masks) else "nothing: any row may match"
    if not drops_rows(compiled):
        drops = "nothing: every row counts"
    return {
        "candidates": {
            each.name: [strip_quotes(condition) for condition in conditions]
            for each, conditions in zip(compiled.variables, compiled.masks, strict=True)
        },
        "computed": computed,
        "shipped": [
            each.text() if each.column is not None else strip_quotes(each.text())
            for each in shipment.shipped
        ],
        "drops": drops,
    }


def _guard_text(guards: frozenset[int] | None, variables: Sequence[Variable]) -> str:
    return f"  (for {', '.join(_names_of(variables, sorted(guards)))})" if guards else ""


def _answer_columns(answer: AnswerShape, compiled: CompiledPattern) -> list[str]:
    if answer.shape == "rows":
        return ["match_id", "variable", *answer.names]
    if answer.shape == "measures":
        return [*answer.partition, *(f"{each.text} AS {each.name}" for each in answer.measures)]
    positive = [each.name for each in compiled.variables if not each.negated]
    return [*answer.partition, *positive, "match_start", "match_end"]


def _order_text(order: Any) -> str:
    text = strip_quotes(order.expression)
    return f"{text} DESC" if order.descending else text


def strip_quotes(sql: str | Column) -> str:
    """SQL for people: without quotes that a name does not need; a Column as Spark prints it.

    >>> strip_quotes("`ticker` = 'the `x`' AND `a b` > `st`.p")
    "ticker = 'the `x`' AND `a b` > st.p"
    """

    def bare(quoted: re.Match[str]) -> str:
        name = quoted[0][1:-1]
        is_plain = quoted[0][0] == "`" and re.fullmatch("[A-Za-z_][A-Za-z_0-9]*", name)
        return name if is_plain else quoted[0]

    return _QUOTED.sub(bare, re.sub(r"^Column<'(.*)'>$", r"\1", str(sql), flags=re.DOTALL))


def _names_of(variables: Sequence[Variable], numbers: Sequence[int]) -> list[str]:
    return [variables[number].name for number in numbers]


# ---- row patterns ------------------------------------------------------------------------------

# Spark cuts longer names off, and the answer's number is at the end.
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
    """What was decided for a row pattern."""

    pattern: RowPattern
    compiled: CompiledRowPattern
    options: RowOptions
    program: RowProgram
    layout: Layout
    choice: MatcherChoice


def row_job_title(facts: RowFacts, number: int) -> str:
    """The name that Spark shows. Brackets, which end the name in Spark's plan, are replaced."""
    text = " ".join(facts.pattern.text.split()).replace("[", "(").replace("]", ")")
    if len(text) > _LONGEST_PATTERN:
        text = f"{text[:_LONGEST_PATTERN]}..."
    within = window_text(facts.pattern.window)
    by = "" if facts.choice.matcher == "walk" else " by gaps"
    parts = [f"rows{by} {text}", *([f"within {within}"] if within else []), facts.compiled.rows]
    return f"match_pattern[{', '.join(parts)}  #{number}]"


def build_row_report(
    facts: RowFacts, shipment: Shipment, columns: Sequence[str], number: int
) -> MatchPlan:
    """All facts of a row pattern. Raises PatternError if the program is too large to run: this is
    the driver, before any job."""
    compiled, conditions = facts.compiled, _condition_facts(facts)
    window = facts.options.window
    names = [each.name for each in compiled.variables]
    return MatchPlan(
        {
            "number": number,
            "kind": "row pattern",
            "pattern": facts.pattern.text,
            "parts": row_pattern_parts(facts.pattern.root),
            "strategy": window.text() if window is not None else _ROWS[compiled.rows],
            "consumption": _skip_text(compiled.skip, names)
            + (", the longest match" if compiled.longest else ""),
            "window": window_text(facts.pattern.window),
            "partition_by": list(compiled.partition),
            "inferred_keys": [],
            "order_by": [_order_text(each) for each in compiled.orders],
            "plan": facts.choice.matcher,
            "shown": facts.choice.shown,
            "order": names,
            "rung": facts.choice.rung,
            "reason": facts.choice.reason,
            "cost": None,
            "unit": "in all",
            "rejected": [asdict(each) for each in facts.choice.rejected],
            "adaptation": "no: the plan depends on the pattern alone",
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
            "slices": facts.layout.slices_reason,
            "engine": {
                "conditions": [
                    f"{name}: {text}"
                    for name, (text, where) in conditions.items()
                    if where and where != _BY_SPARK
                ]
            },
            "limits": {
                "backtracking_steps": facts.program.limits.backtracking_steps or DEFAULT_STEP_LIMIT
            },
            "after": {"conditions": [], "columns": _row_answer_columns(columns, compiled)},
        }
    )


def row_pattern_parts(node: PatternNode) -> dict[str, Any]:
    """The pattern's structure as plain data.

    >>> from spark_cep.expressions.row_grammar import parse_row_pattern
    >>> row_pattern_parts(parse_row_pattern("^ a"))["parts"]
    [{'kind': 'mark', 'text': '^'}, {'kind': 'event', 'variable': 'a'}]
    """
    if node.kind == "variable":
        return {"kind": "event", "variable": node.name}
    if node.kind in {"empty", "start", "end"}:
        return {"kind": "mark", "text": {"empty": "()", "start": "^", "end": "$"}[node.kind]}
    parts = [row_pattern_parts(each) for each in node.parts]
    if node.kind == "exclude":
        return parts[0]
    if node.kind == "repeat":
        if (node.low, node.high) == (0, 1):
            return {"kind": "optional", "parts": parts}
        return {"kind": "repeat", "parts": parts, "low": node.low, "high": node.high}
    kinds = {"concat": "seq", "alternate": "any", "permute": "all"}
    return {"kind": kinds[node.kind], "parts": parts}


def _condition_facts(facts: RowFacts) -> dict[str, tuple[str, str]]:
    """The condition of each variable and where it is tested; empty texts if every row meets it."""
    compiled = facts.compiled
    # The program of a window frame may have a variable more.
    tests = compile_defines(facts.program).conditions[: len(compiled.variables)]
    conditions = {}
    for variable, (text, by_spark), tested in zip(
        compiled.variables, compiled.conditions, tests, strict=True
    ):
        where = _BY_SPARK if by_spark else _tester_text(tested, facts.choice.matcher)
        conditions[variable.name] = ("", "") if text is None else (_as_one_line(text), where)
    return conditions


def _as_one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)


def _tester_text(tested: CompiledDefine, matcher: MatcherKind) -> str:
    if tested.path is None:
        return "as a column, in the engine"
    if matcher == "gaps":
        return "as rows are joined, in the engine"
    return (
        "row by row, in Python" if tested.start == PYTHON_CONDITION else "row by row, in the engine"
    )


def _row_answer_columns(columns: Sequence[str], compiled: CompiledRowPattern) -> list[str]:
    texts = {each.name: _as_one_line(each.text) for each in compiled.measures}
    return [f"{texts[name]} AS {name}" if name in texts else name for name in columns]


def _skip_text(skip: Skip, names: Sequence[str]) -> str:
    if skip.kind == "past last row":
        return "skip past the last row"
    if skip.kind == "next row":
        return "skip to the next row"
    members = " or ".join(names[number] for number in sorted(skip.variables))
    return f"skip to the {skip.kind} {members}"


# ---- streams -----------------------------------------------------------------------------------


def add_stream_facts(plan: MatchPlan, program: Program | RowProgram) -> MatchPlan:
    """The plan with `given`, when a stream emits a match, and `state`, the rows that it keeps; of
    an event pattern that a plan orders also `kept`, its partial matches and matches in the state,
    and `runs`, the order of a trigger.

    All follow from the program alone, by the rules that the workers apply
    (`udfs/events/context.py`, `udfs/rows/leaves.py`), so they are known before the first row.
    """
    window, rows = plan.facts["window"], program.limits.rows
    most = "" if rows is None else f"; at most {rows:,} of a key"
    planned: dict[str, str] = {}
    if isinstance(program, Program):
        given, state = _emission_text(program, window), _state_text(program, window)
        if program.strategy == "any":
            kept = _kept_text(program)
            if can_keep_matches(program) and may_keep_by_cost(program):
                kept += "; matches that are not certain yet, where that is a small part of the work"
            planned = {"kept": kept, "runs": _order_of_triggers(program)}
    else:
        given, state = _row_emission_text(window), _row_state_text(program)
    stream = {"given": given, "state": f"{state}{most}", **planned}
    return MatchPlan({**plan.facts, "stream": stream})


def _kept_text(program: Program) -> str:
    """The partial matches in the state, or why there are none."""
    plan = program.plan
    can_change = program.adaptation.to_hybrid
    groups = [each.eager for each in plan.branches or () if len(each.eager) > 1]
    if not groups and not can_change and plan.kind not in {"eager", "hybrid"}:
        return "no partial matches: they are found again in each trigger"
    if deciding_row(program) == "earliest":
        return (
            "no partial matches: with a NOT at the end or around all, the first row of a match "
            "says when it is given"
        )
    if not groups:
        changing = "no partial matches, until a bucket's counts say that keeping some is faster"
        return changing if can_change else "no partial matches: single rows are kept anyway"
    names = {
        " ".join(branch_model.names[slot] for slot in each.eager[:length]): None
        for branch_model, each in zip(branch_models(program), plan.branches or (), strict=True)
        for length in range(2, len(each.eager) + 1)
    }
    return f"partial matches of {', '.join(names)}"


def _order_of_triggers(program: Program) -> str:
    plan = program.plan
    if plan.kind == "tree":
        return "each partial match chooses its next variable"
    is_fixed = plan.branches is not None and all(each.fixed for each in plan.branches)
    if is_fixed or program.planner != "dp":
        return "this plan in every trigger; its rows stand where the order has the last event"
    return (
        "the plan, or where it is cheaper an order that begins with the trigger's rows; `orders` "
        "in cep.streaming.metrics(query) has those that ran"
    )


def _emission_text(program: Program, window: str | None) -> str:
    by = deciding_row(program)
    if by == "any":
        return "at once, in whatever order rows arrive"
    if by == "earliest":
        return f"when the watermark is {window} past its first row"
    if by == "start":
        latest = f", at the latest when the watermark is {window} past it" if window else ""
        return f"when no run from its first row can be extended{latest}"
    if latest_row_waits(program):
        return f"when the watermark is {window} past its last row"
    return "when the watermark has passed its last row"


def _state_text(program: Program, window: str | None) -> str:
    assert window is not None or program.window is None
    from_start = deciding_row(program) == "start" and not negation_places(program) & {
        "start",
        "around",
    }
    from_where = "rows of a key from its first undecided start on" if from_start else ""
    if window is None:
        return from_where or "all rows"
    twice = "twice " if needs_two_windows(program) else ""
    if from_start:
        return f"{from_where}, until the watermark is {window} past them"
    return f"rows until the watermark is {twice}{window} past them"


def _row_state_text(program: RowProgram) -> str:
    searching = "rows of undecided searches"
    if not keeps_partitions(program):
        return searching
    count = max(1, rows_back(program))
    last = "last row" if count == 1 else f"last {count} rows"
    return f"{searching}, and the {last} of every key for ever"


def _row_emission_text(window: str | None) -> str:
    latest = f", at the latest when the watermark is {window} past its first row" if window else ""
    return f"when no later row can change it{latest}"
