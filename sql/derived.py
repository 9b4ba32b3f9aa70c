"""Texts made from a text by replacing parts of it, that know where their characters came from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Edit = tuple[int, int, str]


@dataclass(frozen=True)
class Derived:
    """`original[start:end]` with replacements. `pieces`: from which character of `text` on, which
    character of the original it is, and whether those that follow it were copied."""

    original: str
    text: str
    pieces: tuple[tuple[int, int, bool], ...]

    def source(self, offset: int) -> int:
        """Where a character of the text came from; of a replacement the beginning.

        >>> derived("a < :x AND b", (0, 12), [(4, 6, "1000")]).source(13)
        11
        """
        at = bisect_right(self.pieces, offset, key=lambda piece: piece[0]) - 1
        start, source, copied = self.pieces[max(at, 0)]
        return source + (offset - start if copied else 0)


def derived(original: str, span: tuple[int, int], edits: Iterable[Edit] = ()) -> Derived:
    """Characters [start, end) of a text, with edits (start, end, replacement).

    >>> derived("a < :x AND b", (0, 12), [(4, 6, "1000")]).text
    'a < 1000 AND b'
    """
    start, end = span
    texts: list[str] = []
    pieces: list[tuple[int, int, bool]] = []
    length, done = 0, start

    def add(text: str, source: int, *, copied: bool) -> None:
        nonlocal length
        if text:
            pieces.append((length, source, copied))
            texts.append(text)
            length += len(text)

    for begin, stop, replacement in sorted(edits):
        if start <= begin and stop <= end:
            add(original[done:begin], done, copied=True)
            add(replacement, begin, copied=False)
            done = stop
    add(original[done:end], done, copied=True)
    return Derived(original, "".join(texts), tuple(pieces) or ((0, start, True),))
