"""`sase`: a query as the papers print it becomes an event pattern.

    text -> tokens -> SaseQuery (pattern, condition, window: trees with places)
         -> families expanded -> variables -> conjuncts as Spark SQL -> Pattern

Nothing here depends on rows or plans; `spark_cep.pattern` defines what a pattern means. The first
syntax error is the only one reported; names that are unknown are all reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_cep.errors import PatternError
from spark_cep.expressions.problems import Problems
from spark_cep.sql.sase.lexer import TokenReader, keyword_of, raise_syntax_error, tokenize
from spark_cep.sql.sase.names import SaseScope, Symbols
from spark_cep.sql.sase.nodes import SaseExpression, SaseQuery
from spark_cep.sql.sase.parser import parse_condition, parse_pattern, parse_window
from spark_cep.sql.sase.resolver import (
    build_tree,
    check_bare,
    check_bounds,
    collect_variables,
    expand_families,
    resolve_window,
    type_conditions,
)
from spark_cep.sql.sase.writer import split_conjuncts
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern, StrategyName


_STRATEGIES: Mapping[str, StrategyName] = {
    "SKIP_TILL_ANY_MATCH": "skip till any match",
    "SKIP_TILL_NEXT_MATCH": "skip till next match",
    "STRICT_CONTIGUITY": "strict",
    "PARTITION_CONTIGUITY": "strict",
}
_CLAUSE_HINT = "a query is PATTERN ... WHERE ... WITHIN ..."
_OTHER_CLAUSES = {
    "RETURN": 'choose the output in Python: match_pattern(..., measures={"gain": "..."})',
    "HAVING": 'put conditions on the match into WHERE, or filter the answer with .where("...")',
    "FROM": "the input is the DataFrame that match_pattern is called on",
    "PARTITION": 'write SAME[card], or in Python match_pattern(..., partition_by="card")',
}


@public
def sase(
    text: str, type_column: str | None = None, symbols: Mapping[str, object] | None = None
) -> Pattern:
    """Reads an event pattern in SASE text, the language of the papers on event patterns.

    Args:
        text: The query: PATTERN ... WHERE ... WITHIN ...
        type_column: The column that has the type of an event. `Stock a` is then a row with
            'Stock' in it.
        symbols: The meaning of names in the text: sets ("Finance": [...]), numbers ("T": 0.9),
            the sizes of families ("n": 4 for S_1, ..., S_n and ∀), functions ("Corr": a cep.udf),
            types with another condition or none ("E": None), windows ("h": "20 minutes").

    Returns:
        The pattern. Methods such as `where` and `within` apply to it as to any other.

    Raises:
        PatternError: The text cannot be read, or has a name without a meaning; the message has
            the line and the column.

    Example:
        >>> pattern = sase('''
        ...     PATTERN SEQ(Stock a, Stock b)
        ...     WHERE a.ticker ∈ Finance ∧ a.price < b.price
        ...     WITHIN 4 hours
        ... ''', type_column="kind", symbols={"Finance": ["JPM", "GS"]})
        >>> pattern.conditions
        ("a.ticker IN ('JPM', 'GS')", 'a.price < b.price')
        >>> pattern.root.parts[1], pattern.window.duration
        (Event(name='b', condition="kind = 'Stock'"), '4 hours')
    """
    _check_arguments(text, type_column, symbols)
    problems = Problems(subject="the SASE text has")
    known = Symbols(symbols or {}, problems)
    problems.raise_if_any()
    try:
        return _build_pattern(_parse_query(text, known), known, type_column)
    except RecursionError:
        raise PatternError(
            "the text is nested too deeply", hint="write sets as {a, b}, and split the query"
        ) from None


def _check_arguments(text: object, type_column: object, symbols: object) -> None:
    if not isinstance(text, str):
        raise PatternError(
            f"sase takes text, not {type(text).__name__}",
            hint='write sase("PATTERN SEQ(A a, B b) WITHIN 10 minutes", type_column="kind")',
        )
    if type_column is not None and not isinstance(type_column, str):
        raise PatternError(
            f"type_column must be the name of a column, not {type(type_column).__name__}",
            hint='write type_column="kind"; types that are not in one column are conditions: '
            'symbols={"Stock": "kind = 1 AND open"}',
        )
    if symbols is not None and not isinstance(symbols, Mapping):
        raise PatternError(
            f"symbols must be a dict, not {type(symbols).__name__}", hint='write symbols={"T": 0.9}'
        )


# ---- text to trees -----------------------------------------------------------------------------


def _parse_query(text: str, symbols: Symbols) -> SaseQuery:
    reader = TokenReader(tokenize(text, symbols.unusual))
    _skip_label(reader)
    node = parse_pattern(reader)
    strategy, where, span = None, None, None
    if reader.take("WHERE"):
        strategy, where = _parse_where(reader)
    if reader.take("WITHIN"):
        span = parse_window(reader)
    reader.take(".", ";")
    if reader.token.kind != "end":
        _refuse_rest(reader)
    return SaseQuery(node, where, strategy, span)


def _skip_label(reader: TokenReader) -> None:
    """Skips the label that a paper refers to: `Q1: SEQ(...)`, `PATTERN(1) SEQ(...)`."""
    if reader.token.kind == "name" and keyword_of(reader.ahead()) == ":":
        reader.advance()
        reader.advance()
    numbered = keyword_of(reader.ahead()) == "(" and keyword_of(reader.ahead(3)) == ")"
    if reader.take("PATTERN") and numbered and reader.ahead().kind == "number":
        for _ in range(3):
            reader.advance()


def _parse_where(reader: TokenReader) -> tuple[StrategyName | None, SaseExpression]:
    """Conditions, perhaps in the braces of a strategy: skip_till_next_match(a, b) { ... }."""
    start = reader.token
    strategy = _STRATEGIES.get(keyword_of(start))
    if strategy is None:
        return None, parse_condition(reader)
    reader.advance()
    hint = f"write {start.value}(a, b) {{ conditions }}"
    if reader.take("("):
        while not reader.at(")", "{") and reader.token.kind != "end":
            reader.advance()
        reader.expect(")", hint)
    opening = reader.expect("{", hint)
    found = parse_condition(reader)
    reader.close(opening, "}")
    return strategy, found


def _refuse_rest(reader: TokenReader) -> None:
    word = keyword_of(reader.token)
    if word in _OTHER_CLAUSES:
        raise_syntax_error(
            f"{reader.token.written} is not supported", reader.token.place, _OTHER_CLAUSES[word]
        )
    if word in {"WHERE", "PATTERN"}:
        raise_syntax_error(f"{word} is given too late or twice", reader.token.place, _CLAUSE_HINT)
    reader.unexpected("expected the end or the next clause", _CLAUSE_HINT)


# ---- trees to pattern --------------------------------------------------------------------------


def _build_pattern(query: SaseQuery, symbols: Symbols, type_column: str | None) -> Pattern:
    root = expand_families(query.pattern, symbols.numbers)
    declared = collect_variables(root)
    found = build_tree(root, type_conditions(declared, symbols, type_column))
    where = (
        []
        if query.condition is None
        else split_conjuncts(query.condition, SaseScope(declared, symbols))
    )
    own = frozenset(name for each in where if len(each.variables) == 1 for name in each.variables)
    check_bare(declared, symbols, type_column, own)
    span = None if query.window is None else resolve_window(query.window, symbols)
    found = replace(found.where(*(each.text for each in where)), window=span)
    if query.strategy is not None:
        found = found.strategy(query.strategy)
    if query.window is None or span is not None:
        check_bounds(root, found, symbols.problems)
    symbols.problems.raise_if_any()
    return found
