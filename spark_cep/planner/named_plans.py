"""Plans that name variables, as slots of each branch.

Such a plan names every positive variable once. In a branch that does not fill all of them, the rest
of the order or tree applies. The variables of a repeated group are bound together, at the place of
the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NoReturn

from spark_cep.errors import PlanError
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan, Plan, Shape

if TYPE_CHECKING:
    from spark_cep.plans import Names, PlanRequest
    from spark_cep.udfs.program import Branch, Variable


def check_plan_request(
    request: PlanRequest, variables: Sequence[Variable], branches: Sequence[Branch]
) -> None:
    """Checks that a plan names every positive variable once and nothing else; raises PlanError."""
    if request.order is not None:
        _check_names(request.order, variables, "chain")
    elif request.parts is not None:
        _check_names(tuple(_leaves(request.parts)), variables, "join tree")
    elif request.eager is not None:
        _check_names((*request.eager, *(request.lazy or ())), variables, "hybrid plan")
        eager = set(_ids_of(request.eager, variables))
        for slot in (slot for branch in branches for slot in branch.slots):
            if slot.is_group and eager & set(slot.variables):
                name = variables[min(eager & set(slot.variables))].name
                raise PlanError(
                    f"the hybrid plan has the eager variable {name!r}, which is part of a repeated "
                    "group",
                    hint="make it lazy; only single variables and lists of one variable can be "
                    "eager",
                )


def build_named_plan(
    request: PlanRequest, variables: Sequence[Variable], branches: Sequence[Branch]
) -> Plan | None:
    """The plan for a request that names all variables; None if the planner has a choice. A hybrid
    plan names only its groups, so the planner chooses how they are merged."""
    if request.order is not None:
        order = _ids_of(request.order, variables)
        orders = [slots_in_order(branch, order) for branch in branches]
        plans = [BranchPlan(left_deep_shape(each), fixed=True) for each in orders]
        return Plan("lazy-chain", tuple(plans))
    if request.parts is not None:
        shapes = [_branch_shape(request.parts, variables, branch) for branch in branches]
        return Plan("zstream", tuple(BranchPlan(shape, fixed=True) for shape in shapes))
    return None


def groups_of(
    request: PlanRequest, variables: Sequence[Variable], branch: Branch
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The eager slots in pattern order, and the lazy ones in the user's order."""
    eager = slots_in_order(branch, _ids_of(request.eager or (), variables))
    lazy = slots_in_order(branch, _ids_of(request.lazy or (), variables))
    return tuple(sorted(eager)), tuple(slot for slot in lazy if slot not in eager)


def slots_in_order(branch: Branch, order: Sequence[int]) -> tuple[int, ...]:
    """The slots of the branch in the order of their first variable."""
    slot_of = {v: number for number, slot in enumerate(branch.slots) for v in slot.variables}
    return tuple(dict.fromkeys(slot_of[v] for v in order if v in slot_of))


def _branch_shape(parts: Names, variables: Sequence[Variable], branch: Branch) -> Shape:
    order = _ids_of(tuple(_leaves(parts)), variables)
    first = {slot: place for place, slot in reversed(list(enumerate(_slots(order, branch))))}
    kept = {place: slot for slot, place in first.items() if slot >= 0}
    shape = _prune(parts, iter(range(len(order))), kept)
    assert shape is not None
    return shape


def _slots(order: Sequence[int], branch: Branch) -> Iterator[int]:
    slot_of = {v: number for number, slot in enumerate(branch.slots) for v in slot.variables}
    return (slot_of.get(v, -1) for v in order)


def _prune(parts: Names, places: Iterator[int], slots: dict[int, int]) -> Shape | None:
    """The tree without the leaves that the branch does not fill, or that are in an earlier slot."""
    if isinstance(parts, str):
        return slots.get(next(places))
    left, right = _prune(parts[0], places, slots), _prune(parts[1], places, slots)
    if left is None or right is None:
        return right if left is None else left
    return left, right


def _leaves(parts: Names) -> Iterator[str]:
    if isinstance(parts, str):
        yield parts
    else:
        for part in parts:
            yield from _leaves(part)


def _ids_of(names: Sequence[str], variables: Sequence[Variable]) -> tuple[int, ...]:
    ids = {each.name.casefold(): number for number, each in enumerate(variables)}
    return tuple(ids[name.casefold()] for name in names)


def _check_names(names: Sequence[str], variables: Sequence[Variable], what: str) -> tuple[int, ...]:
    """The variable ids; raises PlanError unless every positive variable is named once."""
    ids = {each.name.casefold(): number for number, each in enumerate(variables)}
    wanted = [number for number, each in enumerate(variables) if not each.negated]
    found: list[int] = []
    for name in names:
        number = ids.get(name.casefold())
        if number is None:
            _raise_mismatch(
                what, f"names {name!r}, which is not a variable of the pattern", variables
            )
        if number not in wanted:
            _raise_mismatch(what, f"names {name!r}, which is negated", variables)
        if number in found:
            _raise_mismatch(what, f"names {name!r} twice", variables)
        found.append(number)
    missing = [variables[number].name for number in wanted if number not in found]
    if missing:
        _raise_mismatch(what, f"omits {', '.join(missing)}", variables)
    return tuple(found)


def _raise_mismatch(what: str, problem: str, variables: Sequence[Variable]) -> NoReturn:
    names = [f'"{each.name}"' for each in variables if not each.negated]
    raise PlanError(
        f"the {what} {problem}",
        hint=f"name every positive variable once, for example {_example(what, names)}",
    )


def _example(what: str, names: Sequence[str]) -> str:
    if what == "chain":
        return f"cep.plans.chain({', '.join(names)})"
    if what == "join tree":
        return f"cep.plans.join({reduce('({}, {})'.format, names)})"
    return f"cep.plans.hybrid(eager=[{names[0]}], lazy=[{', '.join(names[1:])}])"
