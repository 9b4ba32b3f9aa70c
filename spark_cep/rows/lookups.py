"""Calls of `remote('name', key, ...)` in row patterns: columns of the row that the key is read at.

    remote('limits', org)               __cep_r0              the current row
    remote('limits', down.org)          down.__cep_r0
    remote('limits', PREV(org, 2))      PREV(__cep_r0, 2)     NULL for a missing row, as for a
    PREV(remote('limits', org), 2)      PREV(__cep_r0, 2)     NULL key
    LAST(down.amount) > remote('limits', LAST(down.org))

The column is looked up once for each row before matching, so the matcher has no remote data. In a
measure this applies only to calls inside a navigation or an aggregate; all others are looked up on
the matches (expressions/remote_calls.py), where keys are few and may combine several rows.

Texts keep their length, so places in messages stay the user's. A call that follows conditions on
the current row is looked up only where these hold: elsewhere the condition is not TRUE for any
value, and a key that may fail is not computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.names import columns_of, name_parts_of
from spark_cep.expressions.problems import Excerpt, Problems
from spark_cep.expressions.remote_calls import (
    LookupRequests,
    RemoteCallText,
    find_remote_calls,
    lambda_argument,
    mentions_remote,
    refuse_membership,
)
from spark_cep.expressions.syntax import SyntaxProblem, apply_edits
from spark_cep.rows.calls import RowCall, RowCalls, parse_calls

if TYPE_CHECKING:
    from spark_cep.row_patterns import RowPattern


_HINT = (
    "use columns of one row: remote('limits', down.org), remote('limits', PREV(org)); keys over "
    "several rows are supported in measures"
)


@dataclass(frozen=True)
class RowAccess:
    """How the row of a key is read: the text before and after its column, and its variable."""

    before: str
    variable: str
    after: str


@dataclass(frozen=True)
class _LookupText:
    """One expression of the user; `own`: the variable being defined, None in a measure."""

    calls: RowCalls
    requests: LookupRequests
    variables: frozenset[str]
    own: str | None
    problems: Problems


def replace_define_calls(
    pattern: RowPattern, requests: LookupRequests, problems: Problems
) -> RowPattern:
    """The pattern with lookup columns in place of the calls in DEFINE."""
    names = _variable_names(pattern)
    define = tuple(
        (name, _apply_padded_edits(each, _find_edits(each, name, names, requests, problems)))
        if isinstance(each, str)
        else (name, each)
        for name, each in pattern.define
    )
    return replace(pattern, define=define)


def replace_measure_calls(
    measures: Sequence[tuple[str, str]],
    pattern: RowPattern,
    requests: LookupRequests,
    problems: Problems,
) -> tuple[tuple[str, str], ...]:
    """The measures with lookup columns in place of the calls inside navigation and aggregates."""
    names = _variable_names(pattern)
    return tuple(
        (name, _apply_padded_edits(text, _find_edits(text, None, names, requests, problems)))
        for name, text in measures
    )


def _variable_names(pattern: RowPattern) -> frozenset[str]:
    return frozenset(name.casefold() for name, _ in pattern.variables.all())


def _find_edits(
    text: str,
    own: str | None,
    names: frozenset[str],
    requests: LookupRequests,
    problems: Problems,
) -> list[tuple[int, int, str]]:
    """The edits of a text. A text that cannot be parsed is left for the compiler to report."""
    if not mentions_remote(text):
        return []
    try:
        # The compiler parses it again and reports its problems.
        calls = parse_calls(text, Problems(), in_define=own is not None)
    except SyntaxProblem:
        return []
    lookup_text = _LookupText(calls, requests, names, own, problems)
    found = []
    for call in find_remote_calls(calls.parsed, requests.values, problems):
        if own is not None or calls.around[id(call.node)] is not None:
            edit = _edit(lookup_text, call)
            if edit is not None:
                found.append(edit)
    return found


def _apply_padded_edits(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    if not edits:
        return text
    spaced = []
    for start, end, new in edits:
        # Padded in front, so that a field of a struct directly follows the name.
        gap = "".join(c if c == "\n" else " " for c in text[start : max(start, end - len(new))])
        spaced.append((start, end, gap + new))
    return Excerpt.altered(apply_edits(text, 0, len(text), spaced), text)


# ---- one call ------------------------------------------------------------------------------------


def _edit(text: _LookupText, call: RemoteCallText) -> tuple[int, int, str] | None:
    if refuse_membership(text.calls.parsed, call.node, text.problems):
        return None
    argument = lambda_argument(call)
    if argument is not None:
        text.problems.add(
            f"the key of {call.name!r} depends on the lambda argument {argument}",
            call.place,
            hint="explode the array before matching, or look up by a column of the row",
        )
        return None
    accesses = [_access_of(text, key) for key in call.keys]
    first = accesses[0]
    if first is None or any(each is None or each[0] != first[0] for each in accesses):
        text.problems.add(
            f"the key of {text.calls.parsed.text_of(call.node)} is not over a single row",
            call.place,
            hint=_HINT,
        )
        return None
    keys = [each[1] for each in accesses if each is not None]
    shown = [" ".join(each.split()) for each in keys]
    how = first[0]
    guard = _guard(text, call) if how == RowAccess("", "", "") else None
    if guard is not None:
        keys = [f"CASE WHEN {guard} THEN {key} END" for key in keys]
    column = text.requests.column(call.name, keys, shown)
    start, end = text.calls.parsed.span(call.node)
    return start, end, f"{how.before}{how.variable}{column}{how.after}"


def _access_of(text: _LookupText, key: exp.Expr) -> tuple[RowAccess, str] | None:
    """How the row of a part of a key is read, and the part over the columns of that row; None if it
    uses several rows, or other calls than navigation."""
    parsed = text.calls.parsed
    inner, before, after = key, "", ""
    call = text.calls.at(key)
    while call is not None:
        if call.kind not in {"physical", "logical"} or not call.arguments:
            return None
        inner = call.arguments[0]
        opened, closed = _extent(text.calls, inner)
        before += parsed.text[call.start : opened]
        after = parsed.text[closed : call.end] + after
        call = text.calls.at(inner)
    if text.calls.below(inner):
        return None
    variables, edits = set(), []
    for column in columns_of(inner):
        parts = name_parts_of(parsed, column)
        name = parts[0].name.casefold()
        if len(parts) == 1 or name not in text.variables:
            variables.add("")
            continue
        start, end = parts[0].place.start, parts[1].place.start
        edits.append((start, end, ""))
        is_own = text.own is not None and name == text.own.casefold()
        variables.add("" if is_own else parsed.text[start:end].lower())
    if len(variables) > 1:
        return None
    how = RowAccess(" ".join(before.split()), next(iter(variables), ""), after.strip())
    return how, parsed.cut(inner, edits)


def _extent(calls: RowCalls, node: exp.Expr) -> tuple[int, int]:
    """The characters of a node, with RUNNING or FINAL in front."""
    found: RowCall | None = calls.at(node)
    return calls.parsed.span(node) if found is None else (found.start, found.end)


# ---- rows without a lookup -----------------------------------------------------------------------


def _guard(text: _LookupText, call: RemoteCallText) -> str | None:
    """The conditions on the current row that precede the call in a conjunction of DEFINE, as SQL
    over the row."""
    if text.own is None:
        return None
    root = text.calls.parsed.root.unnest()
    if not isinstance(root, exp.And):
        return None
    found: list[str] = []
    for node in root.flatten():
        if any(each is call.node for each in node.walk()):
            # Later conditions may rely on this one.
            break
        found += _row_conditions(text, node)
    return " AND ".join(f"({each})" for each in found) or None


def _row_conditions(text: _LookupText, node: exp.Expr) -> Iterator[str]:
    if any(
        isinstance(each, exp.Anonymous) and mentions_remote(str(each.this)) for each in node.walk()
    ):
        return
    try:
        found = _access_of(text, node)
    except SyntaxProblem:
        return
    if found is not None and found[0] == RowAccess("", "", "") and any(columns_of(node)):
        yield found[1]
