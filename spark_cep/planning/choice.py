"""Choosing a plan: a pure function from facts to a choice that says why.

Today's ladder is short: what was forced, else a lazy chain, fewest candidates first.
Later planners add rungs here; whatever is chosen, the answer is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.errors import PlanError
from spark_cep.plans import Wish, order_of
from spark_cep.udfs.order import rarest_first
from spark_cep.udfs.program import Plan, Strategy, Variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.statistics import Statistics


@dataclass(frozen=True)
class Facts:
    """`counts`: candidates of each variable id, exact or in a common unit; None: not known.
    `source` says in words where they come from. `conditions`: the variables of each conjunct.
    `notes`: what else there is to say about the counts."""

    variables: tuple[Variable, ...]
    strategy: Strategy
    wish: Wish
    counts: Mapping[int, float] | None = None
    source: str = ""
    conditions: tuple[frozenset[int], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rejected:
    plan: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """`order` is what will be bound first to last, as far as it is known on the driver."""

    plan: Plan
    order: tuple[int, ...]
    reason: str
    rejected: tuple[Rejected, ...] = ()


def choose(facts: Facts) -> Choice:
    """The plan for a pattern.

    >>> a, b, c = Variable("a"), Variable("b", is_list=True), Variable("c")
    >>> facts = Facts((a, b, c), "any", Wish("auto"), {0: 20, 1: 1, 2: 3}, "a sample of 24 rows")
    >>> choose(facts).order  # c has the fewest candidates, lists come last
    (2, 0, 1)
    """
    choice = _choice(facts)
    return replace(choice, reason="; ".join((choice.reason, *facts.notes)))


def _choice(facts: Facts) -> Choice:
    positive = _positive(facts.variables)
    forced = None if facts.wish.order is None else order_of(facts.wish.order, facts.variables)
    if facts.strategy != "any":
        words = {"next": "skip till next match", "strict": "strict"}[facts.strategy]
        reason = f"under {words} a run takes rows as they come, in the order of the pattern"
        if facts.wish.kind == "lazy-chain":
            reason += ", whatever plan= says"
        return Choice(Plan("eager"), positive, reason)
    if facts.wish.kind == "eager":
        return Choice(Plan("eager"), positive, "forced by plan=")
    if forced is not None:
        return Choice(Plan("lazy-chain", forced), forced, "forced by plan=")
    if len(positive) == 1:
        return Choice(Plan("eager"), positive, "one variable has one order")
    eager = Rejected("eager", "binds frequent variables before rare ones")
    if facts.counts is None:
        reason = "candidates are counted in each bucket, the fewest first"
        return Choice(Plan("lazy-chain"), positive, reason, (eager,))
    lists = {v for v in positive if facts.variables[v].is_list}
    counts = {v: facts.counts.get(v, 0.0) for v in positive}
    order = rarest_first(counts, facts.conditions, lists)
    reason = f"fewest candidates first, by {facts.source}"
    return Choice(Plan("lazy-chain", order), order, reason, (eager,))


def check_selectivities(statistics: Statistics, variables: tuple[Variable, ...]) -> None:
    """Selectivities are of pairs of variables that the pattern has."""
    names = {each.name.casefold() for each in variables}
    for pair in statistics.selectivities:
        for name in pair:
            if name.casefold() not in names:
                raise PlanError(
                    f"statistics give a selectivity for {name!r}, which the pattern does not have",
                    hint=_variables(variables),
                )


def rates_by_id(statistics: Statistics, variables: tuple[Variable, ...]) -> dict[int, float]:
    """The rates given, by variable id; every positive variable needs one."""
    given = {name.casefold(): rate for name, rate in statistics.rates.items()}
    names = {each.name.casefold() for each in variables}
    unknown = [name for name in statistics.rates if name.casefold() not in names]
    if unknown:
        raise PlanError(
            f"statistics give a rate for {unknown[0]!r}, which the pattern does not have",
            hint=_variables(variables),
        )
    positive = _positive(variables)
    missing = [variables[v].name for v in positive if variables[v].name.casefold() not in given]
    if missing:
        raise PlanError(
            f"statistics give no rate for {missing[0]!r}",
            hint="give a rate for every positive variable, or leave rates out",
        )
    return {v: given[variables[v].name.casefold()] for v in positive}


def _variables(variables: tuple[Variable, ...]) -> str:
    return f"the pattern's variables are {', '.join(each.name for each in variables)}"


def _positive(variables: tuple[Variable, ...]) -> tuple[int, ...]:
    return tuple(number for number, each in enumerate(variables) if not each.negated)
