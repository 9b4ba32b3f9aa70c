"""Where a bucket is cut into chunks, between which its plan may change.

The whole bucket is there, so its rates are known before anything is matched. It is cut where they
change and another plan is expected to save more than the cut costs: rows within a window of a cut
are matched twice, and an advance has a fixed cost. Every cut gives the same matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.table import column_to_numpy, count_candidates_in
from spark_cep.udfs.planning.dynamic import cheapest_chain
from spark_cep.udfs.planning.planner import branch_models
from spark_cep.udfs.program import Estimates
from spark_cep.udfs.values.arrow_values import to_single_array
from spark_cep.udfs.values.codes import key_codes

if TYPE_CHECKING:
    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.program import Program, Shape


# Without a change of rates, the first chunk ends here, so that selectivities are measured early,
# and each later one is twice as long: a long bucket costs few advances.
CHUNK_ROWS = 1 << 19
# The fixed cost of an advance, with the choice of its plan.
ADVANCE_SECONDS = 1e-3
# Fewer rows are matched in less time than a profile takes.
MIN_PROFILE_ROWS = 1 << 10
# A profile has the rates in so many stretches of the bucket; it counts about so many rows, in a
# millisecond, and looks at so many windows, and rows of each, to see how many keys are active in
# one.
PROFILE_STRETCHES = 64
PROFILE_ROWS = 1 << 14
KEY_WINDOWS = 4
KEY_ROWS = 1 << 12
# Where rates hold still, the log-likelihood of 64 stretches gains this much from a cut once in
# some thousand profiles; per variable one more.
MIN_LIKELIHOOD_GAIN = 10.0
# Plans are made for the segments of a profile, the most different ones first, as long as that
# takes less than this share of the expected work: at least so much for each row. For n slots, a
# plan and what it costs in every segment take about n^2 times `SECONDS_PER_PLAN`.
MAX_SEGMENTS = 10
PLANNING_SHARE = 0.1
ROW_SECONDS = 2e-7
SECONDS_PER_PLAN = 2e-5
# A cut is made for a gain beyond the errors of the cost model only.
CLEAR_GAIN = 0.95

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Chunk:
    """`horizon`: the event time up to which the chunk is complete; None: to the end of the input.
    `fresh`: independent of the chunks before. `has_changed`: its rates differ from those of the
    chunk before, or it is the first and may differ from the sample."""

    table: pa.Table
    horizon: int | float | None = None
    fresh: bool = False
    has_changed: bool = False


def cut_chunks(program: Program, table: pa.Table) -> Iterator[Chunk]:
    """The bucket in one chunk, or in several between which its plan may change.

    Time slices are independent, and a chunk consists of whole slices, in order of time. Otherwise
    chunks are cut by time, at the same times for all keys."""
    adapts = program.adaptation.kind != "off" and program.plan.kind in {"lazy-chain", "zstream"}
    is_any = program.strategy == "any" and program.consumption == "reuse"
    if not adapts or not is_any or not program.window or table.num_rows < MIN_PROFILE_ROWS:
        yield Chunk(table)
        return
    is_sliced = program.home is not None
    axis = _slice_axis(program, table) if is_sliced else _time_axis(program, table)
    profile = _profile(program, table, axis) if axis else None
    plans, cuts = _cuts(program, table.num_rows, profile)
    if axis is None or not cuts:
        yield Chunk(table, has_changed=plans > 0)
        return
    ends = axis.ends[[place for place, _ in cuts]]
    changed = [plans > 0, *(has_changed for _, has_changed in cuts)]
    for number, has_changed in enumerate(changed):
        rows = pa.array(np.flatnonzero(_is_in_chunk(axis.values, ends, number)))
        if len(rows):
            is_last = is_sliced or number == len(cuts)
            horizon = None if is_last else ends[number].item()
            yield Chunk(table.take(rows), horizon, fresh=is_sliced, has_changed=has_changed)


def _is_in_chunk(values: Array, ends: Array, number: int) -> Array:
    """Flags of the values after the end before this chunk and up to its own."""
    found = np.ones(len(values), dtype=np.bool_)
    if number > 0:
        found &= values > ends[number - 1]
    if number < len(ends):
        found &= values <= ends[number]
    return found


# ---- stretches of a bucket ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    """What a bucket is cut along: `values` has the event time or the slice of each row, and each
    stretch but the last ends at one of `ends`, inclusively. `lengths`: of the stretches, in windows
    of a key, one after the other."""

    values: Array
    ends: Array
    lengths: Array


def _time_axis(program: Program, table: pa.Table) -> _Axis | None:
    time = _numbers(table, program.orders[0].column)
    if time is None:
        return None
    windows = _count_windows(program, table, float(np.ptp(time)))
    # A stretch is one window long at least: rows within a window of a cut are matched twice.
    stretches = min(PROFILE_STRETCHES, int(windows))
    ends = _stretch_ends(time, stretches)
    return None if ends is None else _Axis(time, ends, np.full(stretches, windows / stretches))


def _slice_axis(program: Program, table: pa.Table) -> _Axis | None:
    slices = _numbers(table, program.keys[-1])
    time = _numbers(table, program.orders[0].column)
    if slices is None or time is None:
        return None
    count = int(np.ptp(slices)) + 1
    ends = _stretch_ends(slices, min(PROFILE_STRETCHES, count))
    if ends is None:
        return None
    # A task need not have every slice.
    present = np.unique(slices[:: max(1, table.num_rows // PROFILE_ROWS)])
    in_stretch = np.bincount(np.searchsorted(ends, present), minlength=len(ends) + 1)
    windows = _count_windows(program, table, float(np.ptp(time))) / count
    return _Axis(slices, ends, in_stretch * windows)


def _stretch_ends(values: Array, stretches: int) -> Array | None:
    first, span = values.min(), np.ptp(values)
    if stretches < 2 or not span > 0 or not np.isfinite(span):
        return None
    ends: Array = first + (span * (np.arange(1, stretches) / stretches)).astype(values.dtype)
    return ends


def _numbers(table: pa.Table, place: int) -> Array | None:
    """A column of numbers or times. A row without one, which the engine ignores, gets the
    earliest."""
    column = to_single_array(table.column(place))
    values = column_to_numpy(column)
    if values.dtype.kind not in "if":
        return None
    if not column.null_count and (values.dtype.kind == "i" or not np.isnan(values).any()):
        return values
    known = column.is_valid().to_numpy(zero_copy_only=False) & ~np.isnan(values)
    return np.where(known, values, values[known].min()) if known.any() else None


def _count_windows(program: Program, table: pa.Table, span: float) -> float:
    """Windows of a key, one after the other."""
    assert program.window is not None
    if not program.window.size or not np.isfinite(span):
        return 0.0
    if program.window.kind == "time":
        return span / program.window.size
    codes = key_codes([table.column(key) for key in program.keys]) if program.keys else ()
    return float(table.num_rows / (program.window.size * max(1, len(np.unique(codes)))))


# ---- the profile of a bucket -------------------------------------------------------------------


@dataclass(frozen=True)
class _Profile:
    """`counts`: candidates by variable and stretch, of the rows that were counted, one in `step`.
    Of each stretch: `rows`, `length` in windows, and `windows` of all keys."""

    counts: Array
    step: int
    rows: Array
    lengths: Array
    windows: Array

    def estimates(self, start: int, stop: int, program: Program) -> Estimates:
        """The rates of some stretches, with the selectivities of the sample."""
        windows = max(float(self.windows[start:stop].sum()), 1e-9)
        totals = self.counts[:, start:stop].sum(axis=1) * self.step
        known = program.estimates.selectivities if program.estimates else {}
        return Estimates(dict(enumerate((totals / windows).tolist())), known, windows)


def _profile(program: Program, table: pa.Table, axis: _Axis) -> _Profile:
    assert program.window is not None
    step = max(1, table.num_rows // PROFILE_ROWS)
    count = len(axis.ends) + 1
    place = np.searchsorted(axis.ends, axis.values[::step], side="left")
    mask = column_to_numpy(table.column(program.mask))[::step]
    if program.home is not None:
        home = table.column(program.home).to_numpy()[::step].astype(bool)
        mask = np.where(home, mask, 0)
    counts = count_candidates_in(place, count, program, mask)
    rows = np.bincount(place, minlength=count) * step
    if program.window.kind == "events":
        windows = rows / program.window.size
    else:
        windows = axis.lengths * _active_keys(program, table)
    return _Profile(counts, step, rows, axis.lengths, windows)


def _active_keys(program: Program, table: pa.Table) -> float:
    """The keys that have rows in the same window, as far as they share its rows evenly."""
    keys = program.keys if program.home is None else program.keys[:-1]
    time = _numbers(table, program.orders[0].column)
    if not keys or time is None:
        return 1.0
    assert program.window is not None
    active = []
    is_sorted = bool((time[1:] >= time[:-1]).all())
    for row in np.linspace(0, len(time) - 1, KEY_WINDOWS + 2).astype(np.int64)[1:-1]:
        if is_sorted:
            low, high = np.searchsorted(time, (time[row], time[row] + program.window.size))
            near = np.arange(low, min(high, low + KEY_ROWS))
        else:
            near = np.flatnonzero((time >= time[row]) & (time - time[row] < program.window.size))
        rows = pa.array(near[:KEY_ROWS])
        codes = key_codes([table.column(key).take(rows) for key in keys])
        of_key = np.unique(codes, return_counts=True)[1]
        active.append(of_key.sum() ** 2 / (of_key**2).sum())
    return float(np.mean(active))


# ---- cuts --------------------------------------------------------------------------------------


def _cuts(
    program: Program, size: int, profile: _Profile | None
) -> tuple[int, list[tuple[int, bool]]]:
    """How many plans can be afforded, and the stretches after which a chunk ends: where another
    plan pays, which is told from where the chunk is large enough."""
    models = branch_models(program)
    splits = [] if profile is None else _splits(profile.counts, profile.lengths, MAX_SEGMENTS)
    work = ROW_SECONDS * size
    if profile is not None:
        work = max(work, _expected_seconds(program, models, profile, splits))
    plans = int(PLANNING_SHARE * work / (SECONDS_PER_PLAN * sum(m.size**2 for m in models)))
    if profile is None:
        return plans, []
    changes = set(_paying_cuts(program, models, profile, splits[: max(0, plans - 1)]))
    cuts, begun, most = [], 0, CHUNK_ROWS
    for place in range(len(profile.rows) - 1):
        has_changed = place in changes
        if has_changed or profile.rows[begun : place + 1].sum() >= most:
            cuts.append((place, has_changed))
            most = CHUNK_ROWS if has_changed else 2 * most
            begun = place + 1
    return plans, cuts


def _paying_cuts(
    program: Program, models: Sequence[BranchModel], profile: _Profile, splits: Sequence[int]
) -> list[int]:
    """The cuts between which different plans are expected to take less time, cuts included."""
    if not splits:
        return []
    bounds = [0, *sorted(place + 1 for place in splits), len(profile.rows)]
    plans = _best_plans(_segment_costs(program, models, profile, bounds))
    ends = zip(bounds[1:], plans, plans[1:], strict=False)
    return [bound - 1 for bound, before, after in ends if before != after]


def _splits(counts: Array, lengths: Array, limit: int) -> list[int]:
    """The stretches after which rates change, the largest change first: each splits a segment in
    two where that makes the counts most likely, if they arrive at random."""
    total = np.concatenate([np.zeros((len(counts), 1)), counts.cumsum(axis=1)], axis=1)
    until = np.concatenate([[0.0], lengths.cumsum()])
    least = MIN_LIKELIHOOD_GAIN + len(counts)
    found: list[int] = []
    waiting: list[tuple[float, int, int, int]] = []

    def likelihood(start: Array, stop: Array) -> Array:
        arrived = total[:, stop] - total[:, start]
        rates = np.maximum(arrived, 1e-9) / np.maximum(until[stop] - until[start], 1e-9)
        summed: Array = (arrived * np.log(rates)).sum(axis=0)
        return summed

    def consider(start: int, stop: int) -> None:
        middle = np.arange(start + 1, stop)
        if not len(middle):
            return
        first, last = np.array([start]), np.array([stop])
        gain = likelihood(first, middle) + likelihood(middle, last) - likelihood(first, last)
        best = int(gain.argmax())
        if gain[best] > least:
            heappush(waiting, (-float(gain[best]), start, int(middle[best]), stop))

    consider(0, counts.shape[1])
    while waiting and len(found) < limit - 1:
        _, start, middle, stop = heappop(waiting)
        found.append(middle - 1)
        consider(start, middle)
        consider(middle, stop)
    return found


# ---- weighing ----------------------------------------------------------------------------------


Shapes = tuple["Shape", ...]


def _seconds(
    program: Program, models: Sequence[BranchModel], shapes: Shapes, estimates: Estimates
) -> float:
    costs = program.costs or TYPICAL_COSTS
    return estimates.windows * sum(
        model.estimator(estimates).times(costs).plan(shape)
        for model, shape in zip(models, shapes, strict=True)
    )


def _shipped_shapes(program: Program) -> Shapes | None:
    """The plan that the driver chose, if it chose one."""
    shapes = [each.shape for each in program.plan.branches or ()]
    known = tuple(shape for shape in shapes if shape is not None)
    return known if known and len(known) == len(shapes) else None


def _expected_seconds(
    program: Program, models: Sequence[BranchModel], profile: _Profile, splits: Sequence[int]
) -> float:
    """What matching takes with the plan that was chosen from the sample."""
    shapes = _shipped_shapes(program)
    if shapes is None:
        return 0.0
    bounds = [0, *sorted(place + 1 for place in splits), len(profile.rows)]
    return sum(
        _seconds(program, models, shapes, profile.estimates(start, stop, program))
        for start, stop in pairwise(bounds)
    )


@dataclass(frozen=True)
class _SegmentCosts:
    """`seconds` of each segment with each plan, the one that is best on average first. `again`: of
    what a cut before the segment matches a second time, with the plan after it: a window of rows,
    half of them from either side."""

    seconds: Array
    again: Array


def _segment_costs(
    program: Program, models: Sequence[BranchModel], profile: _Profile, bounds: Sequence[int]
) -> _SegmentCosts:
    """The costs of the plan that is best on average and of the best plan of each segment.

    The cheapest orders stand for the plans of every kind: what they gain, trees gain too."""
    costs = program.costs or TYPICAL_COSTS
    segments = list(pairwise(bounds))
    known = [profile.estimates(start, stop, program) for start, stop in segments]
    whole = profile.estimates(0, bounds[-1], program)
    plans: dict[Shapes, None] = {}
    for estimates in (whole, *known):
        made = tuple(cheapest_chain(model, estimates, costs) for model in models)
        plans.setdefault(made)
    seconds = np.array(
        [[_seconds(program, models, shapes, each) for shapes in plans] for each in known]
    )
    if program.home is not None:
        return _SegmentCosts(seconds, np.zeros_like(seconds))
    lengths = np.array([profile.lengths[start:stop].sum() for start, stop in segments])
    window = seconds / lengths[:, np.newaxis]
    return _SegmentCosts(seconds, (window + np.roll(window, 1, axis=0)) / 2)


def _best_plans(costs: _SegmentCosts) -> list[int]:
    """The plan of each segment such that all of them, and the cuts between different ones, take
    the least time."""
    seconds = costs.seconds
    best, came = seconds[0], []
    for now, again in zip(seconds[1:], costs.again[1:], strict=True):
        cheapest = int(best.argmin())
        changed = best[cheapest] + ADVANCE_SECONDS + again
        came.append(np.where(changed < best, cheapest, np.arange(len(best))))
        best = np.minimum(best, changed) + now
    plans = [int(best.argmin())]
    for places in reversed(came):
        plans.insert(0, int(places[plans[0]]))
    if best.min() > CLEAR_GAIN * seconds[:, 0].sum():
        return [0] * len(seconds)
    return plans
