"""The aggregates of row patterns, and how each is computed.

    engine    by the engine, in DEFINE and MEASURES
    of one    some are another aggregate of a changed argument: count_if(c) counts where c is TRUE
    of a row  any_value, first_value and last_value read one row, as FIRST and LAST do
    of lists  in MEASURES only: the engine gives the list of the rows' values, Spark folds it

Each is Spark's aggregate of the same name over the rows of the match, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spark_cep.compiling.list_folds import folding
from spark_cep.udfs.expressions import Type

EngineName = Literal["count", "sum", "avg", "min", "max"]

# What reads one row.
NAVIGATIONS: Mapping[str, Literal["first", "last"]] = {
    "first": "first",
    "last": "last",
    "any_value": "first",
    "first_value": "first",
    "last_value": "last",
}


@dataclass(frozen=True)
class Aggregation:
    """`engine`: the engine's name for it; None: only a fold of a list. `argument`: what the engine
    aggregates, with {} for the user's. `arguments`: fewest and most."""

    engine: EngineName | None = None
    argument: str = "{}"
    arguments: tuple[int, int | None] = (1, 1)


_OF_LISTS = (
    "collect_list", "array_agg", "collect_set", "stddev", "stddev_samp", "stddev_pop", "std",
    "variance", "var_samp", "var_pop",
)  # fmt: skip
AGGREGATES: Mapping[str, Aggregation] = {
    "count": Aggregation("count", arguments=(0, None)),
    "sum": Aggregation("sum"),
    "avg": Aggregation("avg"),
    "mean": Aggregation("avg"),
    "min": Aggregation("min"),
    "max": Aggregation("max"),
    "count_if": Aggregation("count", "CASE WHEN {} THEN 1 END"),
    **dict.fromkeys(("bool_or", "some"), Aggregation("max", "CAST({} AS BOOLEAN)")),
    **dict.fromkeys(("bool_and", "every"), Aggregation("min", "CAST({} AS BOOLEAN)")),
    **dict.fromkeys(_OF_LISTS, Aggregation()),
    **dict.fromkeys(("max_by", "min_by"), Aggregation(arguments=(2, 2))),
    **dict.fromkeys(("listagg", "string_agg"), Aggregation(arguments=(1, 2))),
}
HINT = (
    "other rows are seen through PREV, NEXT, FIRST, LAST and the aggregates count, sum, avg, min, "
    "max, count_if, bool_and, bool_or and any_value; in measures also collect_list, collect_set, "
    "listagg, max_by, min_by, stddev and variance"
)


def folded_list(name: str, array: str, type_: Type | None, given: str | None = None) -> str:
    """SQL for the aggregate `name` of an array. `type_`: of its elements, where the engine's
    aggregates are asked for. `given`: the separator of listagg.

    >>> folded_list("collect_list", "m0", None)
    'array_compact(m0)'
    """
    known = f"array_compact({array})"
    if name in {"collect_list", "array_agg"}:
        return known
    if name == "collect_set":
        return f"array_distinct({known})"
    if name in {"listagg", "string_agg"}:
        joined = f"array_join({known}, {given or chr(39) * 2})"
        return f"CASE WHEN array_size({known}) > 0 THEN {joined} END"
    if name in {"max_by", "min_by"}:
        return _furthest(array, ">" if name == "max_by" else "<")
    if name in _MOMENTS:
        return _MOMENTS[name].format(_moments(known))
    engine = AGGREGATES[name].engine
    assert engine is not None
    return folding(engine, array, type_ or Type("other"))


def _furthest(array: str, better: str) -> str:
    """The `x` of the element whose `y` is largest or smallest, the last of equal ones as Spark has
    it; elements are structs x, y. Sorting keeps the order of equal ones."""
    known = f"reverse(filter({array}, __cep_v -> __cep_v.y IS NOT NULL))"
    return (
        f"try_element_at(array_sort({known}, "
        f"(__cep_l, __cep_r) -> CASE WHEN __cep_l.y {better} __cep_r.y THEN -1 "
        f"WHEN __cep_r.y {better} __cep_l.y THEN 1 ELSE 0 END), 1).x"
    )


def _moments(array: str) -> str:
    """Count, mean and sum of squared distances from it, step by step as Spark's own aggregates
    compute them, so that rounding is the same."""
    delta = "(CAST(__cep_v AS DOUBLE) - __cep_s.a)"
    mean = f"(__cep_s.a + {delta} / (__cep_s.n + 1D))"
    spread = f"__cep_s.m + {delta} * ({delta} - {delta} / (__cep_s.n + 1D))"
    return (
        f"aggregate({array}, named_struct('n', 0D, 'a', 0D, 'm', 0D), (__cep_s, __cep_v) -> "
        f"named_struct('n', __cep_s.n + 1D, 'a', {mean}, 'm', {spread}), "
    )


_SAMPLE = "__cep_s -> CASE WHEN __cep_s.n > 1 THEN {} END)"
_POPULATION = "__cep_s -> CASE WHEN __cep_s.n > 0 THEN {} END)"
_MOMENTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("variance", "var_samp"), "{}" + _SAMPLE.format("__cep_s.m / (__cep_s.n - 1D)")
    ),
    **dict.fromkeys(
        ("stddev", "stddev_samp", "std"),
        "{}" + _SAMPLE.format("sqrt(__cep_s.m / (__cep_s.n - 1D))"),
    ),
    "var_pop": "{}" + _POPULATION.format("__cep_s.m / __cep_s.n"),
    "stddev_pop": "{}" + _POPULATION.format("sqrt(__cep_s.m / __cep_s.n)"),
}
