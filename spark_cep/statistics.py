"""`cep.Statistics`: what a user knows about the data, given in place of a sample of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from numbers import Real

from spark_cep.errors import PlanError
from spark_cep.udfs.public import public

_RATES = 'cep.Statistics(rates={"a": 100, "b": 5})'
_SHARES = 'cep.Statistics(selectivities={("a", "b"): 0.1})'


@public
@dataclass(frozen=True)
class Statistics:
    """What is known about the data, for the choice of a plan.

    Given rates replace the sample: no job runs before the action. Selectivities that are not
    given are measured on the sample, or taken as a half for each condition.

    Args:
        rates: How many rows may be each variable in one window of one key. For the order of the
            variables only the proportions matter. Every positive variable needs a rate, or none.
        selectivities: The share of the pairs of two variables that meets the conditions between
            them; for `("a", "a")` the share of its candidates that meets the conditions on it
            alone.

    Raises:
        PlanError: A name, a rate or a share is wrong.

    Example:
        >>> known = Statistics(rates={"a": 100, "b": 5}, selectivities={("a", "b"): 0.1})
        >>> known.rates["b"]
        5
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_dict("rates", self.rates, _RATES)
        _check_dict("selectivities", self.selectivities, _SHARES)
        for name, rate in self.rates.items():
            if not isinstance(name, str):
                raise PlanError(
                    f"rates has the key {name!r}, which is not the name of a variable", hint=_RATES
                )
            if not _is_number(rate) or not 0 <= rate < inf:
                raise PlanError(
                    f"the rate of {name!r} is {rate!r}",
                    hint=f"rates are counts of candidate rows, 0 or more: {_RATES}",
                )
        for pair, share in self.selectivities.items():
            if not isinstance(pair, tuple) or [type(name) for name in pair] != [str, str]:
                raise PlanError(
                    f"selectivities has the key {pair!r}, which is not a pair of variables",
                    hint=_SHARES,
                )
            if not _is_number(share) or not 0 <= share <= 1:
                raise PlanError(
                    f"the selectivity of {pair!r} is {share!r}",
                    hint="a selectivity is a share between 0 and 1",
                )


def _check_dict(name: str, value: object, hint: str) -> None:
    if not isinstance(value, Mapping):
        raise PlanError(f"{name} takes a dict, not {type(value).__name__}", hint=hint)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
