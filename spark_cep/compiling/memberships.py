"""`x IN remote(...)`: membership of an array, which Spark has as a function only.

The text that goes to Spark says `array_contains(remote, x)` in its place, put together from the
user's own pieces; places in messages stay those of what was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from spark_cep.compiling.remote_calls import is_remote

if TYPE_CHECKING:
    from spark_cep.compiling.problems import Problems
    from spark_cep.compiling.spans import Parsed


@dataclass(frozen=True)
class Membership:
    """`negated`: the NOT stands between value and array, so the node's text has it inside."""

    node: exp.In
    negated: bool
    value: tuple[int, int]
    end: int

    @property
    def array(self) -> exp.Expr:
        found = array_of(self.node)
        assert found is not None
        return found


def array_of(node: exp.Expr) -> exp.Expr | None:
    """What `x IN ...` looks in, if that is an array that was looked up. `x IN (remote(...))` is
    as ever: one of the values in the brackets."""
    array = node.args.get("field") if isinstance(node, exp.In) else None
    if isinstance(array, exp.Expr) and any(is_remote(each) for each in array.walk()):
        return array
    return None


def memberships(parsed: Parsed, node: exp.Expr) -> Iterator[Membership]:
    """All below a node, outermost first."""
    for each in node.walk():
        if isinstance(each, exp.In) and array_of(each) is not None:
            first, last = parsed.tokens_of(each.this)
            negated = parsed.tokens[last + 1].token_type == TokenType.NOT
            value = parsed.tokens[first].start, parsed.tokens[last].end + 1
            yield Membership(each, negated, value, parsed.span(each)[1])


def is_refused(parsed: Parsed, call: exp.Expr, problems: Problems) -> bool:
    """Whether a call is looked in with IN. Measures and row patterns keep the length of their
    texts, so there it is a problem, with what to write in its place."""
    for each in memberships(parsed, parsed.root):
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
