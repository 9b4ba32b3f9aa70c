"""Compiling patterns with remote data, without Spark: sources described by the types of their
values and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_cep.errors import PatternError
from spark_cep.expressions.lookups import LookupColumn, Lookups, RemoteSchema, TypeTree
from spark_cep.expressions.types import name_of
from spark_cep.udfs.expressions import BIGINT, DOUBLE, Type
from tests.compiling import COLUMNS, INFOS, Result, compiled
from tests.fake_typer import LocalTyper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spark_cep.expressions.schema import ColumnInfo
    from spark_cep.pattern import Pattern

TEXT = Type("string")
OTHER = Type("other")


def plain(type_: Type) -> TypeTree:
    return TypeTree(type_, name_of(type_).lower())


def array(element: Type) -> TypeTree:
    return TypeTree(OTHER, f"array<{name_of(element).lower()}>", element=plain(element))


def struct(**fields: TypeTree) -> TypeTree:
    shown = ",".join(f"{name}:{shape.sql}" for name, shape in fields.items())
    return TypeTree(OTHER, f"struct<{shown}>", tuple(fields.items()))


# A fetched source and a table for each kind of value.
VALUES = {
    "limit": plain(DOUBLE),
    "places": array(TEXT),
    "numbers": array(Type("int", 32)),
    "info": struct(max=plain(DOUBLE), region=plain(TEXT), tags=array(TEXT)),
}
SOURCES = {
    **{f"f_{name}": RemoteSchema(f"f_{name}", value) for name, value in VALUES.items()},
    **{
        f"t_{name}": RemoteSchema(f"t_{name}", value, (("name", plain(TEXT)),))
        for name, value in VALUES.items()
    },
    "pair": RemoteSchema("pair", plain(DOUBLE), (("name", plain(TEXT)), ("card", plain(BIGINT)))),
}


def looking(
    pattern: Pattern,
    *,
    sources: Mapping[str, RemoteSchema] = SOURCES,
    columns: Sequence[ColumnInfo] = INFOS,
    typer: LocalTyper | None = None,
    **options: Any,
) -> Result:
    known = typer or LocalTyper({c.name: c.type for c in columns})

    def told(made: LookupColumn) -> None:
        known._columns[made.name] = made.remote.value.type

    lookups = Lookups(sources, told)
    return compiled(pattern, columns=columns, typer=known, lookups=lookups, **options)


def problem(pattern: Pattern, **options: Any) -> Mapping[str, Any]:
    """The one thing that compiling complains about."""
    try:
        looking(pattern, **options)
    except PatternError as error:
        (found,) = error.details["problems"]  # type: ignore[misc]
        return dict(found)
    raise AssertionError("nothing is wrong with it")


def drawn(found: Mapping[str, Any]) -> str:
    """The text that the carets stand under."""
    start = found["column"] - 1
    return str(found["text"])[start : start + found["length"]]


assert set(COLUMNS) >= {"name", "card", "price"}
