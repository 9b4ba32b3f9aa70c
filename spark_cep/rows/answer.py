"""The answer of a row pattern: its columns in SQL's order, and how the engine gives them back.

    one row a match     partition columns, measures
    all rows            partition columns, order columns, measures, the input's other columns

An order column that is no plain column of the input is not shown. One that is named twice, or
that partitions too, is shown as often, as the standard has it; all other names differ, ignoring
case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.errors import PatternError
from spark_cep.expressions.names import quote_name
from spark_cep.udfs.output import Field, RowOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.expressions.schema import RowExpression
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.rows.compiled import CompiledRowPattern, RowMeasure


@dataclass(frozen=True)
class RowAnswer:
    """`before` and `after` the measures: indexes of the output's columns. `prefix`: how the engine
    names these columns. `sought`: what is looked up before the measures are computed, by keys over
    the readings."""

    output: RowOutput
    before: tuple[int, ...]
    after: tuple[int, ...]
    prefix: str
    sought: tuple[LookupRequest, ...] = ()

    def names(self, measures: Sequence[RowMeasure]) -> list[str]:
        """The columns of the answer."""
        columns = self.output.columns
        return [
            *(columns[place].name for place in self.before),
            *(each.name for each in measures),
            *(columns[place].name for place in self.after),
        ]


def lay_out_row_answer(
    compiled: CompiledRowPattern,
    shipment: Shipment,
    shown: Sequence[tuple[str, int]],
    *,
    names: Sequence[str],
    sought: tuple[LookupRequest, ...] = (),
) -> RowAnswer:
    """Requests the payload from the shipment and lays out the engine's output. `shown`: the
    partition columns by name, each with its shipped column; `names`: the input's columns."""
    if compiled.rows == "one":
        keys = tuple(Field(column, name) for name, column in shown)
        answer = RowAnswer(RowOutput(keys), tuple(range(len(keys))), (), "p", sought)
    else:
        fields = tuple(Field(shipment.column(quote_name(name)), name) for name in names)
        ordered = [_plain_column(each.expression, names) for each in compiled.orders]
        first = [names.index(each) for each in (*compiled.partition, *filter(None, ordered))]
        rest = tuple(place for place in range(len(names)) if place not in first)
        answer = RowAnswer(RowOutput(fields), tuple(first), rest, "r", sought)
    _check_names(answer, compiled)
    return answer


def _plain_column(expression: RowExpression, names: Sequence[str]) -> str | None:
    """The input column that an order is, if it is one."""
    text = str(expression).removeprefix("Column<'").removesuffix("'>")
    return next((name for name in names if text in {quote_name(name), name}), None)


def _check_names(answer: RowAnswer, compiled: CompiledRowPattern) -> None:
    columns = answer.output.columns
    shown = [columns[place].name for place in (*answer.before, *answer.after)]
    taken = {name.casefold(): f"the column {name!r}" for name in shown}
    for each in compiled.measures:
        other = taken.setdefault(each.name.casefold(), "")
        if other:
            raise PatternError(
                f"the answer would have two columns called {each.name!r}: {other} and the measure",
                hint="give the measure another name",
            )
    if not taken:
        raise PatternError(
            "there is nothing to show: no measures, and no partition columns",
            hint='say what to show of a match, measures={"last": "LAST(b.price)"}, or ask for '
            'rows="all"',
        )
