"""The operators of SQL over vectors: logic, comparisons, arithmetic, casts and choices.

Always holds: NaN equals NaN and is larger than any other float, -0.0 equals 0.0 (Spark's order, not
that of IEEE 754); a NULL operand gives NULL except where SQL says otherwise. Arithmetic has the
declared type's width; what does not fit is an ANSI error (the element is NULL and counted) or,
without ANSI, wraps around for integers and is NULL for decimals. Intervals and times never wrap:
Spark raises for them in both modes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.values.arrow_values import EXACT_DOUBLE
from spark_cep.udfs.values.vectors import WORD_KINDS, Vector, dtype_of, has_nan

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Call
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ActiveElements, ErrorTally
    from spark_cep.udfs.values.vectors import EventColumns


# ---- comparisons ---------------------------------------------------------------------------------


_COMPARE_PLAIN: dict[str, Callable[[Array, Array], Array]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
COMPARISON_NAMES = frozenset(_COMPARE_PLAIN)
# Numpy's comparison, which is False next to NaN, plus what NaN as the largest value adds.
_COMPARE_WITH_NAN: dict[str, Callable[[Array, Array], Array]] = {
    "=": lambda a, b: (a == b) | (np.isnan(a) & np.isnan(b)),
    "<>": lambda a, b: (a != b) & ~(np.isnan(a) & np.isnan(b)),
    "<": lambda a, b: (a < b) | (np.isnan(b) & ~np.isnan(a)),
    "<=": lambda a, b: (a <= b) | np.isnan(b),
    ">": lambda a, b: (a > b) | (np.isnan(a) & ~np.isnan(b)),
    ">=": lambda a, b: (a >= b) | np.isnan(a),
}


def compare(name: str, left: Vector, right: Vector) -> Vector:
    return Vector(compare_values(name, left, right), both_valid(left, right))


def compare_values(name: str, left: Vector, right: Vector) -> Array:
    """The comparison of the values alone, without the masks.

    Without NaN it is one numpy call.
    """
    # By type and not by value: numpy 1.26 would cast the array to the type of a 0-d operand.
    dtype = np.promote_types(left.values.dtype, right.values.dtype)
    a = left.values.astype(dtype, copy=False)
    b = right.values.astype(dtype, copy=False)
    if dtype.kind != "f" or not (_may_have_nan(left) or _may_have_nan(right)):
        return np.asarray(_COMPARE_PLAIN[name](a, b))
    return np.asarray(_COMPARE_WITH_NAN[name](a, b))


def _may_have_nan(vector: Vector) -> bool:
    return vector.values.dtype.kind == "f" and not vector.nan_free and has_nan(vector.values)


def null_safe_equal(left: Vector, right: Vector) -> Vector:
    """<=>: never NULL; two NULLs are equal."""
    equal = compare_values("=", left, right)
    if left.valid is None and right.valid is None:
        return Vector(equal)
    a, b = valid_mask(left), valid_mask(right)
    return Vector(np.where(a & b, equal, ~(a | b)))


# ---- NULL and three-valued logic -----------------------------------------------------------------


def is_null(vector: Vector) -> Vector:
    if vector.valid is None:
        return Vector(np.zeros(vector.values.shape, np.bool_))
    return Vector(np.broadcast_to(~vector.valid, vector.values.shape))


def is_nan(vector: Vector) -> Vector:
    """isnan is FALSE for NULL."""
    nan = np.asarray(np.isnan(vector.values))
    return Vector(nan if vector.valid is None else nan & vector.valid)


def logical_not(vector: Vector) -> Vector:
    return Vector(np.asarray(~vector.values), vector.valid)


def logical_and(left: Vector, right: Vector) -> Vector:
    """AND: FALSE wins over NULL."""
    if left.valid is None and right.valid is None:
        return Vector(np.asarray(left.values & right.values))
    true = is_true(left) & is_true(right)
    return Vector(true, true | is_false(left) | is_false(right))


def logical_or(left: Vector, right: Vector) -> Vector:
    """OR: TRUE wins over NULL."""
    if left.valid is None and right.valid is None:
        return Vector(np.asarray(left.values | right.values))
    true = is_true(left) | is_true(right)
    return Vector(true, true | (is_false(left) & is_false(right)))


def is_true(vector: Vector) -> Array:
    return np.asarray(vector.values if vector.valid is None else vector.values & vector.valid)


def is_false(vector: Vector) -> Array:
    return np.asarray(~vector.values if vector.valid is None else ~vector.values & vector.valid)


def valid_mask(vector: Vector) -> Array:
    return np.ones((), np.bool_) if vector.valid is None else vector.valid


def both_valid(left: Vector, right: Vector) -> Array | None:
    if left.valid is None or right.valid is None:
        return right.valid if left.valid is None else left.valid
    return np.asarray(left.valid & right.valid)


# ---- arithmetic ----------------------------------------------------------------------------------


_DAY_US = 86_400_000_000
_INT64_LEAST = np.iinfo(np.int64).min
# Spark negates decimals through Scala's BigDecimal, which rounds to this many digits.
_NEGATED_DIGITS = 34
_EXACT_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_NUMPY_OPERATORS: dict[str, np.ufunc] = {"+": np.add, "-": np.subtract, "*": np.multiply}


@dataclass(frozen=True)
class Operation:
    """An arithmetic call without its operands."""

    name: str
    type: Type
    operands: tuple[Type, ...]
    tally: ErrorTally
    active: ActiveElements


def apply_binary(operation: Operation, left: Vector, right: Vector) -> Vector:
    """+ - * / % div

    Overflow is first excluded from the least and largest values of the operands, which costs a
    tenth of the addition itself; only if that fails is each element tested.
    """
    name, kind = operation.name, operation.type.kind
    valid = both_valid(left, right)
    if name == "/" or (name == "%" and kind == "float"):
        return _divide_floats(operation, left, right, valid)
    if kind == "float":
        dtype = dtype_of(operation.type)
        a = left.values.astype(dtype, copy=False)
        b = right.values.astype(dtype, copy=False)
        return Vector(np.asarray(_NUMPY_OPERATORS[name](a, b)), valid)
    if "date" in (type_.kind for type_ in operation.operands) and kind.startswith("timestamp"):
        raise _make_refusal(operation)  # a date counts days, and adding an interval may need a zone
    a, b = _integer_operands(operation, left, right)
    if name in ("%", "div"):
        return _divide_integers(operation, a, b, valid)
    if kind == "decimal":
        return _apply_decimal(operation, a, b, valid)
    result = _apply_integer(operation, a, b, valid)
    if kind == "interval" and operation.operands[0].kind == "date":
        days = Operation("*", operation.type, operation.operands, operation.tally, operation.active)
        return _apply_integer(days, result.values, np.array(_DAY_US), result.valid)
    return result


def apply_unary(operation: Operation, operand: Vector) -> Vector:
    """neg, abs"""
    values, type_ = operand.values, operation.type
    if type_.kind == "decimal" and type_.precision > _NEGATED_DIGITS:
        raise _make_refusal(operation)
    if values.dtype.kind == "b":  # a NULL without a type
        values = values.astype(dtype_of(type_))
    result = np.asarray(np.negative(values) if operation.name == "neg" else np.abs(values))
    if values.dtype.kind != "i" or type_.kind == "decimal" or not values.size:
        return Vector(result, operand.valid, operand.nan_free)
    least = np.iinfo(values.dtype).min
    if values.min() != least or _wraps(operation):
        return Vector(result, operand.valid)
    failed = np.asarray(values == least)
    always = type_.kind != "int"
    return Vector(
        result, operation.tally.fail(failed, operand.valid, operation.active, always=always)
    )


def _divide_floats(
    operation: Operation, left: Vector, right: Vector, valid: Array | None
) -> Vector:
    if operation.type.kind != "float":
        raise _make_refusal(operation)
    dtype = dtype_of(operation.type)
    a = left.values.astype(dtype, copy=False)
    b = right.values.astype(dtype, copy=False)
    result = np.asarray(np.divide(a, b) if operation.name == "/" else np.fmod(a, b))
    zero = np.asarray(b == 0)
    return Vector(result, _fail_zero_divisors(operation, zero, valid, result))


def _divide_integers(operation: Operation, a: Array, b: Array, valid: Array | None) -> Vector:
    zero = np.asarray(b == 0, np.bool_)
    safe = np.where(zero, 1, b) if zero.any() else b
    if object in (a.dtype, safe.dtype):
        remainder = np.asarray(_REMAINDER(a, safe), object)
    else:
        remainder = np.asarray(np.fmod(a, safe))
    if operation.name == "%":
        valid = _fail_zero_divisors(operation, zero, valid, remainder)
        return Vector(remainder.astype(dtype_of(operation.type), copy=False), valid)
    result = np.asarray((a - remainder) // safe)
    valid = _fail_zero_divisors(operation, zero, valid, result)
    if result.dtype == object:
        # Spark takes the low 64 bits of a decimal quotient, in an ANSI session too.
        return Vector(((result + (1 << 63)) % (1 << 64) - (1 << 63)).astype(np.int64), valid)
    failed = np.asarray((a == _INT64_LEAST) & (safe == -1))
    if failed.any() and not _wraps(operation):
        valid = operation.tally.fail(failed, valid, operation.active)
    return Vector(result, valid)


def _fail_zero_divisors(
    operation: Operation, zero: Array, valid: Array | None, result: Array
) -> Array | None:
    if not zero.any():
        return valid
    zero = np.broadcast_to(zero, result.shape)
    return operation.tally.fail(zero, valid, operation.active)


def _apply_integer(operation: Operation, a: Array, b: Array, valid: Array | None) -> Vector:
    dtype = dtype_of(operation.type)
    result = np.asarray(_NUMPY_OPERATORS[operation.name](a, b))
    low, high = _result_bounds(operation.name, a, b)
    limits = np.iinfo(dtype.type)
    if (limits.min <= low and high <= limits.max) or _wraps(operation):
        return Vector(result.astype(dtype, copy=False), valid)
    failed = _find_overflow(operation.name, a, b, result)
    failed = failed | (result < limits.min) | (result > limits.max)
    if failed.any():
        always = operation.type.kind != "int"
        valid = operation.tally.fail(failed, valid, operation.active, always=always)
    return Vector(result.astype(dtype, copy=False), valid)


def _find_overflow(name: str, a: Array, b: Array, result: Array) -> Array:
    """Where the int64 result wrapped around."""
    if name == "+":
        return np.asarray(((a ^ result) & (b ^ result)) < 0)
    if name == "-":
        return np.asarray(((a ^ b) & (a ^ result)) < 0)
    # A wrapped product is at least 2**64 off, so dividing it by one factor misses the other.
    divisor = np.where(a == 0, 1, a)
    missed = (result // divisor != b) & (a != 0)
    return np.asarray(missed | ((a == -1) & (b == _INT64_LEAST)))


def _apply_decimal(operation: Operation, a: Array, b: Array, valid: Array | None) -> Vector:
    low, high = _result_bounds(operation.name, a, b)
    if max(high, -low) >= 1 << 63 and a.dtype != object:
        a = a.astype(object)
    result = np.asarray(_NUMPY_OPERATORS[operation.name](a, b))
    return check_decimal(result, valid, operation.type, operation.tally, operation.active)


def rescale_decimals(values: Array, digits: int) -> Array:
    """Unscaled decimals with `digits` more digits after the decimal point."""
    if digits == 0:
        return values
    low, high = _value_bounds(values)
    if values.dtype != object and max(high, -low) * 10**digits < 1 << 63:
        return np.asarray(values * 10**digits)
    return np.asarray(values.astype(object) * 10**digits)


def check_decimal(
    values: Array, valid: Array | None, type_: Type, tally: ErrorTally, active: ActiveElements
) -> Vector:
    """Unscaled values as the declared decimal type; those with too many digits fail."""
    limit = 10**type_.precision
    low, high = _value_bounds(values)
    if low <= -limit or high >= limit:
        failed = np.asarray((values >= limit) | (values <= -limit), np.bool_)
        valid = tally.fail(failed, valid, active)
        values = np.where(failed, 0, values)
    return Vector(values.astype(dtype_of(type_), copy=False), valid)


def _integer_operands(operation: Operation, left: Vector, right: Vector) -> tuple[Array, Array]:
    """The operands as int64 (or Python ints), decimals brought to one scale except for *."""
    a, b = left.values, right.values
    width = dtype_of(operation.type)
    if operation.type.kind == "int" and width.itemsize < 8:
        # Narrow operands stay narrow where the result fits: a quarter of the memory traffic.
        low, high = _result_bounds(operation.name, a, b)
        limits = np.iinfo(width.type)
        if operation.name in _EXACT_OPERATORS and limits.min <= low and high <= limits.max:
            return a.astype(width, copy=False), b.astype(width, copy=False)
    a = a if a.dtype == object else a.astype(np.int64, copy=False)
    b = b if b.dtype == object else b.astype(np.int64, copy=False)
    if operation.name == "*":
        return a, b
    scales = [type_.scale for type_ in operation.operands]
    return rescale_decimals(a, max(scales) - scales[0]), rescale_decimals(
        b, max(scales) - scales[1]
    )


def _make_refusal(operation: Operation) -> CepError:
    return CepError(
        f"the engine cannot compute {operation.name} with the result type "
        f"{operation.type.kind} as Spark does",
        hint="let Spark compute it: name one variable only, or use it in measures",
    )


def _wraps(operation: Operation) -> bool:
    return operation.type.kind == "int" and not operation.tally.ansi


def _result_bounds(name: str, a: Array, b: Array) -> tuple[int, int]:
    if name not in _EXACT_OPERATORS:
        return 0, 0
    (a_low, a_high), (b_low, b_high) = _value_bounds(a), _value_bounds(b)
    if name == "-":
        return a_low - b_high, a_high - b_low
    corners = [_EXACT_OPERATORS[name](x, y) for x in (a_low, a_high) for y in (b_low, b_high)]
    return min(corners), max(corners)


def _value_bounds(values: Array) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if values.size else (0, 0)


def _truncate_remainder(a: int, b: int) -> int:
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


_REMAINDER = np.frompyfunc(_truncate_remainder, 2, 1)


# ---- casts ---------------------------------------------------------------------------------------


# Powers of ten up to this exponent are exact doubles. If both sides of a division are exact, the
# quotient is correctly rounded.
_EXACT_POWER_OF_TEN = 22


def apply_cast(operation: Operation, vector: Vector) -> Vector:
    """A cast that Spark inserts to give two operands one type. These casts only widen.

    Integers to wider integers, floats or decimals; floats to doubles; decimals to more digits or to
    double; dates to timestamps without zone. Any other cast depends on the session or may fail, and
    Spark computes it before the rows are shipped.
    """
    target, source = operation.type, operation.operands[0]
    dtype = dtype_of(target)
    if source.kind == "null":
        return Vector(np.zeros(vector.values.shape, dtype), vector.valid)
    if target.kind == "decimal" and source.kind in ("int", "decimal"):
        digits = target.scale - (source.scale if source.kind == "decimal" else 0)
        if digits >= 0:
            wide = (
                vector.values if vector.values.dtype == object else vector.values.astype(np.int64)
            )
            scaled = rescale_decimals(wide, digits)
            return check_decimal(scaled, vector.valid, target, operation.tally, operation.active)
    elif target.kind == "float" and source.kind == "decimal" and target.bits == 64:
        return Vector(_decimal_to_double(vector.values, source.scale), vector.valid, nan_free=True)
    elif target.kind == "timestamp_ntz" and source.kind == "date":
        return Vector(np.asarray(vector.values * _DAY_US), vector.valid)
    elif (source.kind, target.kind) == ("int", "float"):
        return Vector(vector.values.astype(dtype), vector.valid, nan_free=True)
    elif source.kind == target.kind and source.bits <= target.bits:
        keep = source.kind not in ("int", "float")
        values = vector.values if keep else vector.values.astype(dtype, copy=False)
        return Vector(values, vector.valid, vector.nan_free)
    raise CepError(
        f"the engine does not cast {source.kind} to {target.kind} exactly",
        hint="write the cast on one variable, where Spark computes it",
    )


def _decimal_to_double(values: Array, scale: int) -> Array:
    """Unscaled decimals as doubles, correctly rounded like BigDecimal.doubleValue."""
    if values.dtype != object and scale <= _EXACT_POWER_OF_TEN:
        largest = max(int(values.max()), -int(values.min())) if values.size else 0
        if largest <= EXACT_DOUBLE:
            return np.asarray(values / float(10**scale))
    # Division of Python integers is correctly rounded whatever their size.
    return np.asarray(values.astype(object) / 10**scale, np.float64)


# ---- CASE, COALESCE, LEAST, GREATEST -------------------------------------------------------------


def unify_words(
    vectors: list[Vector], types: Sequence[Type], columns: EventColumns
) -> list[Vector]:
    """The vectors in one representation.

    Words returned by a user function have no code, so where one vector has such words all become
    Python objects, which order as their bytes do.
    """
    is_object = [vector.values.dtype == object for vector in vectors]
    kind = next((type_.kind for type_ in types if type_.kind in WORD_KINDS), None)
    if kind is None or not any(is_object):
        return vectors
    return [
        vector if done else columns.as_words(vector, Type(kind))
        for vector, done in zip(vectors, is_object, strict=True)
    ]


def choose_values(taken: Array, first: Vector, second: Vector, type_: Type) -> Vector:
    """`first` where `taken`, else `second`."""
    values = np.where(taken, *_convert_values([first, second], type_))
    nan_free = first.nan_free and second.nan_free
    if first.valid is None and second.valid is None:
        return Vector(values, None, nan_free)
    return Vector(values, np.where(taken, valid_mask(first), valid_mask(second)), nan_free)


def coalesce_values(first: Vector, second: Vector, type_: Type) -> Vector:
    values = np.where(valid_mask(first), *_convert_values([first, second], type_))
    nan_free = first.nan_free and second.nan_free
    if first.valid is None or second.valid is None:
        return Vector(values, None, nan_free)
    return Vector(values, first.valid | second.valid, nan_free)


def least_or_greatest(call: Call, vectors: list[Vector]) -> Vector:
    """LEAST and GREATEST skip NULLs; the result is NULL only where all are."""
    comparison = "<" if call.name == "least" else ">"
    result = vectors[0]
    for other in vectors[1:]:
        better = compare_values(comparison, other, result)
        if other.valid is not None:
            better = better & other.valid
        if result.valid is not None:
            better = better | ~result.valid
        values = np.where(better, *_convert_values([other, result], call.type))
        valid = None
        if other.valid is not None and result.valid is not None:
            valid = other.valid | result.valid
        result = Vector(values, valid, other.nan_free and result.nan_free)
    return result


def _convert_values(vectors: Sequence[Vector], type_: Type) -> list[Array]:
    dtype = dtype_of(type_)
    if any(vector.values.dtype == object for vector in vectors):
        dtype = np.dtype(object)
    return [vector.values.astype(dtype, copy=False) for vector in vectors]
