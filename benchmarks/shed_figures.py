"""What the runs of the darling experiment show: cells, tables, who keeps most, pictures.

A *cell* is a query, a stream and its arrivals. In it all policies get the same rows at the same
times, and what they find is compared with the matches of all rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.pictures import Number, Panel, draw
from benchmarks.reporting import Claim, table
from benchmarks.shed_runs import BOUND, POLICIES, How, Run, Work, run

if TYPE_CHECKING:
    from pathlib import Path

HOWS: tuple[How, ...] = ("none", *POLICIES)
# Closer than this two shares are a tie.
TIE = 0.01


@dataclass(frozen=True)
class Outcome:
    """`share` of all matches, `peak_share` of those whose last row came in a trigger that was
    longer than the bound without shedding. `latency` of matches in seconds, the mean and the
    longest; `first` and `later`: the longest trigger up to the first one that was too full, and
    behind it. `dropped`: share of the rows after warming up. `memory`: by how many megabytes the
    process grew."""

    share: float
    peak_share: float
    latency: float
    longest_latency: float
    first: float
    later: float
    dropped: float
    memory: float = 0.0

    @property
    def longest(self) -> float:
        return max(self.first, self.later)


@dataclass(frozen=True)
class Cell:
    """`what` is varied, and `at` its value. `matches`: of all rows, after warming up. `partials`:
    partial matches in a window without shedding, on average. `seconds`: the work of all rows."""

    query: str
    what: str
    at: float
    window_rows: float
    partials: float
    rows: int
    matches: int
    seconds: float
    outcomes: Mapping[How, Outcome]
    bound: float = BOUND

    @property
    def name(self) -> str:
        return f"{self.query}, {self.what} {self.at:,.3g}"

    def ratio(self, other: How) -> float:
        """How many times the other policy's matches utility keeps."""
        theirs = self.outcomes[other].share
        return self.outcomes["utility"].share / theirs if theirs else float("inf")

    @property
    def rivals(self) -> tuple[How, ...]:
        return tuple(how for how in self.outcomes if how not in {"none", "utility"})


def cell(  # noqa: PLR0913 - what a cell is made of
    named: tuple[str, str, float],
    work: Work,
    arrivals: np.ndarray,
    hows: Sequence[How] = HOWS,
    *,
    full: Run | None = None,
    bound: float = BOUND,
) -> Cell:
    """`named`: the query, what is varied, and its value. `full`: the run without shedding, where
    it is known already."""
    runs: dict[How, Run] = {} if full is None else {"none": full}
    for how in hows:
        if how not in runs:
            runs[how] = run(work, arrivals, how, bound)
    everything = runs["none"]
    outcomes = {how: outcome(runs[how], everything, work, bound) for how in hows}
    partials = sum(each["partial_matches"] for each in everything.metrics)
    told = ", ".join(
        f"{how} {100 * each.share:.1f} % {each.longest:.2f} s" for how, each in outcomes.items()
    )
    work_done = f"{len(everything.found):,} matches, {everything.work_seconds:.1f} s of work"
    print(f"{named}: {work_done}; {told}", file=sys.stderr, flush=True)
    return Cell(
        *named,
        work.window_rows,
        partials * work.window_rows / work.rows,
        work.rows - work.warm,
        len(everything.found),
        everything.work_seconds,
        outcomes,
        bound,
    )


def averaged(cells: Sequence[Cell]) -> list[Cell]:
    """The means over seeds: of cells with the same query, what is varied, and its value."""
    groups: dict[tuple[str, str, float], list[Cell]] = {}
    for each in cells:
        groups.setdefault((each.query, each.what, each.at), []).append(each)
    return [_mean_cell(of) for of in groups.values()]


def _mean_cell(cells: Sequence[Cell]) -> Cell:
    def mean(values: Sequence[float]) -> float:
        known = [each for each in values if not isnan(each)]
        return sum(known) / len(known) if known else float("nan")

    def together(how: How) -> Outcome:
        of = [each.outcomes[how] for each in cells]
        means = {name: mean([getattr(one, name) for one in of]) for name in vars(of[0])}
        # A bound is held by the longest trigger of all.
        longest = {name: max(getattr(one, name) for one in of) for name in _LONGEST}
        return Outcome(**{**means, **longest})

    return replace(
        cells[0],
        window_rows=mean([each.window_rows for each in cells]),
        partials=mean([each.partials for each in cells]),
        matches=round(mean([each.matches for each in cells])),
        seconds=mean([each.seconds for each in cells]),
        outcomes={how: together(how) for how in cells[0].outcomes},
    )


_LONGEST = ("first", "later", "longest_latency")


def deviation(cells: Sequence[Cell]) -> float:
    """The largest standard deviation over seeds of a share of the matches, by any policy."""
    groups: dict[tuple[str, str, float], list[Cell]] = {}
    for each in cells:
        groups.setdefault((each.query, each.what, each.at), []).append(each)
    return max(
        (
            float(np.std([each.outcomes[how].share for each in of]))
            for of in groups.values()
            for how in of[0].outcomes
        ),
        default=0.0,
    )


def outcome(of: Run, full: Run, work: Work, bound: float = BOUND) -> Outcome:
    too_full = [each for each in of.triggers if each.dropped or each.seconds > bound]
    until = too_full[0].began if too_full else float("inf")
    first = [each.seconds for each in of.triggers if each.began <= until]
    later = [each.seconds for each in of.triggers if each.began > until]
    in_peak = full.last_rows_in_peaks(bound)
    kept = of.share_of(full)
    among = np.isin(full.found[in_peak], of.found)
    dropped = sum(each.dropped for each in of.triggers)
    return Outcome(
        share=kept,
        peak_share=float(among.mean()) if len(among) else 1.0,
        latency=of.mean_latency,
        longest_latency=float(of.latency.max()) if len(of.latency) else 0.0,
        first=max(first, default=0.0),
        later=max(later, default=0.0),
        dropped=dropped / (work.rows - work.warm),
        memory=(of.memory or 0) / 1e6,
    )


# ---- tables ------------------------------------------------------------------------------------


def shares(cells: Sequence[Cell], *, in_peaks: bool = True) -> str:
    """Shares of matches kept, and what utility has of the others'. `in_peaks`: also those of the
    load alone, without what came at the base rate."""
    policies = ("utility", *cells[0].rivals)
    head = ["cell", "rows in a window", "partial matches", "matches", "work, s"]
    head += [f"{how}, %" for how in policies]
    head += [f"of the load: {how}, %" for how in policies] * in_peaks
    head += [f"utility / {how}" for how in policies[1:]]
    rows: list[list[object]] = []
    for one in cells:
        row: list[object] = [one.name, round(one.window_rows), round(one.partials), one.matches]
        row += [one.seconds, *(100 * one.outcomes[how].share for how in policies)]
        row += [100 * one.outcomes[how].peak_share for how in policies] * in_peaks
        rows.append([*row, *(one.ratio(how) for how in policies[1:])])
    return table(head, rows)


def latencies(cells: Sequence[Cell]) -> str:
    """Mean detection latency in seconds, and the longest trigger: the first one that is too full
    counts apart."""
    hows = [how for how in HOWS if any(how in one.outcomes for one in cells)]
    head = ["cell", *(f"{how}, mean" for how in hows), *(f"{how}, trigger" for how in hows)]
    rows: list[list[object]] = []
    for one in cells:
        found = [one.outcomes.get(how) for how in hows]
        means = ["" if of is None else f"{of.latency:.2f}" for of in found]
        rows.append([one.name, *means, *("" if of is None else _triggers(of) for of in found)])
    return table(head, rows)


def memories(cells: Sequence[Cell]) -> str:
    """By how many megabytes the process grew."""
    hows = [how for how in HOWS if any(how in one.outcomes for one in cells)]
    rows: list[list[object]] = [
        [
            one.name,
            *(round(one.outcomes[how].memory) if how in one.outcomes else "" for how in hows),
        ]
        for one in cells
    ]
    return table(["cell", *(f"{how}, MB" for how in hows)], rows)


def _triggers(of: Outcome) -> str:
    return f"{of.later:.2f}" if of.first <= of.later else f"{of.later:.2f} (first {of.first:.2f})"


# ---- claims ------------------------------------------------------------------------------------


def bound_claims(cells: Sequence[Cell]) -> list[Claim]:
    """Whether triggers of the utility policy hold the bound, after the first that is too full."""
    late = [one for one in cells if one.outcomes["utility"].later > one.bound]
    worst = max((one.outcomes["utility"].later for one in cells), default=0.0)
    firsts = sum(one.outcomes["utility"].first > one.bound for one in cells)
    figures = f"{len(cells) - len(late)} of {len(cells)} cells, {worst:.2f} s at worst"
    bound = f"{cells[0].bound:g}" if cells else ""
    text = f"no trigger after the first too full one takes longer than {bound} s"
    first = max((one.outcomes["utility"].first for one in cells), default=0.0)
    return [
        Claim(text, not late, figures),
        Claim(
            "nor does the first one",
            not firsts,
            f"{len(cells) - firsts} of {len(cells)} cells, {first:.2f} s at worst",
        ),
    ]


def ahead_claims(cells: Sequence[Cell]) -> list[Claim]:
    found = []
    for other in cells[0].rivals if cells else ():
        mine = [(one, one.outcomes["utility"].share, one.outcomes[other].share) for one in cells]
        behind = [one.name for one, own, theirs in mine if own < theirs - TIE]
        figures = f"{len(cells) - len(behind)} of {len(cells)}"
        figures += f"; not in {', '.join(behind)}" if behind else ""
        found.append(Claim(f"utility keeps more matches than {other}", not behind, figures))
    return found


# ---- pictures ----------------------------------------------------------------------------------

Value = Callable[[Outcome], float]


def panel(title: str, x: str, y: str, cells: Sequence[Cell], value: Value) -> Panel:
    series: dict[str, list[Number | None]] = {
        how: [_known(value(one.outcomes[how])) if how in one.outcomes else None for one in cells]
        for how in HOWS
        if any(how in one.outcomes for one in cells)
    }
    return Panel(title, x, y, [at(one) for one in cells], series)


def _known(value: float) -> float | None:
    return None if isnan(value) else value


def at(one: Cell) -> Number:
    """What the cell stands at, as a figure shows it."""
    if one.what == "window":
        return round(one.window_rows)
    return round(one.partials) if one.what == "partial matches" else round(one.at, 1)


MEASURES: Mapping[str, tuple[str, Value]] = {
    "shares": ("matches kept, %", lambda of: 100 * of.share),
    "latency": ("mean detection latency, s", lambda of: of.latency),
    "memory": ("peak memory, MB", lambda of: of.memory),
}


def draw_figure(
    name: str, measure: str, x: str, by_dataset: Mapping[str, Sequence[Cell]], folder: Path
) -> None:
    """One measure, a panel for each dataset."""
    y, value = MEASURES[measure]
    panels = [
        panel(dataset, x, y, sorted(cells, key=at), value) for dataset, cells in by_dataset.items()
    ]
    draw(name, panels, folder, names=HOWS)


def plain(of: Cell) -> dict[str, Any]:
    return asdict(of)
