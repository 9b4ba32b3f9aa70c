"""Aggregates of measures on streams that only Spark has in a batch.

Spark cannot group a stream's answer by its rows, so the engine computes those of them that it has
in DEFINE, by the same translation and the same folds. The others are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spark_cep.expressions.conditions import TypeMismatch
from spark_cep.expressions.operands import InexactError
from spark_cep.expressions.types import name_of
from spark_cep.rows.conditions import ConditionTranslation
from spark_cep.rows.conjuncts import RowConjunct
from spark_cep.rows.define_aggregates import is_of_engine
from spark_cep.rows.folds import REPLACEMENTS
from spark_cep.rows.leaves import LeafContext, ship_row_expression
from spark_cep.udfs.expressions import Call, Type
from spark_cep.udfs.row_program import Aggregate, aggregate_of
from spark_cep.udfs.rows.folds import is_folded

if TYPE_CHECKING:
    from spark_cep.expressions.schema import ColumnRequests
    from spark_cep.expressions.translation import CompilerSession
    from spark_cep.rows.calls import RowCall
    from spark_cep.rows.leaves import ConditionContext
    from spark_cep.rows.texts import ResolvedRowText
    from spark_cep.udfs.expressions import Expression


ON_STREAM: Final = "in measures on a stream"
_HINT: Final = (
    "write the matches with collect_list(...) and aggregate the array, or match in batches, for "
    "example with foreachBatch"
)


@dataclass(frozen=True)
class StreamAggregate:
    """What the engine computes: one value, or the elements of an array that is NULL if they are."""

    parts: tuple[Expression, ...]
    is_array: bool = False


class StreamAggregates:
    """The aggregates of one measure."""

    def __init__(
        self,
        text: ResolvedRowText,
        session: CompilerSession,
        around: ConditionContext,
        shipment: ColumnRequests,
    ) -> None:
        self._session = session
        self._around = around
        self._conjunct = RowConjunct(text)
        self._translation = ConditionTranslation(self._conjunct, session, around)
        self._shipment = shipment
        self._known: dict[int, StreamAggregate] = {}

    def values(self, call: RowCall, sample: str, *, final: bool) -> StreamAggregate:
        """`sample`: the call over input rows."""
        found = self._known.get(id(call.node))
        if found is None:
            found = self._known[id(call.node)] = self._translated(call, sample, final=final)
        return found

    def _translated(self, call: RowCall, sample: str, *, final: bool) -> StreamAggregate:
        if not is_of_engine(call.name):
            raise TypeMismatch(
                f"on a stream {call.name}() cannot be computed: Spark would have to group the "
                "answer, and could not know when a group is complete",
                call.node,
                REPLACEMENTS.get(call.name, _HINT),
            )
        type_ = self._type(call, sample)
        try:
            expressions, is_array = self._expressions(call)
        except InexactError as inexact:
            raise TypeMismatch(
                f"on a stream {call.name}() cannot be computed: the engine does not compute "
                f"{inexact.reason}",
                inexact.node or call.node,
                _HINT,
            ) from None
        to = LeafContext(
            self._shipment, self._conjunct.rows, self._conjunct.resolved.scope.variables.names
        )
        shipped = [_of_match(ship_row_expression(each, to), final=final) for each in expressions]
        for each in shipped:
            self._check(call, each)
        if not is_array and type_.kind != "other" and type_ != shipped[0].type:
            raise TypeMismatch(
                f"{call.name}() with the type {name_of(type_)} is not supported {ON_STREAM}",
                call.node,
                _HINT,
            )
        return StreamAggregate(tuple(shipped), is_array)

    def _type(self, call: RowCall, sample: str) -> Type:
        """The type that Spark gives the call, which it checks."""
        typer, name = self._session.typer, f"__cep_sample_{id(call.node)}"
        (wrong,) = typer.add_aggregates([(name, sample)])
        if wrong is not None:
            raise TypeMismatch(wrong, call.node)
        (type_,) = typer.of_row([name])
        assert isinstance(type_, Type)
        return type_

    def _expressions(self, call: RowCall) -> tuple[list[Expression], bool]:
        if call.name in {"percentile", "percentile_cont"}:
            value, share = self._translation.percentile_parts(call)
            shares = _elements(share)
            if shares:
                return [self._translation.percentile_at(call, value, s) for s in shares], True
        return [self._translation.build(call.node, ())], False

    def _check(self, call: RowCall, expression: Expression) -> None:
        """Refuses what the engine has in DEFINE only."""
        aggregate = aggregate_of(expression)
        if aggregate.argument is not None and not is_folded(aggregate):
            raise TypeMismatch(
                f"{call.name}() with CLASSIFIER() or MATCH_NUMBER() is not supported {ON_STREAM}",
                call.node,
                _HINT,
            )
        if aggregate.type.kind in {"interval", "months"}:
            raise TypeMismatch(
                f"{call.name}() of {name_of(aggregate.type)} is not supported {ON_STREAM}",
                call.node,
                "aggregate a number: timestampdiff(SECOND, a, b)",
            )


def _elements(node: exp.Expr | None) -> list[exp.Expr]:
    """Those of array(...)."""
    is_array = isinstance(node, exp.Array) or (
        isinstance(node, exp.Anonymous) and node.name.lower() == "array"
    )
    return list(node.expressions) if node is not None and is_array else []


def _of_match(expression: Expression, *, final: bool) -> Expression:
    """The expression over the whole match, or over the rows so far."""
    if isinstance(expression, Call):
        return replace(
            expression,
            arguments=tuple(_of_match(each, final=final) for each in expression.arguments),
        )
    assert isinstance(expression, Aggregate)
    return replace(expression, final=final)
