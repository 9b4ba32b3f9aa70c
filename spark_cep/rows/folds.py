"""The aggregates of DEFINE beyond those that event patterns have, too.

The matcher keeps them along the path: variance and standard deviation by the operations of Spark in
their order, max_by and min_by as the row that is best so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

EngineFold = Literal["stddev_samp", "stddev_pop", "var_samp", "var_pop", "max_by", "min_by"]

SPREADS: Mapping[str, EngineFold] = {
    **dict.fromkeys(("stddev", "std", "stddev_samp"), "stddev_samp"),
    **dict.fromkeys(("variance", "var_samp"), "var_samp"),
    "stddev_pop": "stddev_pop",
    "var_pop": "var_pop",
}
EXTREMES: Mapping[str, EngineFold] = {"max_by": "max_by", "min_by": "min_by"}
DEFINE_HINT = (
    "use PREV, NEXT, FIRST, LAST or one of the aggregates count, sum, avg, min, max, count_if, "
    "bool_and, bool_or, any_value, stddev, variance, max_by and min_by; measures also have all "
    "others"
)
LIST_HINT = (
    "a list cannot be tested row by row: count(DISTINCT b.kind) has the number of different "
    "values, count_if(b.kind = 'x') > 0 tells whether one is among them; measures have {name}"
)
