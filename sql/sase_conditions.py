"""The WHERE clause.

    either      both OR both ...
    both        negation AND negation ...
    negation    NOT negation | ∀ i ∈ {2, n}: either | comparison
    comparison  sum < sum < sum | sum [NOT] IN set | sum IS NULL | sum LIKE sum | sum BETWEEN ...

This is a small part of Spark SQL plus what the papers add to it: chains of comparisons, ∈ with
named sets, SAME[...], ∀, indexes of Kleene lists, numbers such as 10k and 10,000. sqlglot's
expression parser is not used: it takes ^ for a bit operation and [x] for an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from spark_cep.sql.sase_nodes import (
    Compared,
    Expression,
    ForAll,
    Joined,
    Listed,
    Member,
    Not,
    Tested,
    Word,
)
from spark_cep.sql.sase_reader import Reader, said
from spark_cep.sql.sase_tokens import failed
from spark_cep.sql.sase_values import OPENING, Values

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_RANGE = "write ∀ i ∈ {2, n}: S_i.price > S_{i-1}.price"


def condition(reader: Reader) -> Expression:
    """
    >>> from spark_cep.sql.sase_tokens import tokens
    >>> found = condition(Reader(tokens("a.x < b.x < c.x AND a.kind ∈ {A, B}")))
    >>> [type(part).__name__ for part in found.parts]
    ['Compared', 'Member']
    """
    return _Conditions(reader).either()


class _Conditions(Values):
    # ---- logic ---------------------------------------------------------------------------------

    def either(self) -> Expression:
        return self._joined("OR", self._both)

    def _both(self) -> Expression:
        return self._joined("AND", self._negation)

    def _joined(self, operator: Literal["AND", "OR"], part: Callable[[], Expression]) -> Expression:
        first = part()
        parts = [first]
        while self._reader.take(operator):
            parts.append(part())
        return first if len(parts) == 1 else Joined(operator, tuple(parts), self._since(first))

    def _negation(self) -> Expression:
        start = self._reader.token
        if self._reader.take("NOT"):
            return Not(self._negation(), self._reader.since(start))
        if self._reader.at("FORALL") or (self._reader.at("FOR") and self._ahead("ALL")):
            return self._for_all()
        return self._comparison()

    def _for_all(self) -> Expression:
        start = self._reader.advance()
        if said(start) == "FOR":
            self._reader.advance()
        index = self._reader.name("the name of a number", _RANGE)
        self._reader.expect("IN", _RANGE)
        numbers, is_range = self._numbers()
        self._reader.expect(":", _RANGE)
        body = self.either()
        return ForAll(index.value, numbers, is_range, body, self._reader.since(start))

    def _numbers(self) -> tuple[Listed | Word, bool]:
        """{2, n} and {2, ..., n} are ranges, as printed; {1, 3, 4} and names are sets."""
        opening = self._reader.take("{", "[", "(")
        if opening is None:
            name = self._reader.name("numbers", _RANGE)
            return Word(name.value, name.place), False
        members, dots = [], False
        while not self._reader.at(*OPENING.values()):
            if self._reader.take("...", ".."):
                dots = True
            else:
                members.append(self._listed(self._sum))
            self._reader.take(",")
        self._reader.close(opening, OPENING[said(opening)])
        listed = Listed(tuple(members), self._reader.since(opening))
        if dots and len(members) < len(("low", "high")):
            failed("a range has two bounds", listed.place, _RANGE)
        if dots:
            # {2, 3, ..., n}: what stands before the dots only shows how it goes on.
            listed = Listed((members[0], members[-1]), listed.place)
        return listed, dots or len(members) == len(("low", "high"))

    # ---- comparisons ---------------------------------------------------------------------------

    def _comparison(self) -> Expression:
        first = self._sum()
        operands, operators = [first], []
        while self._reader.at(*_COMPARISONS):
            operators.append(said(self._reader.advance()))
            operands.append(self._sum())
        if operators:
            return Compared(tuple(operands), tuple(operators), self._since(first))
        return self._test(first)

    def _test(self, value: Expression) -> Expression:
        reader = self._reader
        if reader.take("∉"):
            return Member(value, self._container(), True, self._since(value))
        negated = reader.at("NOT") and self._ahead("IN", "BETWEEN", "LIKE", "RLIKE")
        if negated:
            reader.advance()
        no = "NOT " if negated else ""
        if reader.take("IN"):
            return Member(value, self._container(), negated, self._since(value))
        if reader.take("BETWEEN"):
            low = self._sum()
            reader.expect("AND", "write a.x BETWEEN 1 AND 5")
            words = (f"{no}BETWEEN", "AND")
            return Tested((value, low, self._sum()), words, self._since(value))
        word = reader.take("LIKE", "RLIKE")
        if word is not None:
            return Tested((value, self._sum()), (no + said(word),), self._since(value))
        if reader.take("IS"):
            no = "NOT " if reader.take("NOT") else ""
            reader.expect("NULL", "write a.x IS NULL or a.x IS NOT NULL")
            return Tested((value,), (f"IS {no}NULL",), self._since(value))
        return value

    def _container(self) -> Expression:
        """What stands behind ∈: members written out, a symbol, or an array."""
        opening = self._reader.take(*OPENING)
        if opening is not None:
            members = self._list(opening, OPENING[said(opening)])
            return Listed(members, self._reader.since(opening))
        value = self._value()
        return self._hyphened(value) if isinstance(value, Word) else value

    def _hyphened(self, word: Word) -> Word:
        """A set's name as printed, Hi-Tech: nothing is subtracted from a set."""
        name = word.name
        while (
            self._reader.at("-")
            and self._reader.touches()
            and self._reader.touches(1)
            and self._reader.ahead().kind == "name"
        ):
            self._reader.advance()
            name += f"-{self._reader.advance().value}"
        return Word(name, self._since(word))

    def _ahead(self, *values: str) -> bool:
        return said(self._reader.ahead()) in values
