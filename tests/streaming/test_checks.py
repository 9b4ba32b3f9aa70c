"""What a stream needs is said before it starts, with what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StructField, TimestampType

from spark_cep.errors import PatternError
from spark_cep.events.compile import compile_pattern
from spark_cep.expressions.problems import Place
from spark_cep.expressions.row_grammar import node_text, parse_row_pattern, undecidable_node
from spark_cep.pattern import Pattern, seq
from spark_cep.spark.stream import (
    check_bounded,
    check_consumption,
    check_decidable,
    check_watermark,
)
from spark_cep.udfs.program import Limits, Window
from tests.compiling import COLUMNS, INFOS, FakeShipment
from tests.fake_typer import LocalTyper

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern

MARKED = {"spark.watermarkDelayMs": 5000}


def compiled(pattern: Pattern) -> CompiledPattern:
    return compile_pattern(
        pattern,
        INFOS,
        order_by="ts",
        partition_by=None,
        typer=LocalTyper(COLUMNS),
        shipment=FakeShipment(),
        time_zone="UTC",
    )


def test_a_stream_is_ordered_by_a_timestamp_with_a_watermark() -> None:
    check_watermark(StructField("c0", TimestampType(), metadata=MARKED), "`ts`")
    with pytest.raises(PatternError, match="no watermark on 'ts'"):
        check_watermark(StructField("c0", TimestampType()), "`ts`")
    with pytest.raises(PatternError, match="'n' is BIGINT"):
        check_watermark(StructField("c0", LongType(), metadata=MARKED), "`n`")
    with pytest.raises(PatternError, match="has no order_by"):
        check_watermark(None, "")


def test_an_expression_is_shown_as_it_was_written_and_the_hint_names_a_column() -> None:
    with pytest.raises(PatternError) as error:
        check_watermark(StructField("c0", TimestampType()), "`ts` + interval 1 second")
    assert "'ts + interval 1 second'" in str(error.value)
    assert 'withWatermark("ts", ' in str(error.value)


def test_a_window_or_a_limit_on_rows_bounds_a_stream() -> None:
    check_bounded(Window("time", 10), Limits())
    check_bounded(None, Limits(rows=100))
    with pytest.raises(PatternError, match="keep every row forever"):
        check_bounded(None, Limits())


def test_a_run_that_consumes_is_never_certain_without_a_window() -> None:
    pattern = seq("a", "b").consumption("consume")
    check_consumption(compiled(pattern))
    check_consumption(compiled(pattern.strategy("strict").within("10 minutes")))
    with pytest.raises(PatternError, match="would ever be final"):
        check_consumption(compiled(pattern.strategy("strict")))


def test_a_limit_on_rows_bounds_a_search_but_no_end_of_a_partition() -> None:
    check_decidable(None, Limits())
    check_decidable("the repetition of b has no upper bound", Limits(rows=100))
    with pytest.raises(PatternError, match="wait forever"):
        check_decidable("the repetition of b has no upper bound", Limits())
    with pytest.raises(PatternError, match=r"^\$ matches the end"):
        check_decidable("$ matches the end of a partition", Limits(rows=100))


def test_what_a_stream_cannot_decide_is_marked_in_the_pattern() -> None:
    place = Place("a b+ $", 5, 6)
    with pytest.raises(PatternError) as error:
        check_decidable("$ matches the end of a partition", Limits(), place)
    assert str(error.value).splitlines()[1:4] == [
        "  at line 1, column 6:",
        "    a b+ $",
        "         ^",
    ]
    for text, part in [
        ("a b{2} (c | d* $)", "$"), ("a{2} (b | c+)", "c+"), ("(a b?)* c", "(a b?)*"),
        ("a{,3} ()* b{2,}?", "b{2,}?"),
    ]:  # fmt: skip
        node = undecidable_node(parse_row_pattern(text))
        assert node is not None
        assert node_text(text, node) == part
    assert undecidable_node(parse_row_pattern("a{1,3} (b | c{2})? ()*")) is None
