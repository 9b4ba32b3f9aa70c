"""Folds over the rows of matches, one value for each row: of all rows of its match up to it.

Compiled, because each value hangs on the one before: a sum of floats rounds from left to right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from spark_cep.udfs.jit_cache import with_source_file

# --------------------------------------------------------------------------------------------------
# How the matcher's functions are compiled: kept on disk, and without counting references.
#
# The compiled functions hand tuples of arrays to one another for every row. Counting a reference to
# each array took four fifths of the time where conditions read the path; none of the functions
# makes an array or keeps one, so there is nothing to count.
# --------------------------------------------------------------------------------------------------


_F = TypeVar("_F", bound=Callable[..., Any])


def jit(function: _F) -> _F:
    options: dict[str, Any] = {"cache": True, "_nrt": False}
    compiled: _F = numba.njit(**options)(with_source_file(function))
    return compiled


@jit
def running_sum(values: Any, fresh: Any, result: Any) -> None:
    """Floats; a sum begins anew where `fresh`, from 0.0: that of -0.0 alone is 0.0, as in Spark."""
    total = 0.0
    for i in range(len(values)):
        total = (0.0 if fresh[i] else total) + values[i]
        result[i] = total


@jit
def running_extreme(codes: Any, fresh: Any, greatest: bool, result: Any) -> None:
    """The index of the least (greatest) code so far, the first of equal ones."""
    best = 0
    for i in range(len(codes)):
        if fresh[i] or (codes[i] > codes[best] if greatest else codes[i] < codes[best]):
            best = i
        result[i] = best
