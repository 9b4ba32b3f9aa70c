"""Whose state it is: what changes the answer, and nothing else."""

from __future__ import annotations

import pyarrow as pa

from spark_cep.udfs.execution.state import make_identity


def schema(kind: pa.DataType, **noted: str) -> pa.Schema:
    return pa.schema([pa.field("c0", kind, metadata=noted)])


def test_columns_of_other_types_are_other_columns() -> None:
    assert make_identity("p", schema(pa.int64()), 8) != make_identity("p", schema(pa.float64()), 8)


def test_what_spark_notes_beside_a_column_is_no_part_of_it() -> None:
    short, long = (schema(pa.int64(), **{"spark.watermarkDelayMs": d}) for d in ("5", "60"))
    assert make_identity("p", short, 8) == make_identity("p", long, 8)
