"""How the matcher's functions are compiled, and the compiled folds over the rows of matches.

A fold has one value for each row: over all rows of its match up to it. Each value depends on the
one before, as a sum of floats rounds from left to right, so folds are compiled loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def jit(function: _F) -> _F:
    """Compiles a function, without reference counting and without anything of Python.

    The compiled functions pass tuples of arrays to one another for every row. Counting the
    references to each array took four fifths of the time where conditions read the path; none of
    the functions makes an array or keeps one, so there is nothing to count. Functions that Python
    could call by itself would be half of the time of compiling: `object_code` calls the few that it
    needs by their addresses. Errors would be Python objects: no function divides by zero.
    """
    options: dict[str, Any] = {
        "_nrt": False,
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "error_model": "numpy",
    }
    compiled: _F = numba.njit(**options)(function)
    return compiled


@jit
def running_sum(values: Any, fresh: Any, result: Any) -> int:
    """Sums of floats that restart from 0.0 where `fresh`: the sum of -0.0 alone is 0.0, as in
    Spark."""
    total = 0.0
    for i in range(len(values)):
        total = (0.0 if fresh[i] else total) + values[i]
        result[i] = total
    return 0


@jit
def running_least(codes: Any, fresh: Any, result: Any) -> int:
    """The index of the least code so far, the first of equal codes; restarts where `fresh`."""
    best = 0
    for i in range(len(codes)):
        if fresh[i] or codes[i] < codes[best]:
            best = i
        result[i] = best
    return 0
