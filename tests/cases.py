"""A differential case: a pattern with rows, and its text as code that makes it again.

What hypothesis reports when it fails is `repr(case)`: it can be pasted into a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.pattern import (
    AnyOf,
    Event,
    EventPatternNode,
    NoEvent,
    NoGroup,
    OptionalPart,
    Pattern,
    Repeat,
    Seq,
)
from tests.reference.choices import choices, positives

if TYPE_CHECKING:
    from hypothesis.vendor.pretty import RepresentationPrinter

    from spark_cep.udfs.expressions import TypeKind
    from tests.reference.expressions import Value

# The columns of every case and their types, as `Type` fields. `u` is different in every row.
COLUMNS: dict[str, TypeKind] = {
    "t": "int",
    "u": "int",
    "k": "int",
    "x": "int",
    "f": "float",
    "kind": "string",
}


@dataclass(frozen=True, repr=False)
class Case:
    pattern: Pattern
    rows: Sequence[Mapping[str, Value]]
    order_by: tuple[str, ...] = ("t",)
    partition_by: tuple[str, ...] = ("k",)

    def __repr__(self) -> str:
        rows = "".join(f"        {dict(row)!r},\n" for row in self.rows)
        return (
            f"Case(\n    {code(self.pattern)},\n    [\n{rows}    ],\n"
            f"    order_by={self.order_by!r},\n    partition_by={self.partition_by!r},\n)"
        )

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: bool) -> None:
        printer.text(repr(self))


def code(pattern: Pattern) -> str:
    """
    >>> from spark_cep.pattern import event, seq
    >>> print(code(seq("a", event("b+", "x > a.x")).where("a.x = 1").within(3)))
    seq(event('a'), event('b', 'x > a.x').times('{1,}')).where('a.x = 1').within(3)
    """
    text = _code(pattern.root)
    if pattern.conditions:
        text += f".where({', '.join(map(repr, pattern.conditions))})"
    if pattern.window is not None:
        window = pattern.window
        text += (
            f".within({window.duration if window.events is None else f'events={window.events}'})"
        )
    if pattern.selection is not None:
        names = {"any": "skip till any match", "next": "skip till next match"}
        text += f".strategy({names.get(pattern.selection, pattern.selection)!r})"
    if pattern.consuming is not None:
        text += f".consumption({pattern.consuming!r})"
    return text


def _code(node: EventPatternNode) -> str:
    if isinstance(node, Event):
        return f"event({', '.join(map(repr, filter(None, (node.name, node.condition))))})"
    if isinstance(node, NoEvent):
        return f"no({_code(node.event)})"
    if isinstance(node, NoGroup):
        return f"no({_code(node.part)})"
    if isinstance(node, OptionalPart):
        return f"{_code(node.part)}.optional()"
    if isinstance(node, Repeat):
        quantifier = f"{{{node.low},{'' if node.high is None else node.high}}}"
        return f"{_code(node.part)}.times({quantifier!r})"
    name = {"Seq": "seq", "AllOf": "all_of", "AnyOf": "any_of"}[type(node).__name__]
    return f"{name}({', '.join(map(_code, node.parts))})"


def needs_time_window(root: EventPatternNode) -> bool:
    """Whether some way to fill the pattern leaves a NOT without a filled part on both sides."""
    return any(c.tree is not None and _has_open_not(c.tree) for c in choices(root))


def _has_open_not(tree: EventPatternNode) -> bool:
    if isinstance(tree, Event | NoEvent | NoGroup):
        return False
    if isinstance(tree, Repeat | OptionalPart):
        return _has_open_not(tree.part)
    filled = [bool(positives(part)) for part in tree.parts]
    return any(
        not (isinstance(tree, Seq) and any(filled[:place]) and any(filled[place + 1 :]))
        if isinstance(part, NoEvent | NoGroup)
        else _has_open_not(part)
        for place, part in enumerate(tree.parts)
    )


def may_be_empty(node: EventPatternNode) -> bool:
    return any(not choice.filled() for choice in choices(node))


def has_two_readings(node: EventPatternNode) -> bool:
    """Whether a part that may be empty stands in an OR or an optional part: then one assignment
    of rows can be read in two ways, with [] or with NULL."""
    if isinstance(node, Event | NoEvent | NoGroup):
        return False
    parts = (node.part,) if isinstance(node, Repeat | OptionalPart) else node.parts
    alone = isinstance(node, AnyOf | OptionalPart) and any(may_be_empty(part) for part in parts)
    return alone or any(has_two_readings(part) for part in parts)
