"""What does not fit into a worker's memory: parts on disk give the answer of one call.

The oracle is `run` with memory for everything, which other tests compare with brute force.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.pattern import event, seq
from spark_cep.udfs.errors import LimitError, WorkerError, parse_error
from spark_cep.udfs.execution import memory, spilling, worker
from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.execution.spilling import (
    KeyParts,
    OrderedParts,
    SpillFile,
    TimeOrder,
    hash_keys,
)
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.expressions import BIGINT, DOUBLE
from spark_cep.udfs.output import EventOutput, Field, RowOutput
from spark_cep.udfs.program import Limits, Order
from spark_cep.udfs.row_program import MatchNumber
from spark_cep.udfs.values.codes import key_codes
from tests.cases import has_two_readings
from tests.local import Pipeline, Setting
from tests.programs import prepare
from tests.random_cases import random_cases
from tests.rows import programs as rows_of
from tests.strategies import cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cases import Case

ROOT = Path(__file__).parent.parent
EVERYTHING = 1 << 40
EXAMPLES = 60
# From parts of a single row up to parts of about ten.
BUDGETS = (1, 400, 800, 2000)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pieces of a few rows, in a directory of the test's own."""
    monkeypatch.setattr(spilling, "PIECE_BYTES", 100)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


def answer(
    program: Any, output: Any, table: pa.Table, budget: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the answer, and the metrics."""
    rows: list[dict[str, Any]] = []
    batches = iter(table.to_batches(max_chunksize=3))
    for batch in run(program, output, batches, 5, memory=budget):
        rows += batch.to_pylist()
    metrics = [row.pop("metrics") for row in rows]
    assert metrics[:-1] == [None] * (len(metrics) - 1)
    return rows[:-1], json.loads(metrics[-1]) if metrics else {}


# ---- event patterns ------------------------------------------------------------------------------


def events_agree(examples: int, drawn: st.SearchStrategy[Case], sliced: bool = False) -> None:
    @random_cases(examples)
    @given(drawn, st.sampled_from(BUDGETS))
    def try_one(case: Case, budget: int) -> None:
        assume(not has_two_readings(case.pattern.root))
        shipped = Pipeline(case, Setting(slice_length=2 if sliced else None))
        program, table = shipped.program, shipped.table(0)
        output = EventOutput("all", program.orders[0].column, row=(Field(shipped.row, "u"),))
        wanted, wanted_metrics = answer(program, output, table, EVERYTHING)
        found, metrics = answer(program, output, table, budget)
        assert matches_of(found) == matches_of(wanted)
        assert "parts" not in wanted_metrics
        for name in ("rows", "matches", "ignored_rows"):
            assert metrics.get(name) == wanted_metrics.get(name), name

    try_one()


def matches_of(rows: Sequence[dict[str, Any]]) -> Counter[Any]:
    """The matches with how often; one number for two of them would make them one."""
    found: dict[int, list[Any]] = {}
    for row in rows:
        found.setdefault(row["match_number"], []).append((row["variable"], row["f0"]))
    return Counter(tuple(sorted(each)) for each in found.values())


def test_parts_give_every_match() -> None:
    events_agree(EXAMPLES, cases())


def test_parts_give_every_match_of_runs() -> None:
    events_agree(EXAMPLES, cases(("next", "strict")))


def test_parts_give_every_match_that_consumes() -> None:
    events_agree(EXAMPLES, cases((None, "next", "strict"), consuming=True))


def test_slices_are_parts() -> None:
    events_agree(EXAMPLES, cases(), sliced=True)


# ---- row patterns --------------------------------------------------------------------------------


def rows_agree(examples: int, orders: tuple[Order, ...], keys: tuple[int, ...]) -> None:
    @random_cases(examples)
    @given(rows_of.cases(), st.sampled_from(BUDGETS))
    def try_one(drawn: Any, budget: int) -> None:
        case, rows = drawn
        case = replace(case, orders=orders, keys=keys)
        type_ = orders[0].type if orders else None
        if type_ in (None, rows_of.STRING) or orders[0].descending:
            case = replace(case, within=None)
        if case.within is not None and type_ is DOUBLE:
            case = replace(case, within=replace(case.within, size=float(case.within.size)))
            # The distance of two infinite times is no number.
            rows = [(*row[:-1], 3.5 if row[-1] == float("inf") else row[-1]) for row in rows]
        table = pa.Table.from_pylist(
            [dict(zip(rows_of.NAMES, row, strict=True)) for row in rows], rows_of.SCHEMA
        )
        output = RowOutput((Field(rows_of.K, "k"), Field(rows_of.T, "t")))
        compiled = compile_row_program(case)
        try:
            wanted, wanted_metrics = answer(compiled, output, table, EVERYTHING)
        except WorkerError:
            with pytest.raises(WorkerError):
                answer(compiled, output, table, budget)
            return
        found, metrics = answer(compiled, output, table, budget)
        # Within a key the rows come in order, the keys in any.
        key = "p0" if case.rows == "one" else "r0"
        if keys:
            wanted, found = (sorted(each, key=lambda row: row[key]) for each in (wanted, found))
        assert repr(found) == repr(wanted)
        counts = ("rows", "partitions", "matches", "empty_matches", "unmatched_rows")
        for name in (*counts, "ignored_rows"):
            assert metrics.get(name) == wanted_metrics.get(name), name

    try_one()


BY_TIME = Order(rows_of.T, BIGINT)


@pytest.mark.parametrize("keys", [(rows_of.K,), ()], ids=["keys", "no key"])
def test_parts_give_the_rows_of_one_call(keys: tuple[int, ...]) -> None:
    rows_agree(EXAMPLES, (BY_TIME,), keys)


@pytest.mark.parametrize(
    "orders",
    [
        (Order(rows_of.F, DOUBLE),),
        (Order(rows_of.F, DOUBLE, nulls_first=False), BY_TIME),
        (Order(rows_of.F, DOUBLE, descending=True), BY_TIME),
        (Order(rows_of.X, BIGINT, descending=True, nulls_first=False),),
        (Order(rows_of.S, rows_of.STRING),),
        (),
    ],
    ids=["NaN and NULL", "NULL last", "descending", "descending, NULL last", "text", "none"],
)
def test_any_order_gives_the_rows_of_one_call(orders: tuple[Order, ...]) -> None:
    rows_agree(EXAMPLES // 2, orders, ())


def numbered(times: Sequence[Any], budget: int, **more: Any) -> tuple[list[Any], dict[str, Any]]:
    """`A B` over rows in the order given, with the number of the match."""
    case = rows_of.program(
        rows_of.concat(rows_of.v(0), rows_of.v(1)),
        keys=(), rows="one", measures=(MatchNumber(BIGINT),), **more,
    )  # fmt: skip
    rows = [(1, t, x, None, None) for x, t in enumerate(times)]
    table = pa.Table.from_pylist(
        [dict(zip(rows_of.NAMES, row, strict=True)) for row in rows], rows_of.SCHEMA
    )
    return answer(compile_row_program(case), RowOutput((Field(rows_of.X, "x"),)), table, budget)


def test_match_numbers_and_places_go_on_from_part_to_part() -> None:
    rows, metrics = numbered([5, 1, 4, 2, 3, 0], 400)
    assert [tuple(row.values()) for row in rows] == [(5, 1, 0), (3, 2, 2), (2, 3, 4)]
    assert metrics["parts"] > 1
    assert metrics["partitions"] == 1


def test_a_limit_of_kept_rows_is_for_streams_only() -> None:
    rows, _ = numbered([5, 1, 4, 2, 3, 0], 400, limits=Limits(rows=1))
    assert len(rows) == 3


# ---- keys ----------------------------------------------------------------------------------------

NAN = float("nan")
KEY_VALUES = [
    (pa.int64(), [1, 2, -1, None]),
    (pa.int8(), [1, -128, None]),
    (pa.bool_(), [True, False, None]),
    (pa.float64(), [0.0, -0.0, 1.5, NAN, -NAN, float("inf"), None]),
    (pa.float32(), [0.0, -0.0, 1.5, NAN, None]),
    (pa.string(), ["", "a", "ab", "é", None]),
    (pa.large_string(), ["", "a", None]),
    (pa.binary(), [b"", b"\x00", b"a", None]),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-1.50"), None]),
    (pa.decimal128(38, 0), [Decimal(10) ** 30, -(Decimal(10) ** 30), Decimal(1), None]),
    (pa.date32(), [0, 1, -1, None]),
    (pa.timestamp("us", "UTC"), [0, 1, -1, None]),
    (pa.null(), [None]),
    (pa.list_(pa.int64()), [[], [1], [1, 2], [2, 1], [None], None]),
    (pa.list_(pa.list_(pa.string())), [[], [[]], [["a"]], [["a"], []], None]),
    (pa.struct([("a", pa.int64()), ("b", pa.float64())]),
     [{"a": 1, "b": 0.0}, {"a": 1, "b": -0.0}, {"a": None, "b": NAN}, {"a": 0, "b": 1.0}, None]),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "values"), KEY_VALUES, ids=[str(t) for t, _ in KEY_VALUES])
def test_equal_keys_have_one_hash_in_every_table(type_: pa.DataType, values: list[Any]) -> None:
    random = np.random.default_rng(1)
    places = random.integers(0, len(values), 200)
    whole = pa.array([values[place] for place in places], type_)
    codes = key_codes([whole])
    # Each table has other values, so other dictionaries, and begins within a buffer.
    hashes = np.concatenate([hash_keys([whole.slice(at, 7)]) for at in range(0, 200, 7)])
    by_code = {(code, hash_) for code, hash_ in zip(codes.tolist(), hashes.tolist(), strict=True)}
    assert len(by_code) == len(set(codes.tolist()))
    assert len(set(hashes.tolist())) == len(set(codes.tolist()))


def test_several_columns_are_one_key() -> None:
    left, right = pa.array([1, 1, 2, None, None]), pa.array(["a", "b", "a", "a", None])
    hashes = hash_keys([left, right])
    assert len(set(hashes.tolist())) == 5
    assert hashes.tolist() != hash_keys([right, left]).tolist()


def test_parts_have_every_row_once_and_each_key_in_order() -> None:
    random = np.random.default_rng(2)
    keys = random.integers(0, 100, 1000)
    table = pa.table({"k": keys, "n": np.arange(1000)})
    with SpillFile() as file:
        parts = KeyParts(file, [0])
        for start in range(0, 1000, 300):
            parts.add(table.slice(start, 300))
        assert file.rows == 1000
        found = []
        for part in parts.parts:
            rows = [row for piece in part.pieces for row in file.read(piece).to_pylist()]
            assert len(rows) == part.rows
            for key in {row["k"] for row in rows}:
                own = [row["n"] for row in rows if row["k"] == key]
                assert own == np.flatnonzero(keys == key).tolist()
                found.append(key)
    assert sorted(found) == sorted(set(keys.tolist()))


# ---- time ----------------------------------------------------------------------------------------


@random_cases(100)
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 30), st.integers(-5, 5)), min_size=1),
    st.integers(1, 9),
    st.sampled_from([1, 300, 1000, 3000]),
)
def test_parts_by_time_have_every_row_once_and_end_at_their_horizon(
    times: list[int | None], run_rows: int, most: int
) -> None:
    table = pa.table({"t": pa.array(times, pa.int64()), "n": pa.array(range(len(times)))})
    seen: list[int] = []
    before: float = -100
    with SpillFile() as file:
        ordered = OrderedParts(file, TimeOrder(0))
        for start in range(0, len(times), run_rows):
            ordered.add(table.slice(start, run_rows))
        reader = ordered.reader()
        horizon: Any = before
        while horizon is not None:
            rows, horizon = reader.read(most)
            numbers = rows.column("n").to_pylist()
            seen += numbers
            known = [times[n] for n in numbers if times[n] is not None]
            assert all(before < t and (horizon is None or t <= horizon) for t in known)  # type: ignore[operator]
            for time in set(known):
                of_time = [n for n in numbers if times[n] == time]
                assert of_time == [n for n, t in enumerate(times) if t == time]
            before = before if horizon is None else horizon
    assert sorted(seen) == list(range(len(times)))


def test_a_part_by_time_is_about_as_large_as_asked_for() -> None:
    random = np.random.default_rng(3)
    table = pa.table({"t": random.permutation(20_000), "x": random.random(20_000)})
    with SpillFile() as file:
        ordered = OrderedParts(file, TimeOrder(0))
        for start in range(0, 20_000, 4_000):
            ordered.add(table.slice(start, 4_000))
        reader = ordered.reader()
        most = memory.PART_COST.of(2_000, 32_000)
        sizes = []
        horizon: Any = 0
        while horizon is not None:
            rows, horizon = reader.read(most)
            sizes.append(rows.num_rows)
    assert sum(sizes) == 20_000
    assert max(sizes) < 2_600
    assert min(sizes[:-1]) > 1_400


# ---- files ---------------------------------------------------------------------------------------


def v_rows(count: int, keys: int = 5) -> pa.Table:
    random = np.random.default_rng(4)
    return pa.table(
        {
            "k": random.integers(0, keys, count),
            "t": random.permutation(count),
            "x": random.integers(0, 3, count),
            "s": pa.nulls(count, pa.string()),
            "f": random.random(count),
        }
    )


def v_program(**more: Any) -> Any:
    case = rows_of.program(rows_of.concat(rows_of.v(0), rows_of.v(1)), rows="one", **more)
    return compile_row_program(case)


KEY = RowOutput((Field(rows_of.K, "k"),))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("keys", [(rows_of.K,), ()], ids=["keys", "no key"])
def test_no_file_is_left(keys: tuple[int, ...], tmp_path: Path) -> None:
    before = open_files()
    batches = v_rows(2_000).to_batches(max_chunksize=100)
    matches = run(v_program(keys=keys), KEY, iter(batches), 0, memory=20_000)
    next(matches)
    assert open_files() > before
    assert not list(tmp_path.iterdir())
    *_, last = matches
    assert json.loads(last.column("metrics")[0].as_py())["spilled_rows"] >= 2_000
    assert open_files() == before
    # The reader of the answer may stop early.
    matches = run(v_program(keys=keys), KEY, iter(batches), 0, memory=20_000)
    next(matches)
    matches.close()  # type: ignore[attr-defined]
    assert open_files() == before
    assert not list(tmp_path.iterdir())


def test_no_file_is_left_by_an_error(tmp_path: Path) -> None:
    before = open_files()
    batches = v_rows(2_000).to_batches(max_chunksize=100)
    holds = rows_of.compare(">=", rows_of.last(None), rows_of.number(0))
    case = rows_of.program(
        rows_of.plus(rows_of.v(0)), {0: holds}, limits=Limits(backtracking_steps=3)
    )
    with pytest.raises(WorkerError):
        list(run(compile_row_program(case), KEY, iter(batches), 0, memory=20_000))
    assert open_files() == before
    assert not list(tmp_path.iterdir())


def spilled(batches: Any = None, **more: Any) -> list[pa.RecordBatch]:
    batches = v_rows(2_000).to_batches(max_chunksize=100) if batches is None else batches
    return list(run(v_program(**more), KEY, iter(batches), 0, memory=20_000))


def error_of(raised: Any) -> Any:
    return parse_error(str(raised.value))


def test_a_full_disk_is_an_error_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(WorkerError) as raised:
        spilled()
    found = error_of(raised)
    assert "cannot be written to the local disk" in found.message
    assert "No space left on device" in found.message
    assert "spark.local.dir" in found.hint


def test_another_local_directory_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{missing},{tmp_path}")
    spilled()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(missing))
    with pytest.raises(WorkerError) as raised:
        spilled()
    assert str(missing) in error_of(raised).message


def test_rows_that_fit_touch_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "missing"))
    batches = v_rows(2_000).to_batches(max_chunksize=100)
    *_, last = run(v_program(), KEY, iter(batches), 0)
    metrics = json.loads(last.column("metrics")[0].as_py())
    assert not {"parts", "spilled_rows", "spilled_bytes"} & metrics.keys()


# ---- memory --------------------------------------------------------------------------------------


def grant(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda **_: size)
    monkeypatch.setattr(worker, "free_memory", lambda **_: size)


def test_a_key_that_cannot_fit_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    grant(monkeypatch, 40_000)
    # Text cannot be cut by time, so the rows of a key have to be held together.
    with pytest.raises(WorkerError) as raised:
        spilled(v_rows(4_000, keys=1).to_batches(), orders=(Order(rows_of.S, rows_of.STRING),))
    found = error_of(raised)
    assert isinstance(found, LimitError)
    assert "partition key [0] has at least 4,000 rows" in found.message
    assert "spark.executor.pyspark.memory" in found.hint
    assert found.details["limit"] == "memory"
    assert found.details["rows"] == 4_000
    assert found.details["reached"] > found.details["allowed"]


def test_the_same_rows_are_matched_by_time_in_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grant(monkeypatch, 40_000)
    *_, last = spilled(v_rows(4_000, keys=1).to_batches(max_chunksize=100))
    assert json.loads(last.column("metrics")[0].as_py())["parts"] > 10


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError])
@pytest.mark.parametrize("budget", [20_000, EVERYTHING])
def test_memory_that_runs_out_while_matching_is_told(
    error: type[Exception], budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise error("malloc of size 1 failed")

    monkeypatch.setattr("spark_cep.udfs.execution.row_engine.RowTable", fail)
    monkeypatch.setattr("spark_cep.udfs.rows.advance.RowTable", fail)
    batches = v_rows(2_000).to_batches(max_chunksize=100)
    with pytest.raises(WorkerError) as raised:
        list(run(v_program(keys=()), KEY, iter(batches), 0, memory=budget))
    assert "the only partition (no partition_by) has at least" in error_of(raised).message


LIMITED = """
import pickle, resource, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from spark_cep.udfs.execution.worker import run

program, output, rows, allowed = pickle.loads(Path(sys.argv[1]).read_bytes())

def batches(count):
    for start in range(0, count, 10_000):
        n = np.arange(start, start + 10_000)
        columns = {"t": n, "x": n % 1000 / 1000, "mask": (1 << n % 2).astype(np.int8)}
        columns = [columns[name] for name in output[1]]
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], program.columns)

for last in run(program, output[0], batches(20_000), 0):
    pass
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + allowed
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for last in run(program, output[0], batches(rows), 0):
    pass
print(last.column("metrics")[0].as_py())
"""


def run_limited(
    tmp_path: Path, window: int | None, megabytes: int
) -> subprocess.CompletedProcess[str]:
    """Matches 3 million rows in a process that may take so much more memory."""
    pattern = seq(event("a", "kind = 0"), event("b", "kind = 1")).where("b.x > a.x + 0.998")
    pattern = pattern if window is None else pattern.within(window)
    columns = {"t": np.arange(4), "x": np.arange(4) / 4, "kind": np.arange(4) % 2}
    program = prepare(pattern, columns, order_by="t").program
    names = {program.orders[0].column: "t", program.mask: "mask"}
    shipped = [names.get(place, "x") for place in range(len(program.columns))]
    output = EventOutput("one", program.orders[0].column, numbered=False)
    job = tmp_path / "job.pickle"
    job.write_bytes(pickle.dumps((program, (output, shipped), 3_000_000, megabytes << 20)))
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(job)],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.slow
def test_a_worker_with_a_limit_ends_with_an_error_and_not_with_a_kill(tmp_path: Path) -> None:
    done = run_limited(tmp_path, None, 150)
    found = parse_error(done.stderr)
    assert done.returncode == 1, done.stderr
    assert isinstance(found, LimitError), done.stderr
    assert "3,000,000 rows" in found.message
    assert found.details["limit"] == "memory"


@pytest.mark.slow
def test_with_a_window_the_same_limit_is_enough(tmp_path: Path) -> None:
    done = run_limited(tmp_path, 100, 150)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 3_000_000
    assert json.loads(done.stdout)["parts"] > 2


def test_the_budget_follows_the_limit() -> None:
    mebibyte = 1 << 20
    assert memory.choose_budget(None, None) == memory.DEFAULT_BUDGET
    assert memory.choose_budget(None, 1 << 40) == memory.DEFAULT_BUDGET
    assert memory.choose_budget(None, 100 * mebibyte) == 25 * mebibyte
    assert memory.choose_budget(None, 1) == memory.LEAST_BUDGET
    assert memory.choose_budget(256 * mebibyte, 1 << 40) == 256 * mebibyte
    assert memory.choose_budget(256 * mebibyte, 100 * mebibyte) == 75 * mebibyte


CGROUPS = {
    "version 2": {
        "/proc/self/cgroup": "0::/pod/task\n",
        "/sys/fs/cgroup/pod/task/memory.max": "max\n",
        "/sys/fs/cgroup/pod/memory.max": "1000\n",
        "/sys/fs/cgroup/pod/memory.current": "700\n",
        "/sys/fs/cgroup/pod/memory.stat": "anon 400\nfile 300\ninactive_file 200\n",
    },
    "version 1": {
        "/proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/1\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "700\n",
        "/sys/fs/cgroup/memory/memory.stat": "cache 300\ntotal_inactive_file 200\n",
    },
    "no limit": {
        "/proc/self/cgroup": "4:memory:/\n0::/\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory.max": "max\n",
    },
}


@pytest.mark.parametrize(
    ("files", "free"), [("version 2", 500), ("version 1", 500), ("no limit", 2048)]
)
def test_the_limits_of_a_container_are_read(
    files: str, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {**CGROUPS[files], "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 2 kB\n"}
    monkeypatch.setattr(memory, "_read_text", lambda path: found.get(str(path)))
    monkeypatch.delenv("PYSPARK_EXECUTOR_MEMORY_MB", raising=False)
    memory._limited_cgroups.cache_clear()
    try:
        assert memory.free_memory() == free
    finally:
        memory._limited_cgroups.cache_clear()


def test_pysparks_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_process_bytes", lambda: (90 << 20, 80 << 20))
    monkeypatch.setenv("PYSPARK_EXECUTOR_MEMORY_MB", "100")
    assert memory.free_memory() == 20 << 20
    assert memory.free_memory(with_reserved=False) == 10 << 20
    monkeypatch.setenv("PYSPARK_EXECUTOR_MEMORY_MB", "70")
    assert memory.free_memory() == 0
