"""A row's score as a column of Spark's own, and the filter on it.

    rows with their mask -> + the columns that conditions read, as doubles or values
                         -> + a number of the row's own -> score -> score >= threshold of its mask

All of it is comparisons with literals, so it runs in the JVM before the shuffle, and every
partition decides alike without asking. What Python computes of the same rows
(`udfs/shedding/utility.py`) is the same score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.planning.slices import coordinate
from spark_cep.shipping.prepare import MASK, computed
from spark_cep.shipping.typing_by_spark import quoted
from spark_cep.udfs.shedding.utility import LEVELS

if TYPE_CHECKING:
    from spark_cep.shipping.shipment import Shipment
    from spark_cep.udfs.shedding.features import Feature
    from spark_cep.udfs.shedding.passing import Shares, Table
    from spark_cep.udfs.shedding.quota import Kind
    from spark_cep.udfs.shedding.utility import Utilities

SCORE = "__cep_score"
DROPPED = "__cep_dropped"
DICE = "__cep_dice"
_READ = "__cep_r{}"
_FEATURE = "__cep_f{}"


@dataclass(frozen=True)
class Scored:
    """How rows are scored. `columns`: the input's, that a row's own number is made from."""

    shipment: Shipment
    utilities: Utilities
    columns: tuple[str, ...]
    seed: int


def scored(masked: DataFrame, how: Scored) -> DataFrame:
    """`masked` with the score as column SCORE, NULL where a row may not be shed."""
    rows = masked.select("*", dice(how.columns, how.seed).alias(DICE))
    level = "0"
    if how.utilities.tables:
        places = _features(how.utilities)
        # Computed once each, then compared many times.
        read = [
            computed(how.shipment.shipped[f.column]).alias(_READ.format(p))
            for f, p in places.items()
        ]
        rows = rows.select("*", *read)
        features = [
            F.expr(_number(f, _READ.format(p))).alias(_FEATURE.format(p)) for f, p in places.items()
        ]
        rows = rows.select("*", *features)
        worth = _worth(how.utilities, places)
        top = repr(how.utilities.top)
        scaled = f"sqrt(sqrt(least(({worth}) / {top}D, 1D))) * {LEVELS}D"
        level = f"least(CAST({scaled} AS BIGINT), {LEVELS - 1}L)"
    unless = f" AND {MASK} & {how.utilities.needed} = 0" if how.utilities.needed else ""
    score = f"CASE WHEN {MASK} <> 0{unless} THEN {level} + {DICE} END"
    return rows.select(
        *[F.col(quoted(name)) for name in masked.columns], F.expr(score).alias(SCORE)
    )


def judged(rows: DataFrame, kinds: Sequence[Kind]) -> DataFrame:
    """Scored rows with the column DROPPED in place of the score: TRUE of those that are below the
    threshold of their kind. A kind that was not counted stays, and so does all that may not be
    shed."""
    columns = [F.col(quoted(name)) for name in rows.columns if name != SCORE]
    cases = "".join(f" WHEN {kind.mask} THEN {kind.threshold!r}D" for kind in kinds)
    dropped = f"coalesce({SCORE} < CASE {MASK}{cases} ELSE 0D END, FALSE)" if kinds else "FALSE"
    return rows.select(*columns, F.expr(dropped).alias(DROPPED))


def kept(judged_: DataFrame) -> DataFrame:
    """Those that stay."""
    return judged_.filter(~F.col(DROPPED)).drop(DROPPED)


def dice(columns: Sequence[str], seed: int) -> Column:
    """A number in [0, 1) that hangs on the row's values alone."""
    hashed = F.xxhash64(F.lit(seed), *[F.col(quoted(name)) for name in columns])
    return F.shiftrightunsigned(hashed, 11).cast("double") * F.lit(2.0**-53)


def hashable(schema: T.StructType) -> tuple[str, ...]:
    """The columns whose values Spark can hash: all but maps and variants."""
    return tuple(field.name for field in schema if _can_be_hashed(field.dataType))


def _can_be_hashed(type_: T.DataType) -> bool:
    if isinstance(type_, T.StructType):
        return all(_can_be_hashed(field.dataType) for field in type_)
    if isinstance(type_, T.ArrayType):
        return _can_be_hashed(type_.elementType)
    return not isinstance(type_, T.MapType) and type_.typeName() not in _NOT_HASHED


_NOT_HASHED = {"variant", "interval", "geometry", "geography", "udt"}


# ---- worth -------------------------------------------------------------------------------------


def _features(utilities: Utilities) -> dict[Feature, int]:
    """Every feature that a table reads, with its place among them."""
    tables = [table for found in utilities.tables.values() for table in found]
    features = dict.fromkeys(feature for table in tables for feature in table.features)
    return {feature: place for place, feature in enumerate(features)}


def _number(feature: Feature, name: str) -> str:
    """An ordered column as a double; others as they are."""
    if not feature.is_ordered:
        return name
    return f"CAST({coordinate(feature.type, name)} AS DOUBLE)"


def _worth(utilities: Utilities, places: Mapping[Feature, int]) -> str:
    """The largest of what the row is worth as each of the variables that it may be."""
    roles = []
    for variable in range(utilities.sheddable.bit_length()):
        if utilities.sheddable >> variable & 1:
            shares = [_share(table, places) for table in utilities.tables.get(variable, ())]
            product = " * ".join(shares) or "1D"
            roles.append(f"CASE WHEN {MASK} & {1 << variable} <> 0 THEN {product} ELSE 0D END")
    return roles[0] if len(roles) == 1 else f"greatest({', '.join(roles)})"


def _share(table: Table, places: Mapping[Feature, int]) -> str:
    names = [_FEATURE.format(places[feature]) for feature in table.features]
    return _choice(table.features, names, table.shares)


def _choice(features: Sequence[Feature], names: Sequence[str], shares: Shares) -> str:
    """The share of the row's bins: nested CASEs, those of an ordered column by bisection."""
    if not features:
        return f"{float(shares)!r}D"
    first, name = features[0], names[0]
    leaves = [_choice(features[1:], names[1:], share) for share in shares]
    null = leaves.pop()
    if first.is_ordered:
        found = _bisected(name, first.splits, leaves)
    else:
        other = leaves.pop()
        cases = "".join(
            f" WHEN {_literal(value)} THEN {leaf}"
            for value, leaf in zip(first.values, leaves, strict=True)
        )
        found = f"CASE {name}{cases} ELSE {other} END"
    return f"CASE WHEN {name} IS NULL THEN {null} ELSE {found} END"


def _bisected(name: str, splits: Sequence[float], leaves: Sequence[str]) -> str:
    if not splits or len(set(leaves)) == 1:
        return leaves[0]
    middle = len(splits) // 2
    below = _bisected(name, splits[:middle], leaves[: middle + 1])
    above = _bisected(name, splits[middle + 1 :], leaves[middle + 1 :])
    return f"CASE WHEN {name} < {splits[middle]!r}D THEN {below} ELSE {above} END"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"CAST('{value}' AS BIGINT)"
    if value.isascii() and value.isprintable() and not {"'", "\\", "$"} & set(value):
        return f"'{value}'"
    # How a literal is escaped, and whether ${...} in it is replaced, hangs on settings of the
    # session; bytes have one form.
    return f"CAST(X'{value.encode().hex()}' AS STRING)"
