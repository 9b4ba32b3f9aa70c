"""The name that a public class or function has for users."""

from __future__ import annotations

from typing import Any, TypeVar

_T = TypeVar("_T")


def public(item: _T) -> _T:
    """Decorates what `spark_cep` offers, so that it reports itself as part of `spark_cep`.

    Tracebacks, `repr` and `help` then show the name that users import. Pickles have that name
    too, so it must be in `spark_cep.__all__`. It is the outermost decorator: a dataclass looks
    up its annotations in the module that its class reports.

    >>> from spark_cep.udfs.errors import PatternError
    >>> PatternError
    <class 'spark_cep.PatternError'>
    """
    named: Any = item
    named.__module__ = "spark_cep"
    return item
