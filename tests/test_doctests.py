"""Every example in a docstring, under the name that its module has when installed.

pytest's own collection would import `udfs/errors.py` as `udfs.errors`: a second copy of each
module, whose classes are not those that the rest of the package uses.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import spark_cep
import spark_cep.sql
import spark_cep.udfs

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules() -> list[str]:
    packages = (spark_cep, spark_cep.udfs, spark_cep.sql)
    return sorted(
        {package.__name__ for package in packages}
        | {
            module.name
            for package in packages
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        }
    )


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_hold(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert failed == 0


@pytest.mark.parametrize(
    "name", [name for name in spark_cep.__all__ if isinstance(getattr(spark_cep, name), type)]
)
def test_docstring_examples_of_public_classes_hold(name: str) -> None:
    # doctest takes a class that reports itself as part of another module for an import.
    public = getattr(spark_cep, name)
    names = vars(importlib.import_module(f"spark_cep.{spark_cep._HOMES[name]}"))
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for example in doctest.DocTestFinder().find(public, name, module=False, globs=names):
        runner.run(example)
    assert runner.summarize().failed == 0
