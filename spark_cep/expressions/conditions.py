"""Conditions as conjuncts: parsed, split at ANDs, names resolved, checked; not yet typed.

A condition is split at its top-level ANDs, also inside parentheses around the whole text. In
`event(name, condition)` every conjunct belongs to `name`, even if it mentions other variables only:
it decides whether a row is that event. So it is not tested where the event is unfilled, and for a
negated event it belongs to the NOT.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.guards import guarded_operands
from spark_cep.expressions.lookups import LookupColumn
from spark_cep.expressions.names import Reference
from spark_cep.expressions.refusals import find_refusals
from spark_cep.expressions.remote_calls import (
    Membership,
    RemoteCallText,
    find_memberships,
    find_remote_calls,
    is_remote_call,
    lambda_argument,
)
from spark_cep.expressions.syntax import ParsedExpression, SyntaxProblem, parse_expression
from spark_cep.expressions.user_functions import UserFunction, find_user_function

if TYPE_CHECKING:
    from spark_cep.expressions.lookups import Lookups
    from spark_cep.expressions.names import PatternNames
    from spark_cep.expressions.problems import Place, Problems
    from spark_cep.udfs.expressions import CellReading
    from spark_cep.udfs.program import Variable


# (variable, SQL over its row): a part is evaluated only where all guards of its variable are TRUE.
Guards = tuple[tuple[int, str], ...]
_NAVIGATIONS: dict[type[exp.Expr], CellReading] = {
    exp.First: "first",
    exp.Last: "last",
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}


class TypeMismatch(Exception):
    """A user error: an operation that does not support the types of its operands, at `node`."""

    def __init__(self, message: str, node: exp.Expr, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint


@dataclass(frozen=True)
class ConditionText:
    """A condition as written; `own` is the variable of its event(), None for `.where`."""

    text: str
    own: int | None = None


class Conjunct:
    """A node of a parsed condition with its names resolved. `calls`: the remote calls that the
    engine evaluates."""

    def __init__(
        self,
        parsed: ParsedExpression,
        node: exp.Expr,
        references: Sequence[Reference],
        own: int | None,
        calls: Sequence[RemoteCallText] = (),
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
        """The variables that must be filled for the conjunct to be tested."""
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
        """Whether Spark can evaluate it: it has no navigation, user function or remote call."""
        return self.is_of_rows(self.node)

    def is_of_rows(self, node: exp.Expr) -> bool:
        """Whether Spark can evaluate the sub-expression `node`."""
        return not any(navigation_of(n) or user_function_of(n) or self.call(n) for n in node.walk())

    def named(self, node: exp.Expr) -> frozenset[int]:
        """The variables that the sub-expression `node` mentions."""
        return self._named[id(node)]

    @cached_property
    def _named(self) -> dict[int, frozenset[int]]:
        """By node id. Leaves first and without recursion: a chain of ANDs may be deep."""
        found: dict[int, frozenset[int]] = {}
        for node in reversed(list(self.node.walk())):
            reference = self._of.get(id(node))
            own = frozenset() if reference is None else frozenset({reference.variable})
            found[id(node)] = own.union(*(found[id(child)] for child in node.iter_expressions()))
        return found

    def names_anything(self, node: exp.Expr) -> bool:
        """Whether the node is anything but a constant."""
        return bool(self.named(node)) or not self.is_of_rows(node)

    def reference(self, node: exp.Expr) -> Reference | None:
        return self._of.get(id(node))

    def call(self, node: exp.Expr) -> RemoteCallText | None:
        """The remote call that the engine evaluates at this node."""
        return self._calls.get(id(node))

    def row_text(self, node: exp.Expr) -> str:
        """The node's text over the columns of an input row."""
        return self.text_over(node, lambda _: "")

    def text_over(self, node: exp.Expr, prefix: Callable[[Reference], str]) -> str:
        """The node's text over columns, each with its prefix."""
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
        return tuple(sorted(find_memberships(self.parsed, self.node), key=lambda m: m.value))


def parse_conjuncts(
    source: ConditionText, names: PatternNames, problems: Problems, lookups: Lookups
) -> Iterator[Conjunct]:
    """Yields the valid conjuncts of a condition and reports the others as problems."""
    try:
        parsed = parse_expression(source.text, names.is_name)
    except SyntaxProblem as problem:
        problems.add(
            f"this is not a Spark SQL expression: {problem.message}",
            problem.place,
            hint="write conditions as in WHERE: a.price < b.price AND a.kind = 'A'",
        )
        return
    before = len(problems.found)
    calls = find_remote_calls(parsed, lookups.known, problems)
    calls = [call for call in calls if is_sound_call(parsed, call, lookups, problems)]
    if len(problems.found) > before:
        return
    for node in _split(parsed.root):
        refused = list(find_refusals(parsed, node))
        for refusal in refused:
            problems.add(refusal.message, refusal.place, hint=refusal.hint)
        references = names.references(parsed, node, source.own, problems)
        if references is None or refused:
            continue
        below = {id(each) for each in node.walk()} if calls else set()
        own_calls = [call for call in calls if id(call.node) in below]
        conjunct = replace_calls(Conjunct(parsed, node, references, source.own, own_calls), lookups)
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
        how = navigation_of(node)
        if how is not None:
            _check_navigation(conjunct, node, how, variables, problems)
    if not conjunct.variables and len(problems.found) == before:
        problems.add(
            f"{conjunct.text} does not refer to a variable",
            conjunct.place,
            hint="compare a column of a variable, such as a.price > 10",
        )
    return len(problems.found) == before


def _check_navigation(
    conjunct: Conjunct,
    node: exp.Expr,
    how: CellReading,
    variables: Sequence[Variable],
    problems: Problems,
) -> None:
    text, place = conjunct.parsed.text_of(node), conjunct.parsed.place(node)
    argument = navigation_argument(node)
    named = conjunct.named(node)
    if argument is None or len(named) != 1:
        counts = "; count(b) counts the rows of b" if how == "count" else ""
        problems.add(
            f"{text}: {how}() takes one expression over the columns of one variable",
            place,
            hint=f"write {how}(b.price){counts}",
        )
        return
    if any(navigation_of(inner) for inner in argument.walk()):
        problems.add(
            f"{text}: navigation cannot be nested",
            place,
            hint="prev, first, last and aggregates take expressions over columns",
        )
        return
    variable = variables[next(iter(named))]
    if variable.negated:
        problems.add(
            f"{text}: {variable.name} is negated, so it binds no list",
            place,
            hint=f"use {variable.name}.column without {how}()",
        )
    elif not variable.is_list:
        problems.add(
            f"{text}: {variable.name} binds one row, not a list",
            place,
            hint=f'remove {how}(), or add a quantifier to the variable: "{variable.name}+"',
        )


# ---- navigation and user functions ---------------------------------------------------------------


def navigation_of(node: exp.Expr) -> CellReading | None:
    """The navigation or aggregate over a Kleene list that the node is."""
    if isinstance(node, exp.Anonymous):
        return "prev" if node.name.lower() == "prev" else None
    return _NAVIGATIONS.get(type(node))


def user_function_of(node: exp.Expr) -> UserFunction | None:
    return find_user_function(node.name) if isinstance(node, exp.Anonymous) else None


def navigation_argument(node: exp.Expr) -> exp.Expr | None:
    """The argument of a navigation; None unless it has exactly one."""
    if isinstance(node, exp.Anonymous):
        arguments = list(node.expressions)
    else:
        arguments = [node.this, *node.expressions]
    if len(arguments) != 1 or isinstance(arguments[0], exp.Distinct | exp.Star | None):
        return None
    argument: exp.Expr = arguments[0]
    return argument


# ---- parts over one row --------------------------------------------------------------------------


@dataclass(frozen=True)
class RowPart:
    """A maximal sub-expression over one variable, which Spark computes on a row. `text` is SQL
    over an input row. It is computed only where the guards around it hold."""

    node: exp.Expr
    variable: int
    text: str

    def guarded(self, guards: Guards) -> str:
        own = " AND ".join(text for variable, text in guards if variable == self.variable)
        return f"CASE WHEN {own} THEN {self.text} END" if own else self.text


def row_part(conjunct: Conjunct, node: exp.Expr) -> RowPart | None:
    """The node as a part over one variable; None if Spark cannot evaluate it on a row."""
    named = conjunct.named(node)
    if len(named) != 1 or not conjunct.is_of_rows(node):
        return None
    reference = conjunct.reference(node)
    if reference is not None and reference.column is None:
        return None
    if isinstance(node, exp.If) and isinstance(node.parent, exp.Case):
        return None  # WHEN ... THEN ... alone is not an expression
    if _is_inside_not(conjunct, node):
        return None
    return RowPart(node, next(iter(named)), conjunct.row_text(node))


def over_one_row(
    conjunct: Conjunct, nodes: Sequence[exp.Expr]
) -> tuple[int, tuple[str, ...]] | None:
    """The only variable that the nodes mention, and their texts on its row; None if they mention
    several, or if Spark cannot evaluate one of them on a row."""
    parts = [row_part(conjunct, node) for node in nodes]
    variables = {part.variable for part in parts if part is not None}
    is_known = all(
        part is not None or not conjunct.names_anything(node)
        for part, node in zip(parts, nodes, strict=True)
    )
    if len(variables) != 1 or not is_known:
        return None
    return variables.pop(), tuple(conjunct.row_text(node) for node in nodes)


def _is_inside_not(conjunct: Conjunct, node: exp.Expr) -> bool:
    """Whether the node shares its text with a NOT around it, as in `x IS NOT NULL`."""
    parent = node.parent
    return isinstance(parent, exp.Not) and conjunct.parsed.span(node) == conjunct.parsed.span(
        parent
    )


def is_column(conjunct: Conjunct, node: exp.Expr) -> bool:
    """Whether the node is a plain column (or a field of one), which cannot fail on any row."""
    while isinstance(node, exp.Paren | exp.Dot):
        node = node.this
    reference = conjunct.reference(node)
    return reference is not None and reference.column is not None


# ---- remote values as columns --------------------------------------------------------------------


def is_sound_call(
    parsed: ParsedExpression, call: RemoteCallText, lookups: Lookups, problems: Problems
) -> bool:
    """Whether the call has a valid key; if not, it is reported."""
    argument = lambda_argument(call)
    if argument is not None:
        problems.add(
            f"the key of {call.name!r} depends on the lambda argument {argument}",
            call.place,
            hint="explode the array before matching and look up by the exploded column",
        )
        return False
    known = lookups.known[call.name]
    if known.keys is not None and len(known.keys) != len(call.keys):
        columns = ", ".join(name for name, _ in known.keys)
        wanted = f"{len(known.keys)} part{'s' * (len(known.keys) > 1)}"
        problems.add(
            f"the key of {call.name!r} has {wanted} ({columns}), but this call has "
            f"{len(call.keys)}",
            call.place,
            hint=f"write remote('{call.name}', {', '.join(f'a.{n}' for n, _ in known.keys)})",
        )
        return False
    return True


def key_variable(conjunct: Conjunct, call: RemoteCallText) -> int | None:
    """The variable on whose row the key can be computed; None if there is no single one."""
    if not all(conjunct.is_of_rows(key) for key in call.keys):
        return None
    named = frozenset[int]().union(*(conjunct.named(key) for key in call.keys))
    if not named and conjunct.is_of_rows(conjunct.node) and len(conjunct.variables) == 1:
        named = conjunct.variables
    return next(iter(named)) if len(named) == 1 else None


def replace_calls(conjunct: Conjunct, lookups: Lookups, *, fetched: bool = False) -> Conjunct:
    """The conjunct with columns in place of its calls of tables; `fetched`: of all sources.

    Spark joins a table before matching, where the key is of one variable's row. A fetched source
    becomes a column only where the engine cannot compute with its value. A column is a name of the
    conjunct like those of the input, so masks, hoisting, inferred keys and conditions after
    matching need no rule for it, and places in messages stay those of the user's text.
    """
    remaining, references = [], list(conjunct.references)
    outer = _without_calls(conjunct)
    for call in conjunct.calls:
        known = lookups.known[call.name]
        variable = key_variable(outer, call) if known.is_table or fetched else None
        if variable is None:
            remaining.append(call)
            continue
        start, end = call.place.start, call.place.end
        column = _lookup_column(outer, call, variable, lookups)
        references = [r for r in references if not start <= r.start < end]
        references.append(Reference(call.node, variable, column.column, start, end))
    if len(remaining) == len(conjunct.calls):
        return conjunct
    return type(conjunct)(conjunct.parsed, conjunct.node, references, conjunct.own, remaining)


def _without_calls(conjunct: Conjunct) -> Conjunct:
    """The conjunct as if its calls were plain expressions, so that a call's key can be judged."""
    return type(conjunct)(conjunct.parsed, conjunct.node, conjunct.references, conjunct.own)


def _lookup_column(
    conjunct: Conjunct, call: RemoteCallText, variable: int, lookups: Lookups
) -> LookupColumn:
    known = lookups.known[call.name]
    keys = tuple(conjunct.row_text(key) for key in call.keys)
    places = [conjunct.parsed.place(key) for key in call.keys]
    wanted = LookupColumn("", known, keys)
    if not all(isinstance(k, exp.Literal) or is_column(conjunct, k) for k in call.keys):
        guards = [text for v, text in _surrounding_guards(conjunct, call.node) if v == variable]
        wanted = LookupColumn("", known, keys, variable, tuple(guards))
    return lookups.column(wanted, places)


def _surrounding_guards(conjunct: Conjunct, node: exp.Expr) -> Guards:
    """What the surrounding expression implies for the rows on which a node is evaluated."""

    def one_row(nodes: Sequence[exp.Expr]) -> tuple[int, tuple[str, ...]] | None:
        # A guard with a remote call has no value yet when the key is computed.
        is_remote = any(is_remote_call(each) for given in nodes for each in given.walk())
        return None if is_remote else over_one_row(conjunct, nodes)

    path, around = {id(node)}, []
    while node is not conjunct.node and node.parent is not None:
        node = node.parent
        operands = guarded_operands(node, one_row)
        around.append(next((guards for each, guards in operands if id(each) in path), ()))
        path.add(id(node))
    return tuple(dict.fromkeys(guard for guards in reversed(around) for guard in guards))
