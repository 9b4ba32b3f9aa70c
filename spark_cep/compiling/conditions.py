"""From the texts of conditions to conjuncts: split, named, checked; nothing is typed yet.

A text is split at its top-level ANDs, those inside parentheses around the whole included. Each
conjunct then knows its variables. In `event(name, condition)` a conjunct always concerns `name`,
even if it mentions others only: it is part of what makes a row that event, so it must not be
tested where that event is not filled, and for a negated event it belongs to the NOT.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.forbidden import refusals
from spark_cep.compiling.looked_up import is_sound_call, with_columns
from spark_cep.compiling.memberships import Membership, memberships
from spark_cep.compiling.remote_calls import RemoteText, remote_calls
from spark_cep.compiling.spans import Parsed, SyntaxProblem, parse
from spark_cep.compiling.user_functions import UserFunction, registered

if TYPE_CHECKING:
    from spark_cep.compiling.lookups import Lookups
    from spark_cep.compiling.names import Names, Reference
    from spark_cep.compiling.problems import Place, Problems
    from spark_cep.udfs.expressions import Reading
    from spark_cep.udfs.program import Variable

_READINGS: dict[type[exp.Expr], Reading] = {
    exp.First: "first",
    exp.Last: "last",
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}


@dataclass(frozen=True)
class Source:
    """A condition's text; `own` is the variable of the event() that it was given to."""

    text: str
    own: int | None = None


class Conjunct:
    """One conjunct: a node of a parsed text whose names are resolved. `calls`: what the engine
    is to look up."""

    def __init__(
        self,
        parsed: Parsed,
        node: exp.Expr,
        references: Sequence[Reference],
        own: int | None,
        calls: Sequence[RemoteText] = (),
    ) -> None:
        self.parsed = parsed
        self.node = node
        self.references = tuple(sorted(references, key=lambda r: r.start))
        self.own = own
        self.calls = tuple(calls)
        self._of = {id(reference.node): reference for reference in references}
        self._calls = {id(call.node): call for call in calls}

    @cached_property
    def variables(self) -> frozenset[int]:
        """What must be filled for the conjunct to be tested."""
        named = self.named(self.node)
        return named if self.own is None else named | {self.own}

    @cached_property
    def text(self) -> str:
        return self.parsed.text_of(self.node)

    @cached_property
    def place(self) -> Place:
        return self.parsed.place(self.node)

    @cached_property
    def is_plain(self) -> bool:
        """Whether Spark can evaluate it on rows alone: no navigation, no user function, nothing
        that the engine looks up."""
        return self.is_of_rows(self.node)

    def is_of_rows(self, node: exp.Expr) -> bool:
        """The same of what is below a node."""
        return not any(reading(n) or user_function(n) or self.call(n) for n in node.walk())

    def named(self, node: exp.Expr) -> frozenset[int]:
        """The variables that are named below a node."""
        return self._named[id(node)]

    @cached_property
    def _named(self) -> dict[int, frozenset[int]]:
        """For every node; from the leaves up and without recursion, as ANDs may be long."""
        found: dict[int, frozenset[int]] = {}
        for node in reversed(list(self.node.walk())):
            reference = self._of.get(id(node))
            own = frozenset() if reference is None else frozenset({reference.variable})
            found[id(node)] = own.union(*(found[id(child)] for child in node.iter_expressions()))
        return found

    def names_anything(self, node: exp.Expr) -> bool:
        """Whether the node is no constant."""
        return bool(self.named(node)) or not self.is_of_rows(node)

    def reference(self, node: exp.Expr) -> Reference | None:
        return self._of.get(id(node))

    def call(self, node: exp.Expr) -> RemoteText | None:
        """What the engine looks up at this node."""
        return self._calls.get(id(node))

    def row_text(self, node: exp.Expr) -> str:
        """The node's text over the columns of an input row."""
        return self.text_over(node, lambda _: "")

    def text_over(self, node: exp.Expr, prefix: Callable[[Reference], str]) -> str:
        """The node's text over columns, `prefix` in front of each."""
        start, end = self.parsed.span(node)
        first = bisect_left(self.references, start, key=lambda r: r.start)
        last = bisect_left(self.references, end, key=lambda r: r.start)
        inside = [r for r in self.references[first:last] if r.column]
        edits, done = [], start
        for each in self._memberships:
            (begin, middle), stop = each.value, each.end
            if start <= begin and stop <= end and middle >= done:
                array = self.text_over(each.array, prefix)
                no = "NOT " if each.negated else ""
                edits += [(begin, begin, f"({no}array_contains({array}, "), (middle, stop, "))")]
                inside = [r for r in inside if not middle <= r.start < stop]
                done = max(done, stop)
        return self.parsed.cut(node, [*edits, *(r.edit(prefix(r)) for r in inside)])

    @cached_property
    def _memberships(self) -> tuple[Membership, ...]:
        return tuple(sorted(memberships(self.parsed, self.node), key=lambda m: m.value))


def reading(node: exp.Expr) -> Reading | None:
    """How the node navigates a Kleene list, if it does."""
    if isinstance(node, exp.Anonymous):
        return "prev" if node.name.lower() == "prev" else None
    return _READINGS.get(type(node))


def user_function(node: exp.Expr) -> UserFunction | None:
    return registered(node.name) if isinstance(node, exp.Anonymous) else None


def conjuncts(
    source: Source, names: Names, problems: Problems, lookups: Lookups
) -> Iterator[Conjunct]:
    """The sound conjuncts of a text; what is wrong with the others becomes problems."""
    try:
        parsed = parse(source.text)
    except SyntaxProblem as problem:
        problems.add(
            f"not a Spark SQL expression: {problem.message}",
            problem.place,
            hint="conditions are written as in WHERE: a.price < b.price AND a.kind = 'A'",
        )
        return
    before = len(problems.found)
    calls = remote_calls(parsed, lookups.known, problems)
    calls = [call for call in calls if is_sound_call(parsed, call, lookups, problems)]
    if len(problems.found) > before:
        return
    for node in _split(parsed.root):
        refused = list(refusals(parsed, node))
        for refusal in refused:
            problems.add(refusal.message, refusal.place, hint=refusal.hint)
        references = names.references(parsed, node, source.own, problems)
        if references is None or refused:
            continue
        below = {id(each) for each in node.walk()} if calls else set()
        mine = [call for call in calls if id(call.node) in below]
        conjunct = with_columns(Conjunct(parsed, node, references, source.own, mine), lookups)
        if _is_sound(conjunct, names.variables, problems):
            yield conjunct


def _split(node: exp.Expr) -> Iterator[exp.Expr]:
    inner = node.unnest()
    if isinstance(inner, exp.And):
        for operand in inner.flatten(unnest=False):
            yield from _split(operand)
    else:
        yield node


def _is_sound(conjunct: Conjunct, variables: Sequence[Variable], problems: Problems) -> bool:
    before = len(problems.found)
    for node in conjunct.node.walk():
        how = reading(node)
        if how is not None:
            _check_navigation(conjunct, node, how, variables, problems)
    if not conjunct.variables and len(problems.found) == before:
        problems.add(
            f"{conjunct.text} names no variable",
            conjunct.place,
            hint="a condition says something about events: name a variable and its column, "
            "such as a.price > 10",
        )
    negated = sorted(v for v in conjunct.variables if variables[v].negated)
    if len(negated) > 1:
        both = " and ".join(variables[v].name for v in negated)
        problems.add(
            f"{conjunct.text} names two negated variables, {both}",
            conjunct.place,
            hint="no row fills either of them; tie each to the variables that are filled",
        )
    return len(problems.found) == before


def navigated(node: exp.Expr) -> exp.Expr | None:
    """The argument of a navigation; None if it has not exactly one."""
    if isinstance(node, exp.Anonymous):
        arguments = list(node.expressions)
    else:
        arguments = [node.this, *node.expressions]
    if len(arguments) != 1 or isinstance(arguments[0], exp.Distinct | exp.Star | None):
        return None
    argument: exp.Expr = arguments[0]
    return argument


def _check_navigation(
    conjunct: Conjunct,
    node: exp.Expr,
    how: Reading,
    variables: Sequence[Variable],
    problems: Problems,
) -> None:
    text, place = conjunct.parsed.text_of(node), conjunct.parsed.place(node)
    argument = navigated(node)
    named = conjunct.named(node)
    if argument is None or len(named) != 1:
        counts = "; count(b) counts the rows of b" if how == "count" else ""
        problems.add(
            f"{text}: {how} takes one expression over one variable",
            place,
            hint=f"write {how}(b.price){counts}",
        )
        return
    if any(reading(inner) for inner in argument.walk()):
        problems.add(
            f"{text}: navigation cannot be nested",
            place,
            hint="prev, first, last and the aggregates take columns of the list's elements",
        )
        return
    variable = variables[next(iter(named))]
    if variable.negated:
        problems.add(
            f"{text}: {variable.name} is negated and binds no row",
            place,
            hint=f"use {variable.name}.column in plain comparisons",
        )
    elif not variable.is_list:
        problems.add(
            f"{text}: {variable.name} binds one row",
            place,
            hint=f'drop {how}(), or let the variable bind a list: "{variable.name}+"',
        )
