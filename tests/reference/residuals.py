"""What of a pattern is still to be filled after some rows were taken, as a smaller pattern.

A run of skip-till-next or strict holds such a rest instead of a place in the pattern. `openings`
lists the variables that may take a row now, each with what is left after it did; a pattern's own
nodes are their own rest before they have taken anything. NOT must be removed first.

Rule: 'The variables open at a point of a run are: every unfilled part of an AND, the first of
every OR branch (until one is entered), the Kleene variable again, and whatever may follow an
optional or sufficiently filled part.'

Interpretation that the engine shares: the parts of a SEQ and the elements of a list need a
greater order key than what they follow, so a tied row is open only to a variable that follows
nothing of its tie: to another part of an AND.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.pattern import (
    AllOf,
    AnyOf,
    Event,
    EventPatternNode,
    NoEvent,
    NoGroup,
    OptionalPart,
    Repeat,
    Seq,
)
from tests.reference.choices import positives

if TYPE_CHECKING:
    from tests.reference.rows import Key


@dataclass(frozen=True)
class Taken:
    """A variable that has its row."""


@dataclass(frozen=True)
class Begun:
    """A SEQ whose first rest-part has rows; the parts before it are closed. `latest` is the
    order key of the last row that the SEQ took."""

    latest: Key
    parts: tuple[Rest, ...]


@dataclass(frozen=True)
class Repeating:
    """A repeat in its `count`-th iteration, of which `current` is left."""

    repeat: Repeat
    count: int
    latest: Key
    current: Rest


@dataclass(frozen=True)
class Together:
    """An AND, some of whose parts have rows."""

    parts: tuple[Rest, ...]


Rest = EventPatternNode | Taken | Begun | Repeating | Together
Opening = tuple[str, Rest]


def without_negations(node: EventPatternNode) -> EventPatternNode:
    """Runs ignore NOT: it is tested on finished matches."""
    if isinstance(node, Seq | AllOf):
        kept = [part for part in node.parts if not isinstance(part, NoEvent | NoGroup)]
        return type(node)(tuple(map(without_negations, kept)))
    if isinstance(node, AnyOf):
        return AnyOf(tuple(without_negations(part) for part in node.parts))
    if isinstance(node, OptionalPart):
        return OptionalPart(without_negations(node.part))
    if isinstance(node, Repeat):
        return Repeat(without_negations(node.part), node.low, node.high)
    return node


def openings(rest: Rest, key: Key) -> Iterator[Opening]:
    """Each variable that is open to a row with this order key, and the rest once it took it."""
    if isinstance(rest, Event):
        yield rest.name, Taken()
    elif isinstance(rest, OptionalPart):
        yield from openings(rest.part, key)
    elif isinstance(rest, AnyOf):
        for part in rest.parts:
            yield from openings(part, key)
    elif isinstance(rest, AllOf | Together):
        yield from _among(rest.parts, key)
    elif isinstance(rest, Seq):
        yield from _entered(rest.parts, key)
    elif isinstance(rest, Begun):
        yield from _continued(rest, key)
    elif isinstance(rest, Repeat):
        yield from _next_iteration(rest, 1, key)
    elif isinstance(rest, Repeating):
        yield from _repeated(rest, key)


def _among(parts: Sequence[Rest], key: Key) -> Iterator[Opening]:
    for place, part in enumerate(parts):
        for name, left in openings(part, key):
            yield name, Together((*parts[:place], left, *parts[place + 1 :]))


def _entered(parts: Sequence[Rest], key: Key) -> Iterator[Opening]:
    """The first part, and those behind parts that may stay empty."""
    for place, part in enumerate(parts):
        for name, left in openings(part, key):
            yield name, Begun(key, (left, *parts[place + 1 :]))
        if not may_end(part):
            return


def _continued(rest: Begun, key: Key) -> Iterator[Opening]:
    current, *following = rest.parts
    for name, left in openings(current, key):
        yield name, Begun(key, (left, *following))
    if may_end(current) and key > rest.latest:
        yield from _entered(following, key)


def _repeated(rest: Repeating, key: Key) -> Iterator[Opening]:
    for name, left in openings(rest.current, key):
        yield name, Repeating(rest.repeat, rest.count, key, left)
    high = rest.repeat.high
    if may_end(rest.current) and key > rest.latest and (high is None or rest.count < high):
        yield from _next_iteration(rest.repeat, rest.count + 1, key)


def _next_iteration(repeat: Repeat, count: int, key: Key) -> Iterator[Opening]:
    for name, left in openings(repeat.part, key):
        yield name, Repeating(repeat, count, key, left)


def may_end(rest: Rest) -> bool:
    """Whether nothing more has to be taken."""
    if isinstance(rest, Event | NoEvent):
        return False
    if isinstance(rest, Taken | OptionalPart):
        return True
    if isinstance(rest, AnyOf):
        return any(may_end(part) for part in rest.parts)
    if isinstance(rest, Repeat):
        return rest.low == 0
    if isinstance(rest, Repeating):
        return may_end(rest.current) and rest.count >= rest.repeat.low
    return all(may_end(part) for part in rest.parts)


def open_lists(rest: Rest) -> frozenset[str]:
    """Variables of the lists that were begun and may still grow."""
    if isinstance(rest, Repeating):
        is_full = rest.count == rest.repeat.high and may_end(rest.current)
        return frozenset(() if is_full else positives(rest.repeat))
    if isinstance(rest, Begun | Together):
        return frozenset[str]().union(*(open_lists(part) for part in rest.parts))
    return frozenset()
