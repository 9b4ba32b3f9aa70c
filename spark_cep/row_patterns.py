"""Row patterns as immutable values: PATTERN, DEFINE and SUBSET of SQL's MATCH_RECOGNIZE.

PATTERN is parsed when the value is built, so mistakes in it are reported at once. DEFINE is parsed
by `match_pattern`, which knows the columns of the input. Every text may be a `problems.Excerpt` of
a query; messages then point into the query.
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
    """A row pattern. Build it with `row_pattern`.

    Args:
        text: The pattern as it was written.
        root: The parsed pattern.
        variables: Its variables and subsets.
        define: Pairs of a variable and its condition, in the order given.
        window: The window that `within` set.
        is_longest: Whether `longest` was called.

    Example:
        >>> pattern = row_pattern("a b+", {"b": "price > PREV(price)"})
        >>> pattern.text, pattern.variables.names
        ('a b+', ('a', 'b'))
    """

    text: str
    root: PatternNode
    variables: RowVariables
    define: tuple[tuple[str, ConditionLike], ...] = ()
    window: Within | None = None
    is_longest: bool = False

    def longest(self) -> RowPattern:
        """Takes the longest of the matches that begin at a row, instead of the first one in the
        order that the text of the pattern prefers. Of several as long, the preferred one is taken.
        Every match that begins at a row is tried, so bound the repetitions.

        Returns:
            The pattern.

        Example:
            >>> row_pattern("a | a b").longest().is_longest
            True
        """
        return replace(self, is_longest=True)

    def within(self, duration: str | timedelta | float) -> RowPattern:
        """Sets the window: how long after its first row a match may still have rows.

        Args:
            duration: The largest difference to the event time of the first row: text
                ("10 minutes"), a timedelta, or a number in the unit of a numeric event time.

        Returns:
            The pattern with the window.

        Raises:
            PatternError: The window cannot be read or is not above 0.

        Example:
            >>> row_pattern("a b+").within("1 hour").window.duration
            '1 hour'
        """
        window = Within(duration)
        check_window(window)
        return replace(self, window=window)


@public
def row_pattern(
    pattern: str,
    define: Mapping[str, ConditionLike] | Iterable[tuple[str, ConditionLike]] | None = None,
    subset: Mapping[str, Sequence[str]] | Iterable[tuple[str, Sequence[str]]] | None = None,
) -> RowPattern:
    """A pattern of adjacent rows, as in SQL's MATCH_RECOGNIZE.

    Args:
        pattern: The text between the brackets of PATTERN: "strt down+ up+".
        define: The condition of each variable, as Spark SQL or as a Column over its own row. A
            variable without a condition matches every row.
        subset: Names for several variables together: `{"u": ["down", "up"]}`.

    Returns:
        The pattern.

    Raises:
        PatternError: The pattern cannot be parsed, or `define` or `subset` do not fit it.

    Example:
        >>> row_pattern("strt down+", define={"DOWN": "price < PREV(price)"}).variables.names
        ('strt', 'down')
    """
    if not isinstance(pattern, str):
        raise PatternError(
            f"row_pattern takes the pattern as text, not {type(pattern).__name__}", hint=_EXAMPLE
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
        is_pairs = all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
    except TypeError:
        is_pairs = False
    if not is_pairs:
        raise PatternError(
            f"{what}= takes a dict, not {type(given).__name__}", hint=f"for example {_EXAMPLE}"
        )
    for name, _ in pairs:
        if not isinstance(name, str):
            raise PatternError(
                f"{what}= has the key {name!r}, which is not the name of a variable",
                hint=f"for example {_EXAMPLE}",
            )
    return pairs


def _check_members(name: str, members: object) -> tuple[str, ...]:
    names = (members,) if isinstance(members, str) else members
    if isinstance(names, Sequence) and all(isinstance(each, str) for each in names):
        return tuple(names)
    raise PatternError(
        f"the subset {name} takes the names of variables, not {members!r}",
        hint='subset={"u": ["down", "up"]}',
    )


def _check_condition(name: str, condition: ConditionLike) -> ConditionLike:
    is_column = any(each.__name__ == "Column" for each in type(condition).__mro__)
    if isinstance(condition, str) or is_column:
        return condition
    raise PatternError(
        f"the condition of {name} is of type {type(condition).__name__}, not Spark SQL text",
        hint=f"for example {_EXAMPLE}",
    )
