"""Functions and syntax that conditions and measures may not contain.

The plan decides when and how often a condition is evaluated, on a row or on a match, so it must be
deterministic and return one value. Functions are found by the name that the user wrote, because
the parser may rename them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from spark_cep.expressions.problems import Place
from spark_cep.expressions.user_functions import find_user_function

if TYPE_CHECKING:
    from spark_cep.expressions.syntax import ParsedExpression


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NON_DETERMINISTIC = _words(
    "rand random randn randstr uniform uuid shuffle monotonically_increasing_id "
    "spark_partition_id input_file_name input_file_block_start input_file_block_length"
)
GENERATORS = _words(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple "
    "variant_explode variant_explode_outer"
)
WINDOW_FUNCTIONS = _words(
    "row_number rank dense_rank percent_rank cume_dist ntile lag lead nth_value"
)
# Spark's aggregates, without those that are computed over a Kleene list.
REFUSED_AGGREGATES = _words(
    "any_value approx_count_distinct approx_percentile percentile_approx array_agg bit_and bit_or "
    "bit_xor bool_and bool_or every collect_list collect_set corr count_if count_min_sketch "
    "covar_pop covar_samp first_value last_value grouping grouping_id histogram_numeric kurtosis "
    "listagg string_agg max_by mean median min_by mode percentile percentile_cont percentile_disc "
    "regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy "
    "skewness std stddev stddev_pop stddev_samp try_avg try_sum var_pop var_samp variance "
    "approx_top_k bitmap_construct_agg bitmap_or_agg hll_sketch_agg hll_union_agg"
)


@dataclass(frozen=True)
class Refusal:
    message: str
    place: Place
    hint: str


_FOLDS_HINT = "over a Kleene variable use first, last, count, sum, avg, min or max"


def find_refusals(
    parsed: ParsedExpression, node: exp.Expr, *, in_measure: bool = False
) -> Iterator[Refusal]:
    """The refusals of everything below the node, one for each place."""
    for part in node.find_all(exp.Subquery, exp.Select, exp.Window, exp.Filter, exp.IgnoreNulls):
        if isinstance(part, exp.Select) and isinstance(part.parent, exp.Subquery):
            continue
        yield _refuse_syntax(parsed, part)
    windows = [parsed.span(each) for each in node.find_all(exp.Window)]
    for name, place in parsed.calls(node):
        if any(start <= place.start < end for start, end in windows):
            # It is refused with its window.
            continue
        found = None if find_user_function(name) else _refuse_function(name, place)
        if found is not None and not (in_measure and name in NON_DETERMINISTIC):
            yield found


def _refuse_syntax(parsed: ParsedExpression, part: exp.Expr) -> Refusal:
    place = parsed.place(part)
    if isinstance(part, exp.Window):
        return Refusal("window functions are not supported here", place, _FOLDS_HINT)
    if isinstance(part, exp.IgnoreNulls):
        shown = parsed.text_of(part.this)
        is_inside = not isinstance(part.this, exp.Func)
        hint = f"remove it: the aggregates of Spark leave NULLs of {shown} out" if is_inside else ""
        return Refusal("IGNORE NULLS is not supported here", place, hint or _FOLDS_HINT)
    if isinstance(part, exp.Filter):
        return Refusal("FILTER is not supported here", place, _FOLDS_HINT)
    hint = (
        "join the other table to the input first, or write the query for cep.sql, which takes "
        "subqueries over other tables alone"
    )
    return Refusal("subqueries are not supported here", place, hint)


def _refuse_function(name: str, place: Place) -> Refusal | None:
    if name in NON_DETERMINISTIC:
        return Refusal(
            f"{name}() is not deterministic, so the matches would not be reproducible",
            place,
            f"compute it once, before matching: df.withColumn('x', F.expr('{name}()'))",
        )
    if name in GENERATORS:
        return Refusal(
            f"{name}() returns several rows",
            place,
            "explode the input before matching, or use exists(array, x -> ...) on the array",
        )
    if name in WINDOW_FUNCTIONS:
        return Refusal(
            f"{name}() is a window function",
            place,
            "compute it before matching; in a Kleene list prev(b.x) is the previous element",
        )
    if name in REFUSED_AGGREGATES:
        return Refusal(f"the aggregate {name}() is not supported", place, _FOLDS_HINT)
    return None


_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")


_PRINTED = re.compile(r"Column<'(.*)'>", re.S)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.S)


def column_refusal(column: object) -> Refusal | None:
    """The first refused function of a Column; a classic Column can only be read by its str()."""
    printed = str(column)
    inside = _PRINTED.fullmatch(printed)
    shown = printed if inside is None else inside[1]
    # Not getattr: a classic Column returns a field of itself for any name.
    expression = getattr(column, "__dict__", {}).get("_expr")
    searched = _blank_literals(shown) if expression is None else " ".join(_calls(expression))
    for found in _CALL.finditer(searched):
        name = found[1].lower()
        if name in NON_DETERMINISTIC | GENERATORS:
            return _refuse_function(name, _place(printed, found[1]))
    return None


def _blank_literals(text: str) -> str:
    """The text without its literals. A remaining quote belongs to the name of a column, so the
    literals cannot be told from names: then the text is returned as it is."""
    blank = _QUOTED.sub(" ", text)
    return text if "'" in blank or '"' in blank else blank


def _calls(expression: Any) -> Iterator[str]:
    """The calls of a Connect expression, which prints literals without quotes."""
    kind = type(expression).__name__
    if kind == "UnresolvedFunction":
        yield f"{expression._name}("
    elif kind == "SQLExpression":
        yield _blank_literals(expression._expr)
    for child in expression.children:
        yield from _calls(child)


def _place(printed: str, name: str) -> Place:
    found = re.search(rf"\b{name}\s*\(", printed)
    if found is None:
        return Place.whole(printed)
    return Place(printed, found.start(), found.start() + len(name))
