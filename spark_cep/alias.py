"""Sets `DataFrame.match_pattern` on `import spark_cep`, without importing pyspark.

Python workers import this package to find the engine, and importing pyspark.sql would cost each
of them a second. So the method is set at once if pyspark's DataFrame is loaded, and otherwise when
it is. Classic and Connect DataFrames inherit it from that one class.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


_MODULE = "pyspark.sql.dataframe"


def install_alias() -> None:
    """Sets the method now, or as soon as pyspark's DataFrame is loaded."""
    module = sys.modules.get(_MODULE)
    if module is not None and hasattr(module, "DataFrame"):
        _set_alias(module)
    elif not any(isinstance(finder, _DataFrameFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DataFrameFinder())


def _set_alias(module: ModuleType) -> None:
    module.DataFrame.match_pattern = _LazyMethod(module.DataFrame)


class _LazyMethod:
    """Stands in for `match_pattern` until it is first used, then puts the function in its place.

    So `help` and `inspect.signature` show the function's own documentation and signature.
    """

    def __init__(self, owner: type) -> None:
        self._owner: Any = owner

    def __get__(self, instance: object, owner: type) -> Any:
        from spark_cep.api import match_pattern  # noqa: PLC0415 - it imports pyspark.sql

        self._owner.match_pattern = match_pattern
        return match_pattern.__get__(instance, owner)


class _DataFrameFinder(MetaPathFinder):
    """Notices the first import of pyspark's DataFrame module, and removes itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != _MODULE:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _AliasLoader(spec.loader)
        return spec


class _AliasLoader(Loader):
    """Loads the module as its own loader does, then sets the method."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _set_alias(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
