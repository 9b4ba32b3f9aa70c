"""Buckets and slices: pure decisions from what is known of the input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cep.errors import PlanError
from spark_cep.planner.layout import InputSize, LayoutFacts, Slicing, choose_layout, choose_slicing
from spark_cep.planner.statistics import Sample
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.program import Branch, Negation, Slot, Window

SLICING = Slicing(Type("int"), 10.0, back=False)
LARGE = InputSize(bytes=1 << 30, rows=None, cores=4, shuffle_partitions=200)
KEYED = LayoutFacts(LARGE, None, has_keys=True, slicing=SLICING)


def sample(largest_key: int, *, complete: bool = False) -> Sample:
    return Sample(20_000, complete, largest_key, None)


def test_a_large_input_gets_buckets_of_the_target_size() -> None:
    assert choose_layout(KEYED).buckets == 171


def test_a_small_input_gets_one_bucket_and_no_slices() -> None:
    tiny = replace(LARGE, rows=100)
    assert choose_layout(replace(KEYED, size=tiny, has_keys=False)).buckets == 1
    assert choose_layout(replace(KEYED, size=tiny, has_keys=False)).slicing is None


def test_an_input_without_keys_is_sliced() -> None:
    assert choose_layout(replace(KEYED, has_keys=False)).slicing is SLICING


def test_a_partition_that_cannot_be_sliced_is_one_bucket() -> None:
    assert choose_layout(replace(KEYED, has_keys=False, slicing=None)).buckets == 1


def test_keys_are_sliced_only_if_one_is_hot() -> None:
    assert choose_layout(KEYED).slicing is None
    assert choose_layout(replace(KEYED, sample=sample(2_000))).slicing is None
    assert choose_layout(replace(KEYED, sample=sample(3_000))).slicing is SLICING


def test_settings_overrule_what_is_known() -> None:
    forced = choose_layout(replace(KEYED, forced_buckets="7", forced_slices="on"))
    assert (forced.buckets, forced.slicing) == (7, SLICING)
    off = choose_layout(replace(KEYED, has_keys=False, forced_slices="off"))
    assert (off.buckets, off.slicing) == (1, None)


@pytest.mark.parametrize("name", ["forced_buckets", "forced_slices"])
def test_settings_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(PlanError, match=r"spark\.cep\."):
        choose_layout(replace(KEYED, **{name: "some"}))


BRANCH = Branch((Slot((0,)), Slot((1,))), frozenset({(0, 1)}))
WINDOW = Window("time", 1_000)


@pytest.mark.parametrize(
    ("window", "rules"),
    [
        (None, ("any", "reuse")),
        (Window("events", 5), ("any", "reuse")),
        (WINDOW, ("next", "reuse")),
        (WINDOW, ("strict", "reuse")),
        (WINDOW, ("any", "consume")),
    ],
)
def test_slices_are_for_skip_till_any_with_reuse_and_a_time_window(window, rules) -> None:  # type: ignore[no-untyped-def]
    assert choose_slicing([BRANCH], window, Type("int"), rules) is None


@pytest.mark.parametrize(
    ("place", "back"), [("start", False), ("between", False), ("end", True), ("around", True)]
)
def test_rows_are_copied_back_only_for_a_negation_that_looks_ahead(place, back) -> None:  # type: ignore[no-untyped-def]
    branch = replace(BRANCH, negations=(Negation(2, place),))
    found = choose_slicing([BRANCH, branch], WINDOW, Type("int"), ("any", "reuse"))
    assert found is not None
    assert found.back is back


def test_a_decimal_window_is_scaled_as_the_times_are() -> None:
    type_ = Type("decimal", precision=10, scale=2)
    found = choose_slicing([BRANCH], WINDOW, type_, ("any", "reuse"))
    assert found is not None
    assert found.window == 10.0
