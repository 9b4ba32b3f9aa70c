"""Where each remote source of a query is looked up, and how, in sentences for explain.

Before matching, in the engine, or on the matches: a source may be in several of these places.
Whether a table is broadcast is Spark's to decide when it runs; said is what its rule gives for the
size that it expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.compiling.remote_calls import Sought
from spark_cep.explaining.explanation import MatchPlan
from spark_cep.explaining.remotes import ANSWER, BEFORE, ENGINE, Place, remote_facts, size
from spark_cep.explaining.report import unquoted
from spark_cep.planning.buckets import size_of
from spark_cep.remotes.before import decision
from spark_cep.remotes.choice import outside
from spark_cep.remotes.joining import unique
from spark_cep.remotes.remote import Fetched, Table

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Compiled
    from spark_cep.compiling.lookups import LookedUp
    from spark_cep.remotes.outside import Sources

_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


@dataclass(frozen=True)
class Elsewhere:
    """What is looked up outside the engine."""

    before: Sequence[Sought] = ()
    answer: Sequence[Sought] = ()


def with_remotes(
    plan: MatchPlan, sources: Sources, places: Iterator[Place], columns: Mapping[str, str]
) -> MatchPlan:
    """The plan with what is said of remote data; as it is where there is none. `columns`: calls
    by the names of the columns that stand for them, which nobody has written."""
    if not sources.remotes:
        return plan
    found = list(dict.fromkeys(places))
    before = _as_written(plan.facts["before"], columns)
    remotes = remote_facts(sources.remotes, found)
    return MatchPlan({**plan.facts, "before": before, "remotes": remotes})


def columns_of(sought: Sequence[Sought]) -> dict[str, str]:
    """The calls of a row pattern by their columns."""
    return {each.column: each.called() for each in sought}


def columns_of_events(compiled: Compiled) -> dict[str, str]:
    """Those of an event pattern."""
    return {
        each.name: Sought(each.remote.name, each.keys, each.name, _shown(each.keys)).called()
        for each in compiled.lookups
    }


def _as_written(fact: Any, columns: Mapping[str, str]) -> Any:
    """The fact with calls in the places of their columns, wherever it has texts."""
    if isinstance(fact, dict):
        return {key: _as_written(value, columns) for key, value in fact.items()}
    if isinstance(fact, list):
        return [_as_written(each, columns) for each in fact]
    if not isinstance(fact, str) or not any(name in fact for name in columns):
        return fact
    names = "|".join(map(re.escape, sorted(columns, key=len, reverse=True)))
    # A call is longer than its column, so spaces stand in front of it (`compiling/rows/looked_up`).
    named = re.compile(rf"(\(\s*|\s*)`?\b({names})\b`?")
    return named.sub(lambda found: _spaced(found[1]) + columns[found[2]], fact)


def _spaced(before: str) -> str:
    return before[:1] if before.startswith("(") else " " * bool(before)


def of_events(compiled: Compiled, answer: Sequence[Sought], sources: Sources) -> Iterator[Place]:
    """The places of an event pattern."""
    for each in compiled.lookups:
        yield _looked_up(each, compiled, sources)
    for asked in compiled.remotes:
        how = decision(asked.remote, compiled, sources)
        given = sources.remotes[asked.remote.name].source
        says = how.why if isinstance(given, Table) else f"{how.strategy}: {how.why}"
        yield Place(asked.remote.name, ENGINE, says, how)
    yield from _on_matches(answer, sources)


def of_rows(elsewhere: Elsewhere, sources: Sources) -> Iterator[Place]:
    """The places of a row pattern."""
    for each in elsewhere.before:
        yield _outside(each, BEFORE, "for each row, because a row's conditions read it", sources)
    yield from _on_matches(elsewhere.answer, sources)


def _looked_up(each: LookedUp, compiled: Compiled, sources: Sources) -> Place:
    name = each.remote.name
    source = sources.remotes[name].source
    whose = "" if each.variable is None else f" of {compiled.variables[each.variable].name}"
    by = f"by {', '.join(_shown(each.keys))}"
    if isinstance(source, Table):
        return Place(name, BEFORE, f"joined to the rows{whose} {by}, {_join(name, sources)}")
    how = outside(source.strategy, source.caching)
    says = f"fetched {by} for the rows{whose}, for the engine does not compute what is asked of it"
    return Place(name, BEFORE, says, how)


def _on_matches(sought: Sequence[Sought], sources: Sources) -> Iterator[Place]:
    for each in sought:
        yield _outside(each, ANSWER, "for the measures", sources)


def _outside(each: Sought, where: str, why: str, sources: Sources) -> Place:
    source = sources.remotes[each.remote].source
    by = f"by {', '.join(each.shown or _shown(each.keys))}"
    if isinstance(source, Fetched):
        how = outside(source.strategy, source.caching)
        return Place(each.remote, where, f"fetched {by} {why}", how)
    return Place(each.remote, where, f"joined {by} {why}, {_join(each.remote, sources)}")


def _shown(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(unquoted(key).split()) for key in keys)


def _join(name: str, sources: Sources) -> str:
    """Broadcast or shuffled, and why."""
    remote = sources.remotes[name]
    assert isinstance(remote.source, Table)
    most = _bytes(str(sources.session.conf.get(_THRESHOLD, "10m") or "10m"))
    if most is None or most < 0:
        return f"both sides shuffled by key: {_THRESHOLD} is off"
    table = unique(remote, name, [f"k{place}" for place in range(len(remote.source.key))])
    expected = size_of(table, None).bytes
    if expected is None:
        return "both sides shuffled by key, unless it turns out small: Spark cannot tell its size"
    said = f"about {size(expected)}"
    if expected <= most:
        return f"broadcast: {said}, not above the {size(most)} of {_THRESHOLD}"
    return f"both sides shuffled by key: {said}, above the {size(most)} of {_THRESHOLD}"


def _bytes(text: str) -> int | None:
    """
    >>> _bytes("10485760b"), _bytes("10MB"), _bytes("-1")
    (10485760, 10485760, -1)
    """
    found = re.fullmatch(r"(-?\d+)\s*([bkmgtp]?)b?", text.strip().lower())
    return None if found is None else int(found[1]) << _UNITS[found[2]]
