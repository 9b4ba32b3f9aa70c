"""The library's errors, and how an error leaves a Spark worker.

Spark shows a worker's exception to the user as text inside its own PythonException. So a worker
raises a `WorkerError`, whose message ends in a line of JSON, and `parse_error` reads the error back
from that text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from spark_cep.udfs.public import public

_MARK = "spark-cep-error:"


@public
class CepError(Exception):
    """Any error of this library.

    Args:
        message: What is wrong, and where.
        hint: What to write or do instead.
        details: Values for programs, for example the partition key and the counts of a LimitError.

    Example:
        >>> error = CepError("the window is empty", hint="write a window above 0")
        >>> print(error)
        the window is empty
          hint: write a window above 0
    """

    def __init__(
        self, message: str, *, hint: str | None = None, details: Mapping[str, object] | None = None
    ) -> None:
        self.message = message
        self.hint = hint
        self.details: dict[str, object] = dict(details or {})
        super().__init__(message)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_error, (type(self).__name__, self.message, self.hint, self.details))


@public
class PatternError(CepError):
    """A pattern, a condition, a measure or another argument is wrong, or not supported."""


@public
class PlanError(CepError):
    """A plan, statistics or a setting do not fit the pattern."""


@public
class LimitError(CepError):
    """A query reached one of its `Limits`; `details` has the partition key and the counts."""


@public
class RemoteError(CepError):
    """Remote data could not be fetched, also after all retries."""


class WorkerError(Exception):
    """A `CepError` that leaves a worker: its text, then the line that `parse_error` reads."""

    def __init__(self, error: CepError) -> None:
        super().__init__(f"{type(error).__name__}: {error}\n{_MARK}{_to_json(error)}")


_KINDS: dict[str, type[CepError]] = {
    kind.__name__: kind for kind in (CepError, PatternError, PlanError, LimitError, RemoteError)
}


def parse_error(text: str) -> CepError | None:
    """The error in a text, possibly in the middle of a traceback; None if there is none.

    >>> error = LimitError("too many", hint="add WITHIN", details={"key": ["k1"]})
    >>> back = parse_error(f"Traceback ...: {WorkerError(error)} and more")
    >>> (type(back).__name__, back.message, back.details)
    ('LimitError', 'too many', {'key': ['k1']})
    """
    found = re.search(re.escape(_MARK), text)
    if found is None:
        return None
    try:
        fields, _ = json.JSONDecoder().raw_decode(text[found.end() :])
    except ValueError:
        return None
    return _rebuild_error(fields["kind"], fields["message"], fields["hint"], fields["details"])


def _rebuild_error(
    kind: str, message: str, hint: str | None, details: Mapping[str, object]
) -> CepError:
    return _KINDS.get(kind, CepError)(message, hint=hint, details=details)


def _to_json(error: CepError) -> str:
    fields = {
        "kind": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
        "details": error.details,
    }
    return json.dumps(fields, default=str)
