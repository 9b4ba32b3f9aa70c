"""What the names in conditions mean: variables, symbols, functions, plain words.

A bare word beside `=` or in a set is the text that it is (a.ticker = MSFT), as printed in the
papers. Anywhere else it would be a number or a column that nobody gave, so there it is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser

from spark_cep.compiling.forbidden import AGGREGATES
from spark_cep.compiling.names import quoted
from spark_cep.compiling.problems import Place, Problems, listed, nearest
from spark_cep.compiling.spans import SyntaxProblem, parse
from spark_cep.compiling.user_functions import UserFunction, registered
from spark_cep.sql.sase_symbols import Symbols, numbered

if TYPE_CHECKING:
    from spark_cep.sql.sase_tree import Variable

# Functions of Kleene lists, which conditions have whatever Spark calls by these names.
FOLDS = frozenset({"prev", "first", "last", "count", "sum", "avg", "min", "max"})
# Functions of Spark that sqlglot parses as any other name.
_UNLISTED = frozenset(
    {
        "array_repeat", "array_union", "arrays_overlap", "bround", "date_part", "e", "expm1",
        "forall", "get", "hash", "hypot", "isnotnull", "isnull", "log1p", "make_date",
        "map_values", "now", "octet_length", "pmod", "try_to_timestamp", "weekday", "xxhash64",
        "zip_with",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Scope:
    variables: Sequence[Variable]
    symbols: Symbols

    @property
    def problems(self) -> Problems:
        return self.symbols.problems

    @cached_property
    def _variables(self) -> dict[str, Variable]:
        return {variable.name.casefold(): variable for variable in self.variables}

    def variable(self, name: str) -> Variable | None:
        return self._variables.get(name.casefold())

    def spells(self, name: str) -> bool:
        """Whether a variable is written so, letter by letter."""
        return any(variable.name == name for variable in self.variables)

    def unknown_variable(self, name: str, place: Place) -> None:
        of_type = [v.name for v in self.variables if v.declared.type == name]
        if of_type:
            message = f"{name} is a type here, not a variable"
            self.problems.add(message, place, hint=f"write {listed(of_type)}")
            return
        known = [variable.name for variable in self.variables]
        meant = None if numbered(name, {}) else nearest(name, known)
        hint = f"did you mean {meant}?" if meant else f"its variables are {listed(known)}"
        self.problems.add(f"the pattern has no variable {name}", place, hint=hint)

    def check_attribute(self, variable: Variable, name: str, place: Place) -> None:
        """A column must be among those listed behind the type, if any are: A(attr1, attr2)."""
        known = variable.declared.attributes
        if known is None or name.casefold() in {each.casefold() for each in known}:
            return
        hint = f"listed are {listed(known)}; add it there, or leave the list out"
        self.problems.add(f"{variable.name} is declared without {name}", place, hint=hint)

    def function(self, name: str, place: Place) -> str | None:
        """A function of the symbols: its name, or Spark SQL with {0}, {1} for the arguments;
        the name as it is if Spark has it."""
        if name in self.symbols:
            given = self.symbols.get(name)
            if isinstance(given, UserFunction):
                return given.name
            if isinstance(given, str) and ("{" in given or re.fullmatch(r"\w+", given)):
                return given
            hint = 'a function is a cep.udf, its name, or Spark SQL: "abs({0} - {1})"'
            self.problems.add(f"the symbol {name} is no function", place, hint=hint)
            return None
        if is_known_function(name):
            return name
        hint = (
            f'give it in symbols={{"{name}": ...}}: a cep.udf, the name of a function, or Spark '
            'SQL over its arguments such as "abs({0} - {1})"'
        )
        self.symbols.once(f"{name} is no function that is known here", place, hint)
        return None


def is_known_function(name: str) -> bool:
    """Whether conditions may call it as it is."""
    lower = name.casefold()
    if registered(name) is not None or lower in FOLDS:
        return True
    return (name.upper() in SparkParser.FUNCTIONS or lower in _UNLISTED) and lower not in AGGREGATES


@lru_cache(maxsize=1024)
def name_text(name: str) -> str:
    """A name as Spark SQL, in backquotes where it needs them.

    >>> name_text("price"), name_text("we ird"), name_text("select")
    ('price', '`we ird`', '`select`')
    """
    return (
        name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and _is_plain(name) else quoted(name)
    )


def _is_plain(name: str) -> bool:
    """Whether it is read as a name on both sides of a dot."""
    try:
        root = parse(f"{name}.{name} = 1").root
    except SyntaxProblem:
        return False
    column = root.this
    return isinstance(column, exp.Column) and [part.name for part in column.parts] == [name, name]
