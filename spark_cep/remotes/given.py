"""`remotes=` of match_pattern, checked: names, values, and that each one is used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spark_cep.compiling.problems import listed
from spark_cep.compiling.spans import SyntaxProblem, tokenize
from spark_cep.errors import PatternError
from spark_cep.pattern import Pattern, events
from spark_cep.remotes.remote import Remote
from spark_cep.row_patterns import RowPattern

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


def check_used(remotes: Mapping[str, Remote], texts: Iterable[object]) -> None:
    """A remote that no text looks anything up in is a slip: of its name, or of a condition.
    A call without a name may mean any of them."""
    if not remotes:
        return
    used = {name for text in texts if isinstance(text, str) for name in _named(text)}
    unused = [name for name in remotes if name.casefold() not in used]
    if unused and None not in used:
        raise PatternError(
            f"no condition and no measure looks anything up in the remote {unused[0]!r}",
            hint=f"write remote('{unused[0]}', key) where its value is meant, or leave it out; "
            f"remotes are {listed(remotes)}",
        )


def used_of(
    remotes: Mapping[str, Remote], pattern: Pattern | RowPattern, options: Mapping[str, Any]
) -> dict[str, Remote] | None:
    """Those that the texts of a pattern and its measures name; all of them where a call names
    none, or one that is not there, for the error to say what is. None if there are none."""
    texts = [*texts_of(pattern), *(options.get("measures") or {}).values()]
    used = {name for text in texts if isinstance(text, str) for name in _named(text)}
    if not used <= {name.casefold() for name in remotes}:
        return dict(remotes) or None
    return {n: each for n, each in remotes.items() if n.casefold() in used} or None


def texts_of(pattern: Pattern | RowPattern) -> Iterator[object]:
    """All conditions of a pattern."""
    if isinstance(pattern, RowPattern):
        yield from (text for _, text in pattern.define)
        return
    yield from pattern.conditions
    yield from (event.condition for event, _ in events(pattern.root))


def _named(text: str) -> Iterator[str | None]:
    """The names in calls of remote(); None for a call that begins with a key."""
    try:
        tokens = tokenize(text)
    except SyntaxProblem:
        return
    for word, bracket, first in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if word.text.casefold() == "remote" and bracket.text == "(":
            is_name = first.token_type.name == "STRING"
            yield first.text.casefold() if is_name else None
