"""The rooms and their direction: sql -> spark_cep -> udfs, never back."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The rooms in order: a room imports from itself and from those after it.
ROOMS = {
    "sql": "spark_cep.sql",
    "spark_cep": "spark_cep",
    "udfs": "spark_cep.udfs",
}
ORDER = list(ROOMS)
WORKER_LIBRARIES = {"numpy", "pandas", "pyarrow", "numba"}
# Of ready sources, each installed by an extra.
EXTRAS = {"redis", "sqlalchemy", "httpx"}
# The files that talk to Spark. All others can be read and tested without it.
SPARK_FILES = {
    "answer", "batch", "before", "carriers", "collecting", "column", "joining", "keys",
    "local_spark", "match", "metering", "outside", "path", "prepare", "processor", "progress",
    "project", "row_answer",
    "row_match", "shipped", "stage", "stage_entry", "travelling", "typing_by_spark", "value_types",
    "worker_entry",
}  # fmt: skip


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imported(path: Path, *, types_too: bool = True) -> Iterator[str]:
    """The modules that a file imports, those of functions included."""
    tree = ast.parse(path.read_text())
    hidden = set() if types_too else set(_under_type_checking(tree))
    for node in ast.walk(tree):
        if node in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            module = node.module or ""
            yield module
            # `from spark_cep import plans` imports a file too.
            yield from (f"{module}.{alias.name}" for alias in node.names if module == "spark_cep")


def _under_type_checking(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from ast.walk(child)


def room_of(module: str) -> str | None:
    if module == "spark_cep.sql" or module.startswith("spark_cep.sql."):
        return "sql"
    if module == "spark_cep.udfs" or module.startswith("spark_cep.udfs."):
        return "udfs"
    return "spark_cep" if module.partition(".")[0] == "spark_cep" else None


@pytest.mark.parametrize("room", ORDER)
def test_a_room_imports_only_from_itself_and_the_rooms_after_it(room: str) -> None:
    for path in files(room):
        for module in imported(path):
            other = room_of(module)
            if other is not None:
                assert ORDER.index(other) >= ORDER.index(room), f"{path.name} imports {module}"


def test_every_folder_of_code_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = [
        ".".join([package, *path.parent.relative_to(ROOT / room).parts])
        for room, package in ROOMS.items()
        for path in (ROOT / room).rglob("__init__.py")
    ]
    assert sorted(settings["packages"]) == sorted(folders)


def test_the_workers_room_imports_only_the_libraries_of_a_worker() -> None:
    allowed = set(sys.stdlib_module_names) | WORKER_LIBRARIES
    for path in files("udfs"):
        for module in imported(path):
            if room_of(module) is None:
                extras = EXTRAS if path.parent.name == "sources" else set()
                known = module.partition(".")[0] in allowed | extras
                assert known, f"{path.name} imports {module}"


def test_ready_sources_load_their_libraries_when_they_are_used() -> None:
    loaded = loaded_after(
        "import spark_cep.udfs.sources.redis_source, spark_cep.udfs.sources.sql_source, "
        "spark_cep.udfs.sources.http_source"
    )
    assert not loaded & EXTRAS


def test_only_named_files_import_pyspark() -> None:
    found = {
        path.stem
        for path in files("spark_cep")
        if any(module.partition(".")[0] == "pyspark" for module in imported(path, types_too=False))
    }
    assert found == SPARK_FILES


def fresh(code: str) -> str:
    """What a fresh interpreter prints."""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return run.stdout.strip()


def loaded_after(statement: str) -> set[str]:
    return set(fresh(f"import sys; {statement}; print(*sys.modules)").split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_after("import spark_cep")
    assert not loaded & {"numpy", "pandas", "pyarrow", "numba", "sqlglot", "pyspark"}


@pytest.mark.parametrize("module", ["spark_cep.shipping.worker_entry", "spark_cep.udfs.worker"])
def test_what_a_worker_imports_stays_light(module: str) -> None:
    loaded = loaded_after(f"import {module}")
    assert not loaded & {"pyspark.sql", "sqlglot", "numba", "spark_cep.match"}


@pytest.mark.parametrize(
    "statements",
    [
        "import spark_cep; from pyspark.sql import DataFrame",
        "from pyspark.sql import DataFrame; import spark_cep",
        "import spark_cep; import pyspark.pandas; from pyspark.sql import DataFrame",
    ],
)
def test_dataframes_get_the_method_whatever_is_imported_first(statements: str) -> None:
    assert fresh(f"{statements}; print(DataFrame.match_pattern.__name__)") == "match_pattern"


def test_both_kinds_of_dataframe_inherit_the_method() -> None:
    code = (
        "import spark_cep\n"
        "from pyspark.sql.classic.dataframe import DataFrame as Classic\n"
        "from pyspark.sql.connect.dataframe import DataFrame as Connect\n"
        "print(Classic.match_pattern is Connect.match_pattern)"
    )
    assert fresh(code) == "True"


def test_every_public_name_can_be_imported() -> None:
    code = "import spark_cep\nfor name in spark_cep.__all__: getattr(spark_cep, name)\nprint('all')"
    assert fresh(code) == "all"


# The driver's rooms in the order of the data flow: a room knows those before it.
FLOW = ["compiling", "planning", "shipping", "answering", "explaining", "streaming"]


@pytest.mark.parametrize("room", FLOW)
def test_a_room_of_the_driver_knows_only_those_before_it(room: str) -> None:
    for path in files(f"spark_cep/{room}"):
        for module in imported(path):
            parts = module.split(".")
            if len(parts) > 1 and parts[0] == "spark_cep" and parts[1] in FLOW:
                assert FLOW.index(parts[1]) <= FLOW.index(room), f"{path.name} imports {module}"
