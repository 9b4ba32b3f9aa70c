"""Access to the compiled functions of the matcher."""

from __future__ import annotations

from typing import Final

from spark_cep.udfs.object_code import LoadedFunction, NativeFunction, NativeLibrary, load_library
from spark_cep.udfs.rows import records as r

MATCHER: Final = NativeLibrary(
    package=__package__,
    # Everything that is compiled, or compiled in as constants, and how.
    modules=(
        "spark_cep.udfs.compiling",
        f"{__package__}.instructions",
        f"{__package__}.interpreter",
        f"{__package__}.jit",
        f"{__package__}.kernel",
        f"{__package__}.records",
    ),
    functions=(
        ("cep_search", NativeFunction(f"{__package__}.kernel", "search", r.SearchArguments)),
        ("cep_running_sum", NativeFunction(f"{__package__}.jit", "running_sum", r.SumArguments)),
        (
            "cep_running_least",
            NativeFunction(f"{__package__}.jit", "running_least", r.LeastArguments),
        ),
    ),
)


def load_function(name: str) -> LoadedFunction:
    """A function of the matcher, by its name in Python."""
    return load_library(MATCHER)[f"cep_{name}"]
