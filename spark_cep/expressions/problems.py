"""Problems of a pattern, collected and reported in one PatternError.

A problem says what is wrong, where, and what to write instead. Checks add problems and continue,
so that the user sees all of them at once; the last check is followed by `raise_if_any`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from spark_cep.errors import PatternError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Excerpt(str):
    """Part of a larger text, such as a query, in which problems are shown. Strings derived from it
    (`strip`, slices) are plain strings."""

    whole: str
    offset: int

    def __new__(cls, whole: str, start: int, end: int) -> Excerpt:
        return cls._of(whole[start:end], whole, start)

    @classmethod
    def altered(cls, text: str, whole: str) -> Excerpt:
        """A modified copy of `whole` that has the same length."""
        return cls._of(text, whole, 0)

    @classmethod
    def _of(cls, text: str, whole: str, offset: int) -> Excerpt:
        found = super().__new__(cls, text)
        found.whole, found.offset = whole, offset
        return found

    def __reduce__(self) -> tuple[object, ...]:
        # Workers do not need the larger text.
        return str, (str(self),)


class EditedText(str):
    """A text with replacements, in which problems are shown in the original. Each piece holds its
    first character here, the character of the original that it comes from, and whether it was
    copied."""

    original: str
    pieces: tuple[tuple[int, int, bool], ...]

    @classmethod
    def of(cls, original: str, edits: Iterable[tuple[int, int, str]]) -> EditedText:
        """The text with edits (start, end, replacement).

        >>> text = EditedText.of("p * 2 + x", [(0, 1, "LAST(b.price)")])
        >>> print(text)
        LAST(b.price) * 2 + x
        >>> print(Place(text, 20, 21).outermost().drawing())
        p * 2 + x
                ^
        """
        texts: list[str] = []
        pieces: list[tuple[int, int, bool]] = []
        done, length = 0, 0
        for start, end, replacement in [*sorted(edits), (len(original), len(original), "")]:
            pieces += [(length, done, True), (length + start - done, start, False)]
            texts += [original[done:start], replacement]
            length += start - done + len(replacement)
            done = end
        found = super().__new__(cls, "".join(texts))
        found.original, found.pieces = original, tuple(pieces)
        return found

    def source(self, offset: int) -> int:
        """The character of the original; within a replacement the first that it replaced."""
        at = bisect_right(self.pieces, offset, key=lambda piece: piece[0]) - 1
        start, source, copied = self.pieces[max(at, 0)]
        return source + (offset - start if copied else 0)

    def __reduce__(self) -> tuple[object, ...]:
        # Workers do not need the original.
        return str, (str(self),)


@dataclass(frozen=True)
class Place:
    """Characters [start, end) of a user's text."""

    text: str
    start: int
    end: int

    @classmethod
    def whole(cls, text: str) -> Place:
        return cls(text, 0, len(text))

    def outermost(self) -> Place:
        """The same place in the text that an excerpt was cut from.

        >>> print(Place(Excerpt("PATTERN (a b)", 9, 12), 2, 3).outermost().drawing())
        PATTERN (a b)
                   ^
        """
        if isinstance(self.text, EditedText):
            start, last = self.text.source(self.start), self.text.source(max(self.end - 1, 0))
            return Place(self.text.original, start, max(start, last) + 1).outermost()
        if not isinstance(self.text, Excerpt):
            return self
        offset = self.text.offset
        return Place(self.text.whole, offset + self.start, offset + self.end).outermost()

    def line_and_column(self) -> tuple[int, int]:
        """Both counted from 1."""
        before = self.text[: self.start]
        return before.count("\n") + 1, self.start - (before.rfind("\n") + 1) + 1

    def drawing(self) -> str:
        """The line with carets under the place.

        >>> print(Place("a.x < b.y", 6, 9).drawing())
        a.x < b.y
              ^^^
        """
        _, column = self.line_and_column()
        begin = self.start - (column - 1)
        stop = self.text.find("\n", self.start)
        line = self.text[begin : stop if stop >= 0 else len(self.text)]
        marked = max(1, min(self.end - self.start, len(line) - (column - 1)))
        # Tabs stay tabs, so that the caret is under its character for every tab width.
        indent = "".join("\t" if c == "\t" else " " for c in line[: column - 1])
        return f"{line}\n{indent}{'^' * marked}"


@dataclass(frozen=True)
class Problem:
    message: str
    place: Place | None = None
    hint: str | None = None

    def describe(self) -> str:
        """The message with its place, without the hint."""
        if self.place is None:
            return self.message
        place = self.place.outermost()
        line, column = place.line_and_column()
        drawing = "\n".join(f"    {row}" for row in place.drawing().split("\n"))
        return f"{self.message}\n  at line {line}, column {column}:\n{drawing}"

    def details(self) -> dict[str, object]:
        place = self.place.outermost() if self.place else None
        line, column = place.line_and_column() if place else (None, None)
        return {
            "message": self.message,
            "line": line,
            "column": column,
            "length": place.end - place.start if place else None,
            "text": place.text if place else None,
            "hint": self.hint,
        }


@dataclass
class Problems:
    """`subject`: the beginning of the summary, "the pattern has"."""

    found: list[Problem] = field(default_factory=list)
    subject: str = "the pattern has"

    def add(self, message: str, place: Place | None = None, *, hint: str | None = None) -> None:
        problem = Problem(message, place, hint)
        if problem not in self.found:
            self.found.append(problem)

    def take(self, error: PatternError, place: Place | None = None) -> None:
        """Adds the error of a single check as a problem."""
        self.add(error.message, place, hint=error.hint)

    def raise_if_any(self) -> None:
        if self.found:
            raise self.error()

    def error(self) -> PatternError:
        """All problems as one error; there must be at least one."""
        details: dict[str, object] = {"problems": [p.details() for p in self.found]}
        if len(self.found) == 1:
            only = self.found[0]
            return PatternError(only.describe(), hint=only.hint, details=details)
        parts = [f"{self.subject} {len(self.found)} problems"]
        for number, problem in enumerate(self.found, 1):
            hint = f"\n  hint: {problem.hint}" if problem.hint else ""
            parts.append(f"{number}. {problem.describe()}{hint}")
        return PatternError("\n".join(parts), details=details)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that the user probably meant.

    >>> nearest_name("prcie", ["price", "ticker"])
    'price'
    """
    spelled = {each.casefold(): each for each in known}
    close = get_close_matches(name.casefold(), spelled, n=1, cutoff=0.6)
    return spelled[close[0]] if close else None


def list_names(names: Iterable[str], limit: int = 8) -> str:
    """Names for a message; a long list is shortened."""
    names = list(names)
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown}, ... ({len(names)} in all)"
