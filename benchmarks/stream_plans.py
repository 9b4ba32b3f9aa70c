"""Plans on streams: the automatic choice beside every plan that could be named, in pairs and time.

    python -m benchmarks.stream_plans [--only NAME ...] [--json FILE]

Twelve cells: four patterns, each with windows of 2, 10 and 100 triggers. One bucket without Spark:
the worker's own triggers over a store in memory, all contestants taking every trigger in turn.
Times are those of the processor, so that other programs hardly count.
Beside them stands what each named order costs, counted from the rows. `plans_on_streams.md` keeps
the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.programs import prepare, value_of
from benchmarks.reporting import Claim, table
from benchmarks.stream_windows import TICKS, Kept, stream_job
from spark_cep import event, seq
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import Adaptation, BranchPlan, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.pattern import Pattern

SEED = 16
ABC = (event("a", "kind = 0"), event("b", "kind = 1"), event("c", "kind = 2"))
WINDOWS = (2, 10, 100)
# Triggers that are measured, after as many as a window has and at least `WARMING`.
MEASURED: Mapping[int, int] = {2: 8, 10: 12, 100: 24}
WARMING = 6
# A named plan that takes so many times the pairs of another one leaves the race.
LAPPED = 8
# What the automatic choice may take of the best named plan, and a named plan of its order.
GOAL = 1.3
NAMED_GOAL = 1.05


@dataclass(frozen=True)
class StreamWork:
    """`phases`: the shares of the kinds; those of the last phase follow those of the first in the
    middle of what is measured. `rows`: in a window."""

    conditions: tuple[str, ...]
    phases: tuple[tuple[float, float, float], ...]
    rows: int = 2_000

    def pattern(self, window: int) -> Pattern:
        return seq(*ABC).where(*self.conditions).within(window * TICKS)

    def columns(self, window: int, measured: int) -> Mapping[str, np.ndarray]:
        random, triggers = np.random.default_rng(SEED), warming(window) + measured
        count = self.rows // window * triggers
        times = np.sort(random.integers(0, triggers * TICKS, count))
        begin = (warming(window) + measured // 2) * TICKS
        kinds = [random.choice(3, count, p=shares) for shares in self.phases]
        return {
            "t": times,
            "kind": np.where(times < begin, kinds[0], kinds[-1]),
            "x": random.random(count),
            "y": random.random(count),
            "k": random.integers(0, 50, count),
        }


def warming(window: int) -> int:
    """Triggers that do not count: a window has to be full, and some triggers to be learned from."""
    return max(window, WARMING)


WORKS: Mapping[str, StreamWork] = {
    "correlated": StreamWork(
        ("a.x < b.x - 0.9", "b.x < c.x - 0.01"), ((0.4, 0.4, 0.2),)
    ),
    "few pairs fit": StreamWork(
        ("(a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) < 0.001", "b.x < c.x"),
        ((0.2, 0.2, 0.6),),
    ),
    "rates switch": StreamWork(
        ("a.x < b.x", "b.x < c.x - 0.5"), ((0.6, 0.38, 0.02), (0.02, 0.38, 0.6)), 700
    ),
    "tied by values": StreamWork(("a.k = b.k", "b.x < c.x - 0.9"), ((0.3, 0.3, 0.4),)),
}  # fmt: skip


def named_plans(slots: int = 3) -> Iterator[tuple[str, Plan]]:
    """Every order, and every group whose partial matches can be kept."""
    names = "abcdef"[:slots]
    for order in permutations(range(slots)):
        text = "→".join(names[slot] for slot in order)
        yield text, Plan("lazy-chain", (BranchPlan(left_deep_shape(order), fixed=True),))
    for size in range(2, slots):
        for eager in combinations(range(slots), size):
            rest = [slot for slot in reversed(range(slots)) if slot not in eager]
            shape = (left_deep_shape(rest), left_deep_shape(eager))
            text = f"{' '.join(names[s] for s in eager)} | {'→'.join(names[s] for s in rest)}"
            yield text, Plan("hybrid", (BranchPlan(shape, eager, fixed=True),))


@dataclass
class Total:
    """What the measured triggers of one contestant took."""

    pairs: int = 0
    milliseconds: list[float] = field(default_factory=list)
    matches: int = 0
    kept: int = 0
    swaps: list[str] = field(default_factory=list)
    orders: dict[str, int] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.milliseconds)

    def add(self, metrics: Mapping[str, Any], milliseconds: float) -> None:
        self.pairs += metrics["pairs"]
        self.milliseconds.append(milliseconds)
        self.matches += metrics["matches"]
        self.kept = max(self.kept, metrics["kept_partial_matches"])
        for order, pairs in metrics.get("orders", {}).items():
            self.orders[order] = self.orders.get(order, 0) + pairs


AUTOS: Mapping[str, Plan] = {"auto": Plan("lazy-chain"), "hybrid": Plan("hybrid")}


def measure_cell(
    work: StreamWork,
    window: int,
    measured: int,
    *,
    autos: Mapping[str, Plan] = AUTOS,
) -> dict[str, Total]:
    prepared = prepare(work.pattern(window), work.columns(window, measured))
    adaptation = Adaptation("invariants", to_tree=True, to_hybrid=True)
    racing = {
        name: Kept(stream_job(prepared, plan, Adaptation(), name)) for name, plan in named_plans()
    }
    racing |= {
        name: Kept(stream_job(prepared, plan, adaptation, name)) for name, plan in autos.items()
    }
    totals = {name: Total() for name in racing}
    warmed = dict.fromkeys(racing, 0)
    triggers = warming(window) + measured
    bounds = np.searchsorted(prepared.times(), np.arange(triggers + 1) * TICKS)
    for number in range(triggers):
        rows = prepared.table.slice(bounds[number], bounds[number + 1] - bounds[number])
        for name, one in racing.items():
            started = time.process_time()
            one.trigger(number, rows)
            if number >= warming(window):
                totals[name].add(one.metrics, 1000 * (time.process_time() - started))
            else:
                warmed[name] += one.metrics["pairs"]
        if number + 1 == WARMING and len(work.phases) == 1:
            for name in _lapped(warmed, autos):
                del racing[name], totals[name]
    for name, one in racing.items():
        totals[name].swaps = one.swaps
    return totals


def _lapped(pairs: Mapping[str, int], autos: Iterable[str]) -> list[str]:
    """
    >>> _lapped({"a→b": 100, "b→a": 900, "auto": 1000}, ["auto"])
    ['b→a']
    """
    least = min(pairs.values())
    return [name for name, each in pairs.items() if each > LAPPED * least and name not in autos]


# ---- what a named order costs --------------------------------------------------------------------


Bound = dict[int, np.ndarray]
# What is bound is extended in pieces, which keeps the memory small.
BLOCK = 1_000


@dataclass(frozen=True)
class Recorded:
    """The rows of a cell. `spare`: triggers whose rows are in the state beyond the window: it is
    reduced by the watermark with which a trigger began, that of the rows before it."""

    work: StreamWork
    window: int
    measured: int
    spare: int = 1

    def pairs(self, order: Sequence[int]) -> int:
        """The pairs of an order in the measured triggers, counted from the rows: those at hand, of
        the last variable only the new ones, are joined one variable after the other. A pair is in
        the order of the pattern, within the window, and equal where a condition asks for that."""
        columns, total = self.work.columns(self.window, self.measured), 0
        begin = warming(self.window)
        for number in range(begin, begin + self.measured):
            held = columns["t"] >= (number - self.window - self.spare) * TICKS
            held &= columns["t"] < (number + 1) * TICKS
            rows = [np.flatnonzero(held & (columns["kind"] == slot)) for slot in range(3)]
            rows[2] = rows[2][columns["t"][rows[2]] >= number * TICKS]
            bound = {order[0]: rows[order[0]]}
            for slot in order[1:]:
                size = len(next(iter(bound.values())))
                joined = []
                for start in range(0, max(size, 1), BLOCK):
                    block = {each: at[start : start + BLOCK] for each, at in bound.items()}
                    extended, pairs = self._extended(block, slot, rows[slot], columns)
                    joined.append(extended)
                    total += pairs
                bound = {each: np.concatenate([one[each] for one in joined]) for each in joined[0]}
        return total

    def _extended(
        self, bound: Bound, slot: int, rows: np.ndarray, columns: Mapping[str, np.ndarray]
    ) -> tuple[Bound, int]:
        """What is bound with one slot more, and the pairs that were tested for it."""
        bound = self._in_time(bound, slot, rows, columns["t"])
        tested = [text for text in self.work.conditions if slot in _slots(text)]
        tested = [text for text in tested if _slots(text) <= bound.keys()]
        # Rows of equal values are looked up.
        for text in (text for text in tested if " = " in text):
            bound = _kept(text, bound, columns)
        pairs = len(bound[slot])
        for text in tested:
            bound = _kept(text, bound, columns)
        return bound, pairs

    def _in_time(self, bound: Bound, slot: int, rows: np.ndarray, time: np.ndarray) -> Bound:
        """What is bound, with each row of the slot in the order of the pattern and the window."""
        times, size = {each: time[at] for each, at in bound.items()}, self.window * TICKS
        earliest, latest = (each(list(times.values()), axis=0) for each in (np.min, np.max))
        after = np.max([latest - size - 1, *(times[s] for s in times if s < slot)], axis=0)
        before = np.min([earliest + size + 1, *(times[s] for s in times if s > slot)], axis=0)
        begin = np.searchsorted(time[rows], after, side="right")
        count = np.maximum(np.searchsorted(time[rows], before, side="left") - begin, 0)
        left = np.repeat(np.arange(len(begin)), count)
        right = np.arange(len(left)) - np.repeat(np.cumsum(count) - count - begin, count)
        return {**{each: at[left] for each, at in bound.items()}, slot: rows[right]}


def _kept(text: str, filled: Bound, columns: Mapping[str, np.ndarray]) -> Bound:
    values = {
        f"{variable}_{name}": columns[name][filled["abc".index(variable)]]
        for variable, name in set(re.findall(r"\b([abc])\.(\w)", text))
    }
    holds = value_of(re.sub(r"\b([abc])\.", r"\1_", text), values)
    return {slot: at[holds] for slot, at in filled.items()}


def _slots(text: str) -> set[int]:
    return {"abc".index(name) for name in re.findall(r"\b([abc])\.", text)}


# ---- tables and claims ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """`orders`: what each named order costs, by its name: over the rows that are in the state, and
    over those of the window alone."""

    work: str
    window: int
    totals: Mapping[str, Total]
    orders: Mapping[str, tuple[int, int]]

    @property
    def named(self) -> list[str]:
        return [name for name in self.totals if name not in AUTOS]

    @property
    def fewest(self) -> str:
        """The named plan with the fewest pairs."""
        return min(self.named, key=lambda name: self.totals[name].pairs)

    @property
    def fastest(self) -> str:
        return min(self.named, key=lambda name: self.totals[name].median)

    def pairs_ratio(self, name: str) -> float:
        return self.totals[name].pairs / max(self.totals[self.fewest].pairs, 1)

    def time_ratio(self, name: str) -> float:
        return self.totals[name].median / self.totals[self.fastest].median

    @property
    def named_ratios(self) -> tuple[float, float]:
        """The most that a named order took of what it costs."""
        ratios = [
            tuple(self.totals[name].pairs / max(each, 1) for each in pairs)
            for name, pairs in self.orders.items()
        ]
        return max(each[0] for each in ratios), max(each[1] for each in ratios)


def measured_cells(
    works: Mapping[str, StreamWork] = WORKS, measured: Mapping[int, int] = MEASURED
) -> list[Cell]:
    cells = []
    for title, work in works.items():
        for window, triggers in measured.items():
            print(f"{title}, a window of {window} triggers", file=sys.stderr, flush=True)
            totals = measure_cell(work, window, triggers)
            recorded = [Recorded(work, window, triggers, spare) for spare in (1, 0)]
            orders = {
                name: (recorded[0].pairs(order), recorded[1].pairs(order))
                for order in permutations(range(3))
                if (name := "→".join("abc"[slot] for slot in order)) in totals
            }
            cells.append(Cell(title, window, totals, orders))
            print(report(cells[-1:])[0].splitlines()[-1], file=sys.stderr, flush=True)
    return cells


def report(cells: Sequence[Cell]) -> tuple[str, list[Claim]]:
    head = ["pattern", "window", "fewest pairs", "pairs", "auto", "hybrid", "worst named"]
    head += ["fastest", "ms a trigger", "auto", "hybrid", "named / order", "/ window only"]
    rows = [
        [
            cell.work,
            cell.window,
            cell.fewest,
            cell.totals[cell.fewest].pairs,
            f"{cell.pairs_ratio('auto'):.2f}",
            f"{cell.pairs_ratio('hybrid'):.2f}",
            f"{max(cell.pairs_ratio(name) for name in cell.named):.1f}",
            cell.fastest,
            cell.totals[cell.fastest].median,
            f"{cell.time_ratio('auto'):.2f}",
            f"{cell.time_ratio('hybrid'):.2f}",
            *(f"{ratio:.2f}" for ratio in cell.named_ratios),
        ]
        for cell in cells
    ]
    return table(head, rows), [claim for cell in cells for claim in _claims(cell)]


def _claims(cell: Cell) -> list[Claim]:
    where, auto = f"{cell.work}, {cell.window} triggers", cell.totals["auto"]
    matches = {total.matches for total in cell.totals.values()}
    pairs, seconds = cell.pairs_ratio("auto"), cell.time_ratio("auto")
    best = cell.totals[cell.fastest]
    return [
        Claim(f"{where}: all give the same matches", len(matches) == 1, f"{auto.matches:,}"),
        Claim(f"{where}: auto is within {GOAL} of the fewest pairs", pairs <= GOAL,
              f"{pairs:.2f}; {', '.join(auto.swaps) or 'no swap'}"),
        Claim(f"{where}: auto is within {GOAL} of the least time", seconds <= GOAL,
              f"{seconds:.2f}: {auto.median:.3g} ms, {cell.fastest} {best.median:.3g} ms"),
        Claim(f"{where}: a named order is within {NAMED_GOAL} of its pairs",
              cell.named_ratios[0] <= NAMED_GOAL,
              f"{cell.named_ratios[0]:.3f}; of the window alone {cell.named_ratios[1]:.3f}"),
    ]  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = arguments.parse_args()
    cells = measured_cells({name: WORKS[name] for name in given.only})
    text, claims = report(cells)
    print(text)
    print("\n".join(claim.line() for claim in claims))
    if given.json:
        given.json.write_text(json.dumps([asdict(cell) for cell in cells]))


if __name__ == "__main__":
    main()
