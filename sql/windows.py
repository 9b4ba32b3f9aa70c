"""Windows with row patterns (feature R020): where they are, what they say, and who calls them.

    label OVER w, sum(price) OVER (...)    WINDOW w AS (... ROWS BETWEEN ... PATTERN ...)

The pattern part of a window is read as a MATCH_RECOGNIZE clause, from a text in which the parts
that such a clause does not have are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.expressions.problems import list_names, nearest_name
from spark_cep.sql.location import find_clauses
from spark_cep.sql.reader import read_clause
from spark_cep.sql.selects import list_items, tokens_without_queries
from spark_cep.sql.statement import DerivedText, Statement, derive_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.errors import PatternError
    from spark_cep.sql.clause import Clause
    from spark_cep.sql.selects import Select

_FRAME = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING, or AND 10 FOLLOWING"
# No partition has more rows.
_MOST_ROWS = 1 << 31
_NOT_BASES = ("PARTITION", "ORDER", "MEASURES", "ROWS", "RANGE", "GROUPS", "AFTER", "PATTERN")
_PATTERN_PARTS = ("DEFINE", "MEASURES", "SUBSET", "AFTER", "INITIAL", "SEEK")


@dataclass(frozen=True)
class PatternWindow:
    """A window with a row pattern, in the brackets `opened` and `closed`.

    `partition`, `order`: items as tokens, of the window or of that which it extends. `following`:
    None for UNBOUNDED, a number, or the tokens of an expression. `statement`, `clause`: the pattern
    part, as a statement of its own, with the text that it was `derived` from."""

    opened: int
    closed: int
    partition: tuple[tuple[int, int], ...]
    order: tuple[tuple[int, int], ...]
    following: int | tuple[int, int] | None
    seeks: bool
    statement: Statement
    derived: DerivedText
    clause: Clause

    def markers(self, markers: Sequence[int]) -> tuple[int, ...]:
        """The positions of parameters in its own statement; -1 for those of other parts."""
        return tuple(self._position(each) for each in markers)

    def _position(self, offset: int) -> int:
        pieces = self.derived.pieces
        ends = [*(start for start, _, _ in pieces[1:]), len(self.derived.text)]
        for (start, source, copied), end in zip(pieces, ends, strict=True):
            if copied and source <= offset < source + end - start:
                return start + offset - source
        return -1


@dataclass(frozen=True)
class WindowCall:
    """The tokens [first, stop) are a call over a window with a row pattern: of a measure, or of a
    function with its `arguments` in brackets. `over`: the word. `ignores_nulls`: IGNORE NULLS.
    `filter`: the condition of FILTER (WHERE ...)."""

    first: int
    over: int
    stop: int
    name: str
    window: PatternWindow
    arguments: tuple[int, int] | None = None
    ignores_nulls: bool = False
    filter: tuple[int, int] | None = None


# ---- where windows are -------------------------------------------------------------------------


def find_pattern_windows(statement: Statement) -> tuple[int, ...]:
    """The opening brackets of all windows that have a row pattern."""
    return tuple(
        opened
        for opened, closed in sorted(statement.partners.items())
        if opened < closed
        and (statement.is_at(opened - 1, "OVER") or _is_definition(statement, opened))
        and _pattern_token(statement, opened, closed) is not None
    )


def pattern_span(statement: Statement, opened: int) -> tuple[int, int]:
    """The characters of PATTERN (...)."""
    word = _pattern_token(statement, opened, statement.partners[opened])
    assert word is not None
    return statement.span(word, statement.partners.get(word + 1, word + 1) + 1)


def _pattern_token(statement: Statement, opened: int, closed: int) -> int | None:
    """The token of PATTERN (...) behind a frame, or beside another part of such a window:
    pattern(x) alone may be a function."""
    inner = list(statement.top(opened + 1, closed))
    has_parts = any(statement.tokens[at].is_word(*_PATTERN_PARTS) for at in inner)
    return next(
        (
            at
            for at in inner
            if statement.is_at(at, "PATTERN")
            and statement.symbol(at + 1, "(")
            and (has_parts or statement.tokens[at - 1].is_word("FOLLOWING", "ROW"))
        ),
        None,
    )


def _is_definition(statement: Statement, opened: int) -> bool:
    """Whether the bracket is that of WINDOW w AS (...), v AS (...)."""
    name = opened - 2
    if not statement.is_at(opened - 1, "AS"):
        return False
    while name > 1 and statement.symbol(name - 1, ","):
        closed = name - 2
        name = statement.partners.get(closed, 0) - 2
    return statement.is_at(name - 1, "WINDOW")


# ---- the windows of one SELECT -------------------------------------------------------------------


class SelectWindows:
    """The named windows of a SELECT, and the calls over windows with row patterns."""

    def __init__(self, statement: Statement, select: Select) -> None:
        self._statement = statement
        self._select = select
        self._read: dict[int, PatternWindow] = {}
        self.named: dict[str, tuple[int, int]] = {}
        section = select.sections.get("WINDOW")
        if section is not None:
            for first, stop in list_items(statement, section.content, section.stop):
                self._check_definition(first, stop)
                self.named[statement.tokens[first].text.casefold()] = (first, stop)
        # All are read, so that a mistake in a window that nothing uses is reported too.
        for first, _ in self.named.values():
            if self._has_pattern(first + 2):
                self.window(first + 2)

    def _check_definition(self, first: int, stop: int) -> None:
        """Refuses what is not w AS (...) or w AS v."""
        opened = first + 2
        is_named = self._statement.is_at(first + 1, "AS") and opened < stop
        is_whole = stop == opened + 1 or self._statement.partners.get(opened) == stop - 1
        if not (is_named and is_whole):
            raise self._statement.error_at(
                "expected the definition of a window here",
                first,
                hint="write WINDOW w AS (PARTITION BY ... ORDER BY ...), and close its brackets",
            )

    def ordinary(self) -> list[tuple[int, int]]:
        """The definitions without a row pattern."""
        return [
            (first, stop) for first, stop in self.named.values() if not self._has_pattern(first + 2)
        ]

    def _has_pattern(self, opened: int) -> bool:
        closed = self._statement.partners.get(opened)
        return closed is not None and (_pattern_token(self._statement, opened, closed) is not None)

    def window(self, opened: int) -> PatternWindow:
        if opened not in self._read:
            self._read[opened] = self._read_window(opened)
        return self._read[opened]

    # ---- calls -----------------------------------------------------------------------------------

    def calls(self, first: int, stop: int) -> list[WindowCall]:
        """The calls over windows with row patterns among the tokens, without those of
        subqueries."""
        statement = self._statement
        found = []
        for at in tokens_without_queries(statement, first, stop):
            if statement.is_at(at, "OVER") and at > first and at + 1 < stop:
                window, after = self._window_after(at)
                if window is not None:
                    found.append(self._call(at, after, window))
        return found

    def _window_after(self, over: int) -> tuple[PatternWindow | None, int]:
        """The window with a row pattern behind OVER, and the token after it."""
        statement = self._statement
        opened = over + 1
        if statement.symbol(opened, "("):
            closed = statement.partners.get(opened, opened)
            if self._has_pattern(opened):
                return self.window(opened), closed + 1
            name = opened + 1
            window = self._named_window(name)
            if window is not None and closed > name + 1:
                raise statement.error_at(
                    f"{statement.tokens[name].text} has a row pattern, so no window can extend it",
                    name,
                    hint="repeat its PARTITION BY and ORDER BY",
                )
            return window, closed + 1
        return self._named_window(opened), opened + 1

    def _named_window(self, at: int) -> PatternWindow | None:
        token = self._statement.tokens[at]
        found = self.named.get(token.text.casefold())
        if token.kind not in {"word", "quoted"} or found is None:
            return None
        first, _ = found
        return self.window(first + 2) if self._has_pattern(first + 2) else None

    def _call(self, over: int, stop: int, window: PatternWindow) -> WindowCall:
        statement = self._statement
        at, ignores = over - 1, False
        if statement.is_at(at, "NULLS"):
            ignores = statement.is_at(at - 1, "IGNORE")
            at -= 2
        closed = at
        if not statement.symbol(closed, ")"):
            token = statement.tokens[closed]
            if token.kind not in {"word", "quoted"} or statement.symbol(closed - 1, "."):
                raise statement.error_at("expected a measure or a function before OVER", over)
            return WindowCall(closed, over, stop, self._measure(closed, window), window)
        opened = statement.partners.get(closed, closed)
        condition = None
        if statement.is_at(opened - 1, "FILTER") and statement.symbol(opened - 2, ")"):
            if not statement.is_at(opened + 1, "WHERE") or opened + 2 >= closed:
                raise statement.error_at(
                    "FILTER has no condition", opened - 1, hint="write FILTER (WHERE flag)"
                )
            windows = [at for at in range(opened, closed) if statement.is_at(at, "OVER")]
            if windows:
                raise statement.error_at(
                    "FILTER cannot contain a window function",
                    windows[0],
                    hint="compute it in a subquery: FROM (SELECT *, ... OVER w AS x FROM t)",
                )
            condition = (opened + 2, closed)
            closed = opened - 2
            opened = statement.partners.get(closed, closed)
        name = opened - 1
        if name < 0 or statement.tokens[name].kind not in {"word", "quoted"}:
            raise statement.error_at("expected a measure or a function before OVER", over)
        return WindowCall(
            name,
            over,
            stop,
            statement.tokens[name].text,
            window,
            (opened, closed),
            ignores,
            condition,
        )

    def _measure(self, at: int, window: PatternWindow) -> str:
        """The measure's name as MEASURES spells it."""
        name = self._statement.tokens[at].text
        names = {each.name.text.casefold(): each.name.text for each in window.clause.measures}
        if name.casefold() not in names:
            near = nearest_name(name, names.values())
            known = list_names(names.values()) if names else "it has none"
            raise self._statement.error_at(
                f"the window has no measure {name}",
                at,
                hint=f"did you mean {near}?" if near else f"the measures of the window: {known}",
            )
        return names[name.casefold()]

    # ---- the parts of a window -------------------------------------------------------------------

    def _read_window(self, opened: int) -> PatternWindow:
        statement = self._statement
        closed = statement.partners[opened]
        self._check_parts(opened, closed)
        frame, end, following = self._frame(opened, closed)
        stop = end
        if statement.is_at(end, "EXCLUDE"):
            stop = end + 3
            if not statement.is_at(end, "EXCLUDE", "NO", "OTHERS"):
                raise statement.error_at(
                    "a window with a row pattern excludes no rows", end, hint="remove EXCLUDE"
                )
        measures = self._measures_token(opened + 1, frame)
        partition, order = self._keys(opened + 1, frame if measures is None else measures)
        removed = [(opened + 1, frame if measures is None else measures), (frame, stop)]
        pattern = _pattern_token(statement, opened, closed)
        assert pattern is not None
        mode = pattern - 1
        seeks = statement.is_at(mode, "SEEK")
        if seeks or statement.is_at(mode, "INITIAL"):
            if statement.is_at(mode - 1, "SEEK") or statement.is_at(mode - 1, "INITIAL"):
                raise statement.error_at(
                    f"{statement.tokens[mode].text} was not expected here",
                    mode,
                    hint="write INITIAL or SEEK, not both",
                )
            removed.append((mode, pattern))
        derived = self._clause_text(opened, closed, removed)
        origin = derived
        if statement.origin is not None:
            origin = compose_origins(derived, statement.origin)
        own = Statement(derived.text, origin)
        (location,) = find_clauses(own)
        clause = read_clause(own, location)
        for part, word, at in (
            (clause.within, "WITHIN", "WITHIN"),
            (clause.rows, "ROWS PER MATCH", "PER"),
        ):
            if part is not None:
                raise statement.error_at(
                    f"a window with a row pattern has no {word}",
                    self._word_token(opened, closed, at),
                    hint="bound the frame: ROWS BETWEEN CURRENT ROW AND 10 FOLLOWING"
                    if word == "WITHIN"
                    else "remove it: each row of the input gets a row",
                )
        return PatternWindow(
            opened, closed, partition, order, following, seeks, own, derived, clause
        )

    def _word_token(self, opened: int, closed: int, word: str) -> int:
        inner = self._statement.top(opened + 1, closed)
        return next((at for at in inner if self._statement.is_at(at, word)), opened)

    def _check_parts(self, opened: int, closed: int) -> None:
        statement = self._statement
        word = _pattern_token(statement, opened, closed)
        assert word is not None
        for at in range(word + 2, statement.partners.get(word + 1, word + 1)):
            if statement.symbol(at, "^", "$"):
                raise statement.error_at(
                    f"{statement.tokens[at].text} is not allowed in the pattern of a window: a "
                    "frame has neither the beginning nor the end of a partition",
                    at,
                    hint="remove it",
                )
        for at in range(opened, closed):
            if statement.is_at(at, "MATCH_NUMBER") and statement.symbol(at + 1, "("):
                raise statement.error_at(
                    "MATCH_NUMBER() is not allowed in a window",
                    at,
                    hint="use MATCH_RECOGNIZE, whose matches are numbered, or count the rows that "
                    "have a match: MEASURES TRUE AS found",
                )

    def _frame(self, opened: int, closed: int) -> tuple[int, int, int | tuple[int, int] | None]:
        """The first token of the frame, the one behind it, and how many rows follow."""
        statement = self._statement
        inner = list(statement.top(opened + 1, closed))
        frame = next((at for at in inner if statement.is_at(at, "ROWS", "BETWEEN")), None)
        if frame is None:
            raise self._frame_error(opened, inner)
        if not statement.is_at(frame + 2, "CURRENT", "ROW", "AND"):
            raise statement.error_at(
                "the frame of a row pattern begins at the current row",
                min(frame + 2, closed),
                hint=f"write {_FRAME}",
            )
        end = frame + 5
        if statement.is_at(end, "CURRENT", "ROW"):
            return frame, end + 2, 0
        if statement.is_at(end, "UNBOUNDED", "FOLLOWING"):
            return frame, end + 2, None
        pattern = _pattern_token(statement, opened, closed)
        assert pattern is not None
        within = [at for at in inner if end < at < pattern]
        stop = next((at for at in within if statement.is_at(at, "FOLLOWING")), None)
        if stop is None:
            raise statement.error_at(
                "the frame of a row pattern ends at a following row",
                min(end, closed),
                hint=f"write {_FRAME}",
            )
        if stop == end + 1 and statement.tokens[end].text.isdigit():
            following = int(statement.tokens[end].text)
            return frame, stop + 1, following if following < _MOST_ROWS else None
        is_negative = stop == end + 2 and statement.symbol(end, "-")
        if (is_negative and statement.tokens[end + 1].kind == "number") or (
            stop == end + 1 and statement.is_at(end, "NULL")
        ):
            raise statement.error(
                "the number before FOLLOWING is at least 0",
                statement.span(end, stop),
                hint=f"write {_FRAME}",
            )
        return frame, stop + 1, (end, stop)

    def _frame_error(self, opened: int, inner: Sequence[int]) -> PatternError:
        statement = self._statement
        other = next((at for at in inner if statement.tokens[at].is_word("RANGE", "GROUPS")), None)
        at = (
            other
            if other is not None
            else _pattern_token(statement, opened, statement.partners[opened])
        )
        assert at is not None
        return statement.error_at(
            "a window with a row pattern needs a frame of rows", at, hint=f"write {_FRAME}"
        )

    def _measures_token(self, first: int, frame: int) -> int | None:
        statement = self._statement
        for at in statement.top(first, frame):
            is_name = statement.symbol(at + 1, ",", ".", ")") or at + 1 >= frame
            is_name = is_name or statement.symbol(at - 1, ",", ".") or statement.is_at(at - 1, "BY")
            if statement.is_at(at, "MEASURES") and not is_name:
                return at
        return None

    def _keys(
        self, first: int, stop: int
    ) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """The items of PARTITION BY and ORDER BY, its own or those of the window that it
        extends."""
        statement = self._statement
        base = None
        if first < stop and not statement.tokens[first].is_word(*_NOT_BASES):
            base, first = first, first + 1
        order = next(
            (at for at in statement.top(first, stop) if statement.is_at(at, "ORDER", "BY")), stop
        )
        partition: tuple[tuple[int, int], ...] = ()
        if statement.is_at(first, "PARTITION", "BY"):
            partition = tuple(list_items(statement, first + 2, order))
        elif first < order:
            raise statement.error_at(
                f"{statement.tokens[first].text} was not expected here",
                first,
                hint="the parts of a window, in this order: PARTITION BY, ORDER BY, MEASURES, "
                "ROWS BETWEEN, AFTER MATCH SKIP, INITIAL or SEEK, PATTERN, SUBSET, DEFINE",
            )
        orders = tuple(list_items(statement, order + 2, stop)) if order < stop else ()
        if base is None:
            return partition, orders
        of_partition, of_order = self._base_keys(base)
        for own, given, word in (
            (partition, of_partition, "PARTITION BY"),
            (orders, of_order, "ORDER BY"),
        ):
            if own and given:
                raise statement.error_at(
                    f"{statement.tokens[base].text} has a {word} already",
                    own[0][0],
                    hint="remove one of them",
                )
        return partition or of_partition, orders or of_order

    def _base_keys(
        self, base: int
    ) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """PARTITION BY and ORDER BY of the window that is extended."""
        statement = self._statement
        name = statement.tokens[base].text
        if name.casefold() not in self.named:
            raise statement.error_at(
                f"there is no window {name}",
                base,
                hint=f"the windows of this SELECT: {list_names(self.named)}"
                if self.named
                else f"define it: WINDOW {name} AS (PARTITION BY ... ORDER BY ...)",
            )
        first, stop = self.named[name.casefold()]
        opened = first + 2
        closed = statement.partners.get(opened, opened)
        has_frame = any(
            statement.tokens[at].is_word("ROWS", "RANGE", "GROUPS")
            for at in statement.top(opened + 1, closed)
        )
        if not statement.symbol(opened, "(") or closed != stop - 1 or has_frame:
            raise statement.error_at(
                f"{name} cannot be extended: it is not a plain PARTITION BY and ORDER BY",
                base,
                hint="repeat its PARTITION BY and ORDER BY",
            )
        return self._keys(opened + 1, closed)

    def _clause_text(
        self, opened: int, closed: int, removed: Sequence[tuple[int, int]]
    ) -> DerivedText:
        """The pattern part of a window as a clause: t MATCH_RECOGNIZE (MEASURES ... DEFINE ...)."""
        statement = self._statement
        edits = [(*statement.span(opened, opened + 1), "t MATCH_RECOGNIZE (")]
        edits += [(*statement.span(*each), "") for each in removed if each[0] < each[1]]
        return derive_text(statement.text, statement.span(opened, closed + 1), edits)


def compose_origins(derived: DerivedText, origin: DerivedText) -> DerivedText:
    """A text derived from a derived text, as derived from the original.

    >>> origin = derive_text("a {x} c", (0, 7), [(2, 5, "bb")])
    >>> derived = derive_text(origin.text, (2, 6), [])
    >>> compose_origins(derived, origin).source(2), derived.text
    (5, 'bb c')
    """
    pieces = tuple(_composed(derived, origin))
    return DerivedText(origin.original, derived.text, pieces)


def _composed(derived: DerivedText, origin: DerivedText) -> Iterator[tuple[int, int, bool]]:
    ends = [*(start for start, _, _ in derived.pieces[1:]), len(derived.text)]
    for (start, source, copied), end in zip(derived.pieces, ends, strict=True):
        if not copied:
            yield start, origin.source(source), False
            continue
        stop = source + end - start
        inner = [each for each in origin.pieces if source < each[0] < stop]
        first = next(each for each in reversed(origin.pieces) if each[0] <= source)
        yield start, origin.source(source), first[2]
        for begin, original, is_copy in inner:
            yield start + begin - source, original, is_copy
