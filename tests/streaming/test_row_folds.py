"""Folds of measures: over any triggers those of one, each equal to a fold of the values alone."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import replace
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING, Any

from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Call, Constant, Type
from spark_cep.udfs.row_program import Aggregate, RowRead
from tests.random_cases import random_cases
from tests.rows.advances import by_key, cut, in_order
from tests.rows.programs import STRING, S, X, answer, cases, sets
from tests.streaming.test_row_triggers import streamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_cep.udfs.expressions import Expression

EXAMPLES = 120
_STRUCT = Type("other", sql="struct")


def known(values: list[Any]) -> list[Any]:
    return [each for each in values if each is not None]


def median(values: list[Any]) -> Any:
    return float(statistics.median(known(values))) if known(values) else None


def bits(values: list[Any]) -> Any:
    return reduce(xor, known(values)) if known(values) else None


def most(values: list[Any]) -> Any:
    counts = Counter(known(values))
    return min(counts, key=lambda each: (-counts[each], each)) if counts else None


def total(values: list[Any]) -> Any:
    found = sum(known(values))
    return found if known(values) and -(1 << 63) <= found < 1 << 63 else None


def spread(values: list[Any]) -> Any:
    """The squares of regr_sxx, by the definition."""
    if not known(values):
        return None
    middle = sum(known(values)) / len(known(values))
    return sum((each - middle) ** 2 for each in known(values))


def of(*arguments: Expression) -> dict[str, Any]:
    return {"column": None, "argument": Call("struct", arguments, _STRUCT)}


X_READ = RowRead("current", X, BIGINT)
OPTIONS = (Constant(0.5, DOUBLE), Constant(False, BOOL), Constant(True, BOOL))
FOLDS: list[tuple[int, dict[str, Any], Callable[[list[Any]], Any]]] = [
    (X, {"name": "percentile", "type": DOUBLE, **of(X_READ, *OPTIONS)}, median),
    (X, {"name": "bit_xor", "type": BIGINT, "column": X}, bits),
    (S, {"name": "mode", "type": STRING,
         **of(RowRead("current", S, STRING), Constant(False, BOOL))}, most),
    (X, {"name": "try_sum", "type": BIGINT, "column": X}, total),
    (X, {"name": "covar_pop", "type": DOUBLE, **of(X_READ, X_READ)},
     lambda values: None if spread(values) is None else spread(values) / len(known(values))),
]  # fmt: skip


def measures(data: st.DataObject) -> tuple[Aggregate, ...]:
    """Pairs of a list and a fold of the same rows."""
    found: list[Aggregate] = []
    for column, fold, _ in FOLDS:
        rows = {"variables": data.draw(sets), "final": data.draw(st.booleans())}
        type_ = STRING if column == S else BIGINT
        found.append(Aggregate("list", column, type_, **rows))
        found.append(Aggregate(**{"argument": None, **fold, **rows}))
    return tuple(found)


def is_close(found: Any, wanted: Any) -> bool:
    if isinstance(found, float) and isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return bool(found == wanted)


def test_folds_are_those_of_the_values_over_any_triggers() -> None:
    seen = Counter[int]()

    @random_cases(EXAMPLES)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        case, rows = data.draw(cases())
        case = replace(case, measures=measures(data))
        steps = data.draw(cut(rows))
        try:
            batch = by_key(answer(case, in_order(steps)))
        except (WorkerError, CepError):
            assume(False)
        for row in (row for rows in batch.values() for row in rows):
            values = row[-2 * len(FOLDS) :]
            for number, (_, fold, expected) in enumerate(FOLDS):
                listed, found = values[2 * number : 2 * number + 2]
                assert is_close(found, expected(listed or [])), (fold["name"], listed, found)
                seen[number] += found is not None
        for key, given_ in streamed(case, steps, frozenset({1, 2})).items():
            assert repr(batch[key][: len(given_)]) == repr(given_)

    compare()
    assert all(seen[number] > EXAMPLES // 4 for number in range(len(FOLDS))), seen
