"""`cep.Shed`: how much may be dropped, and by what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import inf
from numbers import Real
from typing import TYPE_CHECKING

from spark_cep.errors import PatternError, PlanError
from spark_cep.expressions.windows import parse_duration_us
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.udfs.shedding.utility import SheddingPolicy


POLICIES: tuple[SheddingPolicy, ...] = ("utility", "random", "frequency")
_EXAMPLE = (
    'shed=cep.Shed(keep=0.3), cep.Shed(latency="1.5 seconds") or cep.Shed(rows_per_second=1e5)'
)
# The paper's beta.
SAFETY = 0.8


@public
@dataclass(frozen=True, kw_only=True)
class Shed:
    """What a query may lose to be in time. One of the first three:

    `keep`: this share of the rows that may be dropped stays. `latency`: of a stream, what a
    trigger may take; of a batch, what its matching may take. `rows_per_second`: so many of these
    rows stay for each second between two triggers; of a batch, for each second of event time.

    `history`: past rows of a stream, with its columns; what rows are worth is then known before
    the first one comes, and `keep` is done by Spark, before the shuffle.

    `policy`: "utility" drops rows with the least chance to be in a match, and shares the quota out
    by the work that each kind of row makes. "random" and "frequency" are there to compare with:
    any rows, or any rows of the most frequent kinds first. `safety`: the part of `latency` that is
    planned with. `seed`: another one drops others where rows are worth the same.
    """

    keep: float | None = None
    latency: str | timedelta | None = None
    rows_per_second: float | None = None
    history: DataFrame | None = None
    policy: SheddingPolicy = "utility"
    safety: float = SAFETY
    seed: int = 0

    def __post_init__(self) -> None:
        given = [n for n in ("keep", "latency", "rows_per_second") if getattr(self, n) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "nothing"
            raise PlanError(
                f"cep.Shed takes one of keep, latency and rows_per_second, not {said}",
                hint=_EXAMPLE,
            )
        if self.policy not in POLICIES:
            known = ", ".join(f'"{each}"' for each in POLICIES)
            raise PlanError(f"{self.policy!r} is no policy", hint=f"policies are {known}")
        is_whole = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        if not is_whole or not -(2**63) <= self.seed < 2**63:
            raise PlanError(
                f"the seed is {self.seed!r}", hint="a seed is a whole number of 64 bits: seed=7"
            )
        _check_share("safety", self.safety)
        if self.keep is not None:
            _check_share("keep", self.keep, least=0.0)
        if self.rows_per_second is not None and not _is_positive(self.rows_per_second):
            raise PlanError(
                f"rows_per_second is {self.rows_per_second!r}",
                hint="a number above 0: cep.Shed(rows_per_second=100_000)",
            )
        if self.latency is not None:
            self.latency_seconds()
        self._check_history()

    def _check_history(self) -> None:
        if self.history is None:
            return
        has = hasattr(self.history, "isStreaming") and hasattr(self.history, "sparkSession")
        if not has or self.history.isStreaming:
            what = "a stream" if has else f"no DataFrame but {type(self.history).__name__}"
            raise PlanError(
                f"history is {what}",
                hint="give past rows, as history=spark.read.parquet(...)",
            )

    def latency_seconds(self) -> float | None:
        """The latency as a number."""
        if self.latency is None:
            return None
        hint = 'a duration as text or a timedelta: cep.Shed(latency="1.5 seconds")'
        try:
            found = float(parse_duration_us(self.latency)) / 1e6
        except PatternError:
            raise PlanError(f"latency {self.latency!r} is no duration", hint=hint) from None
        if not 0 < found < inf:
            raise PlanError(f"latency {self.latency!r} is not above 0", hint=hint)
        return found

    def asked(self) -> str:
        """What is asked, in words.

        >>> Shed(keep=0.3).asked(), Shed(latency="1.5 seconds", policy="random").asked()
        ('keep 30%', 'latency 1.5 seconds')
        """
        if self.keep is not None:
            return f"keep {100 * self.keep:g}%"
        if self.latency is not None:
            return f"latency {self.latency}"
        return f"{self.rows_per_second:,.12g} rows a second"


def check_shed(shed: object) -> Shed | None:
    """What `shed=` takes."""
    if shed is None or isinstance(shed, Shed):
        return shed
    raise PlanError(f"shed takes cep.Shed, not {type(shed).__name__}", hint=_EXAMPLE)


def check_can_shed(compiled: CompiledPattern) -> None:
    """Where a dropped row could make a match that is none, or where nothing bounds what a row is
    needed for, nothing is shed."""
    if compiled.strategy != "any":
        names = {"next": "skip till next match", "strict": "strict"}
        raise PlanError(
            f"shed= does not go with the strategy {names[compiled.strategy]!r}: without a row, a "
            "run would take another one and give matches that there are none of",
            hint='use .strategy("skip till any match"), or leave shed= out',
        )
    if compiled.consumption != "reuse":
        raise PlanError(
            "shed= does not go with consumption 'consume': a match that is lost frees events "
            "for matches that there are none of",
            hint='use .consumption("reuse"), or leave shed= out',
        )
    if compiled.window is None or compiled.window.kind != "time":
        has = "no window" if compiled.window is None else "a window that counts events"
        raise PlanError(
            f"shed= needs a window in time, and the pattern has {has}",
            hint='add .within("10 minutes"), in the unit of the event time',
        )


def check_history(df: DataFrame, history: DataFrame) -> None:
    """A history has the columns of its stream."""
    if not df.isStreaming:
        raise PlanError(
            "history= is for streams: a batch is looked at itself", hint="leave history= out"
        )
    for field in df.schema:
        found = next((each for each in history.schema if each.name == field.name), None)
        if found is None or found.dataType != field.dataType:
            has = "does not have it" if found is None else f"has {found.dataType.simpleString()}"
            raise PlanError(
                f"the stream has a column {field.name} ({field.dataType.simpleString()}), and the "
                f"history {has}",
                hint="give past rows of the same stream, with its columns",
            )


def _check_share(name: str, value: object, least: float | None = None) -> None:
    number = _to_number(value)
    if number is None or not (0 < number <= 1 or number == least):
        raise PlanError(f"{name} is {value!r}", hint=f"a share between 0 and 1, as {name}=0.3")


def _is_positive(value: object) -> bool:
    number = _to_number(value)
    return number is not None and 0 < number < inf


def _to_number(value: object) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, Real) else float(value)
