"""Where each conjunct is tested: on rows, in the engine, or on finished matches.

    over one variable, plain       -> its mask, in Spark before the shuffle
    computable exactly             -> a condition of the engine
    only Spark can evaluate it     -> after the engine, where that loses and invents no match
    else                           -> a problem

Testing after the engine is sound only if the conjunct cannot change which other matches exist:
under skip-till-any with reuse each combination stands for itself, and a conjunct on plain,
positive variables rejects exactly those combinations that fail it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.conditions import (
    RowPart,
    TypeMismatch,
    is_column,
    replace_calls,
    row_part,
)
from spark_cep.expressions.names import PatternNames, quote_name
from spark_cep.expressions.operands import InexactError, ship_expression
from spark_cep.expressions.syntax import SyntaxProblem
from spark_cep.expressions.translation import (
    CompilerSession,
    Translation,
    hoistable_parts,
    not_boolean_error,
)
from spark_cep.udfs.expressions import BOOL, Expression, Type
from spark_cep.udfs.program import Condition

if TYPE_CHECKING:
    from spark_cep.expressions.conditions import Conjunct
    from spark_cep.expressions.problems import Problems
    from spark_cep.expressions.schema import ColumnRequests
    from spark_cep.udfs.program import Branch, Consumption, Negation, Strategy, Window


# --------------------------------------------------------------------------------------------------
# Keys that conditions imply: `a.card = b.card AND b.card = c.card` partitions by card.
#
# Rows of one match then have one card, so partitions by card can be matched apart. This is sound
# only if the equalities tie all rows of every match, and conjuncts on unfilled variables are not
# tested. So it is judged for each branch by the equalities whose variables it fills:
#
# - Its filled variables are connected, by edges between filled variables alone: a negated variable
#   need not have a row, so it connects nothing. There are at least two of them, so that a row whose
#   key is NULL can match nothing.
# - Two members of a repeated group are equal within one iteration only; an edge to a variable
#   outside the group, which every iteration has to equal, ties the iterations together. Where all
#   filled variables belong to one list there is no such edge, and nothing is inferred.
# - A negated variable has an edge to a filled one: rows with another key then never block.
#
# Under skip-till-next a run takes rows on the conjuncts whose variables are bound so far, and never
# gives one back. There each row must be tied to what is bound when it is taken: the filled
# variables are all tied to one another, and before each list stands a plain variable.
#
# Not under strict, where rows of other keys come between; not under consume, where tied order keys
# are refused and a finer partition would hide them; not without a time window. Keys are plain
# columns, because a computed key would be computed on rows that no condition lets through.
# --------------------------------------------------------------------------------------------------


VariablePair = frozenset[int]


@dataclass(frozen=True)
class MatchSemantics:
    """What holds for the whole pattern."""

    branches: tuple[Branch, ...]
    window: Window | None
    strategy: Strategy
    consumption: Consumption


@dataclass(frozen=True)
class ColumnEquality:
    """A conjunct that says that two variables have the same value of a column."""

    text: str
    edge: VariablePair


def equality_of(conjunct: Conjunct) -> ColumnEquality | None:
    """The conjunct as an equality of one column of two variables."""
    node = conjunct.node.unnest()
    if not isinstance(node, exp.EQ) or len(conjunct.variables) != 2:
        return None
    sides = [row_part(conjunct, side) for side in (node.this, node.expression)]
    if any(side is None or not is_column(conjunct, side.node) for side in sides):
        return None
    texts = {side.text for side in sides if side is not None}
    edge = frozenset(side.variable for side in sides if side is not None)
    return ColumnEquality(texts.pop(), edge) if len(texts) == 1 and len(edge) == 2 else None


def infer_keys(equalities: Iterable[ColumnEquality], rules: MatchSemantics) -> tuple[str, ...]:
    """The columns that are keys, in the order in which the conditions name them."""
    timed = rules.window is not None and rules.window.kind == "time"
    if not timed or rules.strategy == "strict" or rules.consumption != "reuse":
        return ()
    edges: dict[str, set[VariablePair]] = {}
    for each in equalities:
        edges.setdefault(each.text, set()).add(each.edge)
    return tuple(
        text
        for text, tied in edges.items()
        if all(_ties(branch, tied, rules.strategy) for branch in rules.branches)
    )


def _ties(branch: Branch, edges: set[VariablePair], strategy: Strategy) -> bool:
    filled = branch.filled()
    if len(filled) < 2 or any(
        slot.is_list and filled <= set(slot.variables) for slot in branch.slots
    ):
        return False
    if not _is_connected(filled, edges):
        return False
    for negation in _negations(branch):
        if not any(frozenset({negation.variable, v}) in edges for v in filled):
            return False
    return strategy != "next" or _ties_when_taken(branch, edges)


def _is_connected(filled: frozenset[int], edges: set[VariablePair]) -> bool:
    reached = {min(filled)}
    waiting = list(reached)
    while waiting:
        here = waiting.pop()
        for edge in edges:
            if here in edge and edge <= filled:
                fresh = edge - reached
                reached |= fresh
                waiting += fresh
    return reached == filled


def _ties_when_taken(branch: Branch, edges: set[VariablePair]) -> bool:
    complete = all(frozenset(pair) in edges for pair in combinations(branch.filled(), 2))
    plain = {i for i, slot in enumerate(branch.slots) if not slot.is_list}
    return complete and all(
        any((before, i) in branch.precedes for before in plain)
        for i, slot in enumerate(branch.slots)
        if slot.is_list
    )


def _negations(branch: Branch) -> Sequence[Negation]:
    bodies = [slot.body for slot in branch.slots if slot.body is not None]
    inner = [negation for body in bodies for negation in body.negations]
    covered = [negation for others in branch.covered for negation in others]
    return [*branch.negations, *inner, *covered]


@dataclass(frozen=True)
class ConjunctClassification:
    """`masks`: (variable, text) in the order written. `tested`: what the engine tests. `hidden`:
    looked-up columns that `after` reads, with their variables."""

    masks: tuple[tuple[int, str], ...]
    tested: tuple[tuple[Conjunct, Expression], ...]
    after: tuple[str, ...]
    hidden: tuple[tuple[int, str], ...] = ()

    def conditions(self, shipment: ColumnRequests) -> tuple[Condition, ...]:
        return tuple(
            Condition(ship_expression(expression, shipment), conjunct.text, conjunct.variables)
            for conjunct, expression in self.tested
        )


def classify_conjuncts(
    conjuncts: Sequence[Conjunct],
    names: PatternNames,
    session: CompilerSession,
    rules: MatchSemantics,
    problems: Problems,
) -> ConjunctClassification:
    """Sorts sound conjuncts; type errors and what nobody can evaluate become problems."""
    return _ConjunctClassifier(names, session, rules, problems).run(conjuncts)


_HINT = (
    "compute what concerns one variable as a column first and compare with = < > + - * / and CASE, "
    "or write the condition as a cep.udf"
)
_REMOTE_HINT = (
    "compare what remote() gives with = < > + - * / and IN, or look it up by one variable; its "
    "value_type may be the type that it is compared in"
)


@dataclass
class _ConjunctLists:
    """What was sorted so far."""

    masks: list[tuple[int, str]] = field(default_factory=list)
    tested: list[tuple[Conjunct, Expression]] = field(default_factory=list)
    after: list[tuple[Conjunct, InexactError]] = field(default_factory=list)


class _ConjunctClassifier:
    def __init__(
        self,
        names: PatternNames,
        session: CompilerSession,
        rules: MatchSemantics,
        problems: Problems,
    ) -> None:
        self._names = names
        self._session = session
        self._rules = rules
        self._problems = problems
        self._types: dict[str, Type | str] = {}

    def run(self, conjuncts: Sequence[Conjunct]) -> ConjunctClassification:
        """What the engine cannot compute on a fetched value is tried again with the value as a
        column, where the key is one variable's."""
        found = _ConjunctLists()
        while conjuncts:
            conjuncts = self._pass(conjuncts, found)
        hidden = {
            (reference.variable, reference.column.name)
            for conjunct, _ in found.after
            for reference in conjunct.references
            if reference.column and self._session.lookups.of_column(reference.column.name)
        }
        after = self._after(found.after)
        return ConjunctClassification(
            tuple(found.masks), tuple(found.tested), after, tuple(sorted(hidden))
        )

    def _pass(self, conjuncts: Sequence[Conjunct], sorted_: _ConjunctLists) -> list[Conjunct]:
        """Sorts them; those that are to be sorted again."""
        again = []
        rows = [c for c in conjuncts if c.is_plain and len(c.variables) == 1]
        across = [c for c in conjuncts if c not in rows]
        found = {id(c): self._parts(c) for c in across}
        self._learn(rows, [part for each in found.values() for part in each])
        sorted_.masks += [mask for c in rows if (mask := self._mask(c)) is not None]
        for conjunct in across:
            if not self._check_parts(conjunct, found[id(conjunct)]):
                continue
            try:
                known = {t: k for t, k in self._types.items() if isinstance(k, Type)}
                translation = Translation(conjunct, self._session, known)
                sorted_.tested.append((conjunct, translation.condition()))
            except TypeMismatch as mismatch:
                self._mismatch(conjunct, mismatch)
            except SyntaxProblem as problem:
                self._problems.add(problem.message, problem.place)
            except InexactError as reason:
                other = replace_calls(conjunct, self._session.lookups, fetched=True)
                if other is conjunct:
                    sorted_.after.append((conjunct, reason))
                else:
                    again.append(other)
        return again

    def _parts(self, conjunct: Conjunct) -> list[RowPart]:
        try:
            return list(hoistable_parts(conjunct))
        except SyntaxProblem as problem:
            self._problems.add(problem.message, problem.place)
            return []

    def _learn(self, rows: Sequence[Conjunct], found: Sequence[RowPart]) -> None:
        """Asks for all types at once; those of plain columns are known."""
        for column in self._names.columns:
            self._types[quote_name(column.name)] = column.type
        self._types |= self._session.lookups.types()
        texts = [c.row_text(c.node) for c in rows] + [part.text for part in found]
        asked = list(dict.fromkeys(text for text in texts if text not in self._types))
        if asked:
            answers = self._session.typer.of_row(asked)
            self._types.update(zip(asked, answers, strict=True))

    def _mask(self, conjunct: Conjunct) -> tuple[int, str] | None:
        text = conjunct.row_text(conjunct.node)
        if not self._check_boolean(conjunct, self._types[text]):
            return None
        return next(iter(conjunct.variables)), text

    def _check_boolean(self, conjunct: Conjunct, type_: Type | str) -> bool:
        if isinstance(type_, str):
            self._problems.add(self._session.lookups.said(type_), conjunct.place)
            return False
        if type_ not in {BOOL, Type("null")}:
            self._mismatch(conjunct, not_boolean_error(conjunct, conjunct.node, type_))
            return False
        return True

    def _mismatch(self, conjunct: Conjunct, mismatch: TypeMismatch) -> None:
        place = conjunct.parsed.place(mismatch.node)
        self._problems.add(mismatch.message, place, hint=mismatch.hint)

    def _check_parts(self, conjunct: Conjunct, found: Sequence[RowPart]) -> bool:
        sound = True
        for part in found:
            type_ = self._types[part.text]
            if isinstance(type_, str):
                said = self._session.lookups.said(type_)
                self._problems.add(said, conjunct.parsed.place(part.node))
                sound = False
        return sound

    def _after(self, waiting: Sequence[tuple[Conjunct, InexactError]]) -> tuple[str, ...]:
        """Those that may wait for the finished match; all others are problems."""
        texts = []
        for conjunct, reason in waiting:
            # On the columns of one row the types are the same as across rows.
            if conjunct.is_plain and not self._check_boolean(conjunct, self._row_type(conjunct)):
                continue
            hindrance = self._hindrance(conjunct)
            if hindrance is None:
                texts.append((conjunct, self._match_text(conjunct)))
            else:
                self._problems.add(
                    f"{conjunct.text} cannot be tested: the engine does not compute "
                    f"{reason.reason}, and Spark cannot test it on finished matches, {hindrance}",
                    conjunct.place,
                    hint=_REMOTE_HINT if conjunct.calls else _HINT,
                )
        lists = {v.name: v.is_list for v in self._names.variables if not v.negated}
        answers = self._session.typer.of_match([text for _, text in texts], lists) if texts else []
        sound = [
            self._guarded(conjunct, text)
            for (conjunct, text), type_ in zip(texts, answers, strict=True)
            if self._check_boolean(conjunct, type_)
        ]
        return tuple(sound)

    def _row_type(self, conjunct: Conjunct) -> Type | str:
        (answer,) = self._session.typer.of_row([conjunct.row_text(conjunct.node)])
        return answer

    def _hindrance(self, conjunct: Conjunct) -> str | None:
        if self._rules.strategy != "any":
            return "because under this strategy it decides which rows a run takes"
        if self._rules.consumption != "reuse":
            return 'because under consumption("consume") matches compete for rows'
        for number in sorted(conjunct.variables):
            variable = self._names.variables[number]
            if variable.negated:
                return f"because {variable.name} is negated"
            if variable.is_list:
                return f"because {variable.name} binds a list"
        if conjunct.is_plain:
            return None
        looks_up = "its value is looked up by more than one variable's row"
        return f"because {looks_up if conjunct.calls else 'it calls a cep.udf'}"

    def _match_text(self, conjunct: Conjunct) -> str:
        return conjunct.text_over(
            conjunct.node,
            lambda reference: quote_name(self._names.variables[reference.variable].name) + ".",
        )

    def _guarded(self, conjunct: Conjunct, text: str) -> str:
        """Not tested where a variable that it concerns is unfilled."""
        open_ = [
            f"{quote_name(self._names.variables[v].name)} IS NULL"
            for v in sorted(conjunct.variables)
            if any(v not in branch.filled() for branch in self._rules.branches)
        ]
        return " OR ".join([*open_, f"({text})"]) if open_ else text
