"""Compiles the functions of a `NativeLibrary` with numba, for this platform or for another.

The code is for the least processor of the platform: the matcher branches at every step, and the
instructions of newer processors make it no faster (docs/decisions/0046).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_type_hints

import llvmlite.binding as llvm
import numba
import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.object_code import (
    C_FUNCTIONS,
    NativeFunction,
    NativeLibrary,
    pack,
    relocation_model,
)

# The platforms that a wheel has object code for, by the name that Python gives them.
TRIPLES: Final[Mapping[str, str]] = {
    "linux-x86_64": "x86_64-unknown-linux-gnu",
    "linux-aarch64": "aarch64-unknown-linux-gnu",
}
_HINT: Final = "use a version of numba that the project is tested with, and unset NUMBA_DISABLE_JIT"


def compile_library(library: NativeLibrary, platform: str | None = None) -> bytes:
    """The object code for a platform of `TRIPLES`, or for this one."""
    linked = llvm.parse_assembly("")
    triple = llvm.get_process_triple() if platform is None else TRIPLES[platform]
    if platform is not None:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    for name, function in library.functions:
        linked.link_in(_compile_function(name, function))
    exported = {name for name, _ in library.functions}
    for each in (*linked.functions, *linked.global_variables):
        if not each.is_declaration and each.name not in exported:
            each.linkage = "internal"
    _refuse_calls(linked)
    machine = llvm.Target.from_triple(triple).create_target_machine(
        opt=3, reloc=relocation_model(triple), codemodel="jitdefault", jit=True
    )
    linked.triple = triple
    linked.data_layout = str(machine.target_data)
    return machine.emit_object(linked)  # type: ignore[no-any-return]


def _refuse_calls(module: Any) -> None:
    """What the code calls is looked up in any process, and missing, it would end the process."""
    declared = {each.name for each in (*module.functions, *module.global_variables)
                if each.is_declaration and not each.name.startswith("llvm.")}  # fmt: skip
    if not declared <= set(C_FUNCTIONS):
        calls = ", ".join(sorted(declared - set(C_FUNCTIONS)))
        raise CepError(f"the compiled functions call {calls}", hint=_HINT)


def write_packaged(library: NativeLibrary, folder: Path) -> None:
    """Writes the object code that is built into a wheel."""
    for platform in TRIPLES:
        content = pack(compile_library(library, platform))
        (folder / library.packaged_name(platform)).write_bytes(content)


def _compile_function(name: str, function: NativeFunction) -> Any:
    """LLVM's module of a function, which has the name of the library there."""
    dispatcher: Any = getattr(import_module(function.module), function.name)
    if not hasattr(dispatcher, "inspect_llvm"):
        raise CepError(f"numba did not compile {function.name}", hint=_HINT)
    signature = tuple(_type_of(each) for each in _fields(function.arguments))
    dispatcher.compile(signature)
    module = llvm.parse_assembly(dispatcher.inspect_llvm(signature))
    compiled = module.get_function(dispatcher.overloads[signature].fndesc.llvm_func_name)
    expected = 2 + sum(5 + 2 * dimensions for _, dimensions in function.arrays)
    if len(list(compiled.arguments)) != expected:
        raise CepError(f"numba {numba.__version__} passes arrays in another form", hint=_HINT)
    compiled.name = name
    return module


def _fields(arguments: type) -> list[Any]:
    return list(get_type_hints(arguments, include_extras=True).values())


def _type_of(annotation: Any) -> Any:
    """The type that numba has for an array, or for a NamedTuple of arrays."""
    types: Any = numba.types
    if hasattr(annotation, "__metadata__"):
        dtype, dimensions = annotation.__metadata__
        return types.Array(numba.from_dtype(np.dtype(dtype)), dimensions, "C")
    return types.NamedTuple([_type_of(each) for each in _fields(annotation)], annotation)
