"""Empty virtual environments for tests, and the wheel of this checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"spark_cep": "spark_cep", "sql": "spark_cep/sql", "udfs": "spark_cep/udfs"}
INSTALLED = Path(sysconfig.get_paths()["purelib"])


@dataclass(frozen=True)
class Environment:
    """An empty virtual environment, and a folder that has the dependencies."""

    folder: Path
    dependencies: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *arguments: str | Path, cwd: Path, path: Path | str = "") -> dict[str, Any]:
        """What a Python program prints as JSON; `path` is in front of the dependencies."""
        return self.run_command(self.python, *arguments, cwd=cwd, path=path)

    def run_command(
        self, *command: str | Path, cwd: Path, path: Path | str = "", **more: str
    ) -> dict[str, Any]:
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(path), str(self.dependencies)])),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            # The user's cache stays as it is.
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            **more,
        }
        done = subprocess.run(
            command, cwd=cwd, env=variables, capture_output=True, text=True, check=False,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is installed here, without this project."""
    folder = tmp_path_factory.mktemp("dependencies")
    for path in INSTALLED.iterdir():
        if "spark_cep" not in path.name:
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture
def environment(dependencies: Path, tmp_path: Path) -> Environment:
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return Environment(folder, dependencies)


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: building leaves files behind."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").mkdir()
    (copy / "tests" / "__init__.py").touch()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="session")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run_pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, checkout)
    (found,) = folder.glob("spark_cep-*.whl")
    return found


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel is installed in."""
    target = tmp_path_factory.mktemp("installed")
    run_pip("install", "--no-deps", "--target", target, wheel)
    return target


def run_pip(*arguments: str | Path, **variables: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
