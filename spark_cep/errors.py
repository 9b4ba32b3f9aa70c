"""The errors users see, and how to get one back out of Spark's."""

from __future__ import annotations

from spark_cep.udfs.errors import (
    CepError,
    LimitError,
    PatternError,
    PlanError,
    RemoteError,
    parse_error,
)
from spark_cep.udfs.public import public

__all__ = ["CepError", "LimitError", "PatternError", "PlanError", "RemoteError", "error_of"]


@public
def error_of(exc: BaseException) -> CepError | None:
    """The library's error inside an exception, for example Spark's PythonException.

    Looks at the exception itself, then at its causes; None when no error of ours is there.
    """
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        if isinstance(current, CepError):
            return current
        found = parse_error(str(current))
        if found is not None:
            return found
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return None
