"""Python functions that are registered in the session, as the Python objects that they are.

The registry is in the JVM, and what it has is found in an analyzed plan. A Connect session does not
show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import functions as F

from spark_cep.spark.versions import ANALYSIS_ERRORS, silence_spark
from spark_cep.udfs.functions.session import SessionFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Evaluation types of PySpark.
_FORMS = {100: "rows", 101: "rows", 200: "series"}
_CLASS = "org.apache.spark.sql.catalyst.expressions.PythonUDF"


def find_session_function(df: DataFrame, text: str, name: str) -> SessionFunction | str | None:
    """The Python function that a call is of; a sentence if it is one that cannot be called in
    conditions, None if it is none."""
    try:
        with silence_spark():
            selected = df.select(F.expr(text))
            plan = getattr(selected, "_jdf", None)
            if plan is None:
                selected.schema  # noqa: B018 - an unknown function is an error of its own
                return "functions of the session cannot be seen from a Connect session"
            found = plan.queryExecution().analyzed().expressions().head()
    except ANALYSIS_ERRORS:
        return None
    while found.getClass().getName().endswith(".Alias"):
        found = found.child()
    if found.getClass().getName() != _CLASS:
        return None
    if not found.udfDeterministic():
        return f"{name}() is not deterministic"
    form = _FORMS.get(found.evalType())
    if form is None:
        return f"{name}() is a UDF of another kind than a function of rows or of pandas Series"
    return _load(found.func(), name, form)


def _load(function: Any, name: str, form: str) -> SessionFunction | str:
    # The bytes of a Scala sequence, in one call.
    shown = function.command().mkString(",")
    try:
        loaded = cloudpickle.loads(bytes(int(each) % 256 for each in shown.split(",")))
    except Exception as problem:
        return f"{name}() cannot be read back: {problem}"
    if not isinstance(loaded, tuple) or not callable(loaded[0]):
        return f"{name}() is too large to be shipped with the pattern"
    return SessionFunction(name, form, loaded[0])
