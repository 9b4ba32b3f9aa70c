"""The values of `adapt=`: when a plan is made anew while the query runs.

Before a worker matches the next rows, a policy compares the statistics measured so far with those
that the plan was made from. Policies change how often the plan changes, never the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from numbers import Real
from typing import Literal

from spark_cep.errors import PlanError
from spark_cep.udfs.program import Adaptation

__all__ = ["always", "invariants", "off", "threshold"]

# What `adapt=` takes.
AdaptOption = Literal["off", "always", "threshold", "invariants"] | Adaptation


def off() -> Adaptation:
    """Keeps the plan that was chosen before the query runs.

    Returns:
        The policy, for `adapt=`. `adapt="off"` is the same.

    Example:
        >>> off().kind
        'off'
    """
    return Adaptation("off")


def always() -> Adaptation:
    """Makes the plan anew whenever the statistics are looked at.

    Returns:
        The policy, for `adapt=`. `adapt="always"` is the same.

    Example:
        >>> always().kind
        'always'
    """
    return Adaptation("always")


def threshold(change: float = 0.3) -> Adaptation:
    """Makes the plan anew when a statistic has changed by more than a share of its old value.

    Args:
        change: The share, above 0: 0.3 is a change by 30 %.

    Returns:
        The policy, for `adapt=`. `adapt="threshold"` has the default.

    Raises:
        PlanError: `change` is not a finite number above 0.

    Example:
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
    """Makes the plan anew when one of the comparisons that led to it no longer holds.

    Args:
        k: How many comparisons are kept for each block of the plan, the closest ones first. None
            keeps all.
        distance: A comparison has failed when its sides are the wrong way round by more than this
            share. "auto" takes the average difference at the time when the plan was made; "meta"
            adjusts it to what new plans gain.

    Returns:
        The policy, for `adapt=`. `adapt="invariants"`, the default, has these defaults.

    Raises:
        PlanError: An argument is out of range.

    Example:
        >>> invariants(k=None, distance=0.1).distance
        0.1
    """
    is_count = isinstance(k, int) and not isinstance(k, bool) and k > 0
    if k is not None and not is_count:
        raise PlanError(
            f"k is {k!r}", hint="k is a number of comparisons above 0, or None for all of them"
        )
    is_share = is_number(distance) and 0 <= float(distance) < inf
    if distance not in ("auto", "meta") and not is_share:
        raise PlanError(
            f"the distance is {distance!r}",
            hint='it is a share of 0 or more, "auto" or "meta"',
        )
    return Adaptation("invariants", k=k, distance=distance)


def adaptation(value: object) -> Adaptation:
    """The policy that `adapt=` gives: a name or an object.

    >>> adaptation("off").kind
    'off'
    """
    if isinstance(value, Adaptation):
        return value
    policies: dict[str, Callable[[], Adaptation]] = {
        "off": off,
        "always": always,
        "threshold": threshold,
        "invariants": invariants,
    }
    if not isinstance(value, str) or value not in policies:
        raise PlanError(
            f"unknown value of adapt: {value!r}",
            hint='adapt is "invariants", "threshold", "always" or "off", or an object of cep.adapt',
        )
    return policies[value]()


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
