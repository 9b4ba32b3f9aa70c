"""The public functions and classes, by the names that users write."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import spark_cep
from spark_cep.sql.session import sql


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


def examples(name: str, *, with_spark: bool) -> list[doctest.DocTest]:
    """The examples of a public object and of its methods, of those that need a session, which they
    call `spark`, or of the others."""
    # doctest takes what reports itself as part of `spark_cep` for an import of its own module.
    finder = doctest.DocTestFinder()
    found = finder.find(public_objects()[name], name, module=False, globs=namespace(name))
    return [each for each in found if each.examples and uses_spark(each) == with_spark]


def uses_spark(found: doctest.DocTest) -> bool:
    return any(re.search(r"\bspark\b[.,)]", each.source) for each in found.examples)
