"""The grammar of SASE text: the PATTERN, WHERE and WITHIN clauses.

    sequence    or ; or ; ...
    or          and OR and ...
    and         part AND part ...
    part        NOT part | primary with quantifiers
    primary     SEQ(...) AND(...) OR(...) KLEENE(...) NOT(...) | ( ... ) | declaration
    declaration Type[+*?] name[] (attributes)

    disjunction conjunction OR conjunction ...
    conjunction negation AND negation ...
    negation    NOT negation | ∀ i ∈ {2, n}: disjunction | comparison
    comparison  sum < sum < sum | sum [NOT] IN set | sum IS NULL | sum LIKE sum | sum BETWEEN ...
    sum         product + product ...
    product     signed * signed ...
    signed      - signed | value
    value       10k | 10,000 | 6:00 | 'text' | name | a.price | a[i].price | f(a.x, b.y) | ( ... )

    window      4 hours | 5min | 1 hour 30 minutes | 2000 events | 50K events | 10 | h

An operator of a pattern may be before its parts, as SASE has it, or between them. The papers do not
say whether `A; B OR C` is (A; B) OR C, so that takes parentheses. Conditions are a small part of
Spark SQL plus what the papers add to it. sqlglot's expression parser is not used: it takes ^ for a
bit operation and [x] for an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from spark_cep.expressions.problems import nearest_name
from spark_cep.expressions.quantifiers import MAX_TOKENS, QuantifierError, read_quantifier
from spark_cep.sql.sase.lexer import CLAUSES, SaseToken, TokenReader, keyword_of, raise_syntax_error
from spark_cep.sql.sase.nodes import (
    ArithmeticNode,
    BareName,
    ColumnReference,
    Combination,
    ComparisonChain,
    ElementAccess,
    EventDeclaration,
    EventNegation,
    FamilyDots,
    ForAllCondition,
    FunctionCall,
    ListReading,
    LogicalNot,
    LogicalOperation,
    RemoteAccess,
    Repetition,
    SameCondition,
    SaseExpression,
    SaseNode,
    SetLiteral,
    SetMembership,
    SqlLiteral,
    SqlPredicate,
    TimeOfDay,
    WindowAmount,
    WindowClause,
)

if TYPE_CHECKING:
    from spark_cep.expressions.problems import Place

# ---- PATTERN -------------------------------------------------------------------------------------

_OPERATORS = {"SEQ": "seq", "AND": "all", "OR": "any"}
_NEGATIONS = ("NOT", "NEG")
_KLEENE = "KLEENE"
_PATTERN_WORDS = frozenset({*_OPERATORS, *_NEGATIONS, _KLEENE, *CLAUSES})
# The names of these operators in other languages.
_OTHER_OPERATORS = {
    "ANY": "OR", "ALL": "AND", "CONJ": "AND", "DISJ": "OR", "SEQUENCE": "SEQ", "ITER": "KLEENE",
    "ITERATION": "KLEENE", "UNLESS": "SEQ with NOT inside",
}  # fmt: skip
_DECLARE_HINT = "declare events: SEQ(Stock a, Stock b), or A; B; C"


def parse_pattern(reader: TokenReader) -> SaseNode:
    """The PATTERN clause.

    >>> from spark_cep.sql.sase.lexer import tokenize
    >>> found = parse_pattern(TokenReader(tokenize("SEQ(A a, ~B b, C+ c[])")))
    >>> [type(part).__name__ for part in found.parts]
    ['EventDeclaration', 'EventNegation', 'Repetition']
    """
    return _parse_sequence(reader)


def _parse_sequence(reader: TokenReader) -> SaseNode:
    start = reader.token
    parts, mixed = [], None
    while True:
        first = reader.token
        part, infix = _parse_or(reader)
        parts.append(part)
        mixed = mixed or (reader.since(first) if infix else None)
        if not (reader.at(";") and _has_next_part(reader)):
            break
        reader.advance()
    if len(parts) == 1:
        return parts[0]
    if mixed is not None:
        hint = "write A; (B OR C) or (A; B) OR C"
        raise_syntax_error("AND or OR beside ; is ambiguous", mixed, hint)
    return Combination("seq", tuple(parts), reader.since(start))


def _has_next_part(reader: TokenReader) -> bool:
    """Whether a `;` is followed by a part; one at the end of the text is only its end."""
    after = reader.ahead()
    return after.kind != "end" and keyword_of(after) not in {"WHERE", "WITHIN"}


def _parse_or(reader: TokenReader) -> tuple[SaseNode, bool]:
    start = reader.token
    first, infix = _parse_and(reader)
    parts = [first]
    while reader.take("OR"):
        parts.append(_parse_and(reader)[0])
    if len(parts) == 1:
        return first, infix
    return Combination("any", tuple(parts), reader.since(start)), True


def _parse_and(reader: TokenReader) -> tuple[SaseNode, bool]:
    start = reader.token
    parts = [_parse_part(reader)]
    while reader.take("AND"):
        parts.append(_parse_part(reader))
    if len(parts) == 1:
        return parts[0], False
    return Combination("all", tuple(parts), reader.since(start)), True


def _parse_part(reader: TokenReader) -> SaseNode:
    start = reader.token
    if reader.take("..."):
        return FamilyDots(start.place)
    if reader.take(*_NEGATIONS):
        return EventNegation(_parse_part(reader), reader.since(start))
    return _parse_quantified(reader, _parse_primary(reader), start)


def _parse_quantified(reader: TokenReader, part: SaseNode, start: SaseToken) -> SaseNode:
    quantifier = _parse_quantifier(reader)
    if quantifier is None:
        return part
    if isinstance(part, Repetition) or reader.at("+", "*", "?", "{"):
        place = reader.since(start)
        raise_syntax_error("a part has two quantifiers", place, "keep one of them: + * ? or {2,4}")
    return Repetition(part, quantifier, reader.since(start))


def _parse_quantifier(reader: TokenReader) -> str | None:
    start = reader.token
    tokens = [reader.ahead(count) for count in range(MAX_TOKENS)]
    try:
        found = read_quantifier([each.value if each.kind != "quoted" else "" for each in tokens])
    except QuantifierError as error:
        _advance_by(reader, error.length)
        raise_syntax_error(error.message, reader.since(start), error.hint)
    if found is None:
        return None
    _advance_by(reader, found.length)
    return found.text


def _advance_by(reader: TokenReader, count: int) -> None:
    for _ in range(count):
        reader.advance()


def _parse_primary(reader: TokenReader) -> SaseNode:
    start = reader.token
    operator = keyword_of(start)
    called = keyword_of(reader.ahead()) == "("
    if operator == "(":
        return _parse_group(reader, start)
    if operator in _OPERATORS and called:
        return _parse_operator(reader, start, operator)
    if operator == _KLEENE and called:
        reader.advance()
        part = _parse_group(reader, start)
        if isinstance(part, Repetition):
            raise_syntax_error(
                "KLEENE is applied to a part with a quantifier", part.place, "remove one of the two"
            )
        return Repetition(part, "+", reader.since(start))
    if start.kind not in {"name", "quoted"} or operator in _PATTERN_WORDS:
        reader.unexpected("expected an event or an operator", _DECLARE_HINT)
    return _parse_declaration(reader)


def _parse_operator(reader: TokenReader, start: SaseToken, operator: str) -> SaseNode:
    reader.advance()
    opening = reader.advance()
    if reader.take(")"):
        raise_syntax_error(f"{operator}() is empty", reader.since(start), _DECLARE_HINT)
    parts = _parse_parts(reader, opening)
    kind = _OPERATORS[operator]
    return Combination(kind, parts, reader.since(start))  # type: ignore[arg-type]


def _parse_group(reader: TokenReader, start: SaseToken) -> SaseNode:
    """( ... ): one part, or several in sequence."""
    opening = reader.advance()
    parts = _parse_parts(reader, opening)
    return parts[0] if len(parts) == 1 else Combination("seq", parts, reader.since(start))


def _parse_parts(reader: TokenReader, opening: SaseToken) -> tuple[SaseNode, ...]:
    parts = [_parse_sequence(reader)]
    while reader.take(","):
        parts.append(_parse_sequence(reader))
    reader.close(opening, ")")
    return tuple(parts)


def _parse_declaration(reader: TokenReader) -> SaseNode:
    """Stock a | Stock+ a[] | a | A(attr1, attr2)"""
    type_ = reader.advance()
    if reader.at("("):
        _check_no_operator(type_)
    quantifier = _parse_quantifier(reader)
    name = _parse_variable(reader)
    attributes = _parse_attributes(reader) if reader.at("(") else None
    if reader.at("[") and keyword_of(reader.ahead()) == "]":
        reader.advance()
        reader.advance()
        quantifier = quantifier or _parse_quantifier(reader) or "+"
    place = reader.since(type_)
    variable = (name or type_).value
    declared = EventDeclaration(type_.value, variable, place, name is None, attributes)
    return declared if quantifier is None else Repetition(declared, quantifier, place)


def _parse_variable(reader: TokenReader) -> SaseToken | None:
    token = reader.token
    if token.kind == "quoted" or (token.kind == "name" and keyword_of(token) not in _PATTERN_WORDS):
        return reader.advance()
    return None


def _parse_attributes(reader: TokenReader) -> tuple[str, ...]:
    opening = reader.advance()
    hint = "the parentheses after a type list its attributes: A(attr1, attr2)"
    found = [reader.name("an attribute", hint).value]
    while reader.take(","):
        found.append(reader.name("an attribute", hint).value)
    reader.close(opening, ")")
    return tuple(found)


def _check_no_operator(type_: SaseToken) -> None:
    """Refuses a misspelled operator, which would pass for a type with its attributes."""
    word = keyword_of(type_)
    operators = [*_OPERATORS, *_NEGATIONS, _KLEENE]
    meant = _OTHER_OPERATORS.get(word) or (
        nearest_name(word, operators) if len(word) > len("OR") else None
    )
    if meant is not None:
        hint = f"did you mean {meant}? Write a type of this name in backquotes: `{type_.value}`(x)"
        raise_syntax_error(f"{type_.value} is not an operator", type_.place, hint)


# ---- WHERE ---------------------------------------------------------------------------------------

OPENING = {"{": "}", "(": ")", "[": "]"}
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_LITERALS = ("TRUE", "FALSE", "NULL")
_CONDITION_WORDS = frozenset(
    {"AND", "OR", "NOT", "IN", "IS", "BETWEEN", "LIKE", "RLIKE", "WHERE", "WITHIN", "PATTERN"}
)
_OTHER_SQL_HINT = 'conditions in full Spark SQL are added in Python: sase(...).where("...")'
_RANGE_HINT = "write ∀ i ∈ {2, n}: S_i.price > S_{i-1}.price"
_HOURS, _MINUTES, _SECONDS = 24, 60, 60


def parse_condition(reader: TokenReader) -> SaseExpression:
    """The WHERE clause.

    >>> from spark_cep.sql.sase.lexer import tokenize
    >>> found = parse_condition(TokenReader(tokenize("a.x < b.x < c.x AND a.kind ∈ {A, B}")))
    >>> [type(part).__name__ for part in found.parts]
    ['ComparisonChain', 'SetMembership']
    """
    return _ConditionParser(reader).either()


class _ConditionParser:
    """Values in parentheses are whole conditions, so that both are read by one class."""

    def __init__(self, reader: TokenReader) -> None:
        self._reader = reader
        # Inside a list a comma ends a number, elsewhere it may group its digits.
        self._in_list = False

    # ---- logic ---------------------------------------------------------------------------------

    def either(self) -> SaseExpression:
        return self._joined("OR", self._both)

    def _both(self) -> SaseExpression:
        return self._joined("AND", self._negation)

    def _joined(
        self, operator: Literal["AND", "OR"], part: Callable[[], SaseExpression]
    ) -> SaseExpression:
        first = part()
        parts = [first]
        while self._reader.take(operator):
            parts.append(part())
        return (
            first
            if len(parts) == 1
            else LogicalOperation(operator, tuple(parts), self._since(first))
        )

    def _negation(self) -> SaseExpression:
        start = self._reader.token
        if self._reader.take("NOT"):
            return LogicalNot(self._negation(), self._reader.since(start))
        if self._reader.at("FORALL") or (self._reader.at("FOR") and self._ahead("ALL")):
            return self._for_all()
        return self._comparison()

    def _for_all(self) -> SaseExpression:
        start = self._reader.advance()
        if keyword_of(start) == "FOR":
            self._reader.advance()
        index = self._reader.name("the name of a number", _RANGE_HINT)
        self._reader.expect("IN", _RANGE_HINT)
        numbers, is_range = self._numbers()
        self._reader.expect(":", _RANGE_HINT)
        body = self.either()
        return ForAllCondition(index.value, numbers, is_range, body, self._reader.since(start))

    def _numbers(self) -> tuple[SetLiteral | BareName, bool]:
        """The numbers of ∀: {2, n} and {2, ..., n} are ranges, as printed; {1, 3, 4} and names are
        sets."""
        opening = self._reader.take("{", "[", "(")
        if opening is None:
            name = self._reader.name("numbers", _RANGE_HINT)
            return BareName(name.value, name.place), False
        members, dots = [], False
        while not self._reader.at(*OPENING.values()):
            if self._reader.take("...", ".."):
                dots = True
            else:
                members.append(self._listed(self._sum))
            self._reader.take(",")
        self._reader.close(opening, OPENING[keyword_of(opening)])
        listed = SetLiteral(tuple(members), self._reader.since(opening))
        if dots and len(members) < len(("low", "high")):
            raise_syntax_error("a range needs two bounds", listed.place, _RANGE_HINT)
        if dots:
            # {2, 3, ..., n}: what is before the dots only shows how the range continues.
            listed = SetLiteral((members[0], members[-1]), listed.place)
        return listed, dots or len(members) == len(("low", "high"))

    # ---- comparisons ---------------------------------------------------------------------------

    def _comparison(self) -> SaseExpression:
        first = self._sum()
        operands, operators = [first], []
        while self._reader.at(*_COMPARISONS):
            operators.append(keyword_of(self._reader.advance()))
            operands.append(self._sum())
        if operators:
            return ComparisonChain(tuple(operands), tuple(operators), self._since(first))
        return self._test(first)

    def _test(self, value: SaseExpression) -> SaseExpression:
        reader = self._reader
        if reader.take("∉"):
            return SetMembership(value, self._container(), True, self._since(value))
        negated = reader.at("NOT") and self._ahead("IN", "BETWEEN", "LIKE", "RLIKE")
        if negated:
            reader.advance()
        no = "NOT " if negated else ""
        if reader.take("IN"):
            return SetMembership(value, self._container(), negated, self._since(value))
        if reader.take("BETWEEN"):
            low = self._sum()
            reader.expect("AND", "write a.x BETWEEN 1 AND 5")
            words = (f"{no}BETWEEN", "AND")
            return SqlPredicate((value, low, self._sum()), words, self._since(value))
        word = reader.take("LIKE", "RLIKE")
        if word is not None:
            return SqlPredicate((value, self._sum()), (no + keyword_of(word),), self._since(value))
        if reader.take("IS"):
            no = "NOT " if reader.take("NOT") else ""
            reader.expect("NULL", "write a.x IS NULL or a.x IS NOT NULL")
            return SqlPredicate((value,), (f"IS {no}NULL",), self._since(value))
        return value

    def _container(self) -> SaseExpression:
        """The right side of ∈: listed members, a symbol, or an array."""
        opening = self._reader.take(*OPENING)
        if opening is not None:
            members = self._list(opening, OPENING[keyword_of(opening)])
            return SetLiteral(members, self._reader.since(opening))
        value = self._value()
        return self._hyphened(value) if isinstance(value, BareName) else value

    def _hyphened(self, word: BareName) -> BareName:
        """A set's name as printed, Hi-Tech, in which the hyphen cannot be a minus."""
        name = word.name
        while (
            self._reader.at("-")
            and self._reader.touches()
            and self._reader.touches(1)
            and self._reader.ahead().kind == "name"
        ):
            self._reader.advance()
            name += f"-{self._reader.advance().value}"
        return BareName(name, self._since(word))

    def _ahead(self, *values: str) -> bool:
        return keyword_of(self._reader.ahead()) in values

    # ---- values --------------------------------------------------------------------------------

    def _sum(self) -> SaseExpression:
        return self._arithmetic(("+", "-"), self._product)

    def _product(self) -> SaseExpression:
        return self._arithmetic(("*", "/", "%"), self._signed)

    def _arithmetic(
        self, operators: tuple[str, ...], part: Callable[[], SaseExpression]
    ) -> SaseExpression:
        left = first = part()
        while self._reader.at(*operators):
            operator = keyword_of(self._reader.advance())
            left = ArithmeticNode(operator, left, part(), self._since(first))
        return left

    def _signed(self) -> SaseExpression:
        start = self._reader.take("-", "+")
        if start is None:
            return self._value()
        return ArithmeticNode(keyword_of(start), None, self._signed(), self._reader.since(start))

    def _value(self) -> SaseExpression:
        reader, token = self._reader, self._reader.token
        word = keyword_of(token)
        if token.kind == "number":
            return self._number()
        if token.kind == "string":
            reader.advance()
            return SqlLiteral(token.value, token.place)
        if word == "(":
            return self._parenthesized()
        if word == "[":
            return self._same(reader.advance(), token)
        if token.kind not in {"name", "quoted"} or word in _CONDITION_WORDS:
            reader.unexpected("expected a value", _OTHER_SQL_HINT)
        reader.advance()
        if word in _LITERALS:
            return SqlLiteral(word, token.place)
        return self._named(token)

    def _number(self) -> SaseExpression:
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
        return _parse_time_of_day(parts, reader, start)

    def _parenthesized(self) -> SaseExpression:
        opening = self._reader.advance()
        outer, self._in_list = self._in_list, False
        found = self.either()
        self._reader.close(opening, ")")
        self._in_list = outer
        return found

    def _named(self, token: SaseToken) -> SaseExpression:
        reader = self._reader
        touching = reader.at("(") or (reader.at("[") and not self._is_index())
        word = keyword_of(token)
        if touching and word == "SAME":
            return self._same(reader.advance(), token)
        if touching:
            opening = reader.advance()
            arguments = self._list(opening, OPENING[keyword_of(opening)])
            place = reader.since(token)
            if word == "REMOTE":
                return RemoteAccess(arguments, place)
            return FunctionCall(token.value, arguments, place)
        return self._dotted(token)

    def _is_index(self) -> bool:
        """Whether the bracket ahead is that of `a[i].price` or `a[]`. A call `f[...]`, as the EIRES
        paper prints it, has no column after the bracket."""
        if keyword_of(self._reader.ahead()) == "]":
            return True
        depth, count = 0, 0
        while self._reader.ahead(count).kind != "end":
            word = keyword_of(self._reader.ahead(count))
            depth += (word == "[") - (word == "]")
            count += 1
            if depth == 0:
                return keyword_of(self._reader.ahead(count)) == "."
        return False

    def _dotted(self, token: SaseToken) -> SaseExpression:
        reader = self._reader
        reading: ListReading = self._reading(token) if reader.at("[") else "each"
        parts = [token.value]
        while reader.at(".") and reader.ahead().kind in {"name", "quoted"}:
            reader.advance()
            parts.append(reader.advance().value)
        if len(parts) == 1:
            return BareName(token.value, token.place)
        found: SaseExpression = ColumnReference(tuple(parts), reader.since(token), reading)
        while reader.at("["):
            opening = reader.advance()
            index = self._listed(self._sum)
            reader.close(opening, "]")
            found = ElementAccess(found, index, reader.since(token))
        return found

    def _reading(self, variable: SaseToken) -> ListReading:
        """a[1] is the first, a[i] each, a[i-1] the one before it, a[a.LEN] the last."""
        opening = self._reader.advance()
        text = ""
        while not self._reader.at("]"):
            text += self._reader.advance().value.casefold()
        self._reader.advance()
        name = variable.value.casefold()
        known: dict[str, ListReading] = {
            "": "each", "i": "each", "i-1": "prev", "1": "first",
            "len": "last", f"{name}.len": "last",
        }  # fmt: skip
        found = known.get(text)
        if found is None:
            hint = f"write {name}[1], {name}[i], {name}[i-1] or {name}[{name}.LEN]"
            raise_syntax_error(
                f"[{text}] does not name an element of a list", self._reader.since(opening), hint
            )
        return found

    def _same(self, opening: SaseToken, start: SaseToken) -> SaseExpression:
        attributes = self._list(opening, OPENING[keyword_of(opening)])
        return SameCondition(attributes, self._reader.since(start))

    def _list(self, opening: SaseToken, closing: str) -> tuple[SaseExpression, ...]:
        found = []
        while not self._reader.at(closing):
            found.append(self._listed(self._sum))
            if not self._reader.take(","):
                break
        self._reader.close(opening, closing)
        return tuple(found)

    def _listed(self, part: Callable[[], SaseExpression]) -> SaseExpression:
        outer, self._in_list = self._in_list, True
        found = part()
        self._in_list = outer
        return found

    def _since(self, first: SaseExpression) -> Place:
        return self._reader.since(first.place)


def _parse_time_of_day(parts: list[str], reader: TokenReader, start: SaseToken) -> TimeOfDay:
    hours, minutes, seconds = (*parts, "0", "0")[:3]
    place = reader.since(start)
    sane = len(parts) <= len("hms") and int(hours) < _HOURS and float(minutes) < _MINUTES
    if not (sane and minutes.isdigit() and float(seconds) < _SECONDS):
        raise_syntax_error(
            f"{':'.join(parts)} is not a time of day", place, "write 18:00 or 18:00:30"
        )
    whole, _, fraction = seconds.partition(".")
    text = f"{int(hours):02}:{int(minutes):02}:{int(whole or 0):02}.{fraction[:6]:<06}"
    return TimeOfDay(text, place)


# ---- WITHIN --------------------------------------------------------------------------------------

WINDOW_HINT = "write WITHIN 10 minutes, WITHIN 2000 events, or WITHIN 10 in the order column's unit"


def parse_window(reader: TokenReader) -> WindowClause:
    """The WITHIN clause. A bare number is in the unit of the first order column, a bare word is a
    symbol. Durations are checked by the resolver, where symbols are known."""
    start = reader.token
    amounts = []
    while reader.token.kind in {"number", "name"} and not reader.at(*CLAUSES):
        number = _read_number(reader)
        named = reader.token.kind == "name" and not reader.at(*CLAUSES)
        amounts.append(WindowAmount(number, reader.advance().value if named else None))
    if not amounts:
        reader.unexpected("expected a duration", WINDOW_HINT)
    return WindowClause(tuple(amounts), reader.since(start))


def _read_number(reader: TokenReader) -> SqlLiteral | BareName:
    if reader.token.kind == "number":
        return reader.number(grouped=True, typed=False)
    token = reader.advance()
    return BareName(token.value, token.place)
