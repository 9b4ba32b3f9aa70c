"""Row patterns chosen to take long, without Spark: what grows with the rows, and what a limit ends.

    python -m benchmarks.row_adversaries [--most 100000] [--seconds 2] [--only text] [--data rising]

Each pattern runs over rows of two kinds, with a limit of so many seconds, until a size runs into
it. For one that does, the seconds that it took to stop, and those that the default limit on steps
would let it run, from the steps charged until then. Measures need no rows, so there are none.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.reporting import table
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.row_patterns import row_pattern
from spark_cep.rows.compile import compile_row_pattern
from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Type
from spark_cep.udfs.program import Limits, Order
from spark_cep.udfs.row_program import RowProgram
from spark_cep.udfs.rows import arrays
from spark_cep.udfs.rows.compiled import compile_kernel_program
from spark_cep.udfs.rows.search import KernelSearch
from spark_cep.udfs.rows.table import PartitionEnds, RowTable, SearchProgress
from spark_cep.udfs.values.tally import ErrorTally
from tests.fake_typer import LocalTyper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
# t: the order, one second from row to row. g: x with gaps. n: floats, some NaN. w: decimals beyond
# 64 bits. m: x modulo 7.
COLUMNS: Mapping[str, tuple[Type, pa.DataType]] = {
    "t": (Type("timestamp"), pa.timestamp("us", "UTC")),
    "x": (BIGINT, pa.int64()),
    "g": (BIGINT, pa.int64()),
    "f": (DOUBLE, pa.float64()),
    "n": (DOUBLE, pa.float64()),
    "h": (Type("float", 32), pa.float32()),
    "i": (Type("int", 32), pa.int32()),
    "d": (Type("decimal", precision=10, scale=2), pa.decimal128(10, 2)),
    "w": (Type("decimal", precision=38, scale=18), pa.decimal128(38, 18)),
    "s": (Type("string"), pa.string()),
    "b": (BOOL, pa.bool_()),
    "m": (BIGINT, pa.int64()),
}


@dataclass(frozen=True)
class Adversary:
    """`define`: conditions separated by semicolons. `rows`: the other options."""

    pattern: str
    define: str
    skip: str | None = None
    within: str | None = None
    longest: bool = False
    rows: str = "one"

    @property
    def name(self) -> str:
        others = [
            self.skip, self.within and f"WITHIN {self.within}", "longest" * self.longest,
            self.rows if self.rows != "one" else "",
        ]  # fmt: skip
        return ", ".join(filter(None, [self.pattern, self.define, *others]))


ADVERSARIES = (
    # What cannot change within a search, and what only ranges can tell.
    Adversary("A+ B+ C", "B: x > LAST(A.x); C: x < FIRST(A.x)"),
    Adversary("A+ B", "B: FIRST(x) < 0"),
    Adversary("A+ B", "B: MATCH_NUMBER() > 1000000"),
    Adversary("A+ B", "B: FIRST(x) < 0", skip="SKIP TO NEXT ROW"),
    Adversary("A+ B", "B: FIRST(x) < 0", rows="all with unmatched"),
    Adversary("A+ B", "B: FIRST(x) % 2 = 5"),
    Adversary("A+ B", "B: FIRST(m) = 9"),
    Adversary("A+ B", "B: FIRST(s) LIKE '%z%'"),
    Adversary("A+ B", "B: upper(FIRST(s)) = 'Q'"),
    # Aggregates of each kind.
    Adversary("A+ B", "B: sum(A.x) < 0"),
    Adversary("A+ B", "B: sum(A.f) < 0"),
    Adversary("A+ B", "B: sum(A.n) < 0"),
    Adversary("A+ B", "B: sum(A.d) < 0"),
    Adversary("A+ B", "B: sum(A.w) < 0"),
    Adversary("A+ B", "B: sum(A.g) < 0"),
    Adversary("A+ B", "B: avg(A.x) < 0"),
    Adversary("A+ B", "B: avg(A.d) < 0"),
    Adversary("A+ B", "B: avg(A.n) < 0"),
    Adversary("A+ B", "B: min(A.x) < 0"),
    Adversary("A+ B", "B: max(A.x) > 1000000000"),
    Adversary("A+ B", "B: count(*) > 1000000000"),
    Adversary("A+ B", "B: count(DISTINCT A.m) > 100"),
    Adversary("A+ B", "B: sum(DISTINCT A.m) > 100"),
    Adversary("A+ B", "B: stddev(A.x) < 0"),
    Adversary("A+ B", "B: var_pop(A.f) < 0"),
    Adversary("A+ B", "B: max_by(A.x, A.f) < 0"),
    Adversary("A+ B", "B: min_by(A.s, A.x) = 'zz'"),
    Adversary("A+ B", "B: min(A.s) = 'zz'"),
    Adversary("(A | B)+ C", "A: m < 4; B: m > 2; C: sum(A.x) < 0"),
    Adversary("(A | B)+ C", "A: m < 4; B: m > 2; C: count(A.x) > 1000000"),
    Adversary("(A | B)+ C", "A: m < 4; B: m > 2; C: avg(A.x) < avg(B.x) - 1000000"),
    Adversary("(A B+)+ C", "A: m < 3; C: sum(B.x) < 0"),
    # Arithmetic.
    Adversary("A+ B", "B: x % 1000 = LAST(A.x) + 1000000"),
    Adversary("A+ B", "B: x / FIRST(A.x) < 0"),
    Adversary("A+ B", "B: f / FIRST(A.f) < 0"),
    Adversary("A+ B", "B: n - FIRST(A.n) < -1000000000"),
    Adversary("A+ B", "B: n < FIRST(A.n) - 1e9"),
    Adversary("A+ B", "B: h * 2 < FIRST(A.h) - 1e9"),
    Adversary("A+ B", "B: d * FIRST(A.d) < 0"),
    Adversary("A+ B", "B: w < FIRST(A.w) AND w > FIRST(A.w)"),
    Adversary("A+ B", "B: w + FIRST(A.w) < 0"),
    Adversary("A+ B", "B: x * LAST(A.x) = 15485863"),
    Adversary("A+ B", "B: i + FIRST(A.i) < 0"),
    Adversary("A+ B", "B: CASE WHEN x > FIRST(A.x) THEN 1 ELSE 0 END = 2"),
    Adversary("A+ B", "B: coalesce(g, FIRST(A.x)) < 0"),
    Adversary("A+ B", "B: abs(x - FIRST(A.x)) < 0"),
    Adversary("A+ B", "B: x IS NULL AND FIRST(A.x) > 0"),
    Adversary("A+ B", "B: NOT (x <=> x + FIRST(A.x) - FIRST(A.x))"),
    Adversary("A+ B", "B: g > FIRST(A.x) AND g < FIRST(A.x)"),
    # Navigation.
    Adversary("A+ B", "B: PREV(FIRST(A.x), 1) > x + 10"),
    Adversary("A+ B", "B: NEXT(LAST(A.x), 2) > x + 10"),
    Adversary("A+ B", "B: LAST(A.x, 3) > x"),
    Adversary("A+ B", "B: FIRST(A.x, 3) > x + 1"),
    Adversary("(A | B)+ C", "A: m < 4; B: m > 2; C: LAST(A.x, 40) > x"),
    Adversary("(A | B)+ C", "A: m < 4; B: m > 2; C: FIRST(B.x, 2) > x + 10"),
    Adversary("A+ B+ C+ D", "B: x > LAST(A.x); C: x > LAST(B.x); D: x < FIRST(A.x)"),
    Adversary("A+ B+ C+ D", "C: x = LAST(A.x) + LAST(B.x) + 1000; D: x < LAST(C.x) - LAST(B.x)"),
    # Shapes.
    Adversary("(A+ B+)+ C", "A: m < 5; B: m > 1 AND x > LAST(A.x); C: x < FIRST(A.x)"),
    Adversary("(A+)+ B", "B: x < FIRST(A.x)"),
    Adversary("((A+)+)+ B", "B: x < LAST(A.x)"),
    Adversary("(A | B)* C", "A: m < 5; B: m > 1; C: x < LAST(B.x) - 10"),
    Adversary("(A | B | C)+ D", "A: m < 5; B: m > 1; D: CLASSIFIER(A) = 'B'"),
    Adversary("(A | B)+ C", "C: PREV(CLASSIFIER()) = 'C'"),
    Adversary("(A | B)+ C", "A: m < 5; B: m > 1; C: count(A.*) = count(B.*) + 1000000"),
    Adversary("PERMUTE(A, B, C, D)", "A: m < 5; B: x > LAST(A.x); C: x < FIRST(x)"),
    Adversary("PERMUTE(A+, B+, C+)", "A: m < 5; B: m > 1 AND x > LAST(A.x); C: x < FIRST(x)"),
    Adversary("A+? B+? C", "B: x > LAST(A.x); C: x < FIRST(A.x)"),
    Adversary("A*? B C*? D", "B: m = 3; D: x < LAST(B.x) AND x < FIRST(x)"),
    Adversary("A+ {- B+ -} C", "B: x > LAST(A.x); C: x < FIRST(A.x)", rows="all"),
    Adversary("A+ B+ C", "B: x > LAST(A.x); C: x < FIRST(A.x)", skip="SKIP TO NEXT ROW"),
    Adversary("A+ B+", "B: x > LAST(A.x)", skip="SKIP TO NEXT ROW"),
    Adversary("A+ B+ C", "B: x > LAST(A.x); C: x < FIRST(A.x)", within="1 hour"),
    Adversary("A+ B+", "B: x > FIRST(A.x)", longest=True),
    Adversary("A{2,200} B{2,200} C", "B: x > LAST(A.x); C: x < FIRST(A.x)"),
    Adversary("^ A+ B+ C $", "B: x > LAST(A.x); C: x < FIRST(A.x)"),
    # Conditions that Python tests.
    Adversary("A+ B", "B: round(x / FIRST(A.x), 2) < 0"),
    Adversary("A+ B", "B: concat(s, FIRST(A.s)) = 'zz'"),
    Adversary("A+ B", "B: s LIKE concat(LAST(A.s), 'z%')"),
    Adversary("A+ B+ C", "B: round(x / LAST(A.x), 2) > 0; C: round(x / FIRST(A.x)) < 0"),
    Adversary("(A | B)+ C", "A: m < 4; B: m > 2; C: round(LAST(A.x) / LAST(B.x)) < 0"),
    Adversary("A+ B", "B: max(A.x + MATCH_NUMBER()) < 0"),
    Adversary("A+ B", "B: count(CASE WHEN CLASSIFIER() = 'A' THEN x END) < 0"),
    Adversary("A+ B", "B: sum(A.w) < FIRST(A.w)"),
    Adversary("A+ B", "B: levenshtein(s, LAST(A.s)) > 1000"),
)  # fmt: skip


@cache
def rows_of(data: str, rows: int) -> pa.Table:
    random = np.random.default_rng(7)
    rising = np.arange(1, rows + 1)
    x = {
        "rising": rising, "random": random.permutation(rows) + 1, "falling": rising[::-1],
        "waves": 1 + (rising * 37) % 101,
    }[data]  # fmt: skip
    gap = random.random(rows) < 0.2
    values: dict[str, Any] = {
        "t": pa.array(np.arange(rows) * 1_000_000, pa.timestamp("us", "UTC")),
        "x": x,
        "g": pa.array(x, mask=gap),
        "f": x / 4,
        "n": np.where(gap, np.nan, x / 4),
        "h": x / 4,
        "i": x,
        "d": [Decimal(each) for each in x.tolist()],
        "w": [Decimal(each) for each in x.tolist()],
        "s": [f"{each % 26 + 65:c}{each % 17}" for each in x.tolist()],
        "b": x % 2 == 0,
        "m": x % 7,
    }
    arrays_ = {
        name: pa.array(values[name], *([type_] if name in "dw" else [])).cast(type_, safe=False)
        for name, (_, type_) in COLUMNS.items()
    }
    return pa.table(arrays_)


class _Shipment:
    """The columns of the table, then what Spark would compute from a row."""

    def __init__(self) -> None:
        self.computed: list[str] = []

    def column(self, expression: Any, *, guards: frozenset[int] = frozenset()) -> int:
        text = str(expression).replace("`", "")
        if text in COLUMNS:
            return list(COLUMNS).index(text)
        if text not in self.computed:
            self.computed.append(text)
        return len(COLUMNS) + self.computed.index(text)


class _Typer(LocalTyper):
    """Knows a little more of decimals and of functions than tests need."""

    def _answer(self, expression: Any) -> Type | str:
        found = super()._answer(expression)
        if isinstance(found, Type):
            return found
        if "levenshtein" in expression:
            return Type("int", 32)
        return Type("decimal", precision=38, scale=18) if "w" in expression else found


def _computed(text: str, rows: pa.Table) -> pa.Array:
    plain = text.replace("(s)", "s")
    if "CAST(NULL" in plain:
        kind = pa.bool_() if "LIKE" in plain else pa.int64() if "CASE" in plain else pa.string()
        return pa.nulls(rows.num_rows, kind)
    if plain in _COMPUTED:
        return pa.array([_COMPUTED[plain](each) for each in rows.column("s").to_pylist()])
    if plain.startswith("CAST"):
        return rows.column(plain[5]).cast(pa.float64())
    return pa.array(rows.select(["x", "m", "h"]).to_pandas().eval(plain.replace(" = ", " == ")))


_COMPUTED: Mapping[str, Callable[[str], Any]] = {
    "s LIKE '%z%'": lambda s: "z" in s,
    "upper(s)": str.upper,
    "concat(s, 'z%')": lambda s: s + "z%",
    "CASE WHEN 'A' = 'A' THEN x END": len,
    "CASE WHEN 'B' = 'A' THEN x END": len,
    "x IS NULL": lambda s: False,
}


def compile_adversary(adversary: Adversary, limits: Limits) -> tuple[RowProgram, list[str]]:
    """The program, and what Spark would compute for it."""
    define = dict(each.split(": ", 1) for each in adversary.define.split("; "))
    pattern = row_pattern(adversary.pattern, define)
    if adversary.within:
        pattern = pattern.within(adversary.within)
    if adversary.longest:
        pattern = pattern.longest()
    shipment = _Shipment()
    types = {name: type_ for name, (type_, _) in COLUMNS.items()}
    found = compile_row_pattern(
        pattern,
        [ColumnInfo(name, type_) for name, type_ in types.items()],
        order_by="t",
        partition_by=None,
        typer=_Typer(types),
        shipment=shipment,
        time_zone="UTC",
        rows=adversary.rows,  # type: ignore[arg-type]
        after_match=adversary.skip,
    )
    program = RowProgram(
        columns=(*COLUMNS, *shipment.computed),
        keys=(),
        orders=(Order(0, types["t"]),),
        variables=found.variables,
        pattern=found.pattern,
        measures=(),
        rows=found.rows,
        skip=found.skip,
        limits=limits,
        within=found.window,
        longest=found.longest,
    )
    return program, shipment.computed


@dataclass(frozen=True)
class Run:
    """`cpu`: seconds of the processor. `limit`: which limit ended it. `steps`: as charged. `asked`:
    conditions tested in Python."""

    seconds: float
    cpu: float
    limit: str
    steps: int
    asked: int
    matches: int


def run(adversary: Adversary, data: str, rows: int, limits: Limits) -> Run:
    program, computed = compile_adversary(adversary, limits)
    kernel = compile_kernel_program(program)
    given = rows_of(data, rows)
    for text in computed:
        given = given.append_column(text, _computed(text, given))
    start, cpu = perf_counter(), process_time()
    found = RowTable(program, given)
    search = KernelSearch(
        kernel, found, ErrorTally(), PartitionEnds(SearchProgress.at_start(found))
    )
    limit, steps = "", 0
    try:
        for _block in search.blocks():
            pass
    except LimitError as error:
        limit = str(error.details["limit"])
        steps = int(error.details.get("charged", error.details.get("steps", 0)))  # type: ignore[call-overload]
    counts = search.counts
    seconds, cpu = perf_counter() - start, process_time() - cpu
    return Run(seconds, cpu, limit, steps or counts.steps, counts.asked, counts.matches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--data", default="rising,random")
    given = parser.parse_args()
    limits = Limits(seconds=given.seconds)
    lines = []
    for adversary in ADVERSARIES:
        name = adversary.name
        if given.only not in name:
            continue
        for data in given.data.split(","):
            times, last = [], None
            try:
                for rows in (each for each in SIZES if each <= given.most):
                    last = run(adversary, data, rows, limits)
                    times.append(f"{last.seconds:.2f}" + ("!" if last.limit else ""))
                    if last.limit:
                        break
            except Exception as error:
                print(name, data, type(error).__name__, str(error)[:300])
                continue
            assert last is not None
            by_default = ""
            if last.limit:
                by_default = f"{last.cpu * arrays.DEFAULT_STEP_LIMIT / max(last.steps, 1):,.0f}"
            print(name, data, *times, by_default, last.asked, flush=True)
            lines.append([name, data, *times, *[""] * (len(SIZES) - len(times)), by_default])
    print(table(["pattern", "rows", *map(str, SIZES), "by default, s"], lines))


if __name__ == "__main__":
    main()
