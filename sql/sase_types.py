"""Types of events as conditions.

`Stock a` says that a is a row whose type is Stock. Which rows these are is told by the column that
holds the type, or for a single type by a symbol. A bare name is type and variable at once; where
no column holds types it is a variable, and then something else has to say what it may be: without
that, `A; B; C` over a table without types would quietly match any three rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spark_cep.sql.sase_scope import name_text
from spark_cep.sql.sase_symbols import Symbols, as_sql, numbered
from spark_cep.sql.sase_tokens import sql_string

if TYPE_CHECKING:
    from spark_cep.sql.sase_nodes import Declared
    from spark_cep.sql.sase_tree import Variable


def conditions(
    variables: Sequence[Variable], symbols: Symbols, type_column: str | None
) -> dict[str, str]:
    """The condition of each variable's type, over bare columns; types that are unknown become
    problems."""
    found = {}
    for variable in variables:
        text = _condition(variable.declared, symbols, type_column)
        if text is not None:
            found[variable.name] = text
    return found


def _condition(declared: Declared, symbols: Symbols, type_column: str | None) -> str | None:
    type_ = declared.type
    if type_ in symbols:
        given = symbols.get(type_)
        if given is None or isinstance(given, str):
            return given
        if not declared.bare:
            hint = f'give a condition, symbols={{"{type_}": "kind = 1"}}, or None'
            symbols.problems.add(f"the symbol {type_} is no type", declared.place, hint=hint)
            return None
    if type_column is not None:
        return f"{name_text(type_column)} = {_value(declared, symbols)}"
    if not declared.bare:
        hint = (
            f'say which column holds the type, type_column="kind", or what {type_} means, '
            f'symbols={{"{type_}": "ticker = \'A\'"}}; {{"{type_}": None}} if every row is one'
        )
        message = f"nothing says which rows are of type {type_}"
        symbols.once(message, declared.place, hint)
    return None


def _value(declared: Declared, symbols: Symbols) -> str:
    """The type's value: its name, or for a family's member what the family's list says."""
    member = numbered(declared.type, {})
    family = None if member is None else symbols.family(member[0])
    if member is None or family is None:
        return sql_string(declared.type)
    base, number = member
    if not 1 <= number <= len(family):
        hint = f'give {number} members in symbols={{"{base}": [...]}}'
        message = f"the family {base} has {len(family)} members"
        symbols.problems.add(message, declared.place, hint=hint)
        return "NULL"
    return as_sql(family[number - 1])


def check_bare(
    variables: Iterable[Variable],
    symbols: Symbols,
    type_column: str | None,
    constrained: frozenset[str],
) -> None:
    """`constrained`: the variables that have a condition of their own."""
    if type_column is not None:
        return
    for variable in variables:
        name, declared = variable.name, variable.declared
        if declared.bare and name not in constrained and name not in symbols:
            hint = (
                f'give type_column="kind" if {name} is a type, or a condition such as '
                f"{name}.kind = '{name}'; symbols={{\"{name}\": None}} if every row may be {name}"
            )
            symbols.problems.add(f"nothing says which rows are {name}", declared.place, hint=hint)
