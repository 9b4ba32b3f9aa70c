"""Figures 4 to 6 of the apam paper: latency of every eager-lazy partition against arrival rate.

    python -m benchmarks.apam [--quick] [--figures FOLDER]

All plans get the same arrivals on a virtual clock (`virtual_clock.py`). The paper's rates are
scaled: its engine took milliseconds for what takes microseconds here, and a queue knows only the
product of rate and service time. benchmarks/experiments.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import spark_cep as cep
from benchmarks.pictures import FIGURES, Panel, draw
from benchmarks.programs import prepare
from benchmarks.reporting import Claim, table
from benchmarks.streams import apam
from benchmarks.virtual_clock import Latency, Work, latency, worked
from spark_cep.udfs.costs import OperationCosts, measure_costs
from spark_cep.udfs.planning.apam import (
    ApamPartition,
    EventLoad,
    apam_partitions,
    fastest_partition,
)
from spark_cep.udfs.planning.planner import branch_models
from spark_cep.udfs.planning.shapes import slots_of
from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from spark_cep.udfs.planning.cost_model import BranchModel

NAMES = "abcde"
WINDOW = 2_000
# Of a.attr1 < b.attr1, b.attr2 < c.attr2 and so on, as in the paper's Table 2.
EXPERIMENTS = {
    1: (0.008, 0.006, 0.004, 0.002),
    2: (0.002, 0.004, 0.006, 0.008),
    3: (0.006, 0.002, 0.004, 0.008),
}
# Events a second in the paper's figures, and more that are printed.
PAPER_RATES = (100, 1500, 3000, 4500)
PRINTED = (20, 50, 100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 3000, 4500)
# Between those, so that no change of plans is missed.
BETWEEN = 40
# How busy the fastest plan is at the highest rate.
MOST_UTILIZED = 2.0
GOAL = 1.3
# How many times the chosen plan's latency the others had in the paper, at most.
PAPER: Mapping[int, Mapping[str, float]] = {
    1: {"eager": 361.48, "lazy": 27.94},
    2: {"eager": 1.0, "lazy": 5.71},
    3: {"eager": 60.09, "lazy": 5.51},
}


@dataclass(frozen=True)
class Sizes:
    """Each of `seeds` is a stream and its arrivals, and what is printed is the average."""

    events: int
    seeds: int
    between: int


FULL = Sizes(events=100_000, seeds=5, between=BETWEEN)
QUICK = Sizes(events=40_000, seeds=2, between=BETWEEN // 2)


def pattern(window: int = WINDOW) -> cep.Pattern:
    """The paper's Figure 3(b). `a < b` is written as `NOT a >= b`, which the engine evaluates pair
    by pair however few the candidates are; among one or two it would look for `<` by position."""
    variables = [cep.event(name, f"kind = {kind}") for kind, name in enumerate(NAMES)]
    conditions = [
        f"NOT ({left}.attr{number} >= {right}.attr{number})"
        for number, (left, right) in enumerate(pairwise(NAMES), start=1)
    ]
    return cep.seq(*variables).where(*conditions).within(events=window)


def name_of(partition: ApamPartition) -> str:
    """As the paper writes it: the eager group, then the others in the order of the merge."""
    merged = [slot for slot in slots_of(partition.shape) if slot not in partition.eager]
    eager = "".join(NAMES[slot] for slot in partition.eager)
    return f"{eager}/{''.join(NAMES[slot] for slot in merged)}".upper()


# ---- an experiment -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One arrival rate: the latency of each plan by its name, and what the planner chose."""

    paper_rate: float
    rate: float
    utilization: float
    latency: Mapping[str, Latency]
    chosen: str

    @property
    def best(self) -> str:
        """Of equals the chosen one."""
        least = min(each.total for each in self.latency.values())
        if self.latency[self.chosen].total == least:
            return self.chosen
        return next(name for name, each in self.latency.items() if each.total == least)

    def ratio(self, name: str, to: str) -> float:
        return self.latency[name].total / self.latency[to].total


@dataclass(frozen=True)
class Experiment:
    """What the planner knows, the plans by name, from all lazy to all eager, and their work on
    each stream."""

    model: BranchModel
    estimates: Estimates
    costs: OperationCosts
    works: Mapping[str, Sequence[Work]]

    @property
    def lazy(self) -> str:
        return next(iter(self.works))

    @property
    def eager(self) -> str:
        return list(self.works)[-1]

    @property
    def least_service(self) -> float:
        """Of an event on average, in the fastest plan."""
        return min(
            float(np.mean([work.service.mean() for work in works])) for works in self.works.values()
        )

    def point(self, paper_rate: float, rate: float, gaps: Sequence[np.ndarray]) -> Point:
        """`gaps` between arrivals, for a rate of one."""
        load = EventLoad(window_s=WINDOW / rate)
        chosen = fastest_partition(apam_partitions(self.model, self.estimates, self.costs, load))
        between = [gap / rate for gap in gaps]
        latencies = {name: latency(works, between) for name, works in self.works.items()}
        utilization = rate * self.least_service
        return Point(paper_rate, rate, utilization, latencies, name_of(chosen))


def experiment(number: int, sizes: Sizes, costs: OperationCosts) -> Experiment:
    selectivities = EXPERIMENTS[number]
    estimates = Estimates(
        dict.fromkeys(range(len(NAMES)), WINDOW / len(NAMES)), dict(enumerate(selectivities))
    )
    works: dict[str, list[Work]] = {}
    for seed in range(sizes.seeds):
        prepared = prepare(pattern(), apam(sizes.events, selectivities, seed))
        model = branch_models(prepared.program)[0]
        for partition in apam_partitions(model, estimates, costs):
            work = worked(prepared, partition.plan, costs)
            works.setdefault(name_of(partition), []).append(work)
    return Experiment(model, estimates, costs, works)


def points(found: Experiment, sizes: Sizes) -> list[Point]:
    factor = MOST_UTILIZED / found.least_service / max(PRINTED)
    gaps = [np.random.default_rng(seed).exponential(1, sizes.events) for seed in range(sizes.seeds)]
    between = np.geomspace(min(PRINTED), max(PRINTED), sizes.between)[1:-1]
    rates = sorted({*PRINTED, *between.tolist()})
    return [found.point(rate, rate * factor, gaps) for rate in rates]


# ---- tables and claims -------------------------------------------------------------------------


def latencies(found: Experiment, at: Sequence[Point]) -> str:
    """In microseconds; the chosen plan's in brackets."""
    head = ["rate, paper's", "rate, here", "rho of the fastest", *found.works, "best"]
    head += ["chosen / best", "eager / chosen", "lazy / chosen"]
    rows = [
        [
            round(point.paper_rate),
            round(point.rate),
            point.utilization,
            *(_cell(point, name) for name in found.works),
            point.best,
            point.ratio(point.chosen, point.best),
            point.ratio(found.eager, point.chosen),
            point.ratio(found.lazy, point.chosen),
        ]
        for point in at
        if point.paper_rate in PRINTED
    ]
    return table(head, rows)


def parts(found: Experiment, at: Sequence[Point]) -> str:
    """The two parts of each latency at the paper's four rates: waiting + service."""
    rows = [
        [
            round(point.paper_rate),
            *(
                f"{_micros(point.latency[name].waiting)} + {_micros(point.latency[name].service)}"
                for name in found.works
            ),
        ]
        for point in at
        if point.paper_rate in PAPER_RATES
    ]
    return table(["rate, paper's", *found.works], rows)


def _cell(point: Point, name: str) -> str:
    text = _micros(point.latency[name].total)
    return f"[{text}]" if name == point.chosen else text


def _micros(seconds: float) -> str:
    micros = seconds * 1e6
    return f"{micros:,.0f}" if micros >= 100 else f"{micros:.3g}"


def turns(at: Sequence[Point]) -> str:
    """From which rate on which plan is best, and which is chosen."""

    def line(names: Sequence[str]) -> str:
        found = []
        for name, group in groupby(zip(names, at, strict=True), key=lambda each: each[0]):
            found.append(f"{name} from {next(group)[1].paper_rate:.0f}")
        return ", ".join(found)

    best, chosen = [point.best for point in at], [point.chosen for point in at]
    return f"best: {line(best)}\nchosen: {line(chosen)}"


def claims(number: int, found: Experiment, at: Sequence[Point]) -> list[Claim]:
    best = {point.paper_rate: point.ratio(point.chosen, point.best) for point in at}
    both = {
        point.paper_rate: max(
            point.ratio(point.chosen, found.eager), point.ratio(point.chosen, found.lazy)
        )
        for point in at
    }
    name = f"experiment {number}: the chosen plan is"
    papers = {rate: best[rate] for rate in PAPER_RATES}
    return [
        _bounded(f"{name} within {GOAL}x of the best at the paper's rates", papers, GOAL),
        _bounded(f"{name} within {GOAL}x of the best at all rates", best, GOAL),
        _bounded(f"{name} never above eager or lazy (by more than 1 %)", both, 1.01),
    ]


def _bounded(text: str, ratios: Mapping[float, float], most: float) -> Claim:
    above = [f"{ratio:.2f}x at {rate:.0f}" for rate, ratio in ratios.items() if ratio > most]
    figures = f"{len(ratios) - len(above)} of {len(ratios)} rates"
    if above:
        return Claim(text, False, f"{figures}; {', '.join(above)}")
    return Claim(text, True, f"{figures}; at most {max(ratios.values()):.2f}x")


Results = Mapping[int, tuple[Experiment, Sequence[Point]]]


def headlines(results: Results) -> str:
    rows = []
    for number, (found, at) in results.items():
        paper = PAPER[number]
        eager = max(point.ratio(found.eager, point.chosen) for point in at)
        lazy = max(point.ratio(found.lazy, point.chosen) for point in at)
        rows.append([number, eager, paper["eager"], lazy, paper["lazy"]])
    return table(["experiment", "eager / chosen", "paper", "lazy / chosen", "paper"], rows)


def picture(results: Results, folder: Path) -> Path:
    panels = []
    for number, (found, at) in results.items():
        names = list(found.works)
        series: dict[str, list[int | float | None]] = {
            f"{eager} of 5 eager": [point.latency[name].total * 1e6 for point in at]
            for eager, name in enumerate(names)
        }
        series["chosen"] = [point.latency[point.chosen].total * 1e6 for point in at]
        title = f"experiment {number}: {names[0]} to {names[-1]}"
        axes = "events a second, as in the paper", "latency, microseconds"
        rates = [point.paper_rate for point in at]
        panels.append(Panel(title, *axes, rates, series, log_x=True, log_y=True, marked=False))
    return draw("apam-4-to-6", panels, folder)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Figures 4 to 6 of the apam paper.")
    arguments.add_argument("--quick", action="store_true", help="short streams, no pictures")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    given = arguments.parse_args()
    sizes = QUICK if given.quick else FULL
    folder = given.figures or (None if given.quick else FIGURES)
    costs = measure_costs()
    times = {"T_PE": costs.pair, "T_RC": costs.result, "T_BI": costs.insert}
    print(", ".join(f"{name} {seconds * 1e9:.1f} ns" for name, seconds in times.items()))
    results: dict[int, tuple[Experiment, list[Point]]] = {}
    found_claims = []
    for number in EXPERIMENTS:
        found = experiment(number, sizes, costs)
        at = points(found, sizes)
        results[number] = found, at
        print(f"\nExperiment {number}: mean latency in microseconds, the chosen plan in brackets\n")
        print(latencies(found, at))
        print(f"\nits parts, waiting + service\n\n{parts(found, at)}\n\n{turns(at)}")
        found_claims += claims(number, found, at)
    print(f"\nThe largest ratios\n\n{headlines(results)}\n")
    print("\n".join(claim.line() for claim in found_claims))
    if folder is not None:
        picture(results, folder)


if __name__ == "__main__":
    main()
