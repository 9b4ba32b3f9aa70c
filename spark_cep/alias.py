"""`DataFrame.match_pattern`, set by `import spark_cep`, without importing pyspark.

Python workers import this package too, to find the engine, and pyspark.sql would cost each of
them a second. So the alias waits: it is set at once if pyspark's DataFrame is already loaded, and
otherwise when somebody loads it. Classic and Connect DataFrames share that parent class.
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

    from pyspark.sql import DataFrame


_MODULE = "pyspark.sql.dataframe"


def install_alias() -> None:
    """Sets the alias now, or as soon as pyspark's DataFrame is loaded."""
    module = sys.modules.get(_MODULE)
    if module is not None and hasattr(module, "DataFrame"):
        _set_alias(module)
    elif not any(isinstance(finder, _DataFrameFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DataFrameFinder())


def _set_alias(module: ModuleType) -> None:
    module.DataFrame.match_pattern = _match_pattern


def _match_pattern(self: DataFrame, pattern: Any, **options: Any) -> DataFrame:
    """Finds a pattern in the rows of this DataFrame; see `spark_cep.match_pattern`."""
    from spark_cep.api import match_pattern  # noqa: PLC0415 - it imports pyspark.sql

    return match_pattern(self, pattern, **options)


_match_pattern.__name__ = "match_pattern"
_match_pattern.__qualname__ = "DataFrame.match_pattern"


class _DataFrameFinder(MetaPathFinder):
    """Sees pyspark's DataFrame module being imported, once, and steps aside."""

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
    """Loads as the real loader does, then sets the alias."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _set_alias(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
