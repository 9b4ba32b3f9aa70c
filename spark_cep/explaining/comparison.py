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

from spark_cep.explaining import figures
from spark_cep.explaining.planned import branches, rates, selectivities, title, unit
from spark_cep.explaining.remotes import counted
from spark_cep.explaining.shedding import measured
from spark_cep.explaining.sketch import clipped
from spark_cep.explaining.text import line

if TYPE_CHECKING:
    from spark_cep.explaining.analysis import Analysis
    from spark_cep.explaining.counts import Counts
    from spark_cep.explaining.planned import Facts

_LABEL_CELLS = 60
# A tree NFA has up to 2^n joins.
_SHOWN_JOINS = 12
# What a row pattern's matcher counts.
_ROWS = (
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
class Row:
    """One quantity; None where it was not estimated, or not measured."""

    label: str
    estimated: float | None
    measured: float | None


@dataclass(frozen=True)
class Table:
    title: str
    rows: tuple[Row, ...]


def tables(facts: Facts, counts: Counts) -> tuple[Table, ...]:
    """Estimated and measured: the work, the candidates, the selectivities, the joins. Nothing is
    estimated of a row pattern."""
    if facts.get("kind") == "row pattern":
        return (Table("Work", tuple(Row(says, None, counts.get(name, 0)) for name, says in _ROWS)),)
    every = _joins(facts, counts)
    return (
        Table("Work", tuple(_work(facts, counts))),
        Table("Candidates", tuple(_candidates(facts, counts))),
        Table("Share that a condition keeps", tuple(_selectivities(facts, counts))),
        Table("Pairs of a join", tuple(pairs for pairs, _ in every)),
        Table("Partial matches of a join", tuple(partials for _, partials in every)),
    )


def scale(facts: Facts, counts: Counts) -> float | None:
    """What estimates are multiplied by to be of this input; None: that cannot be told.

    They may be for a window or a million rows. How many of these there were is what makes the
    candidates come out right, all variables together.
    """
    if not unit(facts):
        return 1.0
    windows = _windows(facts)
    numbers = _numbers(facts)
    given = {name: rate for name, rate in rates(facts).items() if name in numbers}
    found = sum(counts["candidates"].get(numbers[name], 0) for name in given)
    return None if windows is None else _share(found, windows * sum(given.values()))


def _work(facts: Facts, counts: Counts) -> Iterator[Row]:
    by = scale(facts, counts)
    steps = [node for branch in branches(facts) for node in branch.nodes]
    partial = [node.partials for node in steps if not node.is_last]
    whole = [node.partials for node in steps if node.is_last]
    is_sliced = not str(facts["slices"]).startswith("none")
    yield Row("rows, those in two slices twice" if is_sliced else "rows", None, counts["rows"])
    yield Row("windows of keys", None, counts["stretches"])
    yield Row("pairs", _product(facts.get("cost"), by), counts["pairs"])
    yield Row("partial matches", _product(_sum(partial), by), counts["partial_matches"])
    yield Row("most of them at once in a window", None, counts["peak_partial_matches"])
    yield Row("matches", _product(_sum(whole), by), counts["matches"])


def _candidates(facts: Facts, counts: Counts) -> Iterator[Row]:
    by = _product(_windows(facts), scale(facts, counts))
    for name, number in _numbers(facts).items():
        found = counts["candidates"].get(number)
        if found is not None:
            yield Row(name, _product(rates(facts).get(name), by), found)


def _selectivities(facts: Facts, counts: Counts) -> Iterator[Row]:
    estimated = dict(selectivities(facts))
    for number, text in enumerate(facts["engine"]["conditions"]):
        tested, kept = counts["conditions"].get(str(number), (0, 0))
        yield Row(text, estimated.get(text), _share(kept, tested))


def _joins(facts: Facts, counts: Counts) -> list[tuple[Row, Row]]:
    """Pairs and partial matches of each: those of the plan in its order, then those of plans that
    were swapped in or that partial matches chose, most pairs first."""
    by = scale(facts, counts)
    found: dict[str, Sequence[int]] = dict(counts["nodes"])
    rows = []
    every = branches(facts)
    for number, branch in enumerate(every):
        for node in (each for each in branch.nodes if not each.starts):
            pairs, partials = found.pop(node.key, (None, None))
            label = _label(number, node.bound, len(every))
            estimated = _product(node.pairs, by), _product(node.partials, by)
            rows.append((Row(label, estimated[0], pairs), Row(label, estimated[1], partials)))
    others = sorted(found.items(), key=lambda each: -each[1][0])
    for key, (pairs, partials) in others[:_SHOWN_JOINS]:
        number = int(key.partition(":")[0])
        names = every[number].called(key) if number < len(every) else ()
        label = _label(number, names or (key,), len(every))
        rows.append((Row(label, None, pairs), Row(label, None, partials)))
    return rows


def _label(branch: int, names: Sequence[str], branches_: int) -> str:
    return f"{f'branch {branch + 1}: ' if branches_ > 1 else ''}{' '.join(names)}"


def _numbers(facts: Facts) -> dict[str, str]:
    """A variable's number, as counts know it, is its place among the candidates."""
    return {name: str(number) for number, name in enumerate(facts["before"]["candidates"])}


def _windows(facts: Facts) -> float | None:
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


def comparison(analysis: Analysis) -> Iterator[str]:
    """Everything as lines of text."""
    facts, counts = analysis.facts, analysis.counts
    yield f"Match #{facts['number']}: {facts['pattern']}"
    yield line("plan", title(facts))
    yield line("ran", _ran(analysis))
    if not counts["complete"]:
        yield line("", "not all of the answer was read: these are counts of a part of it")
    yield line("engine", _engine(counts))
    by = scale(facts, counts)
    if unit(facts) and by is not None:
        times = f"those for{unit(facts)} times {figures.amount(by)}, by the candidates there were"
        yield line("estimates", times)
    yield from _aligned([table for table in tables(facts, counts) if table.rows])
    yield from _swaps(counts)
    if counts.get("remotes"):
        yield "Remote data"
        yield from (line(name, said) for name, said in counted(counts["remotes"]))
    if facts.get("shedding"):
        yield "Shedding"
        shed = measured(facts["shedding"], counts.get("shed", {}), analysis.recall)
        yield from (line(name, said) for name, said in shed)


def _ran(analysis: Analysis) -> str:
    count = analysis.facts["buckets"]["count"]
    where = f"{count} bucket{'s' * (count != 1)}"
    if analysis.seconds is None:
        return f"before, over {where}; what follows was counted then"
    return f"in {figures.seconds(analysis.seconds * 1e6)} over {where}"


def _engine(counts: Counts) -> str:
    planning, matching = counts["planning_us"], counts["matching_us"]
    if not counts["rows"]:
        return "no row reached it"
    if not planning + matching:
        return "its time was not measured"
    share = 100 * planning / (planning + matching)
    checks = counts["plan_checks"]
    return (
        f"{figures.seconds(matching)} matching, {figures.seconds(planning)} planning "
        f"({share:.1f} %), {checks:,} check{'s' * (checks != 1)} of the plan, all buckets together"
    )


def _aligned(found: Sequence[Table]) -> Iterator[str]:
    """All tables with one width of labels, so that numbers stand in columns."""
    rows = [row for table in found for row in table.rows]
    width = max([len(clipped(row.label, _LABEL_CELLS)) for row in rows], default=0)
    width = max([width, *(len(table.title) - 2 for table in found)])
    for place, table in enumerate(found):
        heads = f"{'estimated':>12} {'measured':>12}" if place == 0 else ""
        yield f"{table.title:<{width + 2}} {heads}".rstrip()
        for row in table.rows:
            cells = f"{_number(row.estimated):>12} {_number(row.measured):>12}"
            factor = figures.times(row.measured, row.estimated)
            label = clipped(row.label, _LABEL_CELLS)
            yield f"  {label:<{width}} {cells}  {factor}".rstrip()


def _number(value: float | None) -> str:
    return "-" if value is None else figures.amount(value)


def _swaps(counts: Counts) -> Iterator[str]:
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
