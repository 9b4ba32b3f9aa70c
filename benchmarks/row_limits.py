"""Row patterns whose searches all fail: does the work grow with the rows?

    python -m benchmarks.row_limits [--seconds 10] [--most 100000]
    python -m benchmarks.row_limits --spark [--seconds 10] [--most 100000]

Each query runs over rows that rise, with a limit of so many seconds, in the engine alone or as a
statement of `cep.sql`. The floor is a search that fails at each row: the same plan and the same
rows, sorted and looked at once. results.md has the figures; `row_adversaries.py` has more queries.
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import spark_cep as cep
from benchmarks.reporting import table
from benchmarks.session import start
from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant, Expression
from spark_cep.udfs.program import Limits, Order
from spark_cep.udfs.row_program import (
    Aggregate,
    RowPatternNode,
    RowProgram,
    RowRead,
    RowVariable,
    Skip,
)
from spark_cep.udfs.rows.compiled import compile_kernel_program
from spark_cep.udfs.rows.search import KernelSearch
from spark_cep.udfs.rows.table import PartitionEnds, RowTable, SearchProgress
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # The seconds of the floor and of a query, by its name and the rows.
    Measured = Callable[[str, int], tuple[float, float]]

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
ROUNDS = 5
STATEMENT_ROUNDS = 3
A, B, C = range(3)
X = RowRead("current", 0, BIGINT)


def _variable(number: int, *, repeats: bool = False) -> RowPatternNode:
    node = RowPatternNode("variable", number)
    return RowPatternNode("repeat", parts=(node,), low=1, high=None) if repeats else node


def _of_a(anchor: str) -> RowRead:
    return RowRead(anchor, 0, BIGINT, frozenset([A]))  # type: ignore[arg-type]


def _below(left: Expression, right: Expression) -> Call:
    return Call("<", (left, right), BOOL)


ZERO = Constant(0, BIGINT)
SUM = Aggregate("sum", 0, BIGINT, frozenset([A]))
# The pattern's variables, the last one without a repetition, and the conditions.
QUERIES: Mapping[str, tuple[str, Mapping[int, Expression]]] = {
    "A+ B+ C, B: x > LAST(A.x), C: x < FIRST(A.x)": (
        "abc",
        {B: _below(_of_a("last"), X), C: _below(X, _of_a("first"))},
    ),
    "A+ B, B: FIRST(x) < 0": ("ab", {B: _below(RowRead("first", 0, BIGINT), ZERO)}),
    "A+ B, B: sum(A.x) < 0": ("ab", {B: _below(SUM, ZERO)}),
}
FLOOR = ("a", {A: Constant(False, BOOL)})


def _program(variables: str, defines: Mapping[int, Expression], seconds: float) -> RowProgram:
    last = len(variables) - 1
    parts = tuple(_variable(each, repeats=each < last) for each in range(len(variables)))
    return RowProgram(
        columns=("x", "t"),
        keys=(),
        orders=(Order(1, BIGINT),),
        variables=tuple(RowVariable(name, defines.get(i)) for i, name in enumerate(variables)),
        pattern=RowPatternNode("concat", parts=parts),
        measures=(),
        rows="one",
        skip=Skip(),
        limits=Limits(seconds=seconds),
    )


def measure(variables: str, defines: Mapping[int, Expression], rows: int, seconds: float) -> float:
    """Seconds of the best of some rounds; infinite if the limit ended one."""
    program = _program(variables, defines, seconds)
    kernel = compile_kernel_program(program)
    data = pa.table({"x": np.arange(rows), "t": np.arange(rows)})
    found = []
    for _ in range(ROUNDS):
        begin = perf_counter()
        table = RowTable(program, data)
        ends = PartitionEnds(SearchProgress.at_start(table))
        try:
            for _block in KernelSearch(kernel, table, ErrorTally(), ends).blocks():
                pass
        except LimitError:
            return float("inf")
        found.append(perf_counter() - begin)
        if found[-1] > 1:
            break
    return min(found)


def measure_statement(spark: Any, pattern: str, define: str, rows: int, seconds: float) -> float:
    """The same for a statement; all rows are in one partition."""
    spark.range(rows).selectExpr("id AS x", "id AS t").createOrReplaceTempView("risen")
    statement = (
        "SELECT * FROM risen MATCH_RECOGNIZE (ORDER BY t MEASURES count(*) AS n "
        f"PATTERN ({pattern}) DEFINE {define}) /*+ seconds({seconds:g}) */"
    )
    found = []
    for _ in range(STATEMENT_ROUNDS):
        begin = perf_counter()
        try:
            cep.sql(spark, statement).write.format("noop").mode("overwrite").save()
        except Exception as error:
            if isinstance(cep.error_of(error), LimitError):
                return float("inf")
            raise
        found.append(perf_counter() - begin)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    sizes = [each for each in SIZES if each <= given.most]
    if given.spark:
        spark = start()
        try:
            _show(sizes, given.seconds, _in_spark(spark, given.seconds))
        finally:
            spark.stop()
    else:
        measure(*FLOOR, 10, given.seconds)
        _show(sizes, given.seconds, _in_engine(given.seconds))


def _in_engine(seconds: float) -> Measured:
    def run(name: str, rows: int) -> tuple[float, float]:
        return measure(*FLOOR, rows, seconds), measure(*QUERIES[name], rows, seconds)

    return run


def _in_spark(spark: Any, seconds: float) -> Measured:
    def run(name: str, rows: int) -> tuple[float, float]:
        pattern, conditions = name.split(", ", 1)
        define = conditions.replace(": ", " AS ")
        floor = measure_statement(spark, "A", "A AS x < 0", rows, seconds)
        return floor, measure_statement(spark, pattern, define, rows, seconds)

    run(next(iter(QUERIES)), SIZES[0])
    return run


def _show(sizes: list[int], seconds: float, run: Measured) -> None:
    lines = []
    for name in QUERIES:
        for rows in sizes:
            floor, ours = run(name, rows)
            ended = ours == float("inf")
            shown = f"> {seconds:g} s" if ended else f"{ours * 1e3:,.1f} ms"
            ratio = "" if ended else f"{ours / floor:,.1f}x"
            lines.append([name, rows, f"{floor * 1e3:.2f} ms", shown, ratio])
    print(table(["query", "rows", "floor", "time", "ratio"], lines))


if __name__ == "__main__":
    main()
