"""What the row pattern works must answer, without the engine: Python's `re` over a letter for
each row, plain loops, and a small matcher that tries runs of rows greedily.

`re` prefers as the standard does: leftmost, then the order of the text, greedy first. A letter
stands for what a row may be; where conditions look back at the match, a loop says what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Array]
# (variable, its rows) so far, and the row to test.
Condition = Callable[[Mapping[str, list[int]], int], bool]
Match = dict[str, list[int]]


def partitions(columns: Columns, key: str | None) -> Iterator[Array]:
    """The rows of each partition; the rows lie in their order."""
    if key is None:
        yield np.arange(len(next(iter(columns.values()))))
        return
    values = columns[key]
    for each in np.unique(values):
        yield np.flatnonzero(values == each)


def letters(values: Array, names: Mapping[Any, str], other: str = ".") -> str:
    return "".join(names.get(each, other) for each in values.tolist())


def moves(values: Array) -> str:
    """D, U or S for a row below, above or at the one before; N has none before."""
    steps = np.sign(np.diff(values)).astype(int)
    return "N" + "".join("SUD"[step] for step in steps.tolist()) if len(values) else ""


def spans(
    pattern: str, text: str, skip: Callable[[int, int], int] = lambda _, end: end
) -> Iterator[tuple[int, int]]:
    """The matches in one partition; `skip` gives where to go on."""
    compiled = re.compile(pattern, re.S)
    at = 0
    while at < len(text):
        found = compiled.match(text, at)
        if found is None or found.end() == at:
            at += 1
        else:
            yield found.span()
            at = skip(*found.span())


def next_row(start: int, _: int) -> int:
    return start + 1


def runs(
    pattern: list[tuple[str, bool]], conditions: Mapping[str, Condition], rows: range
) -> Match | None:
    """The preferred match from the first of `rows` on. `pattern`: variables in sequence, and
    whether one repeats (+)."""
    return _tried(pattern, conditions, rows, {})


def _tried(
    pattern: list[tuple[str, bool]], conditions: Mapping[str, Condition], rows: range, path: Match
) -> Match | None:
    if not pattern:
        return path
    (name, repeats), *rest = pattern
    holds = conditions.get(name, lambda _path, _row: True)
    before = path.get(name, [])
    taken: list[int] = []
    for row in rows if repeats else rows[:1]:
        if not holds({**path, name: [*before, *taken, row]}, row):
            break
        taken.append(row)
    while taken:
        tried = {**path, name: [*before, *taken]}
        found = _tried(rest, conditions, rows[len(taken) :], tried)
        if found is not None:
            return found
        taken.pop()
    return None


def matches(
    pattern: list[tuple[str, bool]],
    conditions: Mapping[str, Condition],
    size: int,
    *,
    to_next_row: bool = False,
) -> Iterator[Match]:
    at = 0
    while at < size:
        found = runs(pattern, conditions, range(at, size))
        if found is None:
            at += 1
            continue
        yield found
        at = at + 1 if to_next_row else at + sum(map(len, found.values()))
