"""`cep.udf`: vectorized Python functions for conditions over several variables.

A function is registered under its name for the whole driver process. It takes one pandas Series
for each argument and returns a value for each row. It runs in the engine, so it is for conditions
across rows that Spark SQL cannot express; for one row, use a Spark UDF before matching.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

from sqlglot.dialects.spark import Spark

from spark_cep.errors import PatternError
from spark_cep.expressions.types import name_of, parse_type
from spark_cep.udfs.expressions import DOUBLE, Type
from spark_cep.udfs.public import public


@dataclass(frozen=True)
class UserFunction:
    """A registered function. Calling it calls the Python function."""

    name: str
    function: Callable[..., Any]
    returns: Type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"cep.udf {self.name} returning {name_of(self.returns)}"


_REGISTERED: dict[str, UserFunction] = {}
_RESERVED = frozenset({"prev", "remote"})


@overload
def udf(
    fn: Callable[..., Any], returns: str = "double", name: str | None = None
) -> UserFunction: ...
@overload
def udf(
    fn: None = None, returns: str = "double", name: str | None = None
) -> Callable[[Callable[..., Any]], UserFunction]: ...
@public
def udf(
    fn: Callable[..., Any] | None = None, returns: str = "double", name: str | None = None
) -> UserFunction | Callable[[Callable[..., Any]], UserFunction]:
    """Registers a vectorized Python function for use in conditions under its name.

    It is for conditions that tie several variables together and that Spark SQL cannot express.
    Also a decorator: `@cep.udf(returns="boolean")`.

    Args:
        fn: The function. It takes a pandas Series for each argument and returns as many values.
        returns: The type of a value, as in Spark SQL: "double", "boolean", "string", ...
        name: The name in conditions; without it the name of the function.

    Returns:
        The registered function, which can still be called; without `fn` a decorator.

    Raises:
        PatternError: The name is not an identifier or is a function of SQL, or the type cannot be
            returned.

    Example:
        >>> @udf(returns="boolean")
        ... def close_to(x, y):
        ...     return abs(x - y) < 0.5
        >>> close_to
        cep.udf close_to returning BOOLEAN
    """
    if fn is None:
        return lambda function: udf(function, returns, name)
    if not callable(fn):
        raise PatternError(
            f"cep.udf takes a function, not {type(fn).__name__}",
            hint='cep.udf(lambda x, y: x - y, returns="double", name="difference")',
        )
    made = UserFunction(_check_name(fn, name), fn, _check_type(returns))
    _REGISTERED[made.name.casefold()] = made
    return made


def find_user_function(name: str) -> UserFunction | None:
    return _REGISTERED.get(name.casefold())


def _check_name(fn: Callable[..., Any], name: str | None) -> str:
    name = name if name is not None else getattr(fn, "__name__", "")
    if re.fullmatch(r"[^\W\d]\w*", name) is None:
        raise PatternError(
            f"{name!r} is not a valid function name",
            hint='set a name: cep.udf(fn, returns="double", name="distance")',
        )
    if name.upper() in Spark.Parser.FUNCTIONS or name.casefold() in _RESERVED:
        raise PatternError(
            f"{name} is already a SQL function",
            hint=f'choose another name: cep.udf(fn, name="my_{name}")',
        )
    return name


def _check_type(returns: str) -> Type:
    found = parse_type(returns) if isinstance(returns, str) else None
    if found is None:
        raise PatternError(
            f"a cep.udf cannot return {returns!r}",
            hint='use a type of a single value: "double", "boolean", "bigint", "string", '
            '"decimal(10,2)", "timestamp"; for several values register several functions',
        )
    return found


assert parse_type("double") == DOUBLE
