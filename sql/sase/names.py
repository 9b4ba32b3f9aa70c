"""What the names in SASE text mean: the `symbols=` argument, variables and functions.

    "Finance": ["JPM", "GS"]      a set; as a family, S_2 is its second member
    "T": 0.9, "n": 4              a number; whole numbers also give ∀ and S_1, ..., S_n their end
    "E": None                     a type without a condition
    "Stock": "kind = 'S'"         a type by its condition over bare columns
    "Corr": pearson               a function: a cep.udf, its name, or Spark SQL over {0}, {1}
    "h": "20 minutes"             a window

Text is always Spark SQL (for a window: a duration), never a string value: 'GOOG' as a value is
"'GOOG'", or a bare GOOG in the text. Symbols are matched as written, because case is all by which
the papers distinguish a type T from a variable t.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError

from spark_cep.expressions.names import quote_name
from spark_cep.expressions.problems import Place, Problems, list_names, nearest_name
from spark_cep.expressions.refusals import REFUSED_AGGREGATES
from spark_cep.expressions.syntax import SparkParser
from spark_cep.expressions.types import parse_literal
from spark_cep.expressions.user_functions import UserFunction, find_user_function
from spark_cep.sql.parameters import sql_string

if TYPE_CHECKING:
    from spark_cep.sql.sase.nodes import SaseVariable


SymbolValue = bool | int | float | Decimal | str | date
_VALUES = (bool, int, float, Decimal, str, date)
_SETS = (list, tuple, set, frozenset)
_KINDS = (
    'a number, a list of values (a set), None (a type without a condition), Spark SQL text, a '
    "timedelta or a cep.udf"
)  # fmt: skip
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_SUBSCRIPTED_NAME = re.compile(r"(?P<base>.*\w)_(?:\{(?P<braced>[^{}]*)\}|(?P<plain>[^\W_]+))")
_INDEX = re.compile(r"\s*(\w+)\s*(?:([+-])\s*(\w+)\s*)?")


class Symbols:
    """The symbols, checked, and the problems that come up when they are used."""

    def __init__(self, given: Mapping[str, object], problems: Problems) -> None:
        self.problems = problems
        self._given = dict(given)
        for name, value in self._given.items():
            if not isinstance(name, str) or not name.strip():
                problems.add(
                    f"symbols: {name!r} is not a name", hint="names are strings: {'T': 0.9}"
                )
            elif not _is_symbol(value):
                problems.add(
                    f"symbols: {name} has an unsupported value, {_describe_value(value)}",
                    hint=f"a symbol is {_KINDS}"
                    + (
                        '; wrap the function: cep.udf(fn, returns="double")'
                        if callable(value)
                        else ""
                    ),
                )

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def get(self, name: str) -> object:
        """The symbol as given; None if there is none."""
        return self._given.get(name)

    @property
    def unusual(self) -> list[str]:
        """Names that are not identifiers."""
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
        """The symbol as a value in Spark SQL; a problem if it is not a value."""
        given = self._given[name]
        if isinstance(given, _VALUES):
            return _text_sql(given) if isinstance(given, str) else value_sql(given)
        kinds = {"function": "it is called with arguments", "set": f"write a.x IN {name}"}
        hint = kinds.get(_symbol_kind(given), f'give a value in symbols={{"{name}": ...}}')
        self.problems.add(f"{name} is {_describe_value(given)}, not a value", place, hint=hint)
        return None

    def members(self, name: str, place: Place) -> list[str]:
        """The members of a set as Spark SQL."""
        if name not in self._given:
            hint = f'give its members in symbols={{"{name}": [...]}}'
            self.once(f"unknown set {name}", place, hint)
            return []
        given = self._given[name]
        if not isinstance(given, _SETS):
            hint = f'a set is a list of values: symbols={{"{name}": [...]}}'
            self.problems.add(f"{name} is {_describe_value(given)}, not a set", place, hint=hint)
            return []
        if not given:
            hint = "nothing is in an empty set; remove the condition, or give members"
            self.problems.add(f"the set {name} is empty", place, hint=hint)
        return [value_sql(each) for each in _sort_members(given)]

    def family(self, base: str) -> list[SymbolValue] | None:
        """The members of a set in their order, if the set is ordered."""
        given = self._given.get(base)
        return list(given) if isinstance(given, list | tuple) else None

    def unknown(self, name: str, place: Place, known: Iterable[str]) -> None:
        """Reports a bare name that has no meaning."""
        meant = nearest_name(name, [*known, *self._given])
        guess = f"did you mean {meant}? Otherwise " if meant else ""
        hint = (
            f'{guess}give its value in symbols={{"{name}": ...}}, or name the event that it is a '
            f"column of: a.{name}"
        )
        self.once(f"unknown name {name}", place, hint)

    def once(self, message: str, place: Place, hint: str) -> None:
        """Reports a problem with a name at the first of its places only."""
        if all(each.message != message for each in self.problems.found):
            self.problems.add(message, place, hint=hint)


def split_subscript(name: str, numbers: Mapping[str, int]) -> tuple[str, int] | None:
    """The family and the number of a name such as S_i or S_{i-1}; None if it is a plain name.

    >>> tuple(split_subscript(name, {"i": 3}) for name in ["S_{i-1}", "S_2", "person_id"])
    (('S', 2), ('S', 2), None)
    """
    found = _SUBSCRIPTED_NAME.fullmatch(name)
    if found is None:
        return None
    text = found["plain"] if found["braced"] is None else found["braced"]
    index = _INDEX.fullmatch(text)
    if index is None:
        return None
    first, second = (
        _subscript_number(index[1], numbers),
        _subscript_number(index[3] or "0", numbers),
    )
    if first is None or second is None:
        return None
    return found["base"], first - second if index[2] == "-" else first + second


def _subscript_number(text: str, numbers: Mapping[str, int]) -> int | None:
    return int(text) if text.isdecimal() else numbers.get(text)


def value_sql(value: object) -> str:  # noqa: PLR0911 - one for each type
    """A Python value as a literal of Spark SQL.

    >>> [value_sql(each) for each in (3, 0.5, "a", True, Decimal("1.50"), date(2024, 1, 2))]
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


def _text_sql(text: str) -> str:
    plain = parse_literal(text) is not None or re.fullmatch(r"\w+", text.strip()) is not None
    return text.strip() if plain else f"({text})"


def _is_symbol(value: object) -> bool:
    if isinstance(value, _SETS):
        return all(each is None or isinstance(each, _VALUES) for each in value)
    return value is None or isinstance(value, (*_VALUES, timedelta, UserFunction))


def _sort_members(members: Iterable[object]) -> list[object]:
    """A fixed order for sets, so that a pattern is the same in every session."""
    return sorted(members, key=repr) if isinstance(members, set | frozenset) else list(members)


def _symbol_kind(value: object) -> str:
    if isinstance(value, UserFunction):
        return "function"
    return "set" if isinstance(value, _SETS) else type(value).__name__


def _describe_value(value: object) -> str:
    if value is None:
        return "a type without a condition"
    known = {"function": "a function", "set": "a set", "str": "a string", "timedelta": "a duration"}
    kind = type(value).__name__
    return known.get(_symbol_kind(value), f"{'an' if kind[0] in 'aeio' else 'a'} {kind}")


# ---- scope ---------------------------------------------------------------------------------------

# Functions of Kleene lists; in conditions they hide the functions of Spark of the same name.
FOLD_NAMES = frozenset({"prev", "first", "last", "count", "sum", "avg", "min", "max"})
# Functions of Spark that sqlglot parses as any other name.
_EXTRA_FUNCTIONS = frozenset(
    {
        "array_repeat", "array_union", "arrays_overlap", "bround", "date_part", "e", "expm1",
        "forall", "get", "hash", "hypot", "isnotnull", "isnull", "log1p", "make_date",
        "map_values", "now", "octet_length", "pmod", "try_to_timestamp", "weekday", "xxhash64",
        "zip_with",
    }
)  # fmt: skip


@dataclass(frozen=True)
class SaseScope:
    """What names mean in conditions.

    A bare word beside `=` or in a set is a string (a.ticker = MSFT), as printed in the papers.
    Anywhere else it would be an unknown number or column, so there it is an error.
    """

    variables: Sequence[SaseVariable]
    symbols: Symbols

    @property
    def problems(self) -> Problems:
        return self.symbols.problems

    @cached_property
    def _variables(self) -> dict[str, SaseVariable]:
        return {variable.name.casefold(): variable for variable in self.variables}

    def variable(self, name: str) -> SaseVariable | None:
        return self._variables.get(name.casefold())

    def spells(self, name: str) -> bool:
        """Whether a variable is spelled exactly so, case included."""
        return any(variable.name == name for variable in self.variables)

    def unknown_variable(self, name: str, place: Place) -> None:
        of_type = [v.name for v in self.variables if v.declared.type == name]
        if of_type:
            message = f"{name} is a type here, not a variable"
            self.problems.add(message, place, hint=f"write {list_names(of_type)}")
            return
        known = [variable.name for variable in self.variables]
        meant = None if split_subscript(name, {}) else nearest_name(name, known)
        hint = f"did you mean {meant}?" if meant else f"its variables are {list_names(known)}"
        self.problems.add(f"the pattern has no variable {name}", place, hint=hint)

    def check_attribute(self, variable: SaseVariable, name: str, place: Place) -> None:
        """Refuses a column that is not among those listed after the type: A(attr1, attr2)."""
        known = variable.declared.attributes
        if known is None or name.casefold() in {each.casefold() for each in known}:
            return
        hint = f"its attributes are {list_names(known)}; add {name}, or remove the list"
        self.problems.add(
            f"{variable.name} is declared without the attribute {name}", place, hint=hint
        )

    def function(self, name: str, place: Place) -> str | None:
        """The function of a symbol, by its name or as Spark SQL with {0}, {1} for the arguments;
        else the name itself if it is a function of Spark."""
        if name in self.symbols:
            given = self.symbols.get(name)
            if isinstance(given, UserFunction):
                return given.name
            if isinstance(given, str) and ("{" in given or re.fullmatch(r"\w+", given)):
                return given
            hint = 'a function is a cep.udf, its name, or Spark SQL: "abs({0} - {1})"'
            self.problems.add(f"the symbol {name} is not a function", place, hint=hint)
            return None
        if is_known_function(name):
            return name
        hint = (
            f'give it in symbols={{"{name}": ...}}: a cep.udf, the name of a function, or Spark '
            'SQL over its arguments such as "abs({0} - {1})"'
        )
        self.symbols.once(f"unknown function {name}", place, hint)
        return None


def is_known_function(name: str) -> bool:
    """Whether conditions may call the function by this name."""
    lower = name.casefold()
    if find_user_function(name) is not None or lower in FOLD_NAMES:
        return True
    return (
        name.upper() in SparkParser.FUNCTIONS or lower in _EXTRA_FUNCTIONS
    ) and lower not in REFUSED_AGGREGATES


@lru_cache(maxsize=1024)
def name_sql(name: str) -> str:
    """A name in Spark SQL, with backquotes where it needs them.

    >>> name_sql("price"), name_sql("we ird"), name_sql("select")
    ('price', '`we ird`', '`select`')
    """
    return (
        name
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and _is_plain(name)
        else quote_name(name)
    )


def _is_plain(name: str) -> bool:
    """Whether every SQL parser reads it as a name on both sides of a dot."""
    try:
        root = Spark().parse_into(exp.Condition, f"{name}.{name} = 1")[0]
    except (ParseError, LookupError, AttributeError, TypeError):
        return False
    column = None if root is None else root.this
    return isinstance(column, exp.Column) and [part.name for part in column.parts] == [name, name]
