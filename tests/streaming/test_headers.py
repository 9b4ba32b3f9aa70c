"""What a checkpoint's state says of itself, and what is refused because of it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from spark_cep.pattern import event, seq
from spark_cep.udfs import canonical
from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.execution.job import GUARD_BUCKET, add_guard, nullable_schema
from spark_cep.udfs.execution.state import (
    StateHeader,
    StateIdentity,
    header_from_bytes,
    header_to_bytes,
    make_identity,
)
from spark_cep.udfs.execution.trigger import check_checkpoint
from tests.cases import Case
from tests.local import EAGER
from tests.streaming.triggers import Stream

MINE = StateIdentity("program", "schema", 8)


def test_a_header_is_read_as_it_was_written() -> None:
    header = StateHeader(MINE, 7, [[0, 3, -1]], 1, has_flags=True, nonce="n", number=5)
    assert header_from_bytes(header_to_bytes(header), MINE) == header


def test_a_header_has_another_version_where_matches_wait() -> None:
    described = {"branch": 0, "group": [0, 1], "rows": 4, "lengths": {}}
    for waiting, version in ((None, 2), ([], 3), ([described], 3)):
        header = StateHeader(MINE, 7, [[0, 3, -1]], 1, waiting=waiting)
        data = header_to_bytes(header)
        assert data[4:6] == bytes([version, 0])
        assert header_from_bytes(data, MINE) == header


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (StateIdentity("program", "schema", 4), "made with 4 buckets, this query has 8"),
        (StateIdentity("other", "schema", 8), "another pattern, or other order"),
        (StateIdentity("program", "other", 8), "other columns, or columns of other types"),
        (StateIdentity("other", "other", 8), "another pattern or with other columns"),
    ],
)
def test_the_state_of_another_query_is_refused(theirs: StateIdentity, message: str) -> None:
    with pytest.raises(CepError, match=message) as refused:
        header_from_bytes(header_to_bytes(StateHeader(theirs)), MINE)
    assert "start from a new checkpoint location" in (refused.value.hint or "")


def test_every_trigger_sees_whose_checkpoint_it_is_wherever_its_rows_go() -> None:
    first = next(iter(add_guard(())))
    assert (first.column("bucket").to_pylist(), first.num_rows) == ([GUARD_BUCKET], 1)
    stream = Stream(Case(seq(event("a", "kind = 'A'")).within(5), []), EAGER)
    check_checkpoint(stream.job, stream.store)
    written = stream.store.header()
    assert written is not None
    check_checkpoint(stream.job, stream.store)
    assert stream.store.header() == written
    other = replace(stream.job, identity=replace(stream.job.identity, buckets=3))
    with pytest.raises(WorkerError, match="made with 1 bucket, this query has 3"):
        check_checkpoint(other, stream.store)


def test_what_is_no_header_is_refused() -> None:
    data = header_to_bytes(StateHeader(MINE))
    for broken, message in (
        (data[:4], "cut short"),
        (data[:-1], "not spark-cep's"),
        (b"SCEP" + data[4:], "not spark-cep's"),
        (data[:4] + b"\x63\x00" + data[6:], "format 99, this release reads 2 to 4"),
    ):
        with pytest.raises(CepError, match=message):
            header_from_bytes(broken, MINE)


def test_a_query_that_is_described_in_another_form_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = header_to_bytes(StateHeader(MINE))
    monkeypatch.setattr(canonical, "FORMAT", 99)
    with pytest.raises(CepError, match="describes its query in form 1, this release in form 99"):
        header_from_bytes(data, MINE)


def test_a_bucket_with_the_state_of_another_pattern_gives_nothing() -> None:
    rows = [{"t": t, "u": t, "k": 1, "x": t, "f": 0.5, "kind": "A"} for t in range(2)]
    one, other = (
        Stream(Case(seq("a", event("b", f"x > a.x {more}")).within(5), rows), EAGER)
        for more in ("", "+ 1")
    )
    one.trigger([0], -1)  # type: ignore[arg-type]
    other.store = one.store
    with pytest.raises(Exception, match="another pattern"):
        other.trigger([1], -1)  # type: ignore[arg-type]


# ---- how rows lie in the store -----------------------------------------------------------------


def test_every_field_may_be_null_in_the_store() -> None:
    inner = pa.struct([pa.field("n", pa.int64(), nullable=False)])
    strict = pa.schema(
        [
            pa.field("s", inner, nullable=False),
            pa.field("l", pa.list_(pa.field("element", inner, nullable=False))),
            pa.field("m", pa.map_(pa.string(), pa.field("value", inner, nullable=False))),
        ]
    )
    loose = nullable_schema(strict)
    values = {"s": [None, {"n": 1}], "l": [[None, {"n": 2}], None], "m": [None, [("k", None)]]}
    assert pa.Table.from_pydict(values, loose).to_pydict() == values
    assert make_identity("p", loose, 1) == make_identity("p", nullable_schema(loose), 1)
