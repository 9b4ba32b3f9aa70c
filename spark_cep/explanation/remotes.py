"""What explain shows of remote data: where and how each source is looked up, and what was counted.

`remote_facts` is plain data, `remote_rows` the lines of text and page, `remote_count_rows` those of
what was measured. None of them contains a function, an address or the value of a key: of a source
they show only `Remote.described`.

When a source is asked, and for how many keys at most, follows from the plan: a key is known when
the variables that it is made of are bound, and needed when its condition is tested.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_cep.explanation.facts import candidate_rates, cost_unit
from spark_cep.explanation.numbers import format_amount, format_duration
from spark_cep.udfs.remote_spec import LookupMetrics

if TYPE_CHECKING:
    from spark_cep.remote import Remote, RemoteFunction
    from spark_cep.remotes.sources import RemoteChoice


# The places where a value may be looked up.
BEFORE = "before matching"
ENGINE = "in the engine"
ANSWER = "on the matches"
_ALL_OF_IT = "the whole query"


@dataclass(frozen=True)
class RemoteRead:
    """A condition that the engine tests with a source's values. `keys`: the variables that the key
    is made of; `variables`: all of the condition."""

    condition: str
    keys: tuple[str, ...]
    variables: tuple[str, ...]


@dataclass(frozen=True)
class LookupPlace:
    """A place where a source is looked up: `where` is one of the three, `how` a sentence with the
    reason. `choice`: the strategy, if values are fetched there. `reads`: by what, in the engine."""

    remote: str
    where: str
    how: str
    choice: RemoteChoice | None = None
    reads: tuple[RemoteRead, ...] = field(default=())


def remote_facts(
    remotes: Mapping[str, Remote],
    places: Sequence[LookupPlace],
    plan: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Plain data for each source, in the order given. `plan`: the facts of the plan."""
    return [
        _source_facts(name, remote, [each for each in places if each.remote == name], plan or {})
        for name, remote in remotes.items()
    ]


def _source_facts(
    name: str, remote: Remote, places: Sequence[LookupPlace], plan: Mapping[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "source": remote.described,
        "places": [
            {
                "where": each.where,
                "how": each.how,
                "requests": [] if remote.is_table else list(_request_facts(each, plan)),
            }
            for each in places
        ],
    }
    # The choice for the engine comes first: elsewhere there is little to choose.
    ordered = sorted(places, key=lambda each: each.where != ENGINE)
    how = next((each.choice for each in ordered if each.choice is not None), None)
    if not remote.is_table and how is not None:
        found |= _fetch_facts(remote.source, how)
    return found


# ---- when a source is asked, and for how much --------------------------------------------------


def _request_facts(place: LookupPlace, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """When keys are requested at a place, and how many are expected: at most `keys`, None where
    that is unknown, in the `unit` of the plan's costs."""
    unit = cost_unit(plan) if plan else ""
    for read in place.reads:
        strategy = "cached" if place.choice is None else place.choice.strategy
        yield {
            "condition": read.condition,
            "when": _request_time(read, strategy, plan),
            "keys": _expected_keys(read, plan),
            "unit": unit.strip(),
        }
    if not place.reads and place.choice is not None:
        of = "matches" if place.where == ANSWER else "rows"
        ahead = "batch by batch" if place.choice.strategy == "blocking" else "four batches ahead"
        yield {
            "condition": None,
            "when": f"{ahead} of the {of} that are handed on",
            "keys": None,
            "unit": "",
        }


def _request_time(read: RemoteRead, strategy: str, plan: Mapping[str, Any]) -> str:
    if strategy == "post":
        return "when all other conditions have been met"
    tested = _binding_step(read.variables, plan)
    known = _binding_step(read.keys, plan)
    together = " and ".join(read.variables)
    # Without estimates a plan has no steps; then only the order of the pattern is known.
    at_test = f"when {together} have met the conditions before it"
    if len(read.variables) == 1:
        at_test = f"when {together} has met the conditions before it"
    if strategy not in ("prefetch", "hybrid"):
        return at_test
    if known is not None and known == tested:
        return f"{at_test}, as this order knows their keys only then"
    keys = " and ".join(read.keys)
    bound = "is" if len(read.keys) == 1 else "are"
    return f"as soon as {keys} {bound} bound, while most of such keys are needed; else {at_test}"


def _binding_step(variables: Collection[str], plan: Mapping[str, Any]) -> int | None:
    """The step of the plan's order with which the last of the variables is bound."""
    for branch in plan.get("branches", ()):
        bound: set[str] = set()
        for step, node in enumerate(branch["nodes"]):
            bound.update(node["binds"])
            if bound.issuperset(variables):
                return step
    return None


def _expected_keys(read: RemoteRead, plan: Mapping[str, Any]) -> float | None:
    """At most one key for each combination of candidates of its variables."""
    rates = candidate_rates(plan) if plan else {}
    if not rates or not rates.keys() >= set(read.keys):
        return None
    windows = float((plan.get("statistics") or {}).get("windows") or 1.0)
    return math.prod(rates[each] for each in read.keys) * windows


def _request_rows(requests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in requests:
        what = "requested" if each["condition"] is None else f"requested for {each['condition']}"
        yield f"{what}: {each['when']}"
        if each["condition"] is not None:
            yield f"expected: {expected_text(each)}"


def expected_text(request: Mapping[str, Any]) -> str:
    """How many keys are expected.

    >>> expected_text({"keys": 40.0, "unit": "a window"}), expected_text({"keys": None, "unit": ""})
    ('at most 40 keys a window', 'unknown: nothing has been counted')
    """
    if request["keys"] is None:
        return "unknown: nothing has been counted"
    unit = f" {request['unit']}" if request["unit"] else ""
    return f"at most {format_amount(request['keys'])} keys{unit}"


def _fetch_facts(source: Any, how: RemoteChoice) -> dict[str, Any]:
    given: RemoteFunction = source
    fetch_policy = given.fetch_policy
    return {
        "strategy": how.strategy,
        "why": how.why,
        "cache": {
            "policy": how.caching.policy,
            "capacity": how.caching.capacity,
            "why": how.why_cache,
        },
        "calls": f"up to {_count_text(fetch_policy.batch, 'key')} per call, "
        f"{fetch_policy.in_flight} at a time, "
        f"{fetch_policy.timeout:g} s each",
        "on_error": given.on_error,
        "retries": fetch_policy.retries,
        "ttl": given.ttl,
        "wholes": given.part_of is not None,
    }


# ---- lines -------------------------------------------------------------------------------------


def remote_rows(remotes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Labelled lines; a line without a label belongs to the one before."""
    for each in remotes:
        yield each["name"], each["source"]
        for place in each["places"]:
            yield "", f"{place['where']}: {place['how']}"
            yield from (("", text) for text in _request_rows(place["requests"]))
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
    retries = _count_text(each["retries"], "retry", "retries")
    fails = "gives NULL" if each["on_error"] == "null" else "ends the query"
    yield f"a failed call: {retries}, then it {fails}"
    yield f"a value is constant for {_ttl_text(each['ttl'])}"


def _ttl_text(ttl: float | None) -> str:
    if ttl is None:
        return _ALL_OF_IT
    return (
        f"{ttl:g} s: then the next trigger fetches it again, so a match can depend on when its "
        "rows arrived; within a batch, and within a trigger, it is constant"
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


def remote_count_rows(
    remotes: Mapping[str, Mapping[str, Any]], expected: Sequence[Mapping[str, Any]] = ()
) -> Iterator[tuple[str, str]]:
    """What was counted, as labelled lines like those of `remote_rows`; `expected`: their facts."""
    requests = {
        each["name"]: [one for place in each["places"] for one in place["requests"]]
        for each in expected
    }
    for name, numbers in remotes.items():
        of = LookupMetrics.from_dict(numbers)
        yield (
            name,
            f"{_count_text(of.calls, 'call')} for {_count_text(of.keys, 'key')}: "
            f"{of.used:,} used, {of.wasted:,} in vain",
        )
        for one in requests.get(name, ()):
            if one["keys"] is not None:
                yield "", f"expected: {expected_text(one)}, for {one['condition']}"
        known = of.hits + of.misses
        share = f", {100 * of.hits / known:.0f} % hits" if known else ""
        yield "", f"{_count_text(known, 'lookup')}{share}"
        if of.prefetched:
            used = 100 * of.prefetched_used / of.prefetched
            yield (
                "",
                f"{_count_text(of.prefetched, 'key')} prefetched, {used:.0f} % of them used",
            )
        yield (
            "",
            f"waited {format_duration(of.waited_s * 1e6)}, "
            f"{format_duration(of.hidden_s * 1e6)} hidden",
        )
        if of.retries or of.failures:
            tries, lost = (
                _count_text(of.retries, "retry", "retries"),
                _count_text(of.failures, "key"),
            )
            yield "", f"{tries}, {lost} given up"
