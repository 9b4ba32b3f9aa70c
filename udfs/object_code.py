"""Compiled functions as object code: where it is found, and how it is loaded and called.

numba compiles the functions of a `NativeLibrary` to object code that calls neither Python nor
numba, for every processor of a platform. So it is made once and runs wherever the sources are the
same: it is built into a wheel, or else kept in a cache. numba is imported only to compile.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import stat
import sys
import sysconfig
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, get_type_hints

import numpy as np

from spark_cep.udfs.errors import CepError

CACHE_VARIABLE: Final = "SPARK_CEP_CACHE_DIR"
# Compiling takes 6 s of processor time. A process that has waited so long compiles by itself.
_LONGEST_WAIT: Final = 120.0
_POLL_SECONDS: Final = 0.05
_log = logging.getLogger("spark_cep")


@dataclass(frozen=True)
class NativeFunction:
    """`arguments`: a NamedTuple whose fields are arrays (`Annotated[Any, dtype, dimensions]`) or
    such NamedTuples. The function returns an int64."""

    module: str
    name: str
    arguments: type

    @property
    def arrays(self) -> tuple[tuple[str, int], ...]:
        """Type and dimensions of each array, in order."""
        return tuple(_arrays_of(self.arguments))


def _arrays_of(annotation: Any) -> Iterator[tuple[str, int]]:
    if hasattr(annotation, "__metadata__"):
        yield annotation.__metadata__
        return
    for field in get_type_hints(annotation, include_extras=True).values():
        yield from _arrays_of(field)


@dataclass(frozen=True)
class NativeLibrary:
    """Functions that are compiled together, by the names that they have in the object code.
    `package`: where a wheel has it. `modules`: those whose source decides what is compiled."""

    package: str
    modules: tuple[str, ...]
    functions: tuple[tuple[str, NativeFunction], ...]

    @cached_property
    def source_hash(self) -> str:
        text = b"".join(map(_source, self.modules))
        return hashlib.sha256(text).hexdigest()[:16]

    def packaged_name(self, platform: str) -> str:
        """The file inside the package. An edited source has another name, and is compiled."""
        return f"matcher-{platform}-{self.source_hash}.bin"

    @cached_property
    def cached_name(self) -> str:
        """The file in a cache: numba and llvmlite decide what it contains, too."""
        versions = "".join(f"-{_version(each)}" for each in ("numba", "llvmlite"))
        return f"matcher-{this_platform()}-{self.source_hash}{versions}.bin"


def _source(module: str) -> bytes:
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_bytes()


def this_platform() -> str:
    """For example linux-x86_64."""
    return sysconfig.get_platform()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"


# ---- the file ----------------------------------------------------------------------------------


def pack(code: bytes) -> bytes:
    """The content of a file. Damaged code would end the process: its digest is in front."""
    packed = zlib.compress(code, 9)
    return hashlib.sha256(packed).digest() + packed


def _unpack(content: bytes) -> bytes | None:
    digest, packed = content[:32], content[32:]
    return zlib.decompress(packed) if hashlib.sha256(packed).digest() == digest else None


@dataclass(frozen=True)
class ObjectCode:
    """`path`: where it lies; None if it could not be kept."""

    content: bytes
    path: str | None


def find_object_code(library: NativeLibrary) -> ObjectCode | None:
    """The object code in the package or in a cache."""
    packaged = _packaged(library)
    if packaged is not None:
        return packaged
    for directory in cache_directories(library):
        path = directory / library.cached_name
        code = _read_trusted(path)
        if code is not None:
            return ObjectCode(code, str(path))
    return None


def _packaged(library: NativeLibrary) -> ObjectCode | None:
    path = files(library.package).joinpath(library.packaged_name(this_platform()))
    try:
        code = _unpack(path.read_bytes())
    except OSError:
        return None
    return None if code is None else ObjectCode(code, str(path))


def cache_directories(library: NativeLibrary) -> Iterator[Path]:
    """Where object code is looked for; the first that can be written keeps it."""
    if os.environ.get(CACHE_VARIABLE):
        yield Path(os.environ[CACHE_VARIABLE])
    yield Path(str(files(library.package))) / "__pycache__"
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "spark-cep"
    user = os.getuid() if hasattr(os, "getuid") else 0
    yield Path(tempfile.gettempdir()) / f"spark-cep-{user}"


def _read_trusted(path: Path) -> bytes | None:
    """None if there is no such file, or if somebody else could have written it: it will be run.

    Files of root and of the owner of this package are as good as the package, and so are those of
    the owner of the folder that the user named."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read()
        if not hasattr(os, "getuid"):
            return _unpack(content)
        owners = {0, os.getuid()}
        if Path(__file__).exists():
            owners.add(Path(__file__).stat().st_uid)
        if str(path.parent) == os.environ.get(CACHE_VARIABLE):
            owners.add(path.parent.stat().st_uid)
    except OSError:
        return None
    if status.st_uid not in owners or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return _unpack(content)


def _write(path: Path, content: bytes) -> None:
    """Atomically, and readable by the users of other executors, whatever the umask is."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".matcher-", delete=False) as file:
        file.write(content)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def _writable_directory(library: NativeLibrary) -> Path | None:
    for directory in cache_directories(library):
        try:
            if not directory.is_dir():
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(0o755)
            with tempfile.TemporaryFile(dir=directory):
                return directory
        except OSError:
            continue
    return None


@contextmanager
def _waiting_for_others(path: Path) -> Iterator[None]:
    """Only one process at a time compiles the file. On file systems without locks several may:
    each replaces the file by an equal one."""
    try:
        import fcntl  # noqa: PLC0415 - not on Windows

        file = path.with_suffix(".lock").open("w")
    except (ImportError, OSError):
        yield
        return
    with file:
        deadline = time.monotonic() + _LONGEST_WAIT
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_POLL_SECONDS)
            except OSError:
                break
            else:
                break
        yield


# ---- compiling ---------------------------------------------------------------------------------


def ensure_object_code(library: NativeLibrary) -> ObjectCode:
    """The object code; compiles it, and says so, if it is nowhere."""
    found = find_object_code(library)
    if found is not None:
        return found
    directory = _writable_directory(library)
    if directory is None:
        _log.warning(
            "compiling the matcher of row patterns, some seconds in each process, for no folder "
            "can keep it: name one in %s, and run `spark-cep warm-up`",
            CACHE_VARIABLE,
        )
        return ObjectCode(_compile(library), None)
    path = directory / library.cached_name
    with _waiting_for_others(path):
        found = find_object_code(library)
        if found is not None:
            return found
        _log.warning(
            "compiling the matcher of row patterns, which takes some seconds and is kept in %s: "
            "to do it beforehand, run `spark-cep warm-up`",
            directory,
        )
        code = _compile(library)
        with suppress(OSError):  # a full disk: this process has the code all the same
            _write(path, pack(code))
    return ObjectCode(code, str(path))


def warm_up(library: NativeLibrary) -> str:
    """Compiles the library, unless the package has its object code, and returns where it lies:
    in the first folder that can be written, also if it has been in another one."""
    packaged = _packaged(library)
    if packaged is not None and packaged.path is not None:
        return packaged.path
    directory = _writable_directory(library)
    if directory is None:
        raise CepError(
            "the compiled matcher cannot be kept: no folder can be written",
            hint=f"set {CACHE_VARIABLE} to a folder, here and on the executors",
        )
    path = directory / library.cached_name
    with _waiting_for_others(path):
        if _read_trusted(path) is None:
            found = find_object_code(library)
            _write(path, pack(_compile(library) if found is None else found.content))
    return str(path)


def _compile(library: NativeLibrary) -> bytes:
    from spark_cep.udfs.compiling import compile_library  # noqa: PLC0415 - imports numba

    return compile_library(library)


# ---- loading and calling -----------------------------------------------------------------------


class LoadedFunction:
    """A function of loaded object code."""

    def __init__(self, name: str, function: NativeFunction, address: int) -> None:
        self._name = name
        self._arrays = function.arrays
        words = sum(5 + 2 * dimensions for _, dimensions in self._arrays)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (2 + words))
        self._function = prototype(address)

    def bind(self, *arguments: Any) -> Callable[[], int]:
        """A call with these arrays. They must stay as they are: their addresses are taken now."""
        arrays = list(_flatten(arguments))
        for array, (dtype, dimensions) in zip(arrays, self._arrays, strict=True):
            fits = array.dtype == dtype and array.ndim == dimensions and array.flags.c_contiguous
            if not fits:
                raise CepError(
                    f"{self._name} takes contiguous arrays of {dtype} with {dimensions} "
                    f"dimensions, not {array.dtype} with {array.ndim}"
                )
        result = ctypes.c_int64()
        raised = ctypes.c_void_p()
        # numba's convention for an array: owner, parent, items, item size, data, shape, strides.
        words = [
            word
            for array in arrays
            for word in (
                None, None, array.size, array.itemsize, array.ctypes.data, *array.shape,
                *array.strides,
            )
        ]  # fmt: skip
        pointers = (ctypes.byref(result), ctypes.byref(raised), *map(ctypes.c_void_p, words))

        def call(_keep_alive: object = arrays) -> int:
            status = self._function(*pointers)
            if status != 0:
                raise CepError(f"{self._name} ended with status {status}")
            return result.value

        return call

    def __call__(self, *arguments: Any) -> int:
        return self.bind(*arguments)()


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        yield value
        return
    for each in value:
        yield from _flatten(each)


@cache
def load_library(library: NativeLibrary) -> Mapping[str, LoadedFunction]:
    """The functions of the library, ready to be called."""
    engine = _load_object(ensure_object_code(library).content)
    return {
        name: LoadedFunction(name, function, engine.get_function_address(name))
        for name, function in library.functions
    }


# Keeps the loaded code in memory.
_engines: Final[list[Any]] = []


def _load_object(code: bytes) -> Any:
    try:
        import llvmlite.binding as llvm  # noqa: PLC0415 - a tenth of numba, but not nothing
    except (ImportError, OSError) as problem:
        raise CepError(
            f"llvmlite, which runs the matcher of row patterns, cannot be loaded here: {problem}",
            hint="install it with numba on every executor; it needs an address space of 1 GB, "
            "which spark.executor.pyspark.memory may deny",
        ) from problem
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _define_library_functions(llvm)
    triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        reloc=relocation_model(triple), codemodel="jitdefault", jit=True
    )
    empty = llvm.parse_assembly("")
    empty.triple = triple
    engine = llvm.create_mcjit_compiler(empty, machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return engine


def relocation_model(triple: str) -> str:
    """As numba has it: LLVM's loader needs static relocation on x86."""
    return "static" if triple.startswith(("x86", "i386", "i686")) else "default"


# All that the object code may call; tests hold it to that.
C_FUNCTIONS: Final = ("fmod", "sqrt", "memset", "memcpy", "memmove")


def _define_library_functions(llvm: Any) -> None:
    """LLVM looks in what the process has loaded, and ends the process if a function is missing."""
    for name in C_FUNCTIONS:
        if llvm.address_of_symbol(name) is None:
            runtime = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
            llvm.add_symbol(name, ctypes.cast(runtime[name], ctypes.c_void_p).value)
