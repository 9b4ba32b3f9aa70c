"""Statements in which DataFrames take the place of MATCH_RECOGNIZE clauses.

`match_clauses` turns the clauses into matches, innermost and leftmost first; `QueryComposer` cuts
the queries for Spark out of the statement.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_cep.sql.correlation import find_outer_scope
from spark_cep.sql.inputs import computed_texts, partition_names, read_input, with_definitions
from spark_cep.sql.location import find_withs, visible_definitions
from spark_cep.sql.match_call import prepare_call
from spark_cep.sql.parameters import find_markers
from spark_cep.sql.pushdown import NO_PUSHDOWN, find_pushdown
from spark_cep.sql.reader import read_clause
from spark_cep.sql.statement import FramePiece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_cep.sql.clause import Clause, Span
    from spark_cep.sql.location import ClauseLocation, WithClause
    from spark_cep.sql.pushdown import KeyCondition
    from spark_cep.sql.statement import QueryPiece, Statement
    from spark_cep.sql.window_query import WindowSelect


@dataclass(frozen=True)
class SessionFunctions:
    """What runs a query and what matches: `spark.sql` and `match_pattern`, or stand-ins.

    `filter_keys`: chooses rows of a clause's input; None: nothing is done in front of clauses that
    the statement says behind them. `describe`: what Spark says is wrong, in a sentence. `quietly`:
    where failures are expected, which Spark would log.
    """

    sql: Callable[[SparkQuery], Any]
    match: Callable[..., Any]
    filter_keys: Callable[[Any, Clause, Sequence[KeyCondition]], Any] | None = None
    match_window: Callable[..., Any] | None = None
    describe: Callable[[Exception], str] = str
    quietly: Callable[[], AbstractContextManager[None]] = nullcontext


def match_clauses(
    composer: QueryComposer,
    locations: Sequence[ClauseLocation],
    session: SessionFunctions,
    selects: Sequence[WindowSelect] = (),
) -> None:
    """Replaces each clause by its matches in the composer's later queries, and each SELECT over
    windows with row patterns by its answer.

    All clauses are read before Spark is called, so that a mistake in the last one is reported
    before the first one runs.
    """
    statement = composer.statement
    clauses = [read_clause(statement, each) for each in locations]
    patterns = [span for each in selects for span in each.pattern_spans()]
    patterns += [each.pattern.span for each in clauses]
    composer.markers = find_markers(statement, patterns)
    scopes = [find_outer_scope(statement, each) for each in locations]
    calls = [
        prepare_call(
            statement,
            each,
            composer.args,
            composer.markers,
            outer=frozenset() if scope is None else scope.names,
        )
        for each, scope in zip(clauses, scopes, strict=True)
    ]
    all_withs = find_withs(statement)
    pushdowns = (NO_PUSHDOWN,) * len(calls)
    if session.filter_keys is not None:
        pushdowns = find_pushdown(statement, locations, clauses, composer.args, composer.markers)
    for select in selects:
        select.prepare(composer.args, composer.markers)
    waiting = sorted(selects, key=lambda each: each.stop)
    for location, prepared, pushdown in zip(locations, calls, pushdowns, strict=True):
        while waiting and waiting[0].stop <= location.closed:
            _answer_select(composer, waiting.pop(0), all_withs, session)
        found = read_input(composer, location, all_withs, session, prepared)
        rows, call, outer = found.rows, found.call, found.outer
        if session.filter_keys is not None and pushdown.conditions:
            rows = session.filter_keys(rows, call.clause, pushdown.conditions)
        partition_by = partition_names(statement, rows, call)
        computed = computed_texts(composer, rows, call)
        if outer is not None:
            partition_by = [*outer.names, *(partition_by or call.partition_names)]
        matches = call.run(rows, session.match, pushdown.unused, partition_by, computed)
        around = (matches,) if outer is None else outer.replacement(matches)
        composer.replace(location.span, *around)
    for select in waiting:
        _answer_select(composer, select, all_withs, session)


def _answer_select(
    composer: QueryComposer,
    select: WindowSelect,
    all_withs: tuple[WithClause, ...],
    session: SessionFunctions,
) -> None:
    statement = composer.statement
    needed = visible_definitions(statement, select.location, all_withs)

    def run(pieces: Sequence[QueryPiece], *, is_input: bool) -> Any:
        query = list(with_definitions(statement, needed, pieces)) if is_input else pieces
        try:
            rows = session.sql(composer.query(query))
            # A Connect session analyzes the query only here.
            _ = rows.schema
        except Exception as problem:
            line, column = statement.place(select.span).line_and_column()
            problem.add_note(
                "This is a part of the SELECT with a row pattern in a window, at line "
                f"{line}, column {column}. It is a separate query and cannot refer to columns of "
                "the enclosing query."
            )
            raise
        return rows

    assert session.match_window is not None
    composer.replace(select.span, select.answer(run, session.match_window), "SELECT * FROM ")


# ---- queries -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameReplacement:
    """A DataFrame that replaces the characters [start, end) of the statement, with texts before and
    behind it."""

    start: int
    end: int
    df: Any
    before: str = ""
    behind: str = ""


@dataclass(frozen=True)
class SparkQuery:
    """Arguments of `spark.sql`."""

    text: str
    args: Any
    frames: dict[str, Any]


@dataclass
class QueryComposer:
    """Cuts queries out of a statement, with DataFrames in the place of clauses.

    `markers` holds the positions of the `?` that `args` belong to, if those are a list. Frames are
    added clause by clause; a later one may enclose earlier ones.

    DataFrames go to Spark as `{name}` fields of `spark.sql`, which works in both kinds of session:
    a classic one resolves them at once and drops their views, a Connect one carries them inside the
    query's plan. Views of our own would have to outlive every DataFrame made from them. Fields make
    the text a template, so all other braces are doubled.
    """

    statement: Statement
    args: Any = None
    markers: tuple[int, ...] = ()
    frames: list[FrameReplacement] = field(default_factory=list)

    def replace(self, span: Span, df: Any, before: str = "", behind: str = "") -> None:
        """Makes the DataFrame, between two texts, replace these characters in all later queries."""
        inside = [each for each in self.frames if span[0] <= each.start and each.end <= span[1]]
        self.frames = [each for each in self.frames if each not in inside]
        # `FROM(SELECT ...) MATCH_RECOGNIZE (...)m`: parentheses keep words apart, names do not.
        text = self.statement.text
        left = " " if _is_word(text[: span[0]][-1:]) else ""
        right = " " if _is_word(text[span[1] :][:1]) else ""
        self.frames.append(FrameReplacement(*span, df, left + before, behind + right))
        self.frames.sort(key=lambda each: each.start)

    def query(self, pieces: Sequence[QueryPiece]) -> SparkQuery:
        """A query made of texts, of ranges of the statement and of DataFrames."""
        texts: list[tuple[str, bool]] = []
        frames: dict[str, Any] = {}
        places: list[tuple[int, int]] = []
        for piece in pieces:
            if isinstance(piece, str):
                texts.append((piece, False))
                continue
            if isinstance(piece, FramePiece):
                name = f"cep_{len(frames)}"
                frames[name] = piece.df
                texts.append((name, True))
                continue
            done = piece[0]
            for frame in self.frames:
                if piece[0] <= frame.start and frame.end <= piece[1]:
                    name = f"cep_{len(frames)}"
                    frames[name] = frame.df
                    places.append((done, frame.start))
                    texts += [
                        (self.statement.text[done : frame.start] + frame.before, False),
                        (name, True),
                        (frame.behind, False),
                    ]
                    done = frame.end
            places.append((done, piece[1]))
            texts.append((self.statement.text[done : piece[1]], False))
        return SparkQuery(_as_template(texts, bool(frames)), self._args(places), frames)

    def _args(self, places: Sequence[tuple[int, int]]) -> Any:
        """The arguments of the ranges that were cut; named ones need no choice."""
        if not isinstance(self.args, list):
            return self.args
        found = [
            value
            for start, end in places
            for marker, value in zip(self.markers, self.args, strict=False)
            if start <= marker < end
        ]
        # Surplus arguments are left to Spark, as in a statement without a clause.
        return found + self.args[len(self.markers) :]


def _is_word(character: str) -> bool:
    return character.isalnum() or (character != "" and character in "_`\"'")


def _as_template(texts: Sequence[tuple[str, bool]], has_fields: bool) -> str:
    if not has_fields:
        return "".join(text for text, _ in texts)
    return "".join(
        f"{{{text}}}" if is_field else text.replace("{", "{{").replace("}", "}}")
        for text, is_field in texts
    )
