"""Every public function, class and method documents each parameter and has an example."""

from __future__ import annotations

import doctest
import inspect
import re
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

import spark_cep
from spark_cep.sql.session import sql
from tests.documented import public_callables

CALLABLES = public_callables()


def parameters(item: Any) -> list[str]:
    """The parameters as a docstring names them; subclasses of CepError take its own."""
    if isinstance(item, type) and issubclass(item, Exception) and "__init__" not in vars(item):
        return []
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        f"{stars.get(each.kind, '')}{name}"
        for name, each in inspect.signature(item).parameters.items()
        if name != "self"
    ]


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_documented(name: str) -> None:
    item = CALLABLES[name]
    text = inspect.getdoc(item) or ""
    assert text
    for parameter in parameters(item):
        listed = rf"^    (?:[\w*]+, )*{re.escape(parameter)}(?:, [\w*]+)*: "
        assert re.search(listed, text, re.M), parameter


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, item in CALLABLES.items()
        # Users catch the kinds of errors and do not make them.
        if not (isinstance(item, type) and issubclass(item, spark_cep.CepError))
    ],
)
def test_every_public_callable_has_an_example(name: str) -> None:
    text = inspect.getdoc(CALLABLES[name]) or ""
    assert "Example:\n" in text
    assert doctest.DocTestParser().get_examples(text)


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_has_a_type(name: str) -> None:
    item = CALLABLES[name]
    function = item.__init__ if isinstance(item, type) else item
    if inspect.isfunction(function):
        named = set(inspect.signature(function).parameters) - {"self"}
        assert named <= set(function.__annotations__)


def test_no_option_of_match_pattern_is_any() -> None:
    annotations = spark_cep.match_pattern.__annotations__
    assert {name for name, each in annotations.items() if "Any" in each} == set()
    modes = ("one", "all", "all omit empty", "all with unmatched")
    assert annotations["rows"] == f"Literal[{', '.join(map(repr, modes))}]"


@pytest.mark.parametrize("kind", [DataFrame, ClassicDataFrame])
def test_the_method_of_dataframes_is_the_function(kind: Any) -> None:
    assert kind.match_pattern is spark_cep.match_pattern
    assert inspect.signature(kind.match_pattern) == inspect.signature(spark_cep.match_pattern)
    assert "partition_by: The column or columns" in inspect.getdoc(kind.match_pattern)


def test_the_package_of_sql_is_called_like_its_function() -> None:
    assert inspect.signature(spark_cep.sql) == inspect.signature(sql)
