"""The state of one bucket in memory: a `StateStore` for tests and benchmarks without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class InMemoryStore:
    """`reads` counts the segments that were read."""

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
