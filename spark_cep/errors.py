"""The library's errors and its warning, and how to find an error in an exception of Spark."""

from __future__ import annotations

import sys
import warnings

from spark_cep.udfs.errors import (
    CepError,
    LimitError,
    PatternError,
    PlanError,
    RemoteError,
    parse_error,
)
from spark_cep.udfs.public import public

__all__ = [
    "CepError",
    "LimitError",
    "PatternError",
    "PatternWarning",
    "PlanError",
    "RemoteError",
    "error_of",
]


@public
class PatternWarning(UserWarning):
    """A pattern may not do what was meant: without ORDER BY its answer may differ from run to run,
    or load shedding is expected to cost more time than it saves.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", PatternWarning)  # an exception instead
        >>> warnings.resetwarnings()
    """


def warn_user(message: str) -> None:
    """A PatternWarning at the line outside of the library that called it."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _is_own(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, PatternWarning, stacklevel=level)


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == "spark_cep"


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
