"""What the driver ships of shedding for a stream's workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.shedding.drift import Filled
    from spark_cep.udfs.shedding.utility import Policy, Utilities


@dataclass(frozen=True)
class Known:
    """What rows said: what they are worth, the work that each variable's make, the share of the
    matches that is left by tenths of the rows that stay, what matching takes, seconds a row, and
    how many rows filled which bins of the tables. `depth`: the power of the share of the matches
    with which matching gets less."""

    utilities: Utilities
    loads: Mapping[int, float]
    curve: tuple[float, ...]
    work: float
    filled: tuple[Filled, ...]
    depth: float = 1.0


@dataclass(frozen=True)
class StreamShed:
    """One of `keep` (a share), `latency` (seconds) and `rows_per_second`. `parallel`: buckets that
    are worked on at the same time. `keys`: the types of the program's keys, if they may be looked
    at."""

    keep: float | None
    latency: float | None
    rows_per_second: float | None
    policy: Policy
    safety: float
    seed: int
    parallel: int
    keys: tuple[Type, ...] = ()
    known: Known | None = None
