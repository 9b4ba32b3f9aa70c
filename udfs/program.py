"""The program of an event pattern, which the driver compiles and ships: frozen, plain data.

The shipped events are an Arrow table with the columns of `Program.columns`. A program refers to
them by index: partition keys (already canonical, so that equal keys are equal values), order
columns, the candidate mask (bit v set: this row may be variable v), hoisted expressions and the
payload of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Literal, Union

from spark_cep.udfs.errors import PatternError
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.expressions import Expression, Type
    from spark_cep.udfs.remote_spec import RemoteSpec


Strategy = Literal["any", "next", "strict"]
Consumption = Literal["reuse", "consume"]


@dataclass(frozen=True)
class Order:
    """One order column. The first one is the event time."""

    column: int
    type: Type
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Window:
    """WITHIN. `size` counts input rows for "events"; for "time" it is in the unit of the first
    order column as shipped: microseconds for timestamps, days for dates, plain numbers (int,
    float, or unscaled int for decimals) otherwise."""

    kind: Literal["time", "events"]
    size: int | float


@dataclass(frozen=True)
class Variable:
    """A variable of the pattern. `is_list`: the result has an array of its rows."""

    name: str
    negated: bool = False
    is_list: bool = False


@dataclass(frozen=True)
class Condition:
    """A conjunct over several variables. `text`: as the user wrote it, for explain and errors."""

    expression: Expression
    text: str
    variables: frozenset[int]


@dataclass(frozen=True)
class Slot:
    """The unit that a plan orders: one variable, or the members of a repeated group.

    A list slot is bound to `low`..`high` elements; an element of a group is one match of one of
    `bodies`, of which a repeated OR has several and any other group one. A body has the order and
    the NOTs of one iteration.
    """

    variables: tuple[int, ...]
    low: int = 1
    high: int | None = 1
    is_list: bool = False
    bodies: tuple[Branch, ...] = ()

    @property
    def is_group(self) -> bool:
        return bool(self.bodies)

    @property
    def has_alternatives(self) -> bool:
        """Whether it repeats an OR: an element has rows for the variables of one of the bodies."""
        return len(self.bodies) > 1


@dataclass(frozen=True)
class Negation:
    """No row of `variable` between the latest row of slots `after` and the earliest of `before`.

    place "between": both are given. "start": no `after`; the window before the latest event is the
    bound. "end": no `before`; the window after the earliest event is. "around" (inside AND):
    neither is given, both windows bound it.

    With `group`, no occurrence of the group lies there: no rows that meet its conditions and its
    order, all of them in the range, within one window. `variable` is the group's first one.
    """

    variable: int
    place: Literal["between", "start", "end", "around"]
    after: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    group: Branch | None = None

    @property
    def variables(self) -> frozenset[int]:
        """The negated variables."""
        return frozenset({self.variable}) if self.group is None else self.group.filled()


@dataclass(frozen=True)
class Branch:
    """One way to fill the pattern: every OR decided, every optional part filled or dropped.

    `precedes` is transitive: (i, j) means that every row of slot i is before every row of slot j.
    `empty` are the list variables matched as the empty list. `covered`: a match for which all
    negations of one of these tuples hold is already a match of an earlier branch that fills the
    same variables.
    """

    slots: tuple[Slot, ...]
    precedes: frozenset[tuple[int, int]]
    negations: tuple[Negation, ...] = ()
    empty: frozenset[int] = frozenset()
    covered: tuple[tuple[Negation, ...], ...] = ()

    def filled(self) -> frozenset[int]:
        return frozenset(v for slot in self.slots for v in slot.variables)


# ---- the pattern as a tree, for skip till next match and strict --------------------------------


@dataclass(frozen=True)
class Tree:
    """A node of the pattern.

    kind "event": `variable`. "not": `variable`, or one part, a group. "seq", "all", "any": `parts`.
    "repeat": one part, `low`..`high` times (high None: no limit), binding lists. "optional": one
    part or nothing.
    """

    kind: Literal["event", "not", "seq", "all", "any", "repeat", "optional"]
    variable: int = -1
    parts: tuple[Tree, ...] = ()
    low: int = 1
    high: int | None = 1


@public
@dataclass(frozen=True)
class Limits:
    """Counts and times at which a query ends with a LimitError. None: no limit.

    Args:
        partial_matches: Of one partition key, partial matches whose earliest events are in one
            period as long as the window.
        matches: The same for matches.
        backtracking_steps: Of a row pattern, steps of the search in one partition. A step takes
            8 to 19 ns; what takes longer counts as several. None: four billion, about a minute.
        rows: Rows that a stream keeps for one partition key.
        seconds: Time that one task spends matching: a bucket in a batch, a bucket in a trigger of
            a stream. Time in which Spark takes the answer is not counted.
        pairs: Of an event pattern, pairs of a partial match and a row that are tested, counted as
            partial matches are.

    Raises:
        PatternError: A limit is not a whole number above 0; `seconds` may have a fraction.

    Example:
        >>> Limits(matches=1_000_000, seconds=600).seconds
        600
    """

    partial_matches: int | None = 20_000_000
    matches: int | None = 100_000_000
    backtracking_steps: int | None = None
    rows: int | None = None
    seconds: float | None = None
    pairs: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_time = name == "seconds"
            kinds = (int, float) if is_time else int
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 < value < inf):
                what, example = ("number", "600") if is_time else ("whole number", "1_000_000")
                raise PatternError(
                    f"the limit {name} is {value!r}",
                    hint=f"a limit is a {what} above 0: cep.Limits({name}={example}), or "
                    "None for no limit",
                )


# ---- plans -------------------------------------------------------------------------------------

# The order in which the slots of a branch are joined: a slot's number, or (left, right). Left is
# walked depth first; each of its partial matches is tried with the candidates of right, which is a
# slot, or a join whose partial matches are found first. ((2, 1), 0) is the chain 2, 1, 0.
Shape = Union[int, tuple["Shape", "Shape"]]  # noqa: UP007 - a name in quotes needs Union

PlanKind = Literal["eager", "lazy-chain", "tree", "zstream", "hybrid"]
# The algorithm that decides the shape of a plan.
PlannerName = Literal["dp", "greedy", "zstream", "local-search"]

# What a stream's choice of kept partial matches makes small: the time from the last event of a
# match to the match, the time of all triggers, or the first while triggers keep up.
Objective = Literal["balanced", "latency", "throughput"]


@dataclass(frozen=True)
class BranchPlan:
    """The plan of one branch.

    `shape` None: a tree NFA, in which each partial match goes on with the slot that has the fewest
    events in its own scope. `eager`: slots, in pattern order, whose partial matches are kept in the
    state between advances; two or more of them are one subtree of the shape. `fixed`: every advance
    runs this very shape; otherwise one whose new rows are few may begin with them.
    """

    shape: Shape | None
    eager: tuple[int, ...] = ()
    fixed: bool = False


@dataclass(frozen=True)
class Plan:
    """One BranchPlan for each branch of the program.

    `branches` None: each bucket makes its own, for "eager" in the order of the pattern, for
    "lazy-chain" and "zstream" from its own counts.
    """

    kind: PlanKind
    branches: tuple[BranchPlan, ...] | None = None


@dataclass(frozen=True)
class StreamLoad:
    """What the triggers of a stream bring to a bucket: `events`, the candidates of one trigger, and
    `arrivals`, those of each variable in a second; None before there were two triggers. `is_idle`:
    matching takes a small part of the time between triggers."""

    events: float
    arrivals: Mapping[int, float] | None = None
    is_idle: bool = True


@dataclass(frozen=True)
class Estimates:
    """Statistics of the data.

    `rates`: candidates of each variable in one window of one key. `windows`: the number of such
    windows. `selectivities`: for each condition, by its place in `Program.conditions`, the share of
    combinations that it keeps; unknown where missing. `places`: the rates of single windows, to see
    whether one plan is good for all of them.

    `joint`: for pairs of conditions that are not independent, the factor between the share that
    both keep and the product of their selectivities. `errors`: the relative standard errors of
    selectivities that were measured on a sample. `load`: of a stream.
    """

    rates: Mapping[int, float]
    selectivities: Mapping[int, float] = field(default_factory=dict)
    windows: float = 1.0
    places: tuple[Mapping[int, float], ...] = ()
    joint: Mapping[frozenset[int], float] = field(default_factory=dict)
    errors: Mapping[int, float] = field(default_factory=dict)
    load: StreamLoad | None = None


@dataclass(frozen=True)
class Adaptation:
    """When the plan is replaced between advances.

    `threshold`: the relative change of a statistic that counts as a change. `k`: invariants kept
    for each block of a plan, None for all. `distance`: by how much an invariant must be violated.
    `to_tree`: a tree NFA may be chosen where the rarest variable changes within an advance.
    `to_hybrid`: on a stream, partial matches may be kept from trigger to trigger.
    """

    kind: Literal["off", "always", "threshold", "invariants"] = "off"
    threshold: float = 0.3
    k: int | None = 1
    distance: float | Literal["auto", "meta"] = "auto"
    to_tree: bool = False
    to_hybrid: bool = False


@dataclass(frozen=True)
class PartialState:
    """A row for `slot` meets partial matches of `branch` in which the slots of `bound` are filled.
    `length`: the elements that the slot's list has before, as far as they are told apart."""

    branch: int
    bound: frozenset[int]
    slot: int
    length: int = 0


@dataclass(frozen=True)
class DroppingRule:
    """What is not followed, so that matching takes less time (`udfs/events/dropping.py`).

    `drops` "pairs": rows are not offered to partial matches; "partials": partial matches go no
    further. `kept`: the share that stays in a state, by the time between rows in equal parts of the
    window; of other states the share `others` stays. A hash of the rows, with `seed`, decides.
    """

    drops: Literal["pairs", "partials"]
    kept: Mapping[PartialState, tuple[float, ...]] = field(default_factory=dict)
    others: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Program:
    """An event pattern compiled for the engine.

    `home`: where time slices copy rows, the boolean column that is TRUE where a row is in its own
    slice. A match belongs to the slice in which its latest row is at home; others are dropped. The
    slice is then the last of the `keys`. `adaptation`, `estimates` and `costs`: whether the plan
    may change between advances, and what it was made from. `planner`: what makes the plans that
    are made while it runs. `remotes`: the remote sources that conditions read. `optimize`: what a
    stream's plan makes small. `dropping`: what is not followed, under load shedding.
    """

    columns: tuple[str, ...]
    keys: tuple[int, ...]
    orders: tuple[Order, ...]
    mask: int
    variables: tuple[Variable, ...]
    conditions: tuple[Condition, ...]
    tree: Tree
    branches: tuple[Branch, ...]
    plan: Plan
    window: Window | None = None
    strategy: Strategy = "any"
    consumption: Consumption = "reuse"
    limits: Limits = Limits()
    block_pairs: int = 1 << 17
    ansi: bool = True
    home: int | None = None
    adaptation: Adaptation = Adaptation()
    estimates: Estimates | None = None
    costs: OperationCosts | None = None
    remotes: tuple[RemoteSpec, ...] = ()
    planner: PlannerName = "dp"
    optimize: Objective = "balanced"
    dropping: DroppingRule | None = None
