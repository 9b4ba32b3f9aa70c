"""What holds for a match whatever the strategy: conditions, window and negation.

Interpretations that the engine shares:
* lists: variables of one repeated group, or of one alternative of a repeated OR, go together,
  iteration by iteration; a conjunct over lists that are not of one group holds for every
  combination of their elements; between a group variable and anything else, for each element. A
  NOT inside a group sees its own iteration.
* `prev(b.x)` is the element before; inside a group, b's row of the iteration before, and in an OR,
  of the iteration before that chose the same alternative.
* where w bounds a NOT, event times are compared; where a part bounds it, order keys.
* a NOT in an AND, or in a SEQ that fills nothing on either side of it, is bounded by the window
  before the latest and after the earliest event of the match.
* an occurrence of a negated group blocks if all its rows lie where the NOT is and it fits into the
  window itself; an occurrence with a row of the match never blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from spark_cep.pattern import AnyOf, Event, EventPatternNode, Pattern, Repeat, children, iter_events
from tests.reference.assignments import Budget, assignments, rows_of
from tests.reference.choices import Barrier, Bound, Choice, barriers, positives
from tests.reference.conditions import Conjunct, conjuncts, holds
from tests.reference.expressions import Scope, Values

if TYPE_CHECKING:
    from tests.reference.rows import Row

# Occurrences of a negated group that are looked at for one match.
OCCURRENCES = 20_000
# Which element of each list a conjunct is tested on; a list is named by its group.
Instance = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Rules:
    """The pattern's conjuncts, sorted by whom they concern, and its window.

    own: on one row; between: on rows of the match; blocking: also on a negated variable.
    group: variable -> the first variable of its repeated group (itself, if it is in none).
    """

    pattern: Pattern
    own: Mapping[str, tuple[Conjunct, ...]]
    between: tuple[Conjunct, ...]
    blocking: tuple[Conjunct, ...]
    group: Mapping[str, str]
    negated: frozenset[str]


def rules_of(pattern: Pattern) -> Rules:
    found = list(iter_events(pattern.root))
    names = frozenset(event.name for event, _ in found)
    negated = frozenset(event.name for event, is_negated in found if is_negated)
    parts = [part for text in pattern.conditions for part in conjuncts(text, names)]
    for event, _ in found:
        if isinstance(event.condition, str):
            parts += conjuncts(event.condition, names, own=event.name)
    many = [part for part in parts if not part.concerns_one_row()]
    return Rules(
        pattern,
        own={name: tuple(p for p in parts if _is_own(p, name)) for name in names},
        between=tuple(p for p in many if not p.variables & negated),
        # 'One that names a negated variable belongs to that NOT'
        blocking=tuple(p for p in many if p.variables & negated),
        group=dict(_groups(pattern.root, None)),
        negated=negated,
    )


def _is_own(conjunct: Conjunct, name: str) -> bool:
    return conjunct.concerns_one_row() and name in conjunct.variables


def _groups(node: EventPatternNode, group: str | None) -> Iterator[tuple[str, str]]:
    if isinstance(node, Event):
        yield node.name, group or node.name
    if isinstance(node, Repeat):
        group = positives(node)[0]
    for part in node.parts if isinstance(node, AnyOf) and group is not None else ():
        yield from _groups(part, positives(part)[0])
    if isinstance(node, AnyOf) and group is not None:
        return
    for child in children(node):
        yield from _groups(child, group)


def is_candidate(rules: Rules, name: str, row: Row) -> bool:
    """'no row satisfying x's conditions', 'a conjunct holds when it is TRUE'."""
    return all(holds(part, Scope({name: row.values}, own=part.own)) for part in rules.own[name])


# ---- conditions on a list of elements ----------------------------------------------------------


def instances(rules: Rules, conjunct: Conjunct, bound: Bound) -> list[Instance]:
    """'A condition that names a Kleene variable holds for each of its elements.'

    Empty where a variable is unfilled: 'A conjunct that names a variable which the match leaves
    unfilled is not tested.'
    """
    named = conjunct.variables - rules.negated
    if any(not bound.get(name) for name in named):
        return []
    lists: dict[str, int] = {}
    for name in sorted((conjunct.each | conjunct.previous) - rules.negated):
        group = rules.group[name]
        # In a run an iteration may be half filled: the rest of it has no instance yet.
        lists[group] = min(lists.get(group, len(bound[name])), len(bound[name]))
    found = product(*([(group, i) for i in range(size)] for group, size in lists.items()))
    return [instance for instance in found if _has_previous(rules, conjunct, instance)]


def _has_previous(rules: Rules, conjunct: Conjunct, instance: Instance) -> bool:
    """'a conjunct with prev is not tested on the first element'."""
    return all(dict(instance)[rules.group[name]] > 0 for name in conjunct.previous)


def instance_holds(
    rules: Rules,
    conjunct: Conjunct,
    instance: Instance,
    bound: Bound,
    blocker: Mapping[str, Values] | None = None,
) -> bool:
    index = dict(instance)
    read = conjunct.each - rules.negated
    elements = {name: bound[name][index[rules.group[name]]].values for name in read}
    scope = Scope(
        elements={**elements, **(blocker or {})},
        before={n: bound[n][index[rules.group[n]] - 1].values for n in conjunct.previous},
        lists={name: [row.values for row in bound[name]] for name in conjunct.folded},
        own=conjunct.own,
    )
    return holds(conjunct, scope)


# ---- a whole match -----------------------------------------------------------------------------


def is_match(rules: Rules, choice: Choice, bound: Bound, partition: list[Row]) -> bool:
    """Whether a filled choice breaks no rule."""
    assert choice.tree is not None
    return (
        fits_window(rules, rows_of(bound), partition)
        and all(
            instance_holds(rules, conjunct, instance, bound)
            for conjunct in rules.between
            for instance in instances(rules, conjunct, bound)
        )
        and not any(
            _is_blocked(rules, barrier, bound, partition)
            for barrier in barriers(choice.tree, bound)
        )
    )


def fits_window(rules: Rules, rows: set[Row], partition: list[Row]) -> bool:
    window = rules.pattern.window
    if window is None:
        return True
    if window.events is None:
        # 'latest minus earliest event time in the match is <= w, inclusive'
        times = [row.time for row in rows]
        return max(times) - min(times) <= window.duration  # type: ignore[operator]
    # 'at most n input rows of the partition whose order keys lie from the earliest event's to
    # the latest event's, both and their ties included, counted before any filter'
    first, last = min(row.key for row in rows), max(row.key for row in rows)
    return sum(first <= row.key <= last for row in partition) <= window.events


def _is_blocked(rules: Rules, barrier: Barrier, bound: Bound, partition: list[Row]) -> bool:
    """Whether something occurs that must not."""
    matched = rows_of(bound)
    # 'A match's own rows never block it.'
    free = [row for row in partition if row not in matched]
    reached = [row for row in free if _is_reached(rules, barrier, row, matched)]
    candidates = {
        name: [row for row in reached if is_candidate(rules, name, row)]
        for name in positives(barrier.absent)
    }
    return any(
        _blocks(rules, barrier, occurrence, bound)
        and fits_window(rules, rows_of(occurrence), partition)
        for occurrence in assignments(barrier.absent, candidates, None, Budget(OCCURRENCES))
    )


def _blocks(rules: Rules, barrier: Barrier, occurrence: Bound, bound: Bound) -> bool:
    """Whether the occurrence meets the conditions of the NOT."""
    blockers = {name: rows[0].values for name, rows in occurrence.items()}
    others = rules.negated - occurrence.keys()
    # 'over a Kleene list x blocks only if they hold for every element'
    return all(
        instance_holds(rules, conjunct, instance, bound, blockers)
        for conjunct in rules.blocking
        if conjunct.variables & occurrence.keys() and not conjunct.variables & others
        for instance in instances(rules, conjunct, bound)
        if _in_iteration(rules, barrier, instance)
    )


def _in_iteration(rules: Rules, barrier: Barrier, instance: Instance) -> bool:
    if barrier.iteration is None:
        return True
    group = rules.group[positives(barrier.absent)[0]]
    return dict(instance).get(group, barrier.iteration) == barrier.iteration


def _is_reached(rules: Rules, barrier: Barrier, row: Row, matched: set[Row]) -> bool:
    after, before = barrier.after, barrier.before
    if after is not None and before is not None:
        # 'strictly after the latest event of the nearest filled part before it and strictly
        # before the earliest event of the nearest filled part after it', by order key
        return max(r.key for r in after) < row.key < min(r.key for r in before)
    # 'Edges with w compare event time, the others the order key'; latest and earliest are the
    # whole match's
    window = rules.pattern.window
    assert window is not None
    opens = max(r.time for r in matched) - window.duration  # type: ignore[operator]
    closes = min(r.time for r in matched) + window.duration  # type: ignore[operator]
    if before is not None:
        # 'none in [latest - w, earliest of the part after)'
        return opens <= row.time and row.key < min(r.key for r in before)
    if after is not None:
        # 'none in (latest of the part before, earliest + w]'
        return max(r.key for r in after) < row.key and row.time <= closes
    # 'inside AND: none in [latest - w, earliest + w]'
    return opens <= row.time <= closes
