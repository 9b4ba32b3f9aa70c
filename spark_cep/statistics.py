"""What a user knows about the data and may say, instead of having the input sampled."""

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
    """`rates`: how many candidate rows of each variable one window of one key has; only their
    proportions matter for an order. `selectivities`: the share of pairs of candidates that meet
    the conditions between two variables; of one variable, `("a", "a")`, the share of its
    candidates that count.

    Given rates replace the sample: no job runs before the action. Selectivities that are not
    given are measured on the sample, or taken as a half for each condition.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_dict("rates", self.rates, _RATES)
        _check_dict("selectivities", self.selectivities, _SHARES)
        for name, rate in self.rates.items():
            if not isinstance(name, str):
                raise PlanError(f"{name!r} is no name of a variable", hint=_RATES)
            if not _is_number(rate) or not 0 <= rate < inf:
                raise PlanError(
                    f"the rate of {name!r} is {rate!r}",
                    hint=f"rates are counts of candidate rows, 0 or more: {_RATES}",
                )
        for pair, share in self.selectivities.items():
            if not isinstance(pair, tuple) or [type(name) for name in pair] != [str, str]:
                raise PlanError(f"{pair!r} is no pair of variables", hint=_SHARES)
            if not _is_number(share) or not 0 <= share <= 1:
                raise PlanError(
                    f"the selectivity of {pair!r} is {share!r}",
                    hint="a selectivity is a share between 0 and 1",
                )


def _check_dict(name: str, value: object, hint: str) -> None:
    if not isinstance(value, Mapping):
        raise PlanError(f"{name} is a dict, not {type(value).__name__}", hint=hint)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
