"""Event patterns as immutable values, and the functions that build them.

A `Pattern` is a tree of nodes plus what holds for the whole match: conditions, window, strategy
and consumption. Patterns nest: the conditions of a nested pattern join those of the outer one. A
window, strategy or consumption is set on the outermost pattern only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeVar, Union

from spark_cep.errors import PatternError
from spark_cep.expressions.quantifiers import QuantifierError, parse_quantifier
from spark_cep.expressions.windows import Within, check_window
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_cep.udfs.program import Consumption, Strategy


ConditionLike = Union[str, "Column"]
StrategyName = Literal["skip till any match", "skip till next match", "strict"]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Event:
    """A variable, and the condition that its row has to meet, alone or with other rows."""

    name: str
    condition: ConditionLike | None = None


@dataclass(frozen=True)
class NoEvent:
    """No row may be `event` at this place of the pattern."""

    event: Event


@dataclass(frozen=True)
class NoGroup:
    """No occurrence of `part`, a group of events, may lie at this place of the pattern."""

    part: EventPatternNode


@dataclass(frozen=True)
class Repeat:
    """`part` repeated `low` to `high` times; `high` None: without end. Its variables are bound to
    lists of rows."""

    part: EventPatternNode
    low: int
    high: int | None


@dataclass(frozen=True)
class OptionalPart:
    """`part` or nothing. Its variables are bound to a row or NULL."""

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


EventPatternNode = Event | NoEvent | NoGroup | Repeat | OptionalPart | Seq | AllOf | AnyOf


def children(node: EventPatternNode) -> tuple[EventPatternNode, ...]:
    if isinstance(node, Seq | AllOf | AnyOf):
        return node.parts
    if isinstance(node, Repeat | OptionalPart | NoGroup):
        return (node.part,)
    if isinstance(node, NoEvent):
        return (node.event,)
    return ()


def iter_events(node: EventPatternNode) -> Iterator[tuple[Event, bool]]:
    """Yields every event of the tree from left to right, and whether it is negated.

    >>> [(e.name, negated) for e, negated in iter_events(seq("a", "!x", "b+").root)]
    [('a', False), ('x', True), ('b', False)]
    """
    if isinstance(node, Event):
        yield node, False
    elif isinstance(node, NoEvent):
        yield node.event, True
    elif isinstance(node, NoGroup):
        yield from ((each, True) for each, _ in iter_events(node.part))
    else:
        for child in children(node):
            yield from iter_events(child)


@public
@dataclass(frozen=True)
class Pattern:
    """An event pattern. Build it with `seq`, `all_of`, `any_of`, `event`, `no` and `sase`.

    Patterns are immutable: every method returns a new one.

    Args:
        root: The tree of events.
        conditions: The conditions that `where` added.
        window: The window that `within` set.
        selection: The strategy, as `strategy` set it.
        consuming: The consumption, as `consumption` set it.

    Example:
        >>> pattern = seq("a", event("b+", "b.price > a.price")).within("10 minutes")
        >>> pattern.window.duration
        '10 minutes'
    """

    root: EventPatternNode
    conditions: tuple[str, ...] = ()
    window: Within | None = None
    selection: Strategy | None = None
    consuming: Consumption | None = None

    def where(self, *conditions: str) -> Pattern:
        """Adds conditions that every match has to meet.

        Args:
            *conditions: Spark SQL over `variable.column`. A Column cannot be used here; it can in
                `event(name, column)`.

        Returns:
            The pattern with the conditions added.

        Raises:
            PatternError: A condition is not text. Its content is checked by `match_pattern`, which
                knows the columns.

        Example:
            >>> seq("a", "b").where("a.price < b.price", "a.venue = b.venue").conditions
            ('a.price < b.price', 'a.venue = b.venue')
        """
        for condition in conditions:
            if not isinstance(condition, str):
                raise PatternError(
                    f".where takes Spark SQL text, not {type(condition).__name__}",
                    hint='write the condition as text: .where("a.price < b.price"); a Column on '
                    "one row can be given to event(name, column)",
                )
        return replace(self, conditions=self.conditions + conditions)

    def within(
        self, duration: str | timedelta | float | None = None, *, events: int | None = None
    ) -> Pattern:
        """Sets the window: how far apart the events of a match may be.

        Args:
            duration: The largest difference between the latest and the earliest event time: text
                ("10 minutes"), a timedelta, or a number in the unit of a numeric event time.
            events: Instead of `duration`, the number of rows of the partition that a match may
                span, its first and last row included.

        Returns:
            The pattern with the window.

        Raises:
            PatternError: Neither or both are given, or the window cannot be read or is not above 0.

        Example:
            >>> seq("a", "b").within("1 hour 30 minutes").window.duration
            '1 hour 30 minutes'
            >>> seq("a", "b").within(events=2000).window.events
            2000
        """
        if (duration is None) == (events is None):
            raise PatternError(
                ".within takes either a duration or events=",
                hint='.within("10 minutes") or .within(events=2000)',
            )
        window = Within(duration, events)
        check_window(window)
        return replace(self, window=window)

    def strategy(self, name: StrategyName) -> Pattern:
        """Sets which rows between the events of a match may be skipped.

        Args:
            name: "skip till any match", the default, may skip every row, so that all combinations
                are found. "skip till next match" takes the first row that fits, "strict" only
                adjacent rows. Case, spaces, hyphens and underscores make no difference.

        Returns:
            The pattern with the strategy.

        Raises:
            PatternError: There is no strategy of that name.

        Example:
            >>> seq("a", "b").strategy("skip till next match").selection
            'next'
        """
        return replace(self, selection=_option_code(name, _STRATEGIES, "strategy"))

    def consumption(self, name: Consumption) -> Pattern:
        """Sets whether matches may share events.

        Args:
            name: "reuse", the default: an event may be in any number of matches. "consume": in at
                most one; matches with earlier last events come first.

        Returns:
            The pattern with the consumption.

        Raises:
            PatternError: There is no consumption of that name.

        Example:
            >>> seq("a", "b").consumption("consume").consuming
            'consume'
        """
        return replace(self, consuming=_option_code(name, _CONSUMPTIONS, "consumption"))

    def times(self, quantifier: str | int, most: int | None = None) -> Pattern:
        """Repeats an event or a group of events.

        Args:
            quantifier: "+", "*", "{2}", "{2,4}", "{2,}", "{,4}", "?" for an optional part, or the
                number of times: 2 is "{2}".
            most: With a number as `quantifier`, the largest number of times: `times(2, 4)` is
                "{2,4}".

        Returns:
            The repeated pattern.

        Raises:
            PatternError: The quantifier cannot be read or met, or the pattern already has a
                window, a strategy or a consumption.

        Example:
            >>> seq("a", seq("b", "c").times("+")).root.parts[1].low
            1
            >>> event("b").times(3) == event("b{3}"), event("b").times(2, 4) == event("b{2,4}")
            (True, True)
        """
        self._check_nestable("times")
        text = _quantifier_text(quantifier, most)
        return replace(self, root=_apply_quantifier(self.root, text, text))

    def optional(self) -> Pattern:
        """Makes a part optional, as `times("?")` does.

        Returns:
            The optional pattern.

        Example:
            >>> seq("a", event("b").optional(), "c") == seq("a", "b?", "c")
            True
        """
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
    """A pattern of parts in sequence: every event of a part is before those of the next.

    Args:
        *parts: Patterns, or names of variables, which stand for `event(name)`.

    Returns:
        The pattern.

    Raises:
        PatternError: There is no part, a part is not a pattern, or two events have the same name.

    Example:
        >>> seq("a", "b+", "!x", "c?").root  # doctest: +ELLIPSIS
        Seq(parts=(Event(name='a', condition=None), Repeat(...), NoEvent(...), OptionalPart(...)))
    """
    return _combine("seq", Seq, parts)


@public
def all_of(*parts: PatternPart) -> Pattern:
    """A pattern of parts that all occur, in any order.

    Args:
        *parts: Patterns, or names of variables, which stand for `event(name)`.

    Returns:
        The pattern.

    Raises:
        PatternError: There is no part, a part is not a pattern, or two events have the same name.

    Example:
        >>> seq(all_of("a", "b"), "c").root.parts[0]
        AllOf(parts=(Event(name='a', condition=None), Event(name='b', condition=None)))
    """
    return _combine("all_of", AllOf, parts)


@public
def any_of(*parts: PatternPart) -> Pattern:
    """A pattern of alternatives: one of the parts occurs.

    Args:
        *parts: Patterns, or names of variables, which stand for `event(name)`.

    Returns:
        The pattern. The variables of the other parts are NULL in a match.

    Raises:
        PatternError: There is no part, a part is not a pattern, or two events have the same name.

    Example:
        >>> seq("a", any_of("b", "c")).root.parts[1]
        AnyOf(parts=(Event(name='b', condition=None), Event(name='c', condition=None)))
    """
    return _combine("any_of", AnyOf, parts)


@public
def event(name: str, condition: ConditionLike | None = None) -> Pattern:
    """A pattern of one event: a row for which a condition holds.

    Args:
        name: The variable. It may have a quantifier or a negation: "b+", "c?", "d{2,4}", "!e".
        condition: Spark SQL, or a Column over the event's own row. In the text a bare column is
            the event's own, and `other.column` that of another variable. Without a condition
            every row will do.

    Returns:
        The pattern.

    Raises:
        PatternError: The name or its quantifier cannot be read, or the condition is of a wrong
            type.

    Example:
        >>> seq(event("a", "kind = 'A'"), event("b+", "price > a.price")).root.parts[0].name
        'a'
    """
    is_column = any(each.__name__ == "Column" for each in type(condition).__mro__)
    if not (condition is None or isinstance(condition, str) or is_column):
        raise PatternError(
            f"the condition of {name} is of type {type(condition).__name__}, not Spark SQL text",
            hint='write event("a", "price > 10") or event("a", F.col("price") > 10)',
        )
    return Pattern(_event_node(name, condition))


@public
def no(part: PatternPart) -> Pattern:
    """A negated event or group: nothing of the kind occurs at this place of the pattern.

    Args:
        part: The name of a variable, an event, or a group of events: `seq`, `all_of` and `any_of`
            of plain variables, nested freely. There is no quantifier in it.

    Returns:
        The pattern. `no("x")` is what `"!x"` gives.

    Raises:
        PatternError: `part` has a quantifier, an optional part or another NOT.

    Example:
        >>> seq("a", no("x"), "b") == seq("a", "!x", "b")
        True
        >>> seq("a", no(seq("x", "y")), "b").root.parts[1]  # doctest: +ELLIPSIS
        NoGroup(part=Seq(parts=(Event(name='x', condition=None), Event(...))))
    """
    pattern = _as_pattern(part, "no")
    if isinstance(pattern.root, Event):
        return replace(pattern, root=NoEvent(pattern.root))
    _check_negated(pattern.root)
    return replace(pattern, root=NoGroup(pattern.root))


def _check_negated(node: EventPatternNode) -> None:
    if isinstance(node, Repeat):
        raise PatternError(
            "no(...) takes no quantifier",
            hint='write no("x"): no such row at all; for fewer than three of them write '
            'no(seq("x1", "x2", "x3"))',
        )
    if isinstance(node, OptionalPart):
        raise PatternError(
            "no(...) takes no optional part",
            hint="leave it out: the rest without it must not occur either",
        )
    if isinstance(node, NoEvent | NoGroup):
        raise PatternError(
            "no(...) cannot contain another NOT",
            hint="negate a group of events that all occur: no(seq(...)), no(all_of(...))",
        )
    for child in children(node):
        _check_negated(child)


def _combine(name: str, kind: type[Seq | AllOf | AnyOf], parts: tuple[PatternPart, ...]) -> Pattern:
    if not parts:
        raise PatternError(
            f"{name}() has no parts", hint=f'write {name}("a", "b") or {name}(event("a", ...))'
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
    """The message and the hint for a variable that the pattern already has, as `first`."""
    same = "" if first == name else f" (as {first}; case makes no difference)"
    return (
        f"the variable {name} is bound twice{same}",
        f'give each event its own name; to repeat an event write "{name}+"',
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


def _event_node(text: str, condition: ConditionLike | None) -> EventPatternNode:
    found = _NAME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise PatternError(
            f"{text!r} is not the name of a variable",
            hint='a name has letters, digits and _, and may have a quantifier: "b+", "b*", "b?", '
            '"b{2,4}", or a negation: "!b"',
        )
    node = Event(found["name"], condition)
    if found["negated"]:
        if found["quantifier"]:
            raise PatternError(
                f"{text!r} negates a quantified variable",
                hint=f'write "!{found["name"]}", which already means that there is no such row',
            )
        return NoEvent(node)
    return _apply_quantifier(node, found["quantifier"], text) if found["quantifier"] else node


def _quantifier_text(quantifier: object, most: object) -> str:
    """The arguments of `times` as the text of a quantifier."""
    low_and_high = (quantifier,) if most is None else (quantifier, most)
    if all(isinstance(each, int) and not isinstance(each, bool) for each in low_and_high):
        return "{" + ",".join(map(str, low_and_high)) + "}"
    if isinstance(quantifier, str) and most is None:
        return quantifier.strip()
    given = ", ".join(map(repr, low_and_high))
    raise PatternError(
        f"times({given}) is not a quantifier",
        hint='write times("+"), times("{2,4}") or numbers: times(3) is exactly 3, times(2, 4) is '
        "2 to 4",
    )


def _apply_quantifier(part: EventPatternNode, quantifier: str, text: str) -> EventPatternNode:
    """`text`: what the user wrote, for the message."""
    try:
        found = parse_quantifier(quantifier)
    except QuantifierError as error:
        where = "" if text == quantifier else f"{text!r}: "
        raise PatternError(f"{where}{error.message}", hint=error.hint) from None
    return OptionalPart(part) if found.text == "?" else Repeat(part, found.low, found.high)


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
            f"unknown {what} {name!r}",
            hint="choose one of " + ", ".join(f'"{known}"' for known in names),
        )
    return names[key]
