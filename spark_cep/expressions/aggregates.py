"""The aggregates of patterns, and how each is computed.

The engine computes count, sum, avg, min and max; count_if, bool_or and bool_and are these over a
rewritten argument. any_value, first_value and last_value read one row, as FIRST and LAST do. For
others, in MEASURES only, the engine returns the list of values: Spark folds the array, or computes
its own aggregate over the exploded rows (rows/spark_aggregates.py). Each equals Spark's aggregate
of the same name over the rows of the match in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_cep.expressions.operands import InexactError
from spark_cep.expressions.types import MAX_PRECISION, aggregate_type, name_of
from spark_cep.udfs.expressions import DOUBLE, CellReading, Type

EngineAggregate = Literal["count", "sum", "avg", "min", "max"]

# Functions that read one row.
NAVIGATIONS: Mapping[str, Literal["first", "last"]] = {
    "first": "first",
    "last": "last",
    "any_value": "first",
    "first_value": "first",
    "last_value": "last",
}


@dataclass(frozen=True)
class AggregateRule:
    """`engine`: the engine's aggregate; None: a fold of a list. `argument`: what is aggregated,
    with {} for the user's argument. `arguments`: minimum and maximum number of arguments.
    `by_spark`: only Spark computes it, and checks its arguments."""

    engine: EngineAggregate | None = None
    argument: str = "{}"
    arguments: tuple[int, int | None] = (1, 1)
    by_spark: bool = False


_OF_LISTS = (
    "collect_list", "array_agg", "collect_set", "stddev", "stddev_samp", "stddev_pop", "std",
    "variance", "var_samp", "var_pop",
)  # fmt: skip
# All others of Spark 4.3; most of them are in 3.5 too.
_OF_SPARK = (
    "any_value", "approx_count_distinct", "approx_percentile", "approx_top_k",
    "approx_top_k_accumulate", "approx_top_k_combine", "bit_and", "bit_or", "bit_xor",
    "bitmap_and_agg",
    "bitmap_construct_agg", "bitmap_or_agg", "corr", "count_min_sketch", "covar_pop", "covar_samp",
    "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "kll_merge_agg_bigint",
    "kll_merge_agg_double", "kll_merge_agg_float", "kll_sketch_agg_bigint",
    "kll_sketch_agg_double", "kll_sketch_agg_float", "kurtosis", "median", "mode", "percentile",
    "percentile_approx", "percentile_cont", "percentile_disc", "regr_avgx", "regr_avgy",
    "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "skewness", "theta_intersection_agg", "theta_sketch_agg", "theta_union_agg", "try_avg",
    "try_sum",
)  # fmt: skip
_BY_SPARK = AggregateRule(arguments=(0, None), by_spark=True)
AGGREGATES: Mapping[str, AggregateRule] = {
    "count": AggregateRule("count", arguments=(0, None)),
    "sum": AggregateRule("sum"),
    "avg": AggregateRule("avg"),
    "mean": AggregateRule("avg"),
    "min": AggregateRule("min"),
    "max": AggregateRule("max"),
    "count_if": AggregateRule("count", "CASE WHEN {} THEN 1 END"),
    **dict.fromkeys(("bool_or", "some", "any"), AggregateRule("max", "CAST({} AS BOOLEAN)")),
    **dict.fromkeys(("bool_and", "every"), AggregateRule("min", "CAST({} AS BOOLEAN)")),
    **dict.fromkeys(_OF_LISTS, AggregateRule()),
    **dict.fromkeys(("max_by", "min_by"), AggregateRule(arguments=(2, 3))),
    **dict.fromkeys(("listagg", "string_agg"), AggregateRule(arguments=(1, 2))),
    **dict.fromkeys(_OF_SPARK, _BY_SPARK),
}
AGGREGATES_HINT = (
    "use PREV, NEXT, FIRST, LAST or an aggregate of the match: count, sum, avg, min, max, stddev, "
    "median, max_by, collect_list and others; measures have all aggregates of Spark"
)


def aggregate_rule(name: str) -> AggregateRule:
    """Spark computes the aggregates of a session."""
    return AGGREGATES.get(name, _BY_SPARK)


def fold_list_sql(name: str, array: str, type_: Type | None, separator: str | None = None) -> str:
    """SQL for the aggregate `name` of an array. `type_`: the type of its elements, needed for
    the engine's aggregates. `separator`: of listagg.

    >>> fold_list_sql("collect_list", "m0", None)
    'array_compact(m0)'
    """
    values = f"array_compact({array})"
    if name in {"collect_list", "array_agg"}:
        return values
    if name == "collect_set":
        return f"array_distinct({values})"
    if name in {"listagg", "string_agg"}:
        joined = f"array_join({values}, {separator or chr(39) * 2})"
        return f"CASE WHEN array_size({values}) > 0 THEN {joined} END"
    if name in {"max_by", "min_by"}:
        return _extreme_sql(array, ">" if name == "max_by" else "<")
    if name in _MOMENTS:
        return _MOMENTS[name].format(_moments_sql(values))
    engine = AGGREGATES[name].engine
    assert engine is not None
    return fold_sql(engine, array, type_ or Type("other"))


def _extreme_sql(array: str, better: str) -> str:
    """The `x` of the element with the largest or smallest `y`; of equal ones the last, as in Spark.
    Elements are structs (x, y). The sort is stable."""
    values = f"reverse(filter({array}, __cep_v -> __cep_v.y IS NOT NULL))"
    return (
        f"try_element_at(array_sort({values}, "
        f"(__cep_l, __cep_r) -> CASE WHEN __cep_l.y {better} __cep_r.y THEN -1 "
        f"WHEN __cep_r.y {better} __cep_l.y THEN 1 ELSE 0 END), 1).x"
    )


def sorted_values_sql(
    array: str, directions: Sequence[tuple[bool, bool]], *, distinct: bool = False
) -> str:
    """The `v` of the elements that are not NULL, sorted by `k0`, `k1`, ... Elements are structs.
    `directions`: of each key, whether it descends and whether NULLs come first."""
    values = f"filter({array}, __cep_v -> __cep_v.v IS NOT NULL)"
    if distinct:
        values = f"array_distinct({values})"
    branches = []
    for place, (descends, nulls_first) in enumerate(directions):
        left, right = f"__cep_l.k{place}", f"__cep_r.k{place}"
        null, less = -1 if nulls_first else 1, 1 if descends else -1
        branches.append(
            f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {null} "
            f"WHEN {right} IS NULL AND {left} IS NOT NULL THEN {-null} "
            f"WHEN {left} < {right} THEN {less} WHEN {right} < {left} THEN {-less}"
        )
    comparison = f"(__cep_l, __cep_r) -> CASE {' '.join(branches)} ELSE 0 END"
    return f"transform(array_sort({values}, {comparison}), __cep_v -> __cep_v.v)"


def _moments_sql(array: str) -> str:
    """Count, mean and sum of squared deviations, updated as Spark's aggregates update them, so that
    results round alike."""
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


# ---- folds of arrays -----------------------------------------------------------------------------


# Spark's + keeps this many fractional digits when it reduces the scale of a result.
_KEPT_SCALE = 6
_COUNT_DIGITS = 10


def fold_sql(how: CellReading, array: str, type_: Type) -> str:
    """SQL for an aggregate of `array` (SQL for an array of `type_`), equal to Spark's own in value
    and type.

    Spark has no sum or avg of an array, so these are folds. NULL elements are skipped, and a list
    without other elements gives NULL. A decimal sum is folded in a type whose additions drop no
    digit: where the result has 38 digits and a scale above 6, Spark's `+` would round, so the fold
    has one digit less of range and fails with an overflow where a sum needs it. A decimal average
    divides whole part and remainder separately, so that it rounds once; where there are not enough
    digits for that, it is refused.
    """
    if how == "count":
        return f"coalesce(CAST(array_size({_not_null_elements(array)}) AS BIGINT), 0L)"
    if how in {"first", "last"}:
        return f"try_element_at({array}, {1 if how == 'first' else -1})"
    if how in {"min", "max"}:
        return f"array_{how}({array})"
    result = aggregate_type(how, type_)
    if result is None:
        raise InexactError(f"{how} of {name_of(type_)}")
    values = _not_null_elements(array)
    if how == "sum":
        value = _sum_sql(values, type_, result)
    elif type_.kind == "decimal":
        value = _decimal_average_sql(values, type_, result)
    else:
        total = _sum_sql(values, type_, type_ if type_.kind == "interval" else DOUBLE)
        value = f"{total} / array_size({values})"
    return f"CASE WHEN array_size({values}) > 0 THEN {value} END"


def count_sql(array: str) -> str:
    """SQL for the number of elements, NULL elements included."""
    return f"coalesce(CAST(array_size({array}) AS BIGINT), 0L)"


def _not_null_elements(array: str) -> str:
    return f"filter({array}, __cep_v -> __cep_v IS NOT NULL)"


def _sum_sql(values: str, type_: Type, result: Type) -> str:
    sum_type = result
    if result.precision == MAX_PRECISION and result.scale > _KEPT_SCALE:
        sum_type = Type("decimal", precision=MAX_PRECISION - 1, scale=result.scale)
    name = name_of(sum_type)
    zero = "INTERVAL '0' SECOND" if type_.kind == "interval" else "0"
    value = f"CAST(__cep_v AS {name})"
    total = (
        f"aggregate({values}, CAST({zero} AS {name}), "
        f"(__cep_s, __cep_v) -> CAST(__cep_s + {value} AS {name}))"
    )
    return total if sum_type == result else f"CAST({total} AS {name_of(result)})"


def _decimal_average_sql(values: str, type_: Type, result: Type) -> str:
    sum_type = aggregate_type("sum", type_)
    assert sum_type is not None
    # The quotient of the remainder needs the scale, the digits of the count and one more.
    if sum_type.precision >= MAX_PRECISION or 2 * _COUNT_DIGITS + 1 + type_.scale > MAX_PRECISION:
        raise InexactError(f"avg of {name_of(type_)}")
    total = _sum_sql(values, type_, sum_type)
    count = f"CAST(array_size({values}) AS DECIMAL({_COUNT_DIGITS},0))"
    rest = f"({total} % {count})"
    whole_type = Type("decimal", precision=max(1, type_.precision - type_.scale))
    part_type = Type("decimal", precision=type_.scale + 5, scale=type_.scale + 4)
    whole = f"CAST(({total} - {rest}) / {count} AS {name_of(whole_type)})"
    part = f"CAST({rest} / {count} AS {name_of(part_type)})"
    return f"CAST({whole} + {part} AS {name_of(result)})"
