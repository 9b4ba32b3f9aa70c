"""The choice of a matcher for a row pattern: a pure function from facts to a choice with a reason.

"walk" goes from row to row. "gaps" joins the rows of the single variables and skips the rows
between them. Both give the same answer. The choice is a ladder of named rungs, as in choice.py,
without a cost model: if a condition connects the joined rows, joins are chosen; if none does,
walking remembers what failed and takes a few steps for each row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from spark_cep.errors import PlanError
from spark_cep.planner.choice import RejectedPlan
from spark_cep.udfs.comparisons import as_bound, as_equality
from spark_cep.udfs.program import Condition
from spark_cep.udfs.rows.gaps.pattern import GapPattern, recognize_gaps

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_cep.plans import RowPlan
    from spark_cep.udfs.row_program import MatcherKind, RowProgram
    from spark_cep.udfs.rows.gaps.pattern import JoinConjunct


@dataclass(frozen=True)
class MatcherFacts:
    """`plan_request`: the matcher that the user requested."""

    program: RowProgram
    plan_request: RowPlan = "auto"
    in_batch: bool = True

    @cached_property
    def gap_pattern(self) -> GapPattern | str:
        if not self.in_batch:
            return "a stream is matched as rows arrive"
        return recognize_gaps(self.program)

    def names(self, variables: list[int]) -> str:
        """
        >>> from types import SimpleNamespace as Any
        >>> program = Any(variables=[Any(name="r"), Any(name="b"), Any(name="m")])
        >>> MatcherFacts(program).names([0, 1, 2])
        'r, b and m'
        """
        *first, last = [self.program.variables[each].name for each in dict.fromkeys(variables)]
        return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class MatcherChoice:
    """`shown`: the order in which the rows of a match are found."""

    matcher: MatcherKind
    shown: str
    rung: str
    reason: str
    rejected: tuple[RejectedPlan, ...] = ()


def choose_matcher(facts: MatcherFacts) -> MatcherChoice:
    """The matcher of a row pattern; raises PlanError if the requested one cannot match it."""
    choice = next(found for rung in MATCHER_LADDER if (found := rung(facts)) is not None)
    shown = _IN_ROW_ORDER if choice.matcher == "walk" else _describe_points(facts)
    return replace(choice, shown=shown, rejected=(_rejected_matcher(facts, choice),))


_IN_ROW_ORDER = "in row order"


def _describe_points(facts: MatcherFacts) -> str:
    assert isinstance(facts.gap_pattern, GapPattern)
    names = [facts.program.variables[point.variable].name for point in facts.gap_pattern.points]
    return " → ".join(names)


def _rejected_matcher(facts: MatcherFacts, choice: MatcherChoice) -> RejectedPlan:
    if choice.matcher == "gaps":
        why = "scans all rows of a gap for each possible first row"
        return RejectedPlan("walk", "", None, "not requested" if choice.rung == "forced" else why)
    if isinstance(facts.gap_pattern, str):
        return RejectedPlan("gaps", "", None, facts.gap_pattern)
    why = "no condition connects the rows that would be joined"
    return RejectedPlan("gaps", "", None, "not requested" if choice.rung == "forced" else why)


def _join_point_names(facts: MatcherFacts) -> str:
    assert isinstance(facts.gap_pattern, GapPattern)
    return facts.names([point.variable for point in facts.gap_pattern.points])


# ---- the ladder ----------------------------------------------------------------------------------


def _choose_forced(facts: MatcherFacts) -> MatcherChoice | None:
    if facts.plan_request == "auto":
        return None
    if facts.plan_request == "gaps" and isinstance(facts.gap_pattern, str):
        raise PlanError(
            f'plan="gaps" cannot match this pattern: {facts.gap_pattern}',
            hint="remove plan=; gaps are repeated variables whose conditions do not depend on the "
            "match so far, between single variables: r z* b z* m",
        )
    return MatcherChoice(facts.plan_request, "", "forced", "forced by plan=")


def _choose_walk(facts: MatcherFacts) -> MatcherChoice | None:
    """A pattern without gaps can only be walked."""
    if not isinstance(facts.gap_pattern, str):
        return None
    reason = f"rows are matched one by one: {facts.gap_pattern}"
    return MatcherChoice("walk", "", "no gaps", reason)


def _choose_untied(facts: MatcherFacts) -> MatcherChoice | None:
    """No condition for a join."""
    assert isinstance(facts.gap_pattern, GapPattern)
    if facts.gap_pattern.join_conjuncts:
        return None
    reason = "conditions depend only on a row and its neighbours, and failures are remembered"
    return MatcherChoice("walk", "", "rows by themselves", reason)


def _choose_gaps(facts: MatcherFacts) -> MatcherChoice | None:
    """A condition connects the joined rows, where joins are faster than walking:

    R Z* B Z* M, 20,000 rows, B and M near R within 30 minutes    12 s walked, 0.01 s joined
    the same with WITHIN                                          0.003 s, 0.007 s
    200,000 rows, WITHIN a day                                    9 s, 0.2 s
    100,000 keys of ten rows                                      0.14 s, 0.21 s
    """
    assert isinstance(facts.gap_pattern, GapPattern)
    between = facts.names([gap.variable for gap in facts.gap_pattern.gaps if gap is not None])
    reason = (
        f"{_join_point_names(facts)} are joined{_bounds(facts, facts.gap_pattern)}; "
        f"the rows of {between} are skipped"
    )
    return MatcherChoice("gaps", "", "gaps", reason)


def _bounds(facts: MatcherFacts, pattern: GapPattern) -> str:
    """What restricts the joined rows, in words."""
    kinds = {_lookup_kind(each, facts.program.ansi) for each in pattern.join_conjuncts}
    kinds.add("WITHIN" if facts.program.within is not None else None)
    words = [word for word in ("equal values", "ranges", "WITHIN") if word in kinds]
    return f" by {' and '.join(words)}" if words else ""


def _lookup_kind(each: JoinConjunct, ansi: bool) -> str | None:
    condition = Condition(each.expression, "", each.points)
    last = max(each.points)
    if as_equality(condition, last, lambda _: True) is not None:
        return "equal values"
    bound = as_bound(condition, last, lambda _: True, ansi=ansi)
    return None if bound is None else "ranges"


MATCHER_LADDER: tuple[Callable[[MatcherFacts], MatcherChoice | None], ...] = (
    _choose_forced,
    _choose_walk,
    _choose_untied,
    _choose_gaps,
)
