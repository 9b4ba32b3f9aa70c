"""What memory a worker may use for the rows of a bucket.

    budget      for which rows are held before they are spilled; small limits make it smaller
    free        what the system still grants this process: more ends in an error, or a kill

All sizes are bytes. What matching needs is estimated from rows and their Arrow bytes; the factors
are measured (`docs/decisions/0042-a-worker-spills.md`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa

from spark_cep.udfs.errors import LimitError

# About 400,000 rows of four numbers. With its libraries a worker then takes 220 to 300 MiB.
DEFAULT_BUDGET: Final = 72 << 20
# Smaller parts cost more calls than they save memory.
LEAST_BUDGET: Final = 4 << 20
# Of what the system still grants: other tasks of the executor take from it, too.
DEFAULT_SHARE: Final = 1 / 4
# At most this share, also if the user asked for more.
MOST_SHARE: Final = 3 / 4


# ---- what matching needs -------------------------------------------------------------------------


@dataclass(frozen=True)
class RowCost:
    """The memory to match rows in one call, the rows included: `per_byte` of their Arrow bytes,
    and `per_row`. Partial matches and the answer come in blocks and are not in it."""

    per_row: int
    per_byte: int = 2

    def of(self, rows: int, nbytes: int) -> int:
        return rows * self.per_row + nbytes * self.per_byte


# A careful estimate, by which rows are dealt to parts: of event patterns, measured 197 bytes for
# rows of 32, and 60 to 95 bytes for rows of 24 of row patterns, more where conditions read more.
PART_COST: Final = RowCost(140)
# To hold rows and to sort them, in a copy and again in another order.
WAITING_COST: Final = RowCost(16, 4)
# An estimate that is not above what was measured anywhere, by which an input is refused.
LEAST_COST: Final = RowCost(12)


def choose_budget(memory: int | None, free: int | None) -> int:
    """`memory`: what the user allows; `free`: as `free_memory` gives it."""
    if memory is not None:
        return memory if free is None else min(memory, int(free * MOST_SHARE))
    if free is None:
        return DEFAULT_BUDGET
    return max(LEAST_BUDGET, min(DEFAULT_BUDGET, int(free * DEFAULT_SHARE)))


def check_fits(rows: int, nbytes: int, key: Sequence[object] | None) -> None:
    """Refuses rows that have to be matched together and clearly do not fit into memory. `key`:
    theirs, empty without partition_by, None if they are of several. `nbytes` are held already."""
    free = free_memory()
    needed = LEAST_COST.of(rows, nbytes)
    if free is not None and needed - nbytes > free:
        raise memory_error(rows, key, needed, free + nbytes)


def memory_error(
    rows: int | None = None,
    key: Sequence[object] | None = None,
    needed: int | None = None,
    allowed: int | None = None,
) -> LimitError:
    """`rows`: that have to be matched together; None: they were still being read. `needed`,
    `allowed`: known where matching them was not tried."""
    text = "the Python worker ran out of memory while it read its rows"
    if rows is not None:
        where = "a bucket of several partition keys"
        if key is not None:
            where = (
                f"partition key {list(key)!r}" if key else "the only partition (no partition_by)"
            )
        text = (
            f"{where} has at least {rows:,} rows to be matched together, too many for the memory "
            "of the Python worker"
        )
    if needed is not None and allowed is not None:
        text += f": they need about {_mebibytes(needed)}, and there are {_mebibytes(allowed)}"
    return LimitError(
        text,
        hint="add columns to partition_by, or WITHIN with a duration, so that fewer rows are "
        "matched together; or give the worker more memory: raise spark.executor.pyspark.memory "
        "or spark.executor.memoryOverhead, or run fewer tasks at a time in an executor "
        "(spark.task.cpus)",
        details={
            "key": None if key is None else list(key), "limit": "memory", "rows": rows,
            "allowed": allowed, "reached": needed,
        },
    )  # fmt: skip


def _mebibytes(size: int) -> str:
    return f"{max(size, 0) / (1 << 20):,.0f} MiB"


# ---- what the system grants ----------------------------------------------------------------------


def free_memory(*, with_reserved: bool = True) -> int | None:
    """What this process may still take before it gets an error or is killed; None if nothing
    limits it that is known. `with_reserved`: also address space that it has reserved and does not
    use. Libraries reserve much of it, and only they can use it."""
    found = [*_free_by_pyspark(with_reserved), *_free_in_cgroup(), *_free_in_system()]
    return max(min(found), 0) if found else None


def _free_by_pyspark(with_reserved: bool) -> Iterator[int]:
    """pyspark limits the address space of a worker to its share of spark.executor.pyspark.memory,
    where the system can do that."""
    sizes = _process_bytes()
    if sizes is not None:
        used = sizes[1 if with_reserved else 0]
        yield from (limit - used for limit in _pyspark_limits())


def _pyspark_limits() -> Iterator[int]:
    limit = os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB", "")
    if limit.isdigit():
        yield int(limit) << 20
    with suppress(ImportError):  # on Windows
        import resource  # noqa: PLC0415

        space, _ = resource.getrlimit(resource.RLIMIT_AS)
        if space != resource.RLIM_INFINITY:
            yield space


def _process_bytes() -> tuple[int, int] | None:
    """The address space of this process, and what of it is resident."""
    text = _read_text(Path("/proc/self/statm"))
    if text is None:
        return None
    space, resident = (int(each) * os.sysconf("SC_PAGE_SIZE") for each in text.split()[:2])
    return space, resident


# The files of version 2 and 1: the limit, what is used, and what of it the system can take back.
_CGROUP_FILES: Final = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _free_in_cgroup() -> Iterator[int]:
    for folder, (limit_name, used_name, cache_name) in _limited_cgroups():
        limit, used = _read_number(folder / limit_name), _read_number(folder / used_name)
        if limit is not None and used is not None:
            yield limit - used + _read_field(folder / "memory.stat", cache_name)


@cache
def _limited_cgroups() -> tuple[tuple[Path, tuple[str, str, str]], ...]:
    """The groups that this process is in, and those around them, which have a limit. In a
    container its own group is mounted as the root."""
    found = []
    for line in (_read_text(Path("/proc/self/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup")
        files = _CGROUP_FILES[1 if controllers else 0]
        inner = root / path.lstrip("/")
        groups = [each for each in (inner, *inner.parents) if each.is_relative_to(root)]
        found += [(each, files) for each in groups if _read_number(each / files[0]) is not None]
    return tuple(found)


def _free_in_system() -> Iterator[int]:
    free = _read_field(Path("/proc/meminfo"), "MemAvailable:")
    if free:
        yield free << 10


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _read_number(path: Path) -> int | None:
    """None if there is no such file, or no limit: "max", or in version 1 a number near 2^63."""
    text = (_read_text(path) or "").strip()
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


def _read_field(path: Path, name: str) -> int:
    for line in (_read_text(path) or "").splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


# ---- giving memory back --------------------------------------------------------------------------


def return_memory() -> None:
    """Gives freed memory back to the system: both allocators keep what was freed."""
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> ctypes._NamedFuncPointer | None:
    """Only glibc has it."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
