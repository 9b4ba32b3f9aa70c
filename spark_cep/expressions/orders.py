"""order_by and partition_by: columns, or text such as "ts" and "price DESC NULLS LAST".

The first order column is the event time. Event patterns, and row patterns with a window, need it
ascending and of a type with differences, because windows and the range of a NOT are measured in
it. Row patterns without a window accept any order, or none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spark_cep.errors import PatternError
from spark_cep.expressions.conditions import Conjunct, is_column
from spark_cep.expressions.names import PatternNames, columns_of, name_parts_of
from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.refusals import column_refusal, find_refusals
from spark_cep.expressions.remote_calls import is_remote_call
from spark_cep.expressions.schema import (
    NOT_OF_ONE_ROW,
    OrderBy,
    OrderColumn,
    RowExpression,
    Typer,
)
from spark_cep.expressions.syntax import ParsedExpression, SyntaxProblem, parse_expression
from spark_cep.expressions.types import NUMBERS, TIMES, name_of
from spark_cep.udfs.expressions import BOOL, Type

_SUFFIX = re.compile(
    r"(?P<expression>.*?)(?:\s+(?P<direction>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*",
    re.I | re.S,
)
_KEY_HINT = "write columns of the input, and expressions over them"
_HINT = 'order_by="ts", or several columns: order_by=["ts", "id DESC"]'


def orders_of(
    order_by: Any, names: PatternNames, typer: Typer, problems: Problems
) -> tuple[OrderBy, ...]:
    """The order columns of an event pattern; invalid ones become problems."""
    given = _as_list(order_by)
    if not given:
        problems.add("order_by is missing: an event pattern needs an event time", hint=_HINT)
        return ()
    return _orders(given, names, typer, problems, timed=True)


def row_orders_of(
    order_by: Any, names: PatternNames, typer: Typer, problems: Problems, *, timed: bool
) -> tuple[OrderBy, ...]:
    """The order columns of a row pattern. `timed`: it has a window."""
    given = _as_list(order_by)
    if not given and timed:
        problems.add("order_by is missing: WITHIN needs an event time", hint=_HINT)
        return ()
    return _orders(given, names, typer, problems, timed=timed)


def _as_list(order_by: Any) -> list[Any]:
    if order_by is None:
        return []
    is_one = isinstance(order_by, str) or not isinstance(order_by, Sequence)
    return [order_by] if is_one else list(order_by)


def _orders(
    given: Sequence[Any], names: PatternNames, typer: Typer, problems: Problems, *, timed: bool
) -> tuple[OrderBy, ...]:
    found = [_order(each, names, typer, problems) for each in given]
    orders = tuple(each for each in found if each is not None)
    if timed and len(orders) == len(found):
        _check_event_time(orders[0], given[0], problems)
    return orders


def _order(given: Any, names: PatternNames, typer: Typer, problems: Problems) -> OrderBy | None:
    if isinstance(given, OrderColumn):
        order = _order_of_column(given.column, typer, problems)
        return order and replace(order, descending=given.descending, nulls_first=given.nulls_first)
    if not isinstance(given, str):
        return _order_of_column(given, typer, problems)
    found = _SUFFIX.fullmatch(given)
    assert found is not None
    descending = (found["direction"] or "").upper() == "DESC"
    nulls_first = found["nulls"].upper() == "FIRST" if found["nulls"] else not descending
    resolved = _resolve_expression(given, found["expression"], names, problems)
    if resolved is None:
        return None
    expression, type_ = resolved
    if type_ is None:
        (answer,) = typer.of_row([expression])
        if isinstance(answer, str):
            is_aggregate = answer == NOT_OF_ONE_ROW
            problems.add(
                f"order_by: {'an aggregate is not a value of a row' if is_aggregate else answer}",
                Place.whole(given),
                hint=_KEY_HINT if is_aggregate else None,
            )
            return None
        type_ = answer
    comparison = f"({expression}) < ({expression})"
    if not _check_comparable(comparison, type_, given, typer, problems):
        return None
    return OrderBy(expression, descending, nulls_first, type_)


def _resolve_expression(
    given: str, text: str, names: PatternNames, problems: Problems
) -> tuple[str, Type | None] | None:
    """SQL over input columns, with its type where it is a plain column."""
    try:
        parsed = parse_expression(text, names.is_name)
    except SyntaxProblem as problem:
        place = Place(given, problem.place.start, problem.place.end)
        problems.add(f"order_by is not valid: {problem.message}", place, hint=_HINT)
        return None
    remote = next((node for node in parsed.root.walk() if is_remote_call(node)), None)
    if remote is not None:
        place = Place(given, *parsed.span(remote))
        hint = "join the remote table to the input before matching, and order by its column"
        problems.add("order_by: remote() is not supported here", place, hint=hint)
        return None
    refused = next(find_refusals(parsed, parsed.root), None)
    if refused is not None:
        place = Place(given, refused.place.start, refused.place.end)
        problems.add(f"order_by: {refused.message}", place, hint=refused.hint)
        return None
    inner = Problems()
    _check_row(parsed, names, inner)
    if not inner.found:
        # Order columns are input columns: names of variables are not resolved.
        rows = PatternNames((), names.columns, case_sensitive=names.case_sensitive)
        references = rows.references(parsed, parsed.root, 0, inner)
    for each in inner.found:
        at = None if each.place is None else Place(given, each.place.start, each.place.end)
        problems.add(f"order_by: {each.message}", at, hint=each.hint)
    if inner.found or references is None:
        return None
    conjunct = Conjunct(parsed, parsed.root, references, 0)
    only = references[0] if references else None
    plain = only is not None and only.node is parsed.root and is_column(conjunct, parsed.root)
    type_ = (
        only.column.type if only and only.column and plain and not _has_fields(only.node) else None
    )
    return conjunct.row_text(parsed.root), type_


_OF_MATCHES = {"prev", "next", "first", "last", "classifier", "match_number"}


def _check_row(parsed: ParsedExpression, names: PatternNames, problems: Problems) -> None:
    """Refuses what there is only in a match: rows are sorted before they are matched."""
    for name, place in parsed.calls(parsed.root):
        if name in _OF_MATCHES:
            problems.add(
                f"{name.upper()} refers to a match, and rows are sorted before they are matched",
                place,
                hint=_KEY_HINT,
            )
    for column in columns_of(parsed.root):
        first, *others = name_parts_of(parsed, column)
        if others and names.variable(first.name) is not None and not names.matching(first.name):
            problems.add(
                f"{first.name} is a variable, and rows are sorted before they are matched",
                first.place,
                hint=f"write the column alone: {others[0].name}",
            )


def _has_fields(node: Any) -> bool:
    return len(node.parts) > 1


def _order_of_column(given: Any, typer: Typer, problems: Problems) -> OrderBy | None:
    refused = column_refusal(given)
    if refused is not None:
        problems.add(f"order_by: {refused.message}", refused.place, hint=refused.hint)
        return None
    try:
        (answer,) = typer.of_row([given])
    except Exception as error:  # any error of an object that is not a Column
        raise PatternError(
            f"order_by takes column names and Columns, not {type(given).__name__}", hint=_HINT
        ) from error
    if isinstance(answer, str):
        problems.add(f"order_by: {answer}", Place.whole(str(given)), hint=_HINT)
        return None
    if answer.kind == "other" and not _check_comparable(
        given < given,  # noqa: PLR0124 - asks Spark whether it can be written
        answer,
        str(given),
        typer,
        problems,
    ):
        return None
    return OrderBy(given, descending=False, nulls_first=True, type=answer)


def _check_comparable(
    comparison: RowExpression, type_: Type, given: str, typer: Typer, problems: Problems
) -> bool:
    """Whether Spark can order the type; only nested types need to be checked."""
    if type_.kind != "other":
        return True
    (answer,) = typer.of_row([comparison])
    if answer == BOOL:
        return True
    problems.add(
        f"order_by: {given} cannot be ordered",
        Place.whole(given),
        hint="order by columns whose values can be compared, not by maps or variants",
    )
    return False


def _check_event_time(first: OrderBy, given: Any, problems: Problems) -> None:
    place = Place.whole(given) if isinstance(given, str) else None
    if first.descending:
        problems.add(
            "the first order column must be ascending: it is the event time",
            place,
            hint="remove DESC; other order columns may be descending",
        )
    if first.type.kind not in TIMES | NUMBERS:
        problems.add(
            f"the first order column is the event time, so it cannot be {name_of(first.type)}",
            place,
            hint="order by a timestamp, a date or a number first",
        )


# ---- partition_by --------------------------------------------------------------------------------


def partition_of(partition_by: Any, names: PatternNames, problems: Problems) -> tuple[str, ...]:
    """The partition columns as the input spells them; invalid ones become problems."""
    given = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
    found = []
    for name in given:
        if not isinstance(name, str):
            problems.add(
                f"partition_by takes column names, not {type(name).__name__}",
                hint='partition_by="venue" or partition_by=["venue", "currency"]; add a computed '
                "key as a column first",
            )
            continue
        bare = name.strip()
        if len(bare) > 1 and bare[0] == bare[-1] == "`":
            bare = bare[1:-1].replace("``", "`")
        inner = Problems()
        column = names.column(bare, Place.whole(name), inner)
        if column is not None and column.name not in found:
            found.append(column.name)
        for each in inner.found:
            problems.add(f"partition_by: {each.message}", each.place, hint=each.hint)
    return tuple(found)
