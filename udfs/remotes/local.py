"""A remote table that the driver collected: every worker has it whole, so nothing is fetched.

Always holds: keys are found as `keys.py` tells them apart. The table travels as Arrow's own bytes;
each worker indexes it once, when the first key is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from spark_cep.udfs.remotes.keys import canonical


class LocalTable:
    """A function from keys to values. `table`: columns of the key's parts, and the value's."""

    def __init__(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self._bytes = sink.getvalue().to_pybytes()
        self._found: tuple[dict[Any, int], pa.ChunkedArray] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_bytes": self._bytes, "_found": None}

    def __call__(self, keys: Iterable[Any]) -> dict[Any, Any]:
        places, values = self._opened()
        found = {key: places[canonical(key)] for key in keys if canonical(key) in places}
        taken = values.take(pa.array(found.values(), pa.int64()))
        return dict(zip(found, taken.to_pylist(), strict=True))

    def _opened(self) -> tuple[dict[Any, int], pa.ChunkedArray]:
        if self._found is None:
            with pa.ipc.open_stream(self._bytes) as reader:
                table = reader.read_all()
            places = {canonical(key): place for place, key in enumerate(_keys(table))}
            self._found = places, table.column(table.num_columns - 1)
        return self._found


def _keys(table: pa.Table) -> Iterator[Any]:
    parts = [table.column(place).to_pylist() for place in range(table.num_columns - 1)]
    return iter(parts[0]) if len(parts) == 1 else zip(*parts, strict=True)
