"""How many random cases the differential tests draw.

Without further ado they are the same ones in each run. With SPARK_CEP_EXAMPLES=10 in the
environment they are ten times as many, and new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_FACTOR = int(os.environ.get("SPARK_CEP_EXAMPLES", "0"))


def random_cases(count: int) -> settings:
    """The decorator of a test over so many cases."""
    return settings(
        max_examples=count * max(_FACTOR, 1),
        deadline=None,
        derandomize=not _FACTOR,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
