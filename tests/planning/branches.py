"""Branches, statistics and shapes for the planner's tests: named by letters, one slot each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from spark_cep.udfs.costs import OperationCosts
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Cell
from spark_cep.udfs.planning.cost_model import BranchModel
from spark_cep.udfs.program import Branch, Condition, Estimates, Negation, Slot, Variable

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from spark_cep.udfs.expressions import CellReading
    from spark_cep.udfs.program import Shape

NAMES = "abcdefghijkl"
EVEN = OperationCosts(pair=1.0, result=1.0, insert=1.0)


def sequence(size: int) -> frozenset[tuple[int, int]]:
    return frozenset((i, j) for i in range(size) for j in range(i + 1, size))


def compared(left: int, right: int, name: str = "<", reading: CellReading = "each") -> Condition:
    """`left.x < right.x`, with the right side read as given."""
    cells = Cell(left, 0, BIGINT), Cell(right, 0, BIGINT, reading)
    text = f"{NAMES[left]}.x {name} {NAMES[right]}.x"
    return Condition(Call(name, cells, BOOL), text, frozenset({left, right}))


def model(
    size: int,
    conditions: Sequence[Condition] = (),
    order: frozenset[tuple[int, int]] | None = None,
    *,
    slots: Mapping[int, Slot] | None = None,
    negations: Sequence[Negation] = (),
) -> BranchModel:
    """A branch over the first letters; without an order a sequence. Negated variables are those
    after the slots."""
    made = tuple((slots or {}).get(i, Slot((i,))) for i in range(size))
    order = sequence(size) if order is None else order
    filled = {v for slot in made for v in slot.variables}
    variables = [Variable(name, negated=v not in filled) for v, name in enumerate(NAMES)]
    return BranchModel(Branch(made, order, tuple(negations)), conditions, variables)


def listed(variable: int, low: int = 1, high: int | None = None) -> Slot:
    return Slot((variable,), low, high, is_list=True)


def estimates(rates: Sequence[float], *selectivities: float) -> Estimates:
    return Estimates(dict(enumerate(rates)), dict(enumerate(selectivities)))


# ---- random ones -------------------------------------------------------------------------------

# Small whole numbers make ties likely, and ties are where planners and invariants disagree.
RATES = st.one_of(st.integers(0, 6).map(float), st.floats(0.01, 100))
SELECTIVITIES = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0.001, 1))


@st.composite
def orders(draw: DrawFn, size: int) -> frozenset[tuple[int, int]]:
    """Any partial order in which smaller numbers come first."""
    chosen = {pair for pair in sorted(sequence(size)) if draw(st.booleans())}
    for middle in range(size):
        chosen |= {(i, j) for i, m in chosen for n, j in chosen if m == n == middle}
    return frozenset(chosen)


@st.composite
def models(draw: DrawFn, largest: int = 5) -> BranchModel:
    """Sequences, conjunctions and anything between, with a list or a negation now and then."""
    size = draw(st.integers(1, largest))
    pairs = sorted(sequence(size))
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=5)) if pairs else []
    conditions = [compared(i, j, draw(st.sampled_from(["<", "="]))) for i, j in chosen]
    order = draw(st.sampled_from([sequence(size), frozenset[tuple[int, int]]()]) | orders(size))
    repeated = draw(st.sampled_from([None, None, None, *range(size)]))
    slots = {} if repeated is None else {repeated: listed(repeated, 1, draw(st.integers(1, 3)))}
    gaps = draw(st.lists(st.sampled_from(sorted(order)), max_size=1)) if order else []
    within = draw(st.sampled_from([sequence(2), frozenset[tuple[int, int]]()]))
    group = Branch((Slot((size,)), Slot((size + 1,))), within)
    negated = draw(st.sampled_from([None, group]))
    negations = [Negation(size, "between", after=(i,), before=(j,), group=negated) for i, j in gaps]
    conditions += [compared(i, size) for i, _ in gaps]
    if negations and negated is not None:
        conditions.append(compared(size, size + 1))
    return model(size, conditions, order, slots=slots, negations=negations)


@st.composite
def statistics(draw: DrawFn, branch: BranchModel) -> Estimates:
    """Of every slot and of what is negated."""
    rates = draw(st.lists(RATES, min_size=branch.size + 1, max_size=branch.size + 1))
    count = len(branch.texts)
    shares = draw(st.lists(SELECTIVITIES, min_size=count, max_size=count))
    return estimates(rates, *shares)


def trees(slots: Sequence[int]) -> Iterator[Shape]:
    """Every tree over the slots in their order, every join both ways round."""
    if len(slots) == 1:
        yield slots[0]
    for cut in range(1, len(slots)):
        for first in trees(slots[:cut]):
            for second in trees(slots[cut:]):
                yield first, second
                yield second, first
