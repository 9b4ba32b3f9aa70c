"""The layout of the rows: the number of buckets, and whether time is cut into slices.

One bucket is one Spark task. Where adaptive execution is on, Spark makes the buckets: it knows the
size of what was shuffled, and the driver has only estimates, which behind a join can be wrong by
any factor. A worker bounds its memory by itself, whatever the size of its bucket. The layout does
not change the answer, so it can be set: `spark.cep.buckets` is a number, `spark.cep.slices` "on" or
"off". For a row pattern the slices of one partition are ranges of its order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.errors import PlanError
from spark_cep.expressions.byte_sizes import byte_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.expressions import Type, TypeKind
    from spark_cep.udfs.program import Branch, Consumption, Strategy, Window


BUCKETS_CONF = "spark.cep.buckets"
SLICES_CONF = "spark.cep.slices"
MEMORY_CONF = "spark.cep.memory"

# Bytes of files for a bucket, where Spark does not set the number. In a test 11 bytes of Parquet
# were a row of 35 bytes in memory.
TARGET_BYTES = 6 << 20
BUCKETS_PER_CORE = 2
MAX_BUCKETS_PER_CORE = 16
# Fewer rows than this are matched faster in one bucket than in two.
TINY_ROWS = 5_000
# A key with more bytes than this, which is what Spark calls a large partition
# (spark.sql.adaptive.advisoryPartitionSizeInBytes), is cut into time slices.
HOT_KEY_BYTES = 64 << 20
# Files smaller than this hold no such key.
LARGE_INPUT_BYTES = 16 << 20
# With fewer cores, to cut a key takes more than matching its parts side by side saves.
LEAST_CORES = 4


@dataclass(frozen=True)
class InputSize:
    """The size of the input. `bytes`: of the tables and files that it reads, not of what their
    joins may produce; None: unknown. `rows`: known only if the sample has all of them. `row_bytes`:
    of a shipped row. `is_adaptive`: Spark makes tasks by the sizes of a shuffle."""

    bytes: int | None
    rows: int | None
    cores: int
    shuffle_partitions: int
    is_adaptive: bool = True
    row_bytes: int = 8


@dataclass(frozen=True)
class HotKeys:
    """Keys with more than `rows` rows are cut into time slices."""

    rows: int
    slicing: Slicing


@dataclass(frozen=True)
class Layout:
    """`buckets` None: adaptive execution sets their number. `slicing` None: no time slices, but
    for `hot_keys`. `ranges`: so many tasks match one partition of a row pattern, a range of its
    order each; then the buckets are these and one for the borders between them. The reasons are
    shown by explain."""

    buckets: int | None
    buckets_reason: str
    slicing: Slicing | None
    slices_reason: str
    hot_keys: HotKeys | None = None
    ranges: int | None = None


@dataclass(frozen=True)
class LayoutFacts:
    """What a layout depends on. `slicing` None: slices could change the answer of this pattern."""

    size: InputSize
    has_keys: bool
    slicing: Slicing | None
    forced_buckets: str = ""
    forced_slices: str = ""


def choose_layout(facts: LayoutFacts) -> Layout:
    """Chooses buckets and slices; raises PlanError for invalid settings."""
    buckets, reason = _choose_buckets(facts)
    slicing, slices_reason = _choose_slices(facts, buckets)
    if slicing is None and not facts.has_keys and not facts.forced_buckets:
        return Layout(1, "one partition is one bucket", None, slices_reason)
    if slicing is not None and buckets is None:
        # Few slices, spread by a hash, would be spread unevenly.
        buckets, reason = bucket_count(facts.size), _explain_size(facts.size)
    hot_keys = None
    is_open = facts.has_keys and facts.slicing is not None and not facts.forced_slices
    if is_open and _reason_against_hot_keys(facts, buckets) is None:
        assert facts.slicing is not None
        rows = HOT_KEY_BYTES // facts.size.row_bytes
        hot_keys = HotKeys(rows, facts.slicing)
        slices_reason = f"for keys with more than {rows:,} rows, {WINDOWS_PER_SLICE} windows long"
    return Layout(buckets, reason, slicing, slices_reason, hot_keys)


def choose_row_layout(facts: LayoutFacts, refusal: str | None) -> Layout:
    """The layout for a row pattern, whose keys are never cut. `refusal`: why one partition of all
    rows is not cut either."""
    layout = choose_layout(replace(facts, slicing=None))
    ranges, reason = _choose_ranges(facts, refusal)
    if ranges is None:
        return replace(layout, slices_reason=reason)
    return Layout(
        ranges + 1, f"{ranges} ranges, and one for their borders", None, reason, ranges=ranges
    )


def _choose_ranges(facts: LayoutFacts, refusal: str | None) -> tuple[int | None, str]:
    if facts.has_keys:
        return None, "none: the rows of a key stay together"
    if refusal is not None:
        return None, f"none: {refusal}"
    against = _reason_against_ranges(facts)
    if against is not None:
        return None, f"none: {against}"
    forced = facts.forced_buckets
    ranges = parse_bucket_count(forced) if forced else bucket_count(facts.size)
    if ranges == 1:
        return None, "none: one bucket"
    return ranges, "ranges of the order, cut where the next search is certain"


def _reason_against_ranges(facts: LayoutFacts) -> str | None:
    size = facts.size
    if facts.forced_slices:
        return None if _parse_switch(facts.forced_slices) else f"set by {SLICES_CONF}"
    if size.cores < LEAST_CORES:
        return f"fewer than {LEAST_CORES} cores"
    if size.bytes is None:
        return "the size of the input is unknown"
    return "the input is small" if size.bytes < HOT_KEY_BYTES else None


def _choose_buckets(facts: LayoutFacts) -> tuple[int | None, str]:
    size = facts.size
    if facts.forced_buckets:
        return parse_bucket_count(facts.forced_buckets), f"set by {BUCKETS_CONF}"
    if size.is_adaptive and not (size.rows is not None and size.rows < TINY_ROWS):
        return None, "adaptive execution makes them by the size of the shuffled rows"
    return bucket_count(size), _explain_size(size)


def _choose_slices(facts: LayoutFacts, buckets: int | None) -> tuple[Slicing | None, str]:
    if facts.slicing is None:
        return None, "none: they require skip-till-any-match with reuse and a time window"
    if facts.forced_slices:
        is_on = _parse_switch(facts.forced_slices)
        return (
            (facts.slicing, f"set by {SLICES_CONF}")
            if is_on
            else (None, f"none: set by {SLICES_CONF}")
        )
    if facts.has_keys:
        return None, f"none: {_reason_against_hot_keys(facts, buckets)}"
    if buckets == 1 and not facts.forced_buckets:
        return None, "none: the input is small"
    return facts.slicing, f"{WINDOWS_PER_SLICE} windows long: one partition for all cores"


def _reason_against_hot_keys(facts: LayoutFacts, buckets: int | None) -> str | None:
    """Why not to look for keys that are too large for one task. Only adaptive execution leaves out
    the steps for such keys where it finds that there are none."""
    if facts.forced_buckets:
        return f"large keys are not looked for where {BUCKETS_CONF} is set"
    size = facts.size
    if size.rows is not None or (size.bytes is not None and size.bytes < LARGE_INPUT_BYTES):
        return "the input is too small for a large key"
    if size.cores < LEAST_CORES:
        return f"fewer than {LEAST_CORES} cores"
    return None if buckets is None else "large keys are looked for by adaptive execution only"


def _parse_switch(text: str) -> bool:
    if text not in {"on", "off"}:
        raise PlanError(f"{SLICES_CONF} is {text!r}", hint='set it to "on" or "off"')
    return text == "on"


# With less, most of the time goes into parts of few rows.
LEAST_MEMORY = 1 << 20


def parse_worker_memory(text: str) -> int | None:
    """Bytes that a worker may take for rows and their matching; None: what its limits suggest.

    >>> parse_worker_memory("256m")
    268435456
    """
    if not text:
        return None
    size = byte_size(text)
    if size is None or size < LEAST_MEMORY:
        raise PlanError(f"{MEMORY_CONF} is {text!r}", hint='set it to a size, "256m" or "1 GB"')
    return size


def parse_bucket_count(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise PlanError(f"{BUCKETS_CONF} is {text!r}", hint="set it to a number above 0")
    return int(text)


def _explain_size(size: InputSize) -> str:
    if size.rows is not None:
        return f"{size.rows:,} rows in total"
    if size.bytes is None:
        return "the size of the input is unknown"
    cores = f"{size.cores} core{'s' * (size.cores != 1)}"
    mebibytes = size.bytes / (1 << 20)
    least = 0.1
    amount = f"{mebibytes:,.1f}" if mebibytes >= least else f"less than {least}"
    return f"{amount} MiB to read, {cores}"


# ---- buckets -------------------------------------------------------------------------------------


def bucket_count(size: InputSize) -> int:
    """The number of buckets where Spark does not set it: some for each core, more where there is
    more to read.

    >>> bucket_count(InputSize(bytes=200 << 20, rows=None, cores=4, shuffle_partitions=200))
    34
    >>> bucket_count(InputSize(bytes=10 << 40, rows=None, cores=4, shuffle_partitions=50))
    64
    >>> bucket_count(InputSize(bytes=1 << 20, rows=None, cores=4, shuffle_partitions=200))
    8
    >>> bucket_count(InputSize(bytes=None, rows=None, cores=4, shuffle_partitions=200))
    64
    >>> bucket_count(InputSize(bytes=None, rows=12, cores=4, shuffle_partitions=200))
    1
    """
    if size.rows is not None and size.rows < TINY_ROWS:
        return 1
    enough, most = BUCKETS_PER_CORE * size.cores, MAX_BUCKETS_PER_CORE * size.cores
    if size.rows is not None:
        return enough
    wanted = size.shuffle_partitions if size.bytes is None else -(-size.bytes // TARGET_BYTES)
    return max(enough, min(wanted, most))


# ---- time slices ---------------------------------------------------------------------------------


WINDOWS_PER_SLICE = 16

_INTEGERS: frozenset[TypeKind] = frozenset({"int", "date", "timestamp", "timestamp_ntz"})
_LARGEST = 2**63 - 1
# Doubles beyond this many slices are all in one: there, rounding errors exceed the window.
_MAX_SLICE = 2**45


@dataclass(frozen=True)
class Slicing:
    """Time slices, so that several cores can match one partition or a hot key.

    Under skip-till-any with reuse and a time window w, a match and everything that can block it lie
    within w of its latest row. So time is cut into slices of 16 w, each row is copied into the
    slices that its window reaches, and a match is kept only in the *home* slice of its latest row.
    One row in sixteen is copied; no statistics are needed.

    Slice numbers never decrease with time, in exact and in floating-point arithmetic. So two rows
    at most w apart share a slice: the earlier one is copied to every slice up to that of its time
    plus w. If a negation extends beyond the latest row (NOT at the end, NOT in AND), rows are also
    copied back by w (`back`). Rows before a match, down to its latest row minus w, are already
    present through the copies forward.

    `type`: of the event time. `window`: in the unit of `time_coordinate`. All methods take and
    return SQL over the shipped event time.
    """

    type: Type
    window: float
    back: bool

    def home(self, time: str) -> str:
        """The slice that a row belongs to, as a bigint."""
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
        # NULL < ... is not TRUE: a row without a time is in slice NULL.
        return f"CASE WHEN {first} < {last} THEN sequence({first}, {last}) ELSE array({first}) END"

    def _slice(self, at: str) -> str:
        if self.type.kind in _INTEGERS:
            # DIV truncates toward zero, so slice 0 is twice as long; that is harmless.
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
        # A difference that rounds to w may be slightly larger than w.
        sign = "+" if how == "add" else "-"
        return f"{at} {sign} ({self.window!r}D * 1.000000001D + abs({at}) * 1e-15D)"


def time_coordinate(type_: Type, time: str) -> str:
    """SQL for the event time as a bigint or double that increases with it."""
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
    """How time can be cut for a pattern; None if slices could change the answer."""
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
    # Longer slices are correct too: a window of 0 is sliced like one of 1.
    return Slicing(type_, float(size) or 1.0, back)
