"""Aggregates that the engine computes: those of DEFINE, and of measures those that only Spark has
in a batch, where a stream's answer cannot be grouped.

of columns                     the engine's aggregate of a column that Spark computes
with CLASSIFIER, MATCH_NUMBER  of an expression that the engine evaluates on each row
others that can be folded      in Python, along the path (udfs/rows/folds.py)
only Spark has it              refused: a condition decides which rows match
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from sqlglot import exp

from spark_cep.expressions.aggregates import (
    AGGREGATES,
    NAVIGATIONS,
    AggregateRule,
    aggregate_rule,
)
from spark_cep.expressions.conditions import Guards, TypeMismatch, row_part
from spark_cep.expressions.operands import InexactError, RowOperand
from spark_cep.expressions.types import aggregate_type, name_of
from spark_cep.rows.folds import DEFINE_HINT, EXTREMES, REPLACEMENTS, SPREADS
from spark_cep.rows.leaves import LabelTranslation, RowAggregate
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Call, Constant, Expression, Type
from spark_cep.udfs.functions.nested import named_type

if TYPE_CHECKING:
    from spark_cep.expressions.aggregates import EngineAggregate
    from spark_cep.rows.calls import RowCall
    from spark_cep.rows.folds import EngineFold
    from spark_cep.rows.functions import FunctionConversion

ONE = Constant(1, BIGINT)
_STRING: Final = Type("string")
# Kinds whose values Python orders as Spark does.
ORDERED: Final = frozenset(
    {
        "int", "float", "decimal", "bool", "date", "timestamp", "timestamp_ntz", "interval",
        "months", "string", "binary",
    }
)  # fmt: skip
# Spark interpolates percentiles by the difference of two values, or by two products.
_INTERPOLATED: Final = "(SELECT percentile(x, 0.1D) FROM VALUES ({low}), ({high}) AS t(x))"


class AggregateTranslation(LabelTranslation):
    """A translation with aggregates over the rows of the match so far."""

    conversion: FunctionConversion

    def build(self, node: exp.Expr, guards: Guards) -> Expression:
        raise NotImplementedError

    @property
    def _where(self) -> str:
        return self._around.where

    # ---- aggregates ------------------------------------------------------------------------------

    def _aggregate(self, call: RowCall) -> Expression:
        if call.order and call.name not in _ORDERED_WITHIN:
            raise TypeMismatch(
                f"{call.name}() with WITHIN GROUP is not supported {self._where}",
                call.node,
                "listagg, percentile_cont and mode have WITHIN GROUP",
            )
        if call.name in SPREADS:
            return self._spread(call)
        if call.name in EXTREMES:
            return self._extreme(call)
        if call.name in NAVIGATIONS:
            return self._chosen_row(call)
        if call.name in _FOLDS:
            return _FOLDS[call.name](self, call)
        how = AGGREGATES[call.name]
        if how.engine is None:
            raise TypeMismatch(
                f"{call.name}() is not supported in DEFINE",
                call.node,
                REPLACEMENTS.get(call.name, DEFINE_HINT),
            )
        return self._of_engine(call, how)

    def _of_engine(self, call: RowCall, how: AggregateRule) -> Expression:
        assert how.engine is not None
        rows = self._text.rows_of(call)
        if not call.arguments or isinstance(call.arguments[0], exp.Star):
            return self._count_rows(call)
        if len(call.arguments) > 1:
            raise TypeMismatch(
                f"{call.name}() with several arguments is not supported {self._where}",
                call.node,
                "use one argument",
            )
        argument = call.arguments[0]
        if self._is_rows(argument):
            return self._count_rows(call)
        if not self._is_of_columns(call):
            return self._of_argument(call, how)
        text = how.argument.format(self._row_text(argument))
        type_ = self._folded_type(call, how, self._type(text, argument))
        guarded = self._around.guarding.among(rows, self._filtered(call, text))
        return RowAggregate(how.engine, guarded, rows, type_, call.distinct)

    def _count_rows(self, call: RowCall) -> Expression:
        """count(*), count(b.*)"""
        rows = self._text.rows_of(call)
        if call.filter is None:
            return RowAggregate("count", None, rows, BIGINT)
        if not self._is_over_columns(call.filter):
            return RowAggregate("count", None, rows, BIGINT, argument=self._chosen(call, ONE))
        text = self._around.guarding.among(rows, self._filtered(call, "1"))
        return RowAggregate("count", text, rows, BIGINT)

    def _is_of_columns(self, call: RowCall) -> bool:
        """Whether Spark can evaluate all that is in the call, on a row."""
        return all(map(self._is_over_columns, call.operands))

    def _is_over_columns(self, node: exp.Expr) -> bool:
        names_anything = self.conjunct.names_anything(node)
        return row_part(self.conjunct, node) is not None or not names_anything

    def _row_text(self, node: exp.Expr) -> str:
        part = row_part(self.conjunct, node)
        return part.text if part else self.conjunct.parsed.cut(node)

    def _filtered(self, call: RowCall, text: str) -> str:
        """What is aggregated of a row; NULL for rows that FILTER leaves out."""
        if call.filter is None:
            return text
        condition = self._row_text(call.filter)
        self._check_filter(call.filter, self._type(condition, call.filter))
        return f"CASE WHEN {condition} THEN {text} END"

    def _chosen(self, call: RowCall, value: Expression) -> Expression:
        """The same where the matcher evaluates it."""
        if call.filter is None:
            return value
        condition = self.build(call.filter, ())
        self._check_filter(call.filter, condition.type)
        return Call("if", (condition, value, Constant(None, value.type)), value.type)

    def _check_filter(self, node: exp.Expr, type_: Type) -> None:
        if type_ != BOOL:
            raise TypeMismatch(
                f"FILTER takes a condition, not {name_of(type_)}", node, "compare it with something"
            )

    def _spread(self, call: RowCall) -> Expression:
        """Variance or standard deviation, of doubles as in Spark."""
        (argument,) = call.arguments
        rows, name = self._text.rows_of(call), SPREADS[call.name]
        if not self._is_of_columns(call):
            value = self.build(argument, ())
            self._check_number(call, value.type)
            if value.type != DOUBLE:
                value = Call("cast", (value,), DOUBLE)
            value = self._chosen(call, value)
            return RowAggregate(name, None, rows, DOUBLE, call.distinct, value)
        text = self._row_text(argument)
        self._check_number(call, self._type(text, argument))
        text = self._filtered(call, f"CAST({text} AS DOUBLE)")
        return RowAggregate(
            name, self._around.guarding.among(rows, text), rows, DOUBLE, call.distinct
        )

    def _check_number(self, call: RowCall, type_: Type) -> None:
        if type_.kind not in {"int", "float", "decimal", "null"}:
            raise TypeMismatch(
                f"{call.name}() does not take {name_of(type_)}", call.node, "use a number"
            )

    def _extreme(self, call: RowCall) -> Expression:
        """max_by(x, y), min_by(x, y)"""
        if len(call.arguments) != len(("x", "y")) or call.distinct:
            raise TypeMismatch(
                f"{call.name}() with {'DISTINCT' if call.distinct else 'a number of rows'} is not "
                f"supported {self._where}",
                call.node,
                f"write {call.name}(x, y)",
            )
        name = EXTREMES[call.name]
        if not self._is_of_columns(call):
            x, y = (self._operand(call, each) for each in call.arguments)
            self._check_order(call, call.arguments[1], y.type)
            return self._python_fold(call, name, (x, self._chosen(call, y)), x.type)
        rows, guarding = self._text.rows_of(call), self._around.guarding
        x_text, y_text = map(self._row_text, call.arguments)
        type_ = self._type(x_text, call.arguments[0])
        by = self._type(y_text, call.arguments[1])
        self._check_order(call, call.arguments[1], by)
        chosen = guarding.among(rows, self._filtered(call, y_text))
        return RowAggregate(name, guarding.among(rows, x_text), rows, type_, by=(chosen, by))

    def _check_order(self, call: RowCall, node: exp.Expr, type_: Type) -> None:
        if type_.kind not in ORDERED:
            raise TypeMismatch(
                f"{call.name}() by {type_.sql.upper() or name_of(type_)} is not supported "
                f"{self._where}",
                node,
                "choose by a number, a time or a text",
            )

    def _chosen_row(self, call: RowCall) -> Expression:
        """first_value(x) IGNORE NULLS, any_value(x) FILTER (WHERE ...)"""
        (argument,) = call.arguments
        name = NAVIGATIONS[call.name]
        if not self._is_of_columns(call):
            x = self._operand(call, argument)
            by: Expression = Constant(True, BOOL)
            if call.ignores_nulls:
                known = Call("is_not_null", (x,), BOOL)
                by = Call("if", (known, by, Constant(None, BOOL)), BOOL)
            return self._python_fold(call, name, (x, self._chosen(call, by)), x.type)
        rows, guarding = self._text.rows_of(call), self._around.guarding
        text = self._row_text(argument)
        type_ = self._type(text, argument)
        present = f"CASE WHEN ({text}) IS NOT NULL THEN TRUE END" if call.ignores_nulls else "TRUE"
        by_text = guarding.among(rows, self._filtered(call, present))
        return RowAggregate(name, guarding.among(rows, text), rows, type_, by=(by_text, BOOL))

    # ---- folds in Python -------------------------------------------------------------------------

    def _operand(self, call: RowCall, node: exp.Expr, form: str = "{}") -> Expression:
        """An argument at each of the rows. `form`: SQL around it."""
        if self._is_over_columns(node):
            text = form.format(self._row_text(node))
            type_ = self._type(text, node)
            guarded = self._around.guarding.among(self._text.rows_of(call), text)
            return RowOperand(0, guarded, type_, may_fail=True)
        value = self.build(node, ())
        return self.conversion.to(value, _FORM_TYPES[form]) if form in _FORM_TYPES else value

    def _filtered_operand(self, call: RowCall, node: exp.Expr, form: str = "{}") -> Expression:
        """The same, NULL for rows that FILTER leaves out."""
        if call.filter is None or not self._is_of_columns(call):
            return self._chosen(call, self._operand(call, node, form))
        text = self._filtered(call, form.format(self._row_text(node)))
        type_ = self._type(text, node)
        guarded = self._around.guarding.among(self._text.rows_of(call), text)
        return RowOperand(0, guarded, type_, may_fail=True)

    def _python_fold(
        self,
        call: RowCall,
        name: EngineFold,
        operands: Sequence[Expression],
        type_: Type,
        *,
        distinct: bool = False,
    ) -> RowAggregate:
        argument = operands[0]
        if len(operands) > 1:
            argument = Call("struct", tuple(operands), Type("other", sql="struct"))
        return RowAggregate(name, None, self._text.rows_of(call), type_, distinct, argument)

    def _check_count(self, call: RowCall, least: int, most: int, form: str) -> None:
        if not least <= len(call.arguments) <= most:
            raise TypeMismatch(
                f"{call.name}() with {len(call.arguments)} arguments is not supported "
                f"{self._where}",
                call.node,
                f"write {form}",
            )

    def _list(self, call: RowCall) -> Expression:
        """collect_list, array_agg, collect_set"""
        (argument,) = call.arguments
        keeps_nulls = call.ignores_nulls is False
        operands: tuple[Expression, ...]
        if keeps_nulls:
            present = self._chosen(call, Constant(True, BOOL))
            operands = (self._operand(call, argument), present)
        else:
            operands = (self._filtered_operand(call, argument),)
        name: EngineFold = "collect_list with nulls" if keeps_nulls else "collect_list"
        element = operands[0].type
        type_ = Type("other", sql=f"array<{element.sql or name_of(element).lower()}>")
        if named_type(type_.sql) is None:
            raise TypeMismatch(
                f"{call.name}() of {element.sql.upper() or name_of(element)} is not supported "
                f"{self._where}",
                argument,
                f"list one of its fields, or a text that stands for it: {call.name}(to_json(x))",
            )
        distinct = call.distinct or call.name == "collect_set"
        return self._python_fold(call, name, operands, type_, distinct=distinct)

    def _joined(self, call: RowCall) -> Expression:
        """listagg, string_agg"""
        self._check_count(call, 1, 2, f"{call.name}(b.kind, ', ')")
        value = call.arguments[0]
        keys = [each.this for each in call.order]
        if call.distinct and keys not in ([], [value]):
            raise TypeMismatch(
                f"{call.name}(DISTINCT ...) can be ordered by its own values only",
                call.order[0],
                f"write ORDER BY {self.conjunct.parsed.text_of(value)}, or leave out DISTINCT",
            )
        type_ = self._operand(call, value).type
        is_text = type_.kind in {"string", "binary"}
        operand = self._filtered_operand(call, value, "{}" if is_text else _AS_STRING)
        separator: Expression = Constant(None, operand.type)
        if len(call.arguments) > 1:
            separator = self._constant(call, call.arguments[1], "{}")
        directions = " ".join(
            ("d" if each.args.get("desc") else "a") + ("n" if each.args["nulls_first"] else "")
            for each in call.order
        )
        sorted_by = [self._operand(call, each) for each in keys]
        for node, key in zip(keys, sorted_by, strict=True):
            self._check_order(call, node, key.type)
        operands = (operand, separator, Constant(directions, _STRING), *sorted_by)
        return self._python_fold(call, "listagg", operands, operand.type, distinct=call.distinct)

    def _constant(self, call: RowCall, node: exp.Expr, form: str) -> Constant:
        if self.conjunct.names_anything(node):
            raise TypeMismatch(
                f"{call.name}() takes a constant here, not {self.conjunct.parsed.text_of(node)}",
                node,
                "write a literal",
            )
        try:
            return self.conversion.constant(form.format(self.conjunct.parsed.cut(node)))
        except ValueError as problem:
            raise TypeMismatch(str(problem), node) from None

    def _bits(self, call: RowCall) -> Expression:
        """bit_and, bit_or, bit_xor"""
        self._check_count(call, 1, 1, f"{call.name}(b.flags)")
        (argument,) = call.arguments
        value = self._filtered_operand(call, argument)
        if value.type.kind != "int":
            raise TypeMismatch(
                f"{call.name}() does not take {value.type.sql.upper() or name_of(value.type)}",
                call.node,
                "use an integer",
            )
        name = cast("EngineFold", call.name)
        rows = self._text.rows_of(call)
        if self._is_of_columns(call) and isinstance(value, RowOperand):
            return RowAggregate(name, value.text, rows, value.type, call.distinct)
        return self._python_fold(call, name, (value,), value.type, distinct=call.distinct)

    def _of_doubles(self, call: RowCall) -> Expression:
        """Statistics of one value or of pairs. A pair with a NULL does not count."""
        count = 1 if call.name in _OF_ONE else 2
        self._check_count(
            call, count, count, f"{call.name}({'b.y, b.x'[-3 if count < 2 else 0 :]})"
        )
        for each in call.arguments:
            self._check_number(call, self._operand(call, each).type)
        first, *rest = call.arguments
        operands = [self._filtered_operand(call, first, _AS_DOUBLE)]
        operands += [self._operand(call, each, _AS_DOUBLE) for each in rest]
        name = cast("EngineFold", call.name)
        return self._python_fold(call, name, operands, DOUBLE, distinct=call.distinct)

    def _of_pairs(self, call: RowCall) -> Expression:
        """regr_count, regr_avgx, regr_avgy: the engine's aggregates where neither is NULL."""
        self._check_count(call, 2, 2, f"{call.name}(b.y, b.x)")
        if call.distinct or not self._is_of_columns(call):
            raise TypeMismatch(
                f"{call.name}() with {'DISTINCT' if call.distinct else 'CLASSIFIER'} is not "
                f"supported {self._where}",
                call.node,
                "use columns, without DISTINCT",
            )
        texts = [self._row_text(each) for each in call.arguments]
        types = [self._type(text, node) for text, node in zip(texts, call.arguments, strict=True)]
        for each in types:
            self._check_number(call, each)
        engine, place = {"regr_avgx": ("avg", 1), "regr_avgy": ("avg", 0)}.get(
            call.name, ("count", 0)
        )
        known = " AND ".join(f"({each}) IS NOT NULL" for each in texts)
        text = self._filtered(call, f"CASE WHEN {known} THEN {texts[place]} END")
        rows = self._text.rows_of(call)
        how = AggregateRule(cast("EngineAggregate", engine))
        type_ = self._folded_type(call, how, types[place])
        guarded = self._around.guarding.among(rows, text)
        assert how.engine is not None
        return RowAggregate(how.engine, guarded, rows, type_)

    def _percentile(self, call: RowCall) -> Expression:
        """median(x), percentile(x, share), percentile_cont(share) WITHIN GROUP (ORDER BY x)"""
        value, share = self.percentile_parts(call)
        return self.percentile_at(call, value, share)

    def percentile_parts(self, call: RowCall) -> tuple[exp.Expr, exp.Expr | None]:
        """What is ordered, and the share or an array of shares; None: the median."""
        if call.name == "percentile_cont":
            form = "percentile_cont(0.5) WITHIN GROUP (ORDER BY b.price)"
            self._check_count(call, 1, 1, form)
            if len(call.order) != 1:
                raise TypeMismatch("WITHIN GROUP is missing", call.node, f"write {form}")
            return call.order[0].this, call.arguments[0]
        if call.name == "percentile":
            self._check_count(call, 2, 2, "percentile(b.price, 0.5)")
            return call.arguments[0], call.arguments[1]
        self._check_count(call, 1, 1, "median(b.price)")
        return call.arguments[0], None

    def percentile_at(self, call: RowCall, value: exp.Expr, share: exp.Expr | None) -> RowAggregate:
        operand = self._filtered_operand(call, value)
        self._check_number(call, operand.type)
        if operand.type.kind == "null":
            operand = Constant(None, DOUBLE)
        descends = bool(call.order) and bool(call.order[0].args.get("desc"))
        options = (
            Constant(0.5, DOUBLE) if share is None else self._share(call, share),
            Constant(descends, BOOL),
            Constant(self._interpolates_by_difference(call), BOOL),
        )
        return self._python_fold(
            call, "percentile", (operand, *options), DOUBLE, distinct=call.distinct
        )

    def _share(self, call: RowCall, node: exp.Expr) -> Constant:
        found = self._constant(call, node, "{}")
        if found.type.kind in {"int", "float", "decimal"}:
            found = self._constant(call, node, _AS_DOUBLE)
            if found.value is not None and 0 <= found.value <= 1:
                return found
        raise TypeMismatch(
            f"{call.name}() takes one share between 0 and 1",
            node,
            f"write {call.name} once for each share" if found.type.kind == "other" else "write 0.5",
        )

    def _interpolates_by_difference(self, call: RowCall) -> bool:
        low, high = "2.1D", "4.9D"
        try:
            found = self.conversion.constant(_INTERPOLATED.format(low=low, high=high)).value
        except ValueError:
            raise InexactError(self.describe(call.node)) from None
        return bool(found == 2.1 + 0.1 * (4.9 - 2.1))

    def _mode(self, call: RowCall) -> Expression:
        """mode(x, true), mode() WITHIN GROUP (ORDER BY x): one of the most frequent values is
        certain."""
        arguments = list(call.arguments)
        if call.order and not arguments:
            value, descends = call.order[0].this, bool(call.order[0].args.get("desc"))
        elif len(arguments) == 2 and self._constant(call, arguments[1], "{}").value is True:
            value, descends = arguments[0], False
        else:
            shown = self.conjunct.parsed.text_of(arguments[0]) if arguments else "b.kind"
            raise TypeMismatch(
                "of several values that are equally frequent mode() gives any, so its answer is "
                "not certain",
                call.node,
                f"write mode() WITHIN GROUP (ORDER BY {shown}), which gives the smallest",
            )
        operand = self._filtered_operand(call, value)
        self._check_order(call, value, operand.type)
        operands = (operand, Constant(descends, BOOL))
        return self._python_fold(call, "mode", operands, operand.type, distinct=call.distinct)

    def _attempt(self, call: RowCall) -> Expression:
        """try_sum, try_avg: NULL where the sum overflows."""
        self._check_count(call, 1, 1, f"{call.name}(b.price)")
        (argument,) = call.arguments
        engine: EngineAggregate = "sum" if call.name == "try_sum" else "avg"
        kind = self._operand(call, argument).type.kind
        if engine == "sum" and kind in {"int", "decimal", "interval"}:
            operand = self._filtered_operand(call, argument)
            type_ = self._folded_type(call, AggregateRule(engine), operand.type)
            return self._python_fold(call, "try_sum", (operand,), type_, distinct=call.distinct)
        found = self._of_engine(call, AggregateRule(engine))
        return found if kind in {"int", "float"} else Call("try", (found,), found.type)

    def _is_rows(self, argument: exp.Expr) -> bool:
        """count(b.*), count(b)"""
        is_name = isinstance(argument, exp.Column)
        return is_name and self.conjunct.reference(argument) is None

    def _of_argument(self, call: RowCall, how: AggregateRule) -> Expression:
        """An aggregate whose argument the engine evaluates: it has CLASSIFIER or MATCH_NUMBER."""
        value = self.build(call.arguments[0], ())
        if how.argument != "{}":
            value = self._tested(call, value)
        value = self._chosen(call, value)
        assert how.engine is not None
        type_ = self._folded_type(call, how, value.type)
        return RowAggregate(how.engine, None, self._text.rows_of(call), type_, call.distinct, value)

    def _tested(self, call: RowCall, value: Expression) -> Expression:
        """The argument of count_if, bool_or and bool_and, which must be BOOLEAN."""
        if value.type != BOOL:
            raise TypeMismatch(
                f"{call.name}() takes a BOOLEAN, not {name_of(value.type)}", call.node
            )
        if call.name != "count_if":
            return value
        return Call("if", (value, ONE, Constant(None, BIGINT)), BIGINT)

    def _folded_type(self, call: RowCall, how: AggregateRule, type_: Type) -> Type:
        assert how.engine is not None
        found = aggregate_type(how.engine, type_)
        if found is None or (call.distinct and type_.kind == "other"):
            raise TypeMismatch(
                f"{call.name}() does not take {name_of(type_)}",
                call.node,
                "use a value that can be ordered"
                if how.engine in {"min", "max"}
                else "cast it to fewer digits: CAST(... AS DECIMAL(18,4))"
                if type_.kind == "decimal"
                else "use a number",
            )
        return found


_AS_DOUBLE: Final = "CAST({} AS DOUBLE)"
_AS_STRING: Final = "CAST({} AS STRING)"
_FORM_TYPES: Final = {_AS_DOUBLE: DOUBLE, _AS_STRING: _STRING}
_ORDERED_WITHIN: Final = frozenset({"listagg", "string_agg", "percentile_cont", "mode"})
_OF_ONE: Final = frozenset({"skewness", "kurtosis"})
_FOLDS: Final[dict[str, Callable[[AggregateTranslation, RowCall], Expression]]] = {
    **dict.fromkeys(("collect_list", "array_agg", "collect_set"), AggregateTranslation._list),
    **dict.fromkeys(("listagg", "string_agg"), AggregateTranslation._joined),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor"), AggregateTranslation._bits),
    **dict.fromkeys(
        (
            "corr", "covar_pop", "covar_samp", "kurtosis", "regr_intercept", "regr_r2",
            "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "skewness",
        ),
        AggregateTranslation._of_doubles,
    ),
    **dict.fromkeys(("regr_count", "regr_avgx", "regr_avgy"), AggregateTranslation._of_pairs),
    **dict.fromkeys(("median", "percentile", "percentile_cont"), AggregateTranslation._percentile),
    "mode": AggregateTranslation._mode,
    **dict.fromkeys(("try_sum", "try_avg"), AggregateTranslation._attempt),
}  # fmt: skip


def is_of_engine(name: str) -> bool:
    """Whether the engine has an aggregate, in DEFINE and on streams."""
    return name in _FOLDS or name in EXTREMES or aggregate_rule(name).engine is not None
