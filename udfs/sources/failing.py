"""How ready sources fail: for good, in passing, or because a library is missing.

Always holds: a `RemoteError` is final and is not tried again; a `PassingFailure` may be over at
the next try, so the retries, the pause and the limit of the remote are for it. Texts are scrubbed,
and both are raised outside of the `except` that saw the library's error: its text, which may quote
a password, is then not even in a chained exception.

What is wrong with one key only is not raised: the `RemoteError` is the value of that key. Which
keys share a batch depends on the strategy, and must not decide whether a query fails.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TypeVar

from spark_cep.udfs.errors import PatternError, RemoteError

Answer = TypeVar("Answer")

_NAMED_SHOWN = 60


class PassingFailure(Exception):
    """A fetch failed, and the next try may not."""


def attempt(
    ask: Callable[[], Answer], told: Callable[[Exception], Exception], extra: str
) -> Answer:
    """What `ask` gives, else the failure that `told` makes of its error."""
    failure: Exception
    try:
        return ask()
    except ImportError as error:
        failure = RemoteError(
            f"a worker lacks a library: {error}",
            hint=f"pip install 'spark-cep[{extra}]' on the workers' machines too",
        )
    except Exception as error:
        failure = told(error)
    raise failure


def need_library(module: str, extra: str, what: str) -> None:
    """Refuses what needs a library that is not installed here, on the driver."""
    if importlib.util.find_spec(module) is None:
        raise PatternError(
            f"{what} needs the library {module}, which is not installed",
            hint=f"pip install 'spark-cep[{extra}]', on the workers' machines too",
        )


def shown(key: object) -> str:
    """A key in an error: what it begins with. Values are not shown: they may be private."""
    text = repr(key)
    return text if len(text) <= _NAMED_SHOWN else f"{text[:_NAMED_SHOWN]}... ({len(text)} long)"
