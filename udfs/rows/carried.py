"""What an advance over row patterns leaves for the next one, and its form in bytes.

Of each partition the rows that can still be read, and where its next search begins. Bytes are a
versioned header, then Arrow IPC; nothing is ever unpickled. The header names the program by a
fingerprint, so the state of another pattern is refused instead of misread.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_cep.udfs.errors import CepError

if TYPE_CHECKING:
    from spark_cep.udfs.rows.program import RowProgram

_MAGIC: Final = b"SCER"
_VERSION: Final = 1
_PREFIX: Final = struct.Struct("<4sHI")  # magic, version, length of the JSON header
_FRESH: Final = "start from a new checkpoint"

# One row for each partition, in the order of its rows.
PARTITIONS: Final = pa.schema(
    [
        ("size", pa.int64()),  # its rows in `rows`
        ("begin", pa.int64()),  # of these, before the next search begins
        ("covered", pa.int64()),  # rows from there on that a match has
        ("number", pa.int64()),  # of its last match
        ("dropped", pa.int64()),  # rows before these, no longer needed
    ]
)


@dataclass(frozen=True)
class RowState:
    """`rows` None: nothing was seen yet. First the known rows, partition after partition, each in
    its order; then those that came too early. `horizon`: of the last advance."""

    rows: pa.Table | None = None
    partitions: pa.Table = field(default_factory=PARTITIONS.empty_table)
    horizon: int | float | None = None

    @property
    def size(self) -> int:
        return 0 if self.rows is None else self.rows.num_rows

    @property
    def nbytes(self) -> int:
        return 0 if self.rows is None else int(self.rows.nbytes)

    def to_bytes(self, program: RowProgram) -> bytes:
        header = json.dumps(
            {
                "program": fingerprint(program),
                "horizon": self.horizon,
                "has_rows": self.rows is not None,
            }
        ).encode()
        sink = pa.BufferOutputStream()
        sink.write(_PREFIX.pack(_MAGIC, _VERSION, len(header)))
        sink.write(header)
        for table in (self.partitions, self.rows):
            if table is not None:
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def from_bytes(cls, data: bytes, program: RowProgram) -> RowState:
        """The state, if it is one of this program's; a CepError that says why if it is not."""
        if len(data) < _PREFIX.size:
            raise CepError("the stored state is cut short", hint=_FRESH)
        magic, version, length = _PREFIX.unpack_from(data)
        if magic != _MAGIC:
            raise CepError("these bytes are no state of a row pattern", hint=_FRESH)
        if version != _VERSION:
            raise CepError(
                f"the stored state has format {version}, this release reads format {_VERSION}",
                hint=f"finish the query with the release that wrote it, or {_FRESH}",
            )
        header = _header(data[_PREFIX.size : _PREFIX.size + length])
        if header["program"] != fingerprint(program):
            raise CepError(
                "the stored state belongs to another pattern or to other columns",
                hint=f"restore the pattern it was made with, or {_FRESH}",
            )
        try:
            source = pa.BufferReader(pa.py_buffer(data)[_PREFIX.size + length :])
            partitions = _read(source)
            rows = _read(source) if header["has_rows"] else None
        except (pa.ArrowInvalid, OSError) as error:
            raise CepError("the stored state is cut short", hint=_FRESH) from error
        return cls(rows, partitions, header["horizon"])


def fingerprint(program: RowProgram) -> str:
    """Equal for programs that mean the same and ship the same columns. Limits do not count."""
    meaning = (
        program.columns, program.keys, program.orders, program.variables, program.pattern,
        program.measures, program.rows, program.skip, program.within, program.ansi,
    )  # fmt: skip
    return hashlib.sha256(json.dumps(_canonical(meaning)).encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The same in every process: sets have no order of their own, and a function that the user
    gave prints with its address."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = [_canonical(getattr(value, each.name)) for each in fields(value)]
        return [type(value).__name__, *parts]
    if isinstance(value, frozenset):
        return ["set", *sorted(value)]
    if isinstance(value, tuple | list):
        return [_canonical(each) for each in value]
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return repr(value)


def _header(data: bytes) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise CepError("the stored state is cut short", hint=_FRESH) from error
    return header


def _read(source: pa.BufferReader) -> pa.Table:
    with pa.ipc.open_stream(source) as reader:
        return reader.read_all()
