"""The rows that a pattern looks at: the input with what is looked up before matching, and the mask
that says of each row which variables it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_cep.remotes.before import with_values
from spark_cep.shipping import prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_cep.remotes.stage import Counts
    from spark_cep.shipped import Shipping


def candidate_rows(df: DataFrame, shipping: Shipping, counts: Counts | None = None) -> DataFrame:
    """All rows of `df`. `counts` receives what was looked up."""
    rows = with_values(df, shipping.compiled, shipping.sources, counts)
    return prepare.masked(rows, prepare.mask(shipping.compiled.masks))
