"""Texts for Spark: cut from the statement, with DataFrames in the place of clauses.

DataFrames go to Spark as `{name}` fields of `spark.sql`, which is sound for both kinds of
session: a classic one resolves them at once and drops the views that they stood for, a Connect
one carries them inside the query's plan. Views of our own would have to outlive every DataFrame
made from them. Fields make the text a template, so the braces of the rest are doubled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.sql.statement import Statement


@dataclass(frozen=True)
class Frame:
    """A DataFrame that stands for characters [start, end) of the statement."""

    start: int
    end: int
    df: Any


@dataclass(frozen=True)
class Query:
    """Arguments of `spark.sql`."""

    text: str
    args: Any
    frames: dict[str, Any]


@dataclass
class Composer:
    """Cuts queries out of a statement. `markers`: where the `?` stand to which `args` belong, if
    those are a list. Frames are added as clauses are done; a later one may enclose earlier ones.
    """

    statement: Statement
    args: Any = None
    markers: tuple[int, ...] = ()
    frames: list[Frame] = field(default_factory=list)

    def replace(self, span: tuple[int, int], df: Any) -> None:
        """From now on the DataFrame stands for these characters."""
        inside = [each for each in self.frames if span[0] <= each.start and each.end <= span[1]]
        self.frames = [each for each in self.frames if each not in inside]
        self.frames.append(Frame(*span, df))
        self.frames.sort(key=lambda each: each.start)

    def query(self, pieces: Sequence[str | tuple[int, int]]) -> Query:
        """A query made of texts, and of characters of the statement."""
        texts: list[tuple[str, bool]] = []
        frames: dict[str, Any] = {}
        places: list[tuple[int, int]] = []
        for piece in pieces:
            if isinstance(piece, str):
                texts.append((piece, False))
                continue
            done = piece[0]
            for frame in self.frames:
                if piece[0] <= frame.start and frame.end <= piece[1]:
                    name = f"cep_{len(frames)}"
                    frames[name] = frame.df
                    places.append((done, frame.start))
                    texts += [(self.statement.text[done : frame.start], False), (name, True)]
                    done = frame.end
            places.append((done, piece[1]))
            texts.append((self.statement.text[done : piece[1]], False))
        return Query(_template(texts, bool(frames)), self._args(places), frames)

    def _args(self, places: Sequence[tuple[int, int]]) -> Any:
        """Of a list those that belong to what was cut; names find their values by themselves."""
        if not isinstance(self.args, list):
            return self.args
        found = [
            value
            for start, end in places
            for marker, value in zip(self.markers, self.args, strict=False)
            if start <= marker < end
        ]
        # Arguments too many are Spark's to judge, as in a statement without a clause.
        return found + self.args[len(self.markers) :]


def _template(texts: Sequence[tuple[str, bool]], has_fields: bool) -> str:
    if not has_fields:
        return "".join(text for text, _ in texts)
    return "".join(
        f"{{{text}}}" if is_field else text.replace("{", "{{").replace("}", "}}")
        for text, is_field in texts
    )
