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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_cep.compiling.looked_up import with_columns
from spark_cep.compiling.names import Names, quoted
from spark_cep.compiling.operands import Inexact, shipped
from spark_cep.compiling.parts import Part, TypeMismatch
from spark_cep.compiling.spans import SyntaxProblem
from spark_cep.compiling.translation import Session, Translation, not_boolean, parts
from spark_cep.udfs.expressions import BOOL, Expression, Type
from spark_cep.udfs.program import Condition

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Shipment
    from spark_cep.compiling.conditions import Conjunct
    from spark_cep.compiling.partition_inference import Rules
    from spark_cep.compiling.problems import Problems


@dataclass(frozen=True)
class Sorted:
    """`masks`: (variable, text) in the order written. `tested`: what the engine tests. `hidden`:
    looked-up columns that `after` reads, with their variables."""

    masks: tuple[tuple[int, str], ...]
    tested: tuple[tuple[Conjunct, Expression], ...]
    after: tuple[str, ...]
    hidden: tuple[tuple[int, str], ...] = ()

    def conditions(self, shipment: Shipment) -> tuple[Condition, ...]:
        return tuple(
            Condition(shipped(expression, shipment), conjunct.text, conjunct.variables)
            for conjunct, expression in self.tested
        )


def sort(
    conjuncts: Sequence[Conjunct],
    names: Names,
    session: Session,
    rules: Rules,
    problems: Problems,
) -> Sorted:
    """Sorts sound conjuncts; type errors and what nobody can evaluate become problems."""
    return _Sorting(names, session, rules, problems).run(conjuncts)


_HINT = (
    "compute what concerns one variable as a column first and compare with = < > + - * / and CASE, "
    "or write the condition as a cep.udf"
)
_REMOTE_HINT = (
    "compare what remote() gives with = < > + - * / and IN, or look it up by one variable; its "
    "value_type may be the type that it is compared in"
)


@dataclass
class _Found:
    """What was sorted so far."""

    masks: list[tuple[int, str]] = field(default_factory=list)
    tested: list[tuple[Conjunct, Expression]] = field(default_factory=list)
    after: list[tuple[Conjunct, Inexact]] = field(default_factory=list)


class _Sorting:
    def __init__(self, names: Names, session: Session, rules: Rules, problems: Problems) -> None:
        self._names = names
        self._session = session
        self._rules = rules
        self._problems = problems
        self._types: dict[str, Type | str] = {}

    def run(self, conjuncts: Sequence[Conjunct]) -> Sorted:
        """What the engine cannot compute on a fetched value is tried again with the value as a
        column, where the key is one variable's."""
        found = _Found()
        while conjuncts:
            conjuncts = self._pass(conjuncts, found)
        hidden = {
            (reference.variable, reference.column.name)
            for conjunct, _ in found.after
            for reference in conjunct.references
            if reference.column and self._session.lookups.of_column(reference.column.name)
        }
        after = self._after(found.after)
        return Sorted(tuple(found.masks), tuple(found.tested), after, tuple(sorted(hidden)))

    def _pass(self, conjuncts: Sequence[Conjunct], sorted_: _Found) -> list[Conjunct]:
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
            except Inexact as reason:
                other = with_columns(conjunct, self._session.lookups, fetched=True)
                if other is conjunct:
                    sorted_.after.append((conjunct, reason))
                else:
                    again.append(other)
        return again

    def _parts(self, conjunct: Conjunct) -> list[Part]:
        try:
            return list(parts(conjunct))
        except SyntaxProblem as problem:
            self._problems.add(problem.message, problem.place)
            return []

    def _learn(self, rows: Sequence[Conjunct], found: Sequence[Part]) -> None:
        """Asks for all types at once; those of plain columns are known."""
        for column in self._names.columns:
            self._types[quoted(column.name)] = column.type
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
            self._mismatch(conjunct, not_boolean(conjunct, conjunct.node, type_))
            return False
        return True

    def _mismatch(self, conjunct: Conjunct, mismatch: TypeMismatch) -> None:
        place = conjunct.parsed.place(mismatch.node)
        self._problems.add(mismatch.message, place, hint=mismatch.hint)

    def _check_parts(self, conjunct: Conjunct, found: Sequence[Part]) -> bool:
        sound = True
        for part in found:
            type_ = self._types[part.text]
            if isinstance(type_, str):
                said = self._session.lookups.said(type_)
                self._problems.add(said, conjunct.parsed.place(part.node))
                sound = False
        return sound

    def _after(self, waiting: Sequence[tuple[Conjunct, Inexact]]) -> tuple[str, ...]:
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
            lambda reference: quoted(self._names.variables[reference.variable].name) + ".",
        )

    def _guarded(self, conjunct: Conjunct, text: str) -> str:
        """Not tested where a variable that it concerns is unfilled."""
        open_ = [
            f"{quoted(self._names.variables[v].name)} IS NULL"
            for v in sorted(conjunct.variables)
            if any(v not in branch.filled() for branch in self._rules.branches)
        ]
        return " OR ".join([*open_, f"({text})"]) if open_ else text
