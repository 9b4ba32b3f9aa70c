"""Runs a query over a batch: one call of the engine for each bucket of rows.

    shipped rows -> layout -> program -> buckets -> engine -> projection

Lazy: no Spark job runs here, besides those by which the query decides what to do.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation
from pyspark.sql import types as T

from spark_cep.planner.layout import MEMORY_CONF, parse_worker_memory
from spark_cep.spark.entry import border_entry, bucket_entry, range_entry, worker_program
from spark_cep.spark.metrics import (
    AnswerObservations,
    AnswerRecord,
    keep_record,
    new_answer_number,
    observe_answer,
    observe_lookups,
    observe_shed,
)
from spark_cep.spark.prepare import (
    distribute_ranges,
    distribute_rows,
    gather_borders,
    split_hot_keys,
)
from spark_cep.spark.projection import MatchFrame
from spark_cep.spark.query import RowObservers
from spark_cep.spark.versions import arrow_schema
from spark_cep.udfs.output import BORDER, TASK, RowOutput
from spark_cep.udfs.program import Program

if TYPE_CHECKING:
    from spark_cep.spark.query import Query
    from spark_cep.udfs.row_program import RowProgram


def run_batch(query: Query) -> DataFrame:
    """The matches, in a DataFrame that knows its plan and its metrics."""
    number = new_answer_number()
    shipped = query.rows()
    layout = query.layout(shipped.df)
    program = query.program(layout.slicing)
    schema = query.worker_schema(shipped.df.schema)
    title = query.title(layout, number)
    memory = parse_worker_memory(query.source.setting(MEMORY_CONF))
    answer_schema = arrow_schema(schema)

    def match(df: DataFrame, program: Program | RowProgram, part: int = 0) -> DataFrame:
        function = bucket_entry(
            worker_program(program), query.output, answer_schema, title, part=part, memory=memory,
            bound=query.bound,
        )  # fmt: skip
        return df.mapInArrow(function, schema)

    def match_ranges(rows: DataFrame, ranges: int) -> DataFrame:
        compiled, output = worker_program(program), query.output
        assert not isinstance(compiled, Program)
        assert isinstance(output, RowOutput)
        of_range = range_entry(compiled, output, ranges, title, memory)
        extended = T.StructType(
            [*schema, T.StructField(TASK, T.IntegerType()), T.StructField(BORDER, T.BinaryType())]
        )
        matched = distribute_ranges(rows, compiled.orders[0], ranges).mapInArrow(of_range, extended)
        of_borders = border_entry(compiled, output, answer_schema, title, memory)
        return gather_borders(matched, ranges).mapInArrow(of_borders, schema)

    def match_all(rows: DataFrame) -> DataFrame:
        if layout.ranges is not None:
            return match_ranges(rows, layout.ranges)
        df = distribute_rows(rows, program, layout)
        if layout.hot_keys is None:
            return match(df, program)
        sliced = query.program(layout.hot_keys.slicing)
        assert isinstance(program, Program)
        assert isinstance(sliced, Program)
        rest, hot = split_hot_keys(df, program, sliced, layout.hot_keys)
        return match(rest, program).union(match(hot, sliced, part=1))

    def answer() -> tuple[DataFrame, AnswerObservations]:
        # An observation keeps what it got first, so whoever measures again needs new ones.
        observations = AnswerObservations(
            Observation(),
            Observation() if query.fetches else None,
            Observation() if query.sheds else None,
        )
        rows = shipped
        if observations.before is not None or observations.shed is not None:
            # The sample was taken from `shipped`; what is observed is the query's rows only.
            rows = query.rows(_observers(observations))
        counted = partial(observe_answer, observation=observations.answer)
        matches = MatchFrame(match_all(rows.df), counted, query.remotes)
        return query.project(matches, shipped.raw), observations

    matches, observations = answer()
    plan = query.report(layout, number)
    recall = query.recall if query.loses_matches else None
    record = AnswerRecord(number, plan, observations, layout.buckets, answer, recall)
    return keep_record(matches, record)


def _observers(observations: AnswerObservations) -> RowObservers:
    lookups = shed = None
    if observations.before is not None:
        lookups = partial(observe_lookups, observation=observations.before)
    if observations.shed is not None:
        shed = partial(observe_shed, observation=observations.shed)
    return RowObservers(lookups, shed)
