"""`spark-cep run` and `spark-cep explain`: the answer or the plan of a statement over files.

A table is a file or a folder. The ending of its name decides how it is read; a folder without an
ending is Parquet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import spark_cep as cep
from spark_cep.errors import PatternError
from spark_cep.spark.session import start_local_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


PRINTED_ROWS = 20
_FORMATS = {
    ".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc",
    "": "parquet",
}  # fmt: skip


@dataclass(frozen=True)
class StatementTask:
    """`sql`: a statement, or the path of a file that holds one. `tables`: names and paths."""

    sql: str
    tables: Mapping[str, str]
    out: str | None = None
    as_json: bool = False


def run_statement(task: StatementTask) -> None:
    """Runs the statement; writes the answer to `out`, or prints it."""
    _with_answer(task, _write if task.out else _print)


def explain_statement(task: StatementTask) -> None:
    """Prints the plans of the statement's patterns."""
    _with_answer(task, lambda df, _: cep.explain(df, mode="json" if task.as_json else "text"))


def format_of(path: str) -> str:
    """How a file or folder is read and written.

    >>> format_of("ticks.csv"), format_of("folder/ticks")
    ('csv', 'parquet')
    """
    ending = Path(path).suffix.lower()
    if ending not in _FORMATS:
        raise PatternError(
            f"{path}: the ending {ending} is not supported",
            hint=f"supported endings are {', '.join(each for each in _FORMATS if each)}",
        )
    return _FORMATS[ending]


def statement_of(text: str) -> str:
    """The statement: the content of the file of this name, if there is one."""
    is_path = "\n" not in text and " " not in text.strip()
    return Path(text).read_text() if is_path and Path(text).is_file() else text


def _with_answer(task: StatementTask, show: Callable[[DataFrame, StatementTask], None]) -> None:
    """Starts Spark, makes the tables, and shows the answer."""
    statement = statement_of(task.sql)
    formats = {name: format_of(path) for name, path in task.tables.items()}
    if task.out is not None:
        format_of(task.out)
    _print_progress("starting Spark")
    spark = start_local_session("spark-cep")
    try:
        for name, path in task.tables.items():
            _read(spark, path, formats[name]).createOrReplaceTempView(name)
        started = time.perf_counter()
        show(cep.sql(spark, statement), task)
        _print_progress(f"done in {time.perf_counter() - started:.1f} s")
    finally:
        spark.stop()


def _read(spark: SparkSession, path: str, kind: str) -> DataFrame:
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
    return reader.load(path)


def _write(df: DataFrame, task: StatementTask) -> None:
    assert task.out is not None
    _print_progress(f"writing {task.out}")
    writer = df.write.format(format_of(task.out))
    (writer.option("header", True) if format_of(task.out) == "csv" else writer).save(task.out)


def _print(df: DataFrame, task: StatementTask) -> None:
    if task.as_json:
        for line in df.toJSON().toLocalIterator():
            sys.stdout.write(f"{line}\n")
        return
    df.show(PRINTED_ROWS, truncate=False)


def _print_progress(progress: str) -> None:
    sys.stderr.write(f"spark-cep: {progress}\n")
    sys.stderr.flush()
