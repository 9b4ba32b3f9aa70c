"""Calls of `remote('name', key, ...)` in expressions, and the lookups that they need.

Every call that is returned has a known source and a key without remote calls in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from spark_cep.expressions.problems import Excerpt, Place, Problems, list_names, nearest_name
from spark_cep.expressions.syntax import (
    Expr,
    ParsedExpression,
    SyntaxProblem,
    apply_edits,
    parse_expression,
)

if TYPE_CHECKING:
    from spark_cep.expressions.schema import Typer
    from spark_cep.udfs.expressions import Constant, Type
    from spark_cep.udfs.functions.session import SessionFunction


@dataclass(frozen=True)
class RemoteCallText:
    """One call. `keys`: the nodes of its key."""

    node: exp.Expr
    name: str
    keys: tuple[exp.Expr, ...]
    place: Place


@dataclass(frozen=True)
class LookupRequest:
    """A value to be looked up into `column`. `keys`: SQL over the existing columns. `shown`: the
    keys as the user wrote them."""

    remote: str
    keys: tuple[str, ...]
    column: str
    shown: tuple[str, ...] = field(default=(), compare=False)

    def called(self) -> str:
        """The call as it is shown to users.

        >>> LookupRequest("limits", ("`org`",), "__cep_r0", ("a.org",)).called()
        "remote('limits', a.org)"
        """
        return f"remote('{self.remote}', {', '.join(self.shown or self.keys)})"


@dataclass
class LookupRequests:
    """Collects the lookups outside the engine, each once. `values`: the type of each source's value
    as DDL."""

    values: Mapping[str, str]
    prefix: str = "__cep_r"
    found: list[LookupRequest] = field(default_factory=list)

    def column(self, remote: str, keys: Sequence[str], shown: Sequence[str] = ()) -> str:
        """The column for the value of these keys.

        >>> requests = LookupRequests({"limits": "double"})
        >>> requests.column("limits", ["`org`"]), requests.column("limits", ["`org`"])
        ('__cep_r0', '__cep_r0')
        """
        for each in self.found:
            if (each.remote, each.keys) == (remote, tuple(keys)):
                return each.column
        name = f"{self.prefix}{len(self.found)}"
        self.found.append(LookupRequest(remote, tuple(keys), name, tuple(shown)))
        return name


def mentions_remote(text: object) -> bool:
    """Whether a text may contain a call: a cheap test without false negatives."""
    return isinstance(text, str) and "remote" in text.casefold()


def find_remote_calls(
    parsed: ParsedExpression, known: Mapping[str, object], problems: Problems
) -> list[RemoteCallText]:
    """Every call in an expression, outermost first. Invalid calls become problems."""
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
            f"the key of {name!r} contains a call of remote()",
            parsed.place(inner),
            hint="join one of the two to the input before matching",
        )
        return None
    return RemoteCallText(node, name, tuple(keys), parsed.place(node))


def _source(
    parsed: ParsedExpression, node: exp.Anonymous, known: Mapping[str, object], problems: Problems
) -> tuple[str, list[exp.Expr]] | None:
    """The name of the source as declared, and the key; None, with a problem, if there is none."""
    place = parsed.place(node)
    first, *keys = node.expressions or [None]
    is_named = isinstance(first, exp.Literal) and first.is_string
    if first is None or (is_named and not keys):
        problems.add(
            f"{parsed.text_of(node)} needs a source and a key",
            place,
            hint="write remote('limits', a.org)",
        )
        return None
    if is_named:
        name = find_source_name(str(first.this), known)
    else:
        keys, name = node.expressions, find_source_by_key(node.expressions, known)
        if name is None:
            key = ", ".join(parsed.text_of(each) for each in keys)
            example = next(iter(known), "limits")
            sources = f"the sources are {list_names(known)}" if known else "remotes= is not set"
            problems.add(
                f"{parsed.text_of(node)} does not name a remote source",
                place,
                hint=f"write remote('{example}', {key}), in SASE REMOTE[{example}, {key}], or give "
                f"the source the name of the key; {sources}",
            )
            return None
    if name is None:
        name = str(first.this)
        nearest = nearest_name(name, known)
        sources = f"the sources are {list_names(known)}" if known else "remotes= is not set"
        problems.add(
            f"there is no remote source {name!r}",
            place,
            hint=f"did you mean {nearest!r}?" if nearest else f"{sources}; add it to remotes=",
        )
        return None
    return name, keys


def find_source_name(name: str, known: Mapping[str, object]) -> str | None:
    """The name of the source as declared; case does not matter."""
    return next((each for each in known if each.casefold() == name.casefold()), None)


def find_source_by_key(keys: Sequence[exp.Expr], known: Iterable[str]) -> str | None:
    """The source of a call without a name, such as remote(t1.user), written REMOTE[t1.user] in
    the papers: a source with the name of the whole key, `t1_user`, or of its column, `user`; else
    the only source. None if no rule applies; nothing is guessed.

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


def is_remote_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).casefold() == "remote"


def lambda_argument(call: RemoteCallText) -> str | None:
    """The argument of an enclosing lambda that the keys of the call read, if any."""
    node: exp.Expr | None = call.node.parent
    named = {each.name.casefold() for key in call.keys for each in key.find_all(exp.Identifier)}
    while node is not None:
        if isinstance(node, exp.Lambda):
            for argument in node.expressions:
                if argument.name.casefold() in named:
                    return str(argument.name)
        node = node.parent
    return None


# ---- membership: x IN remote(...) ----------------------------------------------------------------


@dataclass(frozen=True)
class Membership:
    """`x IN remote(...)`. Spark has membership of an array as a function only, so its SQL becomes
    `array_contains(remote, x)`, assembled from the user's own pieces; places in messages stay
    those of the user's text. `negated`: `x NOT IN remote(...)`."""

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
    """The array of `x IN remote(...)`; None for other nodes, also for `x IN (remote(...))`, which
    is a list of one value."""
    array = node.args.get("field") if isinstance(node, exp.In) else None
    if isinstance(array, Expr) and any(is_remote_call(each) for each in array.walk()):
        return array
    return None


def find_memberships(parsed: ParsedExpression, node: exp.Expr) -> Iterator[Membership]:
    """All memberships below a node, outermost first."""
    for each in node.walk():
        if isinstance(each, exp.In) and membership_array(each) is not None:
            first, last = parsed.tokens_of(each.this)
            negated = parsed.tokens[last + 1].token_type == TokenType.NOT
            value = parsed.tokens[first].start, parsed.tokens[last].end + 1
            yield Membership(each, negated, value, parsed.span(each)[1])


def refuse_membership(parsed: ParsedExpression, call: exp.Expr, problems: Problems) -> bool:
    """Whether a call is the array of an IN, which is reported: measures and row patterns replace
    calls by columns without changing the length of the text, so they cannot rewrite an IN."""
    for each in find_memberships(parsed, parsed.root):
        if any(node is call for node in each.array.walk()):
            array, value = parsed.text_of(each.array), parsed.text_of(each.node.this)
            problems.add(
                f"{parsed.text_of(each.node)}: IN with an array is supported only in conditions of "
                "event patterns",
                parsed.place(each.node),
                hint=f"write {'NOT ' if each.negated else ''}array_contains({array}, {value})",
            )
            return True
    return False


# ---- measures with remote calls ------------------------------------------------------------------

# Each call becomes a placeholder of the same length (`__cep_a0()`), so that places in messages stay
# those of the user's text, and its keys become expressions of their own. To the typer a placeholder
# is a NULL of the value's type. Afterwards the name of the lookup column replaces it. So a remote
# value can be used in every function of Spark.


_PLACEHOLDER = re.compile(r"__cep_a(\d+)\(\)")


@dataclass(frozen=True)
class MeasureTexts:
    """Measures without calls of remote(). `texts`: the measures, then the keys under reserved
    names. `calls`: the source and the names of the keys of each call."""

    texts: tuple[tuple[str, str], ...]
    calls: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def sought(self, sql: Mapping[str, str]) -> tuple[LookupRequest, ...]:
        """The lookups; `sql`: the compiled keys by name."""
        texts = {name: " ".join(text.split()) for name, text in self.texts}
        return tuple(
            LookupRequest(
                remote,
                tuple(sql[key] for key in keys),
                lookup_column_name(number),
                tuple(texts[key] for key in keys),
            )
            for number, (remote, keys) in enumerate(self.calls)
        )


def separate_remote_calls(
    measures: Sequence[tuple[str, str]],
    known: Mapping[str, object],
    problems: Problems,
    read: Callable[[str], ParsedExpression] = parse_expression,
) -> MeasureTexts:
    """The measures with placeholders. A text that cannot be parsed is left for the compiler.

    >>> measures = [("over", "c.x - remote('limits', c.org)")]
    >>> separate_remote_calls(measures, {"limits": 0}, Problems()).texts
    (('over', 'c.x - __cep_a0()             '), ('__cep_k0_0', 'c.org'))
    """
    texts: list[tuple[str, str]] = []
    keys: list[tuple[str, str]] = []
    calls: list[tuple[str, tuple[str, ...]]] = []
    for name, text in measures:
        edits = []
        for parsed, call in _separable_calls(text, known, problems, read):
            number = len(calls)
            names = tuple(f"__cep_k{number}_{place}" for place in range(len(call.keys)))
            spans = [_key_span(text, parsed, key) for key in call.keys]
            keys += [(n, Excerpt(text, *span)) for n, span in zip(names, spans, strict=True)]
            calls.append((call.name, names))
            edits.append(_placeholder_edit(text, call.place, f"__cep_a{number}()"))
        altered = apply_edits(text, 0, len(text), edits)
        texts.append((name, Excerpt.altered(altered, text) if edits else text))
    return MeasureTexts((*texts, *keys), tuple(calls))


def _separable_calls(
    text: str,
    known: Mapping[str, object],
    problems: Problems,
    read: Callable[[str], ParsedExpression],
) -> Iterator[tuple[ParsedExpression, RemoteCallText]]:
    if not mentions_remote(text):
        return
    try:
        parsed = read(text)
    except SyntaxProblem:
        return
    for call in find_remote_calls(parsed, known, problems):
        if refuse_membership(parsed, call.node, problems):
            continue
        argument = lambda_argument(call)
        if argument is None:
            yield parsed, call
            continue
        problems.add(
            f"the key of {call.name!r} depends on the lambda argument {argument}",
            call.place,
            hint="use a key of one row, such as remote('limits', first(b.org)), or explode the "
            "list in the result and join",
        )


def _key_span(text: str, parsed: ParsedExpression, node: exp.Expr) -> tuple[int, int]:
    """The characters of a key, with RUNNING or FINAL in front, which the parser does not see."""
    start, end = parsed.span(node)
    gap = text[len(parsed.text[:start].rstrip()) : start]
    return start - len(gap.lstrip()), end


def _placeholder_edit(text: str, place: Place, name: str) -> tuple[int, int, str]:
    """The edit that replaces a call by a name, padded with blanks to the same length."""
    gap = "".join(c if c == "\n" else " " for c in text[place.start + len(name) : place.end])
    return place.start, place.end, name + gap


def lookup_column_name(number: int) -> str:
    """The column with the value of a measure's call.

    >>> lookup_column_name(1)
    '__cep_a1'
    """
    return f"__cep_a{number}"


def over_lookup_columns(sql: str) -> str:
    """A compiled measure with lookup columns in place of the placeholders.

    >>> over_lookup_columns("`c`.`x` - __cep_a0()    ")
    '`c`.`x` - `__cep_a0`    '
    """
    return _PLACEHOLDER.sub(lambda found: f"`{lookup_column_name(int(found[1]))}`", sql)


class PlaceholderTyper:
    """A typer that treats placeholders as NULLs of the types of their values."""

    def __init__(self, typer: Typer, types: Sequence[str]) -> None:
        self._typer = typer
        self._types = tuple(types)

    def of_row(self, expressions: Sequence[object]) -> list[Type | str]:
        return self._typer.of_row([self._replace_if_text(each) for each in expressions])

    def of_match(
        self, expressions: Sequence[str], variables: Mapping[str, bool]
    ) -> list[Type | str]:
        return self._typer.of_match([self._replace(each) for each in expressions], variables)

    def add_aggregates(self, aggregates: Sequence[tuple[str, str]]) -> list[str | None]:
        return self._typer.add_aggregates(
            [(name, self._replace(text)) for name, text in aggregates]
        )

    def constants(self, expressions: Sequence[str]) -> list[Constant | str]:
        return self._typer.constants(expressions)

    def session_function(self, text: str, name: str) -> SessionFunction | str | None:
        return self._typer.session_function(self._replace(text), name)

    def _replace_if_text(self, expression: object) -> object:
        return self._replace(expression) if isinstance(expression, str) else expression

    def _replace(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: f"CAST(NULL AS {self._types[int(found[1])]}) ", text)
