"""The options of `match_pattern`, checked before anything else happens.

An option that does not apply to the pattern is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal

from spark_cep.adapt import adaptation
from spark_cep.errors import PatternError, PlanError
from spark_cep.pattern import Pattern
from spark_cep.plans import PlanRequest, RowPlan, read_plan_request, read_row_plan
from spark_cep.remotes.sources import check_remotes
from spark_cep.shed import Shed, check_shed
from spark_cep.statistics import Statistics
from spark_cep.udfs.program import Adaptation, Limits, Objective

if TYPE_CHECKING:
    from spark_cep.remote import Remote
    from spark_cep.rows.windows import WindowRequest
    from spark_cep.udfs.row_program import RowsMode as RowPatternRows


RowsMode = Literal["one", "all"]
OBJECTIVES: Final[tuple[Objective, ...]] = ("balanced", "latency", "throughput")
_ROW_PATTERN_ROWS: tuple[RowPatternRows, ...] = (
    "one",
    "all",
    "all omit empty",
    "all with unmatched",
)


@dataclass(frozen=True)
class Options:
    """The options of an event pattern. `measures` are in the user's order; None: the default
    answer."""

    rows: RowsMode
    measures: tuple[tuple[str, str], ...] | None
    plan_request: PlanRequest
    statistics: Statistics | None
    limits: Limits
    adaptation: Adaptation
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    shed: Shed | None = None
    optimize: Objective = "balanced"


@dataclass(frozen=True)
class RowOptions:
    """The options of a row pattern. `window`: it is in a window frame of SQL."""

    rows: RowPatternRows
    measures: tuple[tuple[str, str], ...]
    after_match: str | None
    limits: Limits
    plan: RowPlan = "auto"
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    window: WindowRequest | None = None


@dataclass(frozen=True)
class MatchRequest:
    """A call of `match_pattern` for an event pattern, options checked."""

    pattern: Pattern
    options: Options
    order_by: Any
    partition_by: Any


def check_pattern(pattern: object) -> Pattern:
    """The pattern, if it is an event pattern; row patterns are handled before."""
    if isinstance(pattern, Pattern):
        return pattern
    raise PatternError(
        f"match_pattern takes a pattern, not {type(pattern).__name__}",
        hint='build one with seq("a", "b"), all_of(...), any_of(...), event(...) or '
        'row_pattern("a b+")',
    )


def check_options(  # noqa: PLR0913 - the options of match_pattern
    *,
    rows: object,
    measures: object,
    plan: object,
    statistics: object,
    limits: object,
    adapt: object,
    planner: object = "dp",
    optimize: object = "balanced",
    after_match: object = None,
    remotes: object = None,
    shed: object = None,
) -> Options:
    """The checked options of an event pattern."""
    if after_match is not None:
        raise PatternError(
            "after_match= is for row patterns",
            hint="whether event patterns share events is set by .consumption(...)",
        )
    if statistics is not None and not isinstance(statistics, Statistics):
        raise PlanError(
            f"statistics takes cep.Statistics, not {type(statistics).__name__}",
            hint='statistics=cep.Statistics(rates={"a": 100, "b": 5})',
        )
    rows_mode = _rows(rows)
    return Options(
        rows_mode,
        _measures(measures, rows_mode),
        read_plan_request(plan, planner),
        statistics,
        _limits(limits),
        adaptation(adapt),
        check_remotes(remotes),
        check_shed(shed),
        _objective(optimize),
    )


def check_row_options(  # noqa: PLR0913 - the options of match_pattern
    *,
    rows: object,
    measures: object,
    after_match: object,
    limits: object,
    plan: object,
    statistics: object,
    planner: object = "dp",
    optimize: object = "balanced",
    remotes: object = None,
    shed: object = None,
) -> RowOptions:
    """The checked options of a row pattern."""
    if planner != "dp":
        raise PlanError(
            "planner= is for event patterns",
            hint='leave it out; row patterns have plan="walk" and plan="gaps"',
        )
    if optimize != "balanced":
        raise PlanError(
            "optimize= is for event patterns",
            hint="leave it out; a row pattern has one way to follow a stream",
        )
    if shed is not None:
        raise PlanError(
            "shed= is for event patterns under skip till any match; a row pattern would give "
            "other matches if rows were dropped",
            hint="leave shed= out; limits=cep.Limits(backtracking_steps=...) bounds the work",
        )
    if statistics is not None:
        raise PlanError(
            "statistics= is for event patterns",
            hint="leave it out; the plan of a row pattern does not depend on statistics",
        )
    if after_match is not None and not isinstance(after_match, str):
        raise PatternError(
            f"after_match takes text, not {type(after_match).__name__}",
            hint='after_match="SKIP TO NEXT ROW"',
        )
    known_rows = next((each for each in _ROW_PATTERN_ROWS if each == rows), None)
    if known_rows is None:
        known = ", ".join(f'"{each}"' for each in _ROW_PATTERN_ROWS)
        raise PatternError(f"unknown value of rows: {rows!r}", hint=f"row patterns have {known}")
    return RowOptions(
        known_rows,
        _texts(measures),
        after_match,
        _limits(limits),
        read_row_plan(plan),
        check_remotes(remotes),
    )


def _objective(optimize: object) -> Objective:
    """What `optimize=` gives.

    >>> _objective("latency")
    'latency'
    """
    for name in OBJECTIVES:
        if optimize == name:
            return name
    nearest = get_close_matches(str(optimize).lower(), OBJECTIVES, 1, 0.5)
    meant = f'did you mean "{nearest[0]}"? ' if nearest else ""
    names = ", ".join(f'"{name}"' for name in OBJECTIVES[:-1]) + f' or "{OBJECTIVES[-1]}"'
    raise PlanError(f"unknown value of optimize: {optimize!r}", hint=f"{meant}optimize is {names}")


def _limits(limits: object) -> Limits:
    if limits is None:
        return Limits()
    if isinstance(limits, Limits):
        return limits
    raise PatternError(
        f"limits takes cep.Limits, not {type(limits).__name__}",
        hint="limits=cep.Limits(partial_matches=1_000_000)",
    )


def _rows(rows: object) -> RowsMode:
    if rows in ("all omit empty", "all with unmatched"):
        raise PatternError(
            f"rows={rows!r} is for row patterns",
            hint='event patterns have rows="one" and rows="all"',
        )
    if rows not in ("one", "all"):
        raise PatternError(
            f"unknown value of rows: {rows!r}",
            hint='rows="one" gives a row for each match, rows="all" a row for each matched event',
        )
    return rows


def _measures(measures: object, rows: RowsMode) -> tuple[tuple[str, str], ...] | None:
    if measures is None:
        return None
    texts = _texts(measures)
    if rows == "all":
        raise PatternError(
            'rows="all" shows the rows of the input and takes no measures',
            hint='leave measures= out, or use rows="one"',
        )
    return texts


def _texts(measures: object) -> tuple[tuple[str, str], ...]:
    """The names and texts of the measures, in the user's order."""
    if measures is None:
        return ()
    hint = 'measures={"gain": "c.price - a.price"}'
    if not isinstance(measures, Mapping) or not measures:
        raise PatternError("measures takes a dict of names to Spark SQL text", hint=hint)
    for name, text in measures.items():
        if not isinstance(name, str) or not name.strip():
            raise PatternError(f"{name!r} is not the name of a measure", hint=hint)
        if not isinstance(text, str):
            raise PatternError(
                f"the measure {name!r} is of type {type(text).__name__}, not Spark SQL text",
                hint=hint,
            )
    return tuple(measures.items())
