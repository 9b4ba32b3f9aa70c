"""Figures 5 to 12 of the eires paper: strategies for remote data, on a virtual clock.

    python -m benchmarks.eires [--quick] [--figures FOLDER] [--json FILE]

Six strategies, two cache policies, two queries, two datasets, greedy and non-greedy selection,
with delays of 10 to 100 microseconds and of 1 to 50 milliseconds; then noise, cache size, delays,
weights and the choice of classes. The decisions are the library's (`remote_decisions.py`), the
engine takes events one by one (`remote_engine.py`). benchmarks/experiments.md keeps the figures of
a run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.pictures import FIGURES, Panel, draw
from benchmarks.remote_figures import (
    Cell,
    behind,
    cells,
    draw_cells,
    latencies,
    micros,
    not_first,
    ratios,
)
from benchmarks.remote_runs import NAMES, Result, compare, contestants
from benchmarks.remote_source import MICRO, MICRO_GAP, MILLI, MILLI_GAP, Setting, Strategy
from benchmarks.remote_streams import (
    KEYS,
    Q1,
    Q1_FIRST,
    Q1_LAST,
    Q1_PRINTED,
    Q2,
    Dataset,
    Query,
)
from benchmarks.reporting import Claim, table

OVERALL: Sequence[tuple[int, Query, Dataset]] = (
    (5, Q1, "DS1"), (6, Q2, "DS1"), (7, Q1, "DS2"), (8, Q2, "DS2"),
)  # fmt: skip
SCALES = {"10 to 100 microseconds": (MICRO, MICRO_GAP), "1 to 50 milliseconds": (MILLI, MILLI_GAP)}
# The sensitivity runs are of Q1 on DS1, with a cost-based cache and greedy selection.
SENSITIVE = Setting("hybrid", "cost", greedy=True)
OWN: tuple[Strategy, ...] = ("prefetch", "lazy", "hybrid")
NOISE = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
CACHES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4)
DELAYS = (1e-5, 1e-4, 1e-3, 1e-2)
WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)
CLASSES = (1, 2, 3, 4, 5, 6, 7)
# Of Figure 12: about the time in which a partial match gets its next event. Shorter ones are
# hidden by any one class.
CLASS_DELAYS = (2e-3, 20e-3)
# Elements, of Figures 11 and 12: an eighth of what partial matches need at a time. With 10 % of the
# keys nothing that is needed is ever evicted, and the weights make no difference.
TIGHT = round(0.01 * KEYS)


@dataclass(frozen=True)
class Sizes:
    """`events` of a stream, and `few` of the sensitivity runs."""

    events: int
    few: int


FULL = Sizes(events=8_000, few=6_000)
QUICK = Sizes(events=1_500, few=1_500)


# ---- Figures 5 to 8 ----------------------------------------------------------------------------


def overall(query: Query, dataset: Dataset, base: Setting, events: int) -> list[Cell]:
    """Non-greedy and greedy, both policies."""
    found: list[Cell] = []
    for greedy in (False, True):
        settings = contestants(replace(base, greedy=greedy))
        found += cells(query.name, dataset, compare(query, dataset, settings, events))
    return found


def figures_5_to_8(sizes: Sizes, folder: Path | None) -> dict[str, list[Cell]]:
    everything: dict[str, list[Cell]] = {}
    for scale, (delays, gap) in SCALES.items():
        base = Setting("blocking", delays=delays, gap=gap)
        for figure, query, dataset in OVERALL:
            found = overall(query, dataset, base, sizes.events)
            everything.setdefault(scale, []).extend(found)
            _show(f"Figure {figure}: {query.name} on {dataset}, delays of {scale}", found)
            if folder is not None and delays == MICRO:
                draw_cells(f"eires-{figure}", found, folder)
    return everything


def as_printed(sizes: Sizes) -> list[Cell]:
    found = []
    for dataset in ("DS1", "DS2"):
        here = overall(Q1_PRINTED, dataset, Setting("blocking"), sizes.events)
        _show(f"Q1 word by word, keys of the last event, on {dataset}", here)
        found += here
    return found


def _show(title: str, found: Sequence[Cell]) -> None:
    for greedy in (False, True):
        selected = [cell for cell in found if cell.greedy == greedy]
        selection = "greedy" if greedy else "non-greedy"
        print(f"\n{title}, {selection}: latency in microseconds\n")
        print(latencies(selected))


# ---- Figure 9 ----------------------------------------------------------------------------------


def figure_9(sizes: Sizes, folder: Path | None) -> dict[str, dict[str, float]]:
    """All events are there at once, so the engine is never idle."""
    found: dict[str, dict[str, float]] = {}
    for dataset in ("DS1", "DS2"):
        runs = compare(Q1, dataset, contestants(Setting("blocking", gap=0.0)), sizes.events)
        for cell in cells(Q1.name, dataset, runs):
            found[f"{dataset}, {cell.policy}"] = {
                NAMES[name]: run.throughput for name, run in cell.runs.items()
            }
    names = list(next(iter(found.values())))
    print("\nFigure 9: Q1, non-greedy, thousand events a second\n")
    rows = [[cell, *(each[name] / 1e3 for name in names)] for cell, each in found.items()]
    print(table(["cell", *names], rows))
    if folder is not None:
        series: dict[str, list[int | float | None]] = {
            cell: [each[name] for name in names] for cell, each in found.items()
        }
        panel = Panel("Q1, non-greedy", "", "events a second", names, series, "bars", log_y=True)
        draw("eires-9", [panel], folder)
    return found


# ---- Figures 10 to 12 --------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """One parameter varied: for each name one result for each of `at`."""

    title: str
    x: str
    at: Sequence[float]
    runs: Mapping[str, Sequence[Result]]
    log_x: bool = False

    def show(self) -> None:
        print(f"\n{self.title}: latency in microseconds, median, 75th and 95th percentile\n")
        rows = [
            [f"{at:g}", *(_three(runs[place]) for runs in self.runs.values())]
            for place, at in enumerate(self.at)
        ]
        print(table([self.x, *self.runs], rows))

    def panel(self) -> Panel:
        series: dict[str, list[int | float | None]] = {
            f"{name}, {p}th": [micros(run.latency[p]) for run in runs]
            for name, runs in self.runs.items()
            for p in (50, 95)
        }
        axes = self.x, "latency, microseconds"
        return Panel(self.title, *axes, self.at, series, log_x=self.log_x, log_y=True)

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "at": list(self.at),
            "latency": {name: [run.latency for run in runs] for name, runs in self.runs.items()},
        }


def _three(run: Result) -> str:
    return " / ".join(f"{micros(run.latency[p]):.3g}" for p in (50, 75, 95))


def sweep(
    query: Query,
    strategies: Sequence[Strategy],
    settings: Sequence[Callable[[Setting], Setting]],
    events: int,
    base: Setting = SENSITIVE,
) -> dict[str, list[Result]]:
    """A change of the setting for each point."""
    asked = {
        strategy: [change(replace(base, strategy=strategy)) for change in settings]
        for strategy in strategies
    }
    flat = [setting for each in asked.values() for setting in each]
    found = compare(query, "DS1", flat, events)
    return {NAMES[name]: [found[each] for each in wanted] for name, wanted in asked.items()}


def _varied(name: str, values: Sequence[Any]) -> list[Callable[[Setting], Setting]]:
    def change(value: Any) -> Callable[[Setting], Setting]:
        return lambda setting: replace(setting, **{name: value})

    return [change(value) for value in values]


def figure_10(sizes: Sizes) -> list[Sweep]:
    caches = [round(share * KEYS) for share in CACHES]
    delays = [(mean * 2 / 11, mean * 20 / 11) for mean in DELAYS]
    noise = sweep(Q1, OWN, _varied("noise", NOISE), sizes.few)
    size = sweep(Q1, OWN, _varied("capacity", caches), sizes.few)
    delay = sweep(Q1, OWN, _varied("delays", delays), sizes.few)
    at = [micros(mean) for mean in DELAYS]
    return [
        Sweep("Figure 10a: noise", "share of wrong estimates", NOISE, noise),
        Sweep("Figure 10b: cache size", "share of the keys", CACHES, size, log_x=True),
        Sweep("Figure 10c: transmission", "mean delay, microseconds", at, delay, log_x=True),
    ]


def figure_11(sizes: Sizes) -> list[Sweep]:
    base = replace(SENSITIVE, capacity=TIGHT)
    fetch = sweep(Q1, ("hybrid",), _varied("fetch_weight", WEIGHTS), sizes.few, base)
    cache = sweep(Q1, ("hybrid",), _varied("cache_weight", WEIGHTS), sizes.few, base)
    return [
        Sweep("Figure 11a: weight when fetching", "omega_fetch", WEIGHTS, fetch),
        Sweep("Figure 11b: weight when caching", "omega_cache", WEIGHTS, cache),
    ]


def figure_12(sizes: Sizes) -> list[Sweep]:
    """The class right before the test is the first one, so nothing between it and the test."""
    base = replace(SENSITIVE, delays=CLASS_DELAYS, capacity=TIGHT)
    before = _varied("ahead", [number - 1 for number in CLASSES])
    ahead = sweep(Q1_LAST, ("prefetch",), before, sizes.few, base)
    further = sweep(Q1_FIRST, ("lazy",), _varied("further", CLASSES), sizes.few, base)
    return [
        Sweep("Figure 12a: PFetch", "preceding classes", CLASSES, ahead),
        Sweep("Figure 12b: LzEval", "succeeding classes", CLASSES, further),
    ]


# ---- the claims --------------------------------------------------------------------------------


def claims(found: Mapping[str, Sequence[Cell]]) -> list[Claim]:
    said = []
    for scale, of in found.items():
        late = [cell.name for cell in of if behind(cell)]
        text = f"with delays of {scale} Hybrid is first in every cell, ties within 5 %"
        said.append(Claim(text, not late, f"{len(of) - len(late)} of {len(of)}"))
        worst = max((factor for cell in of for *_, factor in behind(cell)), default=1.0)
        text = f"with delays of {scale} Hybrid is never more than twice the first"
        said.append(Claim(text, worst <= 2, f"{worst:.2f}x at worst"))
        for baseline in ("blocking", "cached", "post"):
            least = min(cell.ratio(baseline, 95) for cell in of)
            most = max(cell.ratio(baseline, 95) for cell in of)
            text = f"with delays of {scale} Hybrid's 95th percentile is below that of {baseline}"
            said.append(Claim(text, least > 1, f"{least:,.2f} to {most:,.0f} times"))
    return said


# ---- the program -------------------------------------------------------------------------------


def _plain(cell: Cell) -> dict[str, Any]:
    runs = {
        name: {"latency": run.latency, "busy": run.busy, "matches": run.matches, **run.counts}
        for name, run in cell.runs.items()
    }
    return {"cell": cell.name, "runs": runs}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Figures 5 to 12 of the eires paper.")
    arguments.add_argument("--quick", action="store_true", help="short streams, no pictures")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = arguments.parse_args()
    sizes = QUICK if given.quick else FULL
    folder = given.figures or (None if given.quick else FIGURES)
    found = figures_5_to_8(sizes, folder)
    printed = as_printed(sizes)
    throughput = figure_9(sizes, folder)
    sweeps = {10: figure_10(sizes), 11: figure_11(sizes), 12: figure_12(sizes)}
    for figure, of in sweeps.items():
        for each in of:
            each.show()
        if folder is not None:
            draw(f"eires-{figure}", [each.panel() for each in of], folder)
    for scale, of_scale in found.items():
        print(f"\nDelays of {scale}: times Hybrid's latency, the paper's in brackets\n")
        print(ratios(of_scale))
        print(f"\nWhere Hybrid is not first\n\n{not_first(of_scale)}")
    print(f"\nQ1 word by word: times Hybrid's latency\n\n{ratios(printed)}")
    print(f"\nWhere Hybrid is not first\n\n{not_first(printed)}\n")
    said = claims(found)
    print("\n".join(claim.line() for claim in said))
    if given.json is not None:
        content = {
            "figures 5 to 8": {scale: [_plain(c) for c in of] for scale, of in found.items()},
            "word by word": [_plain(cell) for cell in printed],
            "figure 9": throughput,
            "figures 10 to 12": [each.to_dict() for of in sweeps.values() for each in of],
            "claims": [vars(claim) for claim in said],
        }
        given.json.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
