"""The WITHIN clause.

    WITHIN 4 hours | 5min | 1 hour 30 minutes | 2000 events | 50K events | 10 | h

A bare number is in the unit of the first order column, as in Pattern.within; a bare word is a
symbol. A duration is checked here, where its place is known, and read by Pattern.within.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from spark_cep.compiling.windows import window_of
from spark_cep.errors import PatternError
from spark_cep.pattern import Within
from spark_cep.sql.sase_nodes import Amount, Sql, Window, Word
from spark_cep.sql.sase_reader import CLAUSES
from spark_cep.udfs.expressions import Type

if TYPE_CHECKING:
    from spark_cep.compiling.problems import Place
    from spark_cep.sql.sase_reader import Reader
    from spark_cep.sql.sase_symbols import Symbols

_EXAMPLES = "write WITHIN 10 minutes, WITHIN 2000 events, or WITHIN 10 in the order column's unit"
_EVENTS = ("event", "events")


def window(reader: Reader) -> Window:
    """What stands behind WITHIN."""
    start = reader.token
    amounts = []
    while reader.token.kind in {"number", "name"} and not reader.at(*CLAUSES):
        number = _read_number(reader)
        named = reader.token.kind == "name" and not reader.at(*CLAUSES)
        amounts.append(Amount(number, reader.advance().value if named else None))
    if not amounts:
        reader.unexpected("expected a duration", _EXAMPLES)
    return Window(tuple(amounts), reader.since(start))


def _read_number(reader: Reader) -> Sql | Word:
    if reader.token.kind == "number":
        return reader.number(grouped=True, typed=False)
    token = reader.advance()
    return Word(token.value, token.place)


def within(node: Window, symbols: Symbols) -> Within | None:
    """The window of the pattern; None, and a problem, if it is none."""
    place = node.place
    if len(node.amounts) == 1:
        amount = node.amounts[0]
        if amount.unit is None:
            return _bare(amount, symbols, place)
        if amount.unit.casefold() in _EVENTS:
            return _events(amount, symbols, place)
    units = [each.unit for each in node.amounts]
    if None in units or any(unit.casefold() in _EVENTS for unit in units if unit):
        symbols.problems.add("this is no duration", place, hint=_EXAMPLES)
        return None
    numbers = [_number(each, symbols, place) for each in node.amounts]
    text = " ".join(f"{number} {unit}" for number, unit in zip(numbers, units, strict=True))
    return None if None in numbers else _checked(Within(text), symbols, place)


def _bare(amount: Amount, symbols: Symbols, place: Place) -> Within | None:
    if isinstance(amount.number, Word):
        given = symbols.get(amount.number.name)
        if isinstance(given, str | timedelta | int | float) and not isinstance(given, bool):
            return _checked(Within(given), symbols, place)
        name = amount.number.name
        hint = f'give it in symbols={{"{name}": "20 minutes"}}, or {_EXAMPLES}'
        symbols.problems.add(f"{name} is no duration that is known here", place, hint=hint)
        return None
    text = amount.number.text
    size = int(text) if text.isdecimal() else float(text)
    if size <= 0:
        symbols.problems.add("a window is larger than zero", place, hint=_EXAMPLES)
        return None
    return Within(size)


def _events(amount: Amount, symbols: Symbols, place: Place) -> Within | None:
    number = _number(amount, symbols, place)
    if number is None:
        return None
    if not number.isdecimal() or int(number) == 0:
        symbols.problems.add(f"{number} is no count of events", place, hint=_EXAMPLES)
        return None
    return Within(events=int(number))


def _number(amount: Amount, symbols: Symbols, place: Place) -> str | None:
    if not isinstance(amount.number, Word):
        return amount.number.text
    name = amount.number.name
    found = symbols.numbers.get(name)
    if found is None:
        hint = f'give it in symbols={{"{name}": 10}}, or {_EXAMPLES}'
        symbols.problems.add(f"{name} is no number that is known here", place, hint=hint)
    return None if found is None else str(found)


def _checked(found: Within, symbols: Symbols, place: Place) -> Within | None:
    """Text and timedeltas must be a length of time."""
    if not isinstance(found.duration, str | timedelta):
        return found
    try:
        window_of(found, Type("timestamp"))
    except PatternError as error:
        symbols.problems.take(error, place)
        return None
    return found
