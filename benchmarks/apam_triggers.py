"""Figures 4 to 6 of the apam paper from the worker's own triggers, beside the virtual clock's.

    python -m benchmarks.apam_triggers [--only NUMBER ...] [--json FILE]

One bucket without Spark. The events of a trigger's time come together, the trigger begins when its
time is over and the one before has ended, and a match is late by the time from the arrival of its
last event to the end of the trigger. Triggers take the time that they take of the processor; the
idle time between them is skipped, on a clock of each contestant that its load is measured by.
`plans_on_streams.md` keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.adaptive_runs import engine_clock
from benchmarks.apam import EXPERIMENTS, NAMES, QUICK, WINDOW, Experiment, experiment, pattern
from benchmarks.programs import Prepared, prepare
from benchmarks.reporting import Claim, table
from benchmarks.stream_windows import Kept, stream_job
from benchmarks.streams import apam
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.execution.job import TriggerInput, from_blob, to_blob
from spark_cep.udfs.execution.trigger import run_trigger
from spark_cep.udfs.planning.apam import apam_partitions
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import Adaptation, BranchPlan, Plan

if TYPE_CHECKING:
    import pyarrow as pa

    from benchmarks.apam import Sizes

# Events of a trigger, from slow to fast: up to a window.
EVENTS = (5, 20, 80, 320, 1_000, 2_000)
TRIGGER_SECONDS = 0.01
# Triggers that are measured, after a window in one trigger and some more to learn from.
MEASURED = 40
LEARNING = 12
# How much above the better of eager and lazy the automatic choice may be.
GOAL = 1.1
AUTOS = ("hybrid", "auto")


@dataclass
class Timeline:
    """A contestant and its own time, which its triggers and its waiting for arrivals take."""

    kept: Kept
    now: float = 0.0
    late: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    planning: list[float] = field(default_factory=list)
    finals: list[int] = field(default_factory=list)
    pairs: int = 0
    matches: int = 0

    def trigger(self, rows: pa.Table, watermark: int, due: float) -> float:
        """Seconds from when the trigger was due to its end."""
        begin = max(self.now, due)
        real, now = time.perf_counter, time.perf_counter()
        with engine_clock(lambda: begin + real() - now):
            started = time.process_time()
            arrived = TriggerInput(0, (to_blob(rows),), watermark)
            answers = list(run_trigger(self.kept.job, self.kept.store, arrived))
            seconds = time.process_time() - started
        self.now = begin + seconds
        self.kept.metrics = json.loads(from_blob(answers[-1]).column("metrics")[-1].as_py())
        self.kept.swaps += [swap["to"] for swap in self.kept.metrics["swaps"]]
        return self.now - due

    def measure(self, late: float, finals: int) -> None:
        metrics = self.kept.metrics
        self.late.append(late)
        self.busy.append(metrics["matching_us"] / 1e6)
        self.planning.append(metrics["planning_us"] / 1e6)
        self.finals.append(finals)
        self.pairs += metrics["pairs"]
        self.matches += metrics["matches"]

    @property
    def matching(self) -> float:
        """The median seconds of a trigger that the engine takes."""
        return float(np.median(self.busy))

    @property
    def latency(self) -> float:
        """From a trigger's being due to its end: the median over final events."""
        return float(np.median(np.repeat(self.late, np.maximum(self.finals, 1))))


def contestants(prepared: Prepared, lazy: BranchPlan) -> dict[str, Timeline]:
    size = len(NAMES)
    eager = BranchPlan(left_deep_shape(range(size)), tuple(range(size - 1)), fixed=True)
    forced = {"eager": Plan("eager", (eager,)), "lazy": Plan("lazy-chain", (lazy,))}
    found = {
        name: Timeline(Kept(stream_job(prepared, plan, Adaptation(), name)))
        for name, plan in forced.items()
    }
    adaptation = Adaptation("invariants", to_tree=True, to_hybrid=True)
    of_latency = replace(prepared, program=replace(prepared.program, optimize="latency"))
    for name, plan in {"hybrid": Plan("hybrid"), "auto": Plan("lazy-chain")}.items():
        found[name] = Timeline(Kept(stream_job(of_latency, plan, adaptation, name)))
    return found


def measure(
    number: int, events: int, lazy: BranchPlan, measured: int = MEASURED
) -> dict[str, Timeline]:
    """One rate: `events` a trigger, all contestants taking each trigger in turn."""
    triggers = LEARNING + measured
    columns = apam(WINDOW + events * triggers, EXPERIMENTS[number])
    prepared = prepare(pattern().within(WINDOW), columns)
    racing = contestants(prepared, lazy)
    for place in range(-1, triggers):
        begin = 0 if place < 0 else WINDOW + place * events
        end = WINDOW + (place + 1) * events
        rows = prepared.table.slice(begin, end - begin)
        finals = int(np.count_nonzero(columns["kind"][begin:end] == len(NAMES) - 1))
        for one in racing.values():
            late = one.trigger(rows, begin - 1, (place + 1) * TRIGGER_SECONDS)
            if place >= LEARNING:
                one.measure(late, finals)
    return racing


@dataclass(frozen=True)
class Rate:
    """`virtual`: latencies on the virtual clock by plan, in seconds."""

    number: int
    events: int
    measured: Mapping[str, Timeline]
    virtual: Mapping[str, float]
    chosen: str

    @property
    def per_second(self) -> float:
        return self.events / TRIGGER_SECONDS

    def ratio(self, name: str, part: str = "latency") -> float:
        """Compared with the better of eager and lazy."""
        least = min(getattr(self.measured[each], part) for each in ("eager", "lazy"))
        return float(getattr(self.measured[name], part) / least)


def measured_rates(
    numbers: Sequence[int], sizes: Sizes, events: Sequence[int] = EVENTS, measured: int = MEASURED
) -> list[Rate]:
    found = []
    for number in numbers:
        clock = experiment(number, sizes, TYPICAL_COSTS)
        shape = apam_partitions(clock.model, clock.estimates, clock.costs)[0].shape
        for each in events:
            racing = measure(number, each, BranchPlan(shape, fixed=True), measured)
            found.append(Rate(number, each, racing, *_virtual(clock, each, sizes)))
    return found


def _virtual(clock: Experiment, events: int, sizes: Sizes) -> tuple[dict[str, float], str]:
    rate = events / TRIGGER_SECONDS
    gaps = [np.random.default_rng(seed).exponential(1, sizes.events) for seed in range(sizes.seeds)]
    point = clock.point(rate, rate, gaps)
    names = {"eager": clock.eager, "lazy": clock.lazy, "hybrid": point.chosen}
    return {name: point.latency[each].total for name, each in names.items()}, point.chosen


def report(rates: Sequence[Rate]) -> tuple[str, list[Claim]]:
    head = ["experiment", "events a second", "a trigger", "eager", "lazy", "hybrid", "auto"]
    head += ["hybrid / better", "auto / better", "the same, matching", "pairs: eager", "lazy"]
    head += ["hybrid", "hybrid plans", "virtual: eager", "lazy", "chosen", "hybrid keeps"]
    rows = []
    for rate in rates:
        of = rate.measured
        rows.append([
            rate.number,
            round(rate.per_second),
            rate.events,
            *(f"{of[name].latency * 1e3:.2f}" for name in ("eager", "lazy", *AUTOS)),
            *(f"{rate.ratio(name):.2f}" for name in AUTOS),
            ", ".join(f"{rate.ratio(name, 'matching'):.2f}" for name in AUTOS),
            *(of[name].pairs for name in ("eager", "lazy", "hybrid")),
            f"{np.median(of['hybrid'].planning) * 1e3:.2f}",
            *(f"{rate.virtual[name] * 1e6:,.3g}" for name in ("eager", "lazy", "hybrid")),
            f"{(of['hybrid'].kept.swaps or ['nothing'])[-1]}; virtual {rate.chosen}",
        ])  # fmt: skip
    claims = [
        Claim(
            f"experiment {rate.number}, {rate.per_second:,.0f} events a second: {name} is within "
            f"{GOAL} of the better of eager and lazy",
            rate.ratio(name) <= GOAL,
            f"{rate.ratio(name):.2f}; of matching {rate.ratio(name, 'matching'):.2f}",
        )
        for rate in rates
        for name in AUTOS
    ]
    return table(head, rows), claims


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--only", nargs="+", type=int, choices=EXPERIMENTS, metavar="NUMBER")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = arguments.parse_args()
    rates = measured_rates(given.only or list(EXPERIMENTS), replace(QUICK, seeds=1))
    text, claims = report(rates)
    print(text)
    print("\n".join(claim.line() for claim in claims))
    if given.json:
        figures = [
            {
                "experiment": rate.number,
                "events": rate.events,
                "virtual": rate.virtual,
                "chosen": rate.chosen,
                "plans": {
                    name: {
                        "late": one.late,
                        "busy": one.busy,
                        "planning": one.planning,
                        "finals": one.finals,
                        "pairs": one.pairs,
                        "matches": one.matches,
                        "swaps": one.kept.swaps,
                    }
                    for name, one in rate.measured.items()
                },
            }
            for rate in rates
        ]
        given.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
