"""`spark.sql("... {df} ... {bound}", df=..., bound=...)`: the fields filled in.

DataFrames stay DataFrames: their fields become names that stand for them. Everything else is
written by Spark's own formatter, so that it reads as in a statement without a clause.

With a clause the text has braces that are no fields: `a{2,4}` and `{- a -}`. They cannot be
fields, so they are left as they are; doubled, as a template wants them, they are fine too.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.sql.derived import Derived, Edit, derived

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_NO_FIELD = re.compile(r"\{\s*(?:\d+\s*(?:,\s*\d*)?|,\s*\d*)\s*\}|\{-(?!\})|-\}(?!\})")
_LOOKUP = string.Formatter()


@dataclass(frozen=True)
class Filled:
    """`frames`: where the names of DataFrames stand in the text."""

    text: Derived
    frames: tuple[tuple[tuple[int, int], Any], ...]


def filled(
    text: str,
    values: Mapping[str, Any],
    is_frame: Callable[[Any], bool],
    written: Callable[[str], str],
) -> Filled:
    """The text with its fields filled in. `written`: what Spark makes of a field in braces.

    >>> filled("{x} a{2} {{y}}", {"x": 1}, lambda _: False, lambda field: "one").text.text
    'one a{2} {y}'
    """
    edits: list[Edit] = []
    dfs: dict[int, Any] = {}
    for start, end, field in _braces(text):
        if field is None:
            edits.append((start, end, text[start]))
            continue
        value = _value(field, values)
        if is_frame(value):
            dfs[start] = value
            edits.append((start, end, f"cep_frame_{len(dfs)}"))
        else:
            edits.append((start, end, written(text[start:end])))
    made = derived(text, (0, len(text)), edits)
    lengths = {start: len(replacement) for start, _, replacement in edits}
    frames = [
        ((begin, begin + lengths[source]), dfs[source])
        for begin, source, copied in made.pieces
        if not copied and source in dfs
    ]
    return Filled(made, tuple(frames))


def _value(field: str, values: Mapping[str, Any]) -> Any:
    name = re.split(r"[!:]", field, maxsplit=1)[0]
    return _LOOKUP.get_field(name, (), values)[0]


def _braces(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Doubled braces, without a field, and fields, from left to right."""
    at = 0
    while at < len(text):
        if text[at] not in "{}-":
            at += 1
            continue
        plain = _NO_FIELD.match(text, at)
        if plain is not None:
            at = plain.end()
        elif text.startswith(("{{", "}}"), at):
            yield at, at + 2, None
            at += 2
        else:
            end = text.find("}", at) + 1 if text[at] == "{" else 0
            if end:
                yield at, end, text[at + 1 : end - 1]
            at = end or at + 1
