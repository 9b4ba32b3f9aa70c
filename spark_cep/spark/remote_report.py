"""Where each remote source of a query is looked up, and how, as sentences for explain.

A source may be looked up before matching, in the engine and on the matches. Spark decides when the
query runs whether a table is broadcast; explain shows what its rule gives for the estimated size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.explanation.plan import MatchPlan
from spark_cep.explanation.remotes import (
    ANSWER,
    BEFORE,
    ENGINE,
    LookupPlace,
    RemoteRead,
    format_bytes,
    remote_facts,
)
from spark_cep.expressions.remote_calls import LookupRequest
from spark_cep.remote import RemoteFunction, RemoteTable
from spark_cep.remotes.sources import choose_outside
from spark_cep.spark.lookups import choose_for_engine, make_unique
from spark_cep.spark.report import strip_quotes
from spark_cep.spark.source import estimate_bytes
from spark_cep.udfs.expressions import RemoteCall, variables_of

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.expressions.lookups import LookupColumn
    from spark_cep.spark.lookups import RemoteSources


_BROADCAST_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


@dataclass(frozen=True)
class OutsideLookups:
    """The lookups outside the engine."""

    before: Sequence[LookupRequest] = ()
    answer: Sequence[LookupRequest] = ()


def add_remote_facts(
    plan: MatchPlan,
    sources: RemoteSources,
    places: Iterator[LookupPlace],
    columns: Mapping[str, str],
) -> MatchPlan:
    """The plan with the facts about remote data, if there are any. `columns`: calls by the names of
    the internal columns that replaced them."""
    if not sources.remotes:
        return plan
    found = list(dict.fromkeys(places))
    before = _restore_calls(plan.facts["before"], columns)
    remotes = remote_facts(sources.remotes, found, plan.facts)
    return MatchPlan({**plan.facts, "before": before, "remotes": remotes})


def row_calls_by_column(sought: Sequence[LookupRequest]) -> dict[str, str]:
    """The calls of a row pattern by their columns."""
    return {each.column: each.called() for each in sought}


def event_calls_by_column(compiled: CompiledPattern) -> dict[str, str]:
    """The calls of an event pattern by their columns."""
    return {
        each.name: LookupRequest(
            each.remote.name, each.keys, each.name, _key_texts(each.keys)
        ).called()
        for each in compiled.lookups
    }


def _restore_calls(fact: Any, columns: Mapping[str, str]) -> Any:
    """The fact with calls in place of their columns, in every text."""
    if isinstance(fact, dict):
        return {key: _restore_calls(value, columns) for key, value in fact.items()}
    if isinstance(fact, list):
        return [_restore_calls(each, columns) for each in fact]
    if not isinstance(fact, str) or not any(name in fact for name in columns):
        return fact
    names = "|".join(map(re.escape, sorted(columns, key=len, reverse=True)))
    # The compiler pads a column to the length of its call, so there are spaces in front of it.
    named = re.compile(rf"(\(\s*|\s*)`?\b({names})\b`?")
    return named.sub(lambda found: _call_spacing(found[1]) + columns[found[2]], fact)


def _call_spacing(before: str) -> str:
    return before[:1] if before.startswith("(") else " " * bool(before)


def event_places(
    compiled: CompiledPattern, answer: Sequence[LookupRequest], sources: RemoteSources
) -> Iterator[LookupPlace]:
    """The places of an event pattern."""
    for each in compiled.lookups:
        yield _lookup_place(each, compiled, sources)
    for asked in compiled.remotes:
        how = choose_for_engine(asked.remote, compiled, sources)
        given = sources.remotes[asked.remote.name].source
        says = how.why if isinstance(given, RemoteTable) else f"{how.strategy}: {how.why}"
        reads = tuple(dict.fromkeys(_engine_reads(asked.remote.name, compiled)))
        yield LookupPlace(asked.remote.name, ENGINE, says, how, reads)
    yield from _answer_places(answer, sources)


def _engine_reads(name: str, compiled: CompiledPattern) -> Iterator[RemoteRead]:
    """The conditions that the engine tests with values of a source."""

    def names(variables: Iterable[int]) -> tuple[str, ...]:
        return tuple(compiled.variables[each].name for each in sorted(variables))

    for condition in compiled.conditions:
        for node in condition.expression.walk():
            if isinstance(node, RemoteCall) and compiled.remotes[node.remote].remote.name == name:
                keys = names(variables_of(node))
                yield RemoteRead(condition.text, keys, names(condition.variables))


def row_places(elsewhere: OutsideLookups, sources: RemoteSources) -> Iterator[LookupPlace]:
    """The places of a row pattern."""
    for each in elsewhere.before:
        yield _outside_place(
            each, BEFORE, "for each row, because a row's conditions read it", sources
        )
    yield from _answer_places(elsewhere.answer, sources)


def _lookup_place(
    each: LookupColumn, compiled: CompiledPattern, sources: RemoteSources
) -> LookupPlace:
    name = each.remote.name
    source = sources.remotes[name].source
    whose = "" if each.variable is None else f" of {compiled.variables[each.variable].name}"
    by = f"by {', '.join(_key_texts(each.keys))}"
    if isinstance(source, RemoteTable):
        return LookupPlace(
            name, BEFORE, f"joined to the rows{whose} {by}, {_describe_join(name, sources)}"
        )
    how = choose_outside(source.strategy, source.caching)
    says = f"fetched {by} for the rows{whose}, because the engine cannot evaluate the condition"
    return LookupPlace(name, BEFORE, says, how)


def _answer_places(
    sought: Sequence[LookupRequest], sources: RemoteSources
) -> Iterator[LookupPlace]:
    for each in sought:
        yield _outside_place(each, ANSWER, "for the measures", sources)


def _outside_place(
    each: LookupRequest, where: str, why: str, sources: RemoteSources
) -> LookupPlace:
    source = sources.remotes[each.remote].source
    by = f"by {', '.join(each.shown or _key_texts(each.keys))}"
    if isinstance(source, RemoteFunction):
        how = choose_outside(source.strategy, source.caching)
        return LookupPlace(each.remote, where, f"fetched {by} {why}", how)
    return LookupPlace(
        each.remote, where, f"joined {by} {why}, {_describe_join(each.remote, sources)}"
    )


def _key_texts(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(strip_quotes(key).split()) for key in keys)


def _describe_join(name: str, sources: RemoteSources) -> str:
    """Whether the table is broadcast or both sides are shuffled, and why."""
    remote = sources.remotes[name]
    assert isinstance(remote.source, RemoteTable)
    most = _parse_bytes(str(sources.session.conf.get(_BROADCAST_THRESHOLD, "10m") or "10m"))
    if most is None or most < 0:
        return f"both sides shuffled by key: {_BROADCAST_THRESHOLD} is disabled"
    table = make_unique(remote, name, [f"k{place}" for place in range(len(remote.source.key))])
    expected = estimate_bytes(table)
    if expected is None:
        return (
            "both sides shuffled by key, unless the table is small: Spark cannot estimate its size"
        )
    size = f"about {format_bytes(expected)}"
    if expected <= most:
        return f"broadcast: {size}, not above the {format_bytes(most)} of {_BROADCAST_THRESHOLD}"
    limit = f"the {format_bytes(most)} of {_BROADCAST_THRESHOLD}"
    return f"both sides shuffled by key: {size}, above {limit}"


def _parse_bytes(text: str) -> int | None:
    """
    >>> _parse_bytes("10485760b"), _parse_bytes("10MB"), _parse_bytes("-1")
    (10485760, 10485760, -1)
    """
    found = re.fullmatch(r"(-?\d+)\s*([bkmgtp]?)b?", text.strip().lower())
    return None if found is None else int(found[1]) << _UNITS[found[2]]
