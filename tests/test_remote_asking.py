"""Batches that pass a lookup: their order, their columns, their counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from spark_cep.udfs.errors import RemoteError, WorkerError, parse_error
from spark_cep.udfs.remote_spec import RemoteSpec
from spark_cep.udfs.remotes.lookup import Lookup
from spark_cep.udfs.remotes.stage import BATCHES_AHEAD, LookupStage, StageColumn, look_up_batches


def remote(fetch: Any, **others: Any) -> RemoteSpec:
    return RemoteSpec("names", fetch, (pa.int64(),), pa.string(), token="t", **others)


def spelled(keys: list[int]) -> dict[int, str]:
    return {key: f"n{key}" for key in keys if key != 13}


def batches(sizes: Sequence[int], seen: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    start = 0
    for place, size in enumerate(sizes):
        if seen is not None:
            seen.append(place)
        rows = pa.array(range(start, start + size), pa.int64())
        yield pa.RecordBatch.from_arrays([rows, rows], ["p0", "k0_0"])
        start += size


def passed(source: RemoteSpec, given: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    asking = LookupStage((StageColumn(source, (1,), pa.string()),), ("p0", "v0", "metrics"))
    lookup = Lookup(source)
    try:
        return list(look_up_batches(asking, given, (lookup,)))
    finally:
        lookup.close()


@pytest.mark.parametrize("strategy", ["blocking", "cached", "prefetch"])
def test_rows_go_out_as_they_came_with_their_values(strategy: Any) -> None:
    found = passed(remote(spelled, strategy=strategy), batches([3, 0, 9, 1, 4]))
    table = pa.Table.from_batches(found)
    assert table.column("p0").to_pylist() == list(range(17))
    wanted = [None if key == 13 else f"n{key}" for key in range(17)]
    assert table.column("v0").to_pylist() == wanted


def test_the_last_row_tells_what_was_counted() -> None:
    metrics = pa.Table.from_batches(passed(remote(spelled), batches([2, 3]))).column("metrics")
    *nothing, told = metrics.to_pylist()
    assert set(nothing) == {None}
    assert json.loads(told)["remotes"]["names"]["keys"] == 5


def test_batches_are_asked_for_ahead_of_the_one_that_is_handed_on() -> None:
    seen: list[int] = []
    source = remote(spelled)
    asking = LookupStage((StageColumn(source, (1,), pa.string()),), ("p0", "v0", "metrics"))
    lookup = Lookup(source)
    given = look_up_batches(asking, batches([1] * 20, seen), (lookup,))
    next(given)
    # One more is held back, for it might be the last.
    assert len(seen) == BATCHES_AHEAD + 2
    given.close()
    lookup.close()


def test_closing_rows_of_an_engine_take_the_counts_along() -> None:
    rows = pa.array([1, 2, None], pa.int64())
    closing = pa.array([None, None, json.dumps({"matches": 2, "remotes": {"names": {"keys": 1}}})])
    batch = pa.RecordBatch.from_arrays([rows, closing, rows], ["p0", "metrics", "k0_0"])
    source = remote(spelled)
    asking = LookupStage(
        (StageColumn(source, (2,), pa.string()),), ("p0", "metrics", "v0"), counts=1
    )
    lookup = Lookup(source)
    (found,) = look_up_batches(asking, iter([batch]), (lookup,))
    lookup.close()
    assert found.column("v0").to_pylist() == ["n1", "n2", None]
    first, second, told = found.column("metrics").to_pylist()
    assert (first, second) == (None, None)
    assert json.loads(told)["matches"] == 2
    assert json.loads(told)["remotes"]["names"]["keys"] == 3


def test_a_failure_leaves_the_worker_as_an_error_of_ours() -> None:
    def fails(keys: list[int]) -> dict[int, str]:
        raise RemoteError("wrong password", hint="give one")

    with pytest.raises(WorkerError) as raised:
        passed(remote(fails, show_errors=True), batches([2]))
    error = parse_error(str(raised.value))
    assert isinstance(error, RemoteError)
    assert "wrong password" in error.message
