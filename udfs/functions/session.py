"""Python functions of the session (spark.udf.register), called as Spark's workers call them.

A function of rows gets plain Python objects, a pandas UDF gets Series. A result that Spark would
convert by rules of the JVM, a list for STRING, is an error here and not another value.
"""

from __future__ import annotations

import calendar
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.functions.nested import element_type
from spark_cep.udfs.functions.numbers import as_float, quantize, wrap

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type

_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_SECOND_US: Final = 1_000_000
_LONG: Final = 1 << 63
_INPUTS: Final = frozenset(
    {"bool", "int", "float", "decimal", "string", "date", "timestamp", "timestamp_ntz",
     "interval", "null"}
)  # fmt: skip
_OUTPUTS: Final = _INPUTS - {"null"} | {"binary"}
# With Arrow, Series of times are in the time zone of the session.
_SERIES: Final = frozenset({"bool", "int", "float", "string", "date"})


@dataclass(frozen=True)
class SessionFunction:
    """`form`: "rows", or "series" for a pandas UDF."""

    name: str
    form: str
    function: Callable[..., Any]

    def takes(self, type_: Type) -> bool:
        element = element_type(type_)
        if self.form == "rows" and element is not None:
            return self.takes(element)
        return type_.kind in (_INPUTS if self.form == "rows" else _SERIES)

    def returns(self, type_: Type) -> bool:
        element = element_type(type_)
        if self.form == "rows" and element is not None:
            return self.returns(element)
        return type_.kind in (_OUTPUTS if self.form == "rows" else _SERIES)

    def __call__(self, *series: Any) -> Any:
        try:
            return self.function(*series)
        except Exception as error:
            raise CepError(f"{self.name} failed: {type(error).__name__}: {error}") from error

    def call_rows(
        self, arguments: Sequence[Sequence[Any]], types: Sequence[Type], result: Type
    ) -> list[Any]:
        """The results for lists of the engine's values."""
        given = [
            [_to_python(each, type_) for each in values]
            for values, type_ in zip(arguments, types, strict=True)
        ]
        return [self._of_python(self(*row), result) for row in zip(*given, strict=True)]

    def _of_python(self, value: Any, type_: Type) -> Any:
        if value is None:
            return None
        element = element_type(type_)
        if element is not None and isinstance(value, list | tuple):
            return tuple(self._of_python(each, element) for each in value)
        convert = _CONVERSIONS.get(type_.kind)
        found = _UNKNOWN if convert is None else convert(value, type_)
        if found is _UNKNOWN:
            raise CepError(
                f"{self.name} returned a {type(value).__name__}, but its type is "
                f"{type_.sql or type_.kind}",
                hint="convert the value in the function",
            )
        return found


def _to_python(value: Any, type_: Type) -> Any:  # noqa: PLR0911
    if value is None:
        return None
    kind = type_.kind
    if kind == "other":
        element = element_type(type_)
        assert element is not None
        return [_to_python(each, element) for each in value]
    if kind == "decimal":
        return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -type_.scale))
    if kind == "date":
        return date.fromordinal(value + _EPOCH_DAY)
    if kind == "timestamp":
        # In the time zone of the worker's process, as Spark passes it.
        return datetime.fromtimestamp(value // _SECOND_US).replace(microsecond=value % _SECOND_US)
    if kind == "timestamp_ntz":
        return _EPOCH + timedelta(microseconds=value)
    return timedelta(microseconds=value) if kind == "interval" else value


# ---- results -------------------------------------------------------------------------------------


_UNKNOWN: Final = object()
_PLAIN: Final = (bool, int, float, str)


def _bool(value: Any, _: Type) -> Any:
    return value if type(value) is bool else None if type(value) in _PLAIN else _UNKNOWN


def _int(value: Any, type_: Type) -> Any:
    if type(value) is int:
        return wrap(value, type_.bits) if -_LONG <= value < _LONG else None
    return None if type(value) in _PLAIN else _UNKNOWN


def _float(value: Any, type_: Type) -> Any:
    if type(value) is float:
        return as_float(value, type_)
    return None if type(value) in _PLAIN else _UNKNOWN


def _decimal(value: Any, type_: Type) -> Any:
    if not isinstance(value, Decimal):
        return None if type(value) in _PLAIN else _UNKNOWN
    if not value.is_finite():
        return _UNKNOWN
    found = int(quantize(value, type_.scale, ROUND_HALF_UP).scaleb(type_.scale))
    if abs(found) >= 10**type_.precision:
        return _UNKNOWN
    return found


def _string(value: Any, _: Type) -> Any:
    if type(value) is bool:
        return "true" if value else "false"
    return str(value) if isinstance(value, str) or type(value) is int else _UNKNOWN


def _binary(value: Any, _: Type) -> Any:
    return bytes(value) if isinstance(value, bytes | bytearray) else _UNKNOWN


def _date(value: Any, _: Type) -> Any:
    return value.toordinal() - _EPOCH_DAY if isinstance(value, date) else _UNKNOWN


def _timestamp(value: Any, _: Type) -> Any:
    if not isinstance(value, datetime):
        return _UNKNOWN
    if value.tzinfo is not None:
        seconds = calendar.timegm(value.utctimetuple())
    else:
        seconds = math.floor(value.replace(microsecond=0).timestamp())
    return seconds * _SECOND_US + value.microsecond


def _local(value: Any, _: Type) -> Any:
    if not isinstance(value, datetime):
        return _UNKNOWN
    return calendar.timegm(value.timetuple()) * _SECOND_US + value.microsecond


def _interval(value: Any, _: Type) -> Any:
    return value // timedelta(microseconds=1) if isinstance(value, timedelta) else _UNKNOWN


_CONVERSIONS: Final[dict[str, Callable[[Any, Type], Any]]] = {
    "bool": _bool, "int": _int, "float": _float, "decimal": _decimal, "string": _string,
    "binary": _binary, "date": _date, "timestamp": _timestamp, "timestamp_ntz": _local,
    "interval": _interval,
}  # fmt: skip
