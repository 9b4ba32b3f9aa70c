"""Eager groups: partial matches that are found as events come and kept in the state.

APAM evaluates some slots at once and defers the others to the final event. The group is evaluated
in the order of the pattern and every prefix of it is kept, so an event that arrives is joined with
what its predecessors have already become, once: new partial matches are the new ones of the
prefix before with all candidates, and its old ones with the new candidates.

In the state rows are numbered as its table numbers them; here they are positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.joining.cases import IS_NEW, IS_OLD, Case, Rule
from spark_cep.udfs.joining.partials import Partials, together
from spark_cep.udfs.joining.routes import Chain
from spark_cep.udfs.planning.shapes import chain

if TYPE_CHECKING:
    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.joining.any_match import BranchMatcher

Prefixes = dict[int, list[Partials]]


@dataclass(frozen=True)
class KeptRows:
    """Partial matches of a prefix of a branch's eager group, as row numbers of the state's
    table: (n,) for a slot, (n, length) for a list."""

    branch: int
    group: tuple[int, ...]
    rows: Mapping[int, Positions]


def grown(matcher: BranchMatcher, group: Sequence[int], old: Prefixes | None) -> Prefixes:
    """Partial matches of every prefix of the group, by its length. `old`: those known before
    this advance; None where there are none to go on from, so that all are found anew."""
    prefixes: Prefixes = {}
    known = _first(matcher, group[0], Rule(every=IS_OLD))
    new = _first(matcher, group[0], Rule(some=IS_NEW))
    prefixes[1] = together([*known, *new])
    for length in range(2, len(group) + 1):
        prefix = tuple(group[:length])
        if old is None:
            prefixes[length] = together(_extended(matcher, prefix, prefixes[length - 1]))
            continue
        fresh = together(_extended(matcher, prefix, new))
        fresh += together(_extended(matcher, prefix, known, Rule(some=IS_NEW)))
        known, new = old.get(length, []), fresh
        prefixes[length] = together([*known, *fresh])
    return prefixes


def _first(matcher: BranchMatcher, slot: int, rule: Rule) -> list[Partials]:
    walk = matcher.walk(Case({slot: rule}), (slot,), keeps_all=False)
    return together(walk.run(Chain(slot)))


def _extended(
    matcher: BranchMatcher,
    prefix: tuple[int, ...],
    sets: Sequence[Partials],
    rule: Rule | None = None,
) -> Iterator[Partials]:
    """The partial matches with one more slot; `rule`: what its rows have to be."""
    case = Case() if rule is None else Case({prefix[-1]: rule})
    walk = matcher.walk(case, prefix, keeps_all=True)
    before = frozenset(prefix[:-1])
    return walk.run(Chain(chain(prefix), {before: sets}))


# ---- to the state and back ---------------------------------------------------------------------


def to_rows(
    branch: int, group: Sequence[int], prefixes: Prefixes, kept: Flags, place: Positions
) -> Iterator[KeptRows]:
    """Partial matches that a later match can still need: `kept` says which positions stay,
    `place` what number they have then."""
    for length, sets in prefixes.items():
        if length == 1:
            continue
        for partials in sets:
            alive = partials.take(kept[partials.earliest])
            if len(alive):
                rows = {slot: place[bound] for slot, bound in alive.elements.items()}
                yield KeptRows(branch, tuple(group[:length]), rows)


def from_rows(
    stored: Sequence[KeptRows], branch: int, group: Sequence[int], position: Positions
) -> Prefixes:
    """The prefixes of one group; `position` says where each row of the table lies now."""
    prefixes: Prefixes = {}
    for each in stored:
        if each.branch == branch and each.group == tuple(group[: len(each.group)]):
            elements = {slot: position[rows] for slot, rows in each.rows.items()}
            every = [e if e.ndim == 2 else e[:, np.newaxis] for e in elements.values()]
            flat = np.concatenate(every, axis=1)
            partials = Partials(elements, flat.min(axis=1), flat.max(axis=1))
            prefixes.setdefault(len(each.group), []).append(partials)
    return prefixes
