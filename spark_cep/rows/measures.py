"""Measures of row patterns: readings that the engine evaluates, and Spark SQL over them.

The engine evaluates only what depends on the match: a column at a row, an aggregate, CLASSIFIER,
MATCH_NUMBER. Their calls in the user's text are replaced by names; the rest is Spark's, so every
function of Spark can be used. An aggregate that the engine does not have, or whose argument has
CLASSIFIER in it, becomes a fold of the list of the rows' values (expressions/aggregates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.aggregates import AGGREGATES, fold_list_sql
from spark_cep.expressions.conditions import TypeMismatch
from spark_cep.expressions.operands import InexactError
from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.syntax import Edit, SyntaxProblem, apply_edits
from spark_cep.expressions.types import aggregate_type, name_of
from spark_cep.rows.compiled import RowMeasure, RowReading, reading_name
from spark_cep.rows.leaves import LABEL_NUMBER, classifier_at, read_at
from spark_cep.rows.texts import ResolvedRowText, RowPosition, RowScope, resolve_text
from spark_cep.udfs.expressions import BIGINT, BOOL, Type
from spark_cep.udfs.row_program import Aggregate, MatchNumber

if TYPE_CHECKING:
    from spark_cep.expressions.names import Reference
    from spark_cep.expressions.schema import ColumnRequests, Typer
    from spark_cep.rows.calls import RowCall
    from spark_cep.rows.conjuncts import VariableGuards
    from spark_cep.rows.texts import RowTypes


_LABEL = "CAST('' AS STRING)"
# The SQL of a reading by its number: its name, or a sample of its type over an input row.
ReadingWriter = Callable[[int], str]


@dataclass(frozen=True)
class MeasureRequest:
    """The user's measures. `may_be_unmatched`: the answer has unmatched rows, where every measure
    is NULL, except for those in `folds`."""

    measures: Sequence[tuple[str, str]]
    may_be_unmatched: bool = False
    folds: frozenset[str] = frozenset()


@dataclass
class RowReadings:
    """Collects what the engine evaluates, each reading once. `samples`: for each reading SQL over
    an input row of the same type. A measure with samples in place of its readings is an expression
    whose type Spark can check."""

    shipment: ColumnRequests
    types: RowTypes
    guarding: VariableGuards
    found: list[RowReading] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)

    def value(self, row: RowPosition, text: str) -> int:
        column = self.shipment.column(self.guarding.at(row, text))
        reading = RowReading(read_at(row, column, self._type(text)), column)
        return self._add(reading, f"({text})")

    def present(self, row: RowPosition) -> int:
        return self._add(RowReading(read_at(row, None, BOOL)), "TRUE")

    def label(self, row: RowPosition) -> int:
        return self._add(RowReading(classifier_at(row), label=True), _LABEL)

    def number(self) -> int:
        return self._add(RowReading(MatchNumber(BIGINT)), "1L")

    def aggregate(self, aggregate: Aggregate, text: str | None) -> int:
        """An aggregate of the engine; `text` None: it counts rows."""
        column = None if text is None else self._column(aggregate, text)
        keeps = aggregate.name in {"min", "max"}
        sample = f"({text})" if keeps else f"CAST(NULL AS {name_of(aggregate.type)})"
        reading = RowReading(replace(aggregate, column=column), column if keeps else None)
        return self._add(reading, sample)

    def list_of(self, rows: Aggregate, text: str | None) -> int:
        """The values of `text` at these rows; None: their labels."""
        if text is None:
            label = replace(rows, name="list", type=LABEL_NUMBER)
            return self._add(RowReading(label, shape="list", label=True), f"array({_LABEL})")
        column = self._column(rows, text)
        values = replace(rows, name="list", column=column, type=self._type(text))
        return self._add(RowReading(values, column, "list"), f"array({text})")

    def _column(self, rows: Aggregate, text: str) -> int:
        return self.shipment.column(self.guarding.among(rows.variables, text))

    def _type(self, text: str) -> Type:
        found = self.types.of(text)
        return Type("other") if isinstance(found, str) else found

    def _add(self, reading: RowReading, sample: str) -> int:
        if reading not in self.found:
            self.found.append(reading)
            self.samples.append(sample)
        return self.found.index(reading)


def compile_row_measures(
    wanted: MeasureRequest, scope: RowScope, readings: RowReadings, typer: Typer, problems: Problems
) -> tuple[RowMeasure, ...]:
    """The measures over `readings`, which are added; invalid measures become problems."""
    _check_names(wanted.measures, problems)
    texts = [(name, text, resolve_text(text, scope, problems)) for name, text in wanted.measures]
    bodies = [
        (name, text, _RowMeasureBody(found, readings))
        for name, text, found in texts
        if found is not None
    ]
    readings.types.learn(part for _, _, body in bodies for part in body.parts())
    before = len(problems.found)
    found, samples = [], []
    for name, text, body in bodies:
        if not body.is_valid(problems):
            continue
        sql = body.sql(reading_name)
        if wanted.may_be_unmatched and name not in wanted.folds:
            sql = f"CASE WHEN {reading_name(readings.number())} IS NOT NULL THEN {sql} END"
        found.append(RowMeasure(name, sql, text))
        samples.append((name, text, body.sql(lambda number: readings.samples[number])))
    if len(problems.found) == before:
        _check_types(samples, typer, problems)
    return tuple(found)


def _check_names(measures: Sequence[tuple[str, str]], problems: Problems) -> None:
    seen: set[str] = set()
    for name, _ in measures:
        if name.casefold() in seen:
            problems.add(
                f"the measure {name} is defined twice",
                Place.whole(name),
                hint="give it another name; case does not matter",
            )
        seen.add(name.casefold())


def _check_types(samples: Sequence[tuple[str, str, str]], typer: Typer, problems: Problems) -> None:
    answers = typer.of_row([sample for _, _, sample in samples]) if samples else []
    for (name, text, _), answer in zip(samples, answers, strict=True):
        if isinstance(answer, str):
            problems.add(f"the measure {name}: {answer}", Place.whole(text))


class _RowMeasureBody:
    """One measure, which is rewritten over the readings."""

    def __init__(self, text: ResolvedRowText, readings: RowReadings) -> None:
        self._text = text
        self._parsed = text.parsed
        self._readings = readings

    def parts(self) -> list[str]:
        """The texts over an input row whose types are needed."""
        found = []
        for call in self._text.calls.calls.values():
            if call.kind in {"physical", "logical", "aggregate"}:
                found += [self._row_sql(each) for each in call.arguments if self._is_over_row(each)]
        return found

    def is_valid(self, problems: Problems) -> bool:
        """Whether it can be rewritten; errors become problems."""
        try:
            self.sql(reading_name)
        except TypeMismatch as mismatch:
            place = self._parsed.place(mismatch.node)
            problems.add(mismatch.message, place, hint=mismatch.hint)
        except SyntaxProblem as problem:
            problems.add(problem.message, problem.place)
        else:
            return True
        return False

    def sql(self, show: ReadingWriter) -> str:
        return self._rewrite(self._parsed.root, None, show)

    # ---- texts -----------------------------------------------------------------------------------

    def _rewrite(self, node: exp.Expr, inside: RowCall | None, show: ReadingWriter) -> str:
        """The node's text with readings in place of the names and calls directly in `inside`."""
        start, end = self._extent(node)
        edits = [
            (each.start, each.end, show(self._reference(each)))
            for each in self._text.references
            if start <= each.start < end and self._text.calls.around[id(each.node)] is inside
        ]
        edits += [
            (each.start, each.end, self._call(each, show))
            for each in self._text.calls.calls.values()
            if start <= each.start < end and each.inside is inside
        ]
        return apply_edits(self._parsed.text, start, end, edits)

    def _extent(self, node: exp.Expr) -> tuple[int, int]:
        if node is self._parsed.root:
            return 0, len(self._parsed.text)
        call = self._text.calls.at(node)
        return self._parsed.span(node) if call is None else (call.start, call.end)

    def _row_sql(self, node: exp.Expr) -> str:
        """The text over the columns of an input row."""
        start, end = self._extent(node)
        edits = [
            each.edit()
            for each in self._text.references
            if start <= each.start < end and each.column is not None
        ]
        return self._parsed.cut(node, edits)

    def _is_over_row(self, node: exp.Expr) -> bool:
        """Whether Spark can evaluate it on a row: it contains no call and is not `*`."""
        is_star = isinstance(node, exp.Star) or self._is_rows(node)
        return not is_star and not self._text.calls.below(node)

    def _is_rows(self, node: exp.Expr) -> bool:
        """Whether the node is b.* or b as the argument of count."""
        known = {id(each.node) for each in self._text.references}
        return isinstance(node, exp.Column) and id(node) not in known

    # ---- readings --------------------------------------------------------------------------------

    def _reference(self, reference: Reference) -> int:
        assert reference.column is not None
        text = reference.edit()[2]
        return self._readings.value(self._text.row_of(reference), text)

    def _call(self, call: RowCall, show: ReadingWriter) -> str:
        if call.kind == "number":
            return show(self._readings.number())
        if call.kind == "classifier":
            return show(self._readings.label(self._text.row_of_label(call)))
        if call.kind == "aggregate":
            return self._aggregate(call, show)
        argument = call.arguments[0]
        inner = self._text.calls.at(argument.unnest())
        if inner is not None:
            return self._call(inner, show)
        row = self._row(call)
        if self._is_over_row(argument):
            text = self._row_sql(argument)
            self._check_type(argument, text)
            return show(self._readings.value(row, text))
        present = show(self._readings.present(row))
        return f"CASE WHEN {present} THEN {self._rewrite(argument, call, show)} END"

    def _row(self, call: RowCall) -> RowPosition:
        number = self._text.about[id(call.node)]
        return self._text.scope.row(number, [call, *call.around()])

    def _aggregate(self, call: RowCall, show: ReadingWriter) -> str:
        rows = Aggregate(
            "count", None, BIGINT, self._text.rows_of(call), call.distinct,
            self._text.scope.is_final(call),
        )  # fmt: skip
        if not call.arguments or not self._is_value(call.arguments[0]):
            return show(self._readings.aggregate(replace(rows, distinct=False), None))
        how = AGGREGATES[call.name]
        if how.engine is not None and len(call.arguments) == 1:
            argument = call.arguments[0]
            if self._is_over_row(argument):
                text = how.argument.format(self._row_sql(argument))
                type_ = self._check_type(argument, text)
                result = aggregate_type(how.engine, type_)
                if result is not None and not (call.distinct and type_.kind == "other"):
                    own = replace(rows, name=how.engine, type=result)
                    return show(self._readings.aggregate(own, text))
        return f"({self._fold(call, rows, show)})"

    def _is_value(self, node: exp.Expr) -> bool:
        return not (isinstance(node, exp.Star) or self._is_rows(node))

    def _check_type(self, node: exp.Expr, text: str) -> Type:
        found = self._readings.types.of(text)
        if isinstance(found, str):
            raise TypeMismatch(found, node)
        return found

    # ---- folds of lists --------------------------------------------------------------------------

    def _fold(self, call: RowCall, rows: Aggregate, show: ReadingWriter) -> str:
        all_rows = replace(rows, distinct=False)
        how = AGGREGATES[call.name]
        if call.name in {"max_by", "min_by"}:
            x, y = (self._element(each, all_rows, show) for each in call.arguments)
            array = self._mapped(all_rows, f"named_struct('x', {x}, 'y', {y})", show)
            return fold_list_sql(call.name, array, None)
        separator = None
        arguments = list(call.arguments)
        if call.name in {"listagg", "string_agg"} and len(arguments) > 1:
            separator = self._parsed.cut(arguments.pop())
        array = self._array(arguments, call, all_rows, show)
        if call.distinct:
            array = f"array_distinct({array})"
        type_ = self._element_type(arguments[0], all_rows) if how.engine else Type("other")
        try:
            return fold_list_sql(call.name, array, type_, separator)
        except InexactError as inexact:
            raise TypeMismatch(
                f"{call.name}() does not take {inexact.reason.rpartition(' of ')[2]}",
                call.node,
                "use a number; cast a decimal to fewer digits: CAST(... AS DECIMAL(18,4))",
            ) from None

    def _array(
        self, arguments: Sequence[exp.Expr], call: RowCall, rows: Aggregate, show: ReadingWriter
    ) -> str:
        """The values of an aggregate's arguments; of several, structs where none is NULL."""
        how = AGGREGATES[call.name]
        if len(arguments) == 1 and self._is_over_row(arguments[0]):
            text = how.argument.format(self._row_sql(arguments[0]))
            self._check_type(arguments[0], text)
            return show(self._readings.list_of(rows, text))
        elements = [self._element(each, rows, show) for each in arguments]
        if len(elements) == 1:
            return self._mapped(rows, how.argument.format(elements[0]), show)
        known = " AND ".join(f"({each}) IS NOT NULL" for each in elements)
        fields = ", ".join(elements)
        return self._mapped(rows, f"CASE WHEN {known} THEN struct({fields}) END", show)

    def _mapped(self, rows: Aggregate, element: str, show: ReadingWriter) -> str:
        """`element`, which reads lists at index __cep_i, for each of the rows."""
        labels = show(self._readings.list_of(rows, None))
        return f"transform({labels}, (__cep_n, __cep_i) -> {element})"

    def _element(self, node: exp.Expr, rows: Aggregate, show: ReadingWriter) -> str:
        """The node at index __cep_i of an aggregate's rows."""
        start, end = self._parsed.span(node)
        edits: list[Edit] = []
        for each in self._text.references:
            if start <= each.start < end and each.column is not None:
                values = show(self._readings.list_of(rows, each.edit()[2]))
                edits.append((each.start, each.end, f"get({values}, __cep_i)"))
        for inner in self._text.calls.below(node):
            if inner.kind == "number":
                shown = show(self._readings.number())
            else:
                shown = f"get({show(self._readings.list_of(rows, None))}, __cep_i)"
            edits.append((inner.start, inner.end, shown))
        return f"({apply_edits(self._parsed.text, start, end, edits)})"

    def _element_type(self, node: exp.Expr, rows: Aggregate) -> Type:
        """The type of an argument, which may contain calls."""
        if self._is_over_row(node):
            return self._check_type(node, self._row_sql(node))

        def sampled(number: int) -> str:
            return self._readings.samples[number]

        array = self._mapped(rows, self._element(node, rows, sampled), sampled)
        return self._check_type(node, f"get({array}, 0)")
