"""Functions between rows, as the worker computes them, against what Spark answered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant, Expression, Type
from spark_cep.udfs.functions.float_texts import float_text
from spark_cep.udfs.functions.patterns import translate_regex
from spark_cep.udfs.functions.registry import FUNCTIONS, Binding
from spark_cep.udfs.functions.times import is_known_zone, to_instant, to_local
from spark_cep.udfs.row_program import RowRead
from spark_cep.udfs.values.functions import find_function
from tests.fixtures import functions
from tests.function_calls import ERROR, evaluate, same
from tests.function_cases import SETTINGS

# What the processor of Spark's machine computes may differ in the last digit.
ULPS = {"inexact": 2}


@pytest.mark.parametrize("setting", SETTINGS)
def test_functions_give_what_spark_gives_for_every_pair_of_rows(setting: str) -> None:
    table, wrong, count = functions.table(setting), [], 0
    for case in functions.cases(setting):
        found = evaluate(case.expression, table, ansi=SETTINGS[setting][0])
        count += 1
        wrong += [
            (case.text, pair, expected, value)
            for pair, (expected, value) in enumerate(zip(case.expected, found, strict=True))
            if not same(expected, value, ULPS.get(case.group, 0))
        ]
    assert not wrong[:10]
    assert count > 300


def test_the_stored_answers_contain_errors_nulls_and_values() -> None:
    known = [value for case in functions.cases("ansi") for value in case.expected]
    assert known.count(ERROR) > 100
    assert known.count(None) > 1000
    assert len({repr(value) for value in known}) > 1000


STRING = Type("string")


def test_an_error_counts_only_in_the_branch_that_is_taken() -> None:
    table = pa.table({"c0": pa.array([0, 2])})
    x = RowRead("current", 0, BIGINT)
    part = Call("split_part", (Constant("a,b", STRING), Constant(",", STRING), x), STRING)
    zero = Call("=", (x, Constant(0, BIGINT)), BOOL)
    guarded = Call("if", (zero, Constant("none", STRING), part), STRING)
    assert evaluate(part, table, ansi=False) == [ERROR, "b", ERROR, "b"]
    assert evaluate(guarded, table, ansi=True) == ["none", "b", "none", "b"]


def test_try_functions_fail_nowhere() -> None:
    table = pa.table({"c0": pa.array([0, 1 << 62])})
    x = RowRead("current", 0, BIGINT)
    for name, expected in (("+", [0, None]), ("div", [None, 1])):
        node: Expression = Call("try", (Call(name, (x, x), BIGINT),), BIGINT)
        for ansi in (True, False):
            assert evaluate(node, table, ansi=ansi)[:2] == expected


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a++", "possessive"),
        ("(?>a)b", r"\(\?>a"),
        ("[a-z&&[^b]]", "class inside a class"),
        (r"\p{Lu}", "Unicode"),
        (r"(?m)^a", r"\(\?m\)"),
        ("a{,2}", "begins no quantifier"),
        ("(a", "missing"),
        (r"\h", r"\\h"),
    ],
)
def test_a_regular_expression_that_python_reads_differently_is_refused(
    pattern: str, why: str
) -> None:
    with pytest.raises(CepError, match=why):
        translate_regex(pattern)


def test_word_boundaries_and_case_are_those_of_ascii_or_refused() -> None:
    assert translate_regex(r"(?i)\bAB\b").search("x ab")
    with pytest.raises(CepError, match="beyond ASCII"):
        translate_regex(r"\bAB\b").search("ÄB")


@pytest.mark.parametrize("bits", [32, 64])
def test_floats_are_printed_so_that_they_read_back(bits: int) -> None:
    generator = np.random.default_rng(bits)
    raw = generator.integers(0, 1 << (bits - 1), 500, dtype=np.uint64)
    kind: Any = np.float64 if bits == 64 else np.float32
    numbers = raw.astype(np.uint32).view(kind) if bits == 32 else raw.view(kind)
    for number in numbers[np.isfinite(numbers)]:
        for shortest in (True, False):
            assert kind(float_text(float(number), bits, shortest=shortest)) == number


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "+05:30", "UTC"])
def test_local_times_and_instants_are_inverse_outside_of_clock_changes(zone: str) -> None:
    day_us = 86_400_000_000
    for day in (-800_000, -20_000, -1, 0, 19_000, 3_000_000, 40_000_000):
        local = day * day_us + day_us // 2
        assert to_local(to_instant(local, zone), zone) == local


def test_zones_that_java_alone_knows_are_not_taken_for_others() -> None:
    assert is_known_zone("GMT+8")
    assert not is_known_zone("PST")
    assert not is_known_zone("../zone")


def test_the_number_of_arguments_is_checked() -> None:
    known = find_function("substring")
    assert known is not None
    assert known.kinds(1) is None
    assert known.kinds(3) == ("text", "int", "int")
    joined = find_function("concat_ws")
    assert joined is not None
    assert joined.kinds(4) == ("string", "any", "any", "any")
    assert find_function("no such function") is None


def test_zeros_of_arrays_as_sets_are_positive() -> None:
    array = Type("other", sql="array<double>")
    union = FUNCTIONS["array_union"].bind(Binding((array, array), array, ansi=True))
    assert repr(union((-0.0,), (0.0, -0.0, 1.5))) == "(0.0, 1.5)"
