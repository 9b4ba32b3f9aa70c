"""The payload of an event pattern, joined to its matches: the columns of the input that an answer
shows and matching does not read.

    rows + identity -> engine -> identities of matched rows ----------> join -> one row a match
                                   \\-> filter of the second scan -> payload -/

The identity of a row is the file that it is read from, as two hashes of its path, and its number in
that file. Both scans are of the same files, so a row has the same identity in both.

Always holds: the engine runs once. Everything behind it reads one exchange, and reads all columns
of it, so that Spark's optimizer cannot make two different exchanges of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from spark_cep.events.answer import IDENTITY
from spark_cep.spark.lookups import METRICS_COLUMN
from spark_cep.spark.projection import name_columns, partition_columns
from spark_cep.spark.selection import quote_column, select_named
from spark_cep.spark.source import is_setting_on
from spark_cep.udfs.errors import CepError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

    from spark_cep.events.answer import AnswerShape
    from spark_cep.spark.projection import MatchFrame
    from spark_cep.udfs.output import Struct
    from spark_cep.udfs.program import Variable


# ---- row identity --------------------------------------------------------------------------------

_METADATA = "_metadata"
# A hash of the path alone, and one that does not follow from the first.
_IDENTITY_TEXTS = (
    "xxhash64(_metadata.file_path)",
    "xxhash64(0L, _metadata.file_path)",
    "_metadata.row_index",
)
# Operators that give each of their rows from one row of their input.
_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias"}
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
# Functions whose result Spark does not know to be the same in two scans, and plans in expressions.
_OPAQUE = {
    "PYTHON_UDF": "a function in Python",
    "SCALA_UDF": "a user-defined function",
    "PLAN_EXPRESSION": "a subquery",
}
# With these a scan leaves out files that it cannot read, perhaps not the same ones as another.
_LOSSY = ("ignoreMissingFiles", "ignoreCorruptFiles")


def add_identity(df: DataFrame) -> DataFrame:
    return select_named(df, list(zip(_IDENTITY_TEXTS, IDENTITY, strict=True)), ["*"])


def find_no_identity(df: DataFrame) -> str | None:
    """Why the rows of `df` cannot be found again in a second scan; None if they can. `df`: the
    input with its candidate mask."""
    untyped: Any = df
    if not hasattr(untyped, "_jdf"):
        return "a Connect session does not show what the input is made of"
    names = {name.casefold() for name in df.columns}
    if names & {_METADATA, *IDENTITY}:
        return f"a column of the input is called {min(names & {_METADATA, *IDENTITY})}"
    for setting in ("spark.sql.adaptive.enabled", "spark.sql.exchange.reuse"):
        if not is_setting_on(df, setting):
            return f"{setting} is off"
    return _find_no_scan(untyped) or _find_no_columns(df)


def _find_no_columns(df: DataFrame) -> str | None:
    """Some operators hide the metadata of the files below them."""
    try:
        add_identity(df)
    except AnalysisException:
        return "the input does not say which rows of its files it has"
    return None


def _find_no_scan(untyped: Any) -> str | None:
    plan = untyped._jdf.queryExecution().withCachedData()
    if not plan.deterministic():
        return "a column or condition may differ between two scans"
    patterns = untyped._sc._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    for pattern, phrase in _OPAQUE.items():
        if plan.containsPattern(getattr(patterns, pattern)()):
            return f"the input or the pattern has {phrase}"
    while plan.nodeName() in _ROW_BY_ROW:
        plan = plan.children().apply(0)
    name = str(plan.nodeName())
    if name == "InMemoryRelation":
        return "the input is cached"
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return f"the input is not one scan of files: its plan has {name}"
    return _find_no_parquet(plan.relation())


def _find_no_parquet(relation: Any) -> str | None:
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return "the input is not one scan of files"
    if relation.fileFormat().getClass().getName() != _PARQUET:
        return "only the rows of Parquet files have numbers"
    options = str(relation.options().toString()).casefold()
    settings = relation.sparkSession().conf()
    for name in _LOSSY:
        if name.casefold() in options or settings.get(f"spark.sql.files.{name}") == "true":
            return f"{name} is set"
    if _overlap(str(relation.location().rootPaths().mkString("\n")).splitlines()):
        return "the input reads a file twice"
    return None


def _overlap(paths: Sequence[str]) -> bool:
    """Whether one of the paths is another one, or lies in it.

    >>> _overlap(["/t/day=1", "/t/day=10"]), _overlap(["/t/day=1", "/u", "/t"])
    (False, True)
    """
    folders = sorted(f"{path}/" for path in paths)
    return any(after.startswith(path) for path, after in pairwise(folders))


# ---- the join ------------------------------------------------------------------------------------

# Which rows are matched, as a set of bits of hashes: at most so many words of 64 bits, whatever the
# number of matches. A million matched rows let 1.5 % of the other rows pass, ten million 14 %.
_WORDS = 1 << 20
_KEYS = ("__cep_key0", "__cep_key1")
_METRICS, _ROWS, _ROW, _PLACE = "__cep_metrics", "__cep_rows", "__cep_row", "__cep_place"
_SIZES, _PAYLOAD, _EVENTS = "__cep_sizes", "__cep_payload", "__cep_events"
_OF_PAYLOAD = tuple(f"{name}_of_payload" for name in IDENTITY)
# In the form in which errors of workers travel, so that `error_of` finds it.
_CHANGED = WorkerError(
    CepError(
        "files of the input were changed while the query read them",
        hint="run it again, or set spark.cep.payload to ship, which reads them once",
    )
)


@dataclass(frozen=True)
class PayloadJoin:
    """`answer`: of the engine, with row identities. `rows`: the candidates once more, with all
    columns of the input and their identity. `expected`: the schema of the answer with a shipped
    payload."""

    answer: AnswerShape
    variables: Sequence[Variable]
    after: Sequence[str]
    rows: DataFrame
    expected: T.StructType

    def project(self, found: MatchFrame, raw: T.StructType) -> DataFrame:
        """The answer. `raw`: the own types of the columns that were shipped."""
        matched = self._matched_rows(found, raw)
        # Partitioned by all of its columns, so that whoever reads it, none can be pruned.
        matched = matched.repartition(*[F.col(name) for name in matched.columns])
        payload = self.rows.join(F.broadcast(_bits(matched)), F.expr(_has_bit()), "left_semi")
        # Behind the filter, so that a struct is made of few rows.
        names = ", ".join(map(quote_column, self.answer.names))
        identities = zip(IDENTITY, _OF_PAYLOAD, strict=True)
        payload = select_named(payload, [(f"struct({names})", _PAYLOAD), *identities])
        pairs = zip(IDENTITY, _OF_PAYLOAD, strict=True)
        events = (
            matched.join(payload, F.expr(" AND ".join(f"{a} = {b}" for a, b in pairs)))
            .groupBy(*_KEYS)
            .agg(
                *[F.first(name).alias(name) for name in (_SIZES, *self._header())],
                F.collect_list(F.struct(_PLACE, _PAYLOAD)).alias(_EVENTS),
            )
        )
        in_order = (_ordered_events(), _EVENTS)
        events = select_named(events, [in_order], [_SIZES, *self._header()])
        # The counts are a part of the answer: adaptive execution removes what turns out to be
        # empty, and observations with it. They are the first partition, which every action reads.
        lines = F.array_join(F.collect_list(_METRICS), "\n").alias(METRICS_COLUMN)
        counts = matched.groupBy().agg(lines)
        return self._show(found.counted(counts.unionByName(events, allowMissingColumns=True)))

    def _header(self) -> list[str]:
        """What an answer shows of a match besides its rows: partition columns and bounds."""
        return [f"__cep_header{place}" for place in range(len(self.answer.partition) + 2)]

    def _matched_rows(self, found: MatchFrame, raw: T.StructType) -> DataFrame:
        """A row for each row of a match, and the rows of counts.

        The rows of a match find each other by a hash of all identities in it, for no two matches
        have the same rows. A match's number may be another one where Spark runs a task of the
        engine again after a part of its output was read.
        """
        named = select_named(
            found.df,
            [*name_columns(self.answer, self.variables, raw), (METRICS_COLUMN, _METRICS)],
        )
        is_match = F.col(_METRICS).isNull()
        for condition in self.after:
            named = named.filter(F.when(is_match, F.expr(condition)).otherwise(True))
        structs = self.answer.output.structs
        rows = ", ".join(_identities(self.variables[each.variable], each) for each in structs)
        sizes = ", ".join(_size(self.variables[each.variable], each) for each in structs)
        shown = [
            *(value for value, _ in partition_columns(self.answer, self.variables)),
            quote_column("match_start"),
            quote_column("match_end"),
        ]
        named = select_named(
            named,
            [
                (f"IF({_METRICS} IS NULL, concat({rows}), array({_identity(None)}))", _ROWS),
                (f"array({sizes})", _SIZES),
                *zip(shown, self._header(), strict=True),
            ],
            [_METRICS],
        )
        beside = [_SIZES, _METRICS, *self._header()]
        exploded = named.select(
            F.expr(f"xxhash64({_ROWS}, {_SIZES})").alias(_KEYS[0]),
            F.expr(f"xxhash64(0L, {_ROWS}, {_SIZES})").alias(_KEYS[1]),
            *beside,
            F.posexplode(_ROWS).alias(_PLACE, _ROW),
        )
        fields = [(f"{_ROW}.{name}", name) for name in IDENTITY]
        return select_named(exploded, fields, [*_KEYS, *beside, _PLACE])

    def _show(self, events: DataFrame) -> DataFrame:
        """The columns of the answer, each with its expected type."""
        structs = self.answer.output.structs
        offsets = ["0"]
        for place, each in enumerate(structs):
            size = "1" if each.flat else f"greatest(get({_SIZES}, {place}), 0)"
            offsets.append(f"{offsets[-1]} + {size}")
        filled = [
            (_payload_of(self.variables[each.variable], place, offsets[place]), f"__cep_v{place}")
            for place, each in enumerate(structs)
        ]
        events = select_named(events, filled, self._header())
        *partition, start, end = self._header()
        # A struct that is never NULL, with fields that may be, as it comes out of the workers.
        rows = [
            f"struct({name}.*)" if each.flat else name
            for each, (_, name) in zip(structs, filled, strict=True)
        ]
        values = [*partition, *rows, start, end]
        answer = select_named(events, list(zip(values, self.expected.names, strict=True)))
        types = zip(answer.schema, self.expected, strict=True)
        if all(own.dataType == wanted.dataType for own, wanted in types):
            return answer
        return answer.select(
            *[F.col(quote_column(each.name)).cast(each.dataType) for each in self.expected]
        )


def _identity(row: str | None) -> str:
    """The identity of a row, without NULLs: Spark would test for them in one of the places that
    read the exchange, and make two of it. None: of no row."""
    fields = zip(IDENTITY, ("0L", "0L", "-1L"), strict=True)
    parts = (
        f"'{name}', {none if row is None else f'coalesce({row}.{name}, {none})'}"
        for name, none in fields
    )
    return f"named_struct({', '.join(parts)})"


def _identities(variable: Variable, struct: Struct) -> str:
    """The identities of a variable's rows, an array."""
    name, none = quote_column(variable.name), f"filter(array({_identity(None)}), x -> false)"
    if variable.is_list:
        return f"coalesce(transform({name}, x -> {_identity('x')}), {none})"
    one = f"array({_identity(name)})"
    return one if struct.flat else f"IF({name} IS NULL, {none}, {one})"


def _size(variable: Variable, struct: Struct) -> str:
    """How many rows it has; -1: it is not filled."""
    name = quote_column(variable.name)
    if variable.is_list:
        return f"IF({name} IS NULL, -1, size({name}))"
    return "1" if struct.flat else f"IF({name} IS NULL, -1, 1)"


def _payload_of(variable: Variable, place: int, offset: str) -> str:
    size = f"get({_SIZES}, {place})"
    if variable.is_list:
        rows = f"slice({_EVENTS}, {offset} + 1, {size})"
        return f"IF({size} < 0, NULL, transform({rows}, x -> x.{_PAYLOAD}))"
    return f"IF({size} < 0, NULL, get({_EVENTS}, {offset}).{_PAYLOAD})"


def _ordered_events() -> str:
    """The rows of a match in order, if all were found."""
    ordered = f"array_sort({_EVENTS}, (l, r) -> l.{_PLACE} - r.{_PLACE})"
    count = f"aggregate({_SIZES}, 0, (total, n) -> total + greatest(n, 0))"
    return f"IF(size({_EVENTS}) = {count}, {ordered}, raise_error('{_CHANGED}'))"


def _bits(matched: DataFrame) -> DataFrame:
    """The words of the set of matched rows."""
    hashed = f"xxhash64({', '.join(IDENTITY)})"
    bit = f"shiftleft(1L, {_bit(hashed)})"
    words = select_named(matched, [(_word(hashed), "__cep_word"), (bit, "__cep_bit")])
    return words.groupBy("__cep_word").agg(F.bit_or("__cep_bit").alias("__cep_bits"))


def _has_bit() -> str:
    """Whether a row of the second scan is in the set."""
    hashed = f"xxhash64({', '.join(IDENTITY)})"
    is_set = f"(shiftrightunsigned(__cep_bits, {_bit(hashed)}) & 1L) = 1L"
    return f"{_word(hashed)} = __cep_word AND {is_set}"


def _word(hashed: str) -> str:
    # Not pmod, whose result may be NULL and would be tested for it.
    return f"({hashed} & {_WORDS - 1}L)"


def _bit(hashed: str) -> str:
    return f"CAST(shiftrightunsigned({hashed}, 58) AS INT)"
