"""What a pattern's conditions look up, put in its place: beside the rows, or into the program.

Keys that may fail are computed only where they are asked for: on rows that meet the variable's
other conditions on one row, as far as these look nothing up themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_cep.compiling.lookups import AskedRemote, Known, LookedUp, Lookups
from spark_cep.compiling.remote_calls import Sought
from spark_cep.errors import PatternError
from spark_cep.remotes.choice import Decided, decided, local
from spark_cep.remotes.collecting import collected
from spark_cep.remotes.outside import Sources, ddl, looked_up
from spark_cep.remotes.remote import Fetched
from spark_cep.remotes.spec import shipped
from spark_cep.remotes.value_types import arrow_of, key_types, shape_of
from spark_cep.shipping.prepare import mask
from spark_cep.shipping.typing_by_spark import data_type_of
from spark_cep.udfs.remotes.spec import Remote

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Compiled, RowExpression
    from spark_cep.remotes.stage import Counts
    from spark_cep.shipping.source import Source
    from spark_cep.shipping.typing_by_spark import SparkTyper

_MAY = "__cep_may_"


def lookups_of(sources: Sources, source: Source, typer: SparkTyper) -> Lookups:
    """The sources as the compiler knows them; columns that it makes are told to the typer."""
    known = {}
    for name, remote in sources.remotes.items():
        keys = None
        if (types := key_types(remote)) is not None:
            columns = remote.source.key  # type: ignore[union-attr]
            keys = tuple((c, shape_of(t)) for c, t in zip(columns, types, strict=True))
        known[name] = Known(name, shape_of(sources.type(name)), keys)

    def told(made: LookedUp) -> None:
        typer.add(made.name, ddl(sources.type(made.remote.name)))

    prefix = Lookups().prefix
    while any(name.casefold().startswith(prefix) for name in source.names()):
        prefix = f"_{prefix}"
    return Lookups(known, told, prefix, case_sensitive=source.case_sensitive)


def with_values(
    df: DataFrame, compiled: Compiled, sources: Sources, counts: Counts | None = None
) -> DataFrame:
    """The rows with a column for each value that is looked up before matching. What was counted
    of fetches goes by `counts`."""
    if not compiled.lookups:
        return df
    guarded = sorted({each.variable for each in compiled.lookups if each.variable is not None})
    if guarded:
        names = {each.name for each in compiled.lookups}
        may = [_may(compiled.masks[v], names).alias(f"{_MAY}{v}") for v in guarded]
        df = df.select("*", *may)
    before = replace(sources, token=f"{sources.token}-before")
    found = looked_up(df, [_sought(each) for each in compiled.lookups], before, counts)
    return found.drop(*[f"{_MAY}{variable}" for variable in guarded])


def fetches(compiled: Compiled) -> bool:
    """Whether anything is fetched before matching."""
    return any(not each.remote.is_table for each in compiled.lookups)


def _may(conditions: Sequence[RowExpression], columns: set[str]) -> Column:
    """Whether a row meets all conditions that read none of the columns."""
    own = [
        each
        for each in conditions
        if not (isinstance(each, str) and any(name in each for name in columns))
    ]
    return mask([own]) == F.lit(1) if own else F.lit(True)


def _sought(each: LookedUp) -> Sought:
    tests = [*each.guards] if each.variable is None else [f"{_MAY}{each.variable}", *each.guards]
    keys = each.keys
    if tests:
        keys = tuple(_under(tests, key) for key in keys)
    return Sought(each.remote.name, keys, each.name)


def _under(tests: Sequence[str], key: str) -> str:
    """Nested, so that a later test is not tried where an earlier one fails."""
    for test in reversed(tests):
        key = f"CASE WHEN {test} THEN {key} END"
    return key


# ---- what the engine asks ----------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A source that the engine asks, and why as it does."""

    remote: Remote
    how: Decided


def asked_of(compiled: Compiled, sources: Sources) -> tuple[Asked, ...]:
    """The sources of the program, by their place. Tables among them are collected now."""
    return tuple(_asked(each, compiled, sources) for each in compiled.remotes)


def decision(known: Known, compiled: Compiled, sources: Sources) -> Decided:
    """How the engine asks a source."""
    source = sources.remotes[known.name].source
    if not isinstance(source, Fetched):
        return local()
    return decided(source.strategy, source.caching, compiled.strategy, compiled.consumption)


def _asked(each: AskedRemote, compiled: Compiled, sources: Sources) -> Asked:
    name = each.remote.name
    given, how = sources.remotes[name], decision(each.remote, compiled, sources)
    # What measures look up may have keys of other types, and another strategy.
    token = f"{sources.token}-engine"
    types = [data_type_of(key) for key in each.keys]
    try:
        arrow = [arrow_of(type_) for type_ in types], arrow_of(sources.type(name))
    except PySparkException:
        raise PatternError(
            f"the remote {name!r} gives {each.remote.value.sql.upper()}, which cannot travel",
            hint="give a plain type, or a struct or an array of plain types",
        ) from None
    if isinstance(given.source, Fetched):
        return Asked(shipped(given, name, arrow, how, token), how)
    remote = Remote(
        name, collected(given, name, types, arrow), tuple(arrow[0]), arrow[1], how.strategy,
        how.caching, token=token, is_local=True,
    )  # fmt: skip
    return Asked(remote, how)
