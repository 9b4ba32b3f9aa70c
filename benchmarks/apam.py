"""Figures 4 to 6 of the apam paper: latency of every eager-lazy partition against arrival rate.

    python -m benchmarks.apam [--quick] [--figures FOLDER]

The clock is virtual. The engine runs each plan once and says for each event how many pairs and
results it causes; times what those were measured to cost on this machine, that is the event's
service time. Poisson arrivals and one server then give every event's waiting time. So the figures
are those of an engine that takes events one by one, without what a call costs in Python.

All plans get the same arrivals. The paper's rates are scaled: its engine took milliseconds for
what takes microseconds here, and a queue knows only the product of rate and service time.
docs/experiments.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

import spark_cep as cep
from benchmarks.pictures import FIGURES, Panel, draw
from benchmarks.programs import Prepared, prepare
from benchmarks.reporting import Claim, table
from benchmarks.streams import apam
from spark_cep.udfs.engine import State, advance
from spark_cep.udfs.metrics import Trace
from spark_cep.udfs.planning.costs import Costs, measured
from spark_cep.udfs.planning.generate import models
from spark_cep.udfs.planning.model import BranchModel
from spark_cep.udfs.planning.partition import Load, Partition, fastest, partitions
from spark_cep.udfs.planning.shapes import slots_of
from spark_cep.udfs.program import Estimates, Plan

NAMES = "abcde"
WINDOW = 2_000
# Of a.attr1 < b.attr1, b.attr2 < c.attr2 and so on, as in the paper's Table 2.
EXPERIMENTS = {
    1: (0.008, 0.006, 0.004, 0.002),
    2: (0.002, 0.004, 0.006, 0.008),
    3: (0.006, 0.002, 0.004, 0.008),
}
# Events a second in the paper; below 100 they are added, where there is idle time only.
RATES = (20, 50, 100, 250, 500, 750, 1000, 1250, 1500, 1750, 2000, 2250, 2500, 3000, 3750, 4500)
# How busy the fastest plan is at the highest of them.
MOST_UTILIZED = 2.0
# The rates of the paper's figures.
SHOWN = (100, 1500, 3000, 4500)
# How many times the chosen plan's latency the others had there, at most.
PAPER: Mapping[int, Mapping[str, float]] = {
    1: {"eager": 361.48, "lazy": 27.94},
    2: {"eager": 1.0, "lazy": 5.71},
    3: {"eager": 60.09, "lazy": 5.51},
}


@dataclass(frozen=True)
class Sizes:
    """The first half of `events` is for warming up. Each of `seeds` is a stream and its
    arrivals, and what is printed is the average."""

    events: int
    seeds: int


FULL = Sizes(events=100_000, seeds=5)
QUICK = Sizes(events=40_000, seeds=1)


@dataclass(frozen=True)
class Work:
    """Seconds of service of each event, and which events end a match."""

    service: np.ndarray
    ends_match: np.ndarray


@dataclass(frozen=True)
class Latency:
    """Means over true final events, in seconds: waiting in the queue, then being served."""

    waiting: float
    service: float

    @property
    def total(self) -> float:
        return self.waiting + self.service


@dataclass(frozen=True)
class Point:
    """One arrival rate: the latency of each plan by its name, and what the planner chose."""

    paper_rate: float
    rate: float
    utilization: Mapping[str, float]
    latency: Mapping[str, Latency]
    chosen: str

    @property
    def best(self) -> str:
        return min(self.latency, key=lambda name: self.latency[name].total)

    def ratio(self, name: str, to: str) -> float:
        return self.latency[name].total / self.latency[to].total


def pattern(window: int = WINDOW) -> cep.Pattern:
    """The paper's Figure 3(b). `a < b` is written as `NOT a >= b`, which the engine evaluates pair
    by pair however few the candidates are; among one or two it would look for `<` by position."""
    variables = [cep.event(name, f"kind = {kind}") for kind, name in enumerate(NAMES)]
    conditions = [
        f"NOT ({left}.attr{number} >= {right}.attr{number})"
        for number, (left, right) in enumerate(pairwise(NAMES), start=1)
    ]
    return cep.seq(*variables).where(*conditions).within(events=window)


# ---- service times -----------------------------------------------------------------------------


@dataclass
class Arrivals(Trace):
    """What each event causes in an engine that takes events one by one. `final`: the events that
    a merge begins with.

    In one advance over all events a merge also meets partial matches of the eager group that end
    after its final event, and drops them. One by one they would not have been there yet, so such
    pairs are nobody's work: those of a join whose latest row is not the final event.
    """

    final: np.ndarray

    def add(self, pairs: np.ndarray | None, results: np.ndarray | None) -> None:
        # Only joins say what they tried before what they found.
        if pairs is not None and results is None:
            pairs = pairs[self.final[pairs]]
        super().add(pairs, results)


def traced(prepared: Prepared, partition: Partition) -> tuple[Arrivals, np.ndarray]:
    """One run of the plan: what each event causes, and whether it ends a match."""
    program = replace(prepared.program, plan=Plan("hybrid", (partition.plan,)))
    step = advance(program, State(), prepared.table)
    size = step.events.size
    is_final = step.events.candidates(len(NAMES) - 1)
    # In one advance over everything no pair is tried before a match is asked for.
    trace = Arrivals(np.zeros(size, np.int64), np.zeros(size, np.int64), is_final)
    step.meter.trace = trace
    ends = np.zeros(size, dtype=np.bool_)
    for found in step.matches:
        ends[found.latest] = True
    return trace, ends


def worked(prepared: Prepared, partition: Partition, costs: Costs) -> Work:
    trace, ends = traced(prepared, partition)
    # Every event is put into a buffer, whichever group it is in.
    service = costs.insert + costs.pair * trace.pairs + costs.result * trace.results
    return Work(service, ends)


def name_of(partition: Partition) -> str:
    """As the paper writes it: the eager group, then the others in the order of the merge."""
    merged = [slot for slot in slots_of(partition.shape) if slot not in partition.eager]
    eager = "".join(NAMES[slot] for slot in partition.eager)
    return f"{eager}/{''.join(NAMES[slot] for slot in merged)}".upper()


# ---- the queue ---------------------------------------------------------------------------------


def waits(service: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """How long each event waits for one server that takes them in turn, by Lindley's recursion:
    what it waits is what the one before waited and took, less the gap, and never below 0."""
    level = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    waiting: np.ndarray = level - np.minimum.accumulate(level)
    return waiting


def latency(works: Sequence[Work], gaps: Sequence[np.ndarray]) -> Latency:
    """Over the second halves of all streams."""
    waiting, service = [], []
    for work, between in zip(works, gaps, strict=True):
        final = work.ends_match.copy()
        final[: len(final) // 2] = False
        waiting.append(waits(work.service, between)[final].mean())
        service.append(work.service[final].mean())
    return Latency(float(np.mean(waiting)), float(np.mean(service)))


# ---- an experiment -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Experiment:
    """What the planner knows, the plans by name, from all lazy to all eager, and their work on
    each stream."""

    model: BranchModel
    estimates: Estimates
    costs: Costs
    works: Mapping[str, Sequence[Work]]

    @property
    def lazy(self) -> str:
        return next(iter(self.works))

    @property
    def eager(self) -> str:
        return list(self.works)[-1]

    def service(self, name: str) -> float:
        return float(np.mean([work.service.mean() for work in self.works[name]]))

    def point(self, paper_rate: float, rate: float, gaps: Sequence[np.ndarray]) -> Point:
        """`gaps` between arrivals, for a rate of one."""
        load = Load(window_s=WINDOW / rate)
        chosen = fastest(partitions(self.model, self.estimates, self.costs, load))
        between = [gap / rate for gap in gaps]
        return Point(
            paper_rate,
            rate,
            {name: rate * self.service(name) for name in self.works},
            {name: latency(works, between) for name, works in self.works.items()},
            name_of(chosen),
        )


def experiment(number: int, sizes: Sizes, costs: Costs) -> Experiment:
    selectivities = EXPERIMENTS[number]
    estimates = Estimates(
        dict.fromkeys(range(len(NAMES)), WINDOW / len(NAMES)), dict(enumerate(selectivities))
    )
    works: dict[str, list[Work]] = {}
    for seed in range(sizes.seeds):
        prepared = prepare(pattern(), apam(sizes.events, selectivities, seed))
        model = models(prepared.program)[0]
        for partition in partitions(model, estimates, costs):
            works.setdefault(name_of(partition), []).append(worked(prepared, partition, costs))
    return Experiment(model, estimates, costs, works)


def points(found: Experiment, sizes: Sizes) -> list[Point]:
    factor = MOST_UTILIZED / min(found.service(name) for name in found.works) / max(RATES)
    gaps = [np.random.default_rng(seed).exponential(1, sizes.events) for seed in range(sizes.seeds)]
    return [found.point(rate, rate * factor, gaps) for rate in RATES]


# ---- tables and claims -------------------------------------------------------------------------


def report(found: Experiment, at: Sequence[Point]) -> str:
    """Latencies in microseconds; the chosen plan's in brackets."""
    head = ["rate (paper's)", "rate (here)", "rho of the fastest", *found.works, "best"]
    head += ["chosen / best", "eager / chosen", "lazy / chosen"]
    rows = [
        [
            point.paper_rate,
            round(point.rate),
            min(point.utilization.values()),
            *(_cell(point, name) for name in found.works),
            point.best,
            point.ratio(point.chosen, point.best),
            point.ratio(found.eager, point.chosen),
            point.ratio(found.lazy, point.chosen),
        ]
        for point in at
    ]
    return table(head, rows)


def parts(found: Experiment, at: Sequence[Point]) -> str:
    """The two parts of each latency at the paper's four rates: waiting + service."""
    shown = [point for point in at if point.paper_rate in SHOWN]
    rows = [
        [
            point.paper_rate,
            *(
                f"{_micros(point.latency[name].waiting)} + {_micros(point.latency[name].service)}"
                for name in found.works
            ),
        ]
        for point in shown
    ]
    return table(["rate (paper's)", *found.works], rows)


def _cell(point: Point, name: str) -> str:
    text = _micros(point.latency[name].total)
    return f"[{text}]" if name == point.chosen else text


def _micros(seconds: float) -> str:
    micros = seconds * 1e6
    return f"{micros:,.0f}" if micros >= 100 else f"{micros:.3g}"


def claims(number: int, found: Experiment, at: Sequence[Point]) -> list[Claim]:
    beside_best = {point.paper_rate: point.ratio(point.chosen, point.best) for point in at}
    beside_both = {
        point.paper_rate: max(
            point.ratio(point.chosen, found.eager), point.ratio(point.chosen, found.lazy)
        )
        for point in at
    }
    return [
        _bounded(f"experiment {number}: the chosen plan is within 1.3x of the best", beside_best),
        _bounded(f"experiment {number}: it is never above eager or lazy", beside_both, 1.0),
    ]


def _bounded(text: str, ratios: Mapping[float, float], most: float = 1.3) -> Claim:
    above = [f"{ratio:.2f}x at {rate:g}" for rate, ratio in ratios.items() if ratio > most]
    rate = max(ratios, key=lambda each: ratios[each])
    figures = ", ".join(above) or f"at most {ratios[rate]:.2f}x, at {rate:g}"
    return Claim(text, not above, figures)


def headlines(results: Mapping[int, tuple[Experiment, Sequence[Point]]]) -> str:
    rows = []
    for number, (found, at) in results.items():
        ours = {
            "eager": max(point.ratio(found.eager, point.chosen) for point in at),
            "lazy": max(point.ratio(found.lazy, point.chosen) for point in at),
        }
        rows.append([number, *(cell for name in ours for cell in (ours[name], PAPER[number][name]))])
    head = ["experiment", "eager / chosen, up to", "paper", "lazy / chosen, up to", "paper"]
    return table(head, rows)


def picture(results: Mapping[int, tuple[Experiment, Sequence[Point]]], folder: Path) -> Path:
    panels = []
    for number, (found, at) in results.items():
        names = list(found.works)
        series = {
            f"{eager} of 5 eager": [point.latency[name].total * 1e6 for point in at]
            for eager, name in enumerate(names)
        }
        series["chosen"] = [point.latency[point.chosen].total * 1e6 for point in at]
        title = f"experiment {number}: {names[0]} to {names[-1]}"
        axes = "arrivals a second, as in the paper", "latency, microseconds"
        panels.append(Panel(title, *axes, RATES, series, log_x=True, log_y=True))
    return draw("apam", panels, folder)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Figures 4 to 6 of the apam paper.")
    arguments.add_argument("--quick", action="store_true", help="short streams, no pictures")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    given = arguments.parse_args()
    sizes = QUICK if given.quick else FULL
    folder = given.figures or (None if given.quick else FIGURES)
    costs = measured()
    print(
        f"T_PE {costs.pair * 1e9:.1f} ns, T_RC {costs.result * 1e9:.1f} ns, "
        f"T_BI {costs.insert * 1e9:.1f} ns"
    )
    results = {}
    found_claims = []
    for number in EXPERIMENTS:
        found = experiment(number, sizes, costs)
        results[number] = found, points(found, sizes)
        print(f"\nExperiment {number}: mean latency in microseconds, the chosen plan in brackets\n")
        print(report(*results[number]))
        print("\nits parts, waiting + service\n")
        print(parts(*results[number]))
        found_claims += claims(number, *results[number])
    print("\nThe largest ratios\n")
    print(headlines(results))
    print("\n" + "\n".join(claim.line() for claim in found_claims))
    if folder is not None:
        picture(results, folder)


if __name__ == "__main__":
    main()
