"""What a row pattern looks up: on its input before matching, and for its answer.

The compiler of row patterns knows nothing of it: it is given an input with looked-up columns, and
texts that read them (`compiling/rows/looked_up.py`), and measures whose other calls stand aside
(`compiling/set_aside.py`). What it says of the user's texts is said of them as written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spark_cep.compiling.compiled import ColumnInfo
from spark_cep.compiling.problems import Problems
from spark_cep.compiling.remote_calls import Seeking, mentions
from spark_cep.compiling.rows.calls import calls_of
from spark_cep.compiling.rows.looked_up import with_columns, with_columns_inside
from spark_cep.compiling.set_aside import Aside, KnowingTyper, over_columns, set_aside
from spark_cep.remotes.given import check_used
from spark_cep.remotes.outside import Sources, looked_up
from spark_cep.remotes.stage import Counts
from spark_cep.shipping.typing_by_spark import type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from spark_cep.compiling.compiled import Typer
    from spark_cep.compiling.remote_calls import Sought
    from spark_cep.compiling.rows.compiled import CompiledRows
    from spark_cep.compiling.spans import Parsed
    from spark_cep.options import RowOptions
    from spark_cep.row_patterns import RowPattern
    from spark_cep.shipping.source import Source


@dataclass(frozen=True)
class Looking:
    """`pattern`, `measures`: the texts that the compiler gets, `source` the input whose columns
    they read. `given`: the input as it was given; `before`: what is looked up beside it."""

    pattern: RowPattern
    measures: tuple[tuple[str, str], ...]
    source: Source
    given: Source
    sources: Sources
    before: tuple[Sought, ...] = ()
    aside: Aside = field(default_factory=lambda: Aside(()))

    @property
    def fetches(self) -> bool:
        """Whether anything is fetched before matching."""
        return any(not self.sources.remotes[each.remote].is_table for each in self.before)

    def known_by(self) -> list[tuple[str, ...]]:
        """What the looked-up columns mean."""
        return [(each.remote, *each.keys) for each in self.before]

    def rows(self, take: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """The input with its looked-up columns; what was counted goes by `take`."""
        return _with_values(self.given.df, self.before, self.sources, Counts(take))

    def typer(self, typer: Typer) -> Typer:
        """A typer that knows what the measures' calls give."""
        if not self.aside.calls:
            return typer
        types = self.sources.types()
        return KnowingTyper(typer, [types[remote] for remote, _ in self.aside.calls])

    def finished(
        self, compiled: CompiledRows, asked: tuple[RowPattern, RowOptions]
    ) -> tuple[CompiledRows, tuple[Sought, ...]]:
        """What the compiler made of it, about the user's own texts; and what is looked up for
        the answer."""
        pattern, options = asked
        define = {name.casefold(): str(text) for name, text in pattern.define if mentions(text)}
        conditions = tuple(
            (text if text is None else define.get(each.name.casefold(), text), by_spark)
            for each, (text, by_spark) in zip(compiled.variables, compiled.conditions, strict=True)
        )
        texts, sql = dict(options.measures), {each.name: each.sql for each in compiled.measures}
        shown = tuple(
            replace(each, sql=over_columns(each.sql), text=texts[each.name])
            for each in compiled.measures
            if each.name in texts
        )
        own = replace(compiled, conditions=conditions, measures=shown)
        return own, self.aside.sought(sql)


def looking(source: Source, pattern: RowPattern, options: RowOptions) -> Looking:
    """Says what is wrong with calls of remote; else the texts and the input that they read."""
    sources = Sources(options.remotes, source.df.sparkSession)
    texts = [text for _, text in (*pattern.define, *options.measures)]
    if not any(map(mentions, texts)):
        check_used(options.remotes, texts)
        return Looking(pattern, options.measures, source, source, sources)
    types = sources.types()
    problems, seeking = Problems(), Seeking(types)
    defined = with_columns(pattern, seeking, problems)
    measures = with_columns_inside(options.measures, pattern, seeking, problems)
    aside = set_aside(measures, types, problems, _read)
    problems.raise_if_any()
    check_used(options.remotes, texts)
    found = tuple(
        ColumnInfo(each.column, type_of(sources.type(each.remote))) for each in seeking.found
    )
    df = _with_values(source.df, seeking.found, sources)
    extended = replace(source, df=df, columns=(*source.columns, *found))
    return Looking(defined, aside.texts, extended, source, sources, tuple(seeking.found), aside)


def _with_values(
    df: DataFrame, sought: Sequence[Sought], sources: Sources, counts: Counts | None = None
) -> DataFrame:
    # Keys of another type may be asked for the answer, in the same worker.
    return looked_up(df, sought, replace(sources, token=f"{sources.token}-before"), counts)


def _read(text: str) -> Parsed:
    """RUNNING and FINAL are words that no parser knows."""
    return calls_of(text, Problems(), in_define=False).parsed
