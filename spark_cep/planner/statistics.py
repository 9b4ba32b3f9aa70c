"""Where statistics come from: a sample of the input, or the user, checked and assigned to variables
and conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.errors import PlanError
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.events.table import drop_null_times
from spark_cep.udfs.expressions import cells_of
from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from spark_cep.planner.choice import PlanFacts
    from spark_cep.statistics import Statistics
    from spark_cep.udfs.program import Condition, Program, Variable


# ---- the sample ----------------------------------------------------------------------------------

# The first rows are taken before any filter, so even a pattern without matches reads no more rows.
# Nothing is sampled where Spark would have to compute the whole input for them (`spark/sample.py`).
# The sample affects the speed of a query, never its answer. `statistics=` with rates, a plan with
# an order, or `spark.cep.sample` set to "off" avoid it.


SAMPLE_CONF = "spark.cep.sample"
SECONDS_CONF = "spark.cep.sample.seconds"
# The first job of a session takes about 1 s more.
DEFAULT_SECONDS = 3.0
# Enough to distinguish rates of 1 in 1,000.
SAMPLE_ROWS = 5_000


@dataclass(frozen=True)
class Sample:
    """`complete`: the input has no other rows. `estimates` None: no row is a candidate.
    `is_drawn`: the rows are of anywhere in the input, and not its first ones."""

    rows: int
    complete: bool
    estimates: Estimates | None
    is_drawn: bool = False

    def source(self) -> str:
        rows = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        if self.complete:
            return f"the input's {rows}"
        return f"{rows} of a sample" if self.is_drawn else f"the input's first {rows}"


@dataclass(frozen=True)
class NoSample:
    """No sample; `reason` is empty if none was needed."""

    reason: str = ""


def is_sampling_on(setting: str) -> bool:
    """Whether the setting allows samples; raises PlanError if it is invalid."""
    if setting not in {"", "on", "off"}:
        raise PlanError(f"{SAMPLE_CONF} is {setting!r}", hint='set it to "on" or "off"')
    return setting != "off"


def sample_seconds(setting: str) -> float:
    """How long a sample may take; raises PlanError if the setting is invalid.

    >>> sample_seconds(""), sample_seconds("0.5")
    (3.0, 0.5)
    """
    if not setting:
        return DEFAULT_SECONDS
    try:
        seconds = float(setting)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < inf:
        raise PlanError(f"{SECONDS_CONF} is {setting!r}", hint="set it to a number above 0")
    return seconds


def needed_columns(program: Program) -> tuple[int, ...]:
    """The shipped columns that statistics need."""
    read = {
        cell.column
        for condition in program.conditions
        for cell in cells_of(condition.expression)
        if cell.column is not None
    }
    orders = {order.column for order in program.orders}
    return tuple(sorted({program.mask, *program.keys, *orders, *read}))


def summarize_sample(program: Program, table: pa.Table, *, complete: bool) -> Sample:
    """The statistics of sampled rows. `complete`: the input has no other rows."""
    whole = drop_null_times(program, with_all_columns(program, table))
    # Arithmetic errors in a sample affect only the speed of the query.
    with np.errstate(all="ignore"):
        estimates = estimate_from_table(program, whole)
    if not complete:
        estimates = scale_to_million(estimates, table.num_rows)
    return Sample(table.num_rows, complete, estimates)


def with_all_columns(program: Program, table: pa.Table) -> pa.Table:
    """The table with NULLs for the columns that were not sampled, which are not read."""
    columns = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows)
        for name in program.columns
    ]
    return pa.table(dict(zip(program.columns, columns, strict=True)))


def scale_to_million(estimates: Estimates | None, rows: float) -> Estimates | None:
    """Estimates for a million rows."""
    if estimates is None:
        return None
    return replace(estimates, windows=estimates.windows * 1_000_000 / rows)


# A rate of 0 counts as this share of the smallest positive one.
_ZERO_RATE_SHARE = 1e-3


def check_statistics(statistics: Statistics, variables: Sequence[Variable]) -> None:
    """Checks that statistics name variables of the pattern, and that every positive variable has a
    rate or none has; raises PlanError."""
    names = {each.name.casefold() for each in variables}
    pattern = f"the pattern's variables are {', '.join(each.name for each in variables)}"
    for name in statistics.rates:
        if name.casefold() not in names:
            raise PlanError(
                f"statistics: rate for {name!r}, which is not a variable of the pattern",
                hint=pattern,
            )
    for name in (name for pair in statistics.selectivities for name in pair):
        if name.casefold() not in names:
            raise PlanError(
                f"statistics: selectivity for {name!r}, which is not a variable of the pattern",
                hint=pattern,
            )
    _check_unique(statistics)
    given = {name.casefold() for name in statistics.rates}
    positive = [each.name for each in variables if not each.negated]
    missing = [name for name in positive if name.casefold() not in given]
    if given and missing:
        raise PlanError(
            f"statistics: no rate for {', '.join(map(repr, missing))}",
            hint="set a rate for every positive variable, or for none",
        )


def _check_unique(statistics: Statistics) -> None:
    """Checks for duplicates; case and the order of a pair do not matter."""
    rates = Counter(name.casefold() for name in statistics.rates)
    pairs = Counter(
        tuple(sorted({name.casefold() for name in pair})) for pair in statistics.selectivities
    )
    for name in (name for name, count in rates.items() if count > 1):
        raise PlanError(f"statistics: two rates for {name!r}", hint="remove one of them")
    for pair in (pair for pair, count in pairs.items() if count > 1):
        raise PlanError(
            f"statistics: two selectivities for {' and '.join(map(repr, pair))}",
            hint="remove one of them; the order of a pair does not matter",
        )


def with_statistics(facts: PlanFacts, statistics: Statistics) -> PlanFacts:
    """The facts with the user's statistics in place of the sampled ones."""
    known = facts.estimates or Estimates({})
    pairs = {
        frozenset(_ids(pair, facts.variables)): float(share)
        for pair, share in statistics.selectivities.items()
    }
    # A selectivity of one variable scales its rate, unless the engine tests a condition over it
    # alone, as with prev.
    tested = {condition.variables for condition in facts.conditions}
    alone = {
        v: s for pair, s in pairs.items() if len(pair) == 1 and pair not in tested for v in pair
    }
    selectivities = {**known.selectivities, **dict(_by_condition(facts.conditions, pairs))}
    estimates = replace(known, selectivities=selectivities)
    source, unit = facts.source, facts.unit
    if statistics.rates:
        ids = {each.name.casefold(): number for number, each in enumerate(facts.variables)}
        given = {ids[name.casefold()]: float(r) for name, r in statistics.rates.items()}
        estimates = replace(estimates, rates=_scale_rates(given, alone), windows=1.0, places=())
        source, unit = "the rates given", "a window"
    elif alone:
        estimates = replace(estimates, rates=_scale_rates(estimates.rates, alone))
    notes = (*facts.notes, *_unused_notes(facts, pairs))
    # Variables are ordered by the ratios of their rates, and zeros have none.
    is_known = any(estimates.rates.values())
    if statistics.rates and not is_known:
        notes = (*notes, "all given rates are 0, so they do not order the variables")
    return replace(
        facts, estimates=estimates if is_known else None, source=source, unit=unit, notes=notes
    )


def _scale_rates(rates: Mapping[int, float], alone: Mapping[int, float]) -> dict[int, float]:
    """The rates, scaled by selectivities of single variables. A rate of 0 would make every plan
    that begins with it free, so a small rate replaces it."""
    shared = {v: rate * alone.get(v, 1.0) for v, rate in rates.items()}
    least = min((rate for rate in shared.values() if rate), default=0.0) * _ZERO_RATE_SHARE
    return {v: rate or least for v, rate in shared.items()}


def _ids(names: Sequence[str], variables: Sequence[Variable]) -> Iterator[int]:
    ids = {each.name.casefold(): number for number, each in enumerate(variables)}
    return (ids[name.casefold()] for name in names)


def _by_condition(
    conditions: Sequence[Condition], pairs: Mapping[frozenset[int], float]
) -> Iterator[tuple[int, float]]:
    """Selectivities by condition; several conditions of a pair share its selectivity."""
    for pair, share in pairs.items():
        places = [place for place, each in enumerate(conditions) if each.variables == pair]
        for place in places:
            yield place, share ** (1 / len(places))


def _unused_notes(facts: PlanFacts, pairs: Mapping[frozenset[int], float]) -> Iterator[str]:
    tied = [condition.variables for condition in facts.conditions]
    for pair in pairs:
        if len(pair) > 1 and pair not in tied:
            names = " and ".join(facts.variables[v].name for v in sorted(pair))
            yield f"the engine tests no condition between {names}, so their selectivity is unused"
