"""Errors of Spark about a statement in which DataFrames took the place of clauses.

Spark names such a DataFrame `_pyspark_` with 32 digits, Connect `_pyspark_connect_temp_view_`, and
counts positions in the text with that name. Both are put back to what the user wrote; the error
stays Spark's own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.sql.composer import QueryComposer
    from spark_cep.sql.statement import Statement

_GENERATED = re.compile(r"`?_pyspark_\w+`?")
_DIGITS = 32 * "0"
_CLASSIC, _CONNECT = f"_pyspark_{_DIGITS}", f"_pyspark_connect_temp_view_{_DIGITS}"
_POSITION = re.compile(r"\bline (\d+)(,?) pos (\d+)\b")
# The text that Spark was given, with the place marked.
_TEXT = re.compile(r"\n== SQL[^\n]*==\n.*", re.S)
# The plan, of which the user wrote nothing, follows the message.
_PLAN = re.compile(r";\s*\n['+:\w].*", re.S)


def restate_error(error: Exception, composer: QueryComposer, *, is_connect: bool = False) -> None:
    """Changes the texts that the error consists of, in place, and adds the places of clauses that
    have no alias."""
    if not composer.frames:
        return
    is_named = _GENERATED.search(_TEXT.sub("", _PLAN.sub("", str(error)))) is not None
    for name, value in list(vars(error).items()):
        if isinstance(value, str):
            setattr(error, name, restate(value, composer, is_connect=is_connect))
    error.args = tuple(
        restate(each, composer, is_connect=is_connect) if isinstance(each, str) else each
        for each in error.args
    )
    if is_named:
        statement = composer.statement
        places = [statement.place((each.start, each.end)) for each in composer.frames]
        shown = " and ".join("line {}, column {}".format(*p.line_and_column()) for p in places)
        error.add_note(
            f"A MATCH_RECOGNIZE without an alias has no name of its own (the clauses are at "
            f"{shown}): write MATCH_RECOGNIZE (...) AS m"
        )


def restate(text: str, composer: QueryComposer, *, is_connect: bool = False) -> str:
    """A message with names and positions of the statement."""
    rendered, origins = _rendered(composer, _CONNECT if is_connect else _CLASSIC)
    drawings: list[str] = []

    def position(found: re.Match[str]) -> str:
        at = _offset(rendered, int(found[1]), int(found[3]))
        if at is None:
            return found[0]
        source = next(start + at - begin for begin, start in reversed(origins) if begin <= at)
        place = composer.statement.place((source, source + 1))
        line, column = place.line_and_column()
        drawings.append(f"\n== SQL ==\n{place.drawing()}\n")
        return f"line {line}{found[2]} pos {column - 1}"

    text = _POSITION.sub(position, _PLAN.sub("", text))
    if drawings:
        text = _TEXT.sub(lambda _: drawings[0], text)
    return _GENERATED.sub("MATCH_RECOGNIZE", text)


def _rendered(composer: QueryComposer, name: str) -> tuple[str, list[tuple[int, int]]]:
    """The text that Spark was given, and where its pieces are in it and in the statement."""
    statement: Statement = composer.statement
    texts: list[str] = []
    origins: list[tuple[int, int]] = []
    length = done = 0
    for frame in composer.frames:
        shown = frame.before + name + frame.behind
        for piece, start in ((statement.text[done : frame.start], done), (shown, frame.start)):
            origins.append((length, start))
            texts.append(piece)
            length += len(piece)
        done = frame.end
    origins.append((length, done))
    return "".join([*texts, statement.text[done:]]), origins


def _offset(text: str, line: int, position: int) -> int | None:
    """The character at a line, counted from 1, and a position in it, counted from 0."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines) or position > len(lines[line - 1]):
        return None
    return sum(len(each) + 1 for each in lines[: line - 1]) + position
