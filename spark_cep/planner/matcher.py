"""Choosing the matcher of a row pattern: a pure function from facts to a choice that says why.

"walk": the kernel goes from row to row. "gaps": the rows that a pattern names one by one are
joined, and the rows between them are not looked at. Both give the same answer.

A ladder of named rungs, as for event patterns (`choice.py`), and no cost model: where a condition
ties the joined rows together, joins were never seen to lose. 20,000 crime reports, R Z* B Z* M
with B near R and M near R within 30 minutes: 12 s walking, 0.01 s by joins; with the time in
WITHIN as well 0.003 s against 0.007 s, and over a day's WITHIN (200,000 reports) 9 s against
0.2 s; 100,000 keys of ten rows 0.14 s against 0.21 s. Where no condition does, walking remembers
what failed and takes a few steps a row.
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
    """`wish`: what the user asked for."""

    program: RowProgram
    wish: RowPlan = "auto"
    in_batch: bool = True

    @cached_property
    def gapped(self) -> GapPattern | str:
        if not self.in_batch:
            return "a search that waits for rows to come goes on from row to row"
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
    """`shown`: in which order the rows of a match are found."""

    matcher: MatcherKind
    shown: str
    rung: str
    reason: str
    rejected: tuple[RejectedPlan, ...] = ()


def choose_matcher(facts: MatcherFacts) -> MatcherChoice:
    """How a row pattern is matched. Raises PlanError for a plan that it cannot be matched by."""
    choice = next(found for rung in MATCHER_LADDER if (found := rung(facts)) is not None)
    shown = _IN_ROW_ORDER if choice.matcher == "walk" else _describe_points(facts)
    return replace(choice, shown=shown, rejected=(_rejected_matcher(facts, choice),))


_IN_ROW_ORDER = "in their order"


def _describe_points(facts: MatcherFacts) -> str:
    assert isinstance(facts.gapped, GapPattern)
    names = [facts.program.variables[point.variable].name for point in facts.gapped.points]
    return " → ".join(names)


def _rejected_matcher(facts: MatcherFacts, choice: MatcherChoice) -> RejectedPlan:
    if choice.matcher == "gaps":
        why = "goes through all rows of a gap for each row that a match can begin at"
        return RejectedPlan("walk", "", None, "not asked for" if choice.rung == "forced" else why)
    if isinstance(facts.gapped, str):
        return RejectedPlan("gaps", "", None, facts.gapped)
    why = "no condition ties the rows that would be joined to one another"
    return RejectedPlan("gaps", "", None, "not asked for" if choice.rung == "forced" else why)


def _join_point_names(facts: MatcherFacts) -> str:
    assert isinstance(facts.gapped, GapPattern)
    return facts.names([point.variable for point in facts.gapped.points])


# ---- the ladder --------------------------------------------------------------------------------


def _choose_forced(facts: MatcherFacts) -> MatcherChoice | None:
    if facts.wish == "auto":
        return None
    if facts.wish == "gaps" and isinstance(facts.gapped, str):
        raise PlanError(
            f'plan="gaps" cannot match this pattern: {facts.gapped}',
            hint="leave it out, and the pattern is walked row by row; gaps are repeated variables "
            "that read nothing of the match so far, between others that stand alone: r z* b z* m",
        )
    return MatcherChoice(facts.wish, "", "forced", "forced by plan=")


def _choose_walk(facts: MatcherFacts) -> MatcherChoice | None:
    """Only walking can do it."""
    if not isinstance(facts.gapped, str):
        return None
    reason = f"rows are walked through one by one: {facts.gapped}"
    return MatcherChoice("walk", "", "no gaps", reason)


def _choose_untied(facts: MatcherFacts) -> MatcherChoice | None:
    """Nothing that a join could look up."""
    assert isinstance(facts.gapped, GapPattern)
    if facts.gapped.join_conjuncts:
        return None
    reason = "each row is judged by itself and its neighbours, and what failed is remembered"
    return MatcherChoice("walk", "", "rows by themselves", reason)


def _choose_gaps(facts: MatcherFacts) -> MatcherChoice | None:
    """A condition over several of the joined rows."""
    assert isinstance(facts.gapped, GapPattern)
    between = facts.names([gap.variable for gap in facts.gapped.gaps if gap is not None])
    reason = (
        f"{_join_point_names(facts)} are joined{_bounds(facts, facts.gapped)}, "
        f"and the rows that {between} "
        "may take need no look"
    )
    return MatcherChoice("gaps", "", "gaps", reason)


def _bounds(facts: MatcherFacts, gapped: GapPattern) -> str:
    """What narrows the rows to be tried, in words."""
    kinds = {_lookup_kind(each, facts.program.ansi) for each in gapped.join_conjuncts}
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
