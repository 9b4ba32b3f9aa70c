"""The answer's shape: which columns the engine gives back, and as which Spark types.

Three shapes. "structs" is the default: one struct for each positive variable. "measures" has the
user's expressions instead, so only the columns that they read are shipped. "rows" is one row for
each matched event; the engine gives it directly, unless Spark has conditions left to test, which
need the structs.

Always holds: the names of an answer's columns are different, ignoring case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import types as T

from spark_cep.errors import PatternError
from spark_cep.shipping.typing_by_spark import quoted
from spark_cep.udfs.output import Field, Output, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from spark_cep.compiling.remote_calls import Sought
    from spark_cep.shipping.shipment import Shipment
    from spark_cep.udfs.program import Variable

Shape = Literal["structs", "measures", "rows"]

# A variable of which no column is needed still has to say whether it is filled.
PRESENT = "__cep_present"


@dataclass(frozen=True)
class Shown:
    """A measure. `sql` is over the variables' structs, `text` is what the user wrote."""

    name: str
    sql: str
    text: str


@dataclass(frozen=True)
class Answer:
    """`names` are the input's columns, `partition` the names of the partition columns. `sought`:
    what is looked up for matches before the measures are computed. `hidden`: variables' fields
    that Spark's conditions read and no answer shows."""

    shape: Shape
    output: Output
    names: tuple[str, ...]
    partition: tuple[str, ...]
    measures: tuple[Shown, ...] = ()
    sought: tuple[Sought, ...] = ()
    hidden: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What the answer is to hold. `reads`: the input columns that measures and Spark's
    conditions read of each variable id; None: all columns of all variables. `after`: those
    conditions. `sought`: remote data that the measures read. `hidden`: what conditions read of
    variables besides the input's columns."""

    shape: Shape
    measures: tuple[Shown, ...]
    reads: Mapping[int, Iterable[str]] | None
    after: tuple[str, ...] = ()
    sought: tuple[Sought, ...] = ()
    hidden: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Given:
    """What there is: the input's column names, the partition columns by name and shipped index,
    the shipped event time, and the variables that every match fills."""

    names: tuple[str, ...]
    partition: tuple[tuple[str, int], ...]
    order: int
    always: frozenset[int]


def answer_of(
    wanted: Wanted, variables: Sequence[Variable], given: Given, shipment: Shipment
) -> Answer:
    """Asks the shipment for the payload and lays out the engine's output."""
    names, order = given.names, given.order
    keys = tuple(Field(column, name) for name, column in given.partition)
    shown = tuple(name for name, _ in given.partition)
    everything: tuple[Field, ...] = ()
    if wanted.reads is None:
        everything = tuple(Field(shipment.column(quoted(name)), name) for name in names)
    if wanted.shape == "rows" and not wanted.after:
        output = Output("all", order, row=everything)
        return Answer("rows", output, names, shown)
    structs = tuple(
        Struct(
            number,
            (*everything, *_hidden(wanted, number, shipment))
            or _read(wanted, number, shipment, order),
            flat=not each.is_list and number in given.always,
        )
        for number, each in enumerate(variables)
        if not each.negated and _mentions(wanted, each.name)
    )
    output = Output(
        "one",
        order,
        structs=structs,
        partition=keys,
        bounds=_mentions(wanted, "match_start") or _mentions(wanted, "match_end"),
        numbered=wanted.shape == "rows",
    )
    hidden = wanted.hidden if everything else ()
    return Answer(wanted.shape, output, names, shown, wanted.measures, wanted.sought, hidden)


def _hidden(wanted: Wanted, number: int, shipment: Shipment) -> Iterator[Field]:
    """Where all columns are shown; among those that are read they are like any other."""
    if wanted.reads is None:
        for variable, name in wanted.hidden:
            if variable == number:
                yield Field(shipment.column(quoted(name)), name)


def _read(wanted: Wanted, number: int, shipment: Shipment, order: int) -> tuple[Field, ...]:
    names = sorted(set((wanted.reads or {}).get(number, ())))
    fields = tuple(Field(shipment.column(quoted(name)), name) for name in names)
    return fields or (Field(order, PRESENT),)


def _mentions(wanted: Wanted, name: str) -> bool:
    """Whether the name may stand in what Spark evaluates; all do in the default answer."""
    if wanted.shape != "measures":
        return True
    keys = [key for each in wanted.sought for key in each.keys]
    texts = [*(each.sql for each in wanted.measures), *wanted.after, *keys]
    return any(name.casefold() in text.casefold() for text in texts)


def check_names(
    wanted: Wanted, variables: Sequence[Variable], names: Sequence[str], partition: Sequence[str]
) -> None:
    """Refuses an answer with two columns of one name."""
    if wanted.shape == "rows":
        _check_rows(names)
        return
    taken = {name.casefold(): f"the partition column {name!r}" for name in partition}
    if wanted.shape == "measures":
        shown = [(each.name, f"the measure {each.name!r}") for each in wanted.measures]
        hint = "give the measure another name"
    else:
        shown = [
            (each.name, f"the variable {each.name!r}") for each in variables if not each.negated
        ]
        shown += [("match_start", "the column match_start"), ("match_end", "the column match_end")]
        hint = (
            "give the variable another name, rename the column, or say with measures= what to show"
        )
    for name, what in shown:
        other = taken.setdefault(name.casefold(), what)
        if other is not what:
            raise PatternError(
                f"the answer would have two columns called {name!r}: {other} and {what}", hint=hint
            )


def _check_rows(names: Sequence[str]) -> None:
    for name in names:
        if name.casefold() in {"match_id", "variable"}:
            raise PatternError(
                f'rows="all" adds a column {name.casefold()!r}, and the input has one already',
                hint=f'rename the input\'s: df.withColumnRenamed("{name}", "input_{name}")',
            )


def worker_schema(
    output: Output, variables: Sequence[Variable], shipped: T.StructType
) -> T.StructType:
    """The engine's output for Spark; `shipped` has the types as they travel."""
    columns = shipped.fields
    types: dict[str, T.DataType] = {"match_number": T.LongType(), "variable": T.IntegerType()}
    for each in output.structs:
        if each.flat:
            for name, field in zip(each.names(), each.fields, strict=True):
                types[name] = columns[field.column].dataType
            continue
        struct = struct_type(each.fields, shipped)
        is_list = variables[each.variable].is_list
        types[f"v{each.variable}"] = T.ArrayType(struct, False) if is_list else struct
    for place, field in enumerate(output.row):
        types[f"f{place}"] = columns[field.column].dataType
    for place, field in enumerate(output.partition):
        types[f"p{place}"] = columns[field.column].dataType
    types["first"] = types["last"] = columns[output.order].dataType
    types["metrics"] = T.StringType()
    return T.StructType([T.StructField(name, types[name]) for name in output.names()])


def struct_type(fields: Sequence[Field], columns: T.StructType) -> T.StructType:
    """A variable's struct, with the types and the nullability of `columns`."""
    chosen = [(field.name, columns.fields[field.column]) for field in fields]
    return T.StructType([T.StructField(name, c.dataType, c.nullable) for name, c in chosen])
