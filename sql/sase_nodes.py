"""What SASE text says, as trees: the pattern, the conditions, the window.

Names are still as written: `S_i` or `T` get their meaning only where families are counted out and
symbols looked up, so that a node under ∀ can be read once for every number. Every node has its
place, for errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from spark_cep.compiling.problems import Place

# ---- PATTERN -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declared:
    """`Stock a`, or a bare `a` (then `bare`: type and variable are one name). `attributes`: those
    listed behind it, as in `A(attr1)`; None: no list."""

    type: str
    name: str
    place: Place
    bare: bool = False
    attributes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Negated:
    part: PatternNode
    place: Place


@dataclass(frozen=True)
class Repeated:
    """`quantifier`: "+", "*", "?" or "{2,4}"."""

    part: PatternNode
    quantifier: str
    place: Place


@dataclass(frozen=True)
class Dots:
    """`S_1, ..., S_n`: the members of the family between its neighbours."""

    place: Place


@dataclass(frozen=True)
class Combined:
    kind: Literal["seq", "all", "any"]
    parts: tuple[PatternNode, ...]
    place: Place


PatternNode = Declared | Negated | Repeated | Dots | Combined


# ---- WHERE -------------------------------------------------------------------------------------

Reading = Literal["each", "prev", "first", "last"]


@dataclass(frozen=True)
class Sql:
    """A literal, as Spark SQL."""

    text: str
    place: Place


@dataclass(frozen=True)
class TimeOfDay:
    """6:00, as microseconds of a day could be read: `06:00:00.000000`."""

    text: str
    place: Place


@dataclass(frozen=True)
class Word:
    """A bare name: a symbol, a variable, or the text that it is."""

    name: str
    place: Place


@dataclass(frozen=True)
class Dotted:
    """variable.column, perhaps with fields; `reading` for `a[1].x` and the like."""

    parts: tuple[str, ...]
    place: Place
    reading: Reading = "each"


@dataclass(frozen=True)
class Item:
    """An element of an array or a map: a.tags[0]."""

    base: Expression
    index: Expression
    place: Place


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Expression, ...]
    place: Place


@dataclass(frozen=True)
class Remote:
    arguments: tuple[Expression, ...]
    place: Place


@dataclass(frozen=True)
class Arithmetic:
    """`left` None: a sign."""

    operator: str
    left: Expression | None
    right: Expression
    place: Place


@dataclass(frozen=True)
class Compared:
    """a = b = c has three operands and two operators."""

    operands: tuple[Expression, ...]
    operators: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Listed:
    """The members of a set, written out."""

    members: tuple[Expression, ...]
    place: Place


@dataclass(frozen=True)
class Member:
    """value ∈ container; `negated`: ∉."""

    value: Expression
    container: Expression
    negated: bool
    place: Place


@dataclass(frozen=True)
class Tested:
    """IS NULL, LIKE, BETWEEN: `words` with the operands put between them."""

    operands: tuple[Expression, ...]
    words: tuple[str, ...]
    place: Place


@dataclass(frozen=True)
class Not:
    part: Expression
    place: Place


@dataclass(frozen=True)
class Joined:
    """Parts with AND or OR between them."""

    operator: Literal["AND", "OR"]
    parts: tuple[Expression, ...]
    place: Place


@dataclass(frozen=True)
class Same:
    """SAME[x] or [x]: every event of the match has the same value of each attribute."""

    attributes: tuple[Expression, ...]
    place: Place


@dataclass(frozen=True)
class ForAll:
    """∀ index ∈ numbers: body. A range has `is_range` and two bounds."""

    index: str
    numbers: Listed | Word
    is_range: bool
    body: Expression
    place: Place


Expression = (
    Sql | TimeOfDay | Word | Dotted | Item | Call | Remote | Arithmetic | Compared | Listed
    | Member | Tested | Not | Joined | Same | ForAll
)  # fmt: skip


# ---- the whole ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Amount:
    """4 hours; `unit` None for a bare number or word."""

    number: Sql | Word
    unit: str | None


@dataclass(frozen=True)
class Window:
    amounts: tuple[Amount, ...]
    place: Place


@dataclass(frozen=True)
class Query:
    pattern: PatternNode
    condition: Expression | None
    strategy: str | None
    window: Window | None
