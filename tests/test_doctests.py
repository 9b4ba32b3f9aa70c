"""Every example in a docstring, under the name that its module has when installed.

pytest's own collection would import `udfs/errors.py` as `udfs.errors`: a second copy of each
module, whose classes are not those that the rest of the package uses.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import spark_cep
import spark_cep.sql
import spark_cep.udfs
from tests.documented import examples, public_objects

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PUBLIC = public_objects()


def modules() -> list[str]:
    packages = (spark_cep, spark_cep.udfs, spark_cep.sql)
    return sorted(
        {
            module.name
            for package in packages
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        }
    )


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_hold(name: str) -> None:
    module = importlib.import_module(name)
    public = {inspect.unwrap(each) for each in PUBLIC.values() if callable(each)}
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for found in doctest.DocTestFinder().find(module):
        item = getattr(module, found.name.removeprefix(f"{name}.").partition(".")[0], None)
        if not (callable(item) and item in public):
            runner.run(found)
    assert runner.summarize().failed == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_of_public_functions_and_classes_hold(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for found in examples(name, with_spark=False):
        runner.run(found)
    assert runner.summarize().failed == 0
