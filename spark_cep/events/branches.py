"""Branches: an event pattern as a union of conjunctive patterns.

A branch decides each OR and fills or omits each optional part. What remains is a set of slots under
a partial order, which a plan may bind in any sequence. Nested SEQs are flattened after these
choices, so a NOT is bounded by the nearest parts that the branch fills. The run engine
(skip-till-next, strict) uses the tree instead, because its choices depend on the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Literal

from spark_cep.errors import PatternError
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
    iter_events,
)
from spark_cep.udfs.program import Branch, Negation, Slot, Tree

# Each branch is planned and matched separately; a pattern with more of them is a mistake.
MAX_BRANCHES = 4096


def build_branches(
    root: EventPatternNode, index: Mapping[str, int], *, has_time_window: bool
) -> tuple[Tree, tuple[Branch, ...]]:
    """The tree over variable ids, and the branches whose union is the answer; raises
    PatternError."""
    tree = _tree(root, index)
    names = {number: name for name, number in index.items()}
    choices, empty_choices = _counts(tree)
    if choices - empty_choices > MAX_BRANCHES:
        raise PatternError(
            f"the pattern has more than {MAX_BRANCHES} combinations of optional parts and "
            "alternatives",
            hint="use fewer optional parts and any_of, or split the pattern in two",
        )
    branches = [
        _branch(choice, names, has_time_window=has_time_window)
        for choice in _choices(tree)
        if choice.tree is not None and _positives(choice.tree)
    ]
    if not branches:
        raise PatternError(
            "the pattern has no variable that binds a row",
            hint='add a variable that is not negated: seq("a", no("b"))',
        )
    return tree, _make_disjoint(branches)


# ---- nodes to tree -------------------------------------------------------------------------------


def _tree(node: EventPatternNode, index: Mapping[str, int]) -> Tree:
    if isinstance(node, Event):
        return Tree("event", variable=index[node.name])
    if isinstance(node, NoEvent):
        return Tree("not", variable=index[node.event.name])
    if isinstance(node, NoGroup):
        return Tree("not", parts=(_tree(node.part, index),))
    if isinstance(node, AnyOf):
        _check_any(node)
    if isinstance(node, Repeat):
        _check_body(node.part)
    parts = tuple(_tree(child, index) for child in children(node))
    if isinstance(node, Repeat):
        return Tree("repeat", parts=parts, low=node.low, high=node.high)
    if isinstance(node, OptionalPart):
        return Tree("optional", parts=parts)
    return Tree({Seq: "seq", AllOf: "all", AnyOf: "any"}[type(node)], parts=parts)  # type: ignore[arg-type]


def _check_any(node: AnyOf) -> None:
    for part in node.parts:
        if isinstance(part, NoEvent | NoGroup):
            name = _negated_names(part)
            raise PatternError(
                f"NOT {name} is an alternative of any_of, so nothing bounds it",
                hint='put it into a sequence: any_of(seq("a", no(...), "b"), ...)'
                if isinstance(part, NoGroup)
                else f'put it into a sequence: any_of(seq("a", "!{name}", "b"), ...)',
            )


def _negated_names(node: NoEvent | NoGroup) -> str:
    """As messages name it: x, or (x, y) for a group."""
    names = [event.name for event, _ in iter_events(node)]
    return names[0] if isinstance(node, NoEvent) else f"({', '.join(names)})"


def _check_body(body: EventPatternNode) -> None:
    """Checks that a repeated part consists of plain variables in sequence or in any order, with
    NOTs between them, or of alternatives that are such groups without NOTs."""
    if isinstance(body, Event):
        return
    if isinstance(body, AnyOf):
        for part in body.parts:
            _check_alternative(part)
        return
    if not isinstance(body, Seq | AllOf):
        raise PatternError(f"a quantifier cannot be applied to {_describe(body)}", hint=_BODY_HINT)
    _check_members(body)


_BODY_HINT = (
    'a quantifier applies to a variable ("b+") or to a group of plain variables: seq or all_of, '
    'with NOTs between them, or any_of: seq("a", "!x", "b").times("+"), all_of("a", "b").times("+")'
)


_CHOICE_HINT = (
    "repeat the alternatives as a whole, each with variables of its own: "
    'any_of(seq("a1", "b"), seq("a2", "c")).times("+")'
)


_ALTERNATIVE_HINT = (
    "an alternative of a repeated any_of is a variable or a group of plain variables: "
    'any_of(seq("b", "c"), "d").times("+")'
)


def _check_alternative(part: EventPatternNode) -> None:
    if isinstance(part, AnyOf | Seq | AllOf):
        for inner in part.parts:
            if isinstance(inner, AnyOf) and not isinstance(part, AnyOf):
                raise PatternError("a repeated group cannot contain any_of", hint=_CHOICE_HINT)
            _check_alternative(inner)
    elif not isinstance(part, Event):
        raise PatternError(
            f"a repeated any_of cannot contain {_describe(part)}", hint=_ALTERNATIVE_HINT
        )


def _check_members(body: Seq | AllOf) -> None:
    for part in body.parts:
        if isinstance(part, Seq | AllOf):
            _check_members(part)
        elif not isinstance(part, Event | NoEvent | NoGroup):
            raise PatternError(
                f"a repeated group cannot contain {_describe(part)}",
                hint=_CHOICE_HINT if isinstance(part, AnyOf) else _BODY_HINT,
            )


def _describe(node: EventPatternNode) -> str:
    names = {
        NoEvent: "a NOT", NoGroup: "a NOT", Repeat: "another quantified part",
        OptionalPart: "an optional part", Seq: "a sequence", AllOf: "all_of", AnyOf: "any_of",
    }  # fmt: skip
    return names.get(type(node), "a variable")


# ---- choices -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BranchChoice:
    """A tree without "any", "optional" and repeats of 0; None if no part remains. `empty`: the
    variables whose lists are empty."""

    tree: Tree | None
    empty: frozenset[int] = frozenset()


def _choices(tree: Tree) -> Iterator[_BranchChoice]:
    if tree.kind in {"event", "not"}:
        # The alternatives of a NOT are no choice: none of them may occur.
        yield _BranchChoice(tree)
    elif tree.kind == "any":
        for part in tree.parts:
            yield from _choices(part)
    elif tree.kind == "optional":
        yield from _choices(tree.parts[0])
        yield _BranchChoice(None)
    elif tree.kind == "repeat":
        yield _BranchChoice(replace(tree, low=max(1, tree.low)))
        if tree.low == 0:
            yield _BranchChoice(None, frozenset(_positives(tree)))
    else:
        for chosen in product(*(list(_choices(part)) for part in tree.parts)):
            parts = tuple(choice.tree for choice in chosen if choice.tree is not None)
            empty = frozenset[int]().union(*(choice.empty for choice in chosen))
            yield _BranchChoice(_flatten(tree, parts) if parts else None, empty)


def _counts(tree: Tree) -> tuple[int, int]:
    """The number of choices of a tree, and of those that bind no row; counted before any is
    built."""
    if tree.kind == "event":
        return 1, 0
    if tree.kind == "not":
        return 1, 1
    if tree.kind == "repeat":
        may_be_empty = int(tree.low == 0)
        return 1 + may_be_empty, may_be_empty
    parts = [_counts(part) for part in tree.parts]
    if tree.kind == "optional":
        return parts[0][0] + 1, parts[0][1] + 1
    join = sum if tree.kind == "any" else prod
    return join(each for each, _ in parts), join(empty for _, empty in parts)


def _flatten(tree: Tree, parts: tuple[Tree, ...]) -> Tree:
    if tree.kind == "seq":
        parts = tuple(
            inner for part in parts for inner in (part.parts if part.kind == "seq" else (part,))
        )
    return replace(tree, parts=parts)


def _positives(tree: Tree) -> list[int]:
    if tree.kind == "event":
        return [tree.variable]
    if tree.kind == "not":
        return []
    return [v for part in tree.parts for v in _positives(part)]


# ---- one choice to one branch --------------------------------------------------------------------


class _SlotCollector:
    """Collects slots, order and negations of one choice in one traversal."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.precedes: set[tuple[int, int]] = set()
        self.negations: list[Negation] = []

    def add(self, tree: Tree) -> tuple[int, ...]:
        """Adds the tree and returns the slots it fills."""
        if tree.kind == "event":
            return self._slot(Slot((tree.variable,)))
        if tree.kind == "not":
            return ()
        if tree.kind == "repeat":
            return self._repeat(tree)
        filled = [self.add(part) for part in tree.parts]
        if tree.kind == "seq":
            for i, earlier in enumerate(filled):
                for later in filled[i + 1 :]:
                    self.precedes.update(product(earlier, later))
        for place, part in enumerate(tree.parts):
            if part.kind == "not":
                before, after = filled[place + 1 :], filled[:place]
                in_sequence = tree.kind == "seq"
                earlier = next((s for s in reversed(after) if s), ()) if in_sequence else ()
                later = next((s for s in before if s), ()) if in_sequence else ()
                self.negations += _negations(part, earlier, later)
        return tuple(slot for slots in filled for slot in slots)

    def _slot(self, slot: Slot) -> tuple[int, ...]:
        self.slots.append(slot)
        return (len(self.slots) - 1,)

    def _repeat(self, tree: Tree) -> tuple[int, ...]:
        bodies = tuple(_body(choice) for choice in _choices(tree.parts[0]))
        variables = tuple(v for body in bodies for slot in body.slots for v in slot.variables)
        if len(variables) == 1 and not bodies[0].negations:
            bodies = ()
        return self._slot(Slot(variables, tree.low, tree.high, is_list=True, bodies=bodies))


def _body(choice: _BranchChoice) -> Branch:
    """One iteration of a repeated group; of an OR, one that takes this alternative."""
    inner = _SlotCollector()
    assert choice.tree is not None
    inner.add(choice.tree)
    return Branch(tuple(inner.slots), frozenset(inner.precedes), tuple(inner.negations))


def _negations(tree: Tree, after: tuple[int, ...], before: tuple[int, ...]) -> Iterator[Negation]:
    """The negations of one NOT: that no alternative of a group occurs is a NOT of each."""
    place = _PLACES[bool(after), bool(before)]
    if not tree.parts:
        yield Negation(tree.variable, place, after, before)
        return
    for choice in _choices(tree.parts[0]):
        assert choice.tree is not None
        collector = _SlotCollector()
        collector.add(choice.tree)
        slots = collector.slots
        group = Branch(tuple(slots), frozenset(collector.precedes)) if len(slots) > 1 else None
        yield Negation(slots[0].variables[0], place, after, before, group)


_PLACES: Mapping[tuple[bool, bool], Literal["between", "start", "end", "around"]] = {
    (True, True): "between",
    (False, True): "start",
    (True, False): "end",
    (False, False): "around",
}


def _branch(choice: _BranchChoice, names: Mapping[int, str], *, has_time_window: bool) -> Branch:
    collector = _SlotCollector()
    assert choice.tree is not None
    collector.add(choice.tree)
    for slot in collector.slots:
        _check_iteration(slot, names)
    if not has_time_window:
        for negation in collector.negations:
            if negation.place != "between":
                raise _unbounded_error(names, negation)
    return Branch(
        tuple(collector.slots),
        frozenset(collector.precedes),
        tuple(collector.negations),
        choice.empty,
    )


def _check_iteration(slot: Slot, names: Mapping[int, str]) -> None:
    """Checks that an iteration bounds all NOTs within it."""
    for negation in (n for body in slot.bodies for n in body.negations):
        if negation.place != "between":
            name = _negation_name(negation, names)
            where = (
                "in all_of within" if negation.place == "around" else "the first or last part of"
            )
            raise PatternError(f"NOT {name} cannot be {where} a repeated group", hint=_BODY_HINT)


def _negation_name(negation: Negation, names: Mapping[int, str]) -> str:
    if negation.group is None:
        return names[negation.variable]
    return f"({', '.join(names[v] for v in sorted(negation.variables))})"


def _unbounded_error(names: Mapping[int, str], negation: Negation) -> PatternError:
    name = _negation_name(negation, names)
    where = {
        "start": "at the start of the pattern (or after parts that may be empty)",
        "end": "at the end of the pattern (or before parts that may be empty)",
        "around": "in all_of",
    }[negation.place]
    return PatternError(
        f"NOT {name} is {where}, which needs a time window",
        hint=f'add .within("10 minutes"), or put NOT {name} between two parts that are never empty',
    )


def _make_disjoint(branches: list[Branch]) -> tuple[Branch, ...]:
    """Makes branches disjoint that fill the same variables (by empty parts of different ORs).

    Such branches differ only in their negations. A branch whose negations include those of another
    adds no matches; otherwise the later one omits the matches of the earlier one (`covered`).
    """
    kept: list[Branch] = []
    for branch in branches:
        negations = frozenset(branch.negations)
        same_filled = [other for other in kept if other.filled() == branch.filled()]
        if any(frozenset(other.negations) <= negations for other in same_filled):
            continue
        for other in same_filled:
            if negations <= frozenset(other.negations):
                kept.remove(other)
        covered = tuple(other.negations for other in kept if other.filled() == branch.filled())
        kept.append(replace(branch, covered=covered))
    return tuple(kept)
