"""From the tokens of a MATCH_RECOGNIZE clause to a `Clause`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_cep.sql.clause import Clause, EventTree, Name, Named, Part, RowText, Subset
from spark_cep.sql.event_text import event_tree
from spark_cep.sql.hints import hints
from spark_cep.sql.sections import Section, sections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.errors import PatternError
    from spark_cep.sql.clause import Span
    from spark_cep.sql.clauses import Found
    from spark_cep.sql.statement import Statement, Token

_ROWS = {
    "ONE ROW PER MATCH": "one",
    "ALL ROWS PER MATCH": "all",
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES": "all",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES": "all omit empty",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS": "all with unmatched",
}
_ROWS_HINT = (
    "write ONE ROW PER MATCH, or ALL ROWS PER MATCH with nothing behind it, SHOW EMPTY MATCHES, "
    "OMIT EMPTY MATCHES or WITH UNMATCHED ROWS"
)
_SKIP_HINT = (
    "write AFTER MATCH SKIP PAST LAST ROW, SKIP TO NEXT ROW, SKIP TO FIRST variable or SKIP TO "
    "LAST variable"
)


def clause(statement: Statement, found: Found) -> Clause:
    """Reads a clause; raises PatternError at the first thing that is out of place."""
    parts = sections(statement, found.opened + 1, found.closed)
    pattern = parts.get("PATTERN")
    if pattern is None:
        raise _no_pattern(statement, found)
    measures = tuple(_measures(statement, parts.get("MEASURES")))
    define = tuple(_definitions(statement, parts.get("DEFINE")))
    _check_different(statement, measures, "MEASURES")
    _check_different(statement, define, "DEFINE")
    return Clause(
        pattern=_pattern(statement, pattern, parts),
        span=statement.span(found.word, found.word + 1),
        partition_by=_partition(statement, found, parts.get("PARTITION BY")),
        order_by=_orders(statement, found, parts.get("ORDER BY")),
        measures=measures,
        rows=_rows(statement, parts.get("ROWS PER MATCH")),
        after_match=_after(statement, parts.get("AFTER MATCH")),
        within=_within(statement, parts.get("WITHIN")),
        subsets=tuple(_subsets(statement, parts.get("SUBSET"))),
        define=define,
        hints=hints(statement, found.hint),
        hint=found.hint and _trimmed(statement, found.hint),
    )


def _trimmed(statement: Statement, span: Span) -> Span:
    """Characters without the blanks around them."""
    text = statement.text[slice(*span)]
    start = span[0] + len(text) - len(text.lstrip())
    return start, start + len(text.strip())


def _no_pattern(statement: Statement, found: Found) -> PatternError:
    for index in statement.top(found.opened + 1, found.closed):
        if statement.symbol(index, ",") and statement.is_at(index + 1, "PATTERN"):
            return statement.error_at("no comma stands in front of PATTERN", index)
    return statement.error(
        "MATCH_RECOGNIZE has no PATTERN",
        statement.span(found.word, found.word + 1),
        hint="write PATTERN (a b+) with a DEFINE of its variables, or PATTERN SEQ(a, b)",
    )


def _pattern(
    statement: Statement, section: Section, parts: dict[str, Section]
) -> RowText | EventTree:
    opened = section.content
    if not statement.symbol(opened, "("):
        return event_tree(statement, section, parts.get("SKIP TILL"), parts.get("CONSUMPTION"))
    closed = statement.partners.get(opened, section.stop)
    if closed == opened + 1:
        raise statement.error(
            "the pattern is empty",
            statement.span(opened, closed + 1),
            hint="name variables: PATTERN (strt down+ up+); PATTERN (()) matches no row",
        )
    if closed + 1 < section.stop:
        behind = statement.tokens[closed + 1]
        raise statement.error_at(
            f"{behind.text} was not expected behind PATTERN (...)",
            closed + 1,
            hint="quantifiers stand inside the brackets: PATTERN ((a b)+)"
            if behind.kind == "symbol"
            else "behind it stand WITHIN, SUBSET u = (a, b) and DEFINE a AS condition",
        )
    for name in ("SKIP TILL", "CONSUMPTION"):
        if name in parts:
            at = parts[name].first
            raise statement.error(
                f"{statement.cut(at, parts[name].content)} belongs to event patterns",
                statement.span(at, parts[name].content),
                hint="write PATTERN SEQ(a, b+) without brackets around it, or say where a row "
                "pattern goes on with AFTER MATCH SKIP",
            )
    return RowText((statement.tokens[opened].end, statement.tokens[closed].start))


def _items(statement: Statement, section: Section | None) -> Iterator[tuple[int, int]]:
    """The tokens between the commas of a section."""
    if section is None:
        return
    begin = section.content
    commas = [at for at in statement.top(begin, section.stop) if statement.symbol(at, ",")]
    for end in (*commas, section.stop):
        if begin == end:
            raise statement.error_at(
                f"something is missing in {section.name}", min(end, section.stop)
            )
        yield begin, end
        begin = end + 1


def _partition(statement: Statement, found: Found, section: Section | None) -> tuple[Name, ...]:
    return tuple(_column(statement, found, *item) for item in _items(statement, section))


def _column(statement: Statement, found: Found, first: int, stop: int) -> Name:
    """A column's name, which may have the input's in front: t.symbol."""
    last = _without_input(statement, found, first, stop)
    if stop - last != 1 or statement.tokens[last].kind not in {"word", "quoted"}:
        raise statement.error(
            "PARTITION BY takes columns of the input",
            statement.span(first, stop),
            hint="compute the key in a subquery: FROM (SELECT *, lower(name) AS key FROM t) "
            "MATCH_RECOGNIZE (PARTITION BY key ...)",
        )
    return _name(statement.tokens[last])


def _without_input(statement: Statement, found: Found, first: int, stop: int) -> int:
    """The token behind `t.` where t is the name or alias of the clause's input."""
    is_dotted = stop - first > 2 and statement.symbol(first + 1, ".")
    name = statement.tokens[first].text.casefold()
    names = {
        statement.tokens[at].text.casefold()
        for at in statement.top(found.first, found.word)
        if statement.tokens[at].kind in {"word", "quoted"}
    }
    return first + 2 if is_dotted and name in names else first


def _orders(statement: Statement, found: Found, section: Section | None) -> tuple[Part, ...]:
    return tuple(
        Part(statement.span(_without_input(statement, found, first, stop), stop))
        for first, stop in _items(statement, section)
    )


def _measures(statement: Statement, section: Section | None) -> Iterator[Named]:
    for first, stop in _items(statement, section):
        named = stop - first > 2 and statement.is_at(stop - 2, "AS")
        if not named or statement.tokens[stop - 1].kind in {"symbol", "number"}:
            raise statement.error(
                "a measure needs a name",
                statement.span(first, stop),
                hint="write MEASURES last(a.price) AS bottom",
            )
        yield Named(_name(statement.tokens[stop - 1]), Part(statement.span(first, stop - 2)))


def _definitions(statement: Statement, section: Section | None) -> Iterator[Named]:
    for first, stop in _items(statement, section):
        name = statement.tokens[first]
        if stop - first < 3 or name.kind == "symbol" or not statement.is_at(first + 1, "AS"):
            raise statement.error(
                "this is no definition of a variable",
                statement.span(first, stop),
                hint="write DEFINE down AS price < PREV(price), up AS price > PREV(price)",
            )
        yield Named(_name(name), Part(statement.span(first + 2, stop)))


def _subsets(statement: Statement, section: Section | None) -> Iterator[Subset]:
    for first, stop in _items(statement, section):
        name, opened = statement.tokens[first], first + 2
        closed = statement.partners.get(opened)
        is_list = statement.symbol(first + 1, "=") and statement.symbol(opened, "(")
        if name.kind == "symbol" or not is_list or closed != stop - 1:
            raise statement.error(
                "this is no subset", statement.span(first, stop), hint="write SUBSET u = (a, b)"
            )
        inner = Section("SUBSET", opened, opened + 1, closed)
        members = (_name(statement.tokens[begin]) for begin, _ in _items(statement, inner))
        yield Subset(_name(name), tuple(members))


def _check_different(statement: Statement, named: tuple[Named, ...], where: str) -> None:
    seen: set[str] = set()
    for name in (each.name for each in named):
        if name.text.casefold() in seen:
            raise statement.error(f"{where} has {name.text} twice", name.span)
        seen.add(name.text.casefold())


def _name(token: Token) -> Name:
    return Name(token.text, (token.start, token.end))


def _rows(statement: Statement, section: Section | None) -> str | None:
    if section is None:
        return None
    tokens = statement.tokens[section.first : section.stop]
    words = " ".join(token.text.upper() for token in tokens)
    if words not in _ROWS:
        span = statement.span(section.first, section.stop)
        raise statement.error("this is no choice of rows", span, hint=_ROWS_HINT)
    return _ROWS[words]


def _after(statement: Statement, section: Section | None) -> Part | None:
    if section is None:
        return None
    if not statement.is_at(section.content, "SKIP") or section.stop - section.content < 3:
        span = statement.span(section.first, section.stop)
        raise statement.error("this is no AFTER MATCH SKIP", span, hint=_SKIP_HINT)
    return Part(statement.span(section.content, section.stop))


def _within(statement: Statement, section: Section | None) -> Part | None:
    if section is None:
        return None
    if section.content == section.stop:
        raise statement.error_at(
            "WITHIN has no duration", section.first, hint="write WITHIN INTERVAL '10' MINUTES"
        )
    return Part(statement.span(section.content, section.stop))
