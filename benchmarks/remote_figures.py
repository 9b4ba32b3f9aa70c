"""What the runs of the eires experiment show: tables, the paper's ratios beside ours, who is first.

A *cell* is a query, a dataset, a selection and a cache policy. In it Hybrid is compared with the
other strategies: those with a cache under the same policy, and those without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.pictures import Panel, draw
from benchmarks.remote_runs import NAMES, PERCENTILES, STRATEGIES, UNCACHED, Result
from benchmarks.reporting import table

if TYPE_CHECKING:
    from benchmarks.remote_runs import Policy, Setting

# Closer than this two latencies are a tie.
TIE = 0.05
COMPARED = (50, 75, 95)
_BASELINES = ("blocking", "cached", "post")

# How many times Hybrid's latency BL1's, BL2's and BL3's were in the paper (section 7.2), where it
# says so: by query, dataset, greedy and policy, the medians, then the 95th percentiles.
PAPER: Mapping[tuple[str, str, bool, str], tuple[Sequence[object], Sequence[object]]] = {
    ("Q1", "DS1", False, "cost"): ((31, "26 or more", 26), ("4 or more",) * 3),
    ("Q1", "DS1", False, "lru"): ((20, "16 or more", 16), ("2.5 or more",) * 3),
    ("Q1", "DS1", True, "cost"): ((111, 6, 283), (62, 6, 558)),
    ("Q1", "DS1", True, "lru"): ((63, 2.8, 160), (44, 2.8, 392)),
    ("Q2", "DS1", True, "cost"): (("up to 2,726",) * 3, ("up to 3,752",) * 3),
    ("Q2", "DS1", True, "lru"): (("up to 2,726",) * 3, ("up to 3,752",) * 3),
    ("Q1", "DS2", False, "cost"): ((10, 5, 5), (2.7, 2.4, 2.2)),
    ("Q1", "DS2", False, "lru"): ((10, 5, 5), (2.7, 2.3, 2.2)),
    ("Q1", "DS2", True, "cost"): ((266, 5, 2664), (599, 5.5, 1625)),
    ("Q1", "DS2", True, "lru"): ((1818, 2.2, 6160), (1248, 2, 1348)),
    ("Q2", "DS2", False, "cost"): ((132, 73, 96), (4, 3.6, 4.6)),
    ("Q2", "DS2", False, "lru"): ((168, 96, 177), (4, 3.6, 4.5)),
    ("Q2", "DS2", True, "cost"): ((266, 2.3, 2664), (599, 5.5, 1625)),
    ("Q2", "DS2", True, "lru"): ((644, 4.7, 6161), (1248, 2.4, 2560)),
}


@dataclass(frozen=True)
class Cell:
    """`runs` by strategy."""

    query: str
    dataset: str
    greedy: bool
    policy: Policy
    runs: Mapping[str, Result]

    @property
    def name(self) -> str:
        selection = "greedy" if self.greedy else "non-greedy"
        return ", ".join(filter(None, (self.query, self.dataset, selection, self.policy)))

    @property
    def hybrid(self) -> Result:
        return self.runs["hybrid"]

    def ratio(self, strategy: str, percentile: int) -> float:
        """How many times Hybrid's latency; of nothing it is once."""
        theirs, mine = (run.latency[percentile] for run in (self.runs[strategy], self.hybrid))
        return theirs / mine if mine else 1.0


def cells(query: str, dataset: str, results: Mapping[Setting, Result]) -> list[Cell]:
    """The cells of one comparison, one for each policy."""
    greedy = next(iter(results)).greedy
    policies = dict.fromkeys(each.policy for each in results if each.strategy not in UNCACHED)

    def runs(policy: Policy) -> dict[str, Result]:
        found = {
            setting.strategy: result
            for setting, result in results.items()
            if setting.strategy in UNCACHED or setting.policy == policy
        }
        return {strategy: found[strategy] for strategy in STRATEGIES}

    return [Cell(query, dataset, greedy, policy, runs(policy)) for policy in policies]


# ---- tables ------------------------------------------------------------------------------------


def micros(seconds: float) -> float:
    return seconds * 1e6


def latencies(found: Sequence[Cell]) -> str:
    """In microseconds."""
    head = ["strategy", "cache", *(f"{each}th" for each in PERCENTILES), "busy, %", "fetches"]
    head += ["hits, %", "ahead, used of", "waited, ms", "hidden, ms", "CPU, s"]
    rows: list[list[object]] = []
    for cell in found:
        for strategy, run in cell.runs.items():
            is_cached = strategy not in UNCACHED
            if not is_cached and cell is not found[0]:
                continue
            row = [NAMES[strategy], cell.policy if is_cached else "-"]
            rows.append(row + [micros(run.latency[p]) for p in PERCENTILES] + _counted(run))
    return table(head, rows)


def _counted(run: Result) -> list[object]:
    counts = run.counts
    looked = counts["hits"] + counts["misses"]
    fetched = counts["prefetched"]
    ahead = f"{counts['prefetched_used']:,} of {fetched:,}" if fetched else ""
    hits = f"{100 * counts['hits'] / looked:.0f}" if looked else ""
    times = [1e3 * counts["waited_s"], 1e3 * counts["hidden_s"], run.cpu_s]
    return [100 * run.busy, counts["keys"], hits, ahead, *times]


def ratios(found: Iterable[Cell]) -> str:
    """How many times Hybrid's latency the baselines' are, and the paper's in brackets."""
    head = ["cell", *(f"{NAMES[b]}, {p}th" for p in (50, 95) for b in _BASELINES)]
    rows: list[list[object]] = []
    for cell in found:
        paper = PAPER.get((cell.query, cell.dataset, cell.greedy, cell.policy), ((), ()))
        texts = []
        for percentile, theirs in zip((50, 95), paper, strict=True):
            for place, baseline in enumerate(_BASELINES):
                beside = f" ({theirs[place]})" if theirs else ""
                texts.append(_short(cell.ratio(baseline, percentile)) + beside)
        rows.append([cell.name, *texts])
    return table(head, rows)


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


# ---- who is first ------------------------------------------------------------------------------


def behind(cell: Cell) -> list[tuple[int, str, float]]:
    """At which percentiles Hybrid is not first, behind whom, and by which factor."""
    found = []
    for percentile in COMPARED:
        best = min(cell.runs, key=lambda name: cell.runs[name].latency[percentile])
        factor = 1 / cell.ratio(best, percentile)
        if factor > 1 + TIE:
            found.append((percentile, best, factor))
    return found


def not_first(found: Iterable[Cell]) -> str:
    rows: list[list[object]] = []
    for cell in found:
        for percentile, best, factor in behind(cell):
            mine, theirs = cell.hybrid, cell.runs[best]
            at = [micros(run.latency[percentile]) for run in (mine, theirs)]
            rows.append([cell.name, f"{percentile}th", NAMES[best], *at, factor, why(mine, theirs)])
    if not rows:
        return "Hybrid is first in all cells."
    head = ["cell", "percentile", "first", "Hybrid, us", "first, us", "times", "why"]
    return table(head, rows)


def why(mine: Result, theirs: Result) -> str:
    """What Hybrid did more of, by its counters."""
    reasons = []
    waited = mine.counts["waited_s"] - theirs.counts["waited_s"]
    if waited > TIE * theirs.counts["waited_s"]:
        reasons.append(f"waited {1e3 * waited:,.0f} ms longer")
    unused = mine.counts["prefetched"] - mine.counts["prefetched_used"]
    if not theirs.counts["prefetched"] and unused > TIE * mine.counts["keys"]:
        reasons.append(f"{unused:,.0f} of {mine.counts['prefetched']:,.0f} fetched ahead unused")
    misses = mine.counts["misses"] - theirs.counts["misses"]
    if misses > TIE * theirs.counts["misses"]:
        reasons.append(f"{misses:,.0f} more misses")
    return "; ".join(reasons) or "more steps over smaller sets"


# ---- pictures ----------------------------------------------------------------------------------


def plotted(seconds: float) -> float | None:
    """In microseconds. Nothing has no place on a logarithmic axis."""
    return micros(seconds) if seconds > 0 else None


def is_plotted(series: Mapping[str, Sequence[float | None]]) -> bool:
    """Whether a logarithmic axis has anything to show."""
    return any(each for values in series.values() for each in values)


def draw_cells(name: str, found: Sequence[Cell], folder: Path) -> None:
    panels = []
    for cell in found:
        series: dict[str, list[int | float | None]] = {
            f"{p}th percentile": [plotted(run.latency[p]) for run in cell.runs.values()]
            for p in PERCENTILES
        }
        at = [NAMES[strategy] for strategy in cell.runs]
        log_y = is_plotted(series)
        panels.append(
            Panel(cell.name, "", "latency, microseconds", at, series, kind="bars", log_y=log_y)
        )
    draw(name, panels, folder)
