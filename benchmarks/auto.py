"""How good `plan="auto"` is: against every plan that can be forced, over a suite of patterns and
over patterns that mislead planners. Plans are made by the exact programs (`planner="dp"`), and all
kinds that adapt do so.

    python -m benchmarks.auto [--quick] [--figures FOLDER]

Each contestant takes the real path without Spark: the driver's sample and choice, then what a
worker does with one bucket. Timed is the worker's part; the driver's is reported beside it. A
contestant that is far behind in its first run is not run again. benchmarks/experiments.md keeps the
figures of a run.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.choosing import AUTO, FORCED, choice_seconds, planned, work
from benchmarks.pictures import FIGURES, Panel, draw
from benchmarks.plan_adversaries import ADVERSARY_ROWS, plan_adversaries
from benchmarks.programs import Run, prepare
from benchmarks.reporting import Claim, table
from benchmarks.suite import ROWS, Case, of_eight, suite
from spark_cep.udfs.program import Estimates

# A plan that takes this many times the fastest in its first run is not the best one.
HOPELESS = 3.0
GOOD, BAD = 1.25, 1.6
PLANNING_GOAL_MS = 50


@dataclass(frozen=True)
class Result:
    """Of one case: each contestant's seconds in its fastest round, which nothing interrupted, and
    its pairs; `plan` is what auto chose."""

    case: str
    family: str
    plan: str
    seconds: Mapping[str, float]
    pairs: Mapping[str, int]
    planning: float

    @property
    def best(self) -> str:
        return min(FORCED, key=lambda name: self.seconds[name])

    def ratio(self, name: str = AUTO) -> float:
        """To the best forced plan."""
        return self.seconds[name] / self.seconds[self.best]


def measure(case: Case, rows: int, rounds: int) -> Result:
    """Every contestant once, then those that are not far behind in turns."""
    prepared = prepare(case.pattern, case.stream.columns(rows), partition_by=["k"])
    started = perf_counter()
    auto, choice = planned(prepared, AUTO)
    planning = perf_counter() - started
    contestants = {AUTO: auto} | {kind: planned(prepared, kind)[0] for kind in FORCED}
    first = {name: work(each) for name, each in contestants.items()}
    _check_equal(case, first)
    fastest = min(each.seconds for each in first.values())
    running = [
        name for name in contestants if name == AUTO or first[name].seconds < HOPELESS * fastest
    ]
    seconds: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(rounds):
        for name in running:
            seconds[name].append(work(contestants[name]).seconds)
    return Result(
        case.name,
        case.family,
        choice.plan.kind,
        {n: min([each.seconds, *seconds.get(n, [])]) for n, each in first.items()},
        {name: each.metrics.pairs for name, each in first.items()},
        planning,
    )


def _check_equal(case: Case, runs: Mapping[str, Run]) -> None:
    matches = {name: each.metrics.matches for name, each in runs.items()}
    if len(set(matches.values())) > 1:
        raise AssertionError(f"{case.name}: the plans do not agree on the matches: {matches}")


def planning_seconds(rounds: int) -> dict[str, float]:
    """Choosing alone, with statistics given, for patterns of 8 variables: the median."""
    found = {}
    for case in of_eight():
        program = prepare(case.pattern, case.stream.columns(1)).program
        rates = {variable: 5.0 * (variable + 1) for variable in range(len(program.variables))}
        estimates = Estimates(rates, windows=1_000)
        found[case.name] = statistics.median(
            choice_seconds(program, estimates) for _ in range(rounds)
        )
    return found


# ---- the report --------------------------------------------------------------------------------


def claims(results: Sequence[Result], planning: Mapping[str, float]) -> list[Claim]:
    ratios = [each.ratio() for each in results]
    good = sum(ratio <= GOOD for ratio in ratios) / len(ratios)
    worst = max(results, key=lambda each: each.ratio())
    slowest = max(planning, key=lambda name: planning[name])
    return [
        Claim(
            f"auto is within {GOOD:g} of the best forced plan for 95 % of the patterns",
            good >= 0.95,
            f"{good:.0%} of {len(ratios)}",
        ),
        Claim(
            f"it is never beyond {BAD:g} times the best",
            worst.ratio() <= BAD,
            f"{worst.ratio():.2f} at worst: {worst.case}",
        ),
        Claim(
            f"planning for 8 variables without sampling takes less than {PLANNING_GOAL_MS} ms",
            planning[slowest] * 1e3 < PLANNING_GOAL_MS,
            f"{planning[slowest] * 1e3:.1f} ms at most: {slowest}",
        ),
    ]


def report(results: Sequence[Result]) -> str:
    """A line for each case, the worst first."""
    head = ["case", "auto", "best", "ratio", "auto ms", *(f"{kind} ms" for kind in FORCED)]
    head += ["pairs of auto", "of the best"]
    rows = [
        [
            each.case,
            each.plan,
            each.best,
            round(each.ratio(), 2),
            *(round(each.seconds[name] * 1e3, 1) for name in (AUTO, *FORCED)),
            each.pairs[AUTO],
            each.pairs[each.best],
        ]
        for each in sorted(results, key=lambda each: -each.ratio())
    ]
    return table(head, rows)


def by_family(results: Sequence[Result]) -> str:
    """The report in a few lines."""
    families = dict.fromkeys(each.family for each in results)
    rows = []
    for family in families:
        mine = [each for each in results if each.family == family]
        ratios = [each.ratio() for each in mine]
        chosen = Counter(each.plan for each in mine)
        rows.append(
            [
                family,
                len(mine),
                ", ".join(f"{kind} {count}" for kind, count in chosen.most_common()),
                round(statistics.median(ratios), 2),
                round(max(ratios), 2),
                sum(ratio <= GOOD for ratio in ratios),
                round(statistics.median(each.ratio("eager") for each in mine), 2),
                round(max(each.ratio("eager") for each in mine), 2),
            ]
        )
    head = ["family", "patterns", "auto chose", "median ratio", "worst", f"within {GOOD:g}"]
    return table([*head, "eager: median", "worst"], rows)


def profile(results: Sequence[Result]) -> Panel:
    """For each contestant the share of cases in which it is within a factor of the best."""
    factors = (1.0, 1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100)
    series = {
        name: [
            100 * sum(each.ratio(name) <= factor for each in results) / len(results)
            for factor in factors
        ]
        for name in (AUTO, *FORCED)
    }
    return Panel(
        "patterns within a factor of the best forced plan",
        "factor of the best plan's time",
        "% of the patterns",
        factors,
        series,
        log_x=True,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description='How good plan="auto" is.')
    arguments.add_argument("--quick", action="store_true", help="fewer rows, no picture")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw it there")
    given = arguments.parse_args()
    part, rounds = (4, 3) if given.quick else (1, 7)
    folder = given.figures or (None if given.quick else FIGURES)
    results = [measure(case, ROWS // part, rounds) for case in suite()]
    results += [measure(case, ADVERSARY_ROWS // part, rounds) for case in plan_adversaries()]
    planning = planning_seconds(rounds)
    print(report(results))
    print(f"\n{by_family(results)}")
    print(f"\nsample and choice: {statistics.median(r.planning for r in results) * 1e3:.1f} ms")
    print(table(["8 variables", "ms"], [[name, each * 1e3] for name, each in planning.items()]))
    if folder is not None:
        draw("auto", [profile(results)], folder)
    print("\n" + "\n".join(claim.line() for claim in claims(results, planning)))


if __name__ == "__main__":
    main()
