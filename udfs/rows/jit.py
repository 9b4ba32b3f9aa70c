"""How the matcher's functions are compiled, and the compiled folds over the rows of matches.

A fold has one value for each row: over all rows of its match up to it. Each value depends on the
one before, as a sum of floats rounds from left to right, so folds are compiled loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from spark_cep.udfs.jit_cache import with_source_file

_F = TypeVar("_F", bound=Callable[..., Any])


def jit(function: _F) -> _F:
    """Compiles a function, kept on disk and without reference counting.

    The compiled functions pass tuples of arrays to one another for every row. Counting the
    references to each array took four fifths of the time where conditions read the path; none of
    the functions makes an array or keeps one, so there is nothing to count.
    """
    options: dict[str, Any] = {"cache": True, "_nrt": False}
    compiled: _F = numba.njit(**options)(with_source_file(function))
    return compiled


@jit
def running_sum(values: Any, fresh: Any, result: Any) -> None:
    """Sums of floats that restart from 0.0 where `fresh`: the sum of -0.0 alone is 0.0, as in
    Spark."""
    total = 0.0
    for i in range(len(values)):
        total = (0.0 if fresh[i] else total) + values[i]
        result[i] = total


@jit
def running_extreme(codes: Any, fresh: Any, greatest: bool, result: Any) -> None:
    """The index of the least (or greatest) code so far, the first of equal codes; restarts where
    `fresh`."""
    best = 0
    for i in range(len(codes)):
        if fresh[i] or (codes[i] > codes[best] if greatest else codes[i] < codes[best]):
            best = i
        result[i] = best
