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
