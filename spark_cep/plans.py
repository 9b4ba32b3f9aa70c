"""The values of `plan=`: names of plans, and plans that name the variables of the pattern.

A plan changes how long an answer takes, never the answer. The variables that a plan names are
checked in `planner/named_plans.py`, where those of the pattern are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, Union

from spark_cep.errors import PlanError

if TYPE_CHECKING:
    from spark_cep.udfs.program import PlannerName

__all__ = ["chain", "eager", "hybrid", "join", "lazy_chain", "tree", "zstream"]

PlanName = Literal["auto", "eager", "lazy-chain", "tree", "zstream", "hybrid"]
PLAN_NAMES: tuple[PlanName, ...] = ("auto", "eager", "lazy-chain", "tree", "zstream", "hybrid")
# The algorithms that decide the shape of a plan, and the kinds of plans that each of them makes.
PLANNER_KINDS: dict[PlannerName, tuple[PlanName, ...]] = {
    "dp": ("lazy-chain", "zstream"),
    "greedy": ("lazy-chain",),
    "zstream": ("zstream",),
    "local-search": ("lazy-chain",),
}
# How a row pattern is matched: from row to row, or by joins of the parts between its gaps.
RowPlan = Literal["auto", "walk", "gaps"]
ROW_PLANS: tuple[RowPlan, ...] = ("auto", "walk", "gaps")
# A join tree over variable names.
Names = Union[str, tuple["Names", "Names"]]  # noqa: UP007 - a name in quotes needs Union


@dataclass(frozen=True)
class PlanRequest:
    """A plan for an event pattern, made by the functions of `cep.plans`.

    `order` names the variables of a chain, `parts` the join tree, `eager` and `lazy` the two
    groups of a hybrid plan. If all of them are None, `planner` decides among plans of this kind.
    """

    kind: PlanName
    order: tuple[str, ...] | None = None
    parts: Names | None = None
    eager: tuple[str, ...] | None = None
    lazy: tuple[str, ...] | None = None
    planner: PlannerName = "dp"

    @property
    def is_open(self) -> bool:
        """Whether the planner has something to decide."""
        return self.kind != "eager" and (self.order, self.parts, self.eager) == (None, None, None)


# What `plan=` takes.
PlanOption = PlanName | RowPlan | PlanRequest


def eager() -> PlanRequest:
    """A plan that binds the variables in the order of the pattern.

    Returns:
        The plan, for `plan=`. `plan="eager"` is the same.

    Example:
        >>> eager().kind
        'eager'
    """
    return PlanRequest("eager")


def lazy_chain() -> PlanRequest:
    """A plan that binds the variables in the order that makes the fewest partial matches.

    Returns:
        The plan, for `plan=`. `plan="lazy-chain"` is the same.

    Example:
        >>> lazy_chain().kind
        'lazy-chain'
    """
    return PlanRequest("lazy-chain")


def chain(*names: str) -> PlanRequest:
    """A plan that binds the variables in a given order.

    Args:
        *names: Every positive variable of the pattern once.

    Returns:
        The plan, for `plan=`.

    Raises:
        PlanError: There is no name, or one of them is not text.

    Example:
        >>> chain("c", "b", "a").order
        ('c', 'b', 'a')
    """
    if not names:
        raise PlanError(
            "chain() needs the names of the variables", hint='cep.plans.chain("c", "b", "a")'
        )
    return PlanRequest("lazy-chain", order=_check_names(names, "chain"))


def tree() -> PlanRequest:
    """A plan in which each partial match chooses its next variable: the one with the fewest
    events in its scope.

    Returns:
        The plan, for `plan=`. `plan="tree"` is the same.

    Example:
        >>> tree().kind
        'tree'
    """
    return PlanRequest("tree")


def zstream() -> PlanRequest:
    """The cheapest binary tree of joins over the pattern.

    Returns:
        The plan, for `plan=`. `plan="zstream"` is the same.

    Example:
        >>> zstream().kind
        'zstream'
    """
    return PlanRequest("zstream")


def join(parts: object, *right: object) -> PlanRequest:
    """A plan that joins the variables in a given tree.

    The partial matches of the left side of a join are extended one by one; those of the right side
    are found first and looked up.

    Args:
        parts: A pair of names and pairs, `(("a", "b"), "c")`, or the left side of the last join.
        *right: The right side of the last join, if `parts` is its left side.

    Returns:
        The plan, for `plan=`.

    Raises:
        PlanError: A part is neither a name nor a pair.

    Example:
        >>> join((("a", "b"), "c")).parts
        (('a', 'b'), 'c')
        >>> join(("a", "b"), "c") == join((("a", "b"), "c"))
        True
    """
    return PlanRequest("zstream", parts=_check_tree((parts, *right) if right else parts))


def hybrid(*, eager: Sequence[str] | None = None, lazy: Sequence[str] | None = None) -> PlanRequest:
    """A plan that keeps the partial matches of some variables ready and binds the others late.

    Every positive variable is in one of the two groups. Without groups the planner chooses them.

    Args:
        eager: The variables that are matched as events arrive; their partial matches are kept.
        lazy: The variables that wait for the final event, in the order in which they are merged.

    Returns:
        The plan, for `plan=`.

    Raises:
        PlanError: A group is not a sequence of names.

    Example:
        >>> hybrid(eager=["b", "c"], lazy=["a", "d"]).eager
        ('b', 'c')
    """
    if eager is None and lazy is None:
        return PlanRequest("hybrid")
    groups = [_check_names(group or (), "hybrid") for group in (eager, lazy)]
    return PlanRequest("hybrid", eager=groups[0], lazy=groups[1])


def read_plan_request(plan: object, planner: object = "dp") -> PlanRequest:
    """The plan that `plan=` gives for an event pattern, a name or a plan object, and the planner
    that decides what it leaves open.

    >>> read_plan_request("lazy-chain", "greedy").planner
    'greedy'
    """
    request, name = _read_plan(plan), _read_planner(planner)
    if name == "dp":
        return request
    kinds = PLANNER_KINDS[name]
    shown = " or ".join(f'plan="{kind}"' for kind in kinds)
    if not request.is_open:
        raise PlanError(
            f'planner="{name}" has nothing to decide: plan= gives the whole order',
            hint=f"leave planner= out, or let it choose with {shown}",
        )
    if request.kind not in ("auto", *kinds):
        able = [each for each, made in PLANNER_KINDS.items() if request.kind in made]
        others = " or ".join(f'planner="{each}"' for each in able)
        raise PlanError(
            f'planner="{name}" makes no plan of the kind {request.kind!r}',
            hint=f"write {shown}" + (f", or {others}" if able else ", or leave planner= out"),
        )
    return replace(request, planner=name)


def _read_planner(planner: object) -> PlannerName:
    for name in PLANNER_KINDS:
        if planner == name:
            return name
    names = ", ".join(f'"{name}"' for name in PLANNER_KINDS)
    nearest = get_close_matches(str(planner).lower(), PLANNER_KINDS, 1, 0.5)
    meant = f'did you mean "{nearest[0]}"? ' if nearest else ""
    raise PlanError(f"unknown planner {planner!r}", hint=f"{meant}planner is one of {names}")


def _read_plan(plan: object) -> PlanRequest:
    if isinstance(plan, PlanRequest):
        return plan
    for name in PLAN_NAMES:
        if plan == name:
            return PlanRequest(name)
    names = ", ".join(f'"{name}"' for name in PLAN_NAMES)
    if plan in ROW_PLANS:
        raise PlanError(
            f"plan={plan!r} is for row patterns", hint=f"event patterns have the plans {names}"
        )
    if callable(plan):
        raise PlanError(
            "plan= takes a plan, not the function that makes it",
            hint='call the function: plan=cep.plans.tree(), plan=cep.plans.chain("c", "b")',
        )
    raise PlanError(
        f"unknown plan {plan!r}",
        hint=f'plan is one of {names}, or an object: cep.plans.chain("c", "b")',
    )


def read_row_plan(plan: object) -> RowPlan:
    """The plan that `plan=` gives for a row pattern.

    >>> read_row_plan("gaps")
    'gaps'
    """
    found = next((each for each in ROW_PLANS if plan == each), None)
    if found is None:
        raise PlanError(
            f"row patterns have no plan {plan!r}",
            hint='leave it out, or write plan="walk", from row to row, or plan="gaps", which joins '
            "the parts between gaps, as in r z* b z* m",
        )
    return found


def _check_names(names: object, plan: str) -> tuple[str, ...]:
    found = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (None,)
    if not all(isinstance(name, str) for name in found):
        raise PlanError(
            f"{plan} takes names of variables, not {names!r}",
            hint='cep.plans.chain("c", "b"), cep.plans.hybrid(eager=["b"], lazy=["a", "c"])',
        )
    return tuple(str(name) for name in found)


def _check_tree(parts: object) -> Names:
    if isinstance(parts, str):
        return parts
    if isinstance(parts, tuple | list) and len(parts) == 2:
        return _check_tree(parts[0]), _check_tree(parts[1])
    raise PlanError(
        f"{parts!r} is not a pair",
        hint='a join is a pair of names and pairs: cep.plans.join((("a", "b"), "c"))',
    )
