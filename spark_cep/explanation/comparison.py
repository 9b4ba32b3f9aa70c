"""What was measured beside what was estimated, as tables and as text.

Data first: `tables` are numbers with labels, `comparison` aligns them. A number that nobody
estimated stands alone; one that was estimated stands beside the factor by which it was missed.
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
from spark_cep.explanation.shedding import measured_shedding_rows
from spark_cep.explanation.svg import clip_text
from spark_cep.explanation.text import format_line

if TYPE_CHECKING:
    from spark_cep.explanation.counts import CountMap
    from spark_cep.explanation.facts import PlanFacts


_LABEL_CELLS = 60
# A tree NFA has up to 2^n joins.
_SHOWN_JOINS = 12
# What a row pattern's matcher counts.
_ROW_COUNTS = (
    ("rows", "rows"),
    ("partitions", "partitions"),
    ("matches", "matches"),
    ("empty_matches", "empty ones among them"),
    ("unmatched_rows", "unmatched rows shown"),
    ("steps", "steps of the matcher"),
    ("memo_hits", "ways not gone again"),
    ("asked", "conditions tested one by one in Python"),
)
# A bucket swaps plans for itself; many buckets swap the same way.
_SHOWN_SWAPS = 10
# What reasons of swaps do not say of themselves.
_TERMS = {
    "cost(": "  cost(...) is the time that the best such plan takes for a window, in seconds",
    "rate(": "  rate(x) is how many candidates of x there are in a window",
    "sel(": "  sel(...) is the share that a condition keeps",
}
# In the reason of a swap; buckets that swap alike have each their own.
_FIGURES = re.compile(r"(?<=[ =])\d[\d.]*(?:e[+-]?\d+)?\b")


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
    """Estimated and measured: the work, the candidates, the selectivities, the joins. Nothing is
    estimated of a row pattern."""
    if facts.get("kind") == "row pattern":
        return (
            ComparisonTable(
                "Work",
                tuple(ComparisonRow(says, None, counts.get(name, 0)) for name, says in _ROW_COUNTS),
            ),
        )
    every = _join_rows(facts, counts)
    return (
        ComparisonTable("Work", tuple(_work_rows(facts, counts))),
        ComparisonTable("Candidates", tuple(_candidate_rows(facts, counts))),
        ComparisonTable("Share that a condition keeps", tuple(_selectivity_rows(facts, counts))),
        ComparisonTable("Pairs of a join", tuple(pairs for pairs, _ in every)),
        ComparisonTable("Partial matches of a join", tuple(partials for _, partials in every)),
    )


def estimate_scale(facts: PlanFacts, counts: CountMap) -> float | None:
    """What estimates are multiplied by to be of this input; None: that cannot be told.

    They may be for a window or a million rows. How many of these there were is what makes the
    candidates come out right, all variables together.
    """
    if not cost_unit(facts):
        return 1.0
    windows = _window_count(facts)
    numbers = _variable_numbers(facts)
    given = {name: rate for name, rate in candidate_rates(facts).items() if name in numbers}
    found = sum(counts["candidates"].get(numbers[name], 0) for name in given)
    return None if windows is None else _share(found, windows * sum(given.values()))


def _work_rows(facts: PlanFacts, counts: CountMap) -> Iterator[ComparisonRow]:
    by = estimate_scale(facts, counts)
    steps = [node for branch in plan_branches(facts) for node in branch.nodes]
    partial = [node.partials for node in steps if not node.is_last]
    whole = [node.partials for node in steps if node.is_last]
    is_sliced = not str(facts["slices"]).startswith("none")
    yield ComparisonRow(
        "rows, those in two slices twice" if is_sliced else "rows", None, counts["rows"]
    )
    yield ComparisonRow("windows of keys", None, counts["stretches"])
    yield ComparisonRow("pairs", _product(facts.get("cost"), by), counts["pairs"])
    yield ComparisonRow("partial matches", _product(_sum(partial), by), counts["partial_matches"])
    yield ComparisonRow("most of them at once in a window", None, counts["peak_partial_matches"])
    yield ComparisonRow("matches", _product(_sum(whole), by), counts["matches"])


def _candidate_rows(facts: PlanFacts, counts: CountMap) -> Iterator[ComparisonRow]:
    by = _product(_window_count(facts), estimate_scale(facts, counts))
    for name, number in _variable_numbers(facts).items():
        found = counts["candidates"].get(number)
        if found is not None:
            yield ComparisonRow(name, _product(candidate_rates(facts).get(name), by), found)


def _selectivity_rows(facts: PlanFacts, counts: CountMap) -> Iterator[ComparisonRow]:
    estimated = dict(condition_selectivities(facts))
    for number, text in enumerate(facts["engine"]["conditions"]):
        tested, kept = counts["conditions"].get(str(number), (0, 0))
        yield ComparisonRow(text, estimated.get(text), _share(kept, tested))


def _join_rows(facts: PlanFacts, counts: CountMap) -> list[tuple[ComparisonRow, ComparisonRow]]:
    """Pairs and partial matches of each: those of the plan in its order, then those of plans that
    were swapped in or that partial matches chose, most pairs first."""
    by = estimate_scale(facts, counts)
    found: dict[str, Sequence[int]] = dict(counts["nodes"])
    rows = []
    every = plan_branches(facts)
    for number, branch in enumerate(every):
        for node in (each for each in branch.nodes if not each.starts):
            pairs, partials = found.pop(node.key, (None, None))
            label = _join_label(number, node.bound, len(every))
            estimated = _product(node.pairs, by), _product(node.partials, by)
            rows.append(
                (
                    ComparisonRow(label, estimated[0], pairs),
                    ComparisonRow(label, estimated[1], partials),
                )
            )
    others = sorted(found.items(), key=lambda each: -each[1][0])
    for key, (pairs, partials) in others[:_SHOWN_JOINS]:
        number = int(key.partition(":")[0])
        names = every[number].called(key) if number < len(every) else ()
        label = _join_label(number, names or (key,), len(every))
        rows.append((ComparisonRow(label, None, pairs), ComparisonRow(label, None, partials)))
    return rows


def _join_label(branch: int, names: Sequence[str], branches_: int) -> str:
    return f"{f'branch {branch + 1}: ' if branches_ > 1 else ''}{' '.join(names)}"


def _variable_numbers(facts: PlanFacts) -> dict[str, str]:
    """A variable's number, as counts know it, is its place among the candidates."""
    return {name: str(number) for number, name in enumerate(facts["before"]["candidates"])}


def _window_count(facts: PlanFacts) -> float | None:
    windows: float | None = (facts.get("statistics") or {}).get("windows")
    return windows


def _product(value: float | None, by: float | None) -> float | None:
    return None if value is None or by is None else value * by


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _sum(values: Sequence[float | None]) -> float | None:
    """Nothing is known of a sum of which something is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


# ---- text --------------------------------------------------------------------------------------


def comparison_lines(analysis: Analysis) -> Iterator[str]:
    """Everything as lines of text."""
    facts, counts = analysis.facts, analysis.counts
    yield f"Match #{facts['number']}: {facts['pattern']}"
    yield format_line("plan", plan_title(facts))
    yield format_line("ran", _run_text(analysis))
    if not counts["complete"]:
        yield format_line("", "not all of the answer was read: these are counts of a part of it")
    yield format_line("engine", _engine_text(counts))
    by = estimate_scale(facts, counts)
    if cost_unit(facts) and by is not None:
        factor = numbers.format_amount(by)
        times = f"those for{cost_unit(facts)} times {factor}, by the candidates there were"
        yield format_line("estimates", times)
    yield from _align_tables([table for table in build_tables(facts, counts) if table.rows])
    yield from _swap_lines(counts)
    if counts.get("remotes"):
        yield "Remote data"
        yield from (format_line(name, said) for name, said in remote_count_rows(counts["remotes"]))
    if facts.get("shedding"):
        yield "Shedding"
        shed = measured_shedding_rows(facts["shedding"], counts.get("shed", {}), analysis.recall)
        yield from (format_line(name, said) for name, said in shed)


def _run_text(analysis: Analysis) -> str:
    count = analysis.facts["buckets"]["count"]
    where = f"{count} bucket{'s' * (count != 1)}"
    if analysis.seconds is None:
        return f"before, over {where}; what follows was counted then"
    return f"in {numbers.format_duration(analysis.seconds * 1e6)} over {where}"


def _engine_text(counts: CountMap) -> str:
    planning, matching = counts["planning_us"], counts["matching_us"]
    if not counts["rows"]:
        return "no row reached it"
    if not planning + matching:
        return "its time was not measured"
    share = 100 * planning / (planning + matching)
    checks = counts["plan_checks"]
    return (
        f"{numbers.format_duration(matching)} matching, "
        f"{numbers.format_duration(planning)} planning "
        f"({share:.1f} %), {checks:,} check{'s' * (checks != 1)} of the plan, all buckets together"
    )


def _align_tables(found: Sequence[ComparisonTable]) -> Iterator[str]:
    """All tables with one width of labels, so that numbers stand in columns."""
    rows = [row for table in found for row in table.rows]
    width = max([len(clip_text(row.label, _LABEL_CELLS)) for row in rows], default=0)
    width = max([width, *(len(table.title) - 2 for table in found)])
    for place, table in enumerate(found):
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
    often: Counter[tuple[str, str, str]] = Counter()
    for each in swaps:
        kind = (each["from"], each["to"], _FIGURES.sub("", each["because"]))
        first.setdefault(kind, each)
        often[kind] += 1
    for (old, new, why), count in often.most_common(_SHOWN_SWAPS):
        swap = first[old, new, why]
        since = swap["event_time"]
        when = f"at {since}" if count == 1 else f"{count:,} times, first at {since}"
        yield f"  {old} to {new}, {when}"
        yield f"    {swap['because']}"
    rest = len(often) - _SHOWN_SWAPS
    if rest > 0:
        yield f"  and {rest:,} other ways"
    yield from (said for term, said in _TERMS.items() if any(term in why for *_, why in often))


@dataclass(frozen=True)
class Analysis:
    """`counts` of a whole answer unless they say that they are not `complete`. `seconds`: how long
    the query ran; None: it had run before. `recall`: of a sample's matches, all of them and those
    that shedding leaves."""

    facts: PlanFacts
    counts: CountMap
    seconds: float | None
    recall: tuple[int, int] | None = None
