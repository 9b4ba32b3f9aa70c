"""The ways in which a pattern may be filled, and where each NOT then stands.

A choice is a tree without OR, optional parts and empty lists. Rule: 'nested SEQs are flattened
before its place is judged': first the choice is made, then a SEQ that has become a part of a
SEQ is flattened, then the NOT looks for its neighbours. A SEQ in an AND stays one part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

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
    children,
)
from tests.reference.rows import Row

# Every filled variable with its rows; a variable that is no list has one.
Bound = Mapping[str, tuple[Row, ...]]


@dataclass(frozen=True)
class Choice:
    """`tree` None: nothing is left. `empty`: the lists that are matched as the empty list."""

    tree: EventPatternNode | None
    empty: frozenset[str] = frozenset()

    def filled(self) -> frozenset[str]:
        return frozenset(() if self.tree is None else positives(self.tree))


@dataclass(frozen=True)
class Barrier:
    """Where no occurrence of `absent`, a choice of its own, may lie: after the rows `after`, before
    the rows `before`.

    None where there is no filled part on that side. `iteration` is given inside a repeated
    group: conditions of the NOT see that iteration's rows.
    """

    absent: EventPatternNode
    after: tuple[Row, ...] | None
    before: tuple[Row, ...] | None
    iteration: int | None = None


def positives(node: EventPatternNode) -> list[str]:
    """Variables that bind rows, in the order of the pattern."""
    if isinstance(node, Event):
        return [node.name]
    if isinstance(node, NoEvent | NoGroup):
        return []
    return [name for child in children(node) for name in positives(child)]


def choices(node: EventPatternNode) -> Iterator[Choice]:
    if isinstance(node, Event | NoEvent | NoGroup):
        yield Choice(node)
    elif isinstance(node, AnyOf):
        # 'OR: a match of any part'
        for part in node.parts:
            yield from choices(part)
    elif isinstance(node, OptionalPart):
        # '? and * also match nothing'
        yield from choices(node.part)
        yield Choice(None)
    elif isinstance(node, Repeat):
        # 'each iteration takes one alternative'
        bodies = tuple(body.tree for body in choices(node.part) if body.tree is not None)
        part = bodies[0] if len(bodies) == 1 else AnyOf(bodies)
        yield Choice(replace(node, part=part, low=max(node.low, 1)))
        if node.low == 0:
            # 'An empty list is [], an empty ? is NULL.'
            yield Choice(None, frozenset(positives(node)))
    else:
        for chosen in product(*(list(choices(part)) for part in node.parts)):
            parts = [choice.tree for choice in chosen if choice.tree is not None]
            if isinstance(node, Seq):
                parts = _flattened(parts)
            empty = frozenset[str]().union(*(choice.empty for choice in chosen))
            yield Choice(type(node)(tuple(parts)) if parts else None, empty)


def _flattened(parts: list[EventPatternNode]) -> list[EventPatternNode]:
    return [inner for part in parts for inner in (part.parts if isinstance(part, Seq) else (part,))]


def barriers(tree: EventPatternNode, bound: Bound) -> Iterator[Barrier]:
    """Every NOT of a choice, beside the rows of its nearest filled parts."""
    if isinstance(tree, Seq):
        for place, part in enumerate(tree.parts):
            if isinstance(part, NoEvent | NoGroup):
                after = _nearest(reversed(tree.parts[:place]), bound)
                before = _nearest(tree.parts[place + 1 :], bound)
                yield from (Barrier(absent, after, before) for absent in _absent(part))
            else:
                yield from barriers(part, bound)
    elif isinstance(tree, AllOf):
        for part in tree.parts:
            if isinstance(part, NoEvent | NoGroup):
                yield from (Barrier(absent, None, None) for absent in _absent(part))
            else:
                yield from barriers(part, bound)
    elif isinstance(tree, Repeat) and not isinstance(tree.part, AnyOf):
        names = positives(tree)
        for iteration in range(len(bound[names[0]])):
            entries = {name: (bound[name][iteration],) for name in names}
            for barrier in barriers(tree.part, entries):
                yield replace(barrier, iteration=iteration)


def _absent(node: NoEvent | NoGroup) -> Iterator[EventPatternNode]:
    """What must not occur: of a group, none of the ways to fill it."""
    if isinstance(node, NoEvent):
        yield node.event
        return
    for choice in choices(node.part):
        assert choice.tree is not None
        yield choice.tree


def _nearest(parts: object, bound: Bound) -> tuple[Row, ...] | None:
    for part in parts:  # type: ignore[attr-defined]
        found = tuple(row for name in positives(part) for row in bound[name])
        if found:
            return found
    return None
