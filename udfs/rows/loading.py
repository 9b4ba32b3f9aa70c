"""Access to the compiled functions. numba is imported only where a row pattern runs.

Compiling takes some seconds and happens once per installation (`jit_cache`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from spark_cep.udfs import jit_cache

# Everything that is compiled, or compiled in as constants: the key of the cache.
_COMPILED_MODULES: Final = (
    "instructions",
    "interpreter",
    "jit",
    "kernel",
    "records",
)


@cache
def load_kernel() -> Callable[..., int]:
    """The compiled matcher."""
    search: Callable[..., int] = _import_compiled("kernel").search
    return search


@cache
def load_scans() -> Any:
    """The module of compiled folds over the rows of matches."""
    return _import_compiled("jit")


def _import_compiled(name: str) -> ModuleType:
    with jit_cache.cached(*(f"{__package__}.{each}" for each in _COMPILED_MODULES)):
        return import_module(f"{__package__}.{name}")
