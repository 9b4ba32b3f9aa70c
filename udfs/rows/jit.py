"""How the matcher's functions are compiled: kept on disk, and without counting references.

The compiled functions hand tuples of arrays to one another for every row. Counting a reference to
each array took four fifths of the time where conditions read the path; none of the functions
makes an array or keeps one, so there is nothing to count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def jit(function: _F) -> _F:
    options: dict[str, Any] = {"cache": True, "_nrt": False}
    compiled: _F = numba.njit(**options)(function)
    return compiled
