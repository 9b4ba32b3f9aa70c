"""Where each conjunct is tested: on rows, in the engine, or on finished matches; inferred keys.

    over one variable, no navigation   its mask, in Spark before the shuffle
    exact in the engine                a condition of the engine
    only Spark can evaluate it         on finished matches, where that gives the same matches
    else                               a problem

Testing finished matches is sound only if the conjunct cannot change which other matches exist.
Under skip-till-any with reuse, matches are independent, and a conjunct over positive variables that
bind one row rejects exactly the matches that fail it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
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
    from spark_cep.udfs.program import Branch, Consumption, Negation, Slot, Strategy, Window


@dataclass(frozen=True)
class MatchSemantics:
    """What applies to the whole pattern."""

    branches: tuple[Branch, ...]
    window: Window | None
    strategy: Strategy
    consumption: Consumption


@dataclass(frozen=True)
class ConjunctClassification:
    """`masks`: (variable, SQL) in the order written. `tested`: the engine's conditions. `after`:
    SQL over finished matches. `hidden`: the lookup columns that `after` reads, each with its
    variable."""

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
    """Classifies valid conjuncts. Type errors, and conjuncts that can be tested nowhere, become
    problems."""
    return _ConjunctClassifier(names, session, rules, problems).run(conjuncts)


_HINT = (
    "compute the parts over one variable as columns before matching and combine them with = < > "
    "+ - * / and CASE, or write the condition as a cep.udf"
)
_REMOTE_HINT = (
    "combine the value of remote() with = < > + - * / and IN, look it up by one variable, or "
    "declare a value_type that needs no cast"
)


@dataclass
class _ConjunctLists:
    """The conjuncts classified so far."""

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
        """Classifies the conjuncts. If the engine cannot compute one with a fetched value, it is
        tried again with the value as a column, provided that the key is of one variable."""
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

    def _pass(self, conjuncts: Sequence[Conjunct], lists: _ConjunctLists) -> list[Conjunct]:
        """Classifies conjuncts and returns those to classify again."""
        again = []
        rows = [c for c in conjuncts if c.is_plain and len(c.variables) == 1]
        across = [c for c in conjuncts if c not in rows]
        found = {id(c): self._parts(c) for c in across}
        self._learn(rows, [part for each in found.values() for part in each])
        lists.masks += [mask for c in rows if (mask := self._mask(c)) is not None]
        for conjunct in across:
            if not self._check_parts(conjunct, found[id(conjunct)]):
                continue
            try:
                known = {t: k for t, k in self._types.items() if isinstance(k, Type)}
                translation = Translation(conjunct, self._session, known)
                lists.tested.append((conjunct, translation.condition()))
            except TypeMismatch as mismatch:
                self._mismatch(conjunct, mismatch)
            except SyntaxProblem as problem:
                self._problems.add(problem.message, problem.place)
            except InexactError as reason:
                other = replace_calls(conjunct, self._session.lookups, fetched=True)
                if other is conjunct:
                    lists.after.append((conjunct, reason))
                else:
                    again.append(other)
        return again

    def _parts(self, conjunct: Conjunct) -> list[RowPart]:
        try:
            return list(hoistable_parts(conjunct))
        except SyntaxProblem as problem:
            self._problems.add(problem.message, problem.place)
            return []
        except RecursionError:
            # The translation reports it.
            return []

    def _learn(self, rows: Sequence[Conjunct], found: Sequence[RowPart]) -> None:
        """Gets all types in one call; those of plain columns are known."""
        for column in self._names.columns:
            self._types[quote_name(column.name)] = column.type
        self._types |= self._session.lookups.types()
        texts = [c.row_text(c.node) for c in rows] + [part.text for part in found]
        unknown = list(dict.fromkeys(text for text in texts if text not in self._types))
        if unknown:
            answers = self._session.typer.of_row(unknown)
            self._types.update(zip(unknown, answers, strict=True))

    def _mask(self, conjunct: Conjunct) -> tuple[int, str] | None:
        text = conjunct.row_text(conjunct.node)
        if not self._check_boolean(conjunct, self._types[text]):
            return None
        return next(iter(conjunct.variables)), text

    def _check_boolean(self, conjunct: Conjunct, type_: Type | str) -> bool:
        if isinstance(type_, str):
            self._problems.add(self._session.lookups.name_calls(type_), conjunct.place)
            return False
        if type_ not in {BOOL, Type("null")}:
            self._mismatch(conjunct, not_boolean_error(conjunct, conjunct.node, type_))
            return False
        return True

    def _mismatch(self, conjunct: Conjunct, mismatch: TypeMismatch) -> None:
        place = conjunct.parsed.place(mismatch.node)
        self._problems.add(mismatch.message, place, hint=mismatch.hint)

    def _check_parts(self, conjunct: Conjunct, found: Sequence[RowPart]) -> bool:
        is_valid = True
        for part in found:
            type_ = self._types[part.text]
            if isinstance(type_, str):
                message = self._session.lookups.name_calls(type_)
                self._problems.add(message, conjunct.parsed.place(part.node))
                is_valid = False
        return is_valid

    def _after(self, waiting: Sequence[tuple[Conjunct, InexactError]]) -> tuple[str, ...]:
        """SQL of those that may be tested on finished matches; the others become problems."""
        texts = []
        for conjunct, reason in waiting:
            # Over the columns of one row the types are the same as across rows.
            if conjunct.is_plain and not self._check_boolean(conjunct, self._row_type(conjunct)):
                continue
            obstacle = self._obstacle(conjunct)
            if obstacle is None:
                texts.append((conjunct, self._match_text(conjunct)))
            else:
                self._problems.add(
                    f"{conjunct.text} is not supported: the engine does not compute "
                    f"{reason.reason}, and Spark cannot test it on finished matches {obstacle}",
                    conjunct.place,
                    hint=_REMOTE_HINT if conjunct.calls else _HINT,
                )
        lists = {v.name: v.is_list for v in self._names.variables if not v.negated}
        answers = self._session.typer.of_match([text for _, text in texts], lists) if texts else []
        valid = [
            self._guarded(conjunct, text)
            for (conjunct, text), type_ in zip(texts, answers, strict=True)
            if self._check_boolean(conjunct, type_)
        ]
        return tuple(valid)

    def _row_type(self, conjunct: Conjunct) -> Type | str:
        (answer,) = self._session.typer.of_row([conjunct.row_text(conjunct.node)])
        return answer

    def _obstacle(self, conjunct: Conjunct) -> str | None:
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
        lookup = "the key of its lookup is not of one variable"
        return f"because {lookup if conjunct.calls else 'it calls a cep.udf'}"

    def _match_text(self, conjunct: Conjunct) -> str:
        return conjunct.text_over(
            conjunct.node,
            lambda reference: quote_name(self._names.variables[reference.variable].name) + ".",
        )

    def _guarded(self, conjunct: Conjunct, text: str) -> str:
        """The text, TRUE where one of its variables is unfilled."""
        unfilled = [
            f"{quote_name(self._names.variables[v].name)} IS NULL"
            for v in sorted(conjunct.variables)
            if any(v not in branch.filled() for branch in self._rules.branches)
        ]
        return " OR ".join([*unfilled, f"({text})"]) if unfilled else text


# ---- inferred keys -------------------------------------------------------------------------------


VariablePair = frozenset[int]


@dataclass(frozen=True)
class ColumnEquality:
    """A conjunct that requires two variables to have the same value in a column."""

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
    """The columns that the conditions imply as keys, in the order in which they name them:
    `a.card = b.card AND b.card = c.card` partitions by card.

    All rows of a match then have one card, so partitions by card can be matched separately. This is
    sound only if the equalities connect all rows of every match. Conjuncts on unfilled variables
    are not tested, so each branch is judged by the equalities between variables that it fills:

    - Its filled variables are connected by edges between filled variables; a negated variable need
      not have a row, so it connects nothing. There are at least two of them, so that a row whose
      key is NULL matches nothing.
    - Two members of a repeated group are equal within one iteration only; an edge to a variable
      outside the group connects the iterations. If all filled variables belong to one list there is
      no such edge, and nothing is inferred.
    - Each negated variable has an edge to a filled one: then rows with another key never block.
    - A match may have rows of one alternative only of a repeated OR. All of this holds for each of
      them; then it does for matches with several, which have their other rows in common.

    Under skip-till-next a run takes rows by the conjuncts whose variables are bound so far, and
    keeps them. So each row must be connected to the bound ones when it is taken: all pairs of
    filled variables have an edge, and a plain variable precedes each list.

    Not under strict, where rows of other keys interrupt; not under consume, where tied order keys
    are refused and a finer partition would hide them; not without a time window. Keys are plain
    columns, because a computed key would be evaluated on rows that no condition accepts.
    """
    has_time_window = rules.window is not None and rules.window.kind == "time"
    if not has_time_window or rules.strategy == "strict" or rules.consumption != "reuse":
        return ()
    edges: dict[str, set[VariablePair]] = {}
    for each in equalities:
        edges.setdefault(each.text, set()).add(each.edge)
    return tuple(
        text
        for text, pairs in edges.items()
        if all(_connects(branch, pairs, rules.strategy) for branch in rules.branches)
    )


def _connects(branch: Branch, edges: set[VariablePair], strategy: Strategy) -> bool:
    return all(
        _connects_all(branch, frozenset().union(*filled), edges, strategy)
        for filled in product(*map(_filled_variables, branch.slots))
    )


def _filled_variables(slot: Slot) -> list[frozenset[int]]:
    """The variables of a slot that have rows together, at least."""
    if slot.has_alternatives:
        return [body.filled() for body in slot.bodies]
    return [frozenset(slot.variables)]


def _connects_all(
    branch: Branch, filled: frozenset[int], edges: set[VariablePair], strategy: Strategy
) -> bool:
    if len(filled) < 2 or any(
        slot.is_list and filled <= set(slot.variables) for slot in branch.slots
    ):
        return False
    if not _is_connected(filled, edges):
        return False
    for negation in _negations(branch):
        for negated in negation.variables:
            if not any(frozenset({negated, v}) in edges for v in filled):
                return False
    return strategy != "next" or _connects_when_taken(branch, edges)


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


def _connects_when_taken(branch: Branch, edges: set[VariablePair]) -> bool:
    complete = all(frozenset(pair) in edges for pair in combinations(branch.filled(), 2))
    plain = {i for i, slot in enumerate(branch.slots) if not slot.is_list}
    return complete and all(
        any((before, i) in branch.precedes for before in plain)
        for i, slot in enumerate(branch.slots)
        if slot.is_list
    )


def _negations(branch: Branch) -> Sequence[Negation]:
    bodies = [body for slot in branch.slots for body in slot.bodies]
    inner = [negation for body in bodies for negation in body.negations]
    covered = [negation for others in branch.covered for negation in others]
    return [*branch.negations, *inner, *covered]
