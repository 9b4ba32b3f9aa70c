"""Aggregates of row patterns that Spark computes over the lists of the engine's answer.

    rows of the answer -> exploded lists -> grouped by the row of the answer -> the rows again

One shuffle of the exploded rows; no join, because one of the exploded rows carries the rest of the
answer's row. Aggregates in Python are grouped by themselves, for one more shuffle of the answer. A
row of the answer is known by its place in the input, not by a number that Spark counts up, so that
it is the same row when a task is repeated.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from spark_cep.rows.compiled import reading_name
from spark_cep.rows.spark_aggregates import aggregate_name, presence_name
from spark_cep.spark.selection import Expression, quote_column, select_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from spark_cep.rows.compiled import CompiledRowPattern, RowAnswer
    from spark_cep.rows.spark_aggregates import PythonGroup, SparkAggregate

_FIRST, _ROW = "__cep_first", "__cep_row"
_KEPT, _PLACE, _ELEMENT = "__cep_kept", "__cep_place", "__cep_element"
_DONE = "__cep_done"
_READING = re.compile(r"__cep_m\d+")


def place_columns(compiled: CompiledRowPattern) -> list[tuple[Expression, str]]:
    """What tells rows of the answer apart, beside the partition columns: the places of the match
    and of the row."""
    if not compiled.aggregates:
        return []
    found: list[tuple[Expression, str]] = [("first_row", _FIRST)]
    if compiled.rows != "one":
        found.append(("row", _ROW))
    return found


def aggregate_lists(
    decoded: DataFrame, compiled: CompiledRowPattern, answer: RowAnswer
) -> DataFrame:
    """The rows with the aggregates in place of the lists that nothing else reads. `decoded`: the
    columns of the answer, the readings and `place_columns`."""
    aggregates = compiled.aggregates
    places = [name for _, name in place_columns(compiled)]
    keys = [f"__cep_{place}" for place in answer.keys] + places
    readings = dict.fromkeys(number for each in aggregates for number in each.readings)
    is_list = {number: compiled.readings[number].shape == "list" for number in readings}
    lists = [number for number in readings if is_list[number]]
    single = [reading_name(number) for number in readings if not is_list[number]]
    rows = list(dict.fromkeys(each.rows for each in aggregates))

    others = _other_columns(decoded.columns, compiled, lists, places) or keys[:1]
    names = [*map(reading_name, lists), *map(presence_name, rows)]
    marked = decoded.select(
        "*",
        *[
            F.expr(f"transform({reading_name(number)}, __cep_v -> TRUE)").alias(
                presence_name(number)
            )
            for number in rows
        ],
    )
    elements = marked.select(
        *keys,
        *single,
        F.struct(*others).alias(_KEPT),
        F.posexplode_outer(F.arrays_zip(*names)).alias(_PLACE, _ELEMENT),
    )
    # One of the exploded rows carries the rest of the row: the shuffle moves all of them.
    items: list[tuple[Expression, str]] = [
        (f"CASE WHEN coalesce({_PLACE}, 0) = 0 THEN {_KEPT} END", _KEPT),
        *((f"{_ELEMENT}.{name}", name) for name in names),
    ]
    rows_of_lists = select_named(elements, items, beside=[*keys, *single, _PLACE])
    by_key = [F.col(quote_column(each)) for each in keys]
    of_spark = [number for number, each in enumerate(aggregates) if each.python is None]
    in_python = len(of_spark) < len(aggregates)
    if in_python:
        rows_of_lists = rows_of_lists.repartition(*by_key)
    grouped = (
        (_with_all_columns(rows_of_lists, "TRUE") if in_python else rows_of_lists)
        .groupBy(*by_key)
        .agg(
            F.first(_KEPT, ignorenulls=True).alias(_KEPT),
            *[F.expr(aggregates[number].sql).alias(aggregate_name(number)) for number in of_spark],
        )
    )
    names_of_spark = [aggregate_name(number) for number in of_spark]
    if in_python:
        grouped = _with_python_groups(grouped, rows_of_lists, aggregates, keys, names_of_spark)
    return grouped.select(
        f"{_KEPT}.*", *[aggregate_name(number) for number in range(len(aggregates))]
    )


def _with_python_groups(
    grouped: DataFrame,
    elements: DataFrame,
    aggregates: Sequence[SparkAggregate],
    keys: Sequence[str],
    names: Sequence[str],
) -> DataFrame:
    """`grouped`, with `names` behind its keys, and the aggregates in Python beside them.

    Each function is grouped by itself, over the elements that it is for, so it never sees others.
    These groups and `grouped` read one shuffle of the elements: Spark reuses it because they read
    the same columns of it. A union and one more GROUP BY put the rows of the answer together, which
    a join could do only on keys without NULL.
    """
    by_key = [F.col(quote_column(each)) for each in keys]
    groups: dict[PythonGroup, list[int]] = {}
    for number, each in enumerate(aggregates):
        if each.python is not None:
            groups.setdefault(each.python, []).append(number)
    found = grouped.select(*by_key, F.struct(_KEPT, *names).alias(_DONE))
    for group, numbers in groups.items():
        own = _with_all_columns(elements, group.condition)
        # The rows of a match come to the function in their order.
        own = own.sortWithinPartitions(*by_key, _PLACE)
        own = own.groupBy(*by_key).agg(
            *[F.expr(aggregates[number].sql).alias(aggregate_name(number)) for number in numbers]
        )
        found = found.unionByName(own, allowMissingColumns=True)
    together = found.groupBy(*by_key).agg(
        *[
            F.first(quote_column(each), ignorenulls=True).alias(each)
            for each in found.columns
            if each not in keys
        ]
    )
    return together.select(
        f"{_DONE}.*",
        *[aggregate_name(number) for numbers in groups.values() for number in numbers],
    )


def _with_all_columns(elements: DataFrame, condition: str) -> DataFrame:
    """The elements that meet the condition, by a filter that reads all columns and that Spark does
    not move, because of the id: otherwise the shuffle below it would be another one, and the rows
    would be matched once more. No id is negative, so the other branch is never taken."""
    columns = " AND ".join(f"{quote_column(each)} IS NULL" for each in elements.columns)
    return elements.filter(
        f"CASE WHEN monotonically_increasing_id() >= 0 THEN {condition} ELSE {columns} END"
    )


def _other_columns(
    columns: Sequence[str],
    compiled: CompiledRowPattern,
    lists: Sequence[int],
    places: Sequence[str],
) -> list[str]:
    """What a row of the answer needs beside the aggregates."""
    read = {name for each in compiled.measures for name in _READING.findall(each.sql)}
    done = {reading_name(number) for number in lists} - read | set(places)
    return [each for each in columns if each not in done]
