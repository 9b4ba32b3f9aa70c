"""The steps of a branch: the scope of each next slot, and what is tested when.

A step depends on the set of bound slots, not on their order, so steps are compiled when a walk
first reaches them: a chain reaches one for each slot, a tree NFA as many of its 2^n as the data
leads to. Every condition is tested in exactly one place on any way through: as an equality of an
index, on each new element, on a complete list, inside a negation, or in a group's body. Bounds
only narrow the scope and their condition stays a test, so a bound may be generous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from spark_cep.udfs.comparisons import (
    CellBound,
    CellEquality,
    as_bound,
    as_equality,
    evaluation_cost,
)
from spark_cep.udfs.expressions import FOLDS, cells_of, remote_sources_of

if TYPE_CHECKING:
    from spark_cep.udfs.program import Branch, Condition, Negation, Program


GroupBody = tuple["Branch", "tuple[Condition, ...]"]


@dataclass(frozen=True)
class NegationCheck:
    """A negation with its conditions, tested when all that it reads is bound.

    `inside`: slots whose own rows may lie in the forbidden range, where they never block. `group`:
    for a NOT inside a repeated group, the slot in whose elements it is tested. `occurrence`: for a
    NOT of a group, the group and the conditions among its own variables; `tests` and `equalities`
    are then those that also read variables of the match.
    """

    negation: Negation
    tests: tuple[Condition, ...]
    equalities: tuple[CellEquality, ...]
    inside: tuple[int, ...] = ()
    group: int | None = None
    occurrence: GroupBody | None = None

    @cached_property
    def negated_reads(self) -> frozenset[int]:
        """The negated variables that the conditions with variables of the match read."""
        conditions = (*self.tests, *(each.condition for each in self.equalities))
        return self.negation.variables & frozenset(v for c in conditions for v in c.variables)


@dataclass(frozen=True)
class Step:
    """Binds the slots of `unit`: one, or those of a join whose partial matches are found first.

    `slot` is the one whose rows are looked up; `after` and `before` are the bound slots nearest to
    it in the order, `unordered` those that have no order with it, so that a row could be taken
    twice. A join also tests `orders`, pairs (earlier, later), and `apart`, pairs of slots that
    could take the same row.
    """

    unit: frozenset[int]
    slot: int
    after: tuple[int, ...]
    before: tuple[int, ...]
    unordered: tuple[int, ...]
    equalities: tuple[CellEquality, ...]
    bounds: tuple[CellBound, ...]
    tests: tuple[Condition, ...]
    on_complete: tuple[Condition, ...]
    negations: tuple[NegationCheck, ...]
    orders: tuple[tuple[int, int], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()


class BranchSteps:
    """The steps of one branch, compiled on demand.

    `bodies`: for each repeated group's slot, the branch and the conditions that can be decided
    within one iteration. `minimal` and `maximal`: the slots that may hold the first and the last
    row of a match.
    """

    def __init__(self, branch: Branch, program: Program, conditions: Sequence[Condition]) -> None:
        self.branch = branch
        self._compiler = _StepCompiler(branch, program, conditions)
        self.bodies = self._compiler.bodies
        self._steps: dict[tuple[frozenset[int], frozenset[int]], Step] = {}
        slots = range(len(branch.slots))
        before = {earlier for earlier, _ in branch.precedes}
        after = {later for _, later in branch.precedes}
        self.minimal = frozenset(slot for slot in slots if slot not in after)
        self.maximal = tuple(slot for slot in slots if slot not in before)

    def step(self, bound: frozenset[int], unit: frozenset[int]) -> Step:
        """The step that extends partial matches of the slots `bound` by those of `unit`."""
        key = bound, unit
        if key not in self._steps:
            self._steps[key] = self._compiler.step(bound, unit)
        return self._steps[key]

    @cached_property
    def negations(self) -> tuple[NegationCheck, ...]:
        """The checks of a complete match, but for those within an iteration."""
        return tuple(self._compiler.checks_of(self.branch.negations))

    @cached_property
    def covered(self) -> tuple[tuple[NegationCheck, ...], ...]:
        return tuple(tuple(self._compiler.checks_of(n)) for n in self.branch.covered)


def compile_negation_checks(branch: Branch, program: Program) -> list[NegationCheck]:
    """All negations of the branch, those inside repeated groups included, for finished matches."""
    return _StepCompiler(branch, program, program.conditions).all_checks()


class _StepCompiler:
    def __init__(self, branch: Branch, program: Program, conditions: Sequence[Condition]) -> None:
        self.branch = branch
        self.program = program
        self.slot_of = {v: i for i, slot in enumerate(branch.slots) for v in slot.variables}
        negated = {v for v, variable in enumerate(program.variables) if variable.negated}
        # In the branch of a negated group its own variables are those that are bound.
        negated -= branch.filled()
        self.negative = [c for c in conditions if c.variables & negated]
        self.positive = [
            c for c in conditions if not c.variables & negated and c.variables <= branch.filled()
        ]

        self.bodies = {
            number: tuple(self._body(number, body) for body in slot.bodies)
            for number, slot in enumerate(branch.slots)
            if slot.is_group
        }
        inner = [c for bodies in self.bodies.values() for _, inside in bodies for c in inside]
        self._tested = [(c, self._slots(c)) for c in self.positive if c not in inner]
        self._checks = [(c, self._needs(c)) for c in self.checks_of(branch.negations)]

    def step(self, bound: frozenset[int], unit: frozenset[int]) -> Step:
        total = bound | unit

        def is_decided(slots: set[int]) -> bool:
            # Conditions on the unit alone were tested while its partial matches were found.
            alone = len(unit) > 1 and slots <= unit
            return slots <= total and not (bound and slots <= bound) and not alone

        ready = [c for c, slots in self._tested if is_decided(slots)]
        negations = tuple(check for check, needs in self._checks if is_decided(needs))
        if len(unit) > 1:
            return self._join(bound, unit, ready, negations)
        (slot,) = unit
        on_complete = tuple(c for c in ready if self._folds(c, slot))
        each = [c for c in ready if c not in on_complete]
        equalities, tests = _split_equalities(each, lambda c: self._equality(c, slot))
        return Step(
            unit,
            slot,
            *self._neighbours(slot, bound),
            equalities,
            tuple(b for c in tests if (b := self._bound(c, slot)) is not None),
            tuple(sorted(tests, key=evaluation_cost)),
            on_complete,
            negations,
        )

    def _neighbours(
        self, slot: int, bound: frozenset[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        precedes = self.branch.precedes
        earlier = {other for other in bound if (other, slot) in precedes}
        later = {other for other in bound if (slot, other) in precedes}
        return (
            tuple(o for o in earlier if not any((o, p) in precedes for p in earlier)),
            tuple(o for o in later if not any((p, o) in precedes for p in later)),
            tuple(sorted(bound - earlier - later)),
        )

    # ---- joins ---------------------------------------------------------------------------------

    def _join(
        self,
        bound: frozenset[int],
        unit: frozenset[int],
        ready: Sequence[Condition],
        negations: tuple[NegationCheck, ...],
    ) -> Step:
        slot = self._anchor(bound, unit)
        equalities, tests = _split_equalities(ready, lambda c: self._join_equality(c, bound, unit))
        precedes = self.branch.precedes
        orders = tuple(
            pair
            for pair in sorted(precedes)
            if (pair[0] in bound and pair[1] in unit) or (pair[0] in unit and pair[1] in bound)
        )
        apart = tuple(
            (mine, theirs)
            for mine in sorted(bound)
            for theirs in sorted(unit)
            if not {(mine, theirs), (theirs, mine)} & precedes
        )
        after, before, unordered = self._neighbours(slot, bound)
        tests = sorted(tests, key=evaluation_cost)
        return Step(
            unit, slot, after, before, unordered, equalities, (), tuple(tests), (), negations,
            orders, apart,
        )  # fmt: skip

    def _anchor(self, bound: frozenset[int], unit: frozenset[int]) -> int:
        """The slot of the unit with the tightest scope; its rows are looked up."""

        def tightness(slot: int) -> tuple[int, bool, int]:
            after, before, _ = self._neighbours(slot, bound)
            return bool(after) + bool(before), not self.branch.slots[slot].is_list, -slot

        return max(unit, key=tightness)

    def _join_equality(
        self, condition: Condition, bound: frozenset[int], unit: frozenset[int]
    ) -> CellEquality | None:
        def is_bound(variable: int) -> bool:
            return self._is_plain(variable) and self.slot_of[variable] in bound

        for variable in sorted(condition.variables):
            if self._is_at_end(condition):
                break
            if self._is_plain(variable) and self.slot_of[variable] in unit:
                found = as_equality(condition, variable, is_bound)
                if found is not None:
                    return found
        return None

    # ---- conditions ----------------------------------------------------------------------------

    def _slots(self, condition: Condition) -> set[int]:
        return {self.slot_of[v] for v in condition.variables if v in self.slot_of}

    def _body(self, number: int, body: Branch) -> tuple[Branch, tuple[Condition, ...]]:
        inner = tuple(n for n in body.negations if self._in_iteration(n, number))
        negated = {v for negation in inner for v in negation.variables}
        conditions = [c for c in self.positive if self._in_body(c, number)]
        conditions += [c for c in self.negative if c.variables & negated]
        return replace(body, negations=inner), tuple(conditions)

    def _in_body(self, condition: Condition, number: int) -> bool:
        return condition.variables <= set(self.branch.slots[number].variables) and all(
            cell.reading == "each" for cell in cells_of(condition.expression)
        )

    def _folds(self, condition: Condition, slot: int) -> bool:
        return any(
            cell.reading in FOLDS and self.slot_of.get(cell.variable) == slot
            for cell in cells_of(condition.expression)
        )

    def _equality(self, condition: Condition, slot: int) -> CellEquality | None:
        return (
            None
            if self.branch.slots[slot].is_group or self._is_at_end(condition)
            else as_equality(condition, self.branch.slots[slot].variables[0], self._is_plain)
        )

    def _is_at_end(self, condition: Condition) -> bool:
        """Whether the condition's remote data is fetched only for complete matches."""
        remotes = self.program.remotes
        return any(remotes[r].strategy == "post" for r in remote_sources_of(condition.expression))

    def _is_plain(self, variable: int) -> bool:
        return variable in self.slot_of and not self.branch.slots[self.slot_of[variable]].is_list

    def _bound(self, condition: Condition, slot: int) -> CellBound | None:
        if self.branch.slots[slot].is_group:
            return None
        variable = self.branch.slots[slot].variables[0]
        return as_bound(condition, variable, self._is_plain, ansi=self.program.ansi)

    # ---- negations -----------------------------------------------------------------------------

    def checks_of(self, negations: Sequence[Negation]) -> list[NegationCheck]:
        checks = [self._check(negation, None) for negation in negations]
        for number, slot in enumerate(self.branch.slots):
            for negation in (n for body in slot.bodies for n in body.negations):
                if not self._in_iteration(negation, number):
                    checks.append(self._check(negation, number))
        return checks

    def all_checks(self) -> list[NegationCheck]:
        checks = [self._check(negation, None) for negation in self.branch.negations]
        return checks + [
            self._check(negation, number)
            for number, slot in enumerate(self.branch.slots)
            for body in slot.bodies
            for negation in body.negations
        ]

    def _in_iteration(self, negation: Negation, group: int) -> bool:
        """Whether one iteration decides the negation: no condition reads beyond it, and no slot
        without order to the group can have rows inside."""
        members = {*self.branch.slots[group].variables, *negation.variables}
        return not self._unordered(group) and all(
            cell.reading == "each" and cell.variable in members
            for condition in self._tests_of(negation)
            for cell in cells_of(condition.expression)
        )

    def _unordered(self, slot: int) -> tuple[int, ...]:
        return tuple(
            other
            for other in range(len(self.branch.slots))
            if other != slot and not {(slot, other), (other, slot)} & self.branch.precedes
        )

    def _tests_of(self, negation: Negation) -> list[Condition]:
        """The conditions on the negated variables whose other variables this branch fills."""
        return [
            c
            for c in self.negative
            if negation.variables & c.variables
            and c.variables - negation.variables <= self.branch.filled()
        ]

    def _check(self, negation: Negation, group: int | None) -> NegationCheck:
        tests, occurrence = self._tests_of(negation), None
        if negation.group is not None:
            among = [c for c in tests if c.variables <= negation.variables]
            tests = [c for c in tests if c not in among]
            occurrence = negation.group, tuple(among)
        equalities, others = _split_equalities(
            tests, lambda c: self._negated_equality(c, negation) if group is None else None
        )
        inside = self._inside(negation) if group is None else self._unordered(group)
        ordered = tuple(sorted(others, key=evaluation_cost))
        return NegationCheck(negation, ordered, equalities, inside, group, occurrence)

    def _negated_equality(self, condition: Condition, negation: Negation) -> CellEquality | None:
        found = (
            as_equality(condition, variable, self._is_plain)
            for variable in sorted(negation.variables & condition.variables)
        )
        return next((each for each in found if each is not None), None)

    def _inside(self, negation: Negation) -> tuple[int, ...]:
        """Slots that neither bound the negation nor lie beyond one that does."""
        outside = {*negation.after, *negation.before}
        outside |= {s for s, other in self.branch.precedes if other in negation.after}
        outside |= {s for other, s in self.branch.precedes if other in negation.before}
        return tuple(s for s in range(len(self.branch.slots)) if s not in outside)

    def _needs(self, check: NegationCheck) -> set[int]:
        conditions = {
            self.slot_of[cell.variable]
            for c in check.tests
            for cell in cells_of(c.expression)
            if cell.variable in self.slot_of
        }
        conditions |= {
            self.slot_of[cell.variable] for e in check.equalities for cell in cells_of(e.bound)
        }
        if check.group is not None:
            return conditions | {check.group} | set(check.inside)
        if check.negation.place != "between":
            return set(range(len(self.branch.slots)))
        around = {*check.negation.after, *check.negation.before}
        return conditions | around | set(check.inside)


def _split_equalities(
    conditions: Sequence[Condition], read: Callable[[Condition], CellEquality | None]
) -> tuple[tuple[CellEquality, ...], list[Condition]]:
    pairs = [(condition, read(condition)) for condition in conditions]
    return (
        tuple(equality for _, equality in pairs if equality is not None),
        [condition for condition, equality in pairs if equality is None],
    )
