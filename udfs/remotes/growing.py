"""A numpy column that grows at its end.

Always holds: there is at least one place beyond the last, and it has the fill value; so index -1,
which stands for "no key", reads the fill value without a mask. Room doubles, so that appending
costs a constant time per element, however small the pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_cep.udfs.values.arrow_values import Array

_FIRST_ROOM = 64


class Growing:
    """`all` is the whole room, to be indexed by places (and -1); `used` what has been filled."""

    def __init__(self, dtype: npt.DTypeLike, fill: Any = 0) -> None:
        self._fill = fill
        self.size = 0
        self.all: Array = np.full(_FIRST_ROOM, fill, dtype)

    @property
    def used(self) -> Array:
        return self.all[: self.size]

    def grow(self, size: int) -> None:
        """To `size` places; the new ones have the fill value."""
        if size >= len(self.all):
            wider = np.full(max(size + 1, 2 * len(self.all)), self._fill, self.all.dtype)
            wider[: self.size] = self.used
            self.all = wider
        self.size = max(size, self.size)

    def append(self, values: Array) -> None:
        start = self.size
        self.grow(start + len(values))
        self.all[start : self.size] = values


def distinct(places: Array, size: int) -> Array:
    """The different places that are not -1, ascending; `size` is how many there can be."""
    places = places.ravel()
    if len(places) * 8 < size:
        found = np.unique(places)
        return found[np.searchsorted(found, 0) :]
    seen = np.zeros(size + 1, np.bool_)
    seen[places] = True  # -1 marks the spare place
    return np.flatnonzero(seen[:size])
