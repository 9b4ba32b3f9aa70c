"""Event patterns in a clause: PATTERN SEQ(a, NOT x, b+, OR(c, d)?) SKIP TILL NEXT MATCH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_cep.errors import PatternError
from spark_cep.pattern import Pattern, all_of, any_of, event, no, seq
from spark_cep.sql.clause import EventTree

if TYPE_CHECKING:
    from spark_cep.sql.sections import Section
    from spark_cep.sql.statement import Statement

_OPERATORS = {"SEQ": seq, "AND": all_of, "OR": any_of}
_STRATEGIES = {
    "SKIP TILL ANY MATCH": "skip till any match",
    "SKIP TILL NEXT MATCH": "skip till next match",
    "STRICT": "strict",
}
_EXAMPLE = "PATTERN SEQ(a, NOT x, b+, c), with AND(...) and OR(...) inside it"


def event_tree(
    statement: Statement,
    section: Section,
    strategy: Section | None,
    consumption: Section | None,
) -> EventTree:
    """The tree of a pattern that is not in brackets, and what is said of its selection."""
    reader = _Reader(statement, section)
    root = reader.part()
    if reader.index < section.stop:
        raise reader.unexpected()
    span = statement.span(section.content, section.stop)
    chosen = None if strategy is None else _strategy(statement, strategy)
    consuming = None if consumption is None else _consumption(statement, consumption)
    return EventTree(span, root, chosen, consuming)


def _strategy(statement: Statement, section: Section) -> str:
    words = statement.cut(section.first, section.stop)
    name = _STRATEGIES.get(" ".join(words.upper().split()))
    if name is None:
        raise statement.error(
            f"{words} is no strategy",
            statement.span(section.first, section.stop),
            hint="write SKIP TILL ANY MATCH, SKIP TILL NEXT MATCH or STRICT",
        )
    return name


def _consumption(statement: Statement, section: Section) -> str:
    if section.stop > section.content:
        at = section.content
        raise statement.error_at(f"{statement.tokens[at].text} was not expected here", at)
    return statement.tokens[section.first].text.lower()


class _Reader:
    """Recursive descent over the tokens of one pattern."""

    def __init__(self, statement: Statement, section: Section) -> None:
        self.statement = statement
        self.index = section.content
        self.stop = section.stop

    def part(self) -> Pattern:
        """An operator with its parts, a negated variable or a variable; then a quantifier."""
        begin = self.index
        if self._word("NOT", "NEG") or self._symbol("!", "~"):
            self.index += 1
            return self._checked(begin, lambda: no(self._variable()))
        operator = None
        if self.statement.symbol(self.index + 1, "(") and self._word(*_OPERATORS):
            operator = _OPERATORS[self.statement.tokens[self.index].text.upper()]
        pattern = self._variable() if operator is None else self._group(operator)
        quantifier = self._quantifier()
        if quantifier is None:
            return pattern
        return self._checked(begin, lambda: pattern.times(quantifier))

    def _group(self, operator: object) -> Pattern:
        assert callable(operator)
        begin = self.index
        self.index += 2
        parts = [self.part()]
        while self._symbol(","):
            self.index += 1
            parts.append(self.part())
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
        if self._symbol("+", "*", "?"):
            self.index += 1
            return self.statement.tokens[self.index - 1].text
        if not self._symbol("{"):
            return None
        begin = self.index
        while self.index < self.stop and not self._symbol("}"):
            self.index += 1
        self.index += 1
        return "".join(token.text for token in self.statement.tokens[begin : self.index])

    def _word(self, *words: str) -> bool:
        return self.index < self.stop and self.statement.tokens[self.index].is_word(*words)

    def _symbol(self, *symbols: str) -> bool:
        return self.index < self.stop and self.statement.symbol(self.index, *symbols)

    def _checked(self, begin: int, make: object) -> Pattern:
        """What a builder refuses is shown at its tokens."""
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
                "the pattern ends too early", self.index - 1, hint=f"write {_EXAMPLE}"
            )
        text = self.statement.tokens[self.index].text
        return self.statement.error_at(
            f"{text} was not expected in a pattern of events",
            self.index,
            hint=f"write {_EXAMPLE}; a row pattern stands in brackets: PATTERN (a b+)",
        )
