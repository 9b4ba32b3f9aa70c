"""Hashes of rows and of blocks, by which rows are chosen: all partitions choose alike.

A hash depends only on the values of a row. Of its 64 bits the upper ones are its tie-breaker among
rows of equal worth, and the lower ones its *number*, by which rows are drawn at random: what one
says of a row tells nothing about the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.planner.layout import WINDOWS_PER_SLICE, choose_slicing
from spark_cep.spark.prepare import shipped_column
from spark_cep.spark.selection import quote_column

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_cep.events.compiled import CompiledEventQuery


BLOCK = "__cep_block"
TIME = "__cep_time"
_NUMBER_BITS = 32


# ---- rows --------------------------------------------------------------------------------------


def row_hash(columns: Sequence[str], seed: int) -> Column:
    return F.xxhash64(F.lit(seed), *[F.col(quote_column(name)) for name in columns])


def tie_breaker(columns: Sequence[str], seed: int) -> Column:
    """A number in [0, 1) that depends only on the values of the row."""
    return as_share(row_hash(columns, seed))


def as_share(hashed: Column) -> Column:
    """A hash as a number in [0, 1)."""
    return F.shiftrightunsigned(hashed, 11).cast("double") * F.lit(2.0**-53)


def as_number(hashed: Column) -> Column:
    """Another number in [0, 1), of the lower bits."""
    bits = hashed.bitwiseAND(F.lit((1 << _NUMBER_BITS) - 1))
    return bits.cast("double") * F.lit(2.0**-_NUMBER_BITS)


def shares_of(hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """`as_share` of each."""
    return (hashes.view(np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def numbers_of(hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """`as_number` of each."""
    bits = hashes.view(np.uint64) & np.uint64((1 << _NUMBER_BITS) - 1)
    return bits.astype(np.float64) * 2.0**-_NUMBER_BITS


def hashable_columns(schema: T.StructType) -> tuple[str, ...]:
    """The columns whose values Spark can hash: all but maps and variants."""
    return tuple(field.name for field in schema if _is_hashable(field.dataType))


def _is_hashable(type_: T.DataType) -> bool:
    if isinstance(type_, T.StructType):
        return all(_is_hashable(field.dataType) for field in type_)
    if isinstance(type_, T.ArrayType):
        return _is_hashable(type_.elementType)
    return not isinstance(type_, T.MapType) and type_.typeName() not in _UNHASHABLE


_UNHASHABLE = {"variant", "interval", "geometry", "geography", "udt"}


# ---- blocks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockHash:
    """The block of a row: a `stretch` of its event time as SQL over the column TIME, and its keys.
    `salt` separates hashes of different use."""

    time: Column
    stretch: str
    keys: tuple[Column, ...]
    seed: int
    salt: str = "block"

    def column(self) -> Column:
        """A number in [0, 1), over rows with the column TIME."""
        salt = F.lit(self.salt), F.lit(self.seed)
        return as_share(F.xxhash64(*salt, F.expr(self.stretch), *self.keys))

    def add(self, rows: DataFrame) -> DataFrame:
        """The rows with the column BLOCK."""
        timed = rows.select("*", self.time.alias(TIME))
        return timed.select("*", self.column().alias(BLOCK)).drop(TIME)


def block_hash(
    shipping: CompiledEventQuery, seed: int, windows: int, salt: str = "block"
) -> BlockHash:
    """The hash of blocks that are so many windows long."""
    compiled, shipped = shipping.compiled, shipping.shipment.shipped
    rules = compiled.strategy, compiled.consumption
    slicing = choose_slicing(compiled.branches, compiled.window, compiled.orders[0].type, rules)
    assert slicing is not None
    longer = replace(slicing, window=slicing.window * windows / WINDOWS_PER_SLICE)
    keys = tuple(shipped_column(shipped[column]) for column in shipping.key_columns)
    return BlockHash(event_time(shipping), longer.home(TIME), keys, seed, salt)


def event_time(shipping: CompiledEventQuery) -> Column:
    return shipped_column(shipping.shipment.shipped[shipping.orders[0].column])
