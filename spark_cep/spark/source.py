"""The input DataFrame, its columns as the compiler knows them, and the settings of its session."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.errors import PatternError
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.spark.typing import type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SourceFrame:
    """A DataFrame whose column names are all different."""

    df: DataFrame
    columns: tuple[ColumnInfo, ...]
    case_sensitive: bool

    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def is_streaming(self) -> bool:
        return bool(self.df.isStreaming)

    def setting(self, name: str, default: str = "") -> str:
        """A setting of the session, also one that Spark itself does not know."""
        return str(self.df.sparkSession.conf.get(name, default) or default)

    def is_on(self, name: str, default: str) -> bool:
        return is_setting_on(self.df, name, default)


def read_source(df: DataFrame) -> SourceFrame:
    """Refuses two columns of one name, which no pattern could tell apart."""
    schema = df.schema
    case_sensitive = is_setting_on(df, "spark.sql.caseSensitive", "false")
    folded = schema.names if case_sensitive else [name.casefold() for name in schema.names]
    twice = [name for name, count in Counter(folded).items() if count > 1]
    if twice:
        raise PatternError(
            f"the input has more than one column called {twice[0]!r}",
            hint="rename or drop all but one before matching, for example after a join",
        )
    columns = tuple(ColumnInfo(field.name, type_of(field.dataType)) for field in schema)
    return SourceFrame(df, columns, case_sensitive)


def is_setting_on(df: DataFrame, name: str, default: str) -> bool:
    """A boolean setting of the session, in any spelling that Spark takes."""
    return str(df.sparkSession.conf.get(name, default)).strip().lower() == "true"
