"""What a row pattern looks up: beside its rows before matching, and for its answer.

The compiler of row patterns knows nothing of remote data. It gets an input that has the looked-up
columns, texts that read these (`rows/lookups.py`), and measures whose other calls are set aside
(`expressions/remote_measures.py`). Messages are about the user's texts as written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spark_cep.expressions.problems import Problems
from spark_cep.expressions.remote_calls import LookupRequests, mentions_remote
from spark_cep.expressions.remote_measures import (
    MeasureTexts,
    PlaceholderTyper,
    over_lookup_columns,
    separate_remote_calls,
)
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.remotes.sources import check_remotes_used
from spark_cep.rows.calls import parse_calls
from spark_cep.rows.lookups import replace_define_calls, replace_measure_calls
from spark_cep.spark.lookups import MetricsSink, RemoteSources, add_lookups
from spark_cep.spark.typing import type_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.expressions.schema import Typer
    from spark_cep.expressions.syntax import ParsedExpression
    from spark_cep.options import RowOptions
    from spark_cep.row_patterns import RowPattern
    from spark_cep.rows.compiled import CompiledRowPattern
    from spark_cep.spark.source import SourceFrame


@dataclass(frozen=True)
class RowLookups:
    """`pattern`, `measures`: the texts for the compiler; `source`: the input whose columns they
    read. `given`: the user's input; `before`: what is looked up beside it. `aside`: the calls in
    measures that are looked up for the answer."""

    pattern: RowPattern
    measures: tuple[tuple[str, str], ...]
    source: SourceFrame
    given: SourceFrame
    remotes: RemoteSources
    before: tuple[LookupRequest, ...] = ()
    aside: MeasureTexts = field(default_factory=lambda: MeasureTexts(()))

    @property
    def fetches(self) -> bool:
        """Whether anything is fetched before matching."""
        return any(not self.remotes.remotes[each.remote].is_table for each in self.before)

    def meanings(self) -> list[tuple[str, tuple[str, ...]]]:
        """The source and the keys of each looked-up column."""
        return [(each.remote, each.keys) for each in self.before]

    def observed_rows(self, observe: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """The input with its looked-up columns. `observe` gets the rows with their counts."""
        return _add_values(self.given.df, self.before, self.remotes, MetricsSink(observe))

    def typer(self, typer: Typer) -> Typer:
        """A typer that knows the types of the calls that are set aside."""
        if not self.aside.calls:
            return typer
        types = self.remotes.types()
        return PlaceholderTyper(typer, [types[remote] for remote, _ in self.aside.calls])

    def restore_texts(
        self, compiled: CompiledRowPattern, pattern: RowPattern, options: RowOptions
    ) -> tuple[CompiledRowPattern, tuple[LookupRequest, ...]]:
        """The compiled pattern with the user's own texts, and what is looked up for the answer."""
        define = {
            name.casefold(): str(text) for name, text in pattern.define if mentions_remote(text)
        }
        conditions = tuple(
            (text if text is None else define.get(each.name.casefold(), text), by_spark)
            for each, (text, by_spark) in zip(compiled.variables, compiled.conditions, strict=True)
        )
        texts, sql = dict(options.measures), {each.name: each.sql for each in compiled.measures}
        measures = tuple(
            replace(each, sql=over_lookup_columns(each.sql), text=texts[each.name])
            for each in compiled.measures
            if each.name in texts
        )
        restored = replace(compiled, conditions=conditions, measures=measures)
        return restored, self.aside.sought(sql)


def collect_row_lookups(
    source: SourceFrame, pattern: RowPattern, options: RowOptions
) -> RowLookups:
    """The texts for the compiler and the input that they read. Raises PatternError for calls of
    remote that are wrong."""
    remotes = RemoteSources(options.remotes, source.df.sparkSession)
    texts = [text for _, text in (*pattern.define, *options.measures)]
    if not any(map(mentions_remote, texts)):
        check_remotes_used(options.remotes, texts)
        return RowLookups(pattern, options.measures, source, source, remotes)
    types = remotes.types()
    problems, requests = Problems(), LookupRequests(types)
    defined = replace_define_calls(pattern, requests, problems)
    measures = replace_measure_calls(options.measures, pattern, requests, problems)
    aside = separate_remote_calls(measures, types, problems, _parse_measure)
    problems.raise_if_any()
    check_remotes_used(options.remotes, texts)
    columns = tuple(
        ColumnInfo(each.column, type_of(remotes.type(each.remote))) for each in requests.found
    )
    df = _add_values(source.df, requests.found, remotes)
    extended = replace(source, df=df, columns=(*source.columns, *columns))
    return RowLookups(defined, aside.texts, extended, source, remotes, tuple(requests.found), aside)


def _add_values(
    df: DataFrame,
    requests: Sequence[LookupRequest],
    remotes: RemoteSources,
    counts: MetricsSink | None = None,
) -> DataFrame:
    # Keys of another type may be looked up for the answer, in the same worker.
    return add_lookups(df, requests, replace(remotes, token=f"{remotes.token}-before"), counts)


def _parse_measure(text: str) -> ParsedExpression:
    """The parser of Spark SQL does not know RUNNING and FINAL, which a measure may have."""
    return parse_calls(text, Problems(), in_define=False).parsed
