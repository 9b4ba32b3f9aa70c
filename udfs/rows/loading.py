"""Getting at the compiled functions: numba is imported only where a row pattern runs.

Compiling takes some seconds and happens once: numba keeps the result on disk, in a directory
named after the text of all compiled files. numba itself looks only at the file of the function
that is called, and would take the kernel for unchanged when what it calls was changed.

The directory lies beside this file, or in the user's cache where the package cannot be written,
or else under the system's temporary directory.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

# All that is compiled, or compiled in as constants.
_COMPILED_MODULES: Final = (
    "instructions",
    "interpreter",
    "jit",
    "kernel",
    "records",
)


@cache
def load_kernel() -> Callable[..., int]:
    """The matcher."""
    found: Callable[..., int] = _import_compiled("kernel").search
    return found


@cache
def load_scans() -> Any:
    """Folds over the rows of matches."""
    return _import_compiled("jit")


def _import_compiled(name: str) -> ModuleType:
    import numba  # noqa: PLC0415

    config: Any = numba.config
    before = config.CACHE_DIR
    # The directory is looked up when a function is decorated, which importing does.
    config.CACHE_DIR = str(_cache_directory())
    try:
        return import_module(f"spark_cep.udfs.rows.{name}")
    finally:
        config.CACHE_DIR = before


@cache
def _cache_directory() -> Path:
    here = Path(__file__).parent
    texts = (here.joinpath(f"{name}.py").read_bytes() for name in _COMPILED_MODULES)
    name = f"compiled-{hashlib.sha256(b''.join(texts)).hexdigest()[:16]}"
    for place in _cache_directories(here):
        if _is_private(place / name):
            return place / name
    return Path(tempfile.mkdtemp(prefix="spark-cep-"))


def _cache_directories(here: Path) -> Iterator[Path]:
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"])
    yield here / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "spark-cep"
    user = os.getuid() if hasattr(os, "getuid") else 0
    yield Path(tempfile.gettempdir()) / f"spark-cep-{user}"


def _is_private(path: Path) -> bool:
    """What is loaded from here is run: the directory can be written, and by nobody else."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError:
        return False
    is_own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return is_own and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022
