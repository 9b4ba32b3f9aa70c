"""The PATTERN clause.

    sequence    either ; either ; ...
    either      both OR both ...
    both        part AND part ...
    part        NOT part | primary with quantifiers
    primary     SEQ(...) AND(...) OR(...) KLEENE(...) NOT(...) | ( ... ) | declaration
    declaration Type[+*?] name[] (attributes)

An operator may stand before its parts, as SASE has it, or between them. The papers do not say
whether `A; B OR C` is (A; B) OR C, so that takes parentheses.
"""

from __future__ import annotations

import re

from spark_cep.compiling.problems import nearest
from spark_cep.sql.sase_nodes import Combined, Declared, Dots, Negated, PatternNode, Repeated
from spark_cep.sql.sase_reader import CLAUSES, Reader, said
from spark_cep.sql.sase_tokens import Token, failed

_COMBINING = {"SEQ": "seq", "AND": "all", "OR": "any"}
_NEGATING = ("NOT", "NEG")
_REPEATING = "KLEENE"
_RESERVED = frozenset({*_COMBINING, *_NEGATING, _REPEATING, *CLAUSES})
# What other languages call these operators.
_FOREIGN = {
    "ANY": "OR", "ALL": "AND", "CONJ": "AND", "DISJ": "OR", "SEQUENCE": "SEQ", "ITER": "KLEENE",
    "ITERATION": "KLEENE", "UNLESS": "SEQ with NOT inside",
}  # fmt: skip
_DECLARE = "declare events: SEQ(Stock a, Stock b), or A; B; C"


def pattern(reader: Reader) -> PatternNode:
    """
    >>> from spark_cep.sql.sase_tokens import tokens
    >>> found = pattern(Reader(tokens("SEQ(A a, ~B b, C+ c[])")))
    >>> [type(part).__name__ for part in found.parts]
    ['Declared', 'Negated', 'Repeated']
    """
    return _sequence(reader)


def _sequence(reader: Reader) -> PatternNode:
    start = reader.token
    parts, mixed = [], None
    while True:
        first = reader.token
        part, infix = _either(reader)
        parts.append(part)
        mixed = mixed or (reader.since(first) if infix else None)
        if not (reader.at(";") and _goes_on(reader)):
            break
        reader.advance()
    if len(parts) == 1:
        return parts[0]
    if mixed is not None:
        hint = "write A; (B OR C) or (A; B) OR C"
        failed("it is not clear what belongs together beside ;", mixed, hint)
    return Combined("seq", tuple(parts), reader.since(start))


def _goes_on(reader: Reader) -> bool:
    """Whether a `;` is followed by a part; one at the end of the text is only its end."""
    after = reader.ahead()
    return after.kind != "end" and said(after) not in {"WHERE", "WITHIN"}


def _either(reader: Reader) -> tuple[PatternNode, bool]:
    start = reader.token
    first, infix = _both(reader)
    parts = [first]
    while reader.take("OR"):
        parts.append(_both(reader)[0])
    if len(parts) == 1:
        return first, infix
    return Combined("any", tuple(parts), reader.since(start)), True


def _both(reader: Reader) -> tuple[PatternNode, bool]:
    start = reader.token
    parts = [_part(reader)]
    while reader.take("AND"):
        parts.append(_part(reader))
    if len(parts) == 1:
        return parts[0], False
    return Combined("all", tuple(parts), reader.since(start)), True


def _part(reader: Reader) -> PatternNode:
    start = reader.token
    if reader.take("..."):
        return Dots(start.place)
    if reader.take(*_NEGATING):
        return Negated(_part(reader), reader.since(start))
    return _quantified(reader, _primary(reader), start)


def _quantified(reader: Reader, part: PatternNode, start: Token) -> PatternNode:
    quantifier = _quantifier(reader)
    if quantifier is None:
        return part
    if isinstance(part, Repeated) or reader.at("+", "*", "?", "{"):
        place = reader.since(start)
        failed("two quantifiers stand on one part", place, "keep one of them: + * ? or {2,4}")
    return Repeated(part, quantifier, reader.since(start))


def _quantifier(reader: Reader) -> str | None:
    sign = reader.take("+", "*", "?")
    if sign is not None:
        return sign.value
    opening = reader.take("{")
    if opening is None:
        return None
    text = ""
    while reader.token.kind == "number" or reader.at(","):
        text += reader.advance().value
    reader.close(opening, "}")
    found = re.fullmatch(r"(\d*)(,?)(\d*)", text)
    bounds = [int(each) for each in (found[1], found[3]) if each] if found else []
    if not bounds or bounds != sorted(bounds) or bounds[-1] == 0:
        hint = "write {3}, {2,4}, {2,} or {,4}"
        failed(f"{{{text}}} is no quantifier", reader.since(opening), hint)
    return f"{{{text}}}"


def _primary(reader: Reader) -> PatternNode:
    start = reader.token
    operator = said(start)
    called = said(reader.ahead()) == "("
    if operator == "(":
        return _group(reader, start)
    if operator in _COMBINING and called:
        return _combined(reader, start, operator)
    if operator == _REPEATING and called:
        reader.advance()
        part = _group(reader, start)
        if isinstance(part, Repeated):
            failed("KLEENE stands on a quantified part", part.place, "drop one of the two")
        return Repeated(part, "+", reader.since(start))
    if start.kind not in {"name", "quoted"} or operator in _RESERVED:
        reader.unexpected("expected an event or an operator", _DECLARE)
    return _declared(reader)


def _combined(reader: Reader, start: Token, operator: str) -> PatternNode:
    reader.advance()
    opening = reader.advance()
    if reader.take(")"):
        failed(f"{operator}() is empty", reader.since(start), _DECLARE)
    parts = _parts(reader, opening)
    kind = _COMBINING[operator]
    return Combined(kind, parts, reader.since(start))  # type: ignore[arg-type]


def _group(reader: Reader, start: Token) -> PatternNode:
    """( ... ): one part, or several in sequence."""
    opening = reader.advance()
    parts = _parts(reader, opening)
    return parts[0] if len(parts) == 1 else Combined("seq", parts, reader.since(start))


def _parts(reader: Reader, opening: Token) -> tuple[PatternNode, ...]:
    parts = [_sequence(reader)]
    while reader.take(","):
        parts.append(_sequence(reader))
    reader.close(opening, ")")
    return tuple(parts)


def _declared(reader: Reader) -> PatternNode:
    """Stock a | Stock+ a[] | a | A(attr1, attr2)"""
    type_ = reader.advance()
    if reader.at("("):
        _check_no_operator(type_)
    quantifier = _quantifier(reader)
    name = _variable(reader)
    attributes = _attributes(reader) if reader.at("(") else None
    if reader.at("[") and said(reader.ahead()) == "]":
        reader.advance()
        reader.advance()
        quantifier = quantifier or _quantifier(reader) or "+"
    place = reader.since(type_)
    variable = (name or type_).value
    declared = Declared(type_.value, variable, place, name is None, attributes)
    return declared if quantifier is None else Repeated(declared, quantifier, place)


def _variable(reader: Reader) -> Token | None:
    token = reader.token
    if token.kind == "quoted" or (token.kind == "name" and said(token) not in _RESERVED):
        return reader.advance()
    return None


def _attributes(reader: Reader) -> tuple[str, ...]:
    opening = reader.advance()
    hint = "in parentheses behind a type stand its attributes: A(attr1, attr2)"
    found = [reader.name("an attribute", hint).value]
    while reader.take(","):
        found.append(reader.name("an attribute", hint).value)
    reader.close(opening, ")")
    return tuple(found)


def _check_no_operator(type_: Token) -> None:
    """A misspelt operator must not pass for a type with its attributes."""
    word = said(type_)
    operators = [*_COMBINING, *_NEGATING, _REPEATING]
    meant = _FOREIGN.get(word) or (nearest(word, operators) if len(word) > len("OR") else None)
    if meant is not None:
        hint = f"did you mean {meant}? A type of this name stands in backquotes: `{type_.value}`(x)"
        failed(f"{type_.value} is no operator", type_.place, hint)
