"""From the answers of services to values of the declared type.

Services return text, JSON, or what a database driver makes of a column. A value that does not fit
the type is an error, never NULL and never truncated: a wrong limit would be a wrong match. Numbers
may arrive as text, since Redis has nothing else; a fraction is never taken for an integer.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import pyarrow as pa

from spark_cep.udfs.errors import PatternError
from spark_cep.udfs.sources.clients import show_key

Decoder = Callable[[Any], Any]

_INTEGER = re.compile(r"\s*[+-]?\d{1,100}\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_SPECIAL = re.compile(r"\s*([+-]?inf(inity)?|nan)\s*", re.IGNORECASE)
_INTEGERS = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}


class DecodingError(ValueError):
    """A value does not have the type. The source adds whose value it is."""


def make_decoder(type_: pa.DataType) -> Decoder:
    """Decodes what a service returns for a value of the type. None stays None."""
    decode = _choose_decoder(type_)
    return lambda value: None if value is None else decode(value)


def is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def from_json(text: str | bytes) -> Any:
    """Parsed JSON. Fractions keep their written digits, so that a decimal is exact."""
    try:
        return json.loads(text, parse_float=_fraction)
    except (ValueError, RecursionError) as error:
        raise DecodingError(f"is not JSON, but {outline(text)}") from error


def _fraction(text: str) -> float | Decimal:
    """A float if it prints in the same digits, as nearly all do, else a Decimal."""
    number = float(text)
    return number if repr(number) == text else Decimal(text)


def _choose_decoder(type_: pa.DataType) -> Decoder:  # noqa: PLR0911, a ladder of types
    types = pa.types
    if types.is_boolean(type_):
        return _boolean
    if types.is_signed_integer(type_):
        return _integers(type_.bit_width)
    if types.is_floating(type_):
        return _float
    if types.is_decimal(type_):
        return _decimals(type_.precision, type_.scale)
    if types.is_string(type_) or types.is_large_string(type_):
        return _text
    if types.is_binary(type_) or types.is_large_binary(type_):
        return _bytes
    if types.is_date(type_):
        return _date
    if types.is_timestamp(type_):
        return _instant if type_.tz else _local_time
    return _nested_decoder(type_)


def _nested_decoder(type_: pa.DataType) -> Decoder:
    if is_list(type_):
        return _arrays(make_decoder(type_.value_type))
    if pa.types.is_struct(type_):
        return _structs({type_.field(i).name: type_.field(i).type for i in range(type_.num_fields)})
    if pa.types.is_map(type_):
        return _maps(make_decoder(type_.key_type), make_decoder(type_.item_type))
    raise PatternError(
        f"ready-made sources cannot return values of type {type_}",
        hint="use Remote.fetch with a function of your own",
    )


def _decoding_error(value: Any, wanted: str) -> DecodingError:
    return DecodingError(f"is not {wanted}, but {outline(value)}")


def outline(value: Any) -> str:
    """What kind of value it is, without its content."""
    if isinstance(value, (str, bytes)):
        return f"a text of {len(value)} characters"
    if isinstance(value, (list, tuple)):
        return f"an array of {len(value)}"
    if isinstance(value, Mapping):
        names = sorted(map(str, value))
        return (
            "an object with the fields " + show_key(", ".join(names))
            if names
            else "an empty object"
        )
    return {bool: "a boolean", int: "an integer", float: "a fraction", Decimal: "a fraction"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _boolean(value: Any) -> bool:
    if isinstance(value, bytes):
        value = _text(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "1", "0"):
        return value.strip().lower() in ("true", "1")
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    raise _decoding_error(value, "a boolean")


def _integers(bits: int) -> Decoder:
    bound = 1 << (bits - 1)
    name = f"{'an' if bits == 32 else 'a'} {_INTEGERS[bits]}"

    def integer(value: Any) -> int:
        if isinstance(value, bytes):
            value = _text(value)
        number = None
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            number = int(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        elif isinstance(value, (float, Decimal)) and math.isfinite(value):
            # The range is tested first, so that a decimal of a million digits never becomes an int.
            number = int(value) if -bound <= value < bound and value % 1 == 0 else None
        if number is None or not -bound <= number < bound:
            raise _decoding_error(value, name)
        return number

    return integer


def _float(value: Any) -> float:
    if isinstance(value, bytes):
        value = _text(value)
    is_text = isinstance(value, str) and (_NUMBER.fullmatch(value) or _SPECIAL.fullmatch(value))
    if is_text or (isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)):
        try:
            return float(value)
        except (OverflowError, ValueError):
            pass
    raise _decoding_error(value, "a number")


def _decimals(precision: int, scale: int) -> Decoder:
    name = f"a decimal({precision},{scale})"

    def decimal(value: Any) -> Decimal:
        if isinstance(value, bytes):
            value = _text(value)
        if isinstance(value, float):
            value = repr(value)
        is_text = isinstance(value, str) and _NUMBER.fullmatch(value)
        if not is_text and (isinstance(value, bool) or not isinstance(value, (int, Decimal))):
            raise _decoding_error(value, name)
        number = Decimal(value)
        try:
            fitting = number.quantize(Decimal(1).scaleb(-scale))
        except InvalidOperation:
            fitting = None
        if fitting is None or fitting != number or len(fitting.as_tuple().digits) > precision:
            raise _decoding_error(value, name)
        return fitting

    return decimal


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise _decoding_error(value, "text in UTF-8") from error
    if isinstance(value, (dict, list, bool)):
        return json.dumps(value, default=_as_json)
    return value.isoformat() if isinstance(value, date) else str(value)


def _as_json(value: Any) -> float | str:
    return float(value) if isinstance(value, Decimal) else str(value)


def _bytes(value: Any) -> bytes:
    """Binary values. JSON has them in base64, as Spark writes them."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            pass
    raise _decoding_error(value, "binary, nor base64")


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(_text(value).strip())
    except ValueError as error:
        raise _decoding_error(value, "a date like 2024-01-31") from error


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(_text(value).strip())
    except ValueError as error:
        raise _decoding_error(value, "a timestamp like 2024-01-31T10:00:00Z") from error


def _instant(value: Any) -> datetime:
    """A timestamp. Without a zone it is in UTC: a service does not know the session's."""
    time = _time(value)
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError as error:
        raise _decoding_error(value, "a timestamp in the years 1 to 9999") from error


def _local_time(value: Any) -> datetime:
    time = _time(value)
    if time.tzinfo is not None:
        raise _decoding_error(value, "a timestamp without a zone")
    return time


def _arrays(element: Decoder) -> Decoder:
    def array(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise _decoding_error(value, "an array")
        return [element(one) for one in value]

    return array


def _structs(fields: Mapping[str, pa.DataType]) -> Decoder:
    decoders = {name: make_decoder(type_) for name, type_ in fields.items()}

    def struct(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _decoding_error(value, "an object with the fields " + ", ".join(fields))
        return {
            name: _decode_field(name, decode, value.get(name)) for name, decode in decoders.items()
        }

    return struct


def _decode_field(name: str, decode: Decoder, value: Any) -> Any:
    try:
        return decode(value)
    except DecodingError as error:
        raise DecodingError(f"has a field {name} that {error}") from None


def _maps(key: Decoder, item: Decoder) -> Decoder:
    def mapping(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise _decoding_error(value, "an object")
        return {key(name): item(one) for name, one in value.items()}

    return mapping


def to_plain_value(value: Any) -> Any:
    """A value from a database, in a type that keys can have."""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return str(value) if isinstance(value, UUID) else value
