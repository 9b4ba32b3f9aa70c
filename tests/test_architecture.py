"""The structure of the source: which way imports go, and what importing costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Where each top-level folder of the product is imported from.
PACKAGES = {"sql": "spark_cep.sql", "spark_cep": "spark_cep", "udfs": "spark_cep.udfs"}
WORKER_LIBRARIES = {"numpy", "pandas", "pyarrow", "numba", "llvmlite"}
# Of the ready-made remote sources, each installed by an extra.
EXTRAS = {"redis", "sqlalchemy", "httpx"}
# Besides spark_cep/spark and the command line: what users call with DataFrames and Columns.
ENTRY_POINTS = {
    "api", "pattern", "remote", "row_patterns", "shed", "sql", "sql.session",
}  # fmt: skip


def modules() -> Mapping[str, Path]:
    """Every module of the product by the name it is imported under."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join([package, *parts])] = path
    return found


MODULES = modules()


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports: in functions and for type checking only, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            module = node.module or ""
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield name if name in MODULES else module


def folder_of(module: str) -> str:
    """The folder of a module. What users import lies in spark_cep itself, beside the entry points
    that use all the folders; there, each file counts as a folder."""
    folder = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    return module if folder == "spark_cep" else folder


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Every shortest way from a node back to itself, each once."""
    found = set()
    for start in graph:
        paths, seen = [[start]], {start}
        while paths:
            path = paths.pop(0)
            for after in sorted(graph.get(path[-1], ())):
                if after == start:
                    least = path.index(min(path))
                    found.add((*path[least:], *path[:least]))
                    paths = []
                    break
                if after not in seen:
                    seen.add(after)
                    paths.append([*path, after])
    return [list(each) for each in sorted(found)]


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_folder_is_imported_by_what_it_imports() -> None:
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        folder = folder_of(module)
        others = {folder_of(each) for each in imported(path) if each in MODULES}
        graph.setdefault(folder, set()).update(others - {folder, "spark_cep"})
    # The package itself gives out public names and is imported by everything below it.
    graph["spark_cep"] = set()
    assert cycles(graph) == []


def test_the_engine_does_not_import_the_driver_and_the_driver_no_sql() -> None:
    order = ["sql", "spark_cep", "udfs"]
    # The package itself gives out the public names of all folders.
    for module, path in ((name, path) for name, path in MODULES.items() if name != "spark_cep"):
        top = path.relative_to(ROOT).parts[0]
        for other in imported(path):
            if other in MODULES and other != "spark_cep":
                below = MODULES[other].relative_to(ROOT).parts[0]
                assert order.index(below) >= order.index(top), f"{module} imports {other}"


def test_the_engine_imports_only_the_libraries_of_a_worker() -> None:
    allowed = set(sys.stdlib_module_names) | WORKER_LIBRARIES | {"spark_cep"}
    for path in sorted((ROOT / "udfs").rglob("*.py")):
        extras = EXTRAS if path.parent.name == "sources" else set()
        for module in imported(path):
            assert module.partition(".")[0] in allowed | extras, f"{path.name} imports {module}"


def test_pyspark_is_imported_in_one_folder() -> None:
    using = {
        module.removeprefix("spark_cep.")
        for module, path in MODULES.items()
        if any(each.partition(".")[0] == "pyspark" for each in imported(path))
    }
    outside = {each for each in using if each.partition(".")[0] not in {"spark", "cli"}}
    assert outside == ENTRY_POINTS


# What the oldest supported Spark has, of modules that are loaded at import.
OLDEST_PYSPARK = {"pyspark", "pyspark.errors", "pyspark.sql"}
VERSIONS = "spark_cep.spark.versions"


def loaded_at_import(path: Path) -> Iterator[str]:
    """The modules that importing a file imports: not those in functions or for type checking."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        waiting += ast.iter_child_nodes(node)


def test_one_module_knows_versions_of_spark() -> None:
    for module, path in MODULES.items():
        # The engine asks for versions of its own libraries, never of Spark.
        if module in {VERSIONS, "spark_cep", "spark_cep.cli.command"} or "udfs" in path.parts:
            continue
        newer = {each for each in loaded_at_import(path) if each.partition(".")[0] == "pyspark"}
        assert newer <= OLDEST_PYSPARK, f"{path.name} imports {newer - OLDEST_PYSPARK}"
        text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text())
        for asked in ("__version__", "ession.version", "repartitionById", "transformWithState("):
            assert asked not in text, f"{path.name}: {asked}"


def test_ready_sources_load_their_libraries_when_they_are_used() -> None:
    loaded = loaded_after(
        "import spark_cep.udfs.sources.redis_source, spark_cep.udfs.sources.sql_source, "
        "spark_cep.udfs.sources.http_source"
    )
    assert not loaded & EXTRAS


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


@pytest.mark.parametrize("module", ["spark_cep.spark.entry", "spark_cep.udfs.execution.worker"])
def test_what_a_worker_imports_stays_light(module: str) -> None:
    loaded = loaded_after(f"import {module}")
    assert not loaded & {"pyspark.sql", "sqlglot", "numba", "spark_cep.api"}


def test_each_engine_loads_without_the_other_and_without_numba() -> None:
    events = loaded_after(
        "import spark_cep.udfs.execution.trigger, spark_cep.udfs.execution.event_engine"
    )
    rows = loaded_after("import spark_cep.udfs.execution.row_engine")
    assert not any(each.startswith("spark_cep.udfs.rows") for each in events)
    assert not any(each.startswith("spark_cep.udfs.planning") for each in rows)
    # Only patterns with remote sources or shedding need these.
    rare = ("spark_cep.udfs.remotes.lookup", "spark_cep.udfs.shedding")
    assert not any(each.startswith(rare) for each in events)
    assert "numba" not in events | rows


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
