"""The automaton of skip till next match and strict: a state is what is left of the pattern.

A run decides by the rows it meets, so branches cannot be told apart beforehand. A state is the
pattern's residual after the variables taken so far, as with derivatives of regular expressions,
and is built when a run first reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from spark_cep.udfs.expressions import FOLDS, Cell, cells_of
from spark_cep.udfs.program import Condition, Program, Tree


@dataclass(frozen=True)
class RunState:
    """What is left of the pattern, which variables are filled, which conditions are pending.

    Every variable occurs once in the pattern, so a variable leads from a state to one state.
    Conditions with folds of a list are `pending` until a row is taken after the list was left;
    those still pending are tested on the finished match.
    """

    residual: Tree
    filled: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()

    @cached_property
    def accepts(self) -> bool:
        return _is_nullable(self.residual)


@dataclass(frozen=True)
class RunTransition:
    """Taking a row as `variable`.

    `local` conditions only read the last rows of variables, which a run holds; `whole`
    conditions need the lists, with the new row in them. `beside`: variables of the same iteration
    that have their row and no order with the new one, so that the rows may be tied.
    """

    variable: int
    target: RunState
    local: tuple[Condition, ...]
    whole: tuple[Condition, ...]
    beside: frozenset[int] = frozenset()


class RunAutomaton:
    """The states and transitions of a program, built when first reached."""

    def __init__(self, program: Program) -> None:
        self.program = program
        negated = {v for v, variable in enumerate(program.variables) if variable.negated}
        self.conditions = [c for c in program.conditions if not c.variables & negated]
        self.group_of = _repeat_groups(program.tree)
        self._ordered = _orders_in_groups(program.tree)
        folding = {i for i, c in enumerate(self.conditions) if self._folded_variables(c)}
        self.start = RunState(program.tree, pending=frozenset(folding))
        self._transitions: dict[RunState, tuple[RunTransition, ...]] = {}

    def transitions(self, state: RunState) -> tuple[RunTransition, ...]:
        if state not in self._transitions:
            self._transitions[state] = tuple(
                self._transition(state, variable, residual)
                for variable, residual in _open_variables(state.residual)
            )
        return self._transitions[state]

    def unfinished(self, state: RunState) -> list[Condition]:
        """The conditions that a finished match in this state still has to meet."""
        waiting = (self.conditions[i] for i in sorted(state.pending))
        return [c for c in waiting if c.variables <= state.filled]

    def group(self, variable: int) -> tuple[int, ...]:
        """The variables of the repeated group that it belongs to; itself if none."""
        return self.group_of.get(variable, (variable,))

    def _folded_variables(self, condition: Condition) -> set[int]:
        return {c.variable for c in cells_of(condition.expression) if c.reading in FOLDS}

    def _transition(self, state: RunState, variable: int, residual: Tree) -> RunTransition:
        filled = state.filled | {variable}
        reachable = _tree_variables(residual)
        # What is outside of repeats is left of the iteration that has begun.
        missing = _iteration_variables(residual)
        local: list[Condition] = []
        whole: list[Condition] = []
        pending = set(state.pending)
        for number, condition in enumerate(self.conditions):
            if not condition.variables <= filled:
                continue
            folded = self._folded_variables(condition)
            if folded:
                groups = {member for v in folded for member in self.group(v)}
                left = variable not in groups and not groups & reachable
                if left and (number in state.pending or variable in condition.variables):
                    whole.append(condition)
                    pending.discard(number)
            elif self._is_due(condition, variable, state, missing):
                (local if self._is_local(condition, variable) else whole).append(condition)
        target = RunState(residual, filled, frozenset(pending))
        beside = {
            other
            for other in set(self.group(variable)) - missing - {variable}
            if (other, variable) not in self._ordered
        }
        return RunTransition(variable, target, tuple(local), tuple(whole), frozenset(beside))

    def _is_due(
        self, condition: Condition, variable: int, state: RunState, missing: frozenset[int]
    ) -> bool:
        """Whether the new row decides the condition.

        Members of a group are paired by iteration, so the member that takes its row last of those
        that the condition names completes the pair; `prev` is not tested on a first element.
        """
        if variable not in condition.variables:
            return False
        group = self.group(variable)
        if condition.variables & set(group) & missing:
            return False
        looks_back = any(
            cell.reading == "prev" and cell.variable in group
            for cell in cells_of(condition.expression)
        )
        return not looks_back or variable in state.filled

    def _is_local(self, condition: Condition, variable: int) -> bool:
        group = self.group(variable)
        return all(v in group or not self.program.variables[v].is_list for v in condition.variables)


def elements_back(cell: Cell, variable: int) -> int:
    """Which element of its variable's list a cell of the new row's group reads, before the new row
    is added: 0 the last one, 1 the one before."""
    # The other members that the condition names already have their element of this iteration.
    return int(cell.reading == "prev" and cell.variable != variable)


def sequence_pairs(tree: Tree) -> frozenset[tuple[int, int]]:
    """Pairs of variables that are in sequence with one another, both ways round; list variables
    also with themselves and their group."""
    pairs: set[tuple[int, int]] = set()
    if tree.kind == "not":
        return frozenset()
    if tree.kind == "repeat":
        inside = _tree_variables(tree)
        pairs |= {(v, w) for v in inside for w in inside}
    for place, part in enumerate(tree.parts):
        pairs |= sequence_pairs(part)
        if tree.kind == "seq":
            for other in tree.parts[place + 1 :]:
                for v in _tree_variables(part):
                    for w in _tree_variables(other):
                        pairs |= {(v, w), (w, v)}
    return frozenset(pairs)


# ---- residuals of trees --------------------------------------------------------------------------


_EMPTY_TREE = Tree("seq")


def _is_nullable(tree: Tree) -> bool:
    if tree.kind == "event":
        return False
    if tree.kind in {"not", "optional"}:
        return True
    if tree.kind == "repeat":
        return tree.low == 0
    nullable = (_is_nullable(part) for part in tree.parts)
    return any(nullable) if tree.kind == "any" else all(nullable)


def _open_variables(tree: Tree) -> Iterator[tuple[int, Tree]]:
    """The variables that can come first in a tree, each with its residual."""
    if tree.kind == "event":
        yield tree.variable, _EMPTY_TREE
    elif tree.kind in {"any", "optional"}:
        for part in tree.parts:
            yield from _open_variables(part)
    elif tree.kind == "all":
        for place, part in enumerate(tree.parts):
            for variable, residual in _open_variables(part):
                parts = (*tree.parts[:place], residual, *tree.parts[place + 1 :])
                yield variable, replace(tree, parts=tuple(p for p in parts if _tree_variables(p)))
    elif tree.kind == "repeat":
        yield from _open_repeat(tree)
    elif tree.kind == "seq":
        for place, part in enumerate(tree.parts):
            for variable, residual in _open_variables(part):
                yield variable, _make_sequence((residual, *tree.parts[place + 1 :]))
            if not _is_nullable(part):
                break


def _open_repeat(tree: Tree) -> Iterator[tuple[int, Tree]]:
    if tree.high == 0:
        return
    high = None if tree.high is None else tree.high - 1
    rest = replace(tree, low=max(0, tree.low - 1), high=high)
    for variable, residual in _open_variables(tree.parts[0]):
        yield variable, _make_sequence((residual,) if high == 0 else (residual, rest))


def _make_sequence(parts: tuple[Tree, ...]) -> Tree:
    """A SEQ of the parts with variables: NOTs are tested on finished matches, by branch."""
    kept = tuple(part for part in parts if _tree_variables(part))
    return kept[0] if len(kept) == 1 else Tree("seq", parts=kept)


def _tree_variables(tree: Tree) -> frozenset[int]:
    if tree.kind == "event":
        return frozenset({tree.variable})
    if tree.kind == "not":
        return frozenset()
    return frozenset(v for part in tree.parts for v in _tree_variables(part))


def _iteration_variables(tree: Tree) -> frozenset[int]:
    """The variables outside of repeats."""
    if tree.kind == "repeat":
        return frozenset()
    if tree.kind == "event":
        return frozenset({tree.variable})
    return frozenset(v for part in tree.parts for v in _iteration_variables(part))


def _repeat_groups(tree: Tree) -> dict[int, tuple[int, ...]]:
    """For each variable of a repeated part, all variables of that part in the pattern's order."""
    if tree.kind == "repeat":
        members = tuple(sorted(_tree_variables(tree)))
        return dict.fromkeys(members, members)
    return {v: members for part in tree.parts for v, members in _repeat_groups(part).items()}


def _orders_in_groups(tree: Tree) -> frozenset[tuple[int, int]]:
    """Pairs of variables of one iteration that are in sequence, both ways round."""
    if tree.kind == "repeat":
        return sequence_pairs(tree.parts[0])
    return frozenset(pair for part in tree.parts for pair in _orders_in_groups(part))
