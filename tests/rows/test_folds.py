"""Folds along a path that grows, goes back and takes other variables, each value against that of
all its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.expressions import BOOL, Call
from spark_cep.udfs.rows.folds import FoldedPath, RunningFold
from spark_cep.udfs.rows.table import RowTable
from spark_cep.udfs.values.tally import ErrorTally
from tests.random_cases import random_cases
from tests.rows.advances import table
from tests.rows.folded import folds
from tests.rows.programs import VARIABLES, program, random_row, v
from tests.rows.reference import Seen, aggregate

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import Aggregate

EXAMPLES = 1_000
ROWS = 7


@st.composite
def paths(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Each is the one before, cut, and with other rows at its end."""
    found: list[tuple[int, ...]] = []
    path: tuple[int, ...] = ()
    for _ in range(draw(st.integers(1, 12))):
        kept = len(path) - draw(st.sampled_from([0, 0, 1, 1, 2, 5]))
        added = draw(st.lists(st.integers(0, VARIABLES - 1), min_size=1, max_size=2))
        path = (*path[: max(kept, 0)], *added)[: ROWS - 1]
        found.append(path)
    return found


def test_a_fold_has_the_value_of_its_rows_whatever_path_came_before() -> None:
    @random_cases(EXAMPLES)
    @given(folds, st.lists(random_row, min_size=ROWS, max_size=ROWS), paths(), st.data())
    def compare(leaf: Aggregate, drawn: Any, tested: Any, data: st.DataObject) -> None:
        rows = [(1, time, *row[2:]) for time, row in enumerate(drawn)]
        case = program(v(0), {0: Call("is_null", (leaf,), BOOL)})
        running = RunningFold(leaf, RowTable(case, table(rows)), ErrorTally())
        begin = 0
        for path in tested:
            begin = data.draw(st.sampled_from([begin, begin, begin, 1 - begin]))
            labels = np.array(path[: ROWS - begin])
            found = running.value(FoldedPath(begin, labels, 1))
            is_null = found.valid is not None and not found.valid.all()
            value = None if is_null else found.values.tolist()[0]
            seen = Seen(
                rows, begin, tuple((each, False) for each in path), begin + len(path) - 1, 1
            )
            wanted = aggregate(leaf, seen)
            wanted = tuple(wanted) if isinstance(wanted, list) else wanted
            assert repr(value) == repr(wanted) or value == wanted

    compare()
