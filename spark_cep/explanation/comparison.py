"""Measured beside estimated numbers, as tables and as text: what `explain(mode="analyze")` prints.

`build_tables` makes tables of labelled numbers, `comparison_lines` aligns them as text. Where both
numbers are known, the measured one over the estimated one follows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.explanation import numbers
from spark_cep.explanation.facts import (
    candidate_rates,
    condition_selectivities,
    cost_unit,
    plan_branches,
    plan_title,
)
from spark_cep.explanation.remotes import remote_count_rows
from spark_cep.explanation.shedding import deadline_rows, measured_shedding_rows
from spark_cep.explanation.svg import clip_text
from spark_cep.explanation.text import format_line

if TYPE_CHECKING:
    from spark_cep.explanation.counts import CountMap
    from spark_cep.explanation.facts import PlanFacts


_LABEL_CELLS = 60
# Joins shown without an estimate: a tree NFA has up to 2^n of them.
_SHOWN_JOINS = 12
# What the matcher of row patterns counts, and how it is labelled.
_ROW_COUNTS = (
    ("rows", "rows"),
    ("partitions", "partitions"),
    ("matches", "matches"),
    ("empty_matches", "empty matches"),
    ("unmatched_rows", "unmatched rows in the answer"),
    ("steps", "steps of the matcher"),
    ("memo_hits", "paths skipped because they had failed"),
    ("asked", "conditions tested one by one in Python"),
)
# Different swaps shown; each bucket swaps plans by itself, and many swap the same way.
_SHOWN_SWAPS = 10
# Explanations of the terms in the reasons of swaps.
_TERMS = {
    "cost(": "  cost(...) is the estimated time of the best such plan for a window, in seconds",
    "rate(": "  rate(x) is the number of candidates of x in a window",
    "sel(": "  sel(...) is the selectivity of a condition",
}
# Numbers in the reason of a swap, which differ between buckets that swap alike.
_FIGURES = re.compile(r"(?<=[ =])\d[\d.]*(?:e[+-]?\d+)?\b")


@dataclass(frozen=True)
class Analysis:
    """What was measured for one pattern.

    `counts` say in `complete` whether the whole answer was read. `seconds` is how long the query
    ran; None: it had run before. `recall` has the number of matches in a sample, and how many of
    them shedding leaves.
    """

    facts: PlanFacts
    counts: CountMap
    seconds: float | None
    recall: tuple[int, int] | None = None


@dataclass(frozen=True)
class ComparisonRow:
    """One quantity; None where it was not estimated, or not measured."""

    label: str
    estimated: float | None
    measured: float | None


@dataclass(frozen=True)
class ComparisonTable:
    title: str
    rows: tuple[ComparisonRow, ...]


def build_tables(facts: PlanFacts, counts: CountMap) -> tuple[ComparisonTable, ...]:
    """The work, the candidates, the selectivities and the joins. For a row pattern only the work,
    without estimates."""
    if facts.get("kind") == "row pattern":
        return (
            ComparisonTable(
                "Work",
                tuple(
                    ComparisonRow(label, None, counts.get(name, 0)) for name, label in _ROW_COUNTS
                ),
            ),
        )
    joins = _join_rows(facts, counts)
    return (
        ComparisonTable("Work", tuple(_work_rows(facts, counts))),
        ComparisonTable("Candidates", tuple(_candidate_rows(facts, counts))),
        ComparisonTable("Selectivity of a condition", tuple(_selectivity_rows(facts, counts))),
        ComparisonTable("Pairs of a join", tuple(pairs for pairs, _ in joins)),
        ComparisonTable("Partial matches of a join", tuple(partials for _, partials in joins)),
        ComparisonTable("Pairs of an order that ran", tuple(_order_rows(counts))),
    )


def estimate_scale(facts: PlanFacts, counts: CountMap) -> float | None:
    """The factor that makes estimates comparable to the counts; None if it is unknown.

    Estimates may be for a window or a million rows. The factor is the number of these at which
    the estimated candidates of all variables together are the measured ones.
    """
    if not cost_unit(facts):
        return 1.0
    windows = _window_count(facts)
    numbers = _variable_numbers(facts)
    given = {name: rate for name, rate in candidate_rates(facts).items() if name in numbers}
    measured = sum(counts["candidates"].get(numbers[name], 0) for name in given)
    return None if windows is None else _share(measured, windows * sum(given.values()))


def _work_rows(facts: PlanFacts, counts: CountMap) -> Iterator[ComparisonRow]:
    scale = estimate_scale(facts, counts)
    steps = [node for branch in plan_branches(facts) for node in branch.nodes]
    partial = [node.partials for node in steps if not node.is_last]
    whole = [node.partials for node in steps if node.is_last]
    is_sliced = not str(facts["slices"]).startswith("none")
    yield ComparisonRow(
        "rows, counted once for each slice" if is_sliced else "rows", None, counts["rows"]
    )
    yield ComparisonRow("windows of keys", None, counts["stretches"])
    yield ComparisonRow("pairs", _product(facts.get("cost"), scale), counts["pairs"])
    yield ComparisonRow(
        "partial matches", _product(_sum(partial), scale), counts["partial_matches"]
    )
    yield ComparisonRow("most partial matches at one time", None, counts["peak_partial_matches"])
    yield ComparisonRow("matches", _product(_sum(whole), scale), counts["matches"])


def _order_rows(counts: CountMap) -> Iterator[ComparisonRow]:
    """The orders that ran, most pairs first. The plan is one of them where it was run as it is."""
    for order, pairs in [*counts.get("orders", {}).items()][:_SHOWN_JOINS]:
        yield ComparisonRow(order, None, pairs)


def _candidate_rows(facts: PlanFacts, counts: CountMap) -> Iterator[ComparisonRow]:
    windows = _product(_window_count(facts), estimate_scale(facts, counts))
    for name, number in _variable_numbers(facts).items():
        measured = counts["candidates"].get(number)
        if measured is not None:
            estimated = _product(candidate_rates(facts).get(name), windows)
            yield ComparisonRow(name, estimated, measured)


def _selectivity_rows(facts: PlanFacts, counts: CountMap) -> Iterator[ComparisonRow]:
    estimated = dict(condition_selectivities(facts))
    for number, text in enumerate(facts["engine"]["conditions"]):
        tested, kept = counts["conditions"].get(str(number), (0, 0))
        yield ComparisonRow(text, estimated.get(text), _share(kept, tested))


def _join_rows(facts: PlanFacts, counts: CountMap) -> list[tuple[ComparisonRow, ComparisonRow]]:
    """Pairs and partial matches of each join: those of the plan in its order, then those of plans
    that replaced it or that partial matches chose, most pairs first."""
    scale = estimate_scale(facts, counts)
    measured: dict[str, Sequence[int]] = dict(counts["nodes"])
    rows = []
    branches = plan_branches(facts)
    for number, branch in enumerate(branches):
        for node in (each for each in branch.nodes if not each.starts):
            pairs, partials = measured.pop(node.key, (None, None))
            label = _join_label(number, node.bound, len(branches))
            estimated = _product(node.pairs, scale), _product(node.partials, scale)
            rows.append(
                (
                    ComparisonRow(label, estimated[0], pairs),
                    ComparisonRow(label, estimated[1], partials),
                )
            )
    others = sorted(measured.items(), key=lambda each: -each[1][0])
    for key, (pairs, partials) in others[:_SHOWN_JOINS]:
        number = int(key.partition(":")[0])
        names = branches[number].names_of(key) if number < len(branches) else ()
        label = _join_label(number, names or (key,), len(branches))
        rows.append((ComparisonRow(label, None, pairs), ComparisonRow(label, None, partials)))
    return rows


def _join_label(branch: int, names: Sequence[str], branch_count: int) -> str:
    return f"{f'branch {branch + 1}: ' if branch_count > 1 else ''}{' '.join(names)}"


def _variable_numbers(facts: PlanFacts) -> dict[str, str]:
    """The number that each variable has in counts: its place among the candidates."""
    return {name: str(number) for number, name in enumerate(facts["before"]["candidates"])}


def _window_count(facts: PlanFacts) -> float | None:
    windows: float | None = (facts.get("statistics") or {}).get("windows")
    return windows


def _product(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum; None if a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


# ---- text --------------------------------------------------------------------------------------


def comparison_lines(analysis: Analysis) -> Iterator[str]:
    """The whole comparison as lines of text."""
    facts, counts = analysis.facts, analysis.counts
    yield f"Match #{facts['number']}: {facts['pattern']}"
    yield format_line("plan", plan_title(facts))
    yield format_line("ran", _run_text(analysis))
    if not counts["complete"]:
        yield format_line("", "the answer was read only in part: the counts are of that part")
    yield format_line("engine", _engine_text(counts))
    scale = estimate_scale(facts, counts)
    if cost_unit(facts) and scale is not None:
        factor = numbers.format_amount(scale)
        scaled = f"for{cost_unit(facts)}, times {factor} to agree in the number of candidates"
        yield format_line("estimates", scaled)
    yield from _align_tables([table for table in build_tables(facts, counts) if table.rows])
    yield from _swap_lines(counts)
    if counts.get("remotes"):
        yield "Remote data"
        counted = remote_count_rows(counts["remotes"], facts.get("remotes", ()))
        yield from (format_line(*row) for row in counted)
    if facts.get("shedding"):
        yield "Shedding"
        shed = measured_shedding_rows(facts["shedding"], counts, analysis.recall)
        yield from (format_line(*row) for row in (*shed, *deadline_rows(counts)))


def _run_text(analysis: Analysis) -> str:
    count = analysis.counts.get("buckets", 0)
    where = f" over {count} bucket{'s' * (count != 1)}" if count else ""
    if analysis.seconds is None:
        return f"earlier{where}; the counts are those of that run"
    return f"in {numbers.format_duration(analysis.seconds * 1e6)}{where}"


def _engine_text(counts: CountMap) -> str:
    planning, matching = counts["planning_us"], counts["matching_us"]
    if not counts["rows"]:
        return "no rows reached it"
    if not planning + matching:
        return "its time was not measured"
    share = 100 * planning / (planning + matching)
    checks = counts["plan_checks"]
    return (
        f"{numbers.format_duration(matching)} matching, "
        f"{numbers.format_duration(planning)} planning "
        f"({share:.1f} %), {checks:,} check{'s' * (checks != 1)} of the plan, all buckets together"
    )


def _align_tables(tables: Sequence[ComparisonTable]) -> Iterator[str]:
    """All tables with one width of labels, so that the numbers are aligned."""
    rows = [row for table in tables for row in table.rows]
    width = max([len(clip_text(row.label, _LABEL_CELLS)) for row in rows], default=0)
    width = max([width, *(len(table.title) - 2 for table in tables)])
    for place, table in enumerate(tables):
        heads = f"{'estimated':>12} {'measured':>12}" if place == 0 else ""
        yield f"{table.title:<{width + 2}} {heads}".rstrip()
        for row in table.rows:
            cells = f"{_number_cell(row.estimated):>12} {_number_cell(row.measured):>12}"
            factor = numbers.format_factor(row.measured, row.estimated)
            label = clip_text(row.label, _LABEL_CELLS)
            yield f"  {label:<{width}} {cells}  {factor}".rstrip()


def _number_cell(value: float | None) -> str:
    return "-" if value is None else numbers.format_amount(value)


def _swap_lines(counts: CountMap) -> Iterator[str]:
    swaps = counts["swaps"]
    if not swaps:
        yield "Plan swaps: none"
        return
    yield f"Plan swaps: {len(swaps):,}"
    first: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    times: Counter[tuple[str, str, str]] = Counter()
    for each in swaps:
        kind = (each["from"], each["to"], _FIGURES.sub("", each["because"]))
        first.setdefault(kind, each)
        times[kind] += 1
    for (old, new, why), count in times.most_common(_SHOWN_SWAPS):
        swap = first[old, new, why]
        since = swap["event_time"]
        when = f"at {since}" if count == 1 else f"{count:,} times, first at {since}"
        yield f"  {old} to {new}, {when}"
        yield f"    {swap['because']}"
    rest = len(times) - _SHOWN_SWAPS
    if rest > 0:
        yield f"  and {rest:,} other changes"
    yield from (
        meaning for term, meaning in _TERMS.items() if any(term in why for *_, why in times)
    )
