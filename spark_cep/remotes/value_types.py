"""The types of keys and values, as Spark has them and as the compiler and the workers know them.

DDL is Spark's to read, so it is read when a remote source meets a DataFrame, by its session: an
analysis without a job, which Connect sessions do as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from spark_cep.compiling.lookups import Shape
from spark_cep.errors import PatternError
from spark_cep.remotes.remote import Remote, Table
from spark_cep.shipping.typing_by_spark import quiet, sentence, type_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def value_type(remote: Remote, name: str, session: SparkSession) -> T.DataType:
    """What a lookup gives."""
    source = remote.source
    if isinstance(source, Table):
        schema = source.df.schema
        if isinstance(source.value, str):
            return schema[source.value].dataType
        names = source.value or tuple(n for n in schema.names if n not in source.key)
        return T.StructType([T.StructField(n, schema[n].dataType) for n in names])
    asked = session.sql("SELECT * FROM VALUES (1) AS t(`__cep_one`)")
    with quiet():
        try:
            found = asked.select(F.lit(None).cast(source.value_type).alias("v")).schema
        except PySparkException as problem:
            raise PatternError(
                f"value_type of the remote {name!r}, {source.value_type!r}, is no type of Spark "
                f"SQL: {sentence(problem)}",
                hint='write "double", "array<string>" or "struct<max: double, region: string>"',
            ) from None
    return found.fields[0].dataType


def key_types(remote: Remote) -> tuple[T.DataType, ...] | None:
    """The types of a table's key columns; None where anything may be a key."""
    source = remote.source
    if not isinstance(source, Table):
        return None
    schema = source.df.schema
    return tuple(schema[name].dataType for name in source.key)


def shape_of(data_type: T.DataType) -> Shape:
    """The type as the compiler looks into it.

    >>> shape_of(T.ArrayType(T.StringType())).element.type.kind
    'string'
    """
    fields: tuple[tuple[str, Shape], ...] = ()
    if isinstance(data_type, T.StructType):
        fields = tuple((field.name, shape_of(field.dataType)) for field in data_type)
    is_array = isinstance(data_type, T.ArrayType)
    element = shape_of(data_type.elementType) if is_array else None  # type: ignore[attr-defined]
    return Shape(type_of(data_type), data_type.simpleString(), fields, element)


def arrow_of(data_type: T.DataType) -> pa.DataType:
    return to_arrow_type(data_type, timezone="UTC")
