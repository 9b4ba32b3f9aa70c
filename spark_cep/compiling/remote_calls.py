"""`remote('name', key, ...)` in a text: where each call stands, and what is looked up by it.

Always holds: a call that is given out names a source that there is, and a key that is itself not
looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.problems import Place, Problems, listed, nearest
from spark_cep.compiling.source_names import named_by_key

if TYPE_CHECKING:
    from spark_cep.compiling.spans import Parsed


@dataclass(frozen=True)
class RemoteText:
    """One call. `keys` are the nodes of its key's parts."""

    node: exp.Expr
    name: str
    keys: tuple[exp.Expr, ...]
    place: Place


@dataclass(frozen=True)
class Sought:
    """A value to be looked up: `keys` are SQL over the columns that are there, `column` is where
    it will be. `shown`: the keys as they were written."""

    remote: str
    keys: tuple[str, ...]
    column: str
    shown: tuple[str, ...] = field(default=(), compare=False)

    def called(self) -> str:
        """The call, for people.

        >>> Sought("limits", ("`org`",), "__cep_r0", ("a.org",)).called()
        "remote('limits', a.org)"
        """
        return f"remote('{self.remote}', {', '.join(self.shown or self.keys)})"


@dataclass
class Seeking:
    """Collects what is looked up outside the engine, each value once. `values`: what each remote
    source gives, as a type in DDL."""

    values: Mapping[str, str]
    prefix: str = "__cep_r"
    found: list[Sought] = field(default_factory=list)

    def column(self, remote: str, keys: Sequence[str], shown: Sequence[str] = ()) -> str:
        """Where the value for these keys is.

        >>> seeking = Seeking({"limits": "double"})
        >>> seeking.column("limits", ["`org`"]), seeking.column("limits", ["`org`"])
        ('__cep_r0', '__cep_r0')
        """
        for each in self.found:
            if (each.remote, each.keys) == (remote, tuple(keys)):
                return each.column
        name = f"{self.prefix}{len(self.found)}"
        self.found.append(Sought(remote, tuple(keys), name, tuple(shown)))
        return name


def mentions(text: object) -> bool:
    """Whether a text may have a call in it: cheap, and never wrong about its absence."""
    return isinstance(text, str) and "remote" in text.casefold()


def remote_calls(
    parsed: Parsed, known: Mapping[str, object], problems: Problems
) -> list[RemoteText]:
    """Every call of a text, outermost first. Calls that cannot be meant become problems."""
    found = []
    for node in parsed.root.walk():
        if isinstance(node, exp.Anonymous) and is_remote(node):
            call = _call(parsed, node, known, problems)
            if call is not None:
                found.append(call)
    return found


def _call(
    parsed: Parsed, node: exp.Anonymous, known: Mapping[str, object], problems: Problems
) -> RemoteText | None:
    found = _source(parsed, node, known, problems)
    if found is None:
        return None
    name, keys = found
    inside = (each for key in keys for each in key.find_all(exp.Anonymous))
    inner = next((each for each in inside if is_remote(each)), None)
    if inner is not None:
        problems.add(
            f"the key of {name!r} is itself looked up",
            parsed.place(inner),
            hint="look one of them up before matching: join it to the input",
        )
        return None
    return RemoteText(node, name, tuple(keys), parsed.place(node))


def _source(
    parsed: Parsed, node: exp.Anonymous, known: Mapping[str, object], problems: Problems
) -> tuple[str, list[exp.Expr]] | None:
    """The source's name as it was given, and the key; a problem if there is none of the name."""
    place = parsed.place(node)
    first, *keys = node.expressions or [None]
    is_named = isinstance(first, exp.Literal) and first.is_string
    if first is None or (is_named and not keys):
        problems.add(
            f"{parsed.text_of(node)} names no remote source and key",
            place,
            hint="write remote('limits', a.org), the source's name first",
        )
        return None
    if is_named:
        name = known_as(str(first.this), known)
    else:
        keys, name = node.expressions, named_by_key(node.expressions, known)
        if name is None:
            key = ", ".join(parsed.text_of(each) for each in keys)
            some = next(iter(known), "limits")
            there = f"there are {listed(known)}" if known else "remotes= was not given"
            problems.add(
                f"{parsed.text_of(node)} does not say which remote source it means",
                place,
                hint=f"name it first, remote('{some}', {key}), in SASE REMOTE[{some}, {key}], or "
                f"call it like the key; {there}",
            )
            return None
    if name is None:
        name = str(first.this)
        meant = nearest(name, known)
        has = f"remotes= has {listed(known)}" if known else "remotes= was not given"
        problems.add(
            f"there is no remote source {name!r}",
            place,
            hint=f"did you mean {meant!r}?" if meant else f"{has}: name a source there",
        )
        return None
    return name, keys


def known_as(name: str, known: Mapping[str, object]) -> str | None:
    """The source's name as it was given; case makes no difference."""
    return next((each for each in known if each.casefold() == name.casefold()), None)


def is_remote(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).casefold() == "remote"


def lambda_argument(call: RemoteText) -> str | None:
    """The argument of a lambda around the call that its keys read, if they do."""
    node: exp.Expr | None = call.node.parent
    named = {each.name.casefold() for key in call.keys for each in key.find_all(exp.Identifier)}
    while node is not None:
        if isinstance(node, exp.Lambda):
            for argument in node.expressions:
                if argument.name.casefold() in named:
                    return str(argument.name)
        node = node.parent
    return None
