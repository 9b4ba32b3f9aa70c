"""What the driver remembers of each answer, so that its plan and metrics can be asked for later.

An answer's number is in the name of its function in Spark's plan. So the record is found also
from DataFrames that were derived from the answer, in classic and Connect sessions alike.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_cep.errors import PlanError
from spark_cep.planning.buckets import plan_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from spark_cep.explaining.explanation import MatchPlan
    from spark_cep.explaining.metering import Observed

# Older answers are forgotten; a record is a few kilobytes ...
REMEMBERED = 10_000
# ... without the means to make the answer again, which hold its whole plan in Spark.
REPEATABLE = 100

_numbers = itertools.count(1)
_records: dict[int, Record] = {}
_ATTRIBUTE = "_spark_cep_record"
_HINT = "give the DataFrame that match_pattern returned, or one derived from it"


@dataclass(frozen=True)
class Record:
    """One answer. `observation` receives its metrics when the first action has run; a stream's
    metrics are its query's, and it has none. `rerun` makes the answer once more, with an
    observation of its own that is still empty. `recall`, of rows that were shed: matches of a
    sample, all of them and those that shedding leaves."""

    number: int
    plan: MatchPlan
    observation: Observed | None
    buckets: int
    rerun: Callable[[], tuple[DataFrame, Observed]] | None = None
    recall: Callable[[], tuple[int, int] | None] | None = None


def new_number() -> int:
    return next(_numbers)


def remember(df: DataFrame, record: Record) -> DataFrame:
    """Keeps the record, also on the DataFrame itself: there as long as that lives."""
    _records[record.number] = record
    old = _records.get(record.number - REPEATABLE)
    if old is not None:
        _records[old.number] = replace(old, rerun=None, recall=None)
    while len(_records) > REMEMBERED:
        del _records[next(iter(_records))]
    setattr(df, _ATTRIBUTE, record)
    return df


def records_of(df: DataFrame) -> list[Record]:
    """The records of all answers that went into a DataFrame, oldest first; never empty."""
    own: Any = getattr(df, "__dict__", {}).get(_ATTRIBUTE)
    if own is not None:
        return [own]
    if not hasattr(df, "sparkSession") or not hasattr(df, "explain"):
        raise PlanError(f"{type(df).__name__} is no DataFrame", hint=_HINT)
    # What Spark has optimized away, as with limit(0), is still in the plan as it was written.
    found = _named_in(plan_text(df)) or _named_in(plan_text(df, "extended"))
    if not found:
        raise PlanError(
            "this DataFrame did not come out of match_pattern in this Python process", hint=_HINT
        )
    return found


def _named_in(plan: str) -> list[Record]:
    numbers = {int(each) for each in re.findall(r"match_pattern\[[^\]]*#(\d+)\]", plan)}
    return [_records[number] for number in sorted(numbers) if number in _records]
