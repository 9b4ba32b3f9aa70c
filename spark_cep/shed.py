"""`cep.Shed`: how many rows a query may drop, and which.

Always holds: what is wrong with it in itself raises a PlanError when it is made. Whether a pattern
allows shedding is checked before any job.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import inf
from numbers import Real
from typing import TYPE_CHECKING

from spark_cep.errors import PatternError, PlanError
from spark_cep.expressions.windows import parse_duration_us
from spark_cep.plans import PLANNER_KINDS
from spark_cep.udfs.expressions import UserCall
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.plans import PlanRequest
    from spark_cep.udfs.shedding.utility import SheddingPolicy


POLICIES: tuple[SheddingPolicy, ...] = (
    *("utility", "keys", "darling", "random", "frequency"),
    *("espice", "hspice", "pspice", "random-partials"),
)
_EXAMPLE = (
    'shed=cep.Shed(keep=0.3), cep.Shed(latency="1.5 seconds") or cep.Shed(rows_per_second=1e5)'
)
# The safety factor beta of DARLING.
SAFETY = 0.8


@public
@dataclass(frozen=True, kw_only=True)
class Shed:
    """Load shedding: drops rows so that a query finishes in time, and loses few matches by it.

    Pass it as `shed=` to `match_pattern`, with exactly one of `keep`, `latency` and
    `rows_per_second`. Shedding only takes matches away; every match in the answer is a match
    without shedding, too. Rows that a NOT could need are never dropped, and count for no bound.

    Args:
        keep: the share of the rows to keep, from 0 to 1.
        latency: how long a trigger may take on a stream, and how long matching may take in a
            batch: text such as "1.5 seconds", or a timedelta.
        rows_per_second: how many rows to keep for each second between two triggers on a stream,
            and for each second of event time in a batch.
        history: past rows of a stream, with its columns. The utility of rows is then known before
            the first trigger, and Spark applies `keep` before the shuffle.
        policy: "utility" drops the rows that the fewest matches are expected to lose, or whole
            blocks (a key in a stretch of time) where that keeps more. The others are to compare
            it with: "keys" drops whole blocks, "darling" rows by the paper's utility and quotas,
            "random" any rows, "frequency" any rows of the most frequent kinds, "espice" rows by
            their variable and their position in the window. Three keep all rows, and `keep` is the
            share of the pairs of a partial match and a row that are tested: with "hspice" rows are
            not offered to partial matches of which they complete few, "pspice" drops partial
            matches that complete seldom for the work they cause, "random-partials" any.
        safety: the part of `latency` that shedding plans with.
        seed: decides which of the rows of equal utility are dropped.

    Raises:
        PlanError: if not exactly one bound is given, or an argument is wrong.

    Example:
        >>> Shed(keep=0.3).keep
        0.3
        >>> Shed(latency="1.5 seconds", policy="random").latency_seconds()
        1.5
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
            names = " and ".join(given) or "none"
            raise PlanError(
                f"cep.Shed takes one of keep, latency and rows_per_second, not {names}",
                hint=_EXAMPLE,
            )
        if self.policy not in POLICIES:
            known = ", ".join(f'"{each}"' for each in POLICIES)
            raise PlanError(f"policy is {self.policy!r}", hint=f"use one of {known}")
        is_whole = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        if not is_whole or not -(2**63) <= self.seed < 2**63:
            raise PlanError(
                f"seed is {self.seed!r}", hint="seed must be a whole number of 64 bits: seed=7"
            )
        _check_share("safety", self.safety)
        if self.keep is not None:
            _check_share("keep", self.keep, least=0.0)
        if self.rows_per_second is not None and not _is_positive(self.rows_per_second):
            raise PlanError(
                f"rows_per_second is {self.rows_per_second!r}",
                hint="use a number above 0: cep.Shed(rows_per_second=100_000)",
            )
        if self.latency is not None:
            self.latency_seconds()
        self._check_history()

    def _check_history(self) -> None:
        if self.history is None:
            return
        has = hasattr(self.history, "isStreaming") and hasattr(self.history, "sparkSession")
        if not has or self.history.isStreaming:
            what = "a stream" if has else f"of type {type(self.history).__name__}"
            raise PlanError(
                f"history must be a batch DataFrame, and is {what}",
                hint="give past rows of the stream: history=spark.read.parquet(...)",
            )

    def latency_seconds(self) -> float | None:
        """`latency` in seconds.

        Example:
            >>> Shed(latency="1.5 seconds", policy="random").latency_seconds()
            1.5
        """
        if self.latency is None:
            return None
        hint = 'give a duration as text or a timedelta: cep.Shed(latency="1.5 seconds")'
        try:
            found = float(parse_duration_us(self.latency)) / 1e6
        except PatternError:
            raise PlanError(f"latency {self.latency!r} is not a duration", hint=hint) from None
        if not 0 < found < inf:
            raise PlanError(f"latency {self.latency!r} is not above 0", hint=hint)
        return found

    def asked(self) -> str:
        """The bound in words.

        Example:
            >>> Shed(keep=0.3).asked(), Shed(latency="1.5 seconds", policy="random").asked()
            ('keep 30%', 'latency 1.5 seconds')
        """
        if self.keep is not None:
            return f"keep {100 * self.keep:g}%"
        if self.latency is not None:
            return f"latency {self.latency}"
        return f"{self.rows_per_second:,.12g} rows a second"


def check_shed(shed: object) -> Shed | None:
    """The value of `shed=`."""
    if shed is None or isinstance(shed, Shed):
        return shed
    raise PlanError(f"shed takes cep.Shed, not {type(shed).__name__}", hint=_EXAMPLE)


def check_can_shed(compiled: CompiledPattern) -> None:
    """Refuses patterns for which a dropped row could create a match, and patterns without a time
    window, for which no row ever becomes unnecessary."""
    if compiled.strategy != "any":
        names = {"next": "skip till next match", "strict": "strict"}
        raise PlanError(
            f"shed= cannot be used with the strategy {names[compiled.strategy]!r}: where a row is "
            "dropped, the next one would take its place, in a match that does not exist",
            hint='use .strategy("skip till any match"), or leave shed= out',
        )
    if compiled.consumption != "reuse":
        raise PlanError(
            "shed= cannot be used with consumption 'consume': a lost match would leave its events "
            "to matches that do not exist",
            hint='use .consumption("reuse"), or leave shed= out',
        )
    if compiled.window is None or compiled.window.kind != "time":
        has = "no window" if compiled.window is None else "a window that counts events"
        raise PlanError(
            f"shed= needs a window in time, and the pattern has {has}",
            hint='add a window: .within("10 minutes")',
        )


def check_can_drop_partials(
    policy: SheddingPolicy, compiled: CompiledPattern, request: PlanRequest
) -> None:
    """Refuses patterns whose partial matches have no states that a sample shows, and plans under
    which they have none."""
    for found, hint in _obstacles(compiled, request):
        raise PlanError(f"the policy {policy!r} {found}", hint=f'{hint}, or policy="utility"')


def _obstacles(compiled: CompiledPattern, request: PlanRequest) -> Iterator[tuple[str, str]]:
    """What does not go with a policy that drops partial matches, and what to write instead."""
    names, slots = compiled.variables, [s for branch in compiled.branches for s in branch.slots]
    if all(len(branch.slots) < 2 for branch in compiled.branches):
        yield (
            "drops partial matches, and a match of this pattern is complete with its first part",
            'use policy="random"',
        )
    for slot in slots:
        if slot.is_group:
            group = ", ".join(names[v].name for v in slot.variables)
            yield (
                f"cannot be used with the repeated group of {group}: its iterations are found "
                "before any partial match",
                "repeat single events",
            )
    if compiled.remotes:
        source = compiled.remotes[0].remote.name
        yield (
            f"learns from a sample, on which the remote source {source!r} is not asked",
            'look it up before matching, with strategy="pre"',
        )
    for condition in compiled.conditions:
        if any(isinstance(node, UserCall) for node in condition.expression.walk()):
            yield (
                f"learns from a sample, on which functions of the user are not tested: "
                f"{condition.text}",
                "write the condition without cep.udf",
            )
    kind = request.kind
    if kind == "auto" and request.planner != "dp":
        kind = PLANNER_KINDS[request.planner][0]
    if kind not in {"auto", "eager", "lazy-chain"}:
        yield (
            f"needs a plan that binds the variables in one order, which {kind!r} does not",
            'leave plan= out, or use plan="lazy-chain"',
        )


def check_history(df: DataFrame, history: DataFrame) -> None:
    """Refuses a history that lacks columns of its stream."""
    if not df.isStreaming:
        raise PlanError(
            "history= is for streams: in a batch, the rows themselves are sampled",
            hint="leave history= out",
        )
    for field in df.schema:
        found = next((each for each in history.schema if each.name == field.name), None)
        if found is None or found.dataType != field.dataType:
            has = "has no such column"
            if found is not None:
                has = f"has it as {found.dataType.simpleString()}"
            raise PlanError(
                f"the stream has a column {field.name} ({field.dataType.simpleString()}), and the "
                f"history {has}",
                hint="give past rows of the same stream, with its columns",
            )


def _check_share(name: str, value: object, least: float | None = None) -> None:
    number = _to_number(value)
    if number is None or not (0 < number <= 1 or number == least):
        raise PlanError(f"{name} is {value!r}", hint=f"use a share between 0 and 1: {name}=0.3")


def _is_positive(value: object) -> bool:
    number = _to_number(value)
    return number is not None and 0 < number < inf


def _to_number(value: object) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, Real) else float(value)
