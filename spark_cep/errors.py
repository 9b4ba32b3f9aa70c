"""The library's errors, and how to find one in an exception of Spark."""

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
    """Finds the library's error in an exception, for example in Spark's PythonException.

    Args:
        exc: The exception that an action raised.

    Returns:
        The error, with its `message`, `hint` and `details`: the exception itself, or the one that
        its text or one of its causes holds. None if there is none.

    Example:
        >>> from spark_cep.udfs.errors import WorkerError
        >>> limit = LimitError("too many matches", hint="add a condition")
        >>> error = error_of(RuntimeError(f"Job aborted. {WorkerError(limit)}"))
        >>> type(error), error.hint
        (<class 'spark_cep.LimitError'>, 'add a condition')
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
