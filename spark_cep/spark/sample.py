"""A look at the first rows of the input: which variables are rare, what conditions keep.

The input's first rows are taken before any filter, so even a pattern that nothing meets asks for
no more than these. Over files and tables Spark then reads no more; behind a sort or an aggregate
it may have to read all of the input to have them. They decide how fast the answer comes, never
what it is. A user who knows better gives `statistics=` with rates or a plan with its order, and
no sample is taken; `spark.cep.sample` set to "off" does without.

The rows come as the engine would get them, the payload left out, and are kept with the DataFrame:
the same pattern asked again reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spark_cep.planner.sample import NoSample, Sample, _summarize
from spark_cep.spark.sizes import is_spark_error

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark.sql import DataFrame

    from spark_cep.udfs.program import Program

_ATTRIBUTE = "_spark_cep_samples"


def take_sample(
    df: DataFrame, key: Hashable | None, rows: Callable[[], DataFrame], program: Program
) -> Sample | NoSample:
    """A sample, if Spark can compute those rows. Where it cannot, the error is one of the query's
    action, if that meets the row at all, and is none of the call's, which is lazy.

    `rows()` are the needed columns of the input's first rows. `key` says what they are made of:
    a sample is kept with `df` under it; None: it cannot be told.
    """
    kept: dict[Any, Sample] = df.__dict__.setdefault(_ATTRIBUTE, {})
    if key is not None and key in kept:
        return kept[key]
    try:
        table = rows().toArrow()
    except Exception as problem:
        if not is_spark_error(problem):
            raise
        return NoSample(f"no sample, for Spark failed on it ({type(problem).__name__})")
    sample = _summarize(program, table)
    if key is not None:
        kept[key] = sample
    return sample
