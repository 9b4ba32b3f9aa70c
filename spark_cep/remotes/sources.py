"""Which strategy and which cache a remote source gets, and why.

EIRES (section 6) splits queries by how greedily they take rows. A greedy one, skip till any match
with reuse, has many partial matches that need the same values: what was asked for last is asked
for again, and postponing a condition costs partial matches only. One that is not takes each row
on the conditions that hold then, so a condition that has no answer yet stops the run: it cannot be
postponed, and what will be needed is best told by its utility. None of it changes the answer.
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
from spark_cep.remote import Remote as Given
from spark_cep.row_patterns import RowPattern
from spark_cep.udfs.remote_spec import Caching, FetchStrategy, RemoteSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.remote import StrategyRequest
    from spark_cep.udfs.program import Consumption
    from spark_cep.udfs.program import Strategy as Selection


# --------------------------------------------------------------------------------------------------
# `remotes=` of match_pattern, checked: names, values, and that each one is used.
# --------------------------------------------------------------------------------------------------


_HINT = 'remotes={"limits": cep.Remote.table(df, key="org", value="limit")}'


def check_remotes(value: object) -> dict[str, Remote]:
    """The mapping, names as the user wrote them."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise PatternError(
            f"remotes takes a dict of names to cep.Remote, not {type(value).__name__}", hint=_HINT
        )
    seen: dict[str, str] = {}
    for name, remote in value.items():
        if not isinstance(name, str) or re.fullmatch(r"[^\W\d]\w*", name) is None:
            raise PatternError(f"{name!r} is no name for a remote", hint=_HINT)
        if not isinstance(remote, Remote):
            raise PatternError(
                f"the remote {name!r} is a {type(remote).__name__}, not a cep.Remote",
                hint="make one with cep.Remote.table, .fetch, .redis, .sql or .http",
            )
        first = seen.setdefault(name.casefold(), name)
        if first != name:
            raise PatternError(
                f"the remotes {first!r} and {name!r} have one name; case makes no difference",
                hint="give each a name of its own",
            )
    return dict(value)


def check_remotes_used(remotes: Mapping[str, Remote], texts: Iterable[object]) -> None:
    """A remote that no text looks anything up in is a slip: of its name, or of a condition.
    A call without a name may mean any of them."""
    if not remotes:
        return
    used = {name for text in texts if isinstance(text, str) for name in _remote_names(text)}
    unused = [name for name in remotes if name.casefold() not in used]
    if unused and None not in used:
        raise PatternError(
            f"no condition and no measure looks anything up in the remote {unused[0]!r}",
            hint=f"write remote('{unused[0]}', key) where its value is meant, or leave it out; "
            f"remotes are {list_names(remotes)}",
        )


def select_used_remotes(
    remotes: Mapping[str, Remote], pattern: Pattern | RowPattern, options: Mapping[str, Any]
) -> dict[str, Remote] | None:
    """Those that the texts of a pattern and its measures name; all of them where a call names
    none, or one that is not there, for the error to say what is. None if there are none."""
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
    """The names in calls of remote(); None for a call that begins with a key."""
    try:
        tokens = tokenize(text)
    except SyntaxProblem:
        return
    for word, bracket, first in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if word.text.casefold() == "remote" and bracket.text == "(":
            is_name = first.token_type.name == "STRING"
            yield first.text.casefold() if is_name else None


_SELECTION_NAMES: dict[Selection, str] = {
    "any": "skip till any match",
    "next": "skip till next match",
    "strict": "strict",
}
# What a strategy is without its postponing.
_WITHOUT_POSTPONING: dict[FetchStrategy, FetchStrategy] = {
    "lazy": "cached",
    "post": "cached",
    "hybrid": "prefetch",
}


@dataclass(frozen=True)
class RemoteChoice:
    """A remote source's strategy and cache. `why` and `why_cache` are sentences for explain."""

    strategy: FetchStrategy
    caching: Caching
    why: str
    why_cache: str


def choose_strategy(
    wish: StrategyRequest, caching: Caching | None, selection: Selection, consumption: Consumption
) -> RemoteChoice:
    """For a source that conditions of the engine ask.

    >>> choose_strategy("auto", None, "next", "reuse").strategy
    'prefetch'
    >>> choose_strategy("lazy", None, "next", "reuse").why
    'not lazy: skip till next match decides on each row at once'
    """
    greedy = selection == "any" and consumption == "reuse"
    strategy, why = _resolve_strategy(wish, _hindrance(selection, consumption))
    if caching is not None:
        return RemoteChoice(strategy, caching, why, "as asked for")
    if greedy:
        reason = "many partial matches ask for the same values, so the latest used are kept"
        return RemoteChoice(strategy, Caching("lru"), why, reason)
    reason = "few partial matches share a value, so what is needed most for its size is kept"
    return RemoteChoice(strategy, Caching("cost"), why, reason)


def choose_for_table() -> RemoteChoice:
    """For a table that the workers have as a whole."""
    return RemoteChoice("cached", Caching(), "the table is in every worker", "nothing is fetched")


def choose_outside(wish: StrategyRequest, caching: Caching | None) -> RemoteChoice:
    """For a source that is asked before or behind the engine: by whole batches of rows, whose
    keys are all known, so there is nothing to guess and nothing to postpone.

    >>> choose_outside("lazy", None).why
    'not lazy: all keys of a batch of rows are known at once'
    """
    strategy: FetchStrategy = "blocking" if wish == "blocking" else "cached"
    why = "all keys of a batch of rows are known at once"
    if wish != "auto":
        why = "as asked for" if wish == strategy else f"not {wish}: {why}"
    reason = "as asked for" if caching is not None else "keys come again in later rows"
    return RemoteChoice(strategy, caching or Caching("lru"), why, reason)


def _hindrance(selection: Selection, consumption: Consumption) -> str | None:
    """Why a condition cannot wait for its value."""
    if selection != "any":
        return f"{_SELECTION_NAMES[selection]} decides on each row at once"
    if consumption != "reuse":
        return "with consume a match takes its rows from the others at once"
    return None


def _resolve_strategy(wish: StrategyRequest, hindrance: str | None) -> tuple[FetchStrategy, str]:
    if wish == "auto":
        if hindrance is None:
            return "hybrid", "values are fetched ahead, and conditions may wait for the rest"
        return "prefetch", f"values are fetched ahead; no condition waits, for {hindrance}"
    without = _WITHOUT_POSTPONING.get(wish)
    if hindrance is not None and without is not None:
        return without, f"not {wish}: {hindrance}"
    return wish, "as asked for"


# --------------------------------------------------------------------------------------------------
# What goes to the workers of a remote source: the user's, with everything decided.
# --------------------------------------------------------------------------------------------------


def new_token() -> str:
    """One for each call of match_pattern: no two queries share a cache."""
    return uuid4().hex


def make_remote_spec(
    remote: Given, name: str, types: tuple[Sequence[pa.DataType], pa.DataType], how: RemoteChoice,
    token: str,
) -> RemoteSpec:  # fmt: skip
    """`types`: those of the key's parts, and of the value. A source that this library has is told
    of them here, so that what does not fit is said before any job."""
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
        patience=source.patience,
        on_error=source.on_error,
        ttl=source.ttl,
        part_of=source.part_of,
        token=token,
    )
