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
from spark_cep.udfs.shedding.drift import tables_in
from spark_cep.udfs.shedding.utility import LEVELS

if TYPE_CHECKING:
    from spark_cep.shipping.shipment import Shipment
    from spark_cep.udfs.shedding.features import Feature
    from spark_cep.udfs.shedding.passing import Table
    from spark_cep.udfs.shedding.quota import Kind
    from spark_cep.udfs.shedding.utility import Utilities

SCORE = "__cep_score"
DROPPED = "__cep_dropped"
DICE = "__cep_dice"
_READ = "__cep_r{}"
_FEATURE = "__cep_f{}"
_BIN = "__cep_b{}"


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
        rows = _with_bins(rows.select("*", *features), places)
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
    below = f"coalesce({SCORE} < CASE {MASK}{cases} ELSE 0D END, FALSE)" if kinds else "FALSE"
    # Always so, but Spark does not know. Else it would push the filter in front of all that the
    # score is made of, each step written out anew wherever the next one reads it.
    dropped = f"{below} AND spark_partition_id() >= 0"
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
    tables = tables_in(utilities)
    features = dict.fromkeys(feature for table in tables for feature in table.features)
    return {feature: place for place, feature in enumerate(features)}


def _number(feature: Feature, name: str) -> str:
    """An ordered column as a double; others as they are."""
    if not feature.is_ordered:
        return name
    return f"CAST({coordinate(feature.type, name)} AS DOUBLE)"


def _with_bins(rows: DataFrame, places: Mapping[Feature, int]) -> DataFrame:
    """Each feature's bin. Those of ordered columns are found by bisection, a step at a time: a
    literal array and one comparison each. A nested CASE does the same in one expression and takes
    3.5 s for 2 million rows, not 0.5, probably as a method too large for Java to compile."""
    steps = max((_steps(feature) for feature in places), default=0)
    rows = rows.withColumns({_BIN.format(p): F.expr(_begun(f, p)) for f, p in places.items()})
    for step in range(steps):
        found = {
            _BIN.format(p): F.expr(_nearer(f, p, _steps(f) - 1 - step))
            for f, p in places.items()
            if step < _steps(f)
        }
        rows = rows.withColumns(found)
    return rows


def _steps(feature: Feature) -> int:
    return len(feature.splits).bit_length()


def _begun(feature: Feature, place: int) -> str:
    """The bin of a value, or the first one to look further from."""
    if feature.is_ordered:
        return "0"
    name = _FEATURE.format(place)
    values = f"array({', '.join(map(_literal, feature.values))})"
    kind = "BIGINT" if feature.type.kind == "int" else ""
    value = f"CAST({name} AS {kind})" if kind else name
    # array_position counts from 1, and gives 0 for the values that have no bin.
    others, count = feature.size - 2, feature.size - 1
    return f"CAST((array_position({values}, {value}) + {others}) % {count} AS INT)"


def _nearer(feature: Feature, place: int, power: int) -> str:
    """Whether the number is at least the split so far ahead. Beyond the last one there is none."""
    count = (1 << _steps(feature)) - 1
    padded = [*feature.splits, *[float("inf")] * (count - len(feature.splits))]
    splits = f"array({', '.join(map(_double, padded))})"
    name, at, ahead = _FEATURE.format(place), _BIN.format(place), 1 << power
    return f"IF({name} >= element_at({splits}, {at} + {ahead}), {at} + {ahead}, {at})"


def _double(number: float) -> str:
    return "CAST('Infinity' AS DOUBLE)" if number == float("inf") else f"{number!r}D"


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
    """The share of the row's bins: an element of all shares, one after the other."""
    at = "0"
    for feature in table.features:
        name, found = _FEATURE.format(places[feature]), _BIN.format(places[feature])
        # NaN is above all splits, also those that are not there.
        last = feature.size - 2
        known = f"CASE WHEN {name} IS NULL THEN {feature.size - 1} ELSE least({found}, {last}) END"
        at = known if at == "0" else f"({at}) * {feature.size} + {known}"
    shares = ", ".join(_double(float(share)) for share in table.shares.ravel())
    return f"element_at(array({shares}), 1 + {at})"


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
