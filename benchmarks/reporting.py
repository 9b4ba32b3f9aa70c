"""What a benchmark says at its end: tables in Markdown, and which claims hold.

A claim of a paper, or a goal of the project, is printed with its figures whether it holds or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """`figures`: what was measured, beside what was asked for."""

    text: str
    holds: bool
    figures: str

    def line(self) -> str:
        """
        >>> Claim("the tree is never above eager", False, "1.2x at one place").line()
        'MISSED: the tree is never above eager (1.2x at one place)'
        """
        return f"{'met' if self.holds else 'MISSED'}: {self.text} ({self.figures})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table, its columns aligned: text to the left, numbers to the right.

    >>> print(table(["plan", "pairs"], [["eager", 12161141], ["tree", 290.5]]))
    | plan  |      pairs |
    |:------|-----------:|
    | eager | 12,161,141 |
    | tree  |        290 |
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    numbers = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(head))]
    widths = [max(len(cell) for cell in column) for column in zip(head, *texts, strict=True)]
    rule = [
        "-" * (width + 1) + ":" if number else ":" + "-" * (width + 1)
        for width, number in zip(widths, numbers, strict=True)
    ]
    lines = [_line(head, widths, numbers), "|" + "|".join(rule) + "|"]
    return "\n".join([*lines, *(_line(row, widths, numbers) for row in texts)])


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, numbers, strict=True)
    ]
    return "| " + " | ".join(padded) + " |"


def _text(cell: object) -> str:
    """Whole numbers with separators; others with three digits, as far as they say anything."""
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return str(cell)
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.3g}"
