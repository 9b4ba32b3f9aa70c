"""Which random cases the tests draw, and how many.

Without further ado they are the same ones in each run, so that a change is not refused for what was
wrong before it. With SPARK_CEP_EXAMPLES=10 in the environment they are new ones, and the
differential tests draw ten times as many.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_FACTOR = int(os.environ.get("SPARK_CEP_EXAMPLES", "0"))


def use_known_cases() -> None:
    """For all tests that say nothing else."""
    settings.register_profile("known cases", derandomize=not _FACTOR)
    settings.load_profile("known cases")


def random_cases(count: int) -> settings:
    """The decorator of a test over so many cases."""
    return settings(
        max_examples=count * max(_FACTOR, 1),
        deadline=None,
        derandomize=not _FACTOR,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
