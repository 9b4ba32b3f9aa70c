"""The sources of `remotes=`: their checks, the choice of strategy and cache, and what is shipped.

EIRES (section 6) distinguishes queries by how greedily they select events. With a greedy policy
(skip till any match, reuse), many partial matches need the same values: LRU serves them. With a
non-greedy one, few partial matches share a value, and utility predicts best what will be needed.
Conditions are postponed under every policy: a partial match, or a run, waits while others go on.
Only a run cannot leave its conditions for the end. No choice changes the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from spark_cep.errors import PatternError
from spark_cep.expressions.problems import list_names
from spark_cep.expressions.syntax import SyntaxProblem, tokenize
from spark_cep.pattern import Pattern, iter_events
from spark_cep.remote import Remote, RemoteFunction
from spark_cep.row_patterns import RowPattern
from spark_cep.udfs.remote_spec import Caching, FetchStrategy, RemoteSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.remote import StrategyRequest
    from spark_cep.udfs.program import Consumption
    from spark_cep.udfs.program import Strategy as Selection


# ---- checks --------------------------------------------------------------------------------------


_HINT = 'remotes={"limits": cep.Remote.table(df, key="org", value="limit")}'


def check_remotes(value: object) -> dict[str, Remote]:
    """The value of `remotes=`, with names as written."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise PatternError(
            f"remotes takes a dict of names to cep.Remote, not {type(value).__name__}", hint=_HINT
        )
    seen: dict[str, str] = {}
    for name, remote in value.items():
        if not isinstance(name, str) or re.fullmatch(r"[^\W\d]\w*", name) is None:
            raise PatternError(f"{name!r} cannot be the name of a remote source", hint=_HINT)
        if not isinstance(remote, Remote):
            raise PatternError(
                f"the remote {name!r} is a {type(remote).__name__}, not a cep.Remote",
                hint="make one with cep.Remote.table, .fetch, .redis, .sql or .http",
            )
        first = seen.setdefault(name.casefold(), name)
        if first != name:
            raise PatternError(
                f"the remotes {first!r} and {name!r} have the same name; case makes no difference",
                hint="give them different names",
            )
    return dict(value)


def check_remotes_used(remotes: Mapping[str, Remote], texts: Iterable[object]) -> None:
    """Refuses a remote that no condition or measure uses: its name, or a condition, is misspelled.
    A call without a name may mean any of them."""
    if not remotes:
        return
    used = {name for text in texts if isinstance(text, str) for name in _remote_names(text)}
    unused = [name for name in remotes if name.casefold() not in used]
    if unused and None not in used:
        raise PatternError(
            f"no condition and no measure uses the remote {unused[0]!r}",
            hint=f"write remote('{unused[0]}', key) in one of them, or leave the remote out; "
            f"remotes are {list_names(remotes)}",
        )


def select_used_remotes(
    remotes: Mapping[str, Remote], pattern: Pattern | RowPattern, options: Mapping[str, Any]
) -> dict[str, Remote] | None:
    """The remotes that a pattern and its measures name. All of them if a call names none, or one
    that does not exist, so that the error can list them. None if there are none."""
    texts = [*pattern_texts(pattern), *(options.get("measures") or {}).values()]
    used = {name for text in texts if isinstance(text, str) for name in _remote_names(text)}
    if not used <= {name.casefold() for name in remotes}:
        return dict(remotes) or None
    return {n: each for n, each in remotes.items() if n.casefold() in used} or None


def pattern_texts(pattern: Pattern | RowPattern) -> Iterator[object]:
    """All conditions of a pattern."""
    if isinstance(pattern, RowPattern):
        yield from (text for _, text in pattern.define)
        return
    yield from pattern.conditions
    yield from (event.condition for event, _ in iter_events(pattern.root))


def _remote_names(text: str) -> Iterator[str | None]:
    """The names in calls of remote(); None for a call without a name."""
    try:
        tokens = tokenize(text)
    except SyntaxProblem:
        return
    for word, bracket, first in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if word.text.casefold() == "remote" and bracket.text == "(":
            is_name = first.token_type.name == "STRING"
            yield first.text.casefold() if is_name else None


# ---- strategy and cache ------------------------------------------------------------------------

_SELECTION_NAMES: dict[Selection, str] = {
    "any": "skip till any match",
    "next": "skip till next match",
    "strict": "strict",
}


@dataclass(frozen=True)
class RemoteChoice:
    """The strategy and the cache of a source. `why` and `why_cache` are sentences for explain."""

    strategy: FetchStrategy
    caching: Caching
    why: str
    why_cache: str


def choose_strategy(
    request: StrategyRequest,
    caching: Caching | None,
    selection: Selection,
    consumption: Consumption,
) -> RemoteChoice:
    """The choice for a source that the engine uses while it matches.

    >>> choose_strategy("auto", None, "next", "reuse").strategy
    'hybrid'
    >>> choose_strategy("post", None, "next", "reuse").why
    'not post: skip till next match decides on each row by its conditions'
    """
    greedy = selection == "any" and consumption == "reuse"
    strategy, why = _resolve_strategy(request, selection)
    if caching is not None:
        return RemoteChoice(strategy, caching, why, "as requested")
    if greedy:
        reason = "many partial matches need the same values, so the most recently used are kept"
        return RemoteChoice(strategy, Caching("lru"), why, reason)
    reason = "few partial matches share a value, so those with the most utility per byte are kept"
    return RemoteChoice(strategy, Caching("cost"), why, reason)


def choose_for_table() -> RemoteChoice:
    """The choice for a table that every worker has in full."""
    return RemoteChoice("cached", Caching(), "the table is in every worker", "nothing is fetched")


def choose_outside(request: StrategyRequest, caching: Caching | None) -> RemoteChoice:
    """The choice for a source that is used before or after the engine: all keys of a batch of rows
    are known at once, so there is nothing to predict and nothing to postpone.

    >>> choose_outside("lazy", None).why
    'not lazy: all keys of a batch of rows are known at once'
    """
    strategy: FetchStrategy = "blocking" if request == "blocking" else "cached"
    why = "all keys of a batch of rows are known at once"
    if request != "auto":
        why = "as requested" if request == strategy else f"not {request}: {why}"
    reason = "as requested" if caching is not None else "later rows have the same keys again"
    return RemoteChoice(strategy, caching or Caching("lru"), why, reason)


def _resolve_strategy(request: StrategyRequest, selection: Selection) -> tuple[FetchStrategy, str]:
    if request == "auto":
        return "hybrid", "values are prefetched, and conditions may wait for the others"
    if request == "post" and selection != "any":
        name = _SELECTION_NAMES[selection]
        return "cached", f"not post: {name} decides on each row by its conditions"
    return request, "as requested"


# ---- what the workers get ------------------------------------------------------------------------


def new_token() -> str:
    """A token for one call of match_pattern, so that no two queries share a cache."""
    return uuid4().hex


def make_remote_spec(
    remote: Remote, name: str, types: tuple[Sequence[pa.DataType], pa.DataType], how: RemoteChoice,
    token: str,
) -> RemoteSpec:  # fmt: skip
    """The source as the workers get it. `types`: of the parts of the key, and of the value. A
    ready-made source checks them here, before any job."""
    keys, value = types
    source = remote.source
    assert isinstance(source, RemoteFunction)
    reading = getattr(source.fn, "reading", None)
    has_reading = getattr(source.fn, "scrub", None) is not None and reading is not None
    return RemoteSpec(
        name=name,
        fetch=reading(value, len(keys)) if has_reading and reading is not None else source.fn,
        keys=tuple(keys),
        value=value,
        strategy=how.strategy,
        caching=how.caching,
        fetch_policy=source.fetch_policy,
        on_error=source.on_error,
        ttl=source.ttl,
        part_of=source.part_of,
        token=token,
        prefetch_budget=source.prefetch_budget,
        max_wait=source.max_wait,
        show_errors=source.show_errors,
    )
