"""How many buckets the keys are dealt to, and Spark's facts that decide it.

One bucket is one Spark partition and one call of the engine: too many and calls cost more than
matching, too few and cores idle or a worker's memory fills.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.planner.sample import Sample
    from spark_cep.udfs.expressions import Type, TypeKind
    from spark_cep.udfs.program import Branch, Consumption, Strategy, Window


# Estimated bytes of a bucket. For Parquet the estimate is that of compressed files, here 11 bytes a
# row for some 35 that arrive, and a worker needs several times that again while it sorts and
# matches: buckets of 1.4 M rows took it to 511 MB, of 0.5 M rows to 276.
TARGET_BYTES = 6 << 20
BUCKETS_PER_CORE = 2
MAX_BUCKETS = 20_000
# Fewer rows than this are matched faster in one bucket than they are dealt to two.
TINY_ROWS = 5_000


@dataclass(frozen=True)
class InputSize:
    """What is known about the input: `rows` only where the sample has seen all of them."""

    bytes: int | None
    rows: int | None
    cores: int
    shuffle_partitions: int


def bucket_count(size: InputSize) -> int:
    """The number of buckets.

    >>> bucket_count(InputSize(bytes=10 << 30, rows=None, cores=4, shuffle_partitions=200))
    1707
    >>> bucket_count(InputSize(bytes=1 << 20, rows=None, cores=4, shuffle_partitions=200))
    8
    >>> bucket_count(InputSize(bytes=None, rows=None, cores=4, shuffle_partitions=200))
    200
    >>> bucket_count(InputSize(bytes=None, rows=12, cores=4, shuffle_partitions=200))
    1
    """
    if size.rows is not None and size.rows < TINY_ROWS:
        return 1
    enough = BUCKETS_PER_CORE * size.cores
    if size.rows is not None:
        return enough
    if size.bytes is None:
        return max(enough, min(size.shuffle_partitions, MAX_BUCKETS))
    return max(enough, min(-(-size.bytes // TARGET_BYTES), MAX_BUCKETS))


# --------------------------------------------------------------------------------------------------
# Time slices: one partition, or a hot key, cut so that many cores can work on it.
#
# Under skip-till-any with reuse and a time window w, a match and everything that can block it lie
# within w of its latest row. So time is cut into slices of 16 w, each row is copied into the slices
# that its window reaches, and a match is kept only in the slice where its latest row is *home*.
# One row in sixteen is copied: no statistics are needed.
#
# Always holds: `slice_of` never decreases with time, in exact and in floating arithmetic. Then two
# rows at most w apart share a slice: the earlier one is copied to every slice up to that of its
# time plus w. Where a negation looks beyond the latest row (NOT at the end, NOT under AND), rows
# are copied back by w as well. What lies before a match, back to its latest row minus w, is there
# already through the copies forward.
# --------------------------------------------------------------------------------------------------


WINDOWS_PER_SLICE = 16

_INTEGERS: frozenset[TypeKind] = frozenset({"int", "date", "timestamp", "timestamp_ntz"})
_LARGEST = 2**63 - 1
# Doubles further out than so many slices are all in one: there, rounding exceeds the window.
_MAX_SLICE = 2**45


@dataclass(frozen=True)
class Slicing:
    """How time is cut. `type` is that of the event time, `window` in the unit of `time_coordinate`;
    `back`: a negation looks beyond the latest row.

    All methods take and give SQL text, over the shipped event time.
    """

    type: Type
    window: float
    back: bool

    def home(self, time: str) -> str:
        """The slice that a row belongs to, a bigint."""
        return self._slice(time_coordinate(self.type, time))

    def slices(self, time: str) -> str:
        """All slices that need the row, as an array; [NULL] where the time is NULL.

        >>> from spark_cep.udfs.expressions import Type
        >>> Slicing(Type("int"), 10, back=False).home("c1")
        '(CAST(c1 AS BIGINT)) DIV 160L'
        """
        at = time_coordinate(self.type, time)
        first = self._slice(self._moved(at, "subtract") if self.back else at)
        last = self._slice(self._moved(at, "add"))
        # NULL < ... is not TRUE: a row without a time goes to the slice NULL.
        return f"CASE WHEN {first} < {last} THEN sequence({first}, {last}) ELSE array({first}) END"

    def _slice(self, at: str) -> str:
        if self.type.kind in _INTEGERS:
            # DIV truncates toward zero: slice 0 is twice as long, which does no harm.
            length = min(max(1, math.ceil(self.window) * WINDOWS_PER_SLICE), _LARGEST)
            return f"({at}) DIV {length}L"
        share = f"({at}) / {self.window * WINDOWS_PER_SLICE!r}D"
        return f"floor(greatest(least({share}, {_MAX_SLICE}D), -{_MAX_SLICE}D))"

    def _moved(self, at: str, how: str) -> str:
        if self.type.kind in _INTEGERS:
            shift = min(math.ceil(self.window), _LARGEST)
            edge = _LARGEST if how == "add" else -_LARGEST
            return (
                f"CASE WHEN {at} IS NOT NULL THEN coalesce(try_{how}({at}, {shift}L), {edge}L) END"
            )
        # A difference that rounds to w may be a little more than w.
        sign = "+" if how == "add" else "-"
        return f"{at} {sign} ({self.window!r}D * 1.000000001D + abs({at}) * 1e-15D)"


def time_coordinate(type_: Type, time: str) -> str:
    """Event time as a number that never decreases with it: SQL text of a bigint or double."""
    if type_.kind == "timestamp":
        return f"unix_micros({time})"
    if type_.kind == "timestamp_ntz":
        return f"({time} - TIMESTAMP_NTZ '1970-01-01') DIV INTERVAL '0.000001' SECOND"
    if type_.kind == "date":
        return f"CAST(unix_date({time}) AS BIGINT)"
    return f"CAST({time} AS {'BIGINT' if type_.kind == 'int' else 'DOUBLE'})"


def choose_slicing(
    branches: Sequence[Branch],
    window: Window | None,
    type_: Type,
    rules: tuple[Strategy, Consumption],
) -> Slicing | None:
    """How time may be cut for a pattern; None where a slice could change the answer."""
    if window is None or window.kind != "time" or rules != ("any", "reuse"):
        return None
    negations = [
        negation
        for branch in branches
        for group in (branch.negations, *branch.covered)
        for negation in group
    ]
    back = any(negation.place in ("end", "around") for negation in negations)
    size = window.size / 10**type_.scale if type_.kind == "decimal" else window.size
    # Slices may be longer than they must: a window of 0 is sliced like one of 1.
    return Slicing(type_, float(size) or 1.0, back)


# --------------------------------------------------------------------------------------------------
# How the rows are dealt: into how many buckets, and whether time is cut into slices.
#
# Neither changes an answer, so both may be forced: `spark.cep.buckets` takes a number,
# `spark.cep.slices` "on" or "off".
# --------------------------------------------------------------------------------------------------


BUCKETS_CONF = "spark.cep.buckets"
SLICES_CONF = "spark.cep.slices"


@dataclass(frozen=True)
class Layout:
    """`slicing` None: time is not cut. The reasons are for explain."""

    buckets: int
    buckets_reason: str
    slicing: Slicing | None
    slices_reason: str


@dataclass(frozen=True)
class LayoutFacts:
    """What decides a layout. `slicing` None: slices could change the answer of this pattern."""

    size: InputSize
    sample: Sample | None
    has_keys: bool
    slicing: Slicing | None
    forced_buckets: str = ""
    forced_slices: str = ""


def choose_layout(dealing: LayoutFacts) -> Layout:
    """Decides buckets and slices."""
    slicing, slices_reason = _choose_slices(dealing)
    if dealing.forced_buckets:
        buckets, reason = parse_bucket_count(dealing.forced_buckets), f"set by {BUCKETS_CONF}"
    elif not dealing.has_keys and slicing is None:
        buckets, reason = 1, "one partition is one bucket"
    else:
        buckets, reason = bucket_count(dealing.size), _explain_size(dealing.size)
    return Layout(buckets, reason, slicing, slices_reason)


def _choose_slices(dealing: LayoutFacts) -> tuple[Slicing | None, str]:
    if dealing.slicing is None:
        return None, "none: they need skip-till-any-match with reuse and a time window"
    if dealing.forced_slices:
        is_on = _parse_switch(dealing.forced_slices)
        return (
            (dealing.slicing, f"set by {SLICES_CONF}")
            if is_on
            else (None, f"none: set by {SLICES_CONF}")
        )
    if bucket_count(dealing.size) == 1:
        return None, "none: the input is small"
    hot = dealing.sample is not None and dealing.sample.has_hot_key(dealing.size.cores)
    if dealing.has_keys and not hot:
        return None, "none: no key is known to be hot"
    why = (
        "one key holds too large a share of the rows"
        if dealing.has_keys
        else "one partition for all cores"
    )
    return dealing.slicing, f"{WINDOWS_PER_SLICE} windows long: {why}"


def _parse_switch(text: str) -> bool:
    if text not in {"on", "off"}:
        raise PlanError(f"{SLICES_CONF} is {text!r}", hint='it takes "on" or "off"')
    return text == "on"


def parse_bucket_count(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise PlanError(f"{BUCKETS_CONF} is {text!r}", hint="it takes a number above 0")
    return int(text)


def _explain_size(size: InputSize) -> str:
    if size.rows is not None:
        return f"{size.rows:,} rows in all"
    if size.bytes is None:
        return "the input's size is not known"
    cores = f"{size.cores} core{'s' * (size.cores != 1)}"
    mebibytes = size.bytes / (1 << 20)
    least = 0.1
    amount = f"about {mebibytes:,.1f}" if mebibytes >= least else f"less than {least}"
    return f"{amount} MiB for {cores}"
