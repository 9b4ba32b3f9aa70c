"""The public functions and classes, by the names that users write."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import spark_cep
from spark_cep.sql.session import sql

# Their examples need a session, which tests/spark/test_doctests.py has.
NEEDS_SPARK = frozenset(
    {"explain", "install", "match_pattern", "metrics", "plan_of", "sql", "streaming.metrics"}
)


def public_objects() -> Mapping[str, Any]:
    """What `spark_cep` and its public modules give out; `sql` is the function."""
    return dict(_public_objects())


def _public_objects() -> Iterator[tuple[str, Any]]:
    for name in spark_cep.__all__:
        item = getattr(spark_cep, name)
        if name == "sql":
            yield name, sql
        elif isinstance(item, ModuleType):
            yield from ((f"{name}.{each}", getattr(item, each)) for each in item.__all__)
        else:
            yield name, item


def public_callables() -> Mapping[str, Any]:
    """Public functions and classes, and the public methods of the classes."""
    found = dict(public_objects())
    for name, item in public_objects().items():
        if isinstance(item, type) and not issubclass(item, Exception):
            for method, value in vars(item).items():
                is_method = inspect.isfunction(value) or isinstance(value, staticmethod)
                if is_method and not method.startswith("_"):
                    found[f"{name}.{method}"] = getattr(item, method)
    return found


def namespace(name: str) -> dict[str, Any]:
    """The names that an example of a public object can use: those of the module it is in."""
    item = public_objects()[name]
    if inspect.isfunction(item):
        return item.__globals__
    return vars(import_module(f"spark_cep.{spark_cep._HOMES[name]}"))
