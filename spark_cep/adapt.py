"""When a plan is made anew while matching goes on: the decision functions a user may ask for.

Between two advances of a worker the statistics seen so far are compared with those that the plan
was made from. Whether and how decides how often the plan changes, never the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from numbers import Real
from typing import Literal

from spark_cep.errors import PlanError
from spark_cep.udfs.program import Adaptation

_HINT = 'adapt is "invariants", "threshold", "always" or "off", or an object of cep.adapt'


def off() -> Adaptation:
    """The plan stays as it was chosen."""
    return Adaptation("off")


def always() -> Adaptation:
    """The plan is made anew after every advance."""
    return Adaptation("always")


def threshold(change: float = 0.3) -> Adaptation:
    """The plan is made anew when a statistic has changed by more than this share.

    >>> threshold(0.5).threshold
    0.5
    """
    if not is_number(change) or not 0 < change < inf:
        raise PlanError(
            f"the threshold is {change!r}",
            hint="it is a relative change above 0: cep.adapt.threshold(0.3)",
        )
    return Adaptation("threshold", threshold=float(change))


def invariants(k: int | None = 1, distance: float | Literal["auto", "meta"] = "auto") -> Adaptation:
    """The plan is made anew when a comparison that led to it no longer holds.

    `k` conditions are kept for each block of the plan, the tightest ones; None for all. A
    condition has failed when its sides are the wrong way round by more than `distance`: a share,
    "auto" (the average difference when the plan was made) or "meta" (tuned by what new plans
    gained).
    """
    is_count = isinstance(k, int) and not isinstance(k, bool) and k > 0
    if k is not None and not is_count:
        raise PlanError(
            f"k is {k!r}", hint="k is a number of conditions above 0, or None for all of them"
        )
    is_share = is_number(distance) and 0 <= float(distance) < inf
    if distance not in ("auto", "meta") and not is_share:
        raise PlanError(
            f"the distance is {distance!r}",
            hint='it is a share that is not negative, "auto" or "meta"',
        )
    return Adaptation("invariants", k=k, distance=distance)


def adaptation(value: object) -> Adaptation:
    """What `adapt=` takes.

    >>> adaptation("off").kind
    'off'
    """
    if isinstance(value, Adaptation):
        return value
    made: dict[str, Callable[[], Adaptation]] = {
        "off": off,
        "always": always,
        "threshold": threshold,
        "invariants": invariants,
    }
    if not isinstance(value, str) or value not in made:
        raise PlanError(f"{value!r} is no way to adapt", hint=_HINT)
    return made[value]()


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
