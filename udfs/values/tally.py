"""Counts the errors that Spark would have raised under ANSI.

Conditions over several variables are tested in an order that the plan chooses, so an error there
must not end the query: the element that failed becomes NULL and is counted. It counts only where
Spark would have evaluated it, as `ActiveElements` says: in the branch of a CASE that was taken, on
the right side of an AND whose left side does not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.values.arrow_values import Array

if TYPE_CHECKING:
    from spark_cep.udfs.values.vectors import RemoteValues


# Gives the mask of active elements, None for all. A function, as it is needed only on failure.
ActiveElements = Callable[[], Array | None]


def all_active() -> Array | None:
    return None


@dataclass
class ErrorTally:
    """Errors counted so far. `ansi` False: integers wrap around, division by zero is NULL, and
    neither is counted. `lookups`: the values of the program's remote sources, in its order."""

    errors: int = 0
    ansi: bool = True
    lookups: tuple[RemoteValues, ...] = ()
    _failed: list[Array] = field(default_factory=list)

    def fail(
        self, failed: Array, valid: Array | None, active: ActiveElements, *, always: bool = False
    ) -> Array | None:
        """Counts the failed elements among the valid ones; returns the mask without them.

        `always`: Spark raises an error without ANSI too.
        """
        if valid is not None:
            failed = failed & valid
        if self.ansi or always:
            self._count(failed, active)
        return ~failed if valid is None else valid & ~failed

    def _count(self, failed: Array, active: ActiveElements) -> None:
        if not failed.any():
            return
        mask = active()
        failed = failed if mask is None else failed & mask
        self.errors += int(np.count_nonzero(failed))
        self._failed.append(failed)

    def without_failed(self, holds: Array) -> Array:
        """The elements for which a condition holds, without those that failed since the last call:
        an error makes the whole conjunct NULL, whatever surrounds it."""
        for each in self.take_failed():
            holds = holds & ~each
        return holds

    def take_failed(self) -> list[Array]:
        """The failures since the last call, for a caller that evaluates over another shape."""
        failed, self._failed = self._failed, []
        return failed

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Errors inside are not counted; they are when the condition itself is evaluated."""
        errors, failed = self.errors, self._failed
        self._failed = []
        try:
            yield
        finally:
            self.errors, self._failed = errors, failed

    @contextmanager
    def separate(self) -> Iterator[list[Array]]:
        """The failures inside, over another shape, which the caller counts."""
        errors, failed = self.errors, self._failed
        inside: list[Array] = []
        self._failed = inside
        try:
            yield inside
        finally:
            self.errors, self._failed = errors, failed

    def note(self, failed: Array) -> None:
        """Adds failures that were counted before to the condition evaluated now."""
        self._failed.append(failed)
