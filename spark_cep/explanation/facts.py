"""Typed views of the facts of explain, for drawings and tables.

The facts are plain data and may come from elsewhere, a log for example. What is missing in them has
a default: a plan without branches is one branch that binds the variables in `order`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

# The name of a variable, or a join of its left and right side.
PlanShape = Union[str, tuple["PlanShape", "PlanShape"]]  # noqa: UP007
PlanFacts = Mapping[str, Any]
# The unit of estimates for the whole input.
IN_ALL = "in all"
# How the planner writes a plan that each worker makes from its own counts.
_OWN_COUNTS = "own counts"


@dataclass(frozen=True)
class StepFacts:
    """A step of the plan.

    It adds the variables `binds`, after which `bound` are bound. `pairs` and `partials` are what it
    is expected to test and to leave, `conditions` what it tests. The last step leaves matches.
    """

    binds: tuple[str, ...]
    bound: tuple[str, ...]
    key: str = ""
    pairs: float | None = None
    partials: float | None = None
    conditions: tuple[str, ...] = ()
    is_last: bool = False

    @property
    def starts(self) -> bool:
        """Whether the step only finds candidates for the next one."""
        return self.binds == self.bound


@dataclass(frozen=True)
class BranchFacts:
    """The plan for a branch of the pattern.

    `variables` are in the order of the pattern; a repeated group is one of them, called "(a b)".
    `shape` None: the order is decided when the data is seen.
    """

    variables: tuple[str, ...]
    shape: PlanShape | None
    eager: tuple[str, ...] = ()
    nodes: tuple[StepFacts, ...] = ()

    def node(self, names: Sequence[str]) -> StepFacts | None:
        """The step after which exactly `names` are bound."""
        return next((each for each in self.nodes if set(each.bound) == set(names)), None)

    def names_of(self, key: str) -> tuple[str, ...]:
        """The variables in the key of a step: "0:1,2" has the second and the third."""
        slots = [int(slot) for slot in key.partition(":")[2].split(",") if slot]
        return tuple(self.variables[slot] for slot in slots if slot < len(self.variables))


def plan_branches(facts: PlanFacts) -> tuple[BranchFacts, ...]:
    """The branches of the plan.

    >>> plan_branches({"order": ["c", "b", "a"]})[0].shape
    (('c', 'b'), 'a')
    """
    found = facts.get("branches")
    if not found:
        order = tuple(facts["order"])
        return (BranchFacts(order, left_deep_shape(order)),)
    return tuple(map(_read_branch, found))


def left_deep_shape(parts: Sequence[PlanShape]) -> PlanShape | None:
    """A tree that joins the parts from left to right; None without parts."""
    joined: PlanShape | None = None
    for part in parts:
        joined = part if joined is None else (joined, part)
    return joined


def shape_leaves(shape: PlanShape) -> tuple[str, ...]:
    if isinstance(shape, str):
        return (shape,)
    return shape_leaves(shape[0]) + shape_leaves(shape[1])


def is_chain(shape: PlanShape) -> bool:
    """Whether the variables are bound one by one."""
    return isinstance(shape, str) or (isinstance(shape[1], str) and is_chain(shape[0]))


def candidate_rates(facts: PlanFacts) -> Mapping[str, float]:
    """The candidates of each variable in a window of a key."""
    statistics = facts.get("statistics") or {}
    found: Mapping[str, float] = statistics.get("rates") or {}
    return found


def cost_unit(facts: PlanFacts) -> str:
    """The unit of costs as it follows a number; empty if they are for the whole input."""
    found = facts.get("unit") or IN_ALL
    return "" if found == IN_ALL else f" {found}"


def condition_selectivities(facts: PlanFacts) -> list[tuple[str, float | None]]:
    """Each condition, and the share of the combinations that meets it."""
    found = (facts.get("statistics") or {}).get("selectivities") or []
    return [(each["condition"], each["selectivity"]) for each in found]


def group_members(name: str) -> list[str]:
    """The variables of a repeated group; a single variable is itself.

    >>> group_members("(a b)"), group_members("c")
    (['a', 'b'], ['c'])
    """
    return name.strip("()").split()


def negated_variables(facts: PlanFacts) -> list[str]:
    """The variables that no branch binds."""
    slots = {name for branch in plan_branches(facts) for name in branch.variables}
    bound = {name for slot in slots for name in group_members(slot)}
    return [name for name in facts["before"]["candidates"] if name not in bound]


def negated_groups(facts: PlanFacts) -> list[Mapping[str, Any]]:
    """The parts of the pattern that are NOTs of groups."""

    def find(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if part.get("kind") == "not" and "text" in part:
            yield part
        for inner in part.get("parts") or ():
            yield from find(inner)

    return list(find(facts.get("parts") or {}))


def binds_late(facts: PlanFacts) -> bool:
    """Whether a plan decides the order. Under other strategies runs take rows as they come."""
    return str(facts["strategy"]).startswith("skip till any")


def plan_title(facts: PlanFacts) -> str:
    """The plan in one line, as Spark's own explain names it.

    >>> plan_title({"plan": "tree", "shown": "tree"})
    'tree'
    >>> plan_title({"plan": "eager", "order": ["a", "b"]})
    'eager a→b'
    >>> plan_title({"plan": "zstream", "shown": "own counts"})
    'zstream, by the counts of each bucket'
    """
    named = _plan_name(facts["plan"], facts.get("shown") or "→".join(facts["order"]))
    return f"{named}{_group_text(facts)}"


def _group_text(facts: PlanFacts) -> str:
    """What the order does not show of a hybrid plan that has only one group.

    >>> _group_text({"plan": "hybrid", "order": ["a", "b"]}), _group_text({"plan": "eager"})
    (', all bound late', '')
    """
    if facts["plan"] != "hybrid":
        return ""
    every = plan_branches(facts)
    if not any(branch.eager for branch in every):
        return ", all bound late"
    is_eager = all(set(branch.eager) == set(branch.variables) for branch in every)
    return ", all kept ready" if is_eager else ""


def rejected_plans(facts: PlanFacts) -> Iterator[tuple[str, float | None, str]]:
    """Name, cost and reason of each plan that was not chosen."""
    for each in facts["rejected"]:
        yield _plan_name(each["plan"], each.get("shown") or ""), each.get("cost"), each["reason"]


def _plan_name(kind: str, shown: str) -> str:
    if shown == _OWN_COUNTS:
        return f"{kind}, by the counts of each bucket"
    return kind if shown in {"", kind} else f"{kind} {shown}"


def _read_shape(given: Any) -> PlanShape:
    if isinstance(given, str):
        return given
    shape = left_deep_shape([_read_shape(part) for part in given])
    assert shape is not None, "a join of nothing"
    return shape


def _read_branch(given: Mapping[str, Any]) -> BranchFacts:
    shape = None if given["shape"] is None else _read_shape(given["shape"])
    branch = BranchFacts(tuple(given["variables"]), shape, tuple(given.get("eager") or ()))
    return replace(
        branch, nodes=tuple(_read_step(each, branch) for each in given.get("nodes") or ())
    )


def _read_step(each: Mapping[str, Any], branch: BranchFacts) -> StepFacts:
    bound = branch.names_of(each["key"])
    return StepFacts(
        tuple(each["binds"]),
        bound,
        each["key"],
        each.get("pairs"),
        each.get("partials"),
        tuple(each.get("conditions") or ()),
        len(bound) == len(branch.variables),
    )
