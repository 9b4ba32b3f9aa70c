"""What utilities are made of, against the true chance to pass, on rows from known distributions.

A bin's share is an average over n draws, so it lies within 5 of its standard deviations
sqrt(p (1 - p) / n) of the true share p of the bin's rows, beside what the prior of 10 draws pulls
it to the mean of all, and three digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import erf, sqrt
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from spark_cep import all_of, event, no, seq, udf
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.sampling import make_sample_context
from spark_cep.udfs.shedding.learning import RowSample, learn_model
from spark_cep.udfs.shedding.passing import CONDITION_DRAWS, PRIOR_DRAWS, PassTable, tables_of
from spark_cep.udfs.shedding.utility import LEVELS
from tests.shedding.learned import FEW, prepared_of, tables

if TYPE_CHECKING:
    from tests.programs import Prepared

A, B, C = (event(name, f"kind = {number}") for number, name in enumerate("abc"))
ROWS = 9_000
Columns = dict[str, np.ndarray]
Holds = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], np.ndarray]


def columns(
    seed: int = 3, **more: Callable[[np.random.Generator, np.ndarray], np.ndarray]
) -> Columns:
    """Kinds in any order, and columns that may hang on the kind."""
    random = np.random.default_rng(seed)
    kind = random.integers(0, 3, ROWS)
    return {
        "t": np.arange(ROWS),
        "kind": kind,
        **{n: made(random, kind) for n, made in more.items()},
    }


def flat(table: PassTable, rows: pa.Table) -> np.ndarray:
    """One number for the bins of each row."""
    bins = tuple(feature.bins(rows.column(feature.column)) for feature in table.features)
    return np.ravel_multi_index(bins, table.shares.shape)


def agrees(prepared: Prepared, table: PassTable, of_row: np.ndarray) -> None:
    """`of_row`: the true chance of each row that may be the table's variable, in their order."""
    mask = prepared.table.column(prepared.program.mask).to_numpy()
    own = np.flatnonzero(mask >> table.variable & 1)
    at, shares = flat(table, prepared.table)[own], table.shares.ravel()
    compared = 0
    for each in np.unique(at):
        here = at == each
        draws = CONDITION_DRAWS * np.count_nonzero(here) / len(own)
        if draws < FEW:
            continue
        true = float(of_row[here].mean())
        deviation = sqrt(max(true * (1 - true), 1 / draws) / draws)
        pulled = abs(true - table.mean) * PRIOR_DRAWS / (draws + PRIOR_DRAWS)
        assert shares[each] == pytest.approx(true, abs=5 * deviation + pulled + 0.005)
        compared += 1
    assert compared > 1
    assert table.mean == pytest.approx(of_row.mean(), abs=5 * sqrt(0.25 / CONDITION_DRAWS) + 0.01)


def truth(known: Columns, number: int, other: int, holds: Holds) -> tuple[np.ndarray, np.ndarray]:
    """The share of all rows of the other kind with which each row passes, both ways round."""
    a = {name: each[known["kind"] == number][:, np.newaxis] for name, each in known.items()}
    b = {name: each[known["kind"] == other][np.newaxis, :] for name, each in known.items()}
    passes = holds(a, b)
    return passes.mean(axis=1), passes.mean(axis=0)


def normal(
    mean: float, deviation: float
) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    return lambda random, kind: random.normal(mean, deviation, len(kind))


def uniform(random: np.random.Generator, kind: np.ndarray) -> np.ndarray:
    return random.random(len(kind))


def skewed(random: np.random.Generator, kind: np.ndarray) -> np.ndarray:
    """Twelve values, each half as frequent as the one before."""
    return np.minimum(random.geometric(0.5, len(kind)), 12)


NAMES = np.array(
    ["", "it's", "back\\slash", "ünï", "new\nline", "x", "y", "z", "A", "B", "C", "D", "E"]
)

# ---- the paper's example -----------------------------------------------------------------------


def test_the_papers_example_has_the_papers_utilities() -> None:
    random = np.random.default_rng(11)
    kind = random.integers(0, 2, 20_000)
    price = np.where(
        kind == 0, random.normal(500, 300, len(kind)), random.normal(400, 200, len(kind))
    )
    pattern = seq(A, B).where("a.price < b.price").within(2000)
    known = {"t": np.arange(len(kind)), "kind": kind, "price": price}
    found = tables(prepared_of(pattern, known))
    table = found["a", "a.price < b.price"]
    (feature,) = table.features
    cheap, dear = table.shares[feature.bins(pa.array([200.0, 700.0]))]
    # Bins of A's quantiles are about 40 wide at 200 and 30 at 700, 0.05 and 0.02 of the chance.
    assert cheap == pytest.approx(0.8413, abs=0.05)
    assert dear == pytest.approx(0.066, abs=0.03)

    def below(value: float, mean: float, deviation: float) -> float:
        return (1 + erf((value - mean) / deviation / sqrt(2))) / 2

    prepared = prepared_of(pattern, known)
    of_a = np.array([1 - below(each, 400, 200) for each in price[kind == 0]])
    of_b = np.array([below(each, 500, 300) for each in price[kind == 1]])
    agrees(prepared, table, of_a)
    agrees(prepared, found["b", "a.price < b.price"], of_b)


# ---- distributions and conditions --------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "condition", "holds"),
    [
        (normal(0, 1), "a.x < b.x", lambda a, b: a["x"] < b["x"]),
        (uniform, "a.x >= b.x", lambda a, b: a["x"] >= b["x"]),
        (uniform, "b.x > a.x * 2 + 0.1", lambda a, b: b["x"] > a["x"] * 2 + 0.1),
        (lambda r, k: r.exponential(3, len(k)), "b.x > a.x * 2 + 1",
         lambda a, b: b["x"] > a["x"] * 2 + 1),
        (lambda r, k: r.lognormal(0, 1.5, len(k)), "a.x * b.x < 1",
         lambda a, b: a["x"] * b["x"] < 1),
        (normal(5, 2), "abs(a.x - b.x) < 0.5", lambda a, b: abs(a["x"] - b["x"]) < 0.5),
        (uniform, "b.x BETWEEN a.x - 0.2 AND a.x + 0.05",
         lambda a, b: (b["x"] >= a["x"] - 0.2) & (b["x"] <= a["x"] + 0.05)),
        (uniform, "(a.x < b.x - 0.7 OR a.x > b.x + 0.3)",
         lambda a, b: (a["x"] < b["x"] - 0.7) | (a["x"] > b["x"] + 0.3)),
        (uniform, "(a.x > 0.5 AND b.x > 0.9 OR a.x < 0.1 AND b.x < 0.3)",
         lambda a, b: (a["x"] > 0.5) & (b["x"] > 0.9) | (a["x"] < 0.1) & (b["x"] < 0.3)),
        (skewed, "a.x = b.x", lambda a, b: a["x"] == b["x"]),
        (skewed, "a.x <> b.x", lambda a, b: a["x"] != b["x"]),
        (skewed, "a.x + b.x < 5", lambda a, b: a["x"] + b["x"] < 5),
        (lambda r, k: NAMES[skewed(r, k)], "a.x = b.x", lambda a, b: a["x"] == b["x"]),
        (skewed, "a.x IN (b.x, b.x + 1)",
         lambda a, b: (a["x"] == b["x"]) | (a["x"] == b["x"] + 1)),
    ],
)  # fmt: skip
def test_shares_are_the_true_chance_to_pass(
    made: Callable[[np.random.Generator, np.ndarray], np.ndarray], condition: str, holds: Holds
) -> None:
    known = columns(x=made)
    # A third variable keeps an equality from becoming a key.
    prepared = prepared_of(all_of(A, B, C).where(condition).within(1500), known)
    found = {variable: table for (variable, _), table in tables(prepared).items()}
    of_a, of_b = truth(known, 0, 1, holds)
    agrees(prepared, found["a"], of_a)
    agrees(prepared, found["b"], of_b)
    assert "c" not in found


def test_conditions_on_two_columns_are_told_apart_by_both() -> None:
    def holds(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray((a["x"] - b["x"]) ** 2 + (a["y"] - b["y"]) ** 2 < 0.2)

    known = columns(x=normal(0, 0.5), y=normal(0, 1))
    text = "(a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) < 0.2"
    prepared = prepared_of(seq(A, B, C).where(text).within(1500), known)
    found = {variable: table for (variable, _), table in tables(prepared).items()}
    of_a, of_b = truth(known, 0, 1, holds)
    assert [len(each.features) for each in found.values()] == [2, 2]
    agrees(prepared, found["a"], of_a)
    agrees(prepared, found["b"], of_b)


def test_a_row_of_a_list_has_the_chance_of_a_single_element() -> None:
    known = columns(x=uniform)
    pattern = seq(A, event("b", "kind = 1").times("+")).where("b.x > a.x * 2").within(30)
    prepared = prepared_of(pattern, known)
    found = {variable: table for (variable, _), table in tables(prepared).items()}
    of_a, of_b = truth(known, 0, 1, lambda a, b: b["x"] > a["x"] * 2)
    agrees(prepared, found["a"], of_a)
    agrees(prepared, found["b"], of_b)


def test_null_passes_nothing_and_nan_is_above_all() -> None:
    known = columns(x=uniform)
    random = np.random.default_rng(9)
    missing, odd = random.random(ROWS) < 0.2, random.random(ROWS) < 0.1
    known["x"][odd & ~missing] = np.nan
    prepared = prepared_of(all_of(A, B, C).where("a.x < b.x").within(1500), known, {"x": missing})
    found = {variable: table for (variable, _), table in tables(prepared).items()}

    def above(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return ~np.isnan(a) & (np.isnan(b) | (a < b))

    a, b = known["kind"] == 0, known["kind"] == 1
    passes = above(known["x"][a][:, np.newaxis], known["x"][b]) & ~missing[b]
    passes &= ~missing[a][:, np.newaxis]
    agrees(prepared, found["a"], passes.mean(axis=1))
    agrees(prepared, found["b"], passes.mean(axis=0))
    assert found["a"].shares[-1] < 0.01 > found["b"].shares[-1]
    nan = pa.table({name: pa.array([float("nan")]) for name in prepared.table.column_names})
    assert found["b"].passes(nan) > found["a"].passes(nan)


def test_worth_is_the_product_over_the_conditions() -> None:
    known = columns(x=uniform, y=uniform)
    prepared = prepared_of(all_of(A, B, C).where("a.x < b.x", "a.y < c.y").within(1500), known)
    learnt = learn_model(prepared.program, RowSample(prepared.table), "darling", TYPICAL_COSTS)
    role, a = learnt.ways[0].utilities.roles[0], known["kind"] == 0
    of_a = role.of_rows(prepared.table)
    true = (1 - known["x"]) * (1 - known["y"])
    # Closed form: 32 bins of uniform numbers are 0.03 wide, and their shares 0.08 uncertain.
    assert np.abs(of_a - true)[a].max() < 0.15
    assert np.abs(of_a - true)[a].mean() < 0.02
    best = np.argmax(learnt.ways[0].utilities.of_rows(np.where(a, 1, 0), prepared.table))
    assert true[best] > 0.9


# ---- what says nothing -------------------------------------------------------------------------


@udf(returns="boolean", name="near_for_shedding")
def near(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return abs(x - y) < 0.5


@pytest.mark.parametrize(
    "condition",
    [
        "near_for_shedding(a.x, b.x)",
        "sum(b.x) > a.x",
        "count(b) > a.x",
        # Event times only go on, so what is learnt of them says nothing of rows to come.
        "a.t + 5 < b.t",
        "a.x = 0.5",
    ],
)
def test_what_cannot_be_drawn_tells_no_rows_apart(condition: str) -> None:
    pattern = seq(A, event("b", "kind = 1").times("+")).where(condition).within(20)
    prepared = prepared_of(pattern, columns(x=uniform))
    learnt = learn_model(prepared.program, RowSample(prepared.table), "darling", TYPICAL_COSTS)
    mask = prepared.table.column(prepared.program.mask).to_numpy()
    assert learnt.ways[0].utilities.tables == []
    assert set(learnt.ways[0].utilities.levels(mask, prepared.table)) == {0}


def test_other_policies_look_at_no_condition() -> None:
    prepared = prepared_of(seq(A, B).where("a.x < b.x").within(20), columns(x=uniform))
    for policy in ("random", "frequency"):
        learnt = learn_model(prepared.program, RowSample(prepared.table), policy, TYPICAL_COSTS)
        assert not any(way.utilities.tables for way in learnt.ways)


def test_what_a_not_asks_makes_no_utility() -> None:
    pattern = seq(A, no(event("c", "kind = 2")), B).where("a.x < b.x", "c.x > a.x").within(20)
    prepared = prepared_of(pattern, columns(x=uniform))
    assert sorted(tables(prepared)) == [("a", "a.x < b.x"), ("b", "a.x < b.x")]


def test_no_rows_teach_nothing() -> None:
    prepared = prepared_of(seq(A, B).where("a.x < b.x").within(20), columns(x=uniform))
    learnt = learn_model(
        prepared.program, RowSample(prepared.table.slice(0, 0)), "utility", TYPICAL_COSTS
    )
    assert (learnt.ways[0].utilities.tables, learnt.loads, learnt.estimates) == ([], {}, None)


# ---- levels ------------------------------------------------------------------------------------


def test_the_best_rows_are_in_the_highest_level_and_levels_follow_worth() -> None:
    prepared = prepared_of(all_of(A, B).where("a.x < b.x").within(1500), columns(x=uniform))
    utilities = (
        learn_model(prepared.program, RowSample(prepared.table), "darling", TYPICAL_COSTS)
        .ways[0]
        .utilities
    )
    mask = prepared.table.column(prepared.program.mask).to_numpy().astype(np.int64)
    worth = utilities.of_rows(mask, prepared.table)
    levels = utilities.levels(mask, prepared.table)
    assert levels.max() == LEVELS - 1
    assert worth.max() == pytest.approx(utilities.top)
    order = np.argsort(worth, kind="stable")
    assert (np.diff(levels[order]) >= 0).all()


def test_a_row_that_may_be_two_variables_is_worth_both() -> None:
    pattern = all_of(event("a"), event("b"), C).where("a.x < c.x", "b.x > c.x").within(100)
    prepared = prepared_of(pattern, columns(x=uniform))
    utilities = (
        learn_model(prepared.program, RowSample(prepared.table), "darling", TYPICAL_COSTS)
        .ways[0]
        .utilities
    )
    rows = prepared.table
    both, as_a, as_b = (np.full(rows.num_rows, mask) for mask in (3, 1, 2))
    each = utilities.of_rows(as_a, rows) + utilities.of_rows(as_b, rows)
    assert (utilities.of_rows(both, rows) == each).all()
    assert (utilities.of_rows(np.zeros_like(both), rows) == 0).all()


def test_the_same_rows_teach_the_same_in_any_batches() -> None:
    prepared = prepared_of(all_of(A, B).where("a.x < b.x").within(500), columns(x=uniform))
    parts = pa.concat_tables([prepared.table.slice(n, 1000) for n in range(0, ROWS, 1000)])
    once = tables_of(make_sample_context(prepared.program, prepared.table))
    again = tables_of(make_sample_context(prepared.program, replace(prepared, table=parts).table))
    assert [each.shares.tolist() for each in once] == [each.shares.tolist() for each in again]


def test_a_condition_with_a_part_that_may_be_missing_says_nothing() -> None:
    """A row of a that no b fits is in matches without a b."""
    pattern = seq(A, event("b?", "kind = 1"), C).where("a.x < b.x", "a.x < c.x").within(20)
    prepared = prepared_of(pattern, columns(x=uniform))
    assert set(tables(prepared)) == {("a", "a.x < c.x"), ("c", "a.x < c.x"), ("b", "a.x < b.x")}


def test_a_sample_that_is_thinned_stands_for_more_rows_in_a_window() -> None:
    prepared = prepared_of(seq(A, B).where("a.x < b.x").within(20), columns(x=uniform))
    whole = learn_model(prepared.program, RowSample(prepared.table), "darling", TYPICAL_COSTS)
    half = learn_model(prepared.program, RowSample(prepared.table, 2.0), "utility", TYPICAL_COSTS)
    assert whole.estimates is not None
    assert half.estimates is not None
    assert half.estimates.rates == {v: 2 * r for v, r in whole.estimates.rates.items()}
    assert half.loads[0] > 1.2 * whole.loads[0]
