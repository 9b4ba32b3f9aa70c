"""Reads the first rows of an input as a sample, and keeps it with the DataFrame.

The first rows of the input are taken before any filter, so even a pattern that nothing matches
reads no more of it. Over files and tables Spark then reads no further; behind a sort or an
aggregate it may have to read all of the input to get them.
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
    """A sample, if Spark can compute the rows. Where it fails, the call goes on without one: it is
    lazy, and the action may never read the row that fails.

    `rows` gives the needed columns of the input's first rows. `key` identifies what they are made
    of: the sample is kept with `df` under it, so that the same pattern reads nothing again. None:
    two samples cannot be compared.
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
