"""A MATCH_RECOGNIZE clause, read but not yet understood: which text stands in which place.

What the texts mean is the business of `match_pattern`. They keep where they stand in the
statement, so that what is wrong inside one is shown where the user wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.pattern import Pattern

Span = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """Characters of the statement that are handed on as text."""

    span: Span


@dataclass(frozen=True)
class Name:
    """`text` without quotes, `span` with them. Of a column without the input's name in front."""

    text: str
    span: Span


@dataclass(frozen=True)
class Named:
    """`expression AS name` of MEASURES, `name AS condition` of DEFINE."""

    name: Name
    part: Part


@dataclass(frozen=True)
class Subset:
    name: Name
    members: tuple[Name, ...]


@dataclass(frozen=True)
class RowText:
    """PATTERN (...): characters between the brackets."""

    span: Span


@dataclass(frozen=True)
class EventTree:
    """PATTERN SEQ(...): what it says, the conditions of DEFINE not yet filled in. `strategy` and
    `consumption` None: not said."""

    span: Span
    root: Pattern
    strategy: str | None = None
    consumption: str | None = None


@dataclass(frozen=True)
class Clause:
    """`rows` and `after_match` as `match_pattern` takes them; None: not said. `hints`: names and
    values of the hint behind the clause, which stands at `hint`. `span`: what to point at when
    nothing closer is known.
    """

    pattern: RowText | EventTree
    span: Span
    partition_by: tuple[Name, ...] = ()
    order_by: tuple[Part, ...] = ()
    measures: tuple[Named, ...] = ()
    rows: str | None = None
    after_match: Part | None = None
    within: Part | None = None
    subsets: tuple[Subset, ...] = ()
    define: tuple[Named, ...] = ()
    hints: dict[str, Any] = field(default_factory=dict)
    hint: Span | None = None

    def parts(self) -> Iterator[Part]:
        """All texts that may hold parameters of the statement."""
        yield from self.order_by
        yield from (each.part for each in self.measures)
        if self.within is not None:
            yield self.within
        yield from (each.part for each in self.define)
