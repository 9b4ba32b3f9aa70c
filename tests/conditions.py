"""Random conditions over the variables of a pattern, as Spark SQL text.

The texts keep to what the engine evaluates itself, so that each differential test runs it; what
only Spark can evaluate has tests with Spark. A condition over a negated variable names one such
variable; folds and `prev` stand on lists. A division over one variable stands only where the text
around it keeps Spark from dividing by zero, because its error would be Spark's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from spark_cep.events.together import VariablePlace, variable_places
from spark_cep.pattern import EventPatternNode, Repeat, children, iter_events
from tests.reference.choices import positives

# {v}: the event's own columns are written bare.
_OWN = (
    "kind = 'A'",
    "kind = 'B'",
    "kind = 'A'",
    "kind = 'B'",
    "kind <> 'C'",
    "kind <> 'C'",
    "kind IN ('A', 'B')",
    "kind IN ('A', 'B')",
    "kind = 'A' AND x > 0",
    "x >= 1",
    "x IS NULL OR kind = 'B'",
    "f > 0",
    "NOT (f < 1)",
    "t % 2 = 0",
)

# Two variables, v and w.
_PAIRS = (
    "{v}.x < {w}.x",
    "{v}.x >= {w}.x",
    "{v}.x = {w}.x",
    "{v}.x <> {w}.x",
    "{v}.x <=> {w}.x",
    "{v}.f < {w}.f",
    "{v}.f <= {w}.f",
    "{v}.f = {w}.f",
    "{v}.f > {w}.f",
    "{v}.f <=> {w}.f",
    "{v}.kind = {w}.kind",
    "{v}.kind < {w}.kind",
    "{v}.k = {w}.k",
    "{v}.x < {w}.f",
    "{v}.x = {w}.f",
    "{w}.t <= {v}.t + 2",
    "{w}.t - {v}.t < 3",
    "{v}.t + 1 < {w}.t",
    "{w}.t = {v}.t + 1",
    "abs({v}.t - {w}.t) <= 2",
    "{v}.x + 1 = {w}.x",
    "{v}.x + {w}.x > 2",
    "{v}.x * 2 <= {w}.x + 1",
    "{v}.x % 2 = {w}.x % 2",
    "{v}.x / {w}.x >= 1",
    "{v}.x div {w}.x = 1",
    "{v}.x % {w}.x = 0",
    "-{v}.x < {w}.x",
    "abs({v}.x - {w}.x) <= 1",
    "{v}.f - {w}.f > 0",
    "{v}.x = {w}.x OR {v}.f < {w}.f",
    "{v}.x IS NULL OR {w}.x = 1",
    "{v}.x IS NOT NULL OR {w}.f IS NULL",
    "({v}.x > 1 AND {w}.x > 1) OR {v}.kind = {w}.kind",
    "NOT ({v}.x = {w}.x)",
    "coalesce({v}.x, {w}.x, 0) = 1",
    "nullif({v}.x, {w}.x) IS NULL",
    "least({v}.f, {w}.f) < 1",
    "greatest({v}.x, {w}.x) = 2",
    "greatest({v}.f, {w}.f) > 1",
    "CASE WHEN {v}.x > {w}.x THEN {v}.f ELSE {w}.f END > 0",
    "if({v}.x = {w}.x, {v}.f, {w}.f) >= 1",
    "CASE {v}.x WHEN 0 THEN {w}.x WHEN 1 THEN 6 div {v}.x ELSE 6 % {v}.x + {w}.x END > 2",
    "if({v}.x = 0 OR {w}.x = 0, {w}.x, 6 div {v}.x + {w}.x) = 3",
    "coalesce({v}.x, {v}.t * 2 + {w}.x) > 2",
    "{v}.x IN (0, 6 div {v}.x + {w}.x)",
    "{v}.x BETWEEN 1 AND 6 div {v}.x + {w}.x",
    "{v}.x BETWEEN {w}.x - 1 AND {w}.x + 1",
    "{v}.x IN ({w}.x, 2)",
    "isnan({v}.f) = isnan({w}.f)",
    "{v}.x < {w}.x AND {v}.f <> {w}.f",
)

_TRIPLES = (
    "{v}.x + {w}.x > {u}.x",
    "{v}.x = {w}.x OR {w}.x = {u}.x",
    "{v}.x = {w}.x AND {w}.x = {u}.x",
    "{v}.t + {w}.t <= 2 * {u}.t",
)

# One list, b.
_LISTS = (
    "{b}.x > prev({b}.x)",
    "{b}.f >= prev({b}.f)",
    "{b}.t <= prev({b}.t) + 2",
    "{b}.x <> prev({b}.x) OR {b}.x IS NULL",
    "count({b}) >= 2",
    "count({b}.x) < 3",
    "sum({b}.x) > 1",
    "sum({b}.f) >= 1",
    "avg({b}.x) < 2",
    "min({b}.f) < 1",
    "max({b}.x) = 2",
    "max({b}.f) > 1",
    "first({b}.x) < last({b}.x)",
    "last({b}.t) - first({b}.t) <= 3",
    "{b}.x <= avg({b}.x)",
    "{b}.x >= first({b}.x)",
    "min({b}.kind) = 'A'",
)

# A list, b, and another variable, w.
_LISTS_AND_OTHERS = (
    "sum({b}.x) > {w}.x",
    "first({b}.x) = {w}.x",
    "last({b}.f) < {w}.f",
    "count({b}) > {w}.x",
    "max({b}.x) >= {w}.x",
    "prev({b}.x) < {w}.x",
    "{b}.x - prev({b}.x) <= {w}.x",
    "{b}.x > {w}.x OR {b}.x > prev({b}.x)",
    "avg({b}.f) < {w}.f",
    "last({b}.t) + 1 <= {w}.t",
)


def own_conditions() -> st.SearchStrategy[str | None]:
    """An event's own condition. Most have one: brute force tries every candidate."""
    return st.sampled_from((*_OWN, *_OWN, None))


@st.composite
def cross_conditions(draw: st.DrawFn, root: EventPatternNode) -> tuple[str, ...]:
    """Zero to four texts for .where."""
    names = positives(root)
    negated = [event.name for event, is_negated in iter_events(root) if is_negated]
    lists = _lists(root)
    templates = st.sampled_from(_kinds(names, negated, lists))
    texts = [
        _filled(draw, draw(st.sampled_from(draw(templates))), root, names, lists)
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3])))
        if len(names) > 1 or negated or lists
    ]
    if len(names) + len(negated) > 1 and draw(st.integers(0, 9)) == 9:
        texts += draw(_key_equalities(names, negated))
    return tuple(dict.fromkeys(texts))


@st.composite
def _key_equalities(draw: st.DrawFn, names: list[str], negated: list[str]) -> list[str]:
    """Equalities that tie all variables together: they may become a partition key."""
    column = draw(st.sampled_from(["x", "f", "kind"]))
    pairs = [*pairwise(names), *((names[0], name) for name in negated)]
    return [" AND ".join(f"{v}.{column} = {w}.{column}" for v, w in pairs)]


def _kinds(names: list[str], negated: list[str], lists: list[str]) -> list[Sequence[str]]:
    kinds: list[Sequence[str]] = []
    if len(names) > 1 or negated:
        kinds += [_PAIRS, _PAIRS]
    if len(names) > 2:
        kinds.append(_TRIPLES)
    if lists:
        kinds.append(_LISTS)
    if lists and len(names) > 1:
        kinds.append(_LISTS_AND_OTHERS)
    return kinds


def _filled(
    draw: st.DrawFn, template: str, root: EventPatternNode, names: list[str], lists: list[str]
) -> str:
    """The template with different variables; negated ones of one group at most."""
    negated = [event.name for event, is_negated in iter_events(root) if is_negated]
    places = {each.name: each for each in variable_places(root)}
    chosen: dict[str, str] = {}
    if "{b}" in template:
        chosen["b"] = draw(st.sampled_from(lists))
    for place in (place for place in "vwu" if f"{{{place}}}" in template):
        free = [name for name in names if name not in chosen.values()]
        taken = [places[name] for name in chosen.values() if name in negated]
        # What a NOT depends on is worth more tests than its share of the names.
        free += 2 * [
            name for name in negated
            if name not in chosen.values() and all(_share_a_not(places[name], t) for t in taken)
        ]  # fmt: skip
        chosen[place] = draw(st.sampled_from(free))
    return template.format(**chosen)


def _share_a_not(one: VariablePlace, other: VariablePlace) -> bool:
    return one.negation == other.negation and not one.excludes(other)


def _lists(node: EventPatternNode) -> list[str]:
    if isinstance(node, Repeat):
        return positives(node)
    return [name for child in children(node) for name in _lists(child)]
