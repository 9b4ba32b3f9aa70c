"""Random event patterns and random rows, small enough for brute force.

Patterns nest up to three operators deep over at most five positive and two negated variables.
Always valid: a NOT stands in a SEQ or an AND and has a time window where its place needs one; a
repeated group is a SEQ of plain variables with NOTs between them. Rows have few different values,
so conditions hold often, and few different times, so ties are common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from spark_cep.pattern import (
    AllOf,
    AnyOf,
    Event,
    EventPatternNode,
    NoEvent,
    NoGroup,
    OptionalPart,
    Pattern,
    Repeat,
    Seq,
    Within,
)
from tests.cases import Case, needs_time_window
from tests.conditions import cross_conditions, own_conditions

if TYPE_CHECKING:
    from tests.reference.expressions import Value

DEPTH = 3
NAN = float("nan")
NOTHING = Seq(())  # stands for a part for which no name was left


@dataclass
class _Names:
    """Names still free; what is drawn while building one pattern."""

    positive: list[str] = field(default_factory=lambda: list("abcde"))
    negated: list[str] = field(default_factory=lambda: ["y", "x"])
    groups: bool = False


@st.composite
def cases(
    draw: st.DrawFn,
    selections: Sequence[str | None] = (None,),
    *,
    consuming: bool = False,
    groups: bool = False,
) -> Case:
    """A pattern and rows. `selections`: what `Pattern.selection` is drawn from. `groups`: with NOTs
    of groups."""
    root = draw(roots(groups=groups))
    order_by = draw(st.sampled_from([("t",), ("t",), ("t", "x"), ("t", "x DESC NULLS FIRST")]))
    pattern = Pattern(
        root,
        draw(cross_conditions(root)),
        draw(windows(root)),
        draw(st.sampled_from(selections)),
        "consume" if consuming else None,
    )
    return Case(
        pattern,
        draw(rows()),
        # consume refuses tied order keys, so `u` breaks the ties of `t`.
        ("t", "u") if consuming else order_by,
        draw(st.sampled_from([("k",), ("k",), ()])),
    )


# ---- patterns ----------------------------------------------------------------------------------


@st.composite
def roots(draw: st.DrawFn, *, groups: bool = False) -> EventPatternNode:
    """A tree that binds at least one row."""
    names = _Names(negated=list("zwyx"), groups=True) if groups else _Names()
    parts = [draw(_nodes(names, DEPTH - 1)) for _ in range(draw(st.integers(1, 3)))]
    node = draw(_combined(parts, names))
    return node if names.positive != list("abcde") else Event("a", draw(own_conditions()))


@st.composite
def _nodes(draw: st.DrawFn, names: _Names, depth: int) -> EventPatternNode:
    kinds = ["event"] * 3 + ["list", "optional"]
    if depth > 0 and len(names.positive) >= 2:
        kinds += ["combined", "combined", "combined", "group"]
    kind = draw(st.sampled_from(kinds))
    if kind == "combined":
        parts = [draw(_nodes(names, depth - 1)) for _ in range(draw(st.integers(2, 3)))]
        node = draw(_combined(parts, names))
        return OptionalPart(node) if node != NOTHING and draw(st.integers(0, 5)) == 5 else node
    if kind == "group" and len(names.positive) >= 2:
        return draw(_groups(names))
    if not names.positive:
        return NOTHING
    event = draw(_events(names.positive))
    if kind == "list":
        return _repeated(draw, event)
    return OptionalPart(event) if kind == "optional" else event


def _events(names: list[str]) -> st.SearchStrategy[Event]:
    name = names.pop(0)
    return own_conditions().map(lambda condition: Event(name, condition))


def _repeated(draw: st.DrawFn, part: EventPatternNode) -> Repeat:
    bounds: list[tuple[int, int | None]] = [
        (1, None),
        (1, None),
        (0, None),
        (2, None),
        (1, 2),
        (2, 2),
        (0, 2),
    ]
    low, high = draw(st.sampled_from(bounds))
    return Repeat(part, low, high)


@st.composite
def _groups(draw: st.DrawFn, names: _Names) -> EventPatternNode:
    """(a b)+, (a !y b){2,3} and so on; with `groups` also AND(a, b)+ and the like."""
    if names.groups and len(names.positive) >= 2:
        return _repeated(draw, draw(_bodies(names)))
    parts: list[EventPatternNode] = [draw(_events(names.positive))]
    if names.positive and draw(st.integers(0, 3)) > 0:
        if names.negated and draw(st.integers(0, 3)) == 0:
            parts.append(draw(_negated(names)))
        parts.append(draw(_events(names.positive)))
    return _repeated(draw, Seq(tuple(parts)))


@st.composite
def _bodies(draw: st.DrawFn, names: _Names) -> EventPatternNode:
    """AND(a, b), AND(a, SEQ(b, NOT x, c)), SEQ(a, AND(b, c)) and the like."""
    count = draw(st.sampled_from([2, 2, 3]))
    events: list[EventPatternNode] = [
        draw(_events(names.positive)) for _ in range(min(count, len(names.positive)))
    ]
    if len(events) == 2:
        return AllOf(tuple(events))
    first, second, third = events
    if draw(st.booleans()):
        return Seq((first, AllOf((second, third))))
    parts = [second, third]
    if names.negated and draw(st.booleans()):
        parts.insert(1, draw(_negated(names)))
    return AllOf((first, Seq(tuple(parts))))


@st.composite
def _combined(draw: st.DrawFn, parts: list[EventPatternNode], names: _Names) -> EventPatternNode:
    """The parts under SEQ, AND or OR, with NOTs in between where they may stand."""
    kept = [part for part in parts if part != NOTHING]
    if not kept:
        return NOTHING
    kinds: list[type[Seq | AllOf | AnyOf]] = [Seq, Seq, Seq, AllOf, AllOf, AnyOf]
    kind = draw(st.sampled_from(kinds))
    if kind is not AnyOf:
        for _ in range(draw(st.sampled_from([0, 1, 1] if names.groups else [0, 0, 0, 1, 1, 2]))):
            if names.negated:
                kept.insert(draw(st.integers(0, len(kept))), draw(_negated(names)))
    return kind(tuple(kept))


@st.composite
def _negated(draw: st.DrawFn, names: _Names) -> EventPatternNode:
    """NOT of a variable, or of a group of two or three."""
    count = draw(st.sampled_from([2, 2, 3, 1])) if names.groups else 1
    parts: list[EventPatternNode] = [
        draw(_events(names.negated)) for _ in range(min(count, len(names.negated)))
    ]
    if len(parts) == 1:
        return NoEvent(parts[0])
    kinds: list[type[Seq | AllOf | AnyOf]] = [Seq, Seq, AllOf, AllOf, AnyOf]
    kind = draw(st.sampled_from(kinds))
    if len(parts) > 2:
        parts = [parts[0], draw(st.sampled_from(kinds))(tuple(parts[1:]))]
        draw(st.randoms()).shuffle(parts)
    return NoGroup(kind(tuple(parts)))


@st.composite
def windows(draw: st.DrawFn, root: EventPatternNode) -> Within | None:
    """A time window where a NOT needs one, else any window or none."""
    by_time = st.sampled_from([3, 4, 2, 5, 7, 1]).map(Within)
    if needs_time_window(root):
        return draw(by_time)
    by_events = st.sampled_from([6, 8, 4, 3, 10, 1]).map(lambda count: Within(events=count))
    # Without a bound lists multiply, so most patterns have one.
    return draw(st.one_of(by_time, by_time, by_events, st.none()))


# ---- rows --------------------------------------------------------------------------------------


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Value]]:
    """Up to 14 rows, in no order."""
    row = st.fixed_dictionaries(
        {
            "t": st.one_of(
                st.integers(0, 7), st.integers(0, 7), st.integers(-1, 9), _rarely_null()
            ),
            "k": st.sampled_from([1, 1, 1, 2, None]),
            "x": st.sampled_from([0, 1, 2, 3, -1, None]),
            "f": st.sampled_from([0.0, 1.0, 2.5, -1.0, -0.0, NAN, None]),
            "kind": st.sampled_from(["A", "A", "B", "B", "C", None]),
        }
    )
    # Left to itself, hypothesis draws few rows, and few rows match nothing.
    count = draw(st.sampled_from([14, 12, 11, 10, 8, 5, 2, 0]))
    drawn = draw(st.lists(row, min_size=count, max_size=count))
    numbers = draw(st.permutations(range(len(drawn))))
    return [{**values, "u": number} for values, number in zip(drawn, numbers, strict=True)]


def _rarely_null() -> st.SearchStrategy[int | None]:
    return st.sampled_from([4, 3, 5, 2, None])
