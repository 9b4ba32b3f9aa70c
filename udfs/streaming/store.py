"""What a bucket keeps between triggers, as the state store sees it: a header and numbered blobs.

The header says what the blobs are; it is read first, and refused if it is another query's. The
store writes what changed and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


class Store(Protocol):
    def header(self) -> bytes | None: ...

    def put_header(self, header: bytes) -> None: ...

    def read(self, number: int) -> bytes: ...

    def write(self, number: int, blob: bytes) -> None: ...

    def remove(self, number: int) -> None: ...


@dataclass
class InMemory:
    """A store for tests and for measuring."""

    kept: bytes | None = None
    blobs: dict[int, bytes] = field(default_factory=dict)
    reads: int = 0

    def header(self) -> bytes | None:
        return self.kept

    def put_header(self, header: bytes) -> None:
        self.kept = header

    def read(self, number: int) -> bytes:
        self.reads += 1
        return self.blobs[number]

    def write(self, number: int, blob: bytes) -> None:
        self.blobs[number] = blob

    def remove(self, number: int) -> None:
        del self.blobs[number]
