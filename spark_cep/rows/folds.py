"""The aggregates that the engine has for row patterns, beyond those that event patterns have, too.

The matcher keeps variance and standard deviation along the path by the operations of Spark in their
order, max_by and min_by as the row that is best so far; the others are folds in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

EngineFold = Literal[
    "stddev_samp", "stddev_pop", "var_samp", "var_pop", "max_by", "min_by", "first", "last",
    "collect_list", "collect_list with nulls", "listagg", "mode", "percentile",
    "bit_and", "bit_or", "bit_xor", "try_sum", "skewness", "kurtosis", "corr", "covar_pop",
    "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_sxy", "regr_syy",
]  # fmt: skip

SPREADS: Mapping[str, EngineFold] = {
    **dict.fromkeys(("stddev", "std", "stddev_samp"), "stddev_samp"),
    **dict.fromkeys(("variance", "var_samp"), "var_samp"),
    "stddev_pop": "stddev_pop",
    "var_pop": "var_pop",
}
EXTREMES: Mapping[str, EngineFold] = {"max_by": "max_by", "min_by": "min_by"}
DEFINE_HINT = (
    "only Spark computes it, and a condition cannot wait for Spark: return it as a measure and "
    "test it on the answer, or use count, sum, avg, min, max, stddev, median, max_by, collect_list"
)
# What to write instead of approximations.
REPLACEMENTS: Mapping[str, str] = {
    "approx_count_distinct": "write count(DISTINCT b.kind), which is exact",
    **dict.fromkeys(
        ("percentile_approx", "approx_percentile", "percentile_disc"),
        "write percentile(b.price, 0.5), which is exact",
    ),
    "histogram_numeric": "use percentiles, percentile(b.price, 0.9), or list the values: "
    "collect_list(b.price)",
    **dict.fromkeys(
        ("approx_top_k", "count_min_sketch"),
        "count what is asked for: count_if(b.kind = 'x'); mode() WITHIN GROUP (ORDER BY b.kind) "
        "is the most frequent",
    ),
}
