"""A remote table as a whole, for calls whose key is made of several variables' rows.

No row of the input has such a key, so there is nothing to join; the workers get all of the table.
It is collected when match_pattern is called and stays as it was then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from spark_cep.errors import PatternError
from spark_cep.remotes.joining import unique
from spark_cep.udfs.remotes.local import LocalTable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from spark_cep.remotes.remote import Remote

# As JSON. Spark broadcasts up to 10 MB of its own; a worker holds this much easily, and a driver.
MOST_BYTES = 100 << 20


def collected(
    remote: Remote,
    name: str,
    keys: Sequence[DataType],
    types: tuple[Sequence[pa.DataType], pa.DataType],
) -> LocalTable:
    """The table with its keys cast to `keys`; `types`: those of keys and value in the workers."""
    names = [f"k{place}" for place in range(len(keys))]
    table = unique(remote, name, names, keys)
    table = table.withColumnRenamed(table.columns[-1], "value")
    size = table.select(F.sum(F.octet_length(F.to_json(F.struct("*"))))).collect()[0][0] or 0
    if size > MOST_BYTES:
        raise PatternError(
            f"the remote table {name!r} is too large for every worker to have it: "
            f"{size >> 20:,} MB, and {MOST_BYTES >> 20} MB is the most",
            hint="its key is made of several variables, so it cannot be joined to the input; look "
            "it up by one variable's columns, or fetch values with cep.Remote.fetch or .sql",
        )
    schema = pa.schema([*zip(names, types[0], strict=True), ("value", types[1])])
    return LocalTable(table.toArrow().cast(schema))
