"""The benchmarks' generators, and each benchmark once at its smallest, so that none of them rots.

What they measure is not looked at here: tiny inputs say nothing about speed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import auto, histories, lazy_nfa
from benchmarks.choosing import planned, work
from benchmarks.pictures import Panel, draw
from benchmarks.plan_adversaries import ADVERSARY_ROWS, plan_adversaries
from benchmarks.programs import chain, cut, prepare, run, run_pieces
from benchmarks.reporting import Claim, table
from benchmarks.suite import SHIFT_AT, Stream, of_eight, suite
from spark_cep import event, seq
from spark_cep.udfs.program import Plan

if TYPE_CHECKING:
    from pathlib import Path

TINY = lazy_nfa.Sizes(
    minutes=400, shares=(0.5, 0.05), lengths=(200, 400), phase_events=200, piece_events=50
)


# ---- programs without Spark --------------------------------------------------------------------


def prices(*rows: tuple[str, float]) -> dict[str, np.ndarray]:
    kinds, values = zip(*rows, strict=True)
    return {"t": np.arange(len(rows)), "kind": np.array(kinds), "price": np.array(values)}


RISING = seq(
    event("a", "kind = 'A'"), event("b", "kind IN ('B', 'X')"), event("c", "kind = 'C'")
).where("a.price < b.price", "b.price + 0.5 < c.price")


def test_a_program_made_without_spark_finds_what_the_pattern_says() -> None:
    random = np.random.default_rng(1)
    kinds, values = random.choice(list("ABCX"), 40), random.random(40) * 3
    rows = list(zip(kinds.tolist(), values.tolist(), strict=True))
    prepared = prepare(RISING.within(10), prices(*rows))
    expected = sum(
        a[0] == "A" and b[0] in "BX" and c[0] == "C" and a[1] < b[1] and b[1] + 0.5 < c[1]
        for (i, a), (j, b), (k, c) in product(enumerate(rows), repeat=3)
        if i < j < k <= i + 10
    )
    assert expected > 0
    assert run(prepared, Plan("eager")).metrics.matches == expected
    assert run(prepared, chain(2, 0, 1)).metrics.matches == expected


def test_rows_that_can_be_nothing_are_not_shipped() -> None:
    prepared = prepare(RISING.within(10), prices(("A", 1.0), ("Y", 1.0), ("C", 1.0)))
    assert prepared.table.num_rows == 2


def test_what_numpy_has_no_rule_for_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="no rule for UPPER"):
        prepare(seq(event("a", "upper(kind) = 'A'"), "b").within(1), prices(("a", 1.0)))


def test_pieces_find_the_matches_of_the_whole() -> None:
    random = np.random.default_rng(2)
    rows = zip(random.choice(list("ABC"), 200).tolist(), random.random(200) * 3, strict=True)
    prepared = prepare(RISING.within(10), prices(*rows))
    pieces = cut(prepared, 30)
    assert len(pieces) == 7
    assert [horizon for _, horizon in pieces].index(None) == len(pieces) - 1
    found = sum(each.metrics.matches for each in run_pieces(prepared, chain(2, 1, 0), pieces))
    assert found == run(prepared, Plan("eager")).metrics.matches > 0


def test_a_cut_keeps_rows_of_one_time_together() -> None:
    columns = {**prices(*[("A", 1.0)] * 9), "t": np.array([0, 1, 2, 2, 2, 3, 4, 5, 6])}
    sizes = [piece.num_rows for piece, _ in cut(prepare(RISING.within(10), columns), 3)]
    assert sizes == [5, 1, 3]


# ---- the streams -------------------------------------------------------------------------------


def test_the_same_rates_give_the_same_quotes() -> None:
    first, second = (histories.quotes(histories.steady(50, 0.5)) for _ in range(2))
    assert first.columns()["history"].equals(second.columns()["history"])
    assert (first.t == second.t).all()
    assert (np.diff(first.t) >= 0).all()


def test_quotes_of_a_sector_do_not_depend_on_the_rates_of_the_others() -> None:
    few, many = (histories.quotes(histories.steady(200, share)) for share in (0.01, 0.9))
    for sector in histories.SECTORS[:2]:
        assert (few.t[few.sector == sector] == many.t[many.sector == sector]).all()
    rare = histories.SECTORS[2]
    assert (few.sector == rare).sum() < (many.sector == rare).sum() / 10


def test_the_changing_stream_makes_one_sector_rare_after_the_other() -> None:
    rates = histories.switching(1_000)
    phases = np.split(rates, len(histories.PHASES))
    assert ["abc"[phase[0].argmin()] for phase in phases] == list(histories.PHASES)
    assert abs(len(histories.quotes(rates)) / 6_000 - 1) < 0.1


def test_pearson_is_the_correlation_of_two_histories() -> None:
    random = np.random.default_rng(3)
    x, y = random.random((5, histories.HISTORY)), random.random((5, histories.HISTORY))
    found = histories.pearson(pa.array(list(x)).to_pandas(), pa.array(list(y)).to_pandas())
    assert found == pytest.approx([np.corrcoef(a, b)[0, 1] for a, b in zip(x, y, strict=True)])
    assert len(histories.pearson(np.array([], object), np.array([], object))) == 0


def test_weather_changes_what_the_first_rows_say() -> None:
    shares, rows = (0.7, 0.2, 0.1), 10_000

    def counts(stream: Stream, part: slice) -> list[int]:
        return np.bincount(stream.columns(rows)["kind"][part], minlength=3).tolist()

    seen, rest = slice(0, int(SHIFT_AT * rows)), slice(int(SHIFT_AT * rows), None)
    shifted = Stream(shares, 1, "shift")
    assert np.argmax(counts(shifted, seen)) == 0
    assert np.argmax(counts(shifted, rest)) == 2
    switching = Stream(shares, 1, "switching")
    assert len({np.argmax(counts(switching, slice(i, i + 2_000))) for i in (0, 2_000, 4_000)}) == 3
    steady = Stream(shares, 1)
    assert np.argmax(counts(steady, seen)) == np.argmax(counts(steady, rest)) == 0


def test_the_suite_has_every_operator_and_no_case_twice() -> None:
    cases = suite()
    assert len(cases) >= 36
    assert len({case.name for case in cases}) == len(cases)
    texts = " ".join(repr(case.pattern.root) for case in cases)
    assert all(f"{node}(" in texts for node in ("Seq", "AllOf", "AnyOf", "NoEvent", "Repeat"))
    assert {len(case.stream.shares) for case in cases} >= {2, 3, 4, 5, 6}


# ---- lazy-nfa ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("b", "operations"), [(7.0, 3), (13.0, 3), (2.0, 2)])
def test_operations_are_counted_as_in_the_paper(b: float, operations: int) -> None:
    """Each edge that is tried counts, the first one too. The paper says 2 for its second example,
    b = 13, but 3 < 13 holds there, so that the third edge is tried as well. Written as differences,
    for a bound on sorted values would be looked up and not tried."""
    rows = prices(("A", 3.0), ("B", b), ("C", 9.0))
    pattern = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
    rising = pattern.where("b.price - a.price > 0", "c.price - b.price > 0").within(60)
    found = lazy_nfa.count(run(prepare(rising, rows), Plan("eager")).metrics)
    assert found.operations == operations


def test_eager_and_the_chain_in_the_order_of_the_pattern_do_the_same() -> None:
    counts = lazy_nfa.by_share("abc", TINY)
    assert counts["eager"] == counts["abc"]
    assert counts["cba"][1].operations < counts["abc"][1].operations


def test_figures_are_drawn_and_claims_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claims = lazy_nfa.figures_7_and_8(TINY, tmp_path)
    claims += lazy_nfa.figure_9(TINY, tmp_path)
    claims += lazy_nfa.figure_10(TINY, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"lazy-nfa-{number}.svg" for number in (10, 7, 8, 9)]
    assert len(claims) == 10
    assert capsys.readouterr().out.count("Figure") == 6


def test_a_tree_above_the_best_chain_misses_its_claim() -> None:
    counts = {name: [lazy_nfa.Count(100, 1, 0)] for name in lazy_nfa.CONTESTANTS}
    counts["tree"] = [lazy_nfa.Count(106, 1, 0)]
    (tree, _) = lazy_nfa.claims_by_share("abc", counts, [0.1])
    assert not tree.holds
    assert tree.figures == "at most 1.060x, at f_c = 0.1"
    counts["tree"] = [lazy_nfa.Count(105, 1, 0)]
    assert lazy_nfa.claims_by_share("abc", counts, [0.1])[0].holds


# ---- auto --------------------------------------------------------------------------------------


def test_auto_is_compared_with_every_forced_plan() -> None:
    cases = {case.name.split(":")[0]: case for case in reversed(suite())}
    cases |= {"changing": next(case for case in suite() if case.stream.weather == "shift")}
    names = ("seq abc", "and ab", "seq a !b c d", "seq a b{2,3} c", "seq a (b or c) d", "changing")
    results = [auto.measure(cases[name], rows=1_500, rounds=1) for name in names]
    assert all(set(each.seconds) == {auto.AUTO, *auto.FORCED} for each in results)
    assert len(auto.report(results).splitlines()) == 2 + len(names)
    assert len(auto.by_family(results).splitlines()) == 2 + 6
    profile = auto.profile(results)
    assert set(profile.series) == {auto.AUTO, *auto.FORCED}
    assert len(auto.claims(results, auto.planning_seconds(1))) == 3


def test_all_plans_agree_on_the_patterns_that_mislead_planners() -> None:
    cases = plan_adversaries()
    assert len({case.name for case in cases}) == len(cases) == 17
    results = [auto.measure(case, rows=2_000, rounds=1) for case in cases]
    assert {each.family for each in results} == {"correlated", "skewed", "shifting"}


@pytest.mark.parametrize("name", ["values and rates shift", "values shift, rates do not"])
def test_a_bucket_whose_values_shift_after_the_sample_is_looked_at(name: str) -> None:
    case = next(each for each in plan_adversaries() if each.name == name)
    prepared = prepare(case.pattern, case.stream.columns(ADVERSARY_ROWS), partition_by=["k"])
    auto, chosen = (work(planned(prepared, plan)[0]) for plan in ("auto", "eager"))
    assert auto.metrics.matches == chosen.metrics.matches
    assert auto.metrics.pairs < 0.5 * chosen.metrics.pairs


def test_a_ratio_is_to_the_fastest_forced_plan() -> None:
    seconds = dict(zip((auto.AUTO, *auto.FORCED), (3.0, 4.0, 2.0, 5.0, 6.0, 7.0), strict=True))
    result = auto.Result("a case", "SEQ", "tree", seconds, dict.fromkeys(seconds, 1), 0.0)
    assert (result.best, result.ratio(), result.ratio("eager")) == ("lazy-chain", 1.5, 2.0)
    good = replace(result, seconds={**seconds, auto.AUTO: 2.4})
    within, never, _ = auto.claims([result, good], {"seq of 8": 0.01})
    assert (within.holds, never.holds) == (False, True)
    assert within.figures == "50% of 2"


def test_planning_is_measured_on_eight_variables() -> None:
    assert [len(list(case.stream.shares)) for case in of_eight()] == [8, 8]


# ---- what they print and draw ------------------------------------------------------------------


def test_the_same_figures_give_the_same_picture(tmp_path: Path) -> None:
    lines = Panel("lines", "x", "y", [1, 10, 100], {"one": [1, 2, None]}, log_x=True)
    bars = Panel("bars", "x", "y", ["a", "b"], {"one": [1, 2], "two": [3, None]}, kind="bars")
    first, second = (draw("figure", [lines, bars], tmp_path / part) for part in ("1", "2"))
    assert first.read_bytes() == second.read_bytes()
    assert b"<dc:date>" not in first.read_bytes()


def test_a_claim_that_does_not_hold_is_said_to_be_missed() -> None:
    assert Claim("fast", False, "3x").line() == "MISSED: fast (3x)"
    assert Claim("fast", True, "1x").line() == "met: fast (1x)"


def test_tables_are_markdown_with_numbers_to_the_right() -> None:
    assert table(["plan", "pairs"], [["eager", 12_161_141], ["tree", 290.5]]).splitlines() == [
        "| plan  |      pairs |",
        "|:------|-----------:|",
        "| eager | 12,161,141 |",
        "| tree  |        290 |",
    ]
