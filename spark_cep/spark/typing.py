"""Types and constants, by asking Spark's analyzer: the compiler's only door to Spark.

Nothing here starts a job. Expressions are analyzed together, in one round trip; only when that
fails are they tried one by one, to say which of them is wrong and why.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.expressions.schema import NOT_OF_ONE_ROW
from spark_cep.spark.selection import Expression, as_column, quote_column, select_named
from spark_cep.spark.session_functions import find_session_function
from spark_cep.spark.versions import ANALYSIS_ERRORS, error_text, silence_spark
from spark_cep.udfs.expressions import Constant, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spark_cep.udfs.functions.session import SessionFunction


class SparkTyper:
    """Answers the compiler's questions about the columns of one DataFrame.

    `order` is the event time's expression: `match_start` and `match_end` have its
    type. `partition` are the partition columns, which a measure may name.
    """

    def __init__(
        self, df: DataFrame, *, order: str | Column | None = None, partition: Sequence[str] = ()
    ):
        self._df = df
        self._order = order
        self._partition = tuple(partition)

    @property
    def df(self) -> DataFrame:
        """The DataFrame, with columns that were added."""
        return self._df

    def add(self, name: str, sql: str) -> None:
        """From now on the rows have a column of this type."""
        self._df = self._df.select("*", F.lit(None).cast(sql).alias(name))

    def of_row(self, expressions: Sequence[str | Column]) -> list[Type | str]:
        """The type of each expression over one input row, or a sentence about what is wrong."""
        found = None
        if all(isinstance(each, str) for each in expressions):
            scalars = [f"CASE WHEN TRUE THEN ({each}\n) END" for each in expressions]
            found = self._types_of_texts(self._df, scalars)
        if found is None:
            found = self._schema(self._df, [_make_scalar(each) for each in expressions])
        return [each if isinstance(each, str) else type_of(each) for each in found]

    def of_match(
        self, expressions: Sequence[str], variables: Mapping[str, bool]
    ) -> list[Type | str]:
        """The type of each expression over a match: a struct for each variable, an array of
        structs where `variables` says that it is a list."""
        matches = self._matches(variables)
        found = self._types_of_texts(matches, expressions)
        if found is None:
            found = self._schema(matches, [_make_expression(each) for each in expressions])
        return [each if isinstance(each, str) else type_of(each) for each in found]

    def add_aggregates(self, aggregates: Sequence[tuple[str, str]]) -> list[str | None]:
        """From now on the rows have a column of the type of each aggregate over them; where one is
        invalid, a sentence about what is wrong."""
        names = [name for name, _ in aggregates]
        found = self._aggregated([text for _, text in aggregates])
        if not any(isinstance(each, str) for each in found):
            nulls = [
                F.lit(None).cast(each).alias(name) for name, each in zip(names, found, strict=True)
            ]
            self._df = self._df.select("*", *nulls)
        return [each if isinstance(each, str) else None for each in found]

    def _aggregated(self, texts: Sequence[str]) -> list[T.DataType | str]:
        # The aggregate of Spark beside them is what they are computed with.
        items = [(each, f"e{place}") for place, each in enumerate(texts)]
        kept = [(f"first({_first_column(self._df)}, TRUE)", "kept")]
        with silence_spark():
            try:
                fields = select_named(self._df, [*kept, *items]).schema.fields
            except ANALYSIS_ERRORS as problem:
                if len(texts) == 1:
                    return [error_sentence(problem)]
                return [self._aggregated([each])[0] for each in texts]
        return [field.dataType for field in fields[1:]]

    def constants(self, expressions: Sequence[str]) -> list[Constant | str]:
        """The value of each foldable expression. VALUES makes it a local relation: no job."""
        session = self._df.sparkSession
        one_row = session.sql("SELECT * FROM VALUES (1) AS t(`__cep_one`)")
        types = self._schema(one_row, [_make_expression(each) for each in expressions])
        found = list(zip(expressions, types, strict=True))
        known = [(text, each) for text, each in found if not isinstance(each, str)]
        values = iter(_evaluate_constants(one_row, known))
        return [each if isinstance(each, str) else next(values) for _, each in found]

    def session_function(self, text: str, name: str) -> SessionFunction | str | None:
        """The Python function of the session that a text over an input row calls."""
        return find_session_function(self._df, text, name)

    def _matches(self, variables: Mapping[str, bool]) -> DataFrame:
        items: list[tuple[Expression, str]] = []
        for name, is_list in variables.items():
            row = "array(struct(*))" if is_list else "struct(*)"
            items.append((f"CASE WHEN TRUE THEN {row} END", name))
        taken = {name.casefold() for name in variables}
        for name in self._partition:
            if name.casefold() not in taken:
                items.append((quote_column(name), name))
                taken.add(name.casefold())
        if self._order is not None:
            bounds = (each for each in ("match_start", "match_end") if each not in taken)
            items.extend((self._order, each) for each in bounds)
        return select_named(self._df, items)

    def _types_of_texts(
        self, df: DataFrame, texts: Sequence[str]
    ) -> Sequence[T.DataType | str] | None:
        """The types of expressions over `df` if all are valid."""
        if not texts:
            return []
        # The plain column beside them turns an aggregate into an error instead of a global one.
        items = [(each, f"e{place}") for place, each in enumerate((_first_column(df), *texts))]
        with silence_spark():
            try:
                fields = select_named(df, items).schema.fields
            except ANALYSIS_ERRORS:
                return None
        return [field.dataType for field in fields[1:]]

    def _schema(
        self, df: DataFrame, makers: Sequence[Callable[[], Column]]
    ) -> list[T.DataType | str]:
        if not makers:
            return []
        with silence_spark():
            try:
                columns = [make() for make in makers]
                return list(self._analyzed(df, columns))
            except ANALYSIS_ERRORS:
                return [self._one(df, make) for make in makers]

    def _one(self, df: DataFrame, make: Callable[[], Column]) -> T.DataType | str:
        try:
            return self._analyzed(df, [make()])[0]
        except ANALYSIS_ERRORS as problem:
            return error_sentence(problem)

    def _analyzed(self, df: DataFrame, columns: Sequence[Column]) -> list[T.DataType]:
        beside = F.col(_first_column(df)).alias("__cep_beside")
        named = [column.alias(f"e{place}") for place, column in enumerate(columns)]
        fields = df.select(beside, *named).schema.fields[1:]
        return [field.dataType for field in fields]


def type_of(data_type: T.DataType) -> Type:
    """A Spark type as the engine sees it. Collated strings are "other": their order and equality
    are Spark's to decide."""
    if isinstance(data_type, T.StringType):
        return Type("string") if _is_binary(data_type) else _other(data_type)
    if isinstance(data_type, T.DecimalType):
        return Type("decimal", precision=data_type.precision, scale=data_type.scale)
    if isinstance(data_type, T.DayTimeIntervalType):
        return Type("interval")
    if isinstance(data_type, T.YearMonthIntervalType):
        return Type("months")
    return _SIMPLE.get(type(data_type)) or _other(data_type)


def _other(data_type: T.DataType) -> Type:
    return Type("other", sql=data_type.simpleString())


_SIMPLE: dict[type[T.DataType], Type] = {
    T.BooleanType: Type("bool"),
    T.ByteType: Type("int", 8),
    T.ShortType: Type("int", 16),
    T.IntegerType: Type("int", 32),
    T.LongType: Type("int", 64),
    T.FloatType: Type("float", 32),
    T.DoubleType: Type("float", 64),
    T.BinaryType: Type("binary"),
    T.DateType: Type("date"),
    T.TimestampType: Type("timestamp"),
    T.TimestampNTZType: Type("timestamp_ntz"),
    T.NullType: Type("null"),
}


def data_type_of(type_: Type) -> T.DataType:
    """The Spark type of what the engine computes.

    >>> data_type_of(Type("decimal", precision=10, scale=2))
    DecimalType(10,2)
    """
    if type_.kind == "decimal":
        return T.DecimalType(type_.precision, type_.scale)
    if type_.kind == "interval":
        return T.DayTimeIntervalType()
    if type_.kind == "string":
        return T.StringType()
    return next(kind() for kind, known in _SIMPLE.items() if known == type_)


def _is_binary(data_type: T.StringType) -> bool:
    return getattr(data_type, "collation", "UTF8_BINARY") == "UTF8_BINARY"


def _first_column(df: DataFrame) -> str:
    return quote_column(df.columns[0])


def _make_expression(text: str) -> Callable[[], Column]:
    return lambda: F.expr(text)


def _make_scalar(expression: str | Column) -> Callable[[], Column]:
    """CASE lets any scalar through and makes a generator (`explode`) the error that it is."""

    def make() -> Column:
        return F.when(F.lit(True), as_column(expression))

    return make


# Integers that stand for values which Python could round or not represent at all.
_AS_INTEGER = {
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "timestamp_ntz": "(({}) - TIMESTAMP_NTZ '1970-01-01 00:00:00') div INTERVAL '0.000001' SECOND",
    "interval": "({}) div INTERVAL '0.000001' SECOND",
    "months": "CAST(CAST(({}) AS INTERVAL MONTH) AS INT)",
}


def _evaluate_constants(
    one_row: DataFrame, texts: Sequence[tuple[str, T.DataType]]
) -> list[Constant | str]:
    """All constants in one go; one by one if any of them fails to evaluate."""
    kinds = [type_of(data_type) for _, data_type in texts]
    asked = [
        F.expr(_AS_INTEGER.get(kind.kind, "{}").format(text)).alias(f"e{place}")
        for place, ((text, _), kind) in enumerate(zip(texts, kinds, strict=True))
        if kind.kind != "other"
    ]
    if len(asked) < len(texts) and len(texts) > 1:
        return [_evaluate_constants(one_row, [each])[0] for each in texts]
    if len(asked) < len(texts):
        return [f"a constant of type {texts[0][1].simpleString()} cannot be used here"]
    with silence_spark():
        try:
            row = one_row.select(*asked).collect()[0] if asked else ()
        except ANALYSIS_ERRORS as problem:
            if len(texts) == 1:
                return [error_sentence(problem)]
            return [_evaluate_constants(one_row, [each])[0] for each in texts]
    return [
        Constant(_plain_value(value, kind), kind) for value, kind in zip(row, kinds, strict=True)
    ]


def _plain_value(value: Any, kind: Type) -> Any:
    if value is None:
        return None
    if kind.kind == "decimal":
        return _to_unscaled(value, kind.scale)
    return bytes(value) if kind.kind == "binary" else value


def _to_unscaled(value: Any, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    whole = int("".join(map(str, digits))) * int(10 ** (scale + exponent))
    return -whole if sign else whole


# In front of the message, if PySpark did not convert the exception of the JVM.
_JVM_TRACE = re.compile(r"\AAn error occurred while calling .*?:\s*:\s*[\w.$]+:\s*", re.S)


def error_sentence(problem: Exception) -> str:
    """What Spark says is wrong, without its error class, plan dump and SQL state.

    The message starts `[CLASS] text. SQLSTATE: ...; line 1 pos 0;` and the plan follows it.
    """
    text = re.sub(_JVM_TRACE, "", error_text(problem)).strip()
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.split(r"\s*SQLSTATE:|\n", text, maxsplit=1)[0]
    if isinstance(problem, ParseException | AnalysisException) and "GROUP BY clause" in text:
        return NOT_OF_ONE_ROW
    return text.rstrip(";").strip()
