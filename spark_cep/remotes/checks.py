"""What the arguments of `cep.Remote` must be, said where they are given."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from typing import Literal as Choice

from spark_cep.adapt import is_number
from spark_cep.cache import caching
from spark_cep.compiling.problems import listed, nearest
from spark_cep.compiling.windows import window_of
from spark_cep.errors import PatternError
from spark_cep.pattern import Within
from spark_cep.udfs.expressions import Type

__all__ = ["Wish", "caching"]

Wish = Choice["blocking", "cached", "post", "prefetch", "lazy", "hybrid", "auto"]

STRATEGIES: tuple[Wish, ...] = ("auto", "blocking", "cached", "post", "prefetch", "lazy", "hybrid")
_EXAMPLE = 'cep.Remote.table(df, key="org", value="limit")'
_T = TypeVar("_T")


def table(
    df: Any, key: object, value: object
) -> tuple[tuple[str, ...], str | tuple[str, ...] | None]:
    """The key columns and what is the value, spelled as the table spells them."""
    if not hasattr(df, "sparkSession") or not hasattr(df, "mapInArrow"):
        raise PatternError(
            f"Remote.table takes a DataFrame, not {type(df).__name__}", hint=_EXAMPLE
        )
    if df.isStreaming:
        raise PatternError(
            "a remote table cannot be a stream: its values are constant during a query",
            hint="join the two streams before matching, or look values up with cep.Remote.fetch",
        )
    keys = tuple(_column(df, name) for name in _names("key", key))
    if not keys:
        raise PatternError("the remote table has no key", hint=_EXAMPLE)
    if value is None:
        rest = tuple(name for name in df.columns if name not in keys)
        if not rest:
            raise PatternError(
                "the remote table has no column besides its key",
                hint="add the column that is to be looked up",
            )
        return keys, None
    if isinstance(value, str):
        return keys, _column(df, value)
    values = tuple(_column(df, name) for name in _names("value", value))
    if not values:
        raise PatternError("value names no column", hint=_EXAMPLE)
    return keys, values


def _names(what: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        folded = [each.casefold() for each in value]
        if len(set(folded)) < len(folded):
            raise PatternError(f"{what} names a column twice: {listed(value)}", hint=_EXAMPLE)
        return list(value)
    raise PatternError(
        f"{what} takes the name of a column or a list of names, not {value!r}", hint=_EXAMPLE
    )


def _column(df: Any, name: str) -> str:
    """The table's own spelling."""
    columns: list[str] = df.columns
    found = [each for each in columns if each == name]
    found = found or [each for each in columns if each.casefold() == name.casefold()]
    if len(found) == 1:
        return found[0]
    if found:
        message = f"{name} is ambiguous: the remote table has {len(found)} columns of this name"
        raise PatternError(message, hint="rename one of them: df.withColumnRenamed(...)")
    meant = nearest(name, columns)
    hint = f"did you mean {meant}?" if meant else f"its columns are {listed(columns)}"
    raise PatternError(f"the remote table has no column {name}", hint=hint)


def function(name: str, fn: object) -> None:
    """It must be one, and it must be able to travel to the workers."""
    if not callable(fn):
        raise PatternError(
            f"{name} takes a function, not {type(fn).__name__}",
            hint='cep.Remote.fetch(lambda keys: {key: ... for key in keys}, value_type="double")',
        )
    from spark_cep.remotes.travelling import hindrance  # noqa: PLC0415 - it loads pyspark

    what = hindrance(fn)
    if what is not None:
        raise PatternError(
            f"{name} cannot travel to the workers: {what}",
            hint="open connections and sessions inside the function, where it runs; hand it "
            "addresses and names only",
        )


def ddl(value_type: object) -> str:
    text = value_type if isinstance(value_type, str) else None
    if text is None and hasattr(value_type, "simpleString") and not isinstance(value_type, type):
        text = str(value_type.simpleString())
    if text is None or not text.strip():
        raise PatternError(
            f"value_type is {value_type!r}",
            hint='it is a type of Spark SQL: "double", "array<string>", '
            '"struct<max: double, region: string>"',
        )
    return text.strip()


def one_of(what: str, value: Any, known: Collection[_T]) -> _T:
    for each in known:
        if isinstance(value, str) and each == value:
            return each
    names = [str(each) for each in known]
    meant = nearest(value, names) if isinstance(value, str) else None
    hint = f'did you mean "{meant}"? ' if meant else ""
    choices = ", ".join(f'"{each}"' for each in names)
    raise PatternError(f"{value!r} is no {what} of a remote", hint=f"{hint}there are {choices}")


def count(what: str, value: object, least: int = 1) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise PatternError(f"{what} is {value!r}", hint=f"{what} is a whole number, {least} or more")


def seconds(what: str, value: Any) -> float:
    """A duration as text, or a number of seconds."""
    found = math.nan
    if is_number(value):
        found = float(value)
    elif isinstance(value, str | timedelta):
        try:
            found = window_of(Within(value), Type("timestamp")).size / 1_000_000
        except PatternError:
            found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise PatternError(
            f"{what} is {value!r}",
            hint=f'{what} is a time above 0: "10 seconds", or a number of seconds',
        )
    return found
