"""Which element is fetched for a key: the key's own, or the whole that the key is part of.

An element is what is fetched and kept, and has a place like a key has an id. Without `part_of`
both are the same numbers. A key whose whole is NULL is never fetched, like a NULL key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.udfs.errors import RemoteError
from spark_cep.udfs.remotes.growing import Growing
from spark_cep.udfs.remotes.keys import NO_KEY, Keys

if TYPE_CHECKING:
    from spark_cep.udfs.remotes.spec import Remote
    from spark_cep.udfs.values.arrow_values import Array


class Parts:
    def __init__(self, keys: Keys, remote: Remote) -> None:
        self._parts = keys
        self._remote = remote
        self._wholes = Keys(()) if remote.part_of is not None else keys
        self._element = Growing(np.int64, NO_KEY)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return len(self._wholes)

    @property
    def has_wholes(self) -> bool:
        return self._wholes is not self._parts

    def keys(self, elements: Array) -> list[Any]:
        return list(map(self._wholes.values.__getitem__, elements.tolist()))

    def of(self, ids: Array) -> Array:
        """The elements of ids, -1 of -1."""
        if not self.has_wholes:
            return ids
        if self._element.size < len(self._parts):
            self._see_new()
        return self._element.all[ids]

    def intern(self, element: int, keys: list[Any]) -> Array:
        """The ids of the keys that came with a whole; -1 for one that belongs to another."""
        self.of(np.zeros(0, np.int64))  # all keys so far have their elements
        ids = self._parts.intern(keys)
        fresh = ids[ids >= self._element.size]
        self._element.grow(len(self._parts))
        self._element.all[fresh] = element
        return np.where(self._element.all[ids] == element, ids, NO_KEY)

    def _see_new(self) -> None:
        keys = self._parts.values[self._element.size :]
        wholes = [self._whole(key) for key in keys]
        present = np.array([whole is not None for whole in wholes], np.bool_)
        elements = np.full(len(keys), NO_KEY)
        elements[present] = self._wholes.intern(whole for whole in wholes if whole is not None)
        self._element.append(elements)

    def _whole(self, key: Any) -> Any:
        part_of = self._remote.part_of
        assert part_of is not None
        try:
            whole = part_of(key)
            hash(whole)
        except Exception as error:
            raise RemoteError(
                f"part_of of remote {self._remote.name!r} failed for a key: {type(error).__name__}",
                hint="it gets a key and gives the key of the whole, a plain value or a tuple",
                details={"remote": self._remote.name},
            ) from None
        return whole
