"""Measures of row patterns: readings that the engine evaluates, and Spark SQL over them.

The engine evaluates only what depends on the match: a column at a row, an aggregate, CLASSIFIER,
MATCH_NUMBER. Their calls in the user's text are replaced by names; the rest is Spark's, so every
function of Spark can be used. An aggregate that the engine does not have, or whose argument has
CLASSIFIER in it, becomes a fold of the list of the rows' values (expressions/aggregates.py), or is
computed by Spark over the rows (rows/spark_aggregates.py); on a stream the engine computes it as in
DEFINE (rows/stream_aggregates.py).

All aggregates but those of Spark ignore NULL, so FILTER makes their argument NULL on other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.aggregates import (
    NAVIGATIONS,
    aggregate_rule,
    fold_list_sql,
    sorted_values_sql,
)
from spark_cep.expressions.conditions import TypeMismatch
from spark_cep.expressions.names import quote_name
from spark_cep.expressions.operands import InexactError
from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.schema import NOT_OF_ONE_ROW
from spark_cep.expressions.syntax import Edit, SyntaxProblem, apply_edits
from spark_cep.expressions.types import aggregate_type, name_of
from spark_cep.rows.calls import function_of
from spark_cep.rows.compiled import RowMeasure, RowReading, reading_name
from spark_cep.rows.earlier import expand_earlier_measures
from spark_cep.rows.leaves import LABEL_NUMBER, ConditionContext, classifier_at, read_at
from spark_cep.rows.spark_aggregates import (
    AggregateSample,
    PythonGroup,
    SparkAggregate,
    aggregate_name,
    check_spark_aggregates,
    is_of_python,
    order_hint,
    presence_name,
    with_user_texts,
)
from spark_cep.rows.stream_aggregates import ON_STREAM, StreamAggregates
from spark_cep.rows.texts import (
    ResolvedRowText,
    RowPosition,
    RowScope,
    resolve_text,
    session_calls,
    span_of_call,
)
from spark_cep.udfs.expressions import BIGINT, BOOL, Type
from spark_cep.udfs.row_program import Aggregate, MatchNumber

if TYPE_CHECKING:
    from spark_cep.expressions.names import Reference
    from spark_cep.expressions.schema import ColumnRequests, Typer
    from spark_cep.expressions.translation import CompilerSession
    from spark_cep.rows.calls import RowCall
    from spark_cep.rows.conjuncts import VariableGuards
    from spark_cep.rows.texts import RowTypes
    from spark_cep.udfs.expressions import Expression


_LABEL = "CAST('' AS STRING)"
# max_by and min_by with more return a list.
_BEST_ARGUMENTS = 2
_LISTED = {"listagg", "string_agg"}
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
    whose type Spark can check. `session`: of a stream, whose aggregates the engine computes."""

    shipment: ColumnRequests
    types: RowTypes
    guarding: VariableGuards
    session: CompilerSession | None = None
    found: list[RowReading] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    aggregates: list[SparkAggregate] = field(default_factory=list)
    aggregate_samples: list[AggregateSample] = field(default_factory=list)

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

    def fold(self, expression: Expression) -> int:
        """An aggregate that is written as in DEFINE."""
        return self._add(RowReading(expression), f"CAST(NULL AS {name_of(expression.type)})")

    def list_of(self, rows: Aggregate, text: str | None) -> int:
        """The values of `text` at these rows; None: their labels."""
        if text is None:
            label = replace(rows, name="list", type=LABEL_NUMBER)
            return self._add(RowReading(label, shape="list", label=True), f"array({_LABEL})")
        column = self._column(rows, text)
        values = replace(rows, name="list", column=column, type=self._type(text))
        return self._add(RowReading(values, column, "list"), f"array({text})")

    def spark_aggregate(self, aggregate: SparkAggregate, sample: AggregateSample) -> str:
        """The name of an aggregate that Spark computes."""
        if aggregate not in self.aggregates:
            self.aggregates.append(aggregate)
            self.aggregate_samples.append(sample)
        return aggregate_name(self.aggregates.index(aggregate))

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
    scope = _with_session_aggregates(wanted.measures, scope, readings.types)
    measures = expand_earlier_measures(wanted.measures, scope)
    texts = [(name, text, resolve_text(text, scope, problems)) for name, text in measures]
    bodies = [
        (name, text, _RowMeasureBody(found, readings))
        for name, text, found in texts
        if found is not None
    ]
    readings.types.learn(part for _, _, body in bodies for part in body.parts())
    before = len(problems.found)
    found, samples, folds = [], [], []
    for name, text, body in bodies:
        if not body.is_valid(problems):
            continue
        sql = body.sql(reading_name)
        if wanted.may_be_unmatched and name not in wanted.folds:
            sql = f"CASE WHEN {reading_name(readings.number())} IS NOT NULL THEN {sql} END"
        found.append(RowMeasure(name, sql, text))
        samples.append((name, text, body.sql(lambda number: readings.samples[number])))
        folds.append(body.folds)
    if len(problems.found) == before and (
        not readings.aggregates
        or check_spark_aggregates(readings.aggregate_samples, typer, problems)
    ):
        _check_types(samples, folds, readings, typer, problems)
    return tuple(found)


def _with_session_aggregates(
    measures: Sequence[tuple[str, str]], scope: RowScope, types: RowTypes
) -> RowScope:
    """The scope with the aggregates that are not Spark's own but of the session."""
    calls = [each for _, text in measures for each in session_calls(text, scope)]
    types.learn(each.sql for each in calls if not each.inner)
    found: set[str] = set()
    in_python: set[str] = set()
    # A call is longer than those inside it.
    for call in sorted(calls, key=lambda each: len(each.sql)):
        if call.inner & found:
            continue
        type_ = types.of(call.sql)
        if type_ == NOT_OF_ONE_ROW:
            # Spark has FILTER for all aggregates but those.
            type_ = types.of(f"{call.sql} FILTER (WHERE TRUE)")
            found.add(call.name)
        if is_of_python(type_):
            found.add(call.name)
            in_python.add(call.name)
    return replace(scope, aggregates=frozenset(found), python_aggregates=frozenset(in_python))


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


def _check_types(
    samples: Sequence[tuple[str, str, str]],
    folds: Sequence[Callable[[], list[AggregateSample]]],
    readings: RowReadings,
    typer: Typer,
    problems: Problems,
) -> None:
    """`folds`: the aggregates of each measure that are written as functions of arrays. If one of
    them is wrong, Spark is asked what it says of the aggregate."""
    answers = typer.of_row([sample for _, _, sample in samples]) if samples else []
    for (name, text, _), folds_of, answer in zip(samples, folds, answers, strict=True):
        if isinstance(answer, str):
            within = folds_of()
            asked = [(f"__cep_asked{place}", each.sql) for place, each in enumerate(within)]
            replies = typer.add_aggregates(asked) if asked else []
            # Before 4.0 Spark has no listagg.
            wrong = [
                (each, reply)
                for each, reply in zip(within, replies, strict=True)
                if reply and "routine" not in reply
            ]
            for each, reply in wrong:
                problems.add(reply, each.place, hint=order_hint(reply))
            if wrong:
                continue
            message = with_user_texts(answer, readings.aggregate_samples)
            said = message.replace("CAST( AS STRING)", "CLASSIFIER()")
            problems.add(f"the measure {name}: {said}", Place.whole(text))


class _RowMeasureBody:
    """One measure, which is rewritten over the readings."""

    def __init__(self, text: ResolvedRowText, readings: RowReadings) -> None:
        self._text = text
        self._parsed = text.parsed
        self._readings = readings
        session = readings.session
        self._on_stream = None
        if session is not None:
            around = ConditionContext(readings.types, readings.guarding, where=ON_STREAM)
            self._on_stream = StreamAggregates(text, session, around, readings.shipment)

    def parts(self) -> list[str]:
        """The texts over an input row whose types are needed. A part that cannot be cut is a
        problem when it is met again."""
        found = []
        for call in self._text.calls.calls.values():
            if call.kind in {"physical", "logical", "aggregate"} and not self._is_of_spark(call):
                with suppress(SyntaxProblem):
                    found += [self._row_sql(o) for o in call.operands if self._is_over_row(o)]
        return found

    def folds(self) -> list[AggregateSample]:
        """The aggregates over one row's columns that become functions of arrays, as Spark has
        them."""
        return [
            AggregateSample(
                f"{call.name}({', '.join(map(self._row_sql, call.arguments))})",
                self._parsed.place(call.node),
            )
            for call in self._text.calls.calls.values()
            if call.kind == "aggregate"
            and not self._is_of_spark(call)
            and aggregate_rule(call.name).engine is None
            and all(map(self._is_over_row, call.arguments))
        ]

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
            (each.start, each.end, self._as_field(each, show(self._reference(each))))
            for each in self._text.references
            if start <= each.start < end and self._text.calls.around[id(each.node)] is inside
        ]
        edits += [
            (each.start, each.end, _as_field(each.node, self._call(each, show)))
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

    def _as_field(self, reference: Reference, sql: str) -> str:
        """The SQL in the place of a column. Fields behind it, b.addr.city, have their names."""
        is_whole = reference.end == self._parsed.span(reference.node)[1]
        return _as_field(reference.node, sql) if is_whole else sql

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
        if call.name in NAVIGATIONS:
            self._check_condition(call, rows)
            return f"({self._chosen_row(call, replace(rows, distinct=False), show)})"
        if self._is_of_spark(call):
            return self._by_other(call, rows, show)
        self._check_condition(call, rows)
        if self._counts_rows(call):
            return self._row_count(call, replace(rows, distinct=False), show)
        how = aggregate_rule(call.name)
        if how.engine is not None and len(call.arguments) == 1:
            argument = call.arguments[0]
            if all(map(self._is_over_row, call.operands)):
                text = how.argument.format(self._row_sql(argument))
                type_ = self._check_type(argument, text)
                result = aggregate_type(how.engine, type_)
                if result is not None and not (call.distinct and type_.kind == "other"):
                    own = replace(rows, name=how.engine, type=result)
                    return show(self._readings.aggregate(own, self._filtered(call, text)))
        try:
            return f"({self._fold(call, rows, show)})"
        except InexactError:
            return self._by_other(call, rows, show)

    def _is_of_spark(self, call: RowCall) -> bool:
        """Whether only Spark can compute the aggregate."""
        if call.kind != "aggregate":
            return False
        is_best = call.name in {"max_by", "min_by"} and len(call.arguments) > _BEST_ARGUMENTS
        is_ordered = bool(call.order) and call.name not in _LISTED
        return aggregate_rule(call.name).by_spark or is_ordered or is_best

    def _counts_rows(self, call: RowCall) -> bool:
        """count(*), count(b.*), count()"""
        return not call.arguments or not self._is_value(call.arguments[0])

    def _row_count(self, call: RowCall, rows: Aggregate, show: ReadingWriter) -> str:
        if call.filter is None:
            return show(self._readings.aggregate(rows, None))
        if self._is_over_row(call.filter):
            return show(self._readings.aggregate(rows, self._filtered(call, "1")))
        condition = self._element(call.filter, rows, show)
        array = self._mapped(rows, f"CASE WHEN {condition} THEN 1 END", show)
        return f"({fold_list_sql('count', array, None)})"

    # ---- FILTER ----------------------------------------------------------------------------------

    def _check_condition(self, call: RowCall, rows: Aggregate) -> None:
        if call.filter is None:
            return
        type_ = self._element_type(call.filter, replace(rows, distinct=False))
        if type_.kind not in {"bool", "null"}:
            raise TypeMismatch(
                f"the condition of FILTER must be TRUE or FALSE, but this is {name_of(type_)}",
                call.filter,
                "compare it with something",
            )

    def _filtered(self, call: RowCall, text: str) -> str:
        """A text over an input row, NULL where FILTER rejects the row."""
        if call.filter is None:
            return text
        return f"CASE WHEN {self._row_sql(call.filter)} THEN {text} END"

    def _is_value(self, node: exp.Expr) -> bool:
        return not (isinstance(node, exp.Star) or self._is_rows(node))

    def _check_type(self, node: exp.Expr, text: str) -> Type:
        found = self._readings.types.of(text)
        if isinstance(found, str):
            raise TypeMismatch(found, node)
        return found

    # ---- folds of lists --------------------------------------------------------------------------

    def _chosen_row(self, call: RowCall, rows: Aggregate, show: ReadingWriter) -> str:
        """first_value(x) IGNORE NULLS, any_value(x) FILTER (WHERE ...)"""
        place = 1 if NAVIGATIONS[call.name] == "first" else -1
        (argument,) = call.arguments
        if call.ignores_nulls:
            array = self._array(call.arguments, call, rows, show)
            self._element_type(argument, rows)
            return f"try_element_at(array_compact({array}), {place})"
        assert call.filter is not None
        value = self._element(argument, rows, show)
        self._element_type(argument, rows)
        condition = self._element(call.filter, rows, show)
        array = self._mapped(rows, f"CASE WHEN {condition} THEN struct({value} AS x) END", show)
        return f"try_element_at(array_compact({array}), {place}).x"

    def _fold(self, call: RowCall, rows: Aggregate, show: ReadingWriter) -> str:
        all_rows = replace(rows, distinct=False)
        how = aggregate_rule(call.name)
        if call.name in {"max_by", "min_by"}:
            x, y = (self._element(each, all_rows, show) for each in call.arguments)
            if call.filter is not None:
                y = f"CASE WHEN {self._element(call.filter, all_rows, show)} THEN {y} END"
            array = self._mapped(all_rows, f"named_struct('x', {x}, 'y', {y})", show)
            return fold_list_sql(call.name, array, None)
        separator = None
        arguments = list(call.arguments)
        if call.name in _LISTED and len(arguments) > 1:
            separator = self._parsed.cut(arguments.pop())
        if call.order:
            array = self._sorted_values(arguments[0], call, all_rows, show)
            return fold_list_sql(call.name, array, None, separator)
        array = self._array(arguments, call, all_rows, show)
        if call.distinct:
            array = f"array_distinct({array})"
        if call.ignores_nulls is False:
            return array if call.name != "collect_set" else f"array_distinct({array})"
        type_ = self._element_type(arguments[0], all_rows) if how.engine else Type("other")
        return fold_list_sql(call.name, array, type_, separator)

    def _array(
        self, arguments: Sequence[exp.Expr], call: RowCall, rows: Aggregate, show: ReadingWriter
    ) -> str:
        """The values of an aggregate's arguments; of several, structs where none is NULL."""
        how = aggregate_rule(call.name)
        clauses = [] if call.filter is None else [call.filter]
        if len(arguments) == 1 and all(map(self._is_over_row, [*arguments, *clauses])):
            text = how.argument.format(self._row_sql(arguments[0]))
            self._check_type(arguments[0], text)
            return show(self._readings.list_of(rows, self._filtered(call, text)))
        elements = [self._element(each, rows, show) for each in arguments]
        conditions = [self._element(each, rows, show) for each in clauses]
        if len(elements) == 1:
            element = how.argument.format(elements[0])
            if conditions:
                element = f"CASE WHEN {conditions[0]} THEN {element} END"
            return self._mapped(rows, element, show)
        known = " AND ".join([*conditions, *(f"({each}) IS NOT NULL" for each in elements)])
        fields = ", ".join(elements)
        return self._mapped(rows, f"CASE WHEN {known} THEN struct({fields}) END", show)

    def _sorted_values(
        self, value: exp.Expr, call: RowCall, rows: Aggregate, show: ReadingWriter
    ) -> str:
        """The values of listagg in the order of WITHIN GROUP."""
        keys = [each.this for each in call.order]
        if call.distinct and keys != [value]:
            raise TypeMismatch(
                f"{call.name}(DISTINCT ...) can be ordered by its own values only",
                call.order[0],
                f"write ORDER BY {self._parsed.text_of(value)}, or leave out DISTINCT",
            )
        shown = self._element(value, rows, show)
        if call.filter is not None:
            shown = f"CASE WHEN {self._element(call.filter, rows, show)} THEN {shown} END"
        fields = [f"'v', {shown}"] + [
            f"'k{place}', {self._element(key, rows, show)}" for place, key in enumerate(keys)
        ]
        array = self._mapped(rows, f"named_struct({', '.join(fields)})", show)
        directions = [
            (bool(each.args.get("desc")), bool(each.args["nulls_first"])) for each in call.order
        ]
        return sorted_values_sql(array, directions, distinct=call.distinct)

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
                shown = self._as_field(each, f"get({values}, __cep_i)")
                edits.append((each.start, each.end, shown))
        for inner in self._text.calls.below(node):
            if inner.kind == "number":
                shown = show(self._readings.number())
            else:
                shown = f"get({show(self._readings.list_of(rows, None))}, __cep_i)"
            edits.append((inner.start, inner.end, _as_field(inner.node, shown)))
        return f"({apply_edits(self._parsed.text, start, end, edits)})"

    def _element_type(self, node: exp.Expr, rows: Aggregate) -> Type:
        """The type of an argument, which may contain calls."""
        if self._is_over_row(node):
            return self._check_type(node, self._row_sql(node))

        def sampled(number: int) -> str:
            return self._readings.samples[number]

        array = self._mapped(rows, self._element(node, rows, sampled), sampled)
        return self._check_type(node, f"get({array}, 0)")

    # ---- aggregates of Spark ---------------------------------------------------------------------

    def _by_other(self, call: RowCall, rows: Aggregate, show: ReadingWriter) -> str:
        """An aggregate that only Spark has in a batch."""
        if self._on_stream is None:
            return self._by_spark(call, rows)
        sample = self._parsed.cut(call.node, self._sampled(call))
        found = self._on_stream.values(call, sample, final=rows.final)
        shown = [show(self._readings.fold(each)) for each in found.parts]
        if not found.is_array:
            return shown[0]
        return f"(CASE WHEN {shown[0]} IS NOT NULL THEN array({', '.join(shown)}) END)"

    def _sampled(self, call: RowCall) -> list[Edit]:
        """The edits that make the call one over input rows."""
        start, end = self._parsed.span(call.node)
        columns = [
            each.edit()
            for each in self._text.references
            if start <= each.start < end and each.column is not None
        ]
        return columns + [
            (each.start, each.end, self._varying("1L" if each.kind == "number" else "''"))
            for each in self._text.calls.below(call.node)
            if each is not call
        ]

    def _by_spark(self, call: RowCall, rows: Aggregate) -> str:
        """The user's text of the aggregate over the elements of lists."""
        rows = replace(rows, distinct=False)
        in_python = call.name in self._text.scope.python_aggregates
        if in_python:
            self._check_python_aggregate(call, rows)
        edits: list[Edit] = []
        readings: list[int] = []
        lists: list[int] = []
        start, end = self._parsed.span(call.node)
        for each in self._text.references:
            if start <= each.start < end and each.column is not None:
                lists.append(self._readings.list_of(rows, each.edit()[2]))
                edits.append((each.start, each.end, reading_name(lists[-1])))
        for inner in self._text.calls.below(call.node):
            if inner is call:
                continue
            if inner.kind == "number":
                readings.append(self._readings.number())
                edits.append((inner.start, inner.end, reading_name(readings[-1])))
            else:
                lists.append(self._readings.list_of(rows, None))
                edits.append((inner.start, inner.end, reading_name(lists[-1])))
        if not lists:
            lists.append(self._readings.list_of(rows, None))
        sampled = self._sampled(call)
        present, place = presence_name(lists[0]), self._parsed.place(call.node)
        read = tuple(dict.fromkeys((*lists, *readings)))
        if in_python:
            condition = self._condition(call, present, edits)
            self._parsed.cut(call.node)
            start, end = span_of_call(self._parsed, function_of(call.node))
            aggregate = SparkAggregate(
                apply_edits(self._parsed.text, start, end, edits),
                read, lists[0], PythonGroup(call.name, condition),
            )  # fmt: skip
            sample = AggregateSample(apply_edits(self._parsed.text, start, end, sampled), place)
        else:
            aggregate = SparkAggregate(self._only_where(call, present, edits), read, lists[0])
            sample = AggregateSample(self._only_where(call, "TRUE", sampled), place)
        return self._readings.spark_aggregate(aggregate, sample)

    def _check_python_aggregate(self, call: RowCall, rows: Aggregate) -> None:
        if call.distinct:
            raise TypeMismatch(
                f"{call.name} is a function in Python, for which Spark has no DISTINCT",
                call.node,
                "leave out DISTINCT, and drop the duplicates in the function: "
                "values.drop_duplicates()",
            )
        self._check_condition(call, rows)

    def _condition(self, call: RowCall, present: str, edits: Sequence[Edit]) -> str:
        """Which elements an aggregate is over."""
        if call.filter is None:
            return present
        return f"{present} AND ({self._parsed.cut(call.filter, edits)})"

    def _only_where(self, call: RowCall, present: str, edits: Sequence[Edit]) -> str:
        """The text of an aggregate over the rows where `present` and its FILTER are true."""
        if call.filter is None:
            return f"{self._parsed.cut(call.node, edits)} FILTER (WHERE {present})"
        self._parsed.cut(call.filter)
        start, end = self._parsed.span(call.filter)
        clauses = [(start, start, f"{present} AND ("), (end, end, ")")]
        return self._parsed.cut(call.node, [*edits, *clauses])

    def _varying(self, value: str) -> str:
        """A value that is not the same for all rows, as Spark demands it of some arguments."""
        column = quote_name(self._text.scope.names.columns[0].name)
        return f"(CASE WHEN {column} IS NULL THEN {value} END)"


def _as_field(node: exp.Expr, sql: str) -> str:
    """The SQL in the place of a node. In struct(...) it has the name that Spark gives the field:
    that of a column, else its place."""
    around = node.parent
    if not isinstance(around, exp.Anonymous) or around.name.lower() != "struct":
        return sql
    place = next(at for at, each in enumerate(around.expressions, 1) if each is node)
    name = node.name if isinstance(node, exp.Column) else f"col{place}"
    return f"{sql} AS {quote_name(name)}"
