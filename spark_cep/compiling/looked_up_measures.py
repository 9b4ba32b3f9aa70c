"""Measures of event patterns with remote data in them: the same compiler, calls set aside.

    c.amount - remote('limits', c.org)     `c`.`amount` - `__cep_a0`, and `__cep_a0` is looked up
                                           for the key `c`.`org` on the matches

There are few matches, so there are few keys, which may be made of several variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_cep.compiling.measures import CompiledMeasures, Measure, compile_measures
from spark_cep.compiling.problems import Problems
from spark_cep.compiling.set_aside import KnowingTyper, over_columns, set_aside

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import ColumnInfo, Compiled, Typer


def compile_looked_up(  # noqa: PLR0913
    measures: Sequence[tuple[str, str]],
    compiled: Compiled,
    columns: Sequence[ColumnInfo],
    *,
    typer: Typer,
    case_sensitive: bool,
    types: Mapping[str, str],
) -> CompiledMeasures:
    """`types`: what each remote source gives, as DDL. Raises one PatternError with all problems
    of one kind: calls of remote first."""
    problems = Problems(subject="the measures have")
    aside = set_aside(measures, types, problems)
    problems.raise_if_any()
    found = compile_measures(
        aside.texts,
        compiled,
        columns,
        typer=KnowingTyper(typer, [types[remote] for remote, _ in aside.calls]),
        case_sensitive=case_sensitive,
    )
    texts = {each.name: each.text for each in found.measures}
    shown = tuple(Measure(name, over_columns(texts[name])) for name, _ in measures)
    return CompiledMeasures(shown, found.reads, aside.sought(texts))
