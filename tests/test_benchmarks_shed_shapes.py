"""The benchmark of load shedding over patterns of every shape: its rows, cells, tables and claims.

No Spark: the engine counts the matches of each shape, and outcomes are made up.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import shed_shape_engine, shed_shape_rows
from benchmarks.pictures import draw
from benchmarks.programs import prepare, run
from benchmarks.shed_shape_figures import (
    LITERATURE,
    Outcome,
    Setting,
    by_pairs,
    by_policy,
    cells,
    claims,
    kept_at,
    margins,
    missed,
    panels,
    report,
    seconds,
    shares,
    work,
)
from benchmarks.shed_shape_rows import BUSES, SHAPES, STOCKS, Shape, Ticks, in_blocks, named
from benchmarks.shed_shapes import claim_of_subset, read
from spark_cep.udfs.program import Plan

if TYPE_CHECKING:
    from pathlib import Path

TWELVE = {
    "chain", "list", "NOT", "AND", "OR", "optional", "equality", "distance", "same kind",
    "correlated columns", "skewed keys", "drifting values",
}  # fmt: skip

# ---- shapes ------------------------------------------------------------------------------------


def test_every_one_of_the_twelve_shapes_is_there_and_chains_have_two_to_six_variables() -> None:
    assert {each.family for each in SHAPES.values()} >= TWELVE
    assert {name for name in SHAPES if name.startswith("chain")} == {
        f"chain of {length}" for length in range(2, 7)
    }


@pytest.mark.parametrize("name", [name for name in SHAPES if not name.startswith("Q1A")])
def test_the_full_answer_has_ten_thousand_to_a_million_matches(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of generated rows where there is no file of real ones."""
    monkeypatch.setattr(shed_shape_rows, "SOCCER", tmp_path / "no such file")
    shape = SHAPES[name]
    columns = shape.make()
    assert 50_000 <= len(columns["t"]) <= 200_000
    prepared = prepare(shape.pattern, columns, partition_by=shape.partition)
    matches = run(prepared, Plan("lazy-chain")).metrics.matches
    assert 10_000 <= matches <= 1_000_000


def test_rows_are_in_the_order_of_time_and_the_same_each_time() -> None:
    for name in ("chain of 2", "equal cards", "stocks", "buses"):
        one, other = SHAPES[name].make(), SHAPES[name].make()
        assert (np.diff(one["t"]) > 0).all()
        assert all((one[column] == other[column]).all() for column in one)


@pytest.mark.parametrize("types", [STOCKS, BUSES])
def test_values_have_the_published_mean_and_deviation(types: shed_shape_rows.Types) -> None:
    columns = replace(types, rows=400_000).columns()
    for kind, (mean, deviation) in enumerate(types.values):
        values = columns[types.column][columns["kind"] == kind]
        assert values.mean() == pytest.approx(mean, rel=0.02)
        assert values.std() == pytest.approx(deviation, rel=0.1)


def test_keys_are_skewed_where_they_are_said_to_be() -> None:
    counts = np.bincount(SHAPES["skewed keys"].make()["key"])
    assert counts.max() > 10 * np.median(counts)
    even = np.bincount(SHAPES["chain of 3"].make()["key"])
    assert even.max() < 1.1 * even.min()


def test_shapes_are_chosen_by_name_or_family() -> None:
    assert [each.name for each in named(["same kind", "NOT"])] == [
        "NOT", "same kind, rising", "same kind, distance",
    ]  # fmt: skip
    assert len(named([])) == len(SHAPES)
    with pytest.raises(SystemExit, match="no shape is named chain of 9"):
        named(["chain of 9"])


# ---- whole keys by hand ------------------------------------------------------------------------


def blocks_of(shape: Shape, keep: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the blocks, and of each how many rows stay."""
    columns = shape.make()
    stays = in_blocks(shape, columns, keep, seed)
    length = shed_shape_rows.BLOCK_WINDOWS * shape.window
    block = columns["t"] // length * 1_000 + columns.get("key", 0)
    return np.bincount(np.unique(block, return_inverse=True)[1], stays), stays


@pytest.mark.parametrize("name", ["chain of 3", "chain of 5", "buses"])
def test_whole_blocks_stay_until_the_quota_is_met_to_a_row(name: str) -> None:
    shape = SHAPES[name]
    kept, stays = blocks_of(shape, 0.3)
    assert stays.sum() == round(0.3 * len(stays))
    sizes, _ = blocks_of(shape, 1.0)
    assert np.count_nonzero((kept > 0) & (kept < sizes)) <= 1
    assert (blocks_of(shape, 0.3, seed=1)[1] != stays).any()


def test_rows_that_a_not_could_need_stay_in_every_block() -> None:
    shape = SHAPES["NOT"]
    columns = shape.make()
    stays, needed = in_blocks(shape, columns, 0.1, 0), columns["kind"] == "N"
    assert stays[needed].all()
    assert stays[~needed].sum() == round(0.1 * (~needed).sum())


# ---- without Spark -----------------------------------------------------------------------------


def test_the_engine_alone_keeps_what_each_policy_promises() -> None:
    few = replace(SHAPES["chain of 3"], make=Ticks(rows=12_000).columns)
    setting = Setting(keeps=(0.3,), seeds=(0,), by_hand=True)
    kept = {each.policy: each.kept for each in shed_shape_engine.measure(few, setting)}
    assert kept["random"] == pytest.approx(0.3**3, abs=0.02)
    assert kept["keys"] == pytest.approx(0.3, abs=0.1)
    assert kept["keys by hand"] == pytest.approx(0.3, abs=0.1)
    assert kept["utility"] > max(kept["darling"], 0.25)


def test_methods_of_the_literature_test_a_share_of_the_pairs() -> None:
    few = replace(SHAPES["chain of 3"], make=Ticks(rows=12_000).columns)
    setting = Setting(LITERATURE, keeps=(0.4,), seeds=(0,), with_spark=False)
    found = {each.policy: each for each in shed_shape_engine.measure(few, setting)}
    assert found["espice"].stayed == pytest.approx(0.4, rel=0.02)
    for policy in ("hspice", "pspice", "random-partials"):
        assert found[policy].stayed is None
        assert found[policy].pairs == pytest.approx(0.4, rel=0.1)
        assert 0.2 < found[policy].kept < 0.6
        assert found[policy].told == pytest.approx(found[policy].kept, abs=0.05)


# ---- cells and claims --------------------------------------------------------------------------

UTILITY = Outcome(
    "NOT", 0.3, "utility", 0, kept=0.5, full=0.5, stayed=0.3, told=0.52, interval=(0.45, 0.6),
    call=0.4, action=0.2,
)  # fmt: skip


def cell_of(
    utility: float, shape: str = "NOT", keep: float = 0.3, **rivals: float
) -> list[Outcome]:
    """Two seeds, a point below and above."""
    kept = {"utility": utility, **rivals}
    return [
        replace(UTILITY, shape=shape, keep=keep, stayed=keep, policy=policy, seed=seed,
                kept=share + 0.01 * (2 * seed - 1))
        for policy, share in kept.items()
        for seed in range(2)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("utility", "keys", "holds"),
    [(0.5, 0.5, True), (0.3, 0.325, True), (0.3, 0.335, False), (0.8, 0.84, True)],
)
def test_utility_may_be_behind_by_three_points_or_five_percent(
    utility: float, keys: float, holds: bool
) -> None:
    (cell,) = cells(cell_of(utility, random=0.1, keys=keys))
    assert cell.best_rival == "keys"
    assert cell.margin == pytest.approx(utility - keys)
    assert cell.holds is holds
    assert claims(cell_of(utility, random=0.1, keys=keys))[0].holds is holds


def test_the_cell_in_which_utility_is_most_behind_comes_first_and_is_named() -> None:
    outcomes = [
        *cell_of(0.9, "OR", random=0.1, keys=0.3),
        *cell_of(0.2, "AND", random=0.1, keys=0.3),
    ]
    assert [each.shape for each in cells(outcomes)] == ["AND", "OR"]
    first, *_ = claims(outcomes)
    assert "1 of 2 cells; AND, keep 0.3: -10.0 to keys" in first.figures
    lines = shares(cells(outcomes)).splitlines()
    assert "20.0 ± 1.0" in lines[2]
    assert "-10.0" in lines[2]
    assert "+60.0" in lines[3]
    assert "-10.0 **behind**" in margins(cells(outcomes))


def test_a_quota_missed_by_more_than_a_percent_of_itself_is_noticed() -> None:
    outcomes = cell_of(0.5, keep=0.1, random=0.1)
    assert claims(outcomes)[1].holds
    outcomes[-1] = replace(outcomes[-1], stayed=0.1011)
    assert missed(outcomes[-1]) == pytest.approx(0.011)
    assert not claims(outcomes)[1].holds
    assert "1.10 (NOT, keep 0.1)" in by_policy(outcomes)


def test_intervals_count_only_for_utility_and_where_they_were_told() -> None:
    outcomes = cell_of(0.5, random=0.9)
    assert claims(outcomes)[2].figures == "2 of 2"
    assert claims(outcomes)[2].holds
    wrong = [replace(each, interval=(0.1, 0.2)) for each in outcomes[:1]]
    assert not claims([*wrong, *outcomes[1:]])[2].holds
    unknown = [replace(each, told=None, interval=None, unknown="no match was drawn")
               for each in outcomes]  # fmt: skip
    assert not claims(unknown)[2].holds
    assert "unknown" in shares(cells(unknown))
    assert by_policy(outcomes).count("2 of 2") == 1
    assert by_policy(outcomes).count("0 of 2") == 1


def test_seconds_are_medians_beside_the_full_answer() -> None:
    assert "0.40 + 0.20" in seconds(cell_of(0.5, random=0.1))
    assert seconds(cell_of(0.5, random=0.1)).splitlines()[2].split()[3] == "0.5"


def test_matches_of_as_many_pairs_lie_between_those_that_were_measured() -> None:
    outcomes = [
        replace(each, pairs=0.1 if each.policy == "utility" else each.keep)
        for keep in (0.2, 0.6)
        for each in cell_of(0.5, keep=keep, hspice=2 * keep - 0.2)
    ]
    found = cells(outcomes)
    assert kept_at(found, "hspice", 0.2) == pytest.approx(0.2)
    assert kept_at(found, "hspice", 0.4) == pytest.approx(0.6)
    assert kept_at(found, "hspice", 0.1) == pytest.approx(0.1)
    assert kept_at(found, "pspice", 0.1) is None
    line = by_pairs(found).splitlines()[2]
    assert [each.strip() for each in line.strip("|").split("|")] == ["NOT", "+40.0", "+40.0"]
    behind = [replace(each, pairs=0.6) if each.policy == "utility" else each for each in outcomes]
    assert by_pairs(cells(behind)).count("-50.0 **behind** hspice") == 2
    assert "50.0 of 10.0" in work(found)


def test_an_invented_match_and_one_found_twice_are_noticed() -> None:
    everything = ["a 1, b 2", "a 1, b 3"]
    assert claim_of_subset("", everything[:1], everything).holds
    assert not claim_of_subset("", ["a 9, b 9"], everything).holds
    assert not claim_of_subset("", [*everything, everything[0]], everything).holds


def test_outcomes_that_were_written_are_read_and_the_last_run_of_each_counts(
    tmp_path: Path,
) -> None:
    old, new = cell_of(0.2, "OR"), cell_of(0.4, "OR", keys=0.1)
    other = cell_of(0.5, "AND", keys=0.1)
    files = [tmp_path / name for name in ("old.json", "new.json")]
    for file, outcomes in zip(files, ([*old, *other], new), strict=True):
        file.write_text(json.dumps([asdict(each) for each in outcomes]))
    assert sorted(read(files), key=str) == sorted([*other, *new], key=str)


def test_the_picture_has_a_panel_for_each_share_and_a_row_for_each_shape(tmp_path: Path) -> None:
    outcomes = [
        *cell_of(0.9, "OR", random=0.1, keys=0.3),
        *cell_of(0.2, "AND", random=0.1, keys=0.3),
        *cell_of(0.4, "OR", keep=0.1, random=0.1, keys=0.3),
    ]
    few, many = panels(cells(outcomes))
    assert few.at == many.at == ["AND", "OR"]
    assert few.series["utility"] == [None, pytest.approx(40)]
    drawn = draw("dots", [few, many], tmp_path).read_text()
    assert drawn.count(">OR<") == 1
    assert drawn.count("30 % of the rows stay") == 1
    assert "utility" in report(outcomes)
