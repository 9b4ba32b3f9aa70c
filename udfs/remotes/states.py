"""What is known of each element, as columns.

Always holds: the place -1, where a NULL key points, is HERE. `bytes` is the sum of the sizes of
the elements that are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.remotes.growing import Growing

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array

# In this order: a wait for what is less than FAILED goes on.
ABSENT: Final = 0
UNDER_WAY: Final = 1
FAILED: Final = 2
HERE: Final = 3
# What is needed and was not used yet outlives so many `settle`s, also where it does not fit: else
# who waits for several values, and reads them some blocks later, might never have all at once.
# More than the four batches that a lookup stage asks for ahead.
SPARED_FOR: Final = 8


class States:
    """`certain`: somebody needs it and has not used it yet. `ahead`: it was asked for ahead and
    nobody has used it. `missed`: counted as a miss and not used since. `untrue`: NULL for a
    failure. `batch`: the number of the batch that it is under way in. `last_used` counts uses,
    `spared_until` settles."""

    def __init__(self) -> None:
        self.state = Growing(np.int8, HERE)
        self.certain = Growing(np.bool_)
        self.ahead = Growing(np.bool_)
        self.missed = Growing(np.bool_)
        self.untrue = Growing(np.bool_)
        self.batch = Growing(np.int64)
        self.last_used = Growing(np.int64)
        self.size = Growing(np.int64)
        self.fetched = Growing(np.float64)
        self.spared_until = Growing(np.int64)
        self.bytes = 0
        self.settles = 0
        self._uses = 0

    def grow(self, size: int) -> None:
        start = self.state.size
        if size > start:
            for column in vars(self).values():
                if isinstance(column, Growing):
                    column.grow(size)
            self.state.used[start:] = ABSENT

    def here(self) -> Array:
        return np.flatnonzero(self.state.used == HERE)

    def ask(self, elements: Array, batch: int, *, ahead: bool) -> None:
        self.state.all[elements] = UNDER_WAY
        self.batch.all[elements] = batch
        self.ahead.all[elements] = ahead
        self.certain.all[elements] = not ahead

    def arrive(self, elements: Array, sizes: Array, now: float) -> None:
        self.state.all[elements] = HERE
        self.size.all[elements] = sizes
        self.fetched.all[elements] = now
        self.untrue.all[elements] = False
        # What has just come has not been unused for long.
        self.last_used.all[elements] = self._uses
        self.spared_until.all[elements] = self.settles + SPARED_FOR
        self.bytes += int(sizes.sum())

    def wait(self, elements: Array) -> None:
        """Of elements whose values somebody will read now."""
        self.certain.all[elements] = True
        self.spared_until.all[elements] = self.settles + SPARED_FOR

    def is_spared(self, elements: Array) -> Array:
        due = self.spared_until.all[elements] >= self.settles
        return np.asarray(due & self.certain.all[elements])

    def use(self, elements: Array) -> None:
        self._uses += 1
        self.last_used.all[elements] = self._uses
        for column in (self.certain, self.ahead, self.missed):
            column.all[elements] = False

    def drop(self, elements: Array) -> None:
        """Of elements that are here."""
        self.state.all[elements] = ABSENT
        self.bytes -= int(self.size.all[elements].sum())
        for column in (self.certain, self.ahead, self.missed):
            column.all[elements] = False
