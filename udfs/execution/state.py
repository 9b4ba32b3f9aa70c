"""What a bucket keeps between triggers: a header and numbered blobs in a store, and a copy in the
memory of the worker.

A header says whose state it is, how far it has come and what the blobs are: a few magic bytes, a
version and JSON. Nothing of a checkpoint is ever unpickled. The header names the query by a
fingerprint, so the state of another pattern, of other columns or of another number of buckets is
refused in the first trigger instead of misread.
"""

from __future__ import annotations

import json
import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from spark_cep.udfs import canonical
from spark_cep.udfs.errors import CepError

if TYPE_CHECKING:
    import pyarrow as pa


# ---- the header --------------------------------------------------------------------------------

_MAGIC: Final = b"SCES"
# A state in which matches wait has a version of its own, so that a release that does not know them
# refuses it, and continues any other.
_VERSION: Final = 2
_WAITING_VERSION: Final = 3
# The same for one in which rows are delayed.
_DELAYED_VERSION: Final = 4
_VERSIONS: Final = (_VERSION, _WAITING_VERSION, _DELAYED_VERSION)
_PREFIX: Final = struct.Struct("<4sHI")  # magic, version, length of the JSON that follows
_RESTART_HINT: Final = "or start from a new checkpoint location"


@dataclass(frozen=True)
class StateIdentity:
    """Whose state it is. `program` and `schema` are fingerprints."""

    program: str
    schema: str
    buckets: int


@dataclass
class StateHeader:
    """`horizon`: the event time up to which rows have come; None: nothing was written yet.
    `nonce` changes with every write. The rest is that of event patterns. `segments`: blobs of
    rows, as [number, rows, flags of all its rows or -1]. `number`: of the next match. `kept`,
    `groups`: the stored partial matches and their groups. `learnt`: what plans are
    made from. `waiting`: matches that wait for the watermark, as `kept`; None where they are found
    when it has passed them. `delayed`: how many rows are delayed for their remote values."""

    identity: StateIdentity
    horizon: int | None = None
    segments: list[list[int]] = field(default_factory=list)
    next_segment: int = 0
    has_flags: bool = False
    nonce: str = ""
    number: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)
    groups: list[list[Any]] = field(default_factory=list)
    learnt: dict[str, Any] = field(default_factory=dict)
    waiting: list[dict[str, Any]] | None = None
    delayed: int = 0


def make_identity(fingerprint: str, schema: pa.Schema, buckets: int) -> StateIdentity:
    return StateIdentity(fingerprint, canonical.fingerprint(canonical.schema(schema)), buckets)


def header_to_bytes(header: StateHeader) -> bytes:
    """The names in JSON belong to the format, whatever the fields are called here."""
    body = {
        "identity": {
            "form": canonical.FORMAT,
            "program": header.identity.program,
            "schema": header.identity.schema,
            "buckets": header.identity.buckets,
        },
        "horizon": header.horizon,
        "segments": header.segments,
        "next_segment": header.next_segment,
        "has_flags": header.has_flags,
        "nonce": header.nonce,
        "number": header.number,
        "kept": header.kept,
        "groups": header.groups,
        "learnt": header.learnt,
    }
    version = _VERSION
    if header.waiting is not None:
        body["waiting"] = header.waiting
        version = _WAITING_VERSION
    if header.delayed:
        body["delayed"] = header.delayed
        version = _DELAYED_VERSION
    text = json.dumps(body).encode()
    return _PREFIX.pack(_MAGIC, version, len(text)) + text


def header_from_bytes(data: bytes, mine: StateIdentity) -> StateHeader:
    """Raises CepError if the header is another query's, or of another format."""
    if len(data) < _PREFIX.size:
        raise CepError(
            "the state in the checkpoint is cut short",
            hint=f"restore the checkpoint, {_RESTART_HINT}",
        )
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC or len(data) != _PREFIX.size + length:
        raise CepError("the state in the checkpoint is not spark-cep's", hint=_RESTART_HINT[3:])
    if version not in _VERSIONS:
        known = f"{_VERSION} to {_DELAYED_VERSION}"
        raise CepError(
            f"the state in the checkpoint has format {version}, this release reads {known}",
            hint=f"continue with the release that wrote it, {_RESTART_HINT}",
        )
    body = json.loads(data[_PREFIX.size :])
    theirs = body["identity"]
    if theirs["form"] != canonical.FORMAT:
        raise CepError(
            f"the checkpoint describes its query in form {theirs['form']}, this release in form "
            f"{canonical.FORMAT}",
            hint=f"continue with the release that wrote it, {_RESTART_HINT}",
        )
    _check_identity(StateIdentity(theirs["program"], theirs["schema"], theirs["buckets"]), mine)
    return StateHeader(
        mine,
        horizon=body["horizon"],
        segments=body["segments"],
        next_segment=body["next_segment"],
        has_flags=body["has_flags"],
        nonce=body["nonce"],
        number=body["number"],
        kept=body["kept"],
        groups=body["groups"],
        learnt=body["learnt"],
        waiting=body.get("waiting"),
        delayed=body.get("delayed", 0),
    )


def _check_identity(theirs: StateIdentity, mine: StateIdentity) -> None:
    if theirs.buckets != mine.buckets:
        raise CepError(
            f"the checkpoint was made with {theirs.buckets} bucket{'s' * (theirs.buckets != 1)}, "
            f"this query has {mine.buckets}",
            hint=f"set spark.cep.buckets to {theirs.buckets} before building the query, "
            f"{_RESTART_HINT}",
        )
    if theirs.program != mine.program and theirs.schema != mine.schema:
        raise CepError(
            "the checkpoint was made with another pattern or with other columns",
            hint=f"restore the pattern and the columns, {_RESTART_HINT}",
        )
    if theirs.program != mine.program:
        raise CepError(
            "the checkpoint was made with another pattern, or other order or partition columns",
            hint=f"restore that pattern, {_RESTART_HINT}",
        )
    if theirs.schema != mine.schema:
        raise CepError(
            "the checkpoint was made with other columns, or columns of other types",
            hint=f"restore those columns, {_RESTART_HINT}",
        )


# ---- the store ---------------------------------------------------------------------------------


class StateStore(Protocol):
    """The blobs of one bucket. Only what is written travels to Spark's state store."""

    def header(self) -> bytes | None: ...

    def put_header(self, header: bytes) -> None: ...

    def read(self, number: int) -> bytes: ...

    def write(self, number: int, blob: bytes) -> None: ...

    def remove(self, number: int) -> None: ...


# ---- the worker's memory -----------------------------------------------------------------------

# The store is the truth. What is remembered counts only if the header in the store has the nonce
# that it was remembered with: another worker, a task that was tried again or a restart of the query
# have written another one.

# Buckets move between workers, so the least recently used state is forgotten first.
MOST_BYTES: Final = 256 << 20


class SizedState(Protocol):
    @property
    def nbytes(self) -> int: ...


_T = TypeVar("_T")
_StateKey = tuple[str, int]
_states: OrderedDict[_StateKey, tuple[str, SizedState]] = OrderedDict()


def recall_state(token: str, bucket: int, nonce: str, kind: type[_T]) -> _T | None:
    found = _states.pop((token, bucket), None)
    if found is None or found[0] != nonce:
        return None
    assert isinstance(found[1], kind)
    return found[1]


def remember_state(token: str, bucket: int, nonce: str, what: SizedState) -> None:
    for key in [key for key in _states if key[0] != token]:
        # A worker may serve several queries at once. Those that have ended are forgotten soon,
        # since all share one limit.
        if _total_bytes() < MOST_BYTES // 2:
            break
        del _states[key]
    _states[token, bucket] = nonce, what
    while len(_states) > 1 and _total_bytes() > MOST_BYTES:
        _states.popitem(last=False)


def _total_bytes() -> int:
    return sum(each.nbytes for _, each in _states.values())


def forget_states() -> None:
    """Forgets everything, as a new worker."""
    _states.clear()
