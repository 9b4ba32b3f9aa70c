"""What the names of a text mean that are no variables: the `symbols=` argument.

    "Finance": ["JPM", "GS"]      a set; as a family, S_2 is its second member
    "T": 0.9, "n": 4              a number; whole numbers also count ∀ and S_1, ..., S_n
    "E": None                     a type without a condition
    "Stock": "kind = 'S'"         a type by its condition, in a column's own words
    "Corr": pearson               a function: a cep.udf, its name, or Spark SQL over {0}, {1}
    "h": "20 minutes"             a window

Text is always Spark SQL (for a window: a duration), never a string value: 'GOOG' as a value is
"'GOOG'", or a bare GOOG in the text. Names are matched as written, because the papers tell T the
type from t the variable by nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal

from spark_cep.compiling.literals import literal
from spark_cep.compiling.problems import Place, Problems, nearest
from spark_cep.compiling.user_functions import UserFunction
from spark_cep.sql.sase_tokens import sql_string

Value = bool | int | float | Decimal | str | date
Symbol = Value | timedelta | UserFunction | list[Value] | None

_VALUES = (bool, int, float, Decimal, str, date)
_SETS = (list, tuple, set, frozenset)
_KINDS = (
    'a number, a list of values (a set), None (a type without a condition), Spark SQL text, a '
    "timedelta or a cep.udf"
)  # fmt: skip
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_NUMBERED = re.compile(r"(?P<base>.*\w)_(?:\{(?P<braced>[^{}]*)\}|(?P<plain>[^\W_]+))")
_INDEX = re.compile(r"\s*(\w+)\s*(?:([+-])\s*(\w+)\s*)?")


class Symbols:
    """Checked symbols, and the problems that their use shows."""

    def __init__(self, given: Mapping[str, object], problems: Problems) -> None:
        self.problems = problems
        self._given = dict(given)
        for name, value in self._given.items():
            if not isinstance(name, str) or not name.strip():
                problems.add(f"symbols: {name!r} is no name", hint="names are texts: {'T': 0.9}")
            elif not _is_symbol(value):
                problems.add(
                    f"symbols: {name} is {_described(value)}",
                    hint=f"a symbol is {_KINDS}"
                    + ('; make it one: cep.udf(fn, returns="double")' if callable(value) else ""),
                )

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def get(self, name: str) -> object:
        """The symbol as given; None also if there is none."""
        return self._given.get(name)

    @property
    def unusual(self) -> list[str]:
        """Names that are no identifiers."""
        names = [name for name in self._given if isinstance(name, str)]
        return [name for name in names if name.strip() and not _IDENTIFIER.fullmatch(name)]

    @property
    def numbers(self) -> dict[str, int]:
        return {
            name: value
            for name, value in self._given.items()
            if isinstance(value, int) and not isinstance(value, bool)
        }

    def value(self, name: str, place: Place) -> str | None:
        """The symbol as a value of Spark SQL; a problem if it is none."""
        given = self._given[name]
        if isinstance(given, _VALUES):
            return _as_text(given) if isinstance(given, str) else as_sql(given)
        kinds = {"function": "it is called with arguments", "set": f"write a.x IN {name}"}
        hint = kinds.get(_kind(given), f'give a value in symbols={{"{name}": ...}}')
        self.problems.add(f"{name} is {_described(given)}, not a value", place, hint=hint)
        return None

    def members(self, name: str, place: Place) -> list[str]:
        """The members of a set as Spark SQL."""
        if name not in self._given:
            hint = f'give its members in symbols={{"{name}": [...]}}'
            self.once(f"{name} is no set that is known here", place, hint)
            return []
        given = self._given[name]
        if not isinstance(given, _SETS):
            hint = f'a set is a list of values: symbols={{"{name}": [...]}}'
            self.problems.add(f"{name} is {_described(given)}, not a set", place, hint=hint)
            return []
        if not given:
            hint = "then nothing can match; leave the condition out, or give members"
            self.problems.add(f"the set {name} is empty", place, hint=hint)
        return [as_sql(each) for each in _ordered(given)]

    def family(self, base: str) -> list[Value] | None:
        """The members of a set in their order, if it has one."""
        given = self._given.get(base)
        return list(given) if isinstance(given, list | tuple) else None

    def unknown(self, name: str, place: Place, known: Iterable[str]) -> None:
        """A bare name that stands for nothing."""
        meant = nearest(name, [*known, *self._given])
        guess = f"did you mean {meant}? Else " if meant else ""
        hint = (
            f'{guess}give its value in symbols={{"{name}": ...}}, or name the event that it is a '
            f"column of: a.{name}"
        )
        self.once(f"{name} is not known here", place, hint)

    def once(self, message: str, place: Place, hint: str) -> None:
        """A problem with a name, said at the first of the places where it shows."""
        if all(each.message != message for each in self.problems.found):
            self.problems.add(message, place, hint=hint)


def numbered(name: str, numbers: Mapping[str, int]) -> tuple[str, int] | None:
    """The family and the number of a name such as S_i or S_{i-1}; None if it is a plain name.

    >>> numbered("S_{i-1}", {"i": 3}), numbered("S_2", {}), numbered("person_id", {"i": 3})
    (('S', 2), ('S', 2), None)
    """
    found = _NUMBERED.fullmatch(name)
    if found is None:
        return None
    text = found["plain"] if found["braced"] is None else found["braced"]
    index = _INDEX.fullmatch(text)
    if index is None:
        return None
    first, second = _number(index[1], numbers), _number(index[3] or "0", numbers)
    if first is None or second is None:
        return None
    return found["base"], first - second if index[2] == "-" else first + second


def _number(text: str, numbers: Mapping[str, int]) -> int | None:
    return int(text) if text.isdecimal() else numbers.get(text)


def as_sql(value: object) -> str:  # noqa: PLR0911 - one for each type
    """A Python value as a literal of Spark SQL.

    >>> [as_sql(each) for each in (3, 0.5, "a", True, Decimal("1.50"), date(2024, 1, 2))]
    ['3', '0.5D', "'a'", 'TRUE', '1.50', "DATE '2024-01-02'"]
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value!r}D" if math.isfinite(value) else f"DOUBLE('{value}')"
    if isinstance(value, int | Decimal):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return sql_string(str(value))


def _as_text(text: str) -> str:
    plain = literal(text) is not None or re.fullmatch(r"\w+", text.strip()) is not None
    return text.strip() if plain else f"({text})"


def _is_symbol(value: object) -> bool:
    if isinstance(value, _SETS):
        return all(each is None or isinstance(each, _VALUES) for each in value)
    return value is None or isinstance(value, (*_VALUES, timedelta, UserFunction))


def _ordered(members: Iterable[object]) -> list[object]:
    """Sets have no order of their own, and a pattern is the same in every session."""
    return sorted(members, key=repr) if isinstance(members, set | frozenset) else list(members)


def _kind(value: object) -> str:
    if isinstance(value, UserFunction):
        return "function"
    return "set" if isinstance(value, _SETS) else type(value).__name__


def _described(value: object) -> str:
    if value is None:
        return "a type without a condition"
    known = {"function": "a function", "set": "a set", "str": "a text", "timedelta": "a duration"}
    return known.get(_kind(value), f"a {type(value).__name__}")
