"""From the parsed PATTERN clause to pattern nodes, and what is known of its variables.

Everything that the compiler would refuse in the shape of a pattern is refused here already: here
its place in the text is known, and the hint can be written in SASE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from spark_cep.compiling.branches import build
from spark_cep.compiling.problems import Place, Problems
from spark_cep.errors import PatternError
from spark_cep.pattern import Node, Pattern, all_of, any_of, event, events, no, seq
from spark_cep.sql.sase_nodes import Combined, Declared, Negated, PatternNode, Repeated
from spark_cep.sql.sase_tokens import failed


@dataclass(frozen=True)
class Variable:
    """`always`: every match fills it. `branches`: the sides of ORs that it stands on, as (number
    of the OR, number of the side)."""

    declared: Declared
    negated: bool = False
    is_list: bool = False
    always: bool = True
    branches: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        return self.declared.name

    def excludes(self, other: Variable) -> bool:
        """Whether no match fills both."""
        mine = dict(self.branches)
        return any(mine.get(choice, side) != side for choice, side in other.branches)


def variables(node: PatternNode) -> list[Variable]:
    """The variables from left to right; raises an error for a shape that can have no match."""
    found = list(_variables(node, Variable(_NOBODY)))
    seen: dict[str, Variable] = {}
    for variable in found:
        first = seen.setdefault(variable.name.casefold(), variable)
        if first is not variable:
            _bound_twice(variable, first)
    if all(variable.negated for variable in found):
        hint = "add an event that is not negated: SEQ(A a, NOT(B b))"
        failed("the pattern has no event that must be there", node.place, hint)
    return found


_NOBODY = Declared("", "", Place("", 0, 0))


def _bound_twice(variable: Variable, first: Variable) -> None:
    name, declared = variable.name, variable.declared
    same = "" if first.name == name else f" (as {first.name}; case makes no difference)"
    example = f"{declared.type} {name}1, {declared.type} {name}2".lower() if declared.bare else ""
    hint = f"give each event a name of its own: {example or f'{declared.type} {name}2'}"
    failed(f"the variable {name} is bound twice{same}", declared.place, hint)


def _variables(node: PatternNode, so_far: Variable) -> Iterator[Variable]:
    """`so_far`: what holds for all below the node."""
    if isinstance(node, Declared):
        yield replace(so_far, declared=node)
    elif isinstance(node, Negated):
        yield from _variables(node.part, replace(so_far, negated=True))
    elif isinstance(node, Repeated):
        optional = node.quantifier in {"*", "?"} or node.quantifier.startswith(("{0", "{,"))
        is_list = so_far.is_list or node.quantifier != "?"
        below = replace(so_far, is_list=is_list, always=so_far.always and not optional)
        yield from _variables(node.part, below)
    elif isinstance(node, Combined):
        choice = node.kind == "any" and len(node.parts) > 1
        for side, part in enumerate(node.parts):
            branches = (*so_far.branches, (id(node), side)) if choice else so_far.branches
            always = so_far.always and not choice
            yield from _variables(part, replace(so_far, always=always, branches=branches))


# ---- nodes -------------------------------------------------------------------------------------


def tree(node: PatternNode, conditions: dict[str, str]) -> Pattern:
    """The pattern, with the condition of each variable's type."""
    if isinstance(node, Declared):
        return _event(node, conditions)
    if isinstance(node, Negated):
        if not isinstance(node.part, Declared):
            hint = "NOT takes one event: NOT(Stock x); write several NOTs for several"
            failed("NOT stands on more than one event", node.place, hint)
        return no(tree(node.part, conditions))
    if isinstance(node, Repeated):
        _check_body(node)
        return tree(node.part, conditions).times(node.quantifier)
    assert isinstance(node, Combined)
    if node.kind == "any":
        _check_sides(node)
    combine = {"seq": seq, "all": all_of, "any": any_of}[node.kind]
    return combine(*(tree(part, conditions) for part in node.parts))


def _event(node: Declared, conditions: dict[str, str]) -> Pattern:
    try:
        return event(node.name, conditions.get(node.name))
    except PatternError as error:
        failed(error.message, node.place, "a name is letters, digits and _")


def _check_body(node: Repeated) -> None:
    body = node.part
    hint = "a quantifier takes an event, A+ a, or a group of them, (A a, B b)+"
    if isinstance(body, Declared):
        return
    if isinstance(body, Negated):
        failed("a negated event has a quantifier", node.place, "write NOT(A a): no such row at all")
    if isinstance(body, Repeated):
        failed("two quantifiers stand on one part", node.place, "keep one of them")
    assert isinstance(body, Combined)
    if node.quantifier == "?":
        return
    if body.kind != "seq":
        failed("AND and OR cannot be repeated", node.place, hint)
    for part in body.parts:
        if isinstance(part, Combined | Repeated):
            failed("a repeated group contains more than events", part.place, hint)
    for part in (body.parts[0], body.parts[-1]):
        if isinstance(part, Negated):
            failed("NOT stands at the edge of a repeated group", part.place, hint)


def _check_sides(node: Combined) -> None:
    for part in node.parts:
        if isinstance(part, Negated):
            hint = "put it into a sequence: SEQ(A a, NOT(B b), C c) OR ..."
            failed("NOT stands directly in OR, where nothing bounds it", part.place, hint)


def check_bounds(node: PatternNode, pattern: Pattern, problems: Problems) -> None:
    """That every NOT is bounded by events or a window, and that something is always filled."""
    root: Node = pattern.root
    index = {each.name: number for number, (each, _) in enumerate(events(root))}
    within = pattern.window
    try:
        build(root, index, has_time_window=within is not None and within.events is None)
    except PatternError as error:
        place, hint = node.place, error.hint
        for negated in _negated(node):
            if error.message.startswith(f"NOT {negated.part.name} "):  # type: ignore[union-attr]
                place = negated.place
                hint = "add WITHIN 10 minutes, or put it between two events that are always there"
        problems.add(error.message, place, hint=hint)


def _negated(node: PatternNode) -> Iterator[Negated]:
    if isinstance(node, Negated):
        yield node
    elif isinstance(node, Repeated):
        yield from _negated(node.part)
    elif isinstance(node, Combined):
        for part in node.parts:
            yield from _negated(part)
