"""What a bucket's state says of itself: whose it is, how far it has come, what its blobs are.

A header is a few magic bytes, a version and JSON; nothing of a checkpoint is ever unpickled. It
names the query by a fingerprint, so the state of another pattern, of other columns or of another
number of buckets is refused in the first trigger instead of misread.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.errors import CepError

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC: Final = b"SCES"
_VERSION: Final = 1
_PREFIX: Final = struct.Struct("<4sHI")  # magic, version, length of the JSON that follows
_RESTART: Final = "or start from a new checkpoint location"


@dataclass(frozen=True)
class Identity:
    """Whose state it is. `program` and `schema` are fingerprints."""

    program: str
    schema: str
    buckets: int


@dataclass
class Header:
    """`horizon`: the event time up to which rows have come; None: no watermark yet. `segments`:
    blobs of rows, as [number, rows, flags of all its rows or -1]. `nonce`: changes with every
    write. `number`: of the next match. The rest belongs to who keeps it."""

    identity: Identity
    horizon: int | None = None
    segments: list[list[int]] = field(default_factory=list)
    next_segment: int = 0
    has_flags: bool = False
    nonce: str = ""
    number: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)
    groups: list[list[Any]] = field(default_factory=list)
    learnt: dict[str, Any] = field(default_factory=dict)


def identity(fingerprint: str, schema: pa.Schema, buckets: int) -> Identity:
    # What Spark notes beside a column, a watermark's delay or a comment, changes no row.
    text = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
    return Identity(fingerprint, hashlib.sha256(text.encode()).hexdigest(), buckets)


def to_bytes(header: Header) -> bytes:
    body = {each.name: getattr(header, each.name) for each in fields(header)}
    text = json.dumps({**body, "identity": vars(header.identity)}).encode()
    return _PREFIX.pack(_MAGIC, _VERSION, len(text)) + text


def from_bytes(data: bytes, mine: Identity) -> Header:
    """The header, if it is this query's; a CepError that says why if it is not."""
    if len(data) < _PREFIX.size:
        raise CepError("the state in the checkpoint is cut short", hint=f"restore it, {_RESTART}")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC or len(data) != _PREFIX.size + length:
        raise CepError("the state in the checkpoint is not spark-cep's", hint=f"use {_RESTART[3:]}")
    if version != _VERSION:
        raise CepError(
            f"the state in the checkpoint has format {version}, this release reads {_VERSION}",
            hint=f"go on with the release that wrote it, {_RESTART}",
        )
    body = json.loads(data[_PREFIX.size :])
    _check(Identity(**body.pop("identity")), mine)
    return Header(mine, **body)


def _check(theirs: Identity, mine: Identity) -> None:
    if theirs.buckets != mine.buckets:
        raise CepError(
            f"the checkpoint was made with {theirs.buckets} bucket{'s' * (theirs.buckets != 1)}, "
            f"this query has {mine.buckets}",
            hint=f"set spark.cep.buckets to {theirs.buckets} before the query is built, {_RESTART}",
        )
    if theirs.program != mine.program and theirs.schema != mine.schema:
        raise CepError(
            "the checkpoint was made with another pattern or with other columns",
            hint=f"go on with those, {_RESTART}: its open matches mean nothing here",
        )
    if theirs.program != mine.program:
        raise CepError(
            "the checkpoint was made with another pattern, or other order or partition columns",
            hint=f"go on with that pattern, {_RESTART}: its open matches mean nothing here",
        )
    if theirs.schema != mine.schema:
        raise CepError(
            "the checkpoint was made with other columns, or columns of other types",
            hint=f"restore the columns that the query read, {_RESTART}",
        )
