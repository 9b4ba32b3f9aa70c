"""Aggregates of measures that Spark computes over the rows of a match.

The engine returns lists of what an aggregate reads, one for each column. Spark explodes them and
groups them by the row of the answer, with the user's own text of the aggregate. So every aggregate
of Spark can be used, with DISTINCT, FILTER and WITHIN GROUP, and those of the session. Those in
Python (pandas UDFs) stand in no GROUP BY with others and have no FILTER, so each of these functions
is grouped by itself, over the elements that it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.expressions.problems import Place, Problems
    from spark_cep.expressions.schema import Typer


@dataclass(frozen=True)
class PythonGroup:
    """Aggregates in Python that can be computed together: calls of one `function` over the elements
    that meet `condition`."""

    function: str
    condition: str


@dataclass(frozen=True)
class SparkAggregate:
    """`sql`: over the elements of lists, by the names of the readings (`reading_name`), and over
    other readings by theirs. `readings`: all of them. `rows`: a list with an element for each row
    of the aggregate; an element that is there is marked by `presence_name(rows)`. `python`: of an
    aggregate in Python, whose `sql` has no FILTER."""

    sql: str
    readings: tuple[int, ...]
    rows: int
    python: PythonGroup | None = None


@dataclass(frozen=True)
class AggregateSample:
    """The aggregate over input rows, for its type, and the user's text."""

    sql: str
    place: Place


def aggregate_name(number: int) -> str:
    """What a measure calls an aggregate of Spark.

    >>> aggregate_name(0)
    '__cep_g0'
    """
    return f"__cep_g{number}"


def presence_name(rows: int) -> str:
    """The column that tells whether the list `rows` has the element.

    >>> presence_name(3)
    '__cep_in3'
    """
    return f"__cep_in{rows}"


def check_spark_aggregates(
    samples: Sequence[AggregateSample], typer: Typer, problems: Problems
) -> bool:
    """Whether Spark takes all of them; `typer` knows their types then."""
    answers = typer.add_aggregates(
        [(aggregate_name(number), each.sql) for number, each in enumerate(samples)]
    )
    for each, answer in zip(samples, answers, strict=True):
        if answer is not None:
            problems.add(answer, each.place, hint=order_hint(answer))
    return not any(answers)


def with_user_texts(message: str, samples: Sequence[AggregateSample]) -> str:
    """The message with the user's texts in place of the names of aggregates."""
    for number, each in reversed(list(enumerate(samples))):
        shown = each.place.text[each.place.start : each.place.end]
        message = message.replace(aggregate_name(number), shown)
    return message


def order_hint(answer: str) -> str | None:
    """What to write where Spark says that an aggregate has no WITHIN GROUP.

    >>> print(str(order_hint("It does not support WITHIN GROUP."))[:9])
    remove it
    >>> order_hint("There is no such function.")
    """
    if "does not support WITHIN GROUP" not in answer:
        return None
    return (
        "remove it: the rows come in the order of the match; for another order write "
        "array_sort(array_agg(struct(b.ts, b.price))), or listagg(b.price, ',') WITHIN GROUP "
        "(ORDER BY b.ts)"
    )


def is_of_python(answer: object) -> bool:
    """Whether Spark says of a call with DISTINCT or FILTER that it is an aggregate in Python.

    >>> is_of_python("Function pythonudaf does not support FILTER clause.")
    True
    """
    return isinstance(answer, str) and "pythonudaf" in answer
