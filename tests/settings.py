"""Random settings: everything that may change how long an answer takes, never the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from spark_cep.events.branches import build_branches
from spark_cep.pattern import iter_events
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan, Plan
from tests.local import Setting

if TYPE_CHECKING:
    from spark_cep.udfs.program import Branch, PlanKind, Shape
    from tests.cases import Case


@st.composite
def plans(draw: st.DrawFn, case: Case) -> Plan:
    """Every kind of plan; where a shape is asked for, any shape over each branch's slots."""
    kind: PlanKind = draw(st.sampled_from(["lazy-chain", "tree", "zstream", "hybrid", "eager"]))
    if kind == "tree" or draw(st.integers(0, 4)) == 0:
        return Plan("lazy-chain" if kind == "hybrid" else kind)
    branches, fixed = _branches(case), draw(st.booleans())
    if kind == "eager":
        return Plan(kind, tuple(_keeping_prefixes(branch) for branch in branches))
    if kind == "lazy-chain":
        orders = [draw(st.permutations(range(len(branch.slots)))) for branch in branches]
        plans = [BranchPlan(left_deep_shape(order)) for order in orders]
    elif kind == "zstream":
        shapes = [draw(shapes_of(tuple(range(len(branch.slots))))) for branch in branches]
        plans = [BranchPlan(shape) for shape in shapes]
    else:
        plans = [draw(_hybrids(branch)) for branch in branches]
    return Plan(kind, tuple(replace(plan, fixed=fixed) for plan in plans))


def _keeping_prefixes(branch: Branch) -> BranchPlan:
    """The order of the pattern, as on a stream."""
    slots = range(len(branch.slots))
    return BranchPlan(left_deep_shape(slots), tuple(slots[:-1]), fixed=True)


@st.composite
def shapes_of(draw: st.DrawFn, slots: tuple[int, ...]) -> Shape:
    """Any binary tree over the slots, in any order."""
    parts: list[Shape] = list(draw(st.permutations(slots)))
    while len(parts) > 1:
        left = parts.pop(draw(st.integers(0, len(parts) - 1)))
        right = parts.pop(draw(st.integers(0, len(parts) - 1)))
        parts.append((left, right))
    return parts[0]


@st.composite
def _hybrids(draw: st.DrawFn, branch: Branch) -> BranchPlan:
    """An eager group of some slots, merged with the others in any tree."""
    eager = tuple(
        slot for slot in range(len(branch.slots))
        if not branch.slots[slot].is_group and draw(st.booleans())
    )  # fmt: skip
    if len(eager) < 2:
        return BranchPlan(draw(shapes_of(tuple(range(len(branch.slots))))), eager)
    # The group stands for one leaf of the merge.
    merge = draw(shapes_of((-1, *(s for s in range(len(branch.slots)) if s not in eager))))
    return BranchPlan(_with_group(merge, left_deep_shape(eager)), eager)


def _with_group(shape: Shape, group: Shape) -> Shape:
    if isinstance(shape, int):
        return group if shape == -1 else shape
    return _with_group(shape[0], group), _with_group(shape[1], group)


def _branches(case: Case) -> tuple[Branch, ...]:
    found = list(iter_events(case.pattern.root))
    index = {event.name: number for number, (event, _) in enumerate(found)}
    window = case.pattern.window
    _, branches = build_branches(
        case.pattern.root, index, has_time_window=window is not None and window.events is None
    )
    return branches


def blocks() -> st.SearchStrategy[int]:
    """From blocks that hold a pair or two up to those that hold everything."""
    return st.sampled_from([3, 64, 1, 1 << 19])


@st.composite
def whole(draw: st.DrawFn, case: Case) -> Setting:
    """One advance over all rows."""
    return Setting(draw(plans(case)), block_pairs=draw(blocks()), ships_all=draw(st.booleans()))


@st.composite
def in_advances(draw: st.DrawFn, case: Case) -> Setting:
    """One to four advances; rows come when the horizon needs them, or earlier."""
    horizons = draw(st.lists(st.integers(-2, 10), min_size=1, max_size=3).map(sorted))
    early = draw(st.lists(st.sampled_from([0, 0, 1, 3]), max_size=len(case.rows)))
    return Setting(
        draw(plans(case)),
        draw(plans(case)),
        draw(blocks()),
        horizons=tuple(horizons),
        early=tuple(early),
        ships_all=draw(st.booleans()),
    )


@st.composite
def in_slices(draw: st.DrawFn, case: Case) -> Setting:
    """Time cut into slices, also shorter than the window."""
    length = draw(st.sampled_from([3, 1, 2, 5, 12]))
    return Setting(draw(plans(case)), slice_length=length, ships_all=draw(st.booleans()))
