"""Values in conditions: sums, products, literals, names, calls.

    sum         product + product ...
    product     signed * signed ...
    signed      - signed | value
    value       10k | 10,000 | 6:00 | 'text' | name | a.price | a[i].price | f(a.x, b.y) | ( ... )

`f[...]` is a call, as the EIRES paper prints it, unless a column follows: `a[1].price` is one
element of a Kleene list. `SAME[...]` stands among the values because `[x]`, its short form, starts
like one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_cep.sql.sase_nodes import (
    Arithmetic,
    Call,
    Dotted,
    Expression,
    Item,
    Reading,
    Remote,
    Same,
    Sql,
    TimeOfDay,
    Word,
)
from spark_cep.sql.sase_reader import Reader, said
from spark_cep.sql.sase_tokens import Token, failed

if TYPE_CHECKING:
    from spark_cep.compiling.problems import Place

OPENING = {"{": "}", "(": ")", "[": "]"}
_LITERALS = ("TRUE", "FALSE", "NULL")
_RESERVED = frozenset(
    {"AND", "OR", "NOT", "IN", "IS", "BETWEEN", "LIKE", "RLIKE", "WHERE", "WITHIN", "PATTERN"}
)
_OTHER_SQL = 'conditions in full Spark SQL are added in Python: sase(...).where("...")'
_HOURS, _MINUTES, _SECONDS = 24, 60, 60


class Values:
    """`either` reads a whole condition: values in parentheses are conditions, too."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        # Inside a list a comma ends a number, elsewhere it may group its digits.
        self._in_list = False

    def either(self) -> Expression:
        raise NotImplementedError

    def _sum(self) -> Expression:
        return self._arithmetic(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._arithmetic(("*", "/", "%"), self._signed)

    def _arithmetic(self, operators: tuple[str, ...], part: Callable[[], Expression]) -> Expression:
        left = first = part()
        while self._reader.at(*operators):
            operator = said(self._reader.advance())
            left = Arithmetic(operator, left, part(), self._since(first))
        return left

    def _signed(self) -> Expression:
        start = self._reader.take("-", "+")
        if start is None:
            return self._value()
        return Arithmetic(said(start), None, self._signed(), self._reader.since(start))

    # ---- values --------------------------------------------------------------------------------

    def _value(self) -> Expression:
        reader, token = self._reader, self._reader.token
        word = said(token)
        if token.kind == "number":
            return self._number()
        if token.kind == "string":
            reader.advance()
            return Sql(token.value, token.place)
        if word == "(":
            return self._parenthesized()
        if word == "[":
            return self._same(reader.advance(), token)
        if token.kind not in {"name", "quoted"} or word in _RESERVED:
            reader.unexpected("expected a value", _OTHER_SQL)
        reader.advance()
        if word in _LITERALS:
            return Sql(word, token.place)
        return self._named(token)

    def _number(self) -> Expression:
        reader, start = self._reader, self._reader.token
        hours = start.value
        found = reader.number(grouped=not self._in_list, typed=True)
        after = reader.ahead()
        is_time = reader.at(":") and reader.touches() and reader.touches(1) and hours.isdigit()
        if not is_time or after.kind != "number":
            return found
        parts = [hours]
        while reader.at(":") and reader.ahead().kind == "number" and reader.touches(1):
            reader.advance()
            parts.append(reader.advance().value)
        return _time_of_day(parts, reader, start)

    def _parenthesized(self) -> Expression:
        opening = self._reader.advance()
        outer, self._in_list = self._in_list, False
        found = self.either()
        self._reader.close(opening, ")")
        self._in_list = outer
        return found

    def _named(self, token: Token) -> Expression:
        reader = self._reader
        touching = reader.at("(") or (reader.at("[") and not self._is_index())
        word = said(token)
        if touching and word == "SAME":
            return self._same(reader.advance(), token)
        if touching:
            opening = reader.advance()
            arguments = self._list(opening, OPENING[said(opening)])
            place = reader.since(token)
            if word == "REMOTE":
                return Remote(arguments, place)
            return Call(token.value, arguments, place)
        return self._dotted(token)

    def _is_index(self) -> bool:
        """Whether the bracket ahead is that of `a[i].price` or `a[]`."""
        if said(self._reader.ahead()) == "]":
            return True
        depth, count = 0, 0
        while self._reader.ahead(count).kind != "end":
            word = said(self._reader.ahead(count))
            depth += (word == "[") - (word == "]")
            count += 1
            if depth == 0:
                return said(self._reader.ahead(count)) == "."
        return False

    def _dotted(self, token: Token) -> Expression:
        reader = self._reader
        reading: Reading = self._reading(token) if reader.at("[") else "each"
        parts = [token.value]
        while reader.at(".") and reader.ahead().kind in {"name", "quoted"}:
            reader.advance()
            parts.append(reader.advance().value)
        if len(parts) == 1:
            return Word(token.value, token.place)
        found: Expression = Dotted(tuple(parts), reader.since(token), reading)
        while reader.at("["):
            opening = reader.advance()
            index = self._listed(self._sum)
            reader.close(opening, "]")
            found = Item(found, index, reader.since(token))
        return found

    def _reading(self, variable: Token) -> Reading:
        """a[1] is the first, a[i] each, a[i-1] the one before it, a[a.LEN] the last."""
        opening = self._reader.advance()
        text = ""
        while not self._reader.at("]"):
            text += self._reader.advance().value.casefold()
        self._reader.advance()
        name = variable.value.casefold()
        known: dict[str, Reading] = {
            "": "each", "i": "each", "i-1": "prev", "1": "first",
            "len": "last", f"{name}.len": "last",
        }  # fmt: skip
        found = known.get(text)
        if found is None:
            hint = f"there are {name}[1], {name}[i], {name}[i-1] and {name}[{name}.LEN]"
            failed(f"[{text}] names no element of a list", self._reader.since(opening), hint)
        return found

    def _same(self, opening: Token, start: Token) -> Expression:
        attributes = self._list(opening, OPENING[said(opening)])
        return Same(attributes, self._reader.since(start))

    def _list(self, opening: Token, closing: str) -> tuple[Expression, ...]:
        found = []
        while not self._reader.at(closing):
            found.append(self._listed(self._sum))
            if not self._reader.take(","):
                break
        self._reader.close(opening, closing)
        return tuple(found)

    def _listed(self, part: Callable[[], Expression]) -> Expression:
        outer, self._in_list = self._in_list, True
        found = part()
        self._in_list = outer
        return found

    def _since(self, first: Expression) -> Place:
        return self._reader.since(first.place)


def _time_of_day(parts: list[str], reader: Reader, start: Token) -> TimeOfDay:
    hours, minutes, seconds = (*parts, "0", "0")[:3]
    place = reader.since(start)
    sane = len(parts) <= len("hms") and int(hours) < _HOURS and float(minutes) < _MINUTES
    if not (sane and minutes.isdigit() and float(seconds) < _SECONDS):
        failed(f"{':'.join(parts)} is no time of day", place, "write 18:00 or 18:00:30")
    whole, _, fraction = seconds.partition(".")
    text = f"{int(hours):02}:{int(minutes):02}:{int(whole or 0):02}.{fraction[:6]:<06}"
    return TimeOfDay(text, place)
