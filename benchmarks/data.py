"""Generated inputs: the same seed gives the same rows on every machine.

numpy makes the rows and pyarrow writes them, so generating needs no Spark. Each input is written
as several Parquet files, because one small file would be read by one core only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20_111
FILES = 8
START_US = 1_700_000_000_000_000  # 2023-11-14 22:13:20 UTC


@dataclass(frozen=True)
class Stock:
    """Rows of types A:B:C = 20:20:1 with uniform prices, spread evenly over keys and time.

    About `rows_per_window` rows of one key lie in each `window_us`. With 41 of them a window
    holds 20 A, 20 B and 1 C, of which a sixth is in rising order: about 33 matches for each C.
    """

    rows: int
    keys: int
    rows_per_window: float = 41
    window_us: int = 10_000_000

    @property
    def name(self) -> str:
        return f"stock-{self.rows}-{self.keys}-{self.rows_per_window:g}"


def write_stock(shape: Stock, folder: Path, files: int = FILES) -> str:
    """Writes the rows under `folder` unless they are there, and returns their path. The files
    follow each other in time."""
    target = folder / shape.name
    if target.exists():
        return str(target)
    unfinished = target.with_suffix(".unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(SEED)
    step_us = shape.window_us / shape.rows_per_window / shape.keys
    for number, positions in enumerate(np.array_split(np.arange(shape.rows), files)):
        pq.write_table(
            _stock_rows(positions, shape.keys, step_us, random),
            unfinished / f"part-{number}.parquet",
        )
    unfinished.rename(target)
    return str(target)


def _stock_rows(
    positions: np.ndarray, keys: int, step_us: float, random: np.random.Generator
) -> pa.Table:
    count = len(positions)
    kinds = random.choice(3, size=count, p=[20 / 41, 20 / 41, 1 / 41]).astype(np.int8)
    return pa.table(
        {
            "symbol": pa.array(random.integers(0, keys, size=count)),
            "ts": pa.array(
                START_US + (positions * step_us).astype(np.int64), pa.timestamp("us", tz="UTC")
            ),
            "kind": pa.DictionaryArray.from_arrays(kinds, ["A", "B", "C"]).cast(pa.string()),
            "price": pa.array(random.random(count)),
        }
    )
