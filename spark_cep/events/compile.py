"""Compiles an event pattern against a schema.

    variables -> orders, window -> conjuncts -> masks | conditions | after -> inferred keys

Everything that can be wrong is found on the way and reported at once. Nothing here reads data or
imports pyspark; Spark is asked for types through the typer, in as few questions as possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_cep.errors import PatternError
from spark_cep.events.branches import build_branches
from spark_cep.events.classification import (
    ConjunctClassification,
    MatchSemantics,
    classify_conjuncts,
    equality_of,
    infer_keys,
)
from spark_cep.events.compiled import CompiledEventQuery, CompiledPattern
from spark_cep.events.together import names_sound_variables, variable_places
from spark_cep.expressions.conditions import ConditionText, Conjunct, parse_conjuncts
from spark_cep.expressions.lookups import Lookups
from spark_cep.expressions.names import PatternNames
from spark_cep.expressions.orders import orders_of, partition_of
from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.refusals import column_refusal
from spark_cep.expressions.shipment import (
    Shipment,
    plain_keys,
    ship_keys,
    ship_orders,
    ship_shown_keys,
)
from spark_cep.expressions.translation import CompilerSession
from spark_cep.expressions.types import is_fixed_zone, name_of
from spark_cep.expressions.windows import window_of
from spark_cep.pattern import EventPatternNode, Pattern, Repeat, bound_twice, children, iter_events
from spark_cep.udfs.expressions import BOOL
from spark_cep.udfs.program import Branch, Limits, Tree, Variable, Window

if TYPE_CHECKING:
    from spark_cep.events.compiled import AnswerLayout
    from spark_cep.expressions.schema import (
        ColumnExpression,
        ColumnInfo,
        ColumnRequests,
        OrderBy,
        Typer,
    )
    from spark_cep.expressions.shipment import KeyResolver


@dataclass
class _Compilation:
    """What one compilation knows so far."""

    pattern: Pattern
    names: PatternNames
    session: CompilerSession
    problems: Problems = field(default_factory=Problems)
    conjuncts: list[Conjunct] = field(default_factory=list)
    columns: list[tuple[int, ColumnExpression]] = field(default_factory=list)


def compile_event_query(  # noqa: PLR0913 - the compiler's inputs are many
    pattern: Pattern,
    columns: Sequence[ColumnInfo],
    *,
    order_by: Any,
    partition_by: Any,
    typer: Typer,
    time_zone: str,
    canonical_keys: KeyResolver = plain_keys,
    lay_out_answer: AnswerLayout | None = None,
    case_sensitive: bool = False,
    ansi: bool = True,
    lookups: Lookups | None = None,
    limits: Limits | None = None,
) -> CompiledEventQuery:
    """The pattern with all columns that rows need for it: those of the conditions, partition keys,
    order columns, what the answer shows, the candidate mask. They are shipped in this order, which
    the state of a stream depends on.

    Raises one PatternError with all problems of the pattern; `details["problems"]` lists them.
    """
    shipment = Shipment([each.name for each in columns], case_sensitive=case_sensitive)
    compiled = compile_pattern(
        pattern,
        columns,
        order_by=order_by,
        partition_by=partition_by,
        typer=typer,
        shipment=shipment,
        case_sensitive=case_sensitive,
        ansi=ansi,
        time_zone=time_zone,
        lookups=lookups,
    )
    keys = tuple(canonical_keys(compiled.partition, compiled.inferred))
    key_columns = ship_keys(shipment, keys)
    orders = ship_orders(shipment, compiled.orders)
    answer = None
    if lay_out_answer is not None:
        shown = ship_shown_keys(shipment, compiled.partition, keys)
        answer = lay_out_answer(compiled, shipment, shown)
    mask = shipment.special("mask", "candidates")
    return CompiledEventQuery(
        compiled, shipment, keys, key_columns, orders, mask, limits or Limits(), ansi, answer
    )


def compile_pattern(  # noqa: PLR0913 - the compiler's inputs are many
    pattern: Pattern,
    columns: Sequence[ColumnInfo],
    *,
    order_by: Any,
    partition_by: Any,
    typer: Typer,
    shipment: ColumnRequests,
    case_sensitive: bool = False,
    ansi: bool = True,
    time_zone: str,
    lookups: Lookups | None = None,
) -> CompiledPattern:
    """Raises one PatternError with all problems; `details["problems"]` lists them."""
    variables = variables_of(pattern.root)
    work = _Compilation(
        pattern,
        PatternNames(variables, columns, case_sensitive=case_sensitive),
        CompilerSession(typer, ansi, is_fixed_zone(time_zone), lookups or Lookups()),
    )
    _check_names(work)
    orders = orders_of(order_by, work.names, typer, work.problems)
    partition = partition_of(partition_by, work.names, work.problems)
    window = _window(work, orders)
    _gather_conditions(work)
    _check_columns(work)
    tree, branches = _branches(work)
    rules = MatchSemantics(
        branches, window, pattern.selection or "any", pattern.consuming or "reuse"
    )
    keys, rest = _without_keys(work, rules)
    sorted_ = classify_conjuncts(rest, work.names, work.session, rules, work.problems)
    work.session.lookups.check_columns(typer, work.problems)
    work.problems.raise_if_any()
    assert tree is not None
    return CompiledPattern(
        variables=variables,
        masks=_masks(work, sorted_),
        conditions=sorted_.conditions(shipment),
        after=sorted_.after,
        tree=tree,
        branches=branches,
        window=window,
        strategy=rules.strategy,
        consumption=rules.consumption,
        partition=partition,
        inferred=keys,
        orders=orders,
        lookups=tuple(work.session.lookups.columns),
        hidden=sorted_.hidden,
        remotes=tuple(work.session.lookups.asked),
    )


def variables_of(root: EventPatternNode) -> tuple[Variable, ...]:
    """Every variable of the pattern, from left to right.

    >>> from spark_cep import seq
    >>> [(v.name, v.is_list) for v in variables_of(seq("a", seq("b", "c").times("+")).root)]
    [('a', False), ('b', True), ('c', True)]
    """
    lists = {event.name for event in _events_in_lists(root)}
    return tuple(
        Variable(event.name, negated, not negated and event.name in lists)
        for event, negated in iter_events(root)
    )


def _events_in_lists(node: EventPatternNode) -> Iterator[Any]:
    if isinstance(node, Repeat):
        yield from (event for event, _ in iter_events(node))
    else:
        for child in children(node):
            yield from _events_in_lists(child)


def _check_names(work: _Compilation) -> None:
    seen: dict[str, str] = {}
    for variable in work.names.variables:
        first = seen.get(variable.name.casefold())
        seen.setdefault(variable.name.casefold(), variable.name)
        if first is None:
            continue
        message, hint = bound_twice(variable.name, first)
        work.problems.add(message, Place.whole(variable.name), hint=hint)
    if not work.names.variables:
        work.problems.add("the pattern is empty", hint='name events: seq("a", "b")')


def _window(work: _Compilation, orders: Sequence[OrderBy]) -> Window | None:
    within = work.pattern.window
    if within is None or not orders:
        return None
    duration = within.duration if within.events is None else within.events
    try:
        return window_of(within, orders[0].type)
    except PatternError as error:
        work.problems.take(error, Place.whole(str(duration)))
        return None


def _gather_conditions(work: _Compilation) -> None:
    """The conjuncts of all texts, and the Columns of event()s."""
    sources = []
    for number, (event, _) in enumerate(iter_events(work.pattern.root)):
        if isinstance(event.condition, str):
            sources.append(ConditionText(event.condition, number))
        elif event.condition is not None:
            work.columns.append((number, event.condition))
    sources += [ConditionText(text) for text in work.pattern.conditions]
    places = variable_places(work.pattern.root)
    for source in sources:
        found = parse_conjuncts(source, work.names, work.problems, work.session.lookups)
        work.conjuncts.extend(c for c in found if names_sound_variables(c, places, work.problems))


def _check_columns(work: _Compilation) -> None:
    if not work.columns:
        return
    types = work.session.typer.of_row([column for _, column in work.columns])
    for (number, column), type_ in zip(work.columns, types, strict=True):
        printed, name = str(column), work.names.variables[number].name
        refusal = column_refusal(column)
        if refusal is not None:
            work.problems.add(refusal.message, refusal.place, hint=refusal.hint)
        elif isinstance(type_, str):
            hint = "remote() is known in texts only" if "remote" in printed.casefold() else None
            place = Place.whole(printed)
            work.problems.add(f"the condition of {name}: {type_}", place, hint=hint)
        elif type_ != BOOL:
            work.problems.add(
                f"a condition must be TRUE or FALSE, but that of {name} is {name_of(type_)}",
                Place.whole(printed),
                hint="compare it with something",
            )


def _branches(work: _Compilation) -> tuple[Tree | None, tuple[Branch, ...]]:
    index = {variable.name: number for number, variable in enumerate(work.names.variables)}
    within = work.pattern.window
    # A window that could not be read is a problem already, not a missing one.
    has_time_window = within is not None and within.events is None
    if not index or len(index) < len(work.names.variables):
        return None, ()
    try:
        built = build_branches(work.pattern.root, index, has_time_window=has_time_window)
        _check_strategy(work, built[1])
    except PatternError as error:
        work.problems.take(error)
        return None, ()
    return built


def _check_strategy(work: _Compilation, branches: Sequence[Branch]) -> None:
    selection = work.pattern.selection or "any"
    repeats = any(slot.has_alternatives for branch in branches for slot in branch.slots)
    if selection != "any" and repeats:
        name = {"next": "skip till next match"}.get(selection, selection)
        raise PatternError(
            f'a repeated any_of cannot be matched with the strategy "{name}"',
            hint='use "skip till any match", or one variable for all alternatives: '
            "event(\"r+\", \"kind IN ('B', 'C')\")",
        )


def _without_keys(
    work: _Compilation, rules: MatchSemantics
) -> tuple[tuple[str, ...], list[Conjunct]]:
    """The inferred keys, and the conjuncts that they do not imply."""
    found = [(conjunct, equality_of(conjunct)) for conjunct in work.conjuncts]
    keys = infer_keys([each for _, each in found if each is not None], rules)
    return keys, [c for c, each in found if each is None or each.text not in keys]


def _masks(work: _Compilation, sorted_: ConjunctClassification) -> tuple[tuple[Any, ...], ...]:
    """Each variable's own conditions, those in event() before those of .where."""
    masks: list[list[Any]] = [[] for _ in work.names.variables]
    for number, column in work.columns:
        masks[number].append(column)
    for number, text in sorted_.masks:
        masks[number].append(text)
    return tuple(tuple(dict.fromkeys(mask)) if _texts(mask) else tuple(mask) for mask in masks)


def _texts(mask: Sequence[Any]) -> bool:
    return all(isinstance(each, str) for each in mask)
