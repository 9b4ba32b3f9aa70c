"""The plans a user may ask for: names and plan objects.

A plan changes how long an answer takes, never the answer. What a plan names is checked against
the pattern in `planning/forced.py`, once the pattern's variables are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Union

from spark_cep.errors import PlanError

Kind = Literal["auto", "eager", "lazy-chain", "tree", "zstream", "hybrid"]
KINDS: tuple[Kind, ...] = ("auto", "eager", "lazy-chain", "tree", "zstream", "hybrid")
# How a row pattern is matched: from row to row, or by joins of what stands between its gaps.
RowPlan = Literal["auto", "walk", "gaps"]
ROW_PLANS: tuple[RowPlan, ...] = ("auto", "walk", "gaps")
# A join tree over variable names.
Names = Union[str, tuple["Names", "Names"]]  # noqa: UP007 - a name in quotes needs Union


@dataclass(frozen=True)
class PlanRequest:
    """A plan as the user asked for it. `order` names the variables of a chain, `parts` the join
    tree, `eager` and `lazy` the two groups of a hybrid plan; all None: the planner's choice
    among plans of this kind."""

    kind: Kind
    order: tuple[str, ...] | None = None
    parts: Names | None = None
    eager: tuple[str, ...] | None = None
    lazy: tuple[str, ...] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the planner has something to decide."""
        return self.kind != "eager" and (self.order, self.parts, self.eager) == (None, None, None)


def eager() -> PlanRequest:
    """Binds the variables in the order of the pattern."""
    return PlanRequest("eager")


def lazy_chain() -> PlanRequest:
    """Binds the variables in the order that makes the fewest partial matches."""
    return PlanRequest("lazy-chain")


def chain(*names: str) -> PlanRequest:
    """Binds the variables in the order given, every positive variable once.

    >>> chain("c", "b", "a").order
    ('c', 'b', 'a')
    """
    if not names:
        raise PlanError("chain() names no variable", hint='cep.plans.chain("c", "b", "a")')
    return PlanRequest("lazy-chain", order=_check_names(names, "chain"))


def tree() -> PlanRequest:
    """Each partial match goes on with the variable that has the fewest events in its scope."""
    return PlanRequest("tree")


def zstream() -> PlanRequest:
    """The cheapest binary tree of joins over the pattern."""
    return PlanRequest("zstream")


def join(parts: object, *right: object) -> PlanRequest:
    """Joins in the tree given: pairs of names and pairs. The left side of a pair is walked, the
    right one is found first and looked up. The two sides of the last join may be given by
    themselves: `join("a", "b")`.

    >>> join((("a", "b"), "c")).parts
    (('a', 'b'), 'c')
    >>> join(("a", "b"), "c") == join((("a", "b"), "c"))
    True
    """
    return PlanRequest("zstream", parts=_check_tree((parts, *right) if right else parts))


def hybrid(*, eager: Sequence[str] | None = None, lazy: Sequence[str] | None = None) -> PlanRequest:
    """Evaluates one group of variables as events come and keeps its partial matches; the others
    wait for the final event. Every positive variable is in one of the two; the lazy ones are
    merged in the order given. Without groups the planner chooses them.

    >>> hybrid(eager=["b", "c"], lazy=["a", "d"]).eager
    ('b', 'c')
    """
    if eager is None and lazy is None:
        return PlanRequest("hybrid")
    groups = [_check_names(group or (), "hybrid") for group in (eager, lazy)]
    return PlanRequest("hybrid", eager=groups[0], lazy=groups[1])


def read_plan_request(plan: object) -> PlanRequest:
    """What `plan=` takes: a name or a plan object.

    >>> read_plan_request("lazy-chain")
    PlanRequest(kind='lazy-chain', order=None, parts=None, eager=None, lazy=None)
    """
    if isinstance(plan, PlanRequest):
        return plan
    for kind in KINDS:
        if plan == kind:
            return PlanRequest(kind)
    if plan in ROW_PLANS:
        raise PlanError(
            f"plan={plan!r} is for row patterns",
            hint="leave it out, or see cep.plans for those of event patterns",
        )
    names = ", ".join(f'"{kind}"' for kind in KINDS)
    if callable(plan):
        raise PlanError(
            "plan= has a function, not the plan that it makes",
            hint='call it: plan=cep.plans.tree(), plan=cep.plans.chain("c", "b")',
        )
    raise PlanError(
        f"{plan!r} is no plan",
        hint=f'plan is one of {names}, or an object: cep.plans.chain("c", "b")',
    )


def read_row_plan(plan: object) -> RowPlan:
    """What `plan=` takes for a row pattern.

    >>> read_row_plan("gaps")
    'gaps'
    """
    found = next((each for each in ROW_PLANS if plan == each), None)
    if found is None:
        raise PlanError(
            f"{plan!r} is no plan of a row pattern: that plan= is for event patterns",
            hint='leave it out, or ask for plan="walk", from row to row, or plan="gaps", which '
            "joins what stands between gaps: r z* b z* m",
        )
    return found


def _check_names(names: object, what: str) -> tuple[str, ...]:
    found = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (None,)
    if not all(isinstance(name, str) for name in found):
        raise PlanError(
            f"{what} takes names of variables, not {names!r}",
            hint='cep.plans.chain("c", "b"), cep.plans.hybrid(eager=["b"], lazy=["a", "c"])',
        )
    return tuple(str(name) for name in found)


def _check_tree(parts: object) -> Names:
    if isinstance(parts, str):
        return parts
    if isinstance(parts, tuple | list) and len(parts) == 2:
        return _check_tree(parts[0]), _check_tree(parts[1])
    raise PlanError(
        f"{parts!r} is no join of two parts",
        hint='a join is a pair of names and pairs: cep.plans.join((("a", "b"), "c"))',
    )
