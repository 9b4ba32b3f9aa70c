"""Patterns as immutable values, and the builders that users write them with.

A `Pattern` is a tree of nodes plus what holds for the whole: conditions, window, strategy and
consumption. Patterns nest: the conditions of a nested pattern join those of the outer one, while
a window, strategy or consumption belongs on the outermost pattern only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar, Union

from spark_cep.errors import PatternError
from spark_cep.expressions.windows import Within, check_window
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_cep.udfs.program import Consumption, Strategy


ConditionLike = Union[str, "Column"]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Event:
    """A variable, with the condition that its row has to meet by itself or with others."""

    name: str
    condition: ConditionLike | None = None


@dataclass(frozen=True)
class NoEvent:
    """No row may be `event` where this node stands."""

    event: Event


@dataclass(frozen=True)
class Repeat:
    """`part` `low` to `high` times (`high` None: no end); binds lists."""

    part: EventPatternNode
    low: int
    high: int | None


@dataclass(frozen=True)
class OptionalPart:
    """`part` or nothing; binds plain rows or NULL."""

    part: EventPatternNode


@dataclass(frozen=True)
class Seq:
    parts: tuple[EventPatternNode, ...]


@dataclass(frozen=True)
class AllOf:
    parts: tuple[EventPatternNode, ...]


@dataclass(frozen=True)
class AnyOf:
    parts: tuple[EventPatternNode, ...]


EventPatternNode = Event | NoEvent | Repeat | OptionalPart | Seq | AllOf | AnyOf


def children(node: EventPatternNode) -> tuple[EventPatternNode, ...]:
    if isinstance(node, Seq | AllOf | AnyOf):
        return node.parts
    if isinstance(node, Repeat | OptionalPart):
        return (node.part,)
    if isinstance(node, NoEvent):
        return (node.event,)
    return ()


def iter_events(node: EventPatternNode) -> Iterator[tuple[Event, bool]]:
    """Every event of the tree from left to right, and whether it is negated.

    >>> [(e.name, negated) for e, negated in iter_events(seq("a", "!x", "b+").root)]
    [('a', False), ('x', True), ('b', False)]
    """
    if isinstance(node, Event):
        yield node, False
    elif isinstance(node, NoEvent):
        yield node.event, True
    else:
        for child in children(node):
            yield from iter_events(child)


@public
@dataclass(frozen=True)
class Pattern:
    """An event pattern. Build it with `seq`, `all_of`, `any_of`, `event` and `no`."""

    root: EventPatternNode
    conditions: tuple[str, ...] = ()
    window: Within | None = None
    selection: Strategy | None = None
    consuming: Consumption | None = None

    def where(self, *conditions: str) -> Pattern:
        """Adds conditions, Spark SQL text over `variable.column`."""
        for condition in conditions:
            if not isinstance(condition, str):
                raise PatternError(
                    f".where takes Spark SQL text, not {type(condition).__name__}",
                    hint='write the condition as text: .where("a.price < b.price"); a Column is '
                    "taken in event(name, column), where it concerns one row",
                )
        return replace(self, conditions=self.conditions + conditions)

    def within(
        self, duration: str | timedelta | float | None = None, *, events: int | None = None
    ) -> Pattern:
        """Bounds latest minus earliest event time, or with `events=` the input rows spanned."""
        if (duration is None) == (events is None):
            raise PatternError(
                ".within takes a duration or events=, one of the two",
                hint='.within("10 minutes") or .within(events=2000)',
            )
        window = Within(duration, events)
        check_window(window)
        return replace(self, window=window)

    def strategy(self, name: str) -> Pattern:
        """ "skip till any match" (the default), "skip till next match" or "strict"."""
        return replace(self, selection=_option_code(name, _STRATEGIES, "strategy"))

    def consumption(self, name: str) -> Pattern:
        """ "reuse" (the default): an event may be in many matches; "consume": in one."""
        return replace(self, consuming=_option_code(name, _CONSUMPTIONS, "consumption"))

    def times(self, quantifier: str | int, most: int | None = None) -> Pattern:
        """Repeats a variable or a group: "+", "*", "{2}", "{2,4}", "{2,}", "{,4}", or "?" for an
        optional one. As numbers `times(2)` is "{2}", and `times(2, 4)` is "{2,4}".

        >>> seq("a", seq("b", "c").times("+")).root.parts[1].low
        1
        >>> event("b").times(3) == event("b{3}"), event("b").times(2, 4) == event("b{2,4}")
        (True, True)
        """
        self._check_nestable("times")
        text = _quantifier(quantifier, most)
        return replace(self, root=_apply_quantifier(self.root, text, text))

    def optional(self) -> Pattern:
        """This part or nothing."""
        return self.times("?")

    def _check_nestable(self, where: str) -> None:
        for value, name in (
            (self.window, "within"),
            (self.selection, "strategy"),
            (self.consuming, "consumption"),
        ):
            if value is not None:
                raise PatternError(
                    f".{name} was set on a pattern that is used inside {where}",
                    hint=f"set .{name} on the outermost pattern; it holds for the whole match",
                )


PatternPart = str | Pattern


@public
def seq(*parts: PatternPart) -> Pattern:
    """All parts, each wholly before the next.

    >>> seq("a", "b+", "!x", "c?").root  # doctest: +ELLIPSIS
    Seq(parts=(Event(name='a', condition=None), Repeat(...), NoEvent(...), OptionalPart(...)))
    """
    return _combine("seq", Seq, parts)


@public
def all_of(*parts: PatternPart) -> Pattern:
    """All parts, in any order."""
    return _combine("all_of", AllOf, parts)


@public
def any_of(*parts: PatternPart) -> Pattern:
    """One of the parts."""
    return _combine("any_of", AnyOf, parts)


@public
def event(name: str, condition: ConditionLike | None = None) -> Pattern:
    """One row, called `name`, for which `condition` holds.

    The name may carry a quantifier or a negation: "b+", "c?", "d{2,4}", "!e". In the condition
    a bare column is this event's own; `other.column` is another variable's.
    """
    is_column = any(each.__name__ == "Column" for each in type(condition).__mro__)
    if not (condition is None or isinstance(condition, str) or is_column):
        raise PatternError(
            f"the condition of {name} is a {type(condition).__name__}, not Spark SQL text",
            hint='write event("a", "price > 10") or event("a", F.col("price") > 10)',
        )
    return Pattern(_event_node(name, condition))


@public
def no(part: PatternPart) -> Pattern:
    """No such row where this stands. Takes one variable."""
    pattern = _as_pattern(part, "no")
    if not isinstance(pattern.root, Event):
        raise PatternError(
            "no(...) takes one plain variable",
            hint='write no("x") or no(event("x", condition)); a quantifier or a group '
            "cannot be negated",
        )
    return replace(pattern, root=NoEvent(pattern.root))


def _combine(name: str, kind: type[Seq | AllOf | AnyOf], parts: tuple[PatternPart, ...]) -> Pattern:
    if not parts:
        raise PatternError(
            f"{name}() is empty", hint=f'give it parts: {name}("a", "b") or {name}(event("a", ...))'
        )
    patterns = [_as_pattern(part, name) for part in parts]
    for pattern in patterns:
        pattern._check_nestable(name)
    _check_variables(patterns)
    conditions = tuple(text for pattern in patterns for text in pattern.conditions)
    return Pattern(kind(tuple(pattern.root for pattern in patterns)), conditions)


def _check_variables(patterns: Iterable[Pattern]) -> None:
    seen: dict[str, str] = {}
    for pattern in patterns:
        for each, _ in iter_events(pattern.root):
            first = seen.get(each.name.casefold())
            if first is not None:
                message, hint = bound_twice(each.name, first)
                raise PatternError(message, hint=hint)
            seen[each.name.casefold()] = each.name


def bound_twice(name: str, first: str) -> tuple[str, str]:
    """What is wrong with a variable that the pattern has already, as `first`, and a hint."""
    same = "" if first == name else f" (as {first}; case makes no difference)"
    return (
        f"the variable {name} is bound twice{same}",
        f'give each event a name of its own; for one event several times write "{name}+"',
    )


def _as_pattern(part: PatternPart, where: str) -> Pattern:
    if isinstance(part, Pattern):
        return part
    if isinstance(part, str):
        return event(part)
    raise PatternError(
        f"{where}(...) takes names and patterns, not {type(part).__name__}",
        hint=f'write {where}("a", event("b", "price > 10"), seq("c", "d"))',
    )


_NAME = re.compile(
    r"\s*(?P<negated>[!~]?)\s*(?P<name>[^\W\d]\w*)\s*(?P<quantifier>[+*?]|\{[^}]*\})?\s*",
    re.UNICODE,
)
_BRACES = re.compile(r"\{\s*(?P<low>\d*)\s*(?P<comma>,?)\s*(?P<high>\d*)\s*\}")


def _event_node(text: str, condition: ConditionLike | None) -> EventPatternNode:
    found = _NAME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise PatternError(
            f"{text!r} is no variable name",
            hint='a name is letters, digits and _; it may carry a quantifier: "b+", "b*", "b?", '
            '"b{2,4}", or a negation: "!b"',
        )
    node = Event(found["name"], condition)
    if found["negated"]:
        if found["quantifier"]:
            raise PatternError(
                f"{text!r} negates a quantified variable",
                hint=f'write "!{found["name"]}": no such row at all',
            )
        return NoEvent(node)
    return _apply_quantifier(node, found["quantifier"], text) if found["quantifier"] else node


def _quantifier(quantifier: object, most: object) -> str:
    """Numbers as braces."""
    low_and_high = (quantifier,) if most is None else (quantifier, most)
    if all(isinstance(each, int) and not isinstance(each, bool) for each in low_and_high):
        return "{" + ",".join(map(str, low_and_high)) + "}"
    if isinstance(quantifier, str) and most is None:
        return quantifier.strip()
    given = ", ".join(map(repr, low_and_high))
    raise PatternError(
        f"times({given}) has no readable quantifier",
        hint='write times("+"), times("{2,4}") or numbers: times(3) is exactly 3, times(2, 4) is '
        "2 to 4",
    )


def _apply_quantifier(part: EventPatternNode, quantifier: str, text: str) -> EventPatternNode:
    if quantifier == "?":
        return OptionalPart(part)
    if quantifier in {"+", "*"}:
        return Repeat(part, 1 if quantifier == "+" else 0, None)
    found = _BRACES.fullmatch(quantifier)
    if found is None or not (found["low"] or found["high"]):
        raise PatternError(
            f"{text!r} has no readable quantifier",
            hint='quantifiers are "+", "*", "?", "{3}", "{2,4}", "{2,}" and "{,4}"',
        )
    low = int(found["low"] or 0)
    high = (int(found["high"]) if found["high"] else None) if found["comma"] else low
    if high is not None and (high < low or high == 0):
        raise PatternError(
            f"{text!r} can never be met: at least {low}, at most {high}",
            hint='the second number is the larger one and above 0: "{2,4}"',
        )
    return Repeat(part, low, high)


_STRATEGIES: Mapping[str, Strategy] = {
    "skip till any match": "any",
    "skip till next match": "next",
    "strict": "strict",
}
_CONSUMPTIONS: Mapping[str, Consumption] = {"reuse": "reuse", "consume": "consume"}


def _option_code(name: str, names: Mapping[str, _T], what: str) -> _T:
    key = re.sub(r"[\s_-]+", " ", name.strip().lower()) if isinstance(name, str) else ""
    if key not in names:
        raise PatternError(
            f"{name!r} is no {what}",
            hint="choose one of " + ", ".join(f'"{known}"' for known in names),
        )
    return names[key]
