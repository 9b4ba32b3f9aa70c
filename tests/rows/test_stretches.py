"""Conditions that Python tests give the same answers for stretches of rows as one by one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant, Expression, Type
from spark_cep.udfs.output import Field, RowOutput
from spark_cep.udfs.program import Limits, Order
from spark_cep.udfs.row_program import Aggregate, RowProgram, RowRead, RowVariable, Skip
from spark_cep.udfs.rows import stretches
from tests.rows.programs import alternate, concat, plus, repeat, star, v

A, B, C = 0, 1, 2
STRING = Type("string")
MEASURES = (
    RowRead("first", 2, BIGINT, final=True),
    Aggregate("count", None, BIGINT, final=True),
    Aggregate("count", None, BIGINT, frozenset({B}), final=True),
)


def read(
    anchor: Any, column: int, type_: Type, variable: int | None = None, **more: Any
) -> RowRead:
    variables = None if variable is None else frozenset({variable})
    return RowRead(anchor, column, type_, variables, **more)


X, K = read("current", 1, BIGINT), read("current", 3, STRING)


def call(name: str, type_: Type, *arguments: Expression) -> Call:
    return Call(name, arguments, type_)


INT = Type("int", 32)
STARTS = call("concat_strings", STRING, read("first", 3, STRING, A), Constant("%", STRING))
REMAINDER = call("pmod", BIGINT, X, read("last", 1, BIGINT, B, offset=1))
AT_LEAST = call("coalesce", BIGINT, REMAINDER, Constant(2, BIGINT))
DISTANCE = call(
    "levenshtein",
    INT,
    read("last", 3, STRING, A, shift=1),
    read("current", 3, STRING, shift=-1),
)
PLACE = call("-", BIGINT, X, read("last", 1, BIGINT, A))
PART = call("split_part", STRING, K, Constant("b", STRING), PLACE)
DEFINES: dict[str, Expression] = {
    "the first a": call("like", BOOL, K, STARTS),
    "the last b but one": call(">=", BOOL, AT_LEAST, Constant(2, BIGINT)),
    "neighbours": call("<", BOOL, DISTANCE, Constant(2, INT)),
    "errors": call("<>", BOOL, PART, Constant("", STRING)),
}
PATTERNS = {
    "a b+ c?": concat(v(A), plus(v(B)), repeat(v(C), 0, 1)),
    "a+ b+": concat(plus(v(A)), plus(v(B))),
    "(a | b)+ c": concat(plus(alternate(v(A), v(B))), v(C)),
    "a (b c*){2}": concat(v(A), repeat(concat(v(B), star(v(C))), 2, 2)),
}


def answer(define: Expression, pattern: str, table: pa.Table) -> tuple[list[Any], dict[str, Any]]:
    case = RowProgram(
        columns=("key", "x", "n", "k"),
        keys=(0,),
        orders=(Order(2, BIGINT, False, True),),
        variables=(RowVariable("A"), RowVariable("B", define), RowVariable("C")),
        pattern=PATTERNS[pattern],
        measures=MEASURES,
        rows="one",
        skip=Skip("next row"),
        limits=Limits(),
    )
    output = RowOutput((Field(0, "key"),))
    found = pa.Table.from_batches(
        list(run(compile_row_program(case), output, iter(table.to_batches()), 0))
    ).to_pylist()
    return [tuple(row.values())[:-1] for row in found[:-1]], json.loads(found[-1]["metrics"])


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("define", DEFINES)
def test_a_stretch_answers_as_each_row_by_itself(
    define: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(11)
    size = 90
    words = ["a", "ab", "abb", "b", "", None]
    table = pa.table(
        {
            "key": np.sort(generator.integers(0, 3, size)),
            "x": pa.array([None if x == 4 else int(x) for x in generator.integers(0, 5, size)]),
            "n": np.arange(size),
            "k": pa.array([words[n] for n in generator.integers(0, len(words), size)]),
        }
    )
    found, counted = answer(DEFINES[define], pattern, table)
    begin = stretches.StretchEvaluator.__init__

    def row_by_row(self: Any, *given: Any) -> None:
        begin(self, *given)
        self.is_possible = False

    monkeypatch.setattr(stretches.StretchEvaluator, "__init__", row_by_row)
    expected, counts = answer(DEFINES[define], pattern, table)
    assert found == expected
    assert counted["asked"] == counts["asked"] > 0
    assert counted["condition_errors"] == counts["condition_errors"]
    assert found
    if define == "errors":
        assert counts["condition_errors"] > 0
