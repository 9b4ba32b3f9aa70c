"""What a pattern looks up: the remote sources that are given, and what is asked of each.

A value comes in one of two ways. As a column of the rows, `__cep_remote_0`, put there before
matching: then it is a column like any other. Or by a call of the engine, which fetches while it
matches: a `RemoteCall`, of a source that has its place in `Program.remotes`.

Always holds: what is looked up by the same keys is one column; a key that could fail on some rows
is a column of its own for each variable, because it is computed on that variable's rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_cep.expressions.names import quote_name
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.expressions.types import common_type, name_of
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Type

if TYPE_CHECKING:
    from spark_cep.expressions.problems import Place, Problems
    from spark_cep.expressions.schema import Typer


LOOKUP_PREFIX = "__cep_remote_"
_NO_KEYS = frozenset({"other", "null", "months"})


@dataclass(frozen=True)
class TypeTree:
    """A type down to its parts. `sql` names it; `element`: of an array."""

    type: Type
    sql: str
    fields: tuple[tuple[str, TypeTree], ...] = ()
    element: TypeTree | None = None

    def field(self, name: str, *, case_sensitive: bool) -> tuple[str, TypeTree] | None:
        """The field of a struct, and how it is spelled."""
        for own, shape in self.fields:
            if own == name or (not case_sensitive and own.casefold() == name.casefold()):
                return own, shape
        return None


@dataclass(frozen=True)
class RemoteSchema:
    """A remote source. `keys`: a table's key columns by name; None: any keys are taken."""

    name: str
    value: TypeTree
    keys: tuple[tuple[str, TypeTree], ...] | None = None

    @property
    def is_table(self) -> bool:
        return self.keys is not None


@dataclass(frozen=True)
class LookupColumn:
    """A value as column `name` of the rows. `keys`: SQL over an input row. They are computed only
    on rows where all conditions of `variable` on one row hold, and all `guards`; `variable` None:
    on all rows, for they cannot fail."""

    name: str
    remote: RemoteSchema
    keys: tuple[str, ...]
    variable: int | None = None
    guards: tuple[str, ...] = ()

    @property
    def column(self) -> ColumnInfo:
        return ColumnInfo(self.name, self.remote.value.type)


@dataclass(frozen=True)
class EngineRemote:
    """A source that the engine asks, and the types of its key's parts."""

    remote: RemoteSchema
    keys: tuple[Type, ...]


@dataclass
class Lookups:
    """`known`: the sources by the names that the user gave. `told`: is told of each new column,
    whoever has to know its type."""

    known: Mapping[str, RemoteSchema] = field(default_factory=dict)
    told: Callable[[LookupColumn], None] = lambda _: None
    prefix: str = LOOKUP_PREFIX
    columns: list[LookupColumn] = field(default_factory=list)
    asked: list[EngineRemote] = field(default_factory=list)
    case_sensitive: bool = False
    _places: dict[str, tuple[Place, ...]] = field(default_factory=dict)

    def column(self, wanted: LookupColumn, places: Sequence[Place]) -> LookupColumn:
        """The column for these keys; its name in `wanted` does not count."""
        for each in self.columns:
            if _meaning(each) == _meaning(wanted):
                return each
        made = LookupColumn(
            f"{self.prefix}{len(self.columns)}", wanted.remote, wanted.keys, wanted.variable,
            wanted.guards,
        )  # fmt: skip
        self.columns.append(made)
        self._places[made.name] = tuple(places)
        self.told(made)
        return made

    def of_column(self, name: str) -> RemoteSchema | None:
        """The source that an internal column comes from."""
        return next((each.remote for each in self.columns if each.name == name), None)

    def types(self) -> dict[str, Type]:
        """Of the columns, by their text."""
        return {quote_name(each.name): each.remote.value.type for each in self.columns}

    def said(self, sentence: str) -> str:
        """What Spark says, about calls instead of columns that nobody wrote."""
        for each in reversed(self.columns):
            sentence = sentence.replace(f"`{each.name}`", each.name)
            sentence = sentence.replace(each.name, f"remote('{each.remote.name}', ...)")
        return sentence

    def place_of(self, remote: RemoteSchema, keys: tuple[Type, ...]) -> int | tuple[Type, ...]:
        """The source's place in the program; else the types that it was asked with before."""
        for place, each in enumerate(self.asked):
            if each.remote.name == remote.name:
                return place if each.keys == keys else each.keys
        self.asked.append(EngineRemote(remote, keys))
        return len(self.asked) - 1

    def check_columns(self, typer: Typer, problems: Problems) -> None:
        """Whether Spark can compare the keys with those of a table, or pass them on."""
        for each in self.columns:
            asked = [_question(each, place) for place in range(len(each.keys))]
            answers = typer.of_row([*each.keys, *asked])
            types, compared = answers[: len(asked)], answers[len(asked) :]
            found = zip(types, compared, self._places[each.name], strict=True)
            for number, (type_, answer, place) in enumerate(found):
                wrong = _wrong_key(each.remote, number, type_, answer)
                if wrong is not None:
                    problems.add(*wrong[:1], place, hint=wrong[1])


def _meaning(each: LookupColumn) -> tuple[object, ...]:
    return each.remote.name, each.keys, each.variable, each.guards


def _question(each: LookupColumn, place: int) -> str:
    key = each.keys[place]
    if each.remote.keys is None:
        return f"({key}) IS NULL"
    return f"({key}) = CAST(NULL AS {each.remote.keys[place][1].sql})"


def _wrong_key(
    remote: RemoteSchema, number: int, type_: Type | str, answer: Type | str
) -> tuple[str, str | None] | None:
    """What is wrong with a key, and a hint."""
    if isinstance(type_, str):
        return type_, None
    if remote.keys is not None and answer != BOOL:
        column, shape = remote.keys[number]
        return (
            f"the key of {remote.name!r} is {name_of(type_)}, and its column {column} is "
            f"{shape.sql.upper()}",
            "cast one of the two",
        )
    if remote.keys is None and key_type(type_) is None:
        return describe_unfit_key(remote, type_)
    return None


def describe_unfit_key(remote: RemoteSchema, type_: Type) -> tuple[str, str]:
    return (
        f"{name_of(type_)} is no key that {remote.name!r} can be asked with",
        "keys are numbers, strings, binaries, booleans, dates and times",
    )


def key_type(type_: Type, column: Type | None = None, *, ansi: bool = True) -> Type | None:
    """The type in which a key travels, beside a table's column if there is one. Whole numbers
    have one type, and so have floats, so that equal keys are one key wherever they come from.

    >>> key_type(Type("int", 8))
    Type(kind='int', bits=64, precision=0, scale=0)
    """
    both = type_ if column is None else common_type(type_, column, ansi=ansi)
    if both is None or both.kind in _NO_KEYS or type_.kind in _NO_KEYS:
        return None
    return {"int": BIGINT, "float": DOUBLE}.get(both.kind, both)
