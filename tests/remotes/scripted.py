"""A lookup whose data comes when the test says so: after so many looks, or only when waited for.

Every key has itself as its value, so a condition on looked-up values must give what the same
condition on the columns gives. What is settled may be forgotten, as a small cache would.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.remote_spec import RemoteSpec


class Scripted:
    """`remote` says the strategy; `seed` when asked data comes and what is forgotten."""

    def __init__(self, remote: RemoteSpec, seed: int, *, forgets: bool = False) -> None:
        self.remote = remote
        self.latency = 0.01
        self.generation = 0
        self.arrivals = 0
        self.asked_ahead = 0
        self.waits = 0
        self._random = Random(seed)
        self._forgets = forgets
        self._ids: dict[Any, int] = {}
        self._keys: list[Any] = []
        self._due: dict[int, int] = {}
        self._here: set[int] = set()

    def ids(self, keys: Sequence[pa.Array]) -> Any:
        rows = zip(*(key.to_pylist() for key in keys), strict=True)
        return np.array([self._id(row) for row in rows], dtype=np.int64)

    def ready(self, ids: Any) -> Any:
        for each in [i for i, left in self._due.items() if left <= 0]:
            del self._due[each]
            self._here.add(each)
            self.arrivals += 1
        for each in self._due:
            self._due[each] -= 1
        here = [i < 0 or i in self._here for i in ids.ravel().tolist()]
        return np.array(here, dtype=np.bool_).reshape(ids.shape)

    def ask(self, ids: Any, *, ahead: bool = False) -> None:
        for each in {i for i in ids.ravel().tolist() if i >= 0} - self._here - self._due.keys():
            self.asked_ahead += ahead
            self._due[each] = self._random.choice([0, 1, 3, 40, 10**9])
            # What comes while nobody looks is noticed all the same.
            self.arrivals += self._random.random() < 0.3

    def wait(self, ids: Any) -> None:
        for each in {i for i in ids.ravel().tolist() if i >= 0} - self._here:
            self.waits += 1
            self._due.pop(each, None)
            self._here.add(each)

    def settle(self) -> None:
        if self._forgets and self._here and self._random.random() < 0.5:
            self._here.discard(self._random.choice(sorted(self._here)))

    def needed(self, ids: Any, counts: Any, level: int) -> None:
        assert len(ids) == len(counts)

    def vector(self, ids: Any, path: tuple[str, ...], type: Type, columns: Any) -> Vector:
        values = [self._value(i) for i in ids.ravel().tolist()]
        filler = "" if type.kind == "string" else 0
        dtype = object if type.kind == "string" else dtype_of(type)
        found = np.array([filler if v is None else v for v in values], dtype=dtype)
        valid = np.array([v is not None for v in values], dtype=np.bool_)
        return Vector(found.reshape(ids.shape), valid.reshape(ids.shape))

    def _value(self, number: int) -> Any:
        assert number < 0 or number in self._here, "read before it was there"
        return None if number < 0 else self._keys[number]

    def _id(self, row: tuple[Any, ...]) -> int:
        if any(part is None for part in row):
            return -1
        key = "NaN" if row[0] != row[0] else row[0]
        if key not in self._ids:
            self._ids[key] = len(self._keys)
            self._keys.append(row[0])
        return self._ids[key]
