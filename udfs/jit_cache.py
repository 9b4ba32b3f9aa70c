"""The directory in which numba caches compiled functions.

Compiling takes seconds, so numba keeps the result on disk. It checks only the file of the function
that is called, and would not notice a change in a function that this one calls. So each set of
files that are compiled together has a directory named after a hash of all of them: beside the
files, in the user's cache where the package cannot be written (a zip never can), or else under the
system's temporary directory.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


@contextmanager
def cached(*modules: str) -> Iterator[None]:
    """Functions decorated inside are cached under the hash of the source of `modules`."""
    import numba  # noqa: PLC0415 - it costs most of a second

    config: Any = numba.config
    before = config.CACHE_DIR
    # numba reads the directory when a function is decorated.
    config.CACHE_DIR = str(_directory(modules))
    try:
        yield
    finally:
        config.CACHE_DIR = before


def with_source_file(function: _F) -> _F:
    """The function, with its code pointing to a copy of its source if that lies in a zip.

    numba caches only functions whose source is a file. For use inside `cached`.
    """
    code = function.__code__
    if Path(code.co_filename).is_file():
        return function
    import numba  # noqa: PLC0415

    config: Any = numba.config
    module = function.__module__
    copy = Path(config.CACHE_DIR) / f"{module}.py"
    if not copy.exists():
        _write(copy, _source(module))
    function.__code__ = code.replace(co_filename=str(copy))
    return function


def _source(module: str) -> bytes:
    from importlib.resources import files  # noqa: PLC0415

    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_bytes()


def _write(path: Path, content: bytes) -> None:
    """Writes the file atomically: several workers may write the same one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)


@cache
def _directory(modules: tuple[str, ...]) -> Path:
    text = b"".join(_source(module) for module in modules)
    name = f"compiled-{hashlib.sha256(text).hexdigest()[:16]}"
    package = sys.modules[modules[0].rpartition(".")[0]]
    for parent in _candidate_directories(Path(str(package.__file__)).parent):
        if _is_private(parent / name):
            return parent / name
    return Path(tempfile.mkdtemp(prefix="spark-cep-"))


def _candidate_directories(beside: Path) -> Iterator[Path]:
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"])
    yield beside / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "spark-cep"
    user = os.getuid() if hasattr(os, "getuid") else 0
    yield Path(tempfile.gettempdir()) / f"spark-cep-{user}"


def _is_private(path: Path) -> bool:
    """Whether this user, and nobody else, can write the directory: code loaded from it is run."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError:
        return False
    is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return is_own and stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022
