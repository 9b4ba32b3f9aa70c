"""Remote lookups of a pattern: the sources, the lookup columns, the sources that the engine calls.

A remote value is either a column of the rows, `__cep_remote_0`, added before matching, or a
`RemoteCall` that the engine evaluates while it matches, by the source's index in `Program.remotes`.
Lookups with the same keys share one column. A key that can fail on some rows has a column for each
variable, because it is computed on that variable's rows only.
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
    """A type with the types of its parts. `sql`: its name; `element`: of an array."""

    type: Type
    sql: str
    fields: tuple[tuple[str, TypeTree], ...] = ()
    element: TypeTree | None = None

    def field(self, name: str, *, case_sensitive: bool) -> tuple[str, TypeTree] | None:
        """The field of a struct with its name as declared."""
        for own, shape in self.fields:
            if own == name or (not case_sensitive and own.casefold() == name.casefold()):
                return own, shape
        return None


@dataclass(frozen=True)
class RemoteSchema:
    """A remote source. `keys`: the key columns of a table; None for a source that takes any key."""

    name: str
    value: TypeTree
    keys: tuple[tuple[str, TypeTree], ...] | None = None

    @property
    def is_table(self) -> bool:
        return self.keys is not None


@dataclass(frozen=True)
class LookupColumn:
    """A remote value as column `name` of the rows. `keys`: SQL over an input row, computed only on
    rows where the single-row conditions of `variable` and all `guards` hold; `variable` None: on
    all rows, because the keys cannot fail."""

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
    """A source that the engine calls, with the types of its key."""

    remote: RemoteSchema
    keys: tuple[Type, ...]


@dataclass
class Lookups:
    """`known`: the sources by the names that the user gave. `on_new_column`: called with each new
    column. `asked`: the sources that the engine calls, by their index in the program."""

    known: Mapping[str, RemoteSchema] = field(default_factory=dict)
    on_new_column: Callable[[LookupColumn], None] = lambda _: None
    prefix: str = LOOKUP_PREFIX
    columns: list[LookupColumn] = field(default_factory=list)
    asked: list[EngineRemote] = field(default_factory=list)
    case_sensitive: bool = False
    _places: dict[str, tuple[Place, ...]] = field(default_factory=dict)

    def column(self, wanted: LookupColumn, places: Sequence[Place]) -> LookupColumn:
        """The column for these keys; the name in `wanted` is ignored."""
        for each in self.columns:
            if _meaning(each) == _meaning(wanted):
                return each
        made = LookupColumn(
            f"{self.prefix}{len(self.columns)}", wanted.remote, wanted.keys, wanted.variable,
            wanted.guards,
        )  # fmt: skip
        self.columns.append(made)
        self._places[made.name] = tuple(places)
        self.on_new_column(made)
        return made

    def of_column(self, name: str) -> RemoteSchema | None:
        """The source of a lookup column."""
        return next((each.remote for each in self.columns if each.name == name), None)

    def types(self) -> dict[str, Type]:
        """The types of the columns by their SQL."""
        return {quote_name(each.name): each.remote.value.type for each in self.columns}

    def name_calls(self, sentence: str) -> str:
        """A message of Spark with calls of remote() in place of the columns."""
        for each in reversed(self.columns):
            sentence = sentence.replace(f"`{each.name}`", each.name)
            sentence = sentence.replace(each.name, f"remote('{each.remote.name}', ...)")
        return sentence

    def place_of(self, remote: RemoteSchema, keys: tuple[Type, ...]) -> int | tuple[Type, ...]:
        """The source's index in the program; the earlier key types if they differ from `keys`."""
        for place, each in enumerate(self.asked):
            if each.remote.name == remote.name:
                return place if each.keys == keys else each.keys
        self.asked.append(EngineRemote(remote, keys))
        return len(self.asked) - 1

    def check_columns(self, typer: Typer, problems: Problems) -> None:
        """Reports keys that Spark cannot compare with a table's, or that a source cannot take."""
        for each in self.columns:
            probes = [_type_probe(each, place) for place in range(len(each.keys))]
            answers = typer.of_row([*each.keys, *probes])
            types, compared = answers[: len(probes)], answers[len(probes) :]
            found = zip(types, compared, self._places[each.name], strict=True)
            for number, (type_, answer, place) in enumerate(found):
                mismatch = _key_mismatch(each.remote, number, type_, answer)
                if mismatch is not None:
                    problems.add(mismatch[0], place, hint=mismatch[1])


def _meaning(each: LookupColumn) -> tuple[object, ...]:
    return each.remote.name, each.keys, each.variable, each.guards


def _type_probe(each: LookupColumn, place: int) -> str:
    key = each.keys[place]
    if each.remote.keys is None:
        return f"({key}) IS NULL"
    return f"({key}) = CAST(NULL AS {each.remote.keys[place][1].sql})"


def _key_mismatch(
    remote: RemoteSchema, number: int, type_: Type | str, answer: Type | str
) -> tuple[str, str | None] | None:
    """The message and hint for a key of the wrong type."""
    if isinstance(type_, str):
        return type_, None
    if remote.keys is not None and answer != BOOL:
        column, shape = remote.keys[number]
        return describe_key_mismatch(remote, type_, column, shape)
    if remote.keys is None and key_type(type_) is None:
        return describe_unfit_key(remote, type_)
    return None


def describe_key_mismatch(
    remote: RemoteSchema, type_: Type, column: str, shape: TypeTree
) -> tuple[str, str]:
    return (
        f"the key of {remote.name!r} is {name_of(type_)}, but its key column {column} is "
        f"{shape.sql.upper()}",
        "cast one of the two",
    )


def describe_unfit_key(remote: RemoteSchema, type_: Type) -> tuple[str, str]:
    return (
        f"the key of {remote.name!r} cannot be {name_of(type_)}",
        "a key must be a number, string, binary, boolean, date or timestamp",
    )


def key_type(type_: Type, column: Type | None = None, *, ansi: bool = True) -> Type | None:
    """The type in which a key is shipped, given the type of a table's key column if there is one.
    All integers are BIGINT and all floats DOUBLE, so that equal keys are equal in both places.

    >>> key_type(Type("int", 8))
    Type(kind='int', bits=64, precision=0, scale=0)
    """
    both = type_ if column is None else common_type(type_, column, ansi=ansi)
    if both is None or both.kind in _NO_KEYS or type_.kind in _NO_KEYS:
        return None
    return {"int": BIGINT, "float": DOUBLE}.get(both.kind, both)
