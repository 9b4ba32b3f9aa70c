"""What the driver decides about a row pattern and ships: plain, frozen data.

The shipped rows are an Arrow table whose columns are `RowProgram.columns`, by position: partition
keys, order columns, hoisted expressions over one row, payload. Expressions are the engine's typed
trees (`udfs/expressions.py`) whose leaves are the reads below instead of cells of variables.

A variable is known by its number, its place in `variables`. A subset is a frozenset of numbers;
None is the universal row pattern variable, which every row of the match is bound to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_cep.udfs.expressions import Call, Expression, Type

if TYPE_CHECKING:
    from spark_cep.udfs.program import Limits, Order, Window


RowsMode = Literal["one", "all", "all omit empty", "all with unmatched", "each row"]
VariableSet = frozenset[int] | None
MatcherKind = Literal["walk", "gaps"]


# ---- the pattern -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowPatternNode:
    """kind "variable": `variable`. "concat", "alternate", "permute": `parts`, in the order of the
    text. "repeat": one part, `low` to `high` times (None: no upper bound), greedy or reluctant.
    "exclude": one part. "empty", "start" (^), "end" ($): no part."""

    kind: Literal[
        "variable", "concat", "alternate", "permute", "repeat", "exclude", "empty", "start", "end"
    ]
    variable: int = -1
    parts: tuple[RowPatternNode, ...] = ()
    low: int = 1
    high: int | None = 1
    greedy: bool = True


# ---- what conditions and measures read ---------------------------------------------------------


@dataclass(frozen=True)
class RowRead(Expression):
    """The value of `column` (None: only whether there is such a row) at one row.

    anchor "current": the row itself: in DEFINE the row under test, in a measure the current row.
    "first" and "last": of the rows bound to `variables` so far (in DEFINE, the row under test
    included where its variable is one of them) or, where `final`, in the whole match; `offset`
    logical steps forward from the first, backward from the last. From that row on, `shift`
    physical rows within the partition: PREV is negative, NEXT positive. NULL where there is no
    such row. PREV(LAST(A.x, 1), 2) is RowRead("last", x, type, {A}, offset=1, shift=-2).
    """

    anchor: Literal["current", "first", "last"]
    column: int | None
    type: Type
    variables: VariableSet = None
    offset: int = 0
    shift: int = 0
    final: bool = False


@dataclass(frozen=True)
class Aggregate(Expression):
    """An aggregate of `column` (None: count(*), or count(A.*)) over the rows bound to
    `variables` so far (in DEFINE: the row under test included), or in the whole match.

    "list", in measures only: the values in the order of the rows, NULLs included, [] where there
    is no row; Spark computes the rest. With `column` None, the numbers of the variables that the
    rows are bound to, as ints.

    `argument`, in DEFINE and of folds: an expression over the aggregated row in place of a column.
    Reads and classifiers in it are anchored "current", which here is that row. It is there if the
    user's argument has CLASSIFIER() or MATCH_NUMBER(), which Spark cannot evaluate on a row.

    In DEFINE only: "stddev_samp" and so on, of doubles; "max_by" and "min_by", `column` at the last
    row that has the largest or smallest value of the column `by`; "first" and "last", `column` at
    the first or last row where `by` is not NULL. In measures, too: the other folds of
    `rows/folds.py`, whose `argument` is a call of "struct" if they have several.
    """

    name: Literal[
        "count", "sum", "avg", "min", "max", "list",
        "stddev_samp", "stddev_pop", "var_samp", "var_pop", "max_by", "min_by", "first", "last",
        "collect_list", "collect_list with nulls", "listagg", "mode", "percentile",
        "bit_and", "bit_or", "bit_xor", "try_sum", "skewness", "kurtosis", "corr", "covar_pop",
        "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_sxy", "regr_syy",
    ]  # fmt: skip
    column: int | None
    type: Type
    variables: VariableSet = None
    distinct: bool = False
    final: bool = False
    argument: Expression | None = None
    by: tuple[int, Type] | None = None


def aggregate_of(expression: Expression) -> Aggregate:
    """The aggregate that a measure is, or that it is "try" of."""
    if isinstance(expression, Call) and expression.name == "try":
        (expression,) = expression.arguments
    assert isinstance(expression, Aggregate)
    return expression


@dataclass(frozen=True)
class Classifier(Expression):
    """CLASSIFIER(...): the number of the variable that the anchored row is bound to, as an int
    (the driver turns it into a name; comparisons with names arrive as comparisons of numbers).
    Fields as in `RowRead`."""

    type: Type
    anchor: Literal["current", "first", "last"] = "current"
    variables: VariableSet = None
    offset: int = 0
    shift: int = 0
    final: bool = False


@dataclass(frozen=True)
class MatchNumber(Expression):
    type: Type


# ---- the program -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowVariable:
    """`define` None: TRUE for every row. `name`: as PATTERN spells it first."""

    name: str
    define: Expression | None = None


@dataclass(frozen=True)
class Skip:
    """AFTER MATCH SKIP. `variables` for "first" and "last" (a variable or a subset)."""

    kind: Literal["past last row", "next row", "first", "last"] = "past last row"
    variables: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Frame:
    """The rows that the search for a row sees: ROWS BETWEEN CURRENT ROW AND `following` FOLLOWING.
    `bound`: the column with the number of following rows, where it differs from row to row. Both
    None: UNBOUNDED FOLLOWING. `seeks`: SEEK, the match may begin at a later row of the frame."""

    following: int | None = None
    bound: int | None = None
    seeks: bool = False

    @property
    def is_bounded(self) -> bool:
        return self.following is not None or self.bound is not None


@dataclass(frozen=True)
class RowProgram:
    """`within`: the longest time from the first row of a match to any other, by the first order
    column. `orders` may be empty: rows stay in the order in which they come.

    `measures`: what the engine evaluates, one output column each. Each is a single read,
    aggregate, classifier or match number, or "try" of an aggregate; Spark computes the expressions
    over them. On an empty match reads are NULL, counts 0 and lists []; on an unmatched row
    everything is NULL, the match number too.

    `matcher`: "walk", the kernel goes from row to row; "gaps", the points of a pattern with gaps
    are joined (only if `rows/gaps/pattern.py` recognizes the pattern).

    `longest`: of the matches that begin at a row the longest is taken, of those the preferred one.

    `frame`: with `rows` "each row", a row of the answer for each row of the input, with the match
    that begins there, or that SEEK finds from there. The measures of a row without a match are
    those of an empty match; only its match number is NULL. `rows/frames.py` gives the frame its
    meaning.
    """

    columns: tuple[str, ...]
    keys: tuple[int, ...]
    orders: tuple[Order, ...]
    variables: tuple[RowVariable, ...]
    pattern: RowPatternNode
    measures: tuple[Expression, ...]
    rows: RowsMode
    skip: Skip
    limits: Limits
    within: Window | None = None
    ansi: bool = True
    matcher: MatcherKind = "walk"
    frame: Frame | None = None
    longest: bool = False
