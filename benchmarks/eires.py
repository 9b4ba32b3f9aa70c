"""Figures 5 to 13 of the eires paper: strategies for remote data, in the library's own engine on a
virtual clock.

    python -m benchmarks.eires [--quick] [--events N] [--jobs N] [--figures FOLDER] [--json FILE]

Six strategies, two cache policies, two queries, two datasets, greedy and non-greedy selection,
with delays of 10 to 100 microseconds and of 1 to 10 milliseconds; then noise, cache size, delays,
weights and the choice of classes; then the case studies on generated data. What takes how long on
the clock: `remote_clock.py`. benchmarks/experiments.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.pictures import FIGURES, Panel, draw
from benchmarks.progress import run_tasks
from benchmarks.remote_figures import (
    Cell,
    behind,
    cells,
    draw_cells,
    is_plotted,
    latencies,
    micros,
    not_first,
    plotted,
    ratios,
)
from benchmarks.remote_runs import (
    MICRO,
    MILLI,
    NAMES,
    Result,
    Setting,
    Strategy,
    compare,
    contestants,
)
from benchmarks.remote_streams import (
    BUSHFIRE,
    CLUSTER,
    GAP,
    KEYS,
    Q1,
    Q1_LAST,
    Q1_PRINTED,
    Q2,
    Query,
    early,
)
from benchmarks.reporting import Claim, table

OVERALL: Sequence[tuple[int, Query, str]] = (
    (5, Q1, "DS1"), (6, Q2, "DS1"), (7, Q1, "DS2"), (8, Q2, "DS2"),
)  # fmt: skip
# The gap between events in the same proportion to the delays.
SCALES = {"10 to 100 microseconds": (MICRO, GAP), "1 to 10 milliseconds": (MILLI, 100 * GAP)}
# The sensitivity runs are of Q1 on DS1, with a cost-based cache and greedy selection.
SENSITIVE = Setting("hybrid", "cost", greedy=True)
OWN: tuple[Strategy, ...] = ("prefetch", "lazy", "hybrid")
NOISE = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
CACHES = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4)
DELAYS = (1e-6, 1e-5, 1e-4, 1e-3)
WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)
CLASSES = (1, 2, 3, 4, 5, 6, 7)
EVENTS, QUICK = 100_000, 3_000
STUDIES = {"bushfire": BUSHFIRE, "cluster": CLUSTER}


# ---- the runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Runs that have to find the same matches. Queries are named, so that processes can be told of
    them."""

    query: str
    dataset: str
    settings: tuple[Setting, ...]
    events: int

    def run(self) -> dict[Setting, Result]:
        return compare(QUERIES[self.query], self.dataset, self.settings, self.events)


QUERIES: Mapping[str, Query] = {
    each.name: each
    for each in (Q1, Q1_PRINTED, Q1_LAST, Q2, BUSHFIRE, CLUSTER, *map(early, CLASSES))
}


@dataclass
class Runs:
    """All that is to be run, then what came of it."""

    events: int
    wanted: list[Comparison] = field(default_factory=list)
    found: dict[Comparison, dict[Setting, Result]] = field(default_factory=dict)

    def ask(self, query: Query, dataset: str, settings: Iterable[Setting]) -> Comparison:
        one = Comparison(query.name, dataset, tuple(dict.fromkeys(settings)), self.events)
        self.wanted.append(one)
        return one

    def run(self, jobs: int) -> None:
        todo = list(dict.fromkeys(self.wanted))
        for number, results in run_tasks(Comparison.run, todo, jobs):
            self.found[todo[number]] = results

    def cells(self, one: Comparison) -> list[Cell]:
        return cells(one.query, one.dataset, self.found[one])


def both(runs: Runs, query: Query, dataset: str, base: Setting) -> list[Comparison]:
    """Non-greedy and greedy, both policies."""
    return [
        runs.ask(query, dataset, contestants(replace(base, greedy=greedy)))
        for greedy in (False, True)
    ]


# ---- Figures 5 to 8 and 13 ---------------------------------------------------------------------


def ask_overall(runs: Runs) -> dict[tuple[str, int], list[Comparison]]:
    return {
        (scale, figure): both(runs, query, dataset, Setting("blocking", delays=delays, gap=gap))
        for scale, (delays, gap) in SCALES.items()
        for figure, query, dataset in OVERALL
    }


def ask_studies(runs: Runs) -> dict[str, Comparison]:
    delays, gap = SCALES["1 to 10 milliseconds"]
    base = Setting("blocking", greedy=True, delays=delays, gap=gap)
    return {name: runs.ask(query, "", contestants(base)) for name, query in STUDIES.items()}


def show(title: str, found: Sequence[Cell]) -> None:
    for greedy in (False, True):
        selected = [cell for cell in found if cell.greedy == greedy]
        if selected:
            selection = "greedy" if greedy else "non-greedy"
            said = f"{selected[0].hybrid.matches:,} matches; latency in microseconds"
            print(f"\n{title}, {selection}: {said}\n")
            print(latencies(selected))


# ---- Figure 9 ----------------------------------------------------------------------------------


def ask_throughput(runs: Runs) -> list[Comparison]:
    """All events are there at once, so the engine is never idle."""
    base = Setting("blocking", gap=0.0)
    return [runs.ask(Q1, dataset, contestants(base)) for dataset in ("DS1", "DS2")]


def show_throughput(runs: Runs, asked: Sequence[Comparison], folder: Path | None) -> dict[str, Any]:
    found: dict[str, dict[str, float]] = {}
    for one in asked:
        for cell in runs.cells(one):
            found[f"{cell.dataset}, {cell.policy}"] = {
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
    """One parameter varied: for each name, where the result for each of `at` is to be found."""

    figure: int
    title: str
    x: str
    at: Sequence[float]
    asked: Mapping[str, Sequence[tuple[Comparison, Setting]]]
    log_x: bool = False

    def results(self, runs: Runs) -> dict[str, list[Result]]:
        return {
            name: [runs.found[one][setting] for one, setting in places]
            for name, places in self.asked.items()
        }

    def show(self, runs: Runs) -> None:
        print(f"\n{self.title}: latency in microseconds, median, 75th and 95th percentile\n")
        found = self.results(runs)
        rows = [
            [f"{at:g}", *(_three(each[place]) for each in found.values())]
            for place, at in enumerate(self.at)
        ]
        print(table([self.x, *found], rows))

    def panel(self, runs: Runs) -> Panel:
        series: dict[str, list[int | float | None]] = {
            f"{name}, {p}th": [plotted(run.latency[p]) for run in each]
            for name, each in self.results(runs).items()
            for p in (50, 95)
        }
        axes = self.x, "latency, microseconds"
        log_y = is_plotted(series)
        return Panel(self.title, *axes, self.at, series, log_x=self.log_x, log_y=log_y)

    def to_dict(self, runs: Runs) -> dict[str, Any]:
        found = self.results(runs).items()
        return {
            "title": self.title,
            "at": list(self.at),
            "latency": {name: [run.latency for run in each] for name, each in found},
        }


def _three(run: Result) -> str:
    return " / ".join(f"{micros(run.latency[p]):,.0f}" for p in (50, 75, 95))


def vary(
    runs: Runs,
    strategies: Sequence[Strategy],
    name: str,
    values: Sequence[Any],
    query: Query = Q1,
) -> dict[str, list[tuple[Comparison, Setting]]]:
    """A value of the parameter for each point."""
    found = {}
    for strategy in strategies:
        settings = [replace(SENSITIVE, strategy=strategy, **{name: each}) for each in values]
        one = runs.ask(query, "DS1", settings)
        found[NAMES[strategy]] = [(one, setting) for setting in settings]
    return found


def ask_sweeps(runs: Runs) -> list[Sweep]:
    caches = [round(share * KEYS) for share in CACHES]
    delays = [(mean * 2 / 11, mean * 20 / 11) for mean in DELAYS]
    at = [micros(mean) for mean in DELAYS]
    lazy = replace(SENSITIVE, strategy="lazy")
    after = [(runs.ask(early(each), "DS1", [lazy]), lazy) for each in CLASSES]
    return [
        Sweep(10, "Figure 10a: noise", "share of wrong estimates", NOISE,
              vary(runs, OWN, "noise", NOISE)),
        Sweep(10, "Figure 10b: cache size", "share of the keys", CACHES,
              vary(runs, OWN, "capacity", caches), log_x=True),
        Sweep(10, "Figure 10c: transmission", "mean delay, microseconds", at,
              vary(runs, OWN, "delays", delays), log_x=True),
        Sweep(11, "Figure 11a: weight when fetching", "omega_fetch", WEIGHTS,
              vary(runs, ("hybrid",), "fetch_weight", WEIGHTS)),
        Sweep(11, "Figure 11b: weight when caching", "omega_cache", WEIGHTS,
              vary(runs, ("hybrid",), "cache_weight", WEIGHTS)),
        Sweep(12, "Figure 12a: PFetch", "classes before the need", CLASSES,
              vary(runs, ("prefetch",), "ahead", CLASSES, Q1_LAST)),
        Sweep(12, "Figure 12b: LzEval", "classes after the test", CLASSES, {"LzEval": after}),
    ]  # fmt: skip


# ---- the claims --------------------------------------------------------------------------------


def claims(found: Mapping[str, Sequence[Cell]]) -> list[Claim]:
    said = []
    for scale, of in found.items():
        late = [cell.name for cell in of if behind(cell)]
        text = f"{scale}: Hybrid is first in every cell, ties within 5 %"
        said.append(Claim(text, not late, f"{len(of) - len(late)} of {len(of)}"))
        worst = max((factor for cell in of for *_, factor in behind(cell)), default=1.0)
        text = f"{scale}: Hybrid is never more than twice the first"
        said.append(Claim(text, worst <= 2, f"{worst:.2f}x at worst"))
        for baseline in ("blocking", "cached", "post"):
            least = min(cell.ratio(baseline, 95) for cell in of)
            most = max(cell.ratio(baseline, 95) for cell in of)
            text = f"{scale}: Hybrid's 95th percentile is below that of {NAMES[baseline]}"
            said.append(Claim(text, least > 1, f"{least:,.2f} to {most:,.1f} times"))
    return said


# ---- the program -------------------------------------------------------------------------------


def _plain(cell: Cell) -> dict[str, Any]:
    runs = {
        name: {"latency": run.latency, "busy": run.busy, "matches": run.matches,
               "cpu_s": run.cpu_s, **run.counts}
        for name, run in cell.runs.items()
    }  # fmt: skip
    return {"cell": cell.name, "runs": runs}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Figures 5 to 13 of the eires paper.")
    arguments.add_argument("--quick", action="store_true", help="short streams, no pictures")
    arguments.add_argument("--events", type=int, metavar="N", help="of a stream")
    arguments.add_argument("--jobs", type=int, default=2, metavar="N", help="processes")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = arguments.parse_args()
    folder = given.figures or (None if given.quick else FIGURES)
    runs = Runs(given.events or (QUICK if given.quick else EVENTS))
    overall, studies = ask_overall(runs), ask_studies(runs)
    printed = [
        one for ds in ("DS1", "DS2") for one in both(runs, Q1_PRINTED, ds, Setting("blocking"))
    ]
    throughput, sweeps = ask_throughput(runs), ask_sweeps(runs)
    runs.run(1 if given.quick else given.jobs)

    found: dict[str, list[Cell]] = {}
    for (scale, figure), asked in overall.items():
        of = [cell for one in asked for cell in runs.cells(one)]
        found.setdefault(f"delays of {scale}", []).extend(of)
        show(f"Figure {figure}: {of[0].query} on {of[0].dataset}, delays of {scale}", of)
        if folder is not None and SCALES[scale][0] == MICRO:
            draw_cells(f"eires-{figure}", of, folder)
    found["Q1 as printed"] = [cell for one in printed for cell in runs.cells(one)]
    through = show_throughput(runs, throughput, folder)
    for sweep in sweeps:
        sweep.show(runs)
    found["case studies"] = [cell for one in studies.values() for cell in runs.cells(one)]
    for name, one in studies.items():
        show(f"Figure 13: {name}", runs.cells(one))
    if folder is not None:
        for figure in (10, 11, 12):
            panels = [each.panel(runs) for each in sweeps if each.figure == figure]
            draw(f"eires-{figure}", panels, folder)
        draw_cells("eires-13", [c for c in found["case studies"] if c.policy == "cost"], folder)
    for title, of in found.items():
        print(f"\n{title}: times Hybrid's latency, the paper's in brackets\n\n{ratios(of)}")
        print(f"\nWhere Hybrid is not first\n\n{not_first(of)}")
    said = claims(found)
    print("\n" + "\n".join(claim.line() for claim in said))
    if given.json is not None:
        content = {
            "latencies": {title: [_plain(c) for c in of] for title, of in found.items()},
            "figure 9": through,
            "figures 10 to 12": [each.to_dict(runs) for each in sweeps],
            "claims": [vars(claim) for claim in said],
        }
        given.json.write_text(json.dumps(content, indent=1, default=float))


if __name__ == "__main__":
    main()
