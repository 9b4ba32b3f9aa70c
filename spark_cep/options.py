"""The options of `match_pattern`, checked before anything else happens.

An option of this library that this version cannot honour is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spark_cep.adapt import adaptation
from spark_cep.errors import PatternError, PlanError
from spark_cep.pattern import Pattern
from spark_cep.plans import Wish, wish
from spark_cep.statistics import Statistics
from spark_cep.udfs.program import Adaptation, Limits

Rows = Literal["one", "all"]


@dataclass(frozen=True)
class Options:
    """`measures` keeps the user's order; None: the default answer."""

    rows: Rows
    measures: tuple[tuple[str, str], ...] | None
    wish: Wish
    statistics: Statistics | None
    limits: Limits
    adaptation: Adaptation


@dataclass(frozen=True)
class Asked:
    """What the user wants, options checked."""

    pattern: Pattern
    options: Options
    order_by: Any
    partition_by: Any


def check_pattern(pattern: object) -> Pattern:
    """The first argument of match_pattern."""
    if isinstance(pattern, Pattern):
        return pattern
    raise PatternError(
        f"match_pattern takes a pattern, not {type(pattern).__name__}",
        hint='build one with seq("a", "b"), all_of(...), any_of(...) or event(...)',
    )


def check_options(  # noqa: PLR0913 - the options of match_pattern
    *,
    rows: object,
    measures: object,
    plan: object,
    statistics: object,
    limits: object,
    adapt: object,
    **unavailable: object,
) -> Options:
    """Options as the rest of the library wants them; `unavailable` must have their defaults."""
    for name, value in unavailable.items():
        _refuse_unless_default(name, value)
    if statistics is not None and not isinstance(statistics, Statistics):
        raise PlanError(
            f"statistics takes cep.Statistics, not {type(statistics).__name__}",
            hint='statistics=cep.Statistics(rates={"a": 100, "b": 5})',
        )
    if limits is not None and not isinstance(limits, Limits):
        raise PatternError(
            f"limits takes cep.Limits, not {type(limits).__name__}",
            hint="limits=cep.Limits(partial_matches=1_000_000)",
        )
    checked = _rows(rows)
    return Options(
        checked,
        _measures(measures, checked),
        wish(plan),
        statistics,
        limits or Limits(),
        adaptation(adapt),
    )


def _rows(rows: object) -> Rows:
    if rows in ("all omit empty", "all with unmatched"):
        raise PatternError(
            f"rows={rows!r} is for row patterns, which are not available yet",
            hint='event patterns have rows="one" and rows="all"',
        )
    if rows not in ("one", "all"):
        raise PatternError(
            f"{rows!r} is no choice of rows",
            hint='rows="one" gives a row for each match, rows="all" one for each matched event',
        )
    return rows


def _measures(measures: object, rows: Rows) -> tuple[tuple[str, str], ...] | None:
    if measures is None:
        return None
    hint = 'measures={"gain": "c.price - a.price"}'
    if not isinstance(measures, Mapping) or not measures:
        raise PatternError("measures takes a dict of names to Spark SQL text", hint=hint)
    if rows == "all":
        raise PatternError(
            'rows="all" shows the input\'s rows, and has no place for measures',
            hint="leave one of the two out",
        )
    for name, text in measures.items():
        if not isinstance(name, str) or not name.strip():
            raise PatternError(f"{name!r} is no name for a measure", hint=hint)
        if not isinstance(text, str):
            raise PatternError(
                f"the measure {name!r} is a {type(text).__name__}, not Spark SQL text", hint=hint
            )
    return tuple(measures.items())


def _refuse_unless_default(name: str, value: Any) -> None:
    if value is None:
        return
    hints = {
        "after_match": "it is for row patterns; event patterns have .consumption(...)",
        "remotes": "join the remote table to the input before matching",
        "shed": "bound the work with .within(...) and limits=cep.Limits(...)",
    }
    raise PatternError(f"{name}= is not available yet", hint=hints.get(name))
