"""The worth of a row: how many matches are expected to lose it, given which other rows stay.

    conditions between two variables -> random pairs of their rows, of which some pass
    pairs -> messages along the graph of the conditions -> worth by the values of a row
    worth -> the rows of least worth go -> messages again, from the rows that stay -> ...

The conditions of a branch make a graph between its variables. On a tree the expected number of
matches through a row is a product of one message for each neighbor, and a message is the sum over
the neighbor's rows that pass, each weighed by the messages from beyond it (belief propagation).
DARLING's Equation 11 is the same product with messages that look one condition far. Where the graph
has cycles, a spanning tree of the most selective conditions stands for it. The other conditions of
a cycle, and those between three variables or more, count one condition far.

A list is a repeated factor of the messages to its neighbors. A condition between its elements
(`prev`) makes a chain of them, along which the lists through an element are counted; a condition on
its first or last element concerns one element of each list.

Sums are over drawn pairs, so any condition that the engine can evaluate is covered. Dropping rows
changes what the others are worth: a row whose partners are gone is in no match. So rows go in
rounds, and messages are passed again after each (`thin`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import factorial, prod
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.events.sampling import (
    can_sample,
    draw_partials,
    make_sampling_walk,
    previous_cells,
)
from spark_cep.udfs.expressions import LIST_ENDS, cells_of
from spark_cep.udfs.shedding.passing import (
    BINS,
    BINS_BESIDE_KEYS,
    MOST_KEY_BINS,
    PassTable,
    feature_of,
    find_columns,
    is_monotonic,
    round_shares,
)
from spark_cep.udfs.shedding.utility import Role, Utilities
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.partials import Partials
    from spark_cep.udfs.events.walk import BranchWalk
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.shedding.passing import Feature

Numbers = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Pairs drawn for the conditions between two variables, half of them from either side, and so many
# times as many where hardly any pass. In a long chain few of those that pass matter.
EDGE_DRAWS: Final = 60_000
MORE_DRAWS: Final = 4
# So many passing pairs give every bin its share.
ENOUGH_PASSING: Final = 2_000
# A bin counts as if so many more draws had begun in it, with rows that are worth the mean: next to
# nothing, for in a long chain most bins are worth nothing, and messages multiply.
PRIOR_DRAWS: Final = 0.1
# Elements of a list that are counted; the number of longer lists is dominated by chance.
MOST_ELEMENTS: Final = 8
# Partners of a list's element beyond which the number of lists is not told apart.
MOST_PARTNERS: Final = 12.0
# The part of the rows that stays from one round to the next.
ROUND: Final = 0.8
# The part of the rows of one variable that stays in any case.
LEAST_STAYING: Final = 0.7
# The key is looked at if so large a part of the pairs is elsewhere than even keys would have it.
KEY_DIFFERENCE: Final = 0.05
_LEAST: Final = 1e-300
# What a bin has at least, of the one beside it.
NEAR: Final = 0.3


# ---- the graph of a branch -----------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One end of an edge: the variable, and the bins of its rows by what the conditions read of
    them. `bins`: of every row of the table; `rows`: of the variable in each bin."""

    variable: int
    features: tuple[Feature, ...]
    bins: Positions
    rows: Numbers
    by_key: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(feature.size for feature in self.features)


@dataclass(frozen=True)
class Edge:
    """The conditions between variables, mostly two, and drawn pairs of rows that pass them.
    `pairs`: how many pairs of the table each stands for. `share`: of all pairs that pass.
    `of_one`: of a list, only one element has to pass."""

    conditions: tuple[int, ...]
    sides: tuple[Side, ...]
    rows: tuple[Positions, ...]
    pairs: Numbers
    share: float
    of_one: bool = False


@dataclass(frozen=True)
class BranchGraph:
    """A spanning forest over the variables of a branch, and the `others`, which close cycles or
    have more than two variables. `lists`: the numbers of elements of the variables that are lists.
    `chains`: from an element of a list to the next."""

    variables: tuple[int, ...]
    edges: tuple[Edge, ...]
    others: tuple[Edge, ...]
    lists: Mapping[int, tuple[int, int]]
    chains: Mapping[int, Edge]

    def sides_of(self, variable: int) -> Iterator[tuple[Edge, int]]:
        """The edges of the forest that a variable has, each with its place in it."""
        yield from _sides_of(self.edges, variable)

    def other_sides_of(self, variable: int) -> Iterator[tuple[Edge, int]]:
        """The same of the other edges."""
        yield from _sides_of(self.others, variable)


def _sides_of(edges: Sequence[Edge], variable: int) -> Iterator[tuple[Edge, int]]:
    for edge in edges:
        for place, side in enumerate(edge.sides):
            if side.variable == variable:
                yield edge, place


@dataclass(frozen=True)
class _EdgeDraws:
    """How edges are drawn: with so many `draws` at first. `keys`: the types of the program's keys,
    if the worth of a row may depend on its key. `known`: the edges of earlier branches."""

    keys: Sequence[Type]
    draws: int
    known: dict[tuple[int, ...], Edge | None] = field(default_factory=dict)


def graphs_of(
    matching: AdvanceContext, keys: Sequence[Type] = (), draws: int = EDGE_DRAWS
) -> tuple[BranchGraph, ...]:
    """The graph of each branch. `keys`: the types of the program's keys, if the worth of a row may
    depend on its key. `draws`: for each edge, at first."""
    drawing = _EdgeDraws(keys, draws)
    return tuple(
        _make_graph(make_sampling_walk(matching, number), drawing)
        for number in range(len(matching.program.branches))
    )


def _make_graph(walk: BranchWalk, drawing: _EdgeDraws) -> BranchGraph:
    branch = walk.matching.program.branches[walk.branch]
    plain = [slot for slot in branch.slots if not slot.is_group]
    variables = tuple(slot.variables[0] for slot in plain)
    edges = _draw_edges(walk, _conditions_by_variables(walk, variables), drawing)
    forest = _spanning_forest([edge for edge in edges if len(edge.sides) == 2])
    others = tuple(edge for edge in edges if edge not in forest)
    # Variables without a common condition meet in the same window of a key.
    neighbors: _Wanted = {(pair, False): [] for pair in pairwise(variables)}
    forest = _spanning_forest([*forest, *_draw_edges(walk, neighbors, drawing, forest)])
    lists = {
        slot.variables[0]: (slot.low, slot.high if slot.high is not None else MOST_ELEMENTS)
        for slot in plain
        if slot.is_list
    }
    return BranchGraph(variables, forest, others, lists, _draw_chains(walk, lists, drawing))


# The conditions between the same variables, as places in the program, apart by `of_one`.
_Wanted = dict[tuple[tuple[int, ...], bool], list[int]]


def _conditions_by_variables(walk: BranchWalk, variables: Sequence[int]) -> _Wanted:
    """The conditions between two variables or more that can be drawn."""
    found: _Wanted = {}
    for place, condition in enumerate(walk.matching.program.conditions):
        if len(condition.variables) > 1 and condition.variables <= set(variables):
            between = tuple(sorted(condition.variables, key=variables.index))
            if can_sample(walk, condition, ends=True) and not any(previous_cells(condition)):
                of_one = any(cell.reading in LIST_ENDS for cell in cells_of(condition.expression))
                found.setdefault((between, of_one), []).append(place)
    return found


def _draw_chains(
    walk: BranchWalk, lists: Mapping[int, tuple[int, int]], drawing: _EdgeDraws
) -> dict[int, Edge]:
    """For each list the conditions between an element and the one before it."""
    found = {}
    for variable in lists:
        places = [
            place
            for place, condition in enumerate(walk.matching.program.conditions)
            if condition.variables == {variable}
            and any(previous_cells(condition))
            and can_sample(walk, condition)
        ]
        edge = _draw_edge(walk, (variable, variable), places, drawing) if places else None
        if edge is not None:
            found[variable] = edge
    return found


def _draw_edges(
    walk: BranchWalk,
    wanted: _Wanted,
    drawing: _EdgeDraws,
    before: Sequence[Edge] = (),
) -> list[Edge]:
    """The edges that could be drawn, without those between variables that `before` connects."""
    found = []
    for (variables, of_one), places in wanted.items():
        slots = [walk.slots.of_variable[v] for v in variables]
        precedes = walk.matching.program.branches[walk.branch].precedes
        order = ((one, other) in precedes for one in slots for other in slots)
        known = (*variables, *order, *places)
        if not places and _are_connected(before, variables):
            continue
        if known not in drawing.known:
            drawing.known[known] = _draw_edge(walk, variables, places, drawing, of_one=of_one)
        edge = drawing.known[known]
        if edge is not None:
            found.append(edge)
    return found


def _are_connected(edges: Sequence[Edge], pair: tuple[int, ...]) -> bool:
    reached, before = {pair[0]}, 0
    while len(reached) > before:
        before = len(reached)
        for edge in edges:
            ends = {side.variable for side in edge.sides}
            if ends & reached:
                reached |= ends
    return pair[1] in reached


def _spanning_forest(edges: Sequence[Edge]) -> tuple[Edge, ...]:
    """The most selective edges that make no cycle."""
    group: dict[int, int] = {}
    found = []
    for edge in sorted(edges, key=lambda edge: edge.share):
        one, other = (side.variable for side in edge.sides)
        first, second = group.setdefault(one, one), group.setdefault(other, other)
        if first != second:
            found.append(edge)
            group = {v: first if g == second else g for v, g in group.items()}
    return tuple(found)


# ---- drawn pairs ---------------------------------------------------------------------------------


def _draw_edge(
    walk: BranchWalk,
    variables: tuple[int, ...],
    places: Sequence[int],
    drawing: _EdgeDraws,
    *,
    of_one: bool = False,
) -> Edge | None:
    """`variables`: a list twice, for an element and the next."""
    draws = drawing.draws
    while True:
        rows, pairs, share = _draw_pairs(walk, variables, places, draws)
        if len(pairs) >= ENOUGH_PASSING or draws >= MORE_DRAWS * drawing.draws:
            break
        draws *= MORE_DRAWS
    if not len(pairs):
        return None
    key = _make_key_feature(walk, drawing.keys)
    if key is not None and not any(
        _depends_on_key(walk, key, variable, of, pairs)
        for variable, of in zip(variables, rows, strict=True)
    ):
        key = None
    sides = tuple(_make_side(walk, places, variable, key) for variable in variables)
    return Edge(tuple(places), sides, rows, pairs, share, of_one)


def _draw_pairs(
    walk: BranchWalk, variables: tuple[int, ...], places: Sequence[int], draws: int
) -> tuple[tuple[Positions, ...], Numbers, float]:
    """Pairs that pass, and how many pairs of the table each stands for. As many draws begin with
    each of the variables: a rare row has many draws from its side."""
    events, slot_of = walk.matching.events, walk.slots.of_variable
    conditions = [walk.matching.program.conditions[place] for place in places]
    is_chain = variables[0] == variables[-1]
    starts = variables[:1] if is_chain else variables
    found: list[tuple[Positions, ...]] = []
    pairs, tested, passed = [], 0.0, 0.0
    for number, first in enumerate(starts):
        slots = [slot_of[first], *(slot_of[v] for v in variables if v != first or is_chain)]
        slots = slots[: len(variables)]
        each = draws // len(starts)
        drawn = draw_partials(walk, slots, each, np.random.default_rng(number))
        if drawn is None:
            continue
        partials, weights = drawn
        count = np.count_nonzero(events.candidates(first))
        weights = weights * (count / each / len(starts))
        holds = np.ones(len(weights), dtype=np.bool_)
        reader = walk.reader(partials)
        for condition in conditions:
            holds &= reader.holds(condition)
        tested, passed = tested + weights.sum(), passed + weights[holds].sum()
        found.append(tuple(rows[holds] for rows in _rows_of(walk, partials, variables)))
        pairs.append(weights[holds])
    if not pairs:
        none = np.zeros(0, dtype=np.int64)
        return tuple(none for _ in variables), np.zeros(0), 1.0
    rows = tuple(events.rows(np.concatenate(each)) for each in zip(*found, strict=True))
    return rows, np.concatenate(pairs), passed / tested if tested else 1.0


def _rows_of(
    walk: BranchWalk, partials: Partials, variables: tuple[int, ...]
) -> Iterator[Positions]:
    """The row of each variable; of a list that is in it twice its elements, one after the other."""
    for place, variable in enumerate(variables):
        rows = walk.slots.rows(variable, partials)
        yield rows[:, variables[:place].count(variable)] if rows.ndim > 1 else rows


def _columns_of(
    walk: BranchWalk, places: Sequence[int], variable: int
) -> dict[int, tuple[Type, bool]]:
    """The columns that the conditions read of a variable, and whether they are compared for
    equality; three at the most."""
    found: dict[int, tuple[Type, bool]] = {}
    for place in places:
        of_one = find_columns(walk, walk.matching.program.conditions[place], variable) or {}
        for column, (type_, is_equal) in of_one.items():
            found[column] = (type_, is_equal or found.get(column, (type_, False))[1])
    return dict(list(found.items())[: max(BINS)])


def _make_key_feature(walk: BranchWalk, keys: Sequence[Type]) -> Feature | None:
    """The bins of the key, if there is one key of several values."""
    events, program = walk.matching.events, walk.matching.program
    if len(keys) != 1:
        return None
    column = to_single_array(events.table.column(program.keys[0]))
    key = feature_of(program.keys[0], keys[0], column, MOST_KEY_BINS, is_equal=True)
    return key if key is not None and len(key.values) > 1 else None


def _depends_on_key(
    walk: BranchWalk, key: Feature, variable: int, rows: Positions, pairs: Numbers
) -> bool:
    """Whether the rows of some keys have clearly more partners than those of others."""
    bins = key.bins(walk.matching.events.table.column(key.column))
    here = _rows_that_may_be(walk, variable)
    sums = np.bincount(bins[rows], pairs, key.size)
    expected = np.bincount(bins[here], minlength=key.size) * (pairs.sum() / max(len(here), 1))
    chance = 2 * np.sqrt(np.bincount(bins[rows], pairs**2, key.size))
    beyond = np.maximum(np.abs(sums - expected) - chance, 0.0).sum()
    return bool(beyond > KEY_DIFFERENCE * pairs.sum())


def _rows_that_may_be(walk: BranchWalk, variable: int) -> Positions:
    events = walk.matching.events
    return np.asarray(events.rows(np.flatnonzero(events.candidates(variable))))


def _make_side(walk: BranchWalk, places: Sequence[int], variable: int, key: Feature | None) -> Side:
    events = walk.matching.events
    here = pa.array(_rows_that_may_be(walk, variable))
    columns = _columns_of(walk, places, variable)
    features = [] if key is None else [key]
    most = BINS[max(len(columns), 1)]
    if key is not None:
        most = min(most, BINS_BESIDE_KEYS if len(columns) < 2 else BINS[max(BINS)])
    for column, (type_, is_equal) in columns.items():
        seen = to_single_array(events.table.column(column)).take(here)
        # Past values of a counter do not predict those of later rows.
        if not is_monotonic(walk, here, seen, type_):
            feature = feature_of(column, type_, seen, most, is_equal=is_equal)
            features += [] if feature is None else [feature]
    sizes = tuple(feature.size for feature in features)
    bins = np.zeros(events.table.num_rows, dtype=np.int64)
    if features:
        each = tuple(feature.bins(events.table.column(feature.column)) for feature in features)
        bins = np.ravel_multi_index(each, sizes)
    rows = np.bincount(bins[here.to_numpy()], minlength=prod(sizes)).astype(np.float64)
    return Side(variable, tuple(features), bins, rows, by_key=key is not None)


# ---- messages ------------------------------------------------------------------------------------


class Messages:
    """The messages of a branch while the rows in `stays` stay. A message has a number for each bin
    of the receiver: the expected partial matches beyond the edge that such a row extends."""

    def __init__(self, graph: BranchGraph, stays: Flags) -> None:
        self.graph = graph
        self._stays = stays.astype(np.float64)
        self._known: dict[tuple[int, int], Numbers] = {}

    def to_variable(self, variable: int) -> Iterator[tuple[Edge, int, Numbers]]:
        """All messages that a variable receives, each with the edge and the variable's side. With
        the first one, those to a list count the lists that an element is in."""
        is_counted = variable not in self.graph.lists
        for edge, place in self.graph.sides_of(variable):
            if is_counted or edge.sides[1 - place].variable in self.graph.lists:
                yield edge, place, self._message(edge, place)
            else:
                yield edge, place, self._pass(edge, place, counts_lists=True)
                is_counted = True
        for edge, place in self.graph.other_sides_of(variable):
            yield edge, place, self._one_hop(edge, place)
        if variable in self.graph.chains:
            yield self.graph.chains[variable], 0, self._chain(variable)

    def worth(self, variable: int) -> Numbers:
        """The expected matches of each row of the table as this variable."""
        found = np.ones(len(self._stays))
        for edge, place, message in self.to_variable(variable):
            found *= message[edge.sides[place].bins]
        return found

    def _message(self, edge: Edge, receiver: int) -> Numbers:
        known = (id(edge), receiver)
        if known not in self._known:
            self._known[known] = self._pass(edge, receiver)
        return self._known[known]

    def _pass(self, edge: Edge, receiver: int, *, counts_lists: bool = False) -> Numbers:
        """`counts_lists`: each element of a list receives what its lists have."""
        sender, rows = edge.sides[1 - receiver], edge.rows[1 - receiver]
        beyond = np.ones(len(self._stays))
        for other, place in self.graph.sides_of(sender.variable):
            if other is not edge:
                beyond *= self._message(other, place)[other.sides[place].bins]
        chain = self.graph.chains.get(sender.variable)
        if chain is not None:
            beyond *= self._chain(sender.variable)[chain.sides[0].bins]
        pairs = edge.pairs * self._stays[rows]
        if edge.of_one:
            found = self._dilute(edge, receiver, _by_bin(edge, receiver, pairs * beyond[rows]))
            for place, side in enumerate(edge.sides):
                if side.variable in self.graph.lists and (place != receiver or counts_lists):
                    found = found * self._lists_of_one(edge, place)[0]
            return found
        if counts_lists:
            pairs = pairs * self._lists_with(edge, receiver)
        found = _by_bin(edge, receiver, pairs * beyond[rows])
        if sender.variable in self.graph.lists:
            # All elements of a list meet the same rows beyond it.
            elements = np.maximum(_by_bin(edge, receiver, pairs), _LEAST)
            found = self._count_lists(elements, sender.variable, 0) * (found / elements)
        return found

    def _dilute(self, edge: Edge, receiver: int, message: Numbers) -> Numbers:
        """The message to the rows of a list, of which one element receives it, and the others the
        mean."""
        if edge.sides[receiver].variable not in self.graph.lists:
            return message
        _, length = self._lists_of_one(edge, receiver)
        return message + (length - 1) * _mean(edge, receiver, message)

    def _lists_of_one(self, edge: Edge, place: int) -> tuple[float, float]:
        """The expected lists with a given element, and their mean length."""
        variable, other = edge.sides[place].variable, edge.sides[1 - place]
        elements = edge.pairs.sum() / edge.share / max(float(other.rows.sum()), 1.0)
        low, high = self.graph.lists[variable]
        each = {
            length: self._count_lists(np.array([elements]), variable, 1, (length, length)).item()
            for length in range(max(low, 1), min(high, MOST_ELEMENTS) + 1)
        }
        lists = max(sum(each.values()), _LEAST)
        return lists, sum(length * count for length, count in each.items()) / lists

    def _one_hop(self, edge: Edge, receiver: int) -> Numbers:
        """A message from an edge that is not in the forest, relative to its mean."""
        counted = edge.pairs.copy()
        for place, rows in enumerate(edge.rows):
            if place != receiver:
                counted *= self._stays[rows]
        found = _by_bin(edge, receiver, counted)
        return _relative(
            edge, receiver, self._dilute(edge, receiver, found) if edge.of_one else found
        )

    def _chain(self, variable: int) -> Numbers:
        """How many lists an element is in, by the conditions between neighbors in the list,
        relative to the mean."""
        edge = self.graph.chains[variable]
        known = (id(edge), 0)
        if known not in self._known:
            low, high = self.graph.lists[variable]
            longest = min(high, MOST_ELEMENTS)
            # Lists that end with the element, and that begin with it, by their length.
            ends = [np.ones(len(edge.sides[0].rows))]
            begins = list(ends)
            for _ in range(1, longest):
                for lists, receiver in ((ends, 1), (begins, 0)):
                    rows = edge.rows[1 - receiver]
                    beyond = self._stays[rows] * lists[-1][edge.sides[0].bins[rows]]
                    lists.append(_by_bin(edge, receiver, edge.pairs * beyond))
            through = np.zeros(len(ends[0]))
            for length in range(max(low, 1), longest + 1):
                for before in range(length):
                    through += ends[before] * begins[length - 1 - before]
            self._known[known] = _relative(edge, 0, through)
        return self._known[known]

    def _lists_with(self, edge: Edge, receiver: int) -> Numbers:
        """For each drawn pair the lists of its other row that one element is in."""
        mine, other = edge.sides[receiver], edge.sides[1 - receiver]
        at = other.bins[edge.rows[1 - receiver]]
        sums = np.bincount(at, edge.pairs * self._stays[edge.rows[receiver]], len(other.rows))
        partners = sums / np.maximum(other.rows, 1.0)
        return self._count_lists(partners, mine.variable, 1)[at]

    def _count_lists(
        self,
        partners: Numbers,
        variable: int,
        drawn: int,
        lengths: tuple[int, int] | None = None,
    ) -> Numbers:
        """How many lists of a variable there are of so many possible elements, of which `drawn` are
        in each: a part of them if neighbors in the list have to pass something."""
        low, high = lengths or self.graph.lists[variable]
        chain = self.graph.chains.get(variable)
        share = 1.0 if chain is None else chain.share
        partners = np.minimum(partners, MOST_PARTNERS)
        found = np.zeros(len(partners))
        for length in range(max(low, drawn), min(high, MOST_ELEMENTS) + 1):
            each = share ** max(length - 1, 0) / factorial(length - drawn)
            found += partners ** (length - drawn) * each
        return found


def _relative(edge: Edge, receiver: int, message: Numbers) -> Numbers:
    """By the mean of the receiver's rows."""
    return message / max(_mean(edge, receiver, message), _LEAST)


def _mean(edge: Edge, receiver: int, message: Numbers) -> float:
    rows = edge.sides[receiver].rows
    return float(message @ rows) / max(float(rows.sum()), 1.0)


def _by_bin(edge: Edge, receiver: int, counted: Numbers) -> Numbers:
    """The drawn pairs of a row of each bin."""
    side = edge.sides[receiver]
    sums = np.bincount(side.bins[edge.rows[receiver]], counted, len(side.rows))
    every = max(float(side.rows.sum()), 1.0)
    more = PRIOR_DRAWS * every / EDGE_DRAWS
    found = np.asarray((sums + more * float(counted.sum()) / every) / (side.rows + more))
    return _near(side, found)


def _near(side: Side, message: Numbers) -> Numbers:
    """At least a part of what bins nearby have: of the values of a sample, those beside the ones
    that pass may pass next time, and the farther away, the less likely they do."""
    shaped = message.reshape(side.sizes)
    for axis, feature in enumerate(side.features):
        if feature.is_ordered:
            # The last bin is NULL.
            values = np.moveaxis(shaped.copy(), axis, -1)[..., :-1]
            decay = NEAR ** np.arange(feature.size - 1)
            above = np.maximum.accumulate(values / decay, axis=-1) * decay
            below = np.maximum.accumulate((values * decay)[..., ::-1], axis=-1)[..., ::-1] / decay
            shaped = shaped.copy()
            np.moveaxis(shaped, axis, -1)[..., :-1] = np.maximum(above, below)
    return np.asarray(shaped.reshape(-1))


# ---- rows that stay ------------------------------------------------------------------------------


class RowWorth:
    """The worth of the rows of a table. `mask`: the variables that each row may be. `totals`: the
    expected matches of each branch; if they are not known, what messages make of it, which know the
    window of two rows only, not that of all."""

    def __init__(
        self,
        graphs: Sequence[BranchGraph],
        mask: Positions,
        may_be_shed: Flags,
        totals: Sequence[float] = (),
    ) -> None:
        self._graphs = graphs
        self._scales = [1.0] * len(graphs)
        self._mask = mask
        self._may_be_shed = may_be_shed
        # Rows of equal worth are told apart by chance, and always alike.
        self._own = 1 + 1e-9 * np.random.default_rng(0).random(len(mask))
        if len(totals) > 1:
            every = np.ones(len(mask), dtype=np.bool_)
            here = [max(self._matches_of(m, every), _LEAST) for m in self.messages(every)]
            self._scales = [total / one for total, one in zip(totals, here, strict=True)]

    def matches(self, stays: Flags) -> float:
        """The expected number of matches of the rows that stay."""
        each = zip(self._scales, self.messages(stays), strict=True)
        return sum(scale * self._matches_of(messages, stays) for scale, messages in each)

    def _matches_of(self, messages: Messages, stays: Flags) -> float:
        """Of one branch, without its scale."""
        for variable in messages.graph.variables[:1]:
            is_candidate = (self._mask >> variable & 1).astype(np.bool_)
            return float(messages.worth(variable)[is_candidate & stays].sum())
        return 0.0

    def utilities(self, stays: Flags, sheddable: int, needed: int) -> Utilities:
        """The worth, with rows that stay, as a function of the columns of a row."""
        roles = [
            _make_role(messages, variable, scale)
            for scale, messages in zip(self._scales, self.messages(stays), strict=True)
            for variable in messages.graph.variables
        ]
        top = float(self.of_rows(stays)[0].max(initial=0.0))
        return Utilities(tuple(roles), sheddable, needed, top or 1.0)

    def messages(self, stays: Flags) -> list[Messages]:
        """Of each branch."""
        return [Messages(graph, stays) for graph in self._graphs]

    def of_rows(self, stays: Flags) -> tuple[Numbers, Positions]:
        """The expected matches that each row is in, with rows that stay, and the variable as which
        it is in most of them."""
        found, most = np.zeros(len(stays)), np.zeros(len(stays))
        role = np.zeros(len(stays), dtype=np.int64)
        for scale, messages in zip(self._scales, self.messages(stays), strict=True):
            for variable in messages.graph.variables:
                one = scale * messages.worth(variable) * (self._mask >> variable & 1)
                found += one
                role[one > most] = variable
                np.maximum(most, one, out=most)
        return found * self._own, role

    def thin(self, shares: Sequence[float]) -> Iterator[tuple[float, Flags]]:
        """For each share, descending, flags of the rows that stay when so many of those that may
        be shed are left. Each round drops a few, and looks again at what the others are worth."""
        stays, share = np.ones(len(self._mask), dtype=np.bool_), 1.0
        every = int(np.count_nonzero(self._may_be_shed))
        for target in shares:
            while share > target:
                share = max(ROUND * share, target)
                stays = self._best(stays, round(share * every))
            yield target, stays

    def _best(self, stays: Flags, quota: int) -> Flags:
        """Flags of the rows of highest worth, `quota` of those that may be shed.

        Of the rows that stay as one variable at most a part goes in a round: all of them may be
        worth a little less than those of another variable, without which they are worth nothing."""
        worth, role = self.of_rows(stays)
        here = np.flatnonzero(self._may_be_shed)
        of_those, roles, stayed = worth[here], role[here], stays[here]
        is_safe = np.zeros(len(here), dtype=np.bool_)
        for variable in np.unique(roles):
            mine = np.flatnonzero(roles == variable)
            least = int(LEAST_STAYING * np.count_nonzero(stayed[mine]))
            is_safe[mine[_largest(of_those[mine], least)]] = True
        found = ~self._may_be_shed
        found[here[_largest(of_those + is_safe * (of_those.max(initial=0.0) + 1), quota)]] = True
        return found


def _largest(numbers: Numbers, count: int) -> Positions:
    """The places of the `count` largest numbers."""
    left = len(numbers) - count
    if left <= 0:
        return np.arange(len(numbers))
    return np.argpartition(numbers, left)[left:] if count > 0 else np.zeros(0, dtype=np.int64)


def _make_role(messages: Messages, variable: int, scale: float) -> Role:
    tables = []
    for edge, place, message in messages.to_variable(variable):
        side = edge.sides[place]
        mean = _mean(edge, place, message)
        scale *= mean
        if side.features and mean > 0:
            shares = round_shares((message / mean).reshape(side.sizes))
            tables.append(
                PassTable(variable, edge.conditions, side.features, shares, mean, side.by_key)
            )
    return Role(variable, tuple(tables), scale)
