"""From the tokens of a MATCH_RECOGNIZE clause to a `Clause`.

A row pattern is kept as text. An event pattern, PATTERN SEQ(a, NOT x, b+, OR(c, d)?), is read here
by recursive descent. The first mistake raises PatternError at its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_cep.errors import PatternError
from spark_cep.expressions.quantifiers import MAX_TOKENS, QuantifierError, read_quantifier
from spark_cep.expressions.syntax import MAX_DIGITS
from spark_cep.pattern import Pattern, all_of, any_of, event, no, seq
from spark_cep.sql.clause import (
    Clause,
    ClauseSection,
    EventPatternTree,
    Identifier,
    NamedExpression,
    PartitionColumn,
    RowPatternText,
    SubsetDefinition,
    TextPart,
    find_sections,
)
from spark_cep.sql.hints import read_hints
from spark_cep.sql.misspellings import phrase_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spark_cep.pattern import StrategyName
    from spark_cep.sql.clause import Span
    from spark_cep.sql.location import ClauseLocation
    from spark_cep.sql.statement import SqlToken, Statement
    from spark_cep.udfs.program import Consumption

_ROWS = {
    "ONE ROW PER MATCH": "one",
    "ALL ROWS PER MATCH": "all",
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES": "all",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES": "all omit empty",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS": "all with unmatched",
}
_ROWS_HINT = (
    "write ONE ROW PER MATCH, or ALL ROWS PER MATCH alone or with SHOW EMPTY MATCHES, OMIT EMPTY "
    "MATCHES or WITH UNMATCHED ROWS"
)
_SKIP_HINT = (
    "write AFTER MATCH SKIP PAST LAST ROW, SKIP TO NEXT ROW, SKIP TO FIRST variable or SKIP TO "
    "LAST variable"
)


def read_clause(statement: Statement, location: ClauseLocation) -> Clause:
    """The parts of a clause; raises PatternError at the first mistake."""
    _check_numbers(statement, location)
    _check_parameters(statement, location)
    parts = find_sections(statement, location.opened + 1, location.closed)
    pattern = parts.get("PATTERN")
    if pattern is None:
        raise _no_pattern_error(statement, location)
    longest, longest_value = _read_options(statement, parts.get("OPTIONS"))
    measures = tuple(_read_measures(statement, parts.get("MEASURES")))
    define = tuple(_read_define(statement, parts.get("DEFINE")))
    _check_distinct(statement, measures, "MEASURES")
    _check_distinct(statement, define, "DEFINE")
    return Clause(
        pattern=_read_pattern(statement, pattern, parts),
        span=statement.span(location.word, location.word + 1),
        partition_by=_read_partition(statement, location, parts.get("PARTITION BY")),
        order_by=_read_orders(statement, location, parts.get("ORDER BY")),
        measures=measures,
        rows=_read_rows(statement, parts.get("ROWS PER MATCH")),
        after_match=_read_after_match(statement, parts.get("AFTER MATCH")),
        within=_read_within(statement, parts.get("WITHIN")),
        subsets=tuple(_read_subsets(statement, parts.get("SUBSET"))),
        define=define,
        hints=read_hints(statement, location.hint),
        hint=location.hint and _trim_span(statement, location.hint),
        qualifiers=_input_names(statement, location),
        longest=longest,
        longest_value=longest_value,
    )


def _check_numbers(statement: Statement, location: ClauseLocation) -> None:
    for index in range(location.opened, location.closed):
        token = statement.tokens[index]
        if token.kind == "number" and len(token.text) > MAX_DIGITS:
            raise statement.error_at("this number has too many digits", index)


def _check_parameters(statement: Statement, location: ClauseLocation) -> None:
    """Refuses the parameters of BigQuery."""
    for index in range(location.opened, location.closed):
        name = statement.tokens[index + 1]
        if statement.symbol(index, "@") and name.kind == "word":
            raise statement.error(
                f"@{name.text} is not a parameter in Spark SQL",
                statement.span(index, index + 2),
                hint=f'write :{name.text}, with args={{"{name.text}": ...}}',
            )


def _no_pattern_error(statement: Statement, location: ClauseLocation) -> PatternError:
    for index in statement.top(location.opened + 1, location.closed):
        if statement.symbol(index, ",") and statement.is_at(index + 1, "PATTERN"):
            return statement.error_at(
                "unexpected comma before PATTERN", index, hint="remove the comma"
            )
        if statement.is_at(index, "MEASURES") and statement.symbol(index + 1, "*"):
            return statement.error_at(
                "MEASURES takes expressions with names, not a star",
                index + 1,
                hint="write ALL ROWS PER MATCH, which shows all columns, or name the columns: "
                "LAST(price) AS price",
            )
    return statement.error(
        "MATCH_RECOGNIZE has no PATTERN",
        statement.span(location.word, location.word + 1),
        hint="write PATTERN (a b+) with a DEFINE of its variables, or PATTERN SEQ(a, b)",
    )


def _read_pattern(
    statement: Statement, section: ClauseSection, parts: dict[str, ClauseSection]
) -> RowPatternText | EventPatternTree:
    opened = section.content
    if not statement.symbol(opened, "("):
        return read_event_pattern(
            statement, section, parts.get("SKIP TILL"), parts.get("CONSUMPTION")
        )
    closed = statement.partners.get(opened, section.stop)
    if closed == opened + 1:
        raise statement.error(
            "the pattern is empty",
            statement.span(opened, closed + 1),
            hint="name variables: PATTERN (strt down+ up+); PATTERN (()) matches no row",
        )
    if closed + 1 < section.stop:
        after = statement.tokens[closed + 1]
        raise statement.error_at(
            f"{after.text} was not expected after PATTERN (...)",
            closed + 1,
            hint="write quantifiers inside the parentheses: PATTERN ((a b)+)"
            if after.kind == "symbol"
            else "it may be followed by WITHIN, SUBSET u = (a, b) and DEFINE a AS condition",
        )
    for name in ("SKIP TILL", "CONSUMPTION"):
        if name in parts:
            at = parts[name].first
            raise statement.error(
                f"{statement.cut(at, parts[name].content)} applies to event patterns only",
                statement.span(at, parts[name].content),
                hint="write PATTERN SEQ(a, b+) without parentheses around it; a row pattern takes "
                "AFTER MATCH SKIP instead",
            )
    return RowPatternText((statement.tokens[opened].end, statement.tokens[closed].start))


# ---- event patterns ------------------------------------------------------------------------------

_OPERATORS = {"SEQ": seq, "AND": all_of, "OR": any_of}
_STRATEGIES: Mapping[str, StrategyName] = {
    "SKIP TILL ANY MATCH": "skip till any match",
    "SKIP TILL NEXT MATCH": "skip till next match",
    "STRICT": "strict",
}
# The reader recurses once for each level.
_MAX_DEPTH = 100
_EXAMPLE = "PATTERN SEQ(a, NOT x, b+, c), with AND(...) and OR(...) inside it"


def read_event_pattern(
    statement: Statement,
    section: ClauseSection,
    strategy: ClauseSection | None,
    consumption: ClauseSection | None,
) -> EventPatternTree:
    """A pattern that is not in parentheses, with its strategy and its consumption."""
    reader = _EventPatternReader(statement, section)
    root = reader.part()
    if reader.index < section.stop:
        raise reader.unexpected()
    span = statement.span(section.content, section.stop)
    chosen = None if strategy is None else _read_strategy(statement, strategy)
    consuming = None if consumption is None else _read_consumption(statement, consumption)
    return EventPatternTree(span, root, chosen, consuming)


def _read_strategy(statement: Statement, section: ClauseSection) -> StrategyName:
    words = statement.cut(section.first, section.stop)
    name = _STRATEGIES.get(" ".join(words.upper().split()))
    if name is None:
        raise statement.error(
            f"{words} is not a strategy",
            statement.span(section.first, section.stop),
            hint="write SKIP TILL ANY MATCH, SKIP TILL NEXT MATCH or STRICT",
        )
    return name


def _read_consumption(statement: Statement, section: ClauseSection) -> Consumption:
    if section.stop > section.content:
        at = section.content
        raise statement.error_at(f"{statement.tokens[at].text} was not expected here", at)
    return "consume" if statement.tokens[section.first].is_word("CONSUME") else "reuse"


class _EventPatternReader:
    """Recursive descent over the tokens of one pattern."""

    def __init__(self, statement: Statement, section: ClauseSection) -> None:
        self.statement = statement
        self.index = section.content
        self.stop = section.stop
        self.depth = 0

    def part(self) -> Pattern:
        """An operator with its parts or a variable, negated or with a quantifier."""
        begin = self.index
        if self.depth > _MAX_DEPTH:
            raise self.statement.error_at(
                f"the pattern is nested deeper than {_MAX_DEPTH} levels",
                begin,
                hint="write SEQ(a, b, c) instead of SEQ(a, SEQ(b, c))",
            )
        if self._word("NOT", "NEG") or self._symbol("!", "~"):
            self.index += 1
            negated = self._operand()
            return self._checked(begin, lambda: no(negated))
        pattern = self._operand()
        quantifier = self._quantifier()
        if quantifier is None:
            return pattern
        return self._checked(begin, lambda: pattern.times(quantifier))

    def _operand(self) -> Pattern:
        """An operator with its parts, or a variable."""
        if self.statement.symbol(self.index + 1, "(") and self._word(*_OPERATORS):
            return self._group(_OPERATORS[self.statement.tokens[self.index].text.upper()])
        return self._variable()

    def _group(self, operator: object) -> Pattern:
        assert callable(operator)
        begin = self.index
        self.index += 2
        self.depth += 1
        parts = [self.part()]
        while self._symbol(","):
            self.index += 1
            parts.append(self.part())
        self.depth -= 1
        if not self._symbol(")"):
            raise self.unexpected()
        self.index += 1
        return self._checked(begin, lambda: operator(*parts))

    def _variable(self) -> Pattern:
        if self.index >= self.stop:
            raise self.unexpected()
        token = self.statement.tokens[self.index]
        if token.kind not in {"word", "quoted"} or self.statement.symbol(self.index + 1, "("):
            raise self.unexpected()
        begin = self.index
        self.index += 1
        return self._checked(begin, lambda: event(token.text))

    def _quantifier(self) -> str | None:
        tokens = self.statement.tokens[self.index : self.stop][:MAX_TOKENS]
        try:
            found = read_quantifier(["" if t.kind == "quoted" else t.text for t in tokens])
        except QuantifierError as error:
            span = self.statement.span(self.index, self.index + error.length)
            raise self.statement.error(error.message, span, hint=error.hint) from None
        if found is None:
            return None
        self.index += found.length
        return found.text

    def _word(self, *words: str) -> bool:
        return self.index < self.stop and self.statement.tokens[self.index].is_word(*words)

    def _symbol(self, *symbols: str) -> bool:
        return self.index < self.stop and self.statement.symbol(self.index, *symbols)

    def _checked(self, begin: int, make: object) -> Pattern:
        """What `make` gives; its error is shown at the tokens read since `begin`."""
        assert callable(make)
        try:
            made = make()
        except PatternError as error:
            stop = max(self.index, begin + 1)
            span = self.statement.span(begin, min(stop, self.stop))
            raise self.statement.error(error.message, span, hint=error.hint) from None
        assert isinstance(made, Pattern)
        return made

    def unexpected(self) -> PatternError:
        if self.index >= self.stop:
            return self.statement.error_at(
                "the pattern is incomplete", self.index - 1, hint=f"write {_EXAMPLE}"
            )
        text = self.statement.tokens[self.index].text
        return self.statement.error_at(
            f"{text} was not expected in an event pattern",
            self.index,
            hint=f"write {_EXAMPLE}; a row pattern is in parentheses: PATTERN (a b+)",
        )


# ---- the other sections --------------------------------------------------------------------------


def _list_items(statement: Statement, section: ClauseSection | None) -> Iterator[tuple[int, int]]:
    """The tokens between the commas of a section."""
    if section is None:
        return
    begin = section.content
    commas = [at for at in statement.top(begin, section.stop) if statement.symbol(at, ",")]
    for end in (*commas, section.stop):
        if begin == end:
            raise statement.error_at(
                f"an item is missing in {section.name}", min(end, section.stop)
            )
        yield begin, end
        begin = end + 1


def _read_partition(
    statement: Statement, location: ClauseLocation, section: ClauseSection | None
) -> tuple[PartitionColumn, ...]:
    return tuple(_read_key(statement, location, *item) for item in _list_items(statement, section))


def _read_key(
    statement: Statement, location: ClauseLocation, first: int, stop: int
) -> PartitionColumn:
    """A column of the input, which the input's name may qualify, or an expression with a name."""
    while statement.symbol(first, "(") and statement.partners.get(first) == stop - 1:
        first, stop = first + 1, stop - 1
    commas = [at for at in statement.top(first, stop) if statement.symbol(at, ",")]
    if commas or first == stop:
        inner = statement.cut(first, stop) if commas else "a, b"
        raise statement.error(
            "PARTITION BY takes columns, not a list in parentheses",
            statement.span(max(first - 1, 0), stop + 1),
            hint=f"remove the parentheses: PARTITION BY {inner}",
        )
    last = _skip_input_name(statement, location, first, stop)
    token = statement.tokens[last]
    if stop - last == 1 and token.kind in {"word", "quoted"}:
        return PartitionColumn(token.text, (token.start, token.end))
    end, name = split_alias(statement, first, stop)
    if end - first == 1 and statement.tokens[first].kind in {"string", "number"}:
        raise statement.error(
            "PARTITION BY takes columns of the input and expressions over them, not a literal",
            statement.span(first, stop),
            hint="name a column, or remove PARTITION BY to match all rows as one partition",
        )
    _check_key(statement, first, end)
    span = statement.span(first, end)
    if name is None:
        return PartitionColumn(statement.cut(first, end), span, span, is_named=False)
    named = _identifier(statement.tokens[name])
    return PartitionColumn(named.text, named.span, span)


_OF_MATCHES = ("PREV", "NEXT", "FIRST", "LAST", "CLASSIFIER", "MATCH_NUMBER")


def _check_key(statement: Statement, first: int, stop: int) -> None:
    """Refuses what there is only in a match."""
    for at in range(first, stop):
        token = statement.tokens[at]
        if token.is_word(*_OF_MATCHES) and statement.symbol(at + 1, "("):
            closed = statement.partners.get(at + 1, stop)
            if not statement.is_at(closed + 1, "OVER"):
                raise statement.error_at(
                    f"PARTITION BY: {token.text.upper()} refers to a match, and rows are divided "
                    "into partitions before they are matched",
                    at,
                    hint="write columns of the input, and expressions over them",
                )


# They end an expression.
_NOT_ALIASES = {"NULL", "TRUE", "FALSE", "UNKNOWN", "END"}
_UNITS = {
    "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND",
    "MICROSECOND", "NANOSECOND",
}  # fmt: skip
# An alias is not the operand of one of these.
_NOT_BEFORE_ALIASES = {
    "AND", "OR", "NOT", "IN", "IS", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "DIV", "CASE",
    "WHEN", "THEN", "ELSE", "DISTINCT", "FROM", "ESCAPE", "COLLATE", "TO", "OVER", "RUNNING",
    "FINAL", "INTERVAL", "DATE", "TIMESTAMP",
}  # fmt: skip


def split_alias(statement: Statement, first: int, stop: int) -> tuple[int, int | None]:
    """Where the expression of `expression [AS] name` ends, and the token of its name, if it has
    one. Without AS the name is a word or quoted name that directly follows a complete expression;
    words that may belong to the expression need AS."""
    last = stop - 1
    if stop - first > 2 and statement.is_at(last - 1, "AS"):
        is_name = statement.tokens[last].kind not in {"symbol", "number"}
        return (last - 1, last) if is_name else (stop, None)
    name = statement.tokens[last]
    if stop - first < 2 or name.kind not in {"word", "quoted"}:
        return stop, None
    before = statement.tokens[last - 1]
    is_complete = (
        before.text in {")", "]", "?"}
        if before.kind == "symbol"
        else not before.is_word(*_NOT_BEFORE_ALIASES)
    )
    has_interval = any(statement.is_at(at, "INTERVAL") for at in range(first, last))
    is_unit = has_interval and name.text.upper().removesuffix("S") in _UNITS
    if not is_complete or name.is_word(*_NOT_ALIASES) or is_unit:
        return stop, None
    return last, last


def _skip_input_name(statement: Statement, location: ClauseLocation, first: int, stop: int) -> int:
    """The token after `t.` where t is the name or alias of the clause's input, and after
    `db.t.`."""
    names = _input_names(statement, location)

    def is_name(at: int) -> bool:
        is_dotted = stop - at > 2 and statement.symbol(at + 1, ".")
        return is_dotted and statement.tokens[at].text.casefold() in names

    at = first + 2 if is_name(first) else first
    # What follows the table's name may be a struct column of the same name: t.t.x.
    while at > first and is_name(at) and statement.tokens[at].text != statement.tokens[first].text:
        at += 2
    return at


def _input_names(statement: Statement, location: ClauseLocation) -> frozenset[str]:
    """The names of the tables and their aliases, in lower case, among other words."""
    found = set()
    in_condition = False
    for at in statement.top(location.first, location.word):
        token = statement.tokens[at]
        if token.is_word("ON", "JOIN"):
            in_condition = token.is_word("ON")
        elif not in_condition and token.kind in {"word", "quoted"}:
            found.add(token.text.casefold())
    return frozenset(found)


def _read_orders(
    statement: Statement, location: ClauseLocation, section: ClauseSection | None
) -> tuple[TextPart, ...]:
    return tuple(
        TextPart(statement.span(_skip_input_name(statement, location, first, stop), stop))
        for first, stop in _list_items(statement, section)
    )


def _read_measures(
    statement: Statement, section: ClauseSection | None
) -> Iterator[NamedExpression]:
    for first, stop in _list_items(statement, section):
        end, name = split_alias(statement, first, stop)
        if name is None:
            if statement.is_at(stop - 2, "AS"):
                end = stop - 2
            text = " ".join(statement.cut(first, max(end, first + 1)).split())
            raise statement.error(
                "a measure needs a name",
                statement.span(first, stop),
                hint=f"write MEASURES {text} AS {_suggest_name(statement, first, stop)}",
            )
        yield NamedExpression(
            _identifier(statement.tokens[name]), TextPart(statement.span(first, end))
        )


def _suggest_name(statement: Statement, first: int, stop: int) -> str:
    """The last column of the expression, as in b.price, if it is a plain name."""
    for index in range(stop - 1, first, -1):
        if statement.symbol(index - 1, ".") and statement.tokens[index].kind == "word":
            return statement.tokens[index].text
    return "name"


def _read_define(statement: Statement, section: ClauseSection | None) -> Iterator[NamedExpression]:
    for first, stop in _list_items(statement, section):
        name = statement.tokens[first]
        if stop - first < 3 or name.kind == "symbol" or not statement.is_at(first + 1, "AS"):
            raise statement.error(
                "expected a definition: variable AS condition",
                statement.span(first, stop),
                hint="write DEFINE down AS price < PREV(price), up AS price > PREV(price)",
            )
        yield NamedExpression(_identifier(name), TextPart(statement.span(first + 2, stop)))


def _read_subsets(
    statement: Statement, section: ClauseSection | None
) -> Iterator[SubsetDefinition]:
    for first, stop in _list_items(statement, section):
        name, opened = statement.tokens[first], first + 2
        closed = statement.partners.get(opened)
        is_list = statement.symbol(first + 1, "=") and statement.symbol(opened, "(")
        if name.kind == "symbol" or not is_list or closed != stop - 1:
            raise statement.error(
                "expected a subset: name = (variables)",
                statement.span(first, stop),
                hint="write SUBSET u = (a, b)",
            )
        inner = ClauseSection("SUBSET", opened, opened + 1, closed)
        members = (
            _identifier(statement.tokens[begin]) for begin, _ in _list_items(statement, inner)
        )
        yield SubsetDefinition(_identifier(name), tuple(members))


def _check_distinct(statement: Statement, named: tuple[NamedExpression, ...], where: str) -> None:
    seen: set[str] = set()
    for name in (each.name for each in named):
        if name.text.casefold() in seen:
            raise statement.error(
                f"{where} names {name.text} twice", name.span, hint="rename or remove one of them"
            )
        seen.add(name.text.casefold())


def _identifier(token: SqlToken) -> Identifier:
    return Identifier(token.text, (token.start, token.end))


def _read_rows(statement: Statement, section: ClauseSection | None) -> str | None:
    if section is None:
        return None
    tokens = statement.tokens[section.first : section.stop]
    words = " ".join(token.text.upper() for token in tokens)
    if words not in _ROWS:
        raise phrase_error(
            statement,
            (section.first, section.stop),
            list(_ROWS),
            what="a choice of rows",
            hint=_ROWS_HINT,
        )
    return _ROWS[words]


def _read_after_match(statement: Statement, section: ClauseSection | None) -> TextPart | None:
    if section is None:
        return None
    if not statement.is_at(section.content, "SKIP") or section.stop - section.content < 3:
        span = statement.span(section.first, section.stop)
        raise statement.error("AFTER MATCH does not say where to skip to", span, hint=_SKIP_HINT)
    return TextPart(statement.span(section.content, section.stop))


def _read_options(
    statement: Statement, section: ClauseSection | None
) -> tuple[Span | None, TextPart | None]:
    """Where OPTIONS (use_longest_match = true) of GoogleSQL is, if it is there, and the parameter
    in the place of TRUE."""
    if section is None:
        return None, None
    words = [token.text.upper() for token in statement.tokens[section.content : section.stop]]
    if words in (["(", ")"], ["(", "USE_LONGEST_MATCH", "=", "FALSE", ")"]):
        return None, None
    if words[:3] == ["(", "USE_LONGEST_MATCH", "="] and words[-1:] == [")"]:
        longest = statement.span(section.content + 1, section.stop - 1)
        if words[3:-1] == ["TRUE"]:
            return longest, None
        if words[3:-1] == ["?"] or (len(words) == 6 and words[3] == ":"):
            return longest, TextPart(statement.span(section.content + 3, section.stop - 1))
    raise statement.error(
        f"{statement.cut(section.first, section.stop)} is not an option of MATCH_RECOGNIZE",
        statement.span(section.first, section.stop),
        hint="remove it; limits and plans are hints after the clause: /*+ seconds(600) */",
    )


def _read_within(statement: Statement, section: ClauseSection | None) -> TextPart | None:
    if section is None:
        return None
    if section.content == section.stop:
        raise statement.error_at(
            "WITHIN has no duration", section.first, hint="write WITHIN INTERVAL '10' MINUTES"
        )
    return TextPart(statement.span(section.content, section.stop))


def _trim_span(statement: Statement, span: Span) -> Span:
    """The range without the blanks around it."""
    text = statement.text[slice(*span)]
    start = span[0] + len(text) - len(text.lstrip())
    return start, start + len(text.strip())
