"""Public names report themselves as users import them, and travel between processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle

import spark_cep
from spark_cep.udfs.errors import WorkerError

INSTANCES: list[Any] = [
    spark_cep.Limits(matches=7),
    spark_cep.seq(spark_cep.event("a", "v = 1"), spark_cep.event("b")).within("1 hour"),
    spark_cep.row_pattern("a b+", define={"b": "v > PREV(v)"}),
    spark_cep.Shed(keep=0.5),
    spark_cep.Statistics(rates={"a": 1.0}),
]
ERRORS = ["CepError", "LimitError", "PatternError", "PlanError", "RemoteError"]
pickles = pytest.mark.parametrize("pickler", [pickle, cloudpickle])


def fresh(code: str) -> str:
    """What a fresh interpreter prints, the traceback included."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


@pytest.mark.parametrize("name", spark_cep.__all__)
def test_a_public_name_reports_itself_as_users_import_it(name: str) -> None:
    item = getattr(spark_cep, name)
    if isinstance(item, ModuleType):
        assert item.__name__ == f"spark_cep.{name}"
    else:
        assert (item.__module__, item.__qualname__) == ("spark_cep", name)


@pickles
@pytest.mark.parametrize(
    "name",
    [n for n in spark_cep.__all__ if not isinstance(getattr(spark_cep, n), ModuleType)],
)
def test_public_classes_and_functions_are_pickled_by_reference(name: str, pickler: Any) -> None:
    item = getattr(spark_cep, name)
    pickled = pickler.dumps(item)
    assert pickle.loads(pickled) is item
    assert len(pickled) < 100


@pickles
@pytest.mark.parametrize("value", INSTANCES, ids=lambda value: type(value).__name__)
def test_public_values_are_pickled(value: Any, pickler: Any) -> None:
    assert pickle.loads(pickler.dumps(value)) == value


@pickles
@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pickled(name: str, pickler: Any) -> None:
    error = getattr(spark_cep, name)("too many", hint="add WITHIN", details={"key": ["k"]})
    back = pickle.loads(pickler.dumps(error))
    assert type(back) is type(error)
    assert (str(back), back.hint, back.details) == (str(error), error.hint, error.details)


def fail() -> None:
    raise spark_cep.LimitError("too many", details={"n": 3})


def test_an_error_crosses_processes() -> None:
    # Spawned, so that nothing is loaded there but what the pickle names.
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(spark_cep.LimitError, match="too many") as raised,
    ):
        pool.submit(fail).result()
    assert raised.value.details == {"n": 3}


@pytest.mark.parametrize("name", ERRORS)
def test_the_error_of_a_worker_is_found_in_its_text(name: str) -> None:
    error = getattr(spark_cep, name)("too many", hint="less")
    found = spark_cep.error_of(RuntimeError(f"Traceback ... {WorkerError(error)}"))
    assert type(found) is getattr(spark_cep, name)


def test_a_traceback_shows_the_public_name_though_nobody_has_used_it() -> None:
    shown = fresh("from spark_cep.pattern import seq; seq()")
    assert "\nspark_cep.PatternError: " in shown


def test_a_pickle_is_read_where_nothing_is_loaded_yet() -> None:
    pickled = pickle.dumps(spark_cep.Limits(matches=7))
    assert fresh(f"import pickle; print(pickle.loads({pickled!r}).matches)") == "7\n"


def test_the_version_is_that_of_the_installed_package() -> None:
    assert spark_cep.__version__ == version("spark-cep")
