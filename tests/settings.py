"""Random settings: everything that may change how long an answer takes, never the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from spark_cep.pattern import events
from spark_cep.udfs.program import Plan
from tests.local import EAGER, Setting

if TYPE_CHECKING:
    from tests.cases import Case


def plans(case: Case) -> st.SearchStrategy[Plan]:
    """Eager, lazy by counts, lazy in any order of the positive variables."""
    found = list(events(case.pattern.root))
    positive = [number for number, (_, negated) in enumerate(found) if not negated]
    ordered = st.permutations(positive).map(lambda order: Plan("lazy-chain", tuple(order)))
    return st.one_of(ordered, st.just(Plan("lazy-chain")), st.just(EAGER))


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
