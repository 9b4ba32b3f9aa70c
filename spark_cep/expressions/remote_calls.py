"""`remote('name', key, ...)` in a text: where each call stands, and what is looked up by it.

Always holds: a call that is given out names a source that there is, and a key that is itself not
looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from spark_cep.expressions.problems import Place, Problems, list_names, nearest_name

if TYPE_CHECKING:
    from spark_cep.expressions.syntax import ParsedExpression


# --------------------------------------------------------------------------------------------------
# Which remote source a call means that names none: `remote(t1.user)`.
#
# So the papers write it, REMOTE[t1.user], where the reader knows the source. Here the key says it:
# a source called like the key as a whole, `t1_user`, or like its column, `user`; else the only one
# that there is. What no rule tells is a problem, never a guess.
# --------------------------------------------------------------------------------------------------


def find_source_by_key(keys: Sequence[exp.Expr], known: Iterable[str]) -> str | None:
    """The source that is meant.

    >>> from spark_cep.expressions.syntax import parse_expression
    >>> key = [parse_expression("t1.user").root]
    >>> find_source_by_key(key, ["user", "org"]), find_source_by_key(key, ["places"])
    ('user', 'places')
    >>> find_source_by_key(key, ["org", "places"])
    """
    given = list(known)
    for name in _names_of_key(keys):
        for each in given:
            if each.casefold() == name.casefold():
                return each
    return given[0] if len(given) == 1 else None


def _names_of_key(keys: Sequence[exp.Expr]) -> Iterator[str]:
    columns = [key for key in keys if isinstance(key, exp.Column)]
    if columns and len(columns) == len(keys):
        yield "_".join(".".join(p.name for p in key.parts).replace(".", "_") for key in columns)
        yield "_".join(key.name for key in columns)


@dataclass(frozen=True)
class RemoteCallText:
    """One call. `keys` are the nodes of its key's parts."""

    node: exp.Expr
    name: str
    keys: tuple[exp.Expr, ...]
    place: Place


@dataclass(frozen=True)
class LookupRequest:
    """A value to be looked up: `keys` are SQL over the columns that are there, `column` is where
    it will be. `shown`: the keys as they were written."""

    remote: str
    keys: tuple[str, ...]
    column: str
    shown: tuple[str, ...] = field(default=(), compare=False)

    def called(self) -> str:
        """The call, for people.

        >>> LookupRequest("limits", ("`org`",), "__cep_r0", ("a.org",)).called()
        "remote('limits', a.org)"
        """
        return f"remote('{self.remote}', {', '.join(self.shown or self.keys)})"


@dataclass
class LookupRequests:
    """Collects what is looked up outside the engine, each value once. `values`: what each remote
    source gives, as a type in DDL."""

    values: Mapping[str, str]
    prefix: str = "__cep_r"
    found: list[LookupRequest] = field(default_factory=list)

    def column(self, remote: str, keys: Sequence[str], shown: Sequence[str] = ()) -> str:
        """Where the value for these keys is.

        >>> seeking = LookupRequests({"limits": "double"})
        >>> seeking.column("limits", ["`org`"]), seeking.column("limits", ["`org`"])
        ('__cep_r0', '__cep_r0')
        """
        for each in self.found:
            if (each.remote, each.keys) == (remote, tuple(keys)):
                return each.column
        name = f"{self.prefix}{len(self.found)}"
        self.found.append(LookupRequest(remote, tuple(keys), name, tuple(shown)))
        return name


def mentions_remote(text: object) -> bool:
    """Whether a text may have a call in it: cheap, and never wrong about its absence."""
    return isinstance(text, str) and "remote" in text.casefold()


def find_remote_calls(
    parsed: ParsedExpression, known: Mapping[str, object], problems: Problems
) -> list[RemoteCallText]:
    """Every call of a text, outermost first. Calls that cannot be meant become problems."""
    found = []
    for node in parsed.root.walk():
        if isinstance(node, exp.Anonymous) and is_remote_call(node):
            call = _call(parsed, node, known, problems)
            if call is not None:
                found.append(call)
    return found


def _call(
    parsed: ParsedExpression, node: exp.Anonymous, known: Mapping[str, object], problems: Problems
) -> RemoteCallText | None:
    found = _source(parsed, node, known, problems)
    if found is None:
        return None
    name, keys = found
    inside = (each for key in keys for each in key.find_all(exp.Anonymous))
    inner = next((each for each in inside if is_remote_call(each)), None)
    if inner is not None:
        problems.add(
            f"the key of {name!r} is itself looked up",
            parsed.place(inner),
            hint="look one of them up before matching: join it to the input",
        )
        return None
    return RemoteCallText(node, name, tuple(keys), parsed.place(node))


def _source(
    parsed: ParsedExpression, node: exp.Anonymous, known: Mapping[str, object], problems: Problems
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
        name = find_source_name(str(first.this), known)
    else:
        keys, name = node.expressions, find_source_by_key(node.expressions, known)
        if name is None:
            key = ", ".join(parsed.text_of(each) for each in keys)
            some = next(iter(known), "limits")
            there = f"there are {list_names(known)}" if known else "remotes= was not given"
            problems.add(
                f"{parsed.text_of(node)} does not say which remote source it means",
                place,
                hint=f"name it first, remote('{some}', {key}), in SASE REMOTE[{some}, {key}], or "
                f"call it like the key; {there}",
            )
            return None
    if name is None:
        name = str(first.this)
        meant = nearest_name(name, known)
        has = f"remotes= has {list_names(known)}" if known else "remotes= was not given"
        problems.add(
            f"there is no remote source {name!r}",
            place,
            hint=f"did you mean {meant!r}?" if meant else f"{has}: name a source there",
        )
        return None
    return name, keys


def find_source_name(name: str, known: Mapping[str, object]) -> str | None:
    """The source's name as it was given; case makes no difference."""
    return next((each for each in known if each.casefold() == name.casefold()), None)


def is_remote_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).casefold() == "remote"


def lambda_argument(call: RemoteCallText) -> str | None:
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


# --------------------------------------------------------------------------------------------------
# `x IN remote(...)`: membership of an array, which Spark has as a function only.
#
# The text that goes to Spark says `array_contains(remote, x)` in its place, put together from the
# user's own pieces; places in messages stay those of what was written.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Membership:
    """`negated`: the NOT stands between value and array, so the node's text has it inside."""

    node: exp.In
    negated: bool
    value: tuple[int, int]
    end: int

    @property
    def array(self) -> exp.Expr:
        found = membership_array(self.node)
        assert found is not None
        return found


def membership_array(node: exp.Expr) -> exp.Expr | None:
    """What `x IN ...` looks in, if that is an array that was looked up. `x IN (remote(...))` is
    as ever: one of the values in the brackets."""
    array = node.args.get("field") if isinstance(node, exp.In) else None
    if isinstance(array, exp.Expr) and any(is_remote_call(each) for each in array.walk()):
        return array
    return None


def find_memberships(parsed: ParsedExpression, node: exp.Expr) -> Iterator[Membership]:
    """All below a node, outermost first."""
    for each in node.walk():
        if isinstance(each, exp.In) and membership_array(each) is not None:
            first, last = parsed.tokens_of(each.this)
            negated = parsed.tokens[last + 1].token_type == TokenType.NOT
            value = parsed.tokens[first].start, parsed.tokens[last].end + 1
            yield Membership(each, negated, value, parsed.span(each)[1])


def refuse_membership(parsed: ParsedExpression, call: exp.Expr, problems: Problems) -> bool:
    """Whether a call is looked in with IN. Measures and row patterns keep the length of their
    texts, so there it is a problem, with what to write in its place."""
    for each in find_memberships(parsed, parsed.root):
        if any(node is call for node in each.array.walk()):
            array, value = parsed.text_of(each.array), parsed.text_of(each.node.this)
            problems.add(
                f"{parsed.text_of(each.node)}: IN looks into an array in conditions of event "
                "patterns only",
                parsed.place(each.node),
                hint=f"write {'NOT ' if each.negated else ''}array_contains({array}, {value})",
            )
            return True
    return False
