"""Where the compiled matcher comes from, and that nothing but compiling it needs numba."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from spark_cep.udfs import object_code
from spark_cep.udfs.errors import CepError
from spark_cep.udfs.object_code import CACHE_VARIABLE, ObjectCode
from spark_cep.udfs.rows import loading

ROOT = Path(__file__).parent.parent
LIBRARY = loading.MATCHER

MATCHING = """
import sys
from tests.rows.programs import answer, concat, compare, current, plus, program, rows_of, v
rise = compare(">", current(), current(shift=-1))
case = program(concat(v(0), plus(v(1))), {1: rise})
assert len(answer(case, rows_of(3, 1, 2, 3))) == 3
print("numba" in sys.modules)
"""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Compiles nothing, and counts how often it would; the package has no object code."""
    calls: list[object] = []

    def compile_library(library: object) -> bytes:
        calls.append(library)
        return b"code"

    monkeypatch.setattr(object_code, "_compile", compile_library)
    monkeypatch.setattr(object_code, "_packaged", lambda _: None)
    return calls


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The cache directories: the first cannot be made, even by root."""
    (tmp_path / "file").touch()
    found = [tmp_path / "file" / "first", tmp_path / "second", tmp_path / "third"]
    monkeypatch.setattr(object_code, "cache_directories", lambda _: iter(found))
    return found


# ---- the cache ---------------------------------------------------------------------------------


def test_what_was_compiled_is_kept_in_the_first_folder_that_can_be_written(
    compiled: list[object], folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = folders[1] / LIBRARY.cached_name
    with caplog.at_level(logging.WARNING, "spark_cep"):
        assert object_code.ensure_object_code(LIBRARY) == ObjectCode(b"code", str(path))
        assert object_code.ensure_object_code(LIBRARY) == ObjectCode(b"code", str(path))
    assert len(compiled) == 1
    (message,) = [record.getMessage() for record in caplog.records]
    assert "`spark-cep warm-up`" in message
    assert str(folders[1]) in message


def test_where_nothing_can_be_written_each_process_compiles_and_says_what_to_do(
    compiled: list[object], folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    del folders[1:]
    with caplog.at_level(logging.WARNING, "spark_cep"):
        assert object_code.ensure_object_code(LIBRARY) == ObjectCode(b"code", None)
    assert CACHE_VARIABLE in caplog.text
    with pytest.raises(CepError, match="no folder can be written") as caught:
        object_code.warm_up(LIBRARY)
    assert CACHE_VARIABLE in str(caught.value)


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_others_can_read_what_was_compiled_and_cannot_write_it(
    compiled: list[object], folders: list[Path], mask: int
) -> None:
    before = os.umask(mask)
    try:
        object_code.warm_up(LIBRARY)
    finally:
        os.umask(before)
    assert folders[1].stat().st_mode & 0o777 == 0o755
    assert (folders[1] / LIBRARY.cached_name).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("fault", ["writable by others", "damaged", "empty"])
def test_a_file_that_cannot_be_trusted_is_compiled_anew(
    compiled: list[object], folders: list[Path], fault: str
) -> None:
    path = Path(object_code.warm_up(LIBRARY))
    if fault == "writable by others":
        path.chmod(0o666)
    elif fault == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        path.write_bytes(b"")
    assert object_code.ensure_object_code(LIBRARY).content == b"code"
    assert len(compiled) == 2
    assert object_code.find_object_code(LIBRARY) == ObjectCode(b"code", str(path))


def test_a_file_of_another_user_is_run_only_from_the_folder_that_was_named(
    compiled: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    monkeypatch.setattr(object_code, "cache_directories", lambda _: iter([tmp_path]))
    path = Path(object_code.warm_up(LIBRARY))
    for each in (tmp_path, path):
        os.chown(each, 12_345, 12_345)
    assert object_code.find_object_code(LIBRARY) is None
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert object_code.find_object_code(LIBRARY) is not None


def test_warming_up_fills_the_first_folder_from_a_later_one(
    compiled: list[object], folders: list[Path]
) -> None:
    first = folders.pop(1)
    object_code.warm_up(LIBRARY)
    folders.insert(0, first)
    assert object_code.warm_up(LIBRARY) == str(first / LIBRARY.cached_name)
    assert object_code.warm_up(LIBRARY) == str(first / LIBRARY.cached_name)
    assert len(compiled) == 1


def test_one_process_compiles_while_others_wait(
    compiled: list[object], folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = object_code._compile
    monkeypatch.setattr(object_code, "_compile", lambda each: time.sleep(0.3) or quick(each))
    # Locks are held by open files, so threads wait for one another as processes do.
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(object_code.ensure_object_code, [LIBRARY] * 4))
    assert [each.content for each in found] == [b"code"] * 4
    assert len(compiled) == 1


def test_a_process_that_waits_too_long_compiles_by_itself(
    compiled: list[object], folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_code, "_LONGEST_WAIT", 0.1)
    folders[1].mkdir()
    with object_code._waiting_for_others(folders[1] / LIBRARY.cached_name):
        assert object_code.ensure_object_code(LIBRARY).content == b"code"
    assert len(compiled) == 1


def test_the_key_changes_with_the_source_and_with_the_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def names() -> tuple[str, str]:
        library = object_code.NativeLibrary(LIBRARY.package, LIBRARY.modules, LIBRARY.functions)
        return library.packaged_name("linux-x86_64"), library.cached_name

    packaged, cached = names()
    monkeypatch.setattr(object_code, "_version", lambda _: "other")
    assert names()[0] == packaged
    assert names()[1] != cached
    read = object_code._source
    monkeypatch.setattr(object_code, "_source", lambda name: read(name) + b"\n")
    assert names()[0] != packaged


# ---- without numba -----------------------------------------------------------------------------


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **variables},
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
def test_processes_that_begin_together_compile_once_and_the_next_needs_no_numba(
    tmp_path: Path,
) -> None:
    variables = {CACHE_VARIABLE: str(tmp_path), "HOME": "/nonexistent", "NUMBA_CPU_NAME": "generic"}
    # The caches of this checkout would be read before.
    code = (
        "from spark_cep.udfs import object_code; from pathlib import Path; import os;"
        f"object_code.cache_directories = lambda _: iter([Path(os.environ['{CACHE_VARIABLE}'])])"
        f"\n{MATCHING}"
    )
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: run(code, **variables), range(2)))
    assert sorted(each.stdout.strip() for each in done) == ["False", "True"]
    assert sum("compiling the matcher" in each.stderr for each in done) == 1
    after = run(code, **variables)
    assert (after.stdout.strip(), after.stderr) == ("False", "")


def test_event_patterns_that_consume_need_no_numba() -> None:
    done = run(
        "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None\n"
        "import numpy as np\n"
        "from spark_cep.udfs.events import engine\n"
        "taken, used = np.zeros(3, np.bool_), np.zeros(4, np.bool_)\n"
        "rows, offsets = np.array([0, 1, 1, 2, 2, 3]), np.array([0, 2, 4, 6])\n"
        "engine._take_in_order(np.array([0, 1, 2]), (rows, offsets), used, taken)\n"
        "print(taken.tolist(), used.tolist())"
    )
    assert done.stdout.strip() == "[True, False, True] [True, True, True, True]"


# ---- calls -------------------------------------------------------------------------------------


def test_arrays_of_another_type_are_refused() -> None:
    function = loading.load_function("running_sum")
    values, fresh, result = np.array([0.1, 0.2]), np.array([True, False]), np.zeros(2)
    assert function(values, fresh, result) == 0
    assert result.tolist() == [0.1, 0.1 + 0.2]
    with pytest.raises(CepError, match="float64 with 1 dimensions, not float32"):
        function(values.astype(np.float32), fresh, result)
    with pytest.raises(CepError, match="contiguous"):
        function(np.zeros((2, 2))[:, 0], fresh, result)


def test_without_llvmlite_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(CepError, match="cannot be loaded here") as caught:
        object_code._load_object(b"")
    assert "spark.executor.pyspark.memory" in str(caught.value)


def test_object_code_is_made_for_every_platform_of_a_wheel(tmp_path: Path) -> None:
    from spark_cep.udfs import compiling

    small = object_code.NativeLibrary(
        LIBRARY.package,
        LIBRARY.modules,
        tuple(each for each in LIBRARY.functions if "sum" in each[0]),
    )
    compiling.write_packaged(small, tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {
        small.packaged_name(platform) for platform in compiling.TRIPLES
    }


def test_code_that_calls_python_is_refused() -> None:
    import llvmlite.binding as llvm

    from spark_cep.udfs import compiling

    module = llvm.parse_assembly(
        "declare i32 @PyErr_Occurred()\ndeclare double @fmod(double, double)"
    )
    with pytest.raises(CepError, match="call PyErr_Occurred"):
        compiling._refuse_calls(module)
