"""Row patterns as immutable values: PATTERN, DEFINE and SUBSET of SQL's MATCH_RECOGNIZE.

The text of the pattern is read when it is built, so a mistake in it is told at once; DEFINE needs
the columns of the input and is read with them. Every text may be a `problems.Excerpt` of a query:
then messages point into the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar, Union

from spark_cep.errors import PatternError
from spark_cep.expressions.problems import Problems
from spark_cep.expressions.row_grammar import PatternNode, parse_row_pattern
from spark_cep.expressions.row_variables import (
    RowVariables,
    add_subsets,
    check_define,
    variable_names,
)
from spark_cep.expressions.windows import Within, check_window
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from pyspark.sql import Column


ConditionLike = Union[str, "Column"]
_T = TypeVar("_T")
_EXAMPLE = (
    'row_pattern("strt down+ up+", define={"down": "price < PREV(price)", '
    '"up": "price > PREV(price)"})'
)


@public
@dataclass(frozen=True)
class RowPattern:
    """`text` and `root`: the pattern. `define`: (variable, condition), in the order given."""

    text: str
    root: PatternNode
    variables: RowVariables
    define: tuple[tuple[str, ConditionLike], ...] = ()
    window: Within | None = None

    def within(self, duration: str | timedelta | float) -> RowPattern:
        """Each row's event time is at most so much after that of the match's first row."""
        window = Within(duration)
        check_window(window)
        return replace(self, window=window)


@public
def row_pattern(
    pattern: str,
    define: Mapping[str, ConditionLike] | Iterable[tuple[str, ConditionLike]] | None = None,
    subset: Mapping[str, Sequence[str]] | Iterable[tuple[str, Sequence[str]]] | None = None,
) -> RowPattern:
    """A pattern of adjacent rows, as in MATCH_RECOGNIZE.

    `define` gives the condition of a variable; a variable without one is any row. `subset` gives
    names to several variables together.

    >>> row_pattern("strt down+", define={"DOWN": "price < PREV(price)"}).variables.names
    ('strt', 'down')
    """
    if not isinstance(pattern, str):
        raise PatternError(
            f"row_pattern takes the text of a pattern, not {type(pattern).__name__}", hint=_EXAMPLE
        )
    root = parse_row_pattern(pattern)
    problems = Problems()
    subsets = [
        (name, _check_members(name, members)) for name, members in _as_pairs(subset, "subset")
    ]
    variables = add_subsets(variable_names(root), subsets, problems)
    conditions = tuple(
        (name, _check_condition(name, each)) for name, each in _as_pairs(define, "define")
    )
    check_define([name for name, _ in conditions], variables, problems)
    problems.raise_if_any()
    return RowPattern(pattern, root, variables, conditions)


def _as_pairs(
    given: Mapping[str, _T] | Iterable[tuple[str, _T]] | None, what: str
) -> list[tuple[str, _T]]:
    try:
        pairs = list(given.items() if isinstance(given, Mapping) else given or ())
        is_sound = all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
    except TypeError:
        is_sound = False
    if not is_sound:
        raise PatternError(
            f"{what}= takes a dict, not {type(given).__name__}", hint=f"for example {_EXAMPLE}"
        )
    for name, _ in pairs:
        if not isinstance(name, str):
            raise PatternError(
                f"{what}= has a key that is no name: {name!r}", hint=f"for example {_EXAMPLE}"
            )
    return pairs


def _check_members(name: str, members: object) -> tuple[str, ...]:
    found = (members,) if isinstance(members, str) else members
    if isinstance(found, Sequence) and all(isinstance(each, str) for each in found):
        return tuple(found)
    raise PatternError(
        f"the subset {name} takes names of variables", hint='subset={"u": ["down", "up"]}'
    )


def _check_condition(name: str, condition: ConditionLike) -> ConditionLike:
    is_column = any(each.__name__ == "Column" for each in type(condition).__mro__)
    if isinstance(condition, str) or is_column:
        return condition
    raise PatternError(
        f"the condition of {name} is a {type(condition).__name__}, not Spark SQL text",
        hint=f"for example {_EXAMPLE}",
    )
