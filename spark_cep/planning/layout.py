"""How the rows are dealt: into how many buckets, and whether time is cut into slices.

Neither changes an answer, so both may be forced: `spark.cep.buckets` takes a number,
`spark.cep.slices` "on" or "off".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.errors import PlanError
from spark_cep.planning.buckets import Size, bucket_count
from spark_cep.planning.slices import WINDOWS_IN_A_SLICE

if TYPE_CHECKING:
    from spark_cep.planning.sample import Sample
    from spark_cep.planning.slices import Slicing

BUCKETS = "spark.cep.buckets"
SLICES = "spark.cep.slices"


@dataclass(frozen=True)
class Layout:
    """`slicing` None: time is not cut. The reasons are for explain."""

    buckets: int
    buckets_reason: str
    slicing: Slicing | None
    slices_reason: str


@dataclass(frozen=True)
class Dealing:
    """What decides a layout. `slicing` None: slices could change the answer of this pattern."""

    size: Size
    sample: Sample | None
    has_keys: bool
    slicing: Slicing | None
    forced_buckets: str = ""
    forced_slices: str = ""


def layout(dealing: Dealing) -> Layout:
    """Decides buckets and slices."""
    slicing, slices_reason = _slices(dealing)
    if dealing.forced_buckets:
        buckets, reason = forced_buckets(dealing.forced_buckets), f"set by {BUCKETS}"
    elif not dealing.has_keys and slicing is None:
        buckets, reason = 1, "one partition is one bucket"
    else:
        buckets, reason = bucket_count(dealing.size), _why(dealing.size)
    return Layout(buckets, reason, slicing, slices_reason)


def _slices(dealing: Dealing) -> tuple[Slicing | None, str]:
    if dealing.slicing is None:
        return None, "none: they need skip-till-any-match with reuse and a time window"
    if dealing.forced_slices:
        is_on = _switch(dealing.forced_slices)
        return (dealing.slicing, f"set by {SLICES}") if is_on else (None, f"none: set by {SLICES}")
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
    return dealing.slicing, f"{WINDOWS_IN_A_SLICE} windows long: {why}"


def _switch(text: str) -> bool:
    if text not in {"on", "off"}:
        raise PlanError(f"{SLICES} is {text!r}", hint='it takes "on" or "off"')
    return text == "on"


def forced_buckets(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise PlanError(f"{BUCKETS} is {text!r}", hint="it takes a number above 0")
    return int(text)


def _why(size: Size) -> str:
    if size.rows is not None:
        return f"{size.rows:,} rows in all"
    if size.bytes is None:
        return "the input's size is not known"
    cores = f"{size.cores} core{'s' * (size.cores != 1)}"
    mebibytes = size.bytes / (1 << 20)
    least = 0.1
    amount = f"about {mebibytes:,.1f}" if mebibytes >= least else f"less than {least}"
    return f"{amount} MiB for {cores}"
