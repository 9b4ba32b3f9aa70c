"""What the user says of the data, as the planner takes it: checked, by variable and condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_cep.errors import PlanError
from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from spark_cep.planning.choice import Facts
    from spark_cep.statistics import Statistics
    from spark_cep.udfs.program import Condition, Variable


def check_statistics(statistics: Statistics, variables: Sequence[Variable]) -> None:
    """Rates and selectivities are of variables that the pattern has; with rates, every positive
    variable has one."""
    names = {each.name.casefold() for each in variables}
    pattern = f"the pattern's variables are {', '.join(each.name for each in variables)}"
    for name in statistics.rates:
        if name.casefold() not in names:
            raise PlanError(
                f"statistics give a rate for {name!r}, which the pattern does not have",
                hint=pattern,
            )
    for name in (name for pair in statistics.selectivities for name in pair):
        if name.casefold() not in names:
            raise PlanError(
                f"statistics give a selectivity for {name!r}, which the pattern does not have",
                hint=pattern,
            )
    given = {name.casefold() for name in statistics.rates}
    positive = [each.name for each in variables if not each.negated]
    missing = [name for name in positive if name.casefold() not in given]
    if given and missing:
        raise PlanError(
            f"statistics give no rate for {missing[0]!r}",
            hint="give a rate for every positive variable, or leave rates out",
        )


def with_statistics(facts: Facts, statistics: Statistics) -> Facts:
    """The facts with what the user said in place of what was sampled."""
    known = facts.estimates or Estimates({})
    pairs = {
        frozenset(_ids(pair, facts.variables)): float(share)
        for pair, share in statistics.selectivities.items()
    }
    alone = {v: share for pair, share in pairs.items() if len(pair) == 1 for v in pair}
    selectivities = {**known.selectivities, **dict(_by_condition(facts.conditions, pairs))}
    estimates = replace(known, selectivities=selectivities)
    source, unit = facts.source, facts.unit
    if statistics.rates:
        ids = {each.name.casefold(): number for number, each in enumerate(facts.variables)}
        given = {ids[name.casefold()]: float(r) for name, r in statistics.rates.items()}
        rates = {v: rate * alone.get(v, 1.0) for v, rate in given.items()}
        estimates = replace(estimates, rates=rates, windows=1.0, places=())
        source, unit = "the rates given", "a window"
    elif alone:
        rates = {v: rate * alone.get(v, 1.0) for v, rate in estimates.rates.items()}
        estimates = replace(estimates, rates=rates)
    notes = (*facts.notes, *_unused(facts, pairs))
    is_known = bool(estimates.rates)
    return replace(
        facts, estimates=estimates if is_known else None, source=source, unit=unit, notes=notes
    )


def _ids(names: Sequence[str], variables: Sequence[Variable]) -> Iterator[int]:
    ids = {each.name.casefold(): number for number, each in enumerate(variables)}
    return (ids[name.casefold()] for name in names)


def _by_condition(
    conditions: Sequence[Condition], pairs: Mapping[frozenset[int], float]
) -> Iterator[tuple[int, float]]:
    """Several conditions between one pair share its selectivity."""
    for pair, share in pairs.items():
        places = [place for place, each in enumerate(conditions) if each.variables == pair]
        for place in places:
            yield place, share ** (1 / len(places))


def _unused(facts: Facts, pairs: Mapping[frozenset[int], float]) -> Iterator[str]:
    tied = [condition.variables for condition in facts.conditions]
    for pair in pairs:
        if len(pair) > 1 and pair not in tied:
            names = " and ".join(facts.variables[v].name for v in sorted(pair))
            yield f"the engine tests no condition between {names}: their selectivity is not used"
