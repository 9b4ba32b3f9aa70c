"""What explain says of remote data: where each source is looked up, how, and what was counted.

Facts first, as everywhere: `remote_facts` is plain data, `remote_rows` the lines of text and page,
`counted` those of what was measured. No function, address or value of a key is in any of them:
what a source shows of itself (`Remote.described`) is all that is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.explanation.numbers import format_duration
from spark_cep.udfs.remotes.metrics import LookupMetrics

if TYPE_CHECKING:
    from spark_cep.remote import Remote, RemoteFunction
    from spark_cep.remotes.sources import RemoteChoice


# Where a value is looked up, as explain says it.
BEFORE = "before matching"
ENGINE = "in the engine"
ANSWER = "on the matches"
_ALL_OF_IT = "the whole query"


@dataclass(frozen=True)
class LookupPlace:
    """One place where a source is looked up: `where` is one of the three, `how` a sentence with
    its reason. `decided`: of what is fetched there."""

    remote: str
    where: str
    how: str
    decided: RemoteChoice | None = None


def remote_facts(
    remotes: Mapping[str, Remote], places: Sequence[LookupPlace]
) -> list[dict[str, Any]]:
    """Plain data for each source, in the order given."""
    return [
        _source_facts(name, remote, [each for each in places if each.remote == name])
        for name, remote in remotes.items()
    ]


def _source_facts(name: str, remote: Remote, places: Sequence[LookupPlace]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "source": remote.described,
        "places": [{"where": each.where, "how": each.how} for each in places],
    }
    # That of the engine goes first: elsewhere there is little to decide.
    ordered = sorted(places, key=lambda each: each.where != ENGINE)
    how = next((each.decided for each in ordered if each.decided is not None), None)
    if not remote.is_table and how is not None:
        found |= _fetch_facts(remote.source, how)
    return found


def _fetch_facts(source: Any, how: RemoteChoice) -> dict[str, Any]:
    given: RemoteFunction = source
    patience = given.patience
    return {
        "strategy": how.strategy,
        "why": how.why,
        "cache": {
            "policy": how.caching.policy,
            "capacity": how.caching.capacity,
            "why": how.why_cache,
        },
        "calls": f"up to {_count_text(patience.batch, 'key')} a call, "
        f"{patience.in_flight} at once, "
        f"{patience.timeout:g} s each",
        "on_error": given.on_error,
        "retries": patience.retries,
        "ttl": given.ttl,
        "wholes": given.part_of is not None,
    }


# ---- lines -------------------------------------------------------------------------------------


def remote_rows(remotes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Labelled lines; a line without a label goes on with the one before."""
    for each in remotes:
        yield each["name"], each["source"]
        for place in each["places"]:
            yield "", f"{place['where']}: {place['how']}"
        if "cache" in each and not any(place["where"] == ENGINE for place in each["places"]):
            yield "", f"{each['strategy']}: {each['why']}"
        if "cache" in each:
            yield from (("", text) for text in _source_rows(each))


def _source_rows(each: Mapping[str, Any]) -> Iterator[str]:
    cache = each["cache"]
    policy = {"lru": "least recently used", "cost": "cost-based"}[cache["policy"]]
    yield f"cache: {policy}, {format_bytes(cache['capacity'])}: {cache['why']}"
    wholes = "; a whole is fetched for any of its parts" if each["wholes"] else ""
    yield f"calls: {each['calls']}{wholes}"
    retries = _count_text(each["retries"], "more try", "more tries")
    fails = "gives NULL" if each["on_error"] == "null" else "ends the query"
    yield f"a failed call: {retries}, then it {fails}"
    yield f"a value holds for {_ttl_text(each['ttl'])}"


def _ttl_text(ttl: float | None) -> str:
    if ttl is None:
        return _ALL_OF_IT
    return (
        f"{ttl:g} s: then it is fetched anew between triggers, so a match can hang on when its "
        "rows came; within a batch, and within a trigger, it holds"
    )


def format_bytes(count: int) -> str:
    """Bytes for people.

    >>> format_bytes(64 << 20), format_bytes(1500)
    ('64 MB', '1.46 KB')
    """
    for unit, bytes_ in (("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= bytes_:
            return f"{count / bytes_:,.3g} {unit}"
    return f"{count} bytes"


def _count_text(count: int, one: str, several: str | None = None) -> str:
    """
    >>> _count_text(1, "key"), _count_text(1000, "key")
    ('1 key', '1,000 keys')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


# ---- what was counted --------------------------------------------------------------------------


def remote_count_rows(remotes: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What was looked up, as labelled lines like those of `remote_rows`."""
    for name, numbers in remotes.items():
        of = LookupMetrics.from_dict(numbers)
        yield name, f"{_count_text(of.calls, 'call')} for {_count_text(of.keys, 'key')}"
        known = of.hits + of.misses
        share = f", {100 * of.hits / known:.0f} % were there" if known else ""
        yield "", f"{_count_text(known, 'lookup')}{share}"
        if of.prefetched:
            used = 100 * of.prefetched_used / of.prefetched
            yield (
                "",
                f"{_count_text(of.prefetched, 'key')} fetched ahead, {used:.0f} % of them used",
            )
        yield (
            "",
            f"waited {format_duration(of.waited_s * 1e6)}, "
            f"{format_duration(of.hidden_s * 1e6)} hidden",
        )
        if of.retries or of.failures:
            tries, lost = (
                _count_text(of.retries, "more try", "more tries"),
                _count_text(of.failures, "key"),
            )
            yield "", f"{tries}, {lost} given up"
