"""Aggregates over a Kleene list as Spark SQL over an array, equal to Spark's own in value and type.

Spark has no sum or avg of an array, so they are folds. Elements that are NULL are skipped, and
nothing left gives NULL. A decimal sum is folded in a type whose additions drop no digit: where
the result has 38 digits and a scale above 6, Spark's `+` would round, so there one digit of
range is given up, and a sum that needs it fails as an overflow does. A decimal average divides
whole part and remainder apart, so that it rounds once; where even that has no room it is refused.
"""

from __future__ import annotations

from spark_cep.compiling.operands import Inexact
from spark_cep.compiling.types import MAX_PRECISION, folded, name_of
from spark_cep.udfs.expressions import DOUBLE, Reading, Type

# Spark's + keeps this many digits behind the point whatever it has to cut.
_KEPT_SCALE = 6
_COUNT_DIGITS = 10


def folding(how: Reading, array: str, type_: Type) -> str:
    """SQL for the fold of `array`, SQL for an array of `type_`."""
    if how == "count":
        return f"coalesce(CAST(array_size({_given(array)}) AS BIGINT), 0L)"
    if how in {"first", "last"}:
        return f"try_element_at({array}, {1 if how == 'first' else -1})"
    if how in {"min", "max"}:
        return f"array_{how}({array})"
    result = folded(how, type_)
    if result is None:
        raise Inexact(f"{how} of {name_of(type_)}")
    given = _given(array)
    if how == "sum":
        value = _sum(given, type_, result)
    elif type_.kind == "decimal":
        value = _decimal_average(given, type_, result)
    else:
        total = _sum(given, type_, type_ if type_.kind == "interval" else DOUBLE)
        value = f"{total} / array_size({given})"
    return f"CASE WHEN array_size({given}) > 0 THEN {value} END"


def counting(array: str) -> str:
    """The number of elements, NULL ones included."""
    return f"coalesce(CAST(array_size({array}) AS BIGINT), 0L)"


def _given(array: str) -> str:
    return f"filter({array}, __cep_v -> __cep_v IS NOT NULL)"


def _sum(given: str, type_: Type, result: Type) -> str:
    within = result
    if result.precision == MAX_PRECISION and result.scale > _KEPT_SCALE:
        within = Type("decimal", precision=MAX_PRECISION - 1, scale=result.scale)
    name = name_of(within)
    zero = "INTERVAL '0' SECOND" if type_.kind == "interval" else "0"
    value = f"CAST(__cep_v AS {name})"
    total = (
        f"aggregate({given}, CAST({zero} AS {name}), "
        f"(__cep_s, __cep_v) -> CAST(__cep_s + {value} AS {name}))"
    )
    return total if within == result else f"CAST({total} AS {name_of(result)})"


def _decimal_average(given: str, type_: Type, result: Type) -> str:
    sum_type = folded("sum", type_)
    assert sum_type is not None
    # The quotient of the remainder needs its scale, the count's digits and one more.
    if sum_type.precision >= MAX_PRECISION or 2 * _COUNT_DIGITS + 1 + type_.scale > MAX_PRECISION:
        raise Inexact(f"avg of {name_of(type_)}")
    total = _sum(given, type_, sum_type)
    count = f"CAST(array_size({given}) AS DECIMAL({_COUNT_DIGITS},0))"
    rest = f"({total} % {count})"
    whole_type = Type("decimal", precision=max(1, type_.precision - type_.scale))
    part_type = Type("decimal", precision=type_.scale + 5, scale=type_.scale + 4)
    whole = f"CAST(({total} - {rest}) / {count} AS {name_of(whole_type)})"
    part = f"CAST({rest} / {count} AS {name_of(part_type)})"
    return f"CAST({whole} + {part} AS {name_of(result)})"
