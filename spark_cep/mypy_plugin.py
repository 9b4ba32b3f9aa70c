"""A mypy plugin that gives `df.match_pattern(...)` the signature of `spark_cep.match_pattern`.

mypy does not see a method that is set at run time; `DataFrame.__getattr__` makes it a Column,
which cannot be called. In pyproject.toml:

    [tool.mypy]
    plugins = ["spark_cep.mypy_plugin"]

Without the plugin, `spark_cep.match_pattern(df, ...)` is typed and does the same.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.nodes import Decorator, MypyFile
from mypy.plugin import AttributeContext, Plugin
from mypy.typeops import bind_self
from mypy.types import CallableType, Type, get_proper_type

_HOME = "spark_cep.api"
_NAME = "match_pattern"


class _MatchPatternPlugin(Plugin):
    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        is_alias = fullname.startswith("pyspark.sql.") and fullname.endswith(f".DataFrame.{_NAME}")
        return self._method_type if is_alias else None

    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        # Loaded before any file that uses DataFrames, even if that file does not import it.
        return [(10, _HOME, -1)] if file.fullname == "pyspark.sql.dataframe" else []

    def _method_type(self, context: AttributeContext) -> Type:
        found = self.lookup_fully_qualified(f"{_HOME}.{_NAME}")
        node = found.node if found is not None else None
        function = get_proper_type(node.type) if isinstance(node, Decorator) else None
        if not isinstance(function, CallableType):
            return context.default_attr_type
        return bind_self(function, context.type)


def plugin(version: str) -> type[Plugin]:
    """What mypy calls; `version` is its own."""
    del version
    return _MatchPatternPlugin
