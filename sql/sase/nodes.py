"""What SASE text says, as trees: pattern, conditions, window.

Names are still as written: `S_i` or `T` get their meaning when families are expanded and symbols
looked up, so that a node under ∀ can be read once for every number. Every node has its place, for
errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from spark_cep.expressions.problems import Place
    from spark_cep.pattern import StrategyName

# ---- PATTERN -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EventDeclaration:
    """`Stock a`, or a `bare` name `a` that is type and variable at once. `attributes` are those
    listed after it, as in `A(attr1)`; None without a list."""

    type: str
    name: str
    place: Place
    bare: bool = False
    attributes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class EventNegation:
    part: SaseNode
    place: Place


@dataclass(frozen=True)
class Repetition:
    """`quantifier` is "+", "*", "?" or "{2,4}"."""

    part: SaseNode
    quantifier: str
    place: Place


@dataclass(frozen=True)
class FamilyDots:
    """`S_1, ..., S_n`: the members of the family between its neighbours."""

    place: Place


@dataclass(frozen=True)
class Combination:
    kind: Literal["seq", "all", "any"]
    parts: tuple[SaseNode, ...]
    place: Place


SaseNode = EventDeclaration | EventNegation | Repetition | FamilyDots | Combination

# ---- WHERE ---------------------------------------------------------------------------------------

ListReading = Literal["each", "prev", "first", "last"]


@dataclass(frozen=True)
class SqlLiteral:
    """A literal, as Spark SQL."""

    text: str
    place: Place


@dataclass(frozen=True)
class TimeOfDay:
    """6:00, written with microseconds: `06:00:00.000000`."""

    text: str
    place: Place


@dataclass(frozen=True)
class BareName:
    """A bare name: a symbol, a variable, or a string without quotes."""

    name: str
    place: Place


@dataclass(frozen=True)
class ColumnReference:
    """variable.column, perhaps with fields; `reading` is the element that `a[1].x` selects."""

    parts: tuple[str, ...]
    place: Place
    reading: ListReading = "each"


@dataclass(frozen=True)
class ElementAccess:
    """An element of an array or a map: a.tags[0]."""

    base: SaseExpression
    index: SaseExpression
    place: Place


@dataclass(frozen=True)
class FunctionCall:
    name: str
    arguments: tuple[SaseExpression, ...]
    place: Place


@dataclass(frozen=True)
class RemoteAccess:
    arguments: tuple[SaseExpression, ...]
    place: Place


@dataclass(frozen=True)
class ArithmeticNode:
    """An operation; with `left` None, a sign."""

    operator: str
    left: SaseExpression | None
    right: SaseExpression
    place: Place


@dataclass(frozen=True)
class ComparisonChain:
    """a = b = c has three operands and two operators."""

    operands: tuple[SaseExpression, ...]
    operators: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class SetLiteral:
    """The members of a set, written out."""

    members: tuple[SaseExpression, ...]
    place: Place


@dataclass(frozen=True)
class SetMembership:
    """value ∈ container, or ∉ if `negated`."""

    value: SaseExpression
    container: SaseExpression
    negated: bool
    place: Place


@dataclass(frozen=True)
class SqlPredicate:
    """IS NULL, LIKE, BETWEEN: `words` go between the operands."""

    operands: tuple[SaseExpression, ...]
    words: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class LogicalNot:
    part: SaseExpression
    place: Place


@dataclass(frozen=True)
class LogicalOperation:
    """Parts connected by AND or OR."""

    operator: Literal["AND", "OR"]
    parts: tuple[SaseExpression, ...]
    place: Place


@dataclass(frozen=True)
class SameCondition:
    """SAME[x] or [x]: every event of the match has the same value of each attribute."""

    attributes: tuple[SaseExpression, ...]
    place: Place


@dataclass(frozen=True)
class ForAllCondition:
    """∀ index ∈ numbers: body. A range has `is_range` and two bounds."""

    index: str
    numbers: SetLiteral | BareName
    is_range: bool
    body: SaseExpression
    place: Place


SaseExpression = (
    SqlLiteral
    | TimeOfDay
    | BareName
    | ColumnReference
    | ElementAccess
    | FunctionCall
    | RemoteAccess
    | ArithmeticNode
    | ComparisonChain
    | SetLiteral
    | SetMembership
    | SqlPredicate
    | LogicalNot
    | LogicalOperation
    | SameCondition
    | ForAllCondition
)

# ---- WITHIN, and the whole query -----------------------------------------------------------------


@dataclass(frozen=True)
class WindowAmount:
    """4 hours; `unit` is None for a bare number or word."""

    number: SqlLiteral | BareName
    unit: str | None


@dataclass(frozen=True)
class WindowClause:
    amounts: tuple[WindowAmount, ...]
    place: Place


@dataclass(frozen=True)
class SaseQuery:
    pattern: SaseNode
    condition: SaseExpression | None
    strategy: StrategyName | None
    window: WindowClause | None


@dataclass(frozen=True)
class SaseVariable:
    """A declared variable. `always` says that every match fills it. `branches` are the sides of ORs
    that it is on, as (identity of the OR, number of the side)."""

    declared: EventDeclaration
    negated: bool = False
    is_list: bool = False
    always: bool = True
    branches: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        return self.declared.name

    def excludes(self, other: SaseVariable) -> bool:
        """Whether no match fills both."""
        mine = dict(self.branches)
        return any(mine.get(choice, side) != side for choice, side in other.branches)
