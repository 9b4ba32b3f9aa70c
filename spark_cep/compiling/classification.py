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
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """`masks`: (variable, text) in the order written. `tested`: what the engine tests."""

    masks: tuple[tuple[int, str], ...]
    tested: tuple[tuple[Conjunct, Expression], ...]
    after: tuple[str, ...]

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


class _Sorting:
    def __init__(self, names: Names, session: Session, rules: Rules, problems: Problems) -> None:
        self._names = names
        self._session = session
        self._rules = rules
        self._problems = problems
        self._types: dict[str, Type | str] = {}

    def run(self, conjuncts: Sequence[Conjunct]) -> Sorted:
        rows = [c for c in conjuncts if c.is_plain and len(c.variables) == 1]
        across = [c for c in conjuncts if c not in rows]
        found = {id(c): self._parts(c) for c in across}
        self._learn(rows, [part for each in found.values() for part in each])
        masks = [mask for c in rows if (mask := self._mask(c)) is not None]
        tested, after = [], []
        for conjunct in across:
            if not self._check_parts(conjunct, found[id(conjunct)]):
                continue
            try:
                known = {t: k for t, k in self._types.items() if isinstance(k, Type)}
                translation = Translation(conjunct, self._session, known)
                tested.append((conjunct, translation.condition()))
            except TypeMismatch as mismatch:
                self._mismatch(conjunct, mismatch)
            except SyntaxProblem as problem:
                self._problems.add(problem.message, problem.place)
            except Inexact as reason:
                after.append((conjunct, reason))
        return Sorted(tuple(masks), tuple(tested), self._after(after))

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
            self._problems.add(type_, conjunct.place)
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
                self._problems.add(type_, conjunct.parsed.place(part.node))
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
                    hint="compute what concerns one variable as a column first and compare with "
                    "= < > + - * / and CASE, or write the condition as a cep.udf",
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
        if not conjunct.is_plain:
            return "because it calls a cep.udf"
        return None

    def _match_text(self, conjunct: Conjunct) -> str:
        edits = [
            reference.edit(quoted(self._names.variables[reference.variable].name) + ".")
            for reference in conjunct.references
        ]
        return conjunct.parsed.cut(conjunct.node, edits)

    def _guarded(self, conjunct: Conjunct, text: str) -> str:
        """Not tested where a variable that it concerns is unfilled."""
        open_ = [
            f"{quoted(self._names.variables[v].name)} IS NULL"
            for v in sorted(conjunct.variables)
            if any(v not in branch.filled() for branch in self._rules.branches)
        ]
        return " OR ".join([*open_, f"({text})"]) if open_ else text
