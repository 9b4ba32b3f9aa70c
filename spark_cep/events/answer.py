"""The shape of an event pattern's answer: what is shown, and what the engine gives back for it.

Three shapes. "structs" is the default: one struct for each positive variable. "measures" has the
user's expressions instead, so only the columns that they read are shipped. "rows" is one row for
each matched event; the engine gives it directly, unless Spark has conditions left to test, which
need the structs.

Always holds: the names of an answer's columns are different, ignoring case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_cep.errors import PatternError
from spark_cep.expressions.names import quote_name
from spark_cep.udfs.output import EventOutput, Field, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.udfs.program import Variable


AnswerKind = Literal["structs", "measures", "rows"]

# A variable of which no column is needed still has to say whether it is filled.
PRESENT_FIELD = "__cep_present"

# Columns that say which row of the input a row is: by these its payload is found again.
IDENTITY = ("__cep_file", "__cep_path", "__cep_number")


@dataclass(frozen=True)
class AnswerMeasure:
    """A measure. `sql` is over the variables' structs, `text` is what the user wrote."""

    name: str
    sql: str
    text: str


@dataclass(frozen=True)
class AnswerShape:
    """`names` are the input's columns, `partition` the names of the partition columns. `sought`:
    what is looked up for matches before the measures are computed. `hidden`: fields of variables
    that Spark's conditions read and no answer shows."""

    shape: AnswerKind
    output: EventOutput
    names: tuple[str, ...]
    partition: tuple[str, ...]
    measures: tuple[AnswerMeasure, ...] = ()
    sought: tuple[LookupRequest, ...] = ()
    hidden: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class AnswerMeasures:
    """The measures of an answer. `reads`: the input columns that they and Spark's conditions read
    of each variable id. `sought`: remote data that they read."""

    measures: tuple[AnswerMeasure, ...]
    reads: Mapping[int, Iterable[str]]
    sought: tuple[LookupRequest, ...] = ()

    def mention(self, name: str, after: Sequence[str]) -> bool:
        """Whether the name may stand in what Spark evaluates, its conditions included."""
        keys = [key for each in self.sought for key in each.keys]
        texts = [*(each.sql for each in self.measures), *after, *keys]
        return any(name.casefold() in text.casefold() for text in texts)


def lay_out_answer(  # noqa: PLR0913 - all that an answer is made of
    compiled: CompiledPattern,
    shipment: Shipment,
    shown: Sequence[tuple[str, int]],
    *,
    names: Sequence[str],
    rows: Literal["one", "all"] = "one",
    measures: AnswerMeasures | None = None,
) -> AnswerShape:
    """Requests the payload from the shipment and lays out the engine's output. `shown`: the
    partition columns by name, each with its shipped column; `names`: the input's columns."""
    partition = tuple(name for name, _ in shown)
    _check_names(compiled.variables, names, partition, rows=rows, measures=measures)
    if measures is not None:
        output = _measured_output(compiled, shipment, shown, measures)
        return AnswerShape(
            "measures", output, tuple(names), partition, measures.measures, measures.sought
        )
    if rows == "all":
        names = (*(each for each in partition if each not in names), *names)
    payload = tuple(Field(shipment.column(quote_name(name)), name) for name in names)
    order = shipment.column(compiled.orders[0].expression)
    if rows == "all" and not compiled.after:
        return AnswerShape("rows", EventOutput("all", order, row=payload), tuple(names), partition)
    flat = _flat_variables(compiled)
    structs = []
    for number, each in enumerate(compiled.variables):
        if not each.negated:
            fields = (*payload, *_hidden_fields(compiled, number, shipment))
            structs.append(Struct(number, fields, number in flat))
    output = EventOutput(
        "one",
        order,
        structs=tuple(structs),
        partition=tuple(Field(column, name) for name, column in shown),
        numbered=rows == "all",
    )
    shape: AnswerKind = "rows" if rows == "all" else "structs"
    return AnswerShape(shape, output, tuple(names), partition, hidden=compiled.hidden)


def lay_out_identities(
    compiled: CompiledPattern,
    shipment: Shipment,
    shown: Sequence[tuple[str, int]],
    *,
    names: Sequence[str],
    reads: Mapping[int, Iterable[str]],
) -> AnswerShape:
    """The answer of `lay_out_answer` for structs, but with the identities of rows instead of their
    payload. `reads`: the columns that Spark's conditions on matches read of each variable id."""
    identity = tuple(Field(shipment.added_column(name), name) for name in IDENTITY)
    order = shipment.column(compiled.orders[0].expression)
    flat = _flat_variables(compiled)
    structs = []
    for number, each in enumerate(compiled.variables):
        if not each.negated:
            fields = [
                Field(shipment.column(quote_name(name)), name)
                for name in sorted(set(reads.get(number, ())))
            ]
            structs.append(Struct(number, (*identity, *fields), number in flat))
    partition = tuple(Field(column, name) for name, column in shown)
    output = EventOutput("one", order, structs=tuple(structs), partition=partition, numbered=False)
    return AnswerShape("structs", output, tuple(names), tuple(name for name, _ in shown))


def _measured_output(
    compiled: CompiledPattern,
    shipment: Shipment,
    shown: Sequence[tuple[str, int]],
    measures: AnswerMeasures,
) -> EventOutput:
    """Only what measures and Spark's conditions read."""
    flat = _flat_variables(compiled)
    order = shipment.column(compiled.orders[0].expression)
    structs = []
    for number, each in enumerate(compiled.variables):
        if each.negated or not measures.mention(each.name, compiled.after):
            continue
        reads = sorted(set(measures.reads.get(number, ())))
        fields = tuple(Field(shipment.column(quote_name(name)), name) for name in reads)
        structs.append(Struct(number, fields or (Field(order, PRESENT_FIELD),), number in flat))
    return EventOutput(
        "one",
        order,
        structs=tuple(structs),
        partition=tuple(Field(column, name) for name, column in shown),
        bounds=any(measures.mention(name, compiled.after) for name in ("match_start", "match_end")),
        numbered=False,
    )


def _flat_variables(compiled: CompiledPattern) -> frozenset[int]:
    """The variables that every match fills with one row."""
    always = frozenset.intersection(*(branch.filled() for branch in compiled.branches))
    return frozenset(number for number in always if not compiled.variables[number].is_list)


def _hidden_fields(compiled: CompiledPattern, number: int, shipment: Shipment) -> tuple[Field, ...]:
    """What Spark's conditions read of the variable besides the input's columns."""
    return tuple(
        Field(shipment.column(quote_name(name)), name)
        for variable, name in compiled.hidden
        if variable == number
    )


def _check_names(
    variables: Sequence[Variable],
    names: Sequence[str],
    partition: Sequence[str],
    *,
    rows: str,
    measures: AnswerMeasures | None,
) -> None:
    """Refuses an answer with two columns of one name."""
    if rows == "all":
        _check_event_rows(names)
        return
    taken = {name.casefold(): f"the partition column {name!r}" for name in partition}
    if measures is not None:
        shown = [(each.name, f"the measure {each.name!r}") for each in measures.measures]
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


def _check_event_rows(names: Sequence[str]) -> None:
    for name in names:
        if name.casefold() in {"match_id", "variable"}:
            raise PatternError(
                f'rows="all" adds a column {name.casefold()!r}, and the input has one already',
                hint=f'rename the input\'s: df.withColumnRenamed("{name}", "input_{name}")',
            )
