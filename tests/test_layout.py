"""Buckets and slices: pure decisions from what is known of the input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cep.errors import PlanError
from spark_cep.planner.layout import (
    HOT_KEY_BYTES,
    InputSize,
    LayoutFacts,
    Slicing,
    choose_layout,
    choose_row_layout,
    choose_slicing,
    parse_worker_memory,
)
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.program import Branch, Negation, Slot, Window

SLICING = Slicing(Type("int"), 10.0, back=False)
LARGE = InputSize(bytes=1 << 30, rows=None, cores=4, shuffle_partitions=200, row_bytes=32)
FIXED = replace(LARGE, is_adaptive=False)
KEYED = LayoutFacts(LARGE, has_keys=True, slicing=SLICING)


def test_adaptive_execution_sets_the_number_of_buckets() -> None:
    found = choose_layout(KEYED)
    assert found.buckets is None
    assert "adaptive execution" in found.buckets_reason


def test_without_adaptive_execution_there_are_some_buckets_a_core() -> None:
    assert choose_layout(replace(KEYED, size=FIXED)).buckets == 64
    small = replace(FIXED, bytes=1 << 20)
    assert choose_layout(replace(KEYED, size=small)).buckets == 8


def test_a_small_input_gets_one_bucket_and_no_slices() -> None:
    tiny = replace(LARGE, rows=100)
    assert choose_layout(replace(KEYED, size=tiny)).buckets == 1
    without_keys = choose_layout(replace(KEYED, size=tiny, has_keys=False))
    assert (without_keys.buckets, without_keys.slicing) == (1, None)


def test_an_input_without_keys_is_sliced_into_a_known_number_of_buckets() -> None:
    found = choose_layout(replace(KEYED, has_keys=False))
    assert found.slicing is SLICING
    assert found.buckets == 64


def test_a_partition_that_cannot_be_sliced_is_one_bucket() -> None:
    assert choose_layout(replace(KEYED, has_keys=False, slicing=None)).buckets == 1


def test_hot_keys_are_those_with_more_bytes_than_a_task_should_have() -> None:
    found = choose_layout(KEYED)
    assert found.slicing is None
    assert found.hot_keys is not None
    assert found.hot_keys.rows * LARGE.row_bytes == HOT_KEY_BYTES
    assert found.hot_keys.slicing is SLICING


@pytest.mark.parametrize(
    "change",
    [
        {"size": replace(LARGE, bytes=1 << 20)},  # no key can be that large
        {"size": FIXED},
        {"size": replace(LARGE, cores=3)},
        {"slicing": None},
        {"forced_slices": "off"},
        {"forced_slices": "on"},
        {"forced_buckets": "7"},
    ],
)
def test_hot_keys_are_looked_for_only_where_it_helps(change: dict[str, object]) -> None:
    assert choose_layout(replace(KEYED, **change)).hot_keys is None  # type: ignore[arg-type]


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


def test_the_memory_of_a_worker_is_a_size() -> None:
    assert parse_worker_memory("") is None
    assert parse_worker_memory("64 MB") == 64 << 20
    for text in ("64", "much", "-1m", "100k"):
        with pytest.raises(PlanError, match=r"spark\.cep\.memory is"):
            parse_worker_memory(text)


# ---- row patterns ------------------------------------------------------------------------------

ONE_PARTITION = LayoutFacts(LARGE, has_keys=False, slicing=None)


def test_a_large_partition_of_a_row_pattern_is_matched_in_ranges() -> None:
    found = choose_row_layout(ONE_PARTITION, None)
    assert (found.ranges, found.buckets) == (64, 65)
    assert found.slices_reason.startswith("ranges")


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (replace(LARGE, cores=2), "fewer than 4 cores"),
        (replace(LARGE, bytes=HOT_KEY_BYTES - 1), "the input is small"),
        (replace(LARGE, bytes=None), "unknown"),
    ],
)
def test_ranges_that_gain_nothing_need_the_setting(size: InputSize, reason: str) -> None:
    facts = replace(ONE_PARTITION, size=size)
    found = choose_row_layout(facts, None)
    assert (found.ranges, found.buckets) == (None, 1)
    assert reason in found.slices_reason
    assert choose_row_layout(replace(facts, forced_slices="on"), None).ranges
    forced = choose_row_layout(replace(facts, forced_slices="on", forced_buckets="5"), None)
    assert (forced.ranges, forced.buckets) == (5, 6)


def test_nothing_forces_ranges_where_they_would_change_the_answer() -> None:
    facts = replace(ONE_PARTITION, forced_slices="on")
    assert choose_row_layout(facts, "$ is about the whole partition").ranges is None
    keyed = choose_row_layout(replace(facts, has_keys=True), None)
    assert (keyed.ranges, keyed.buckets) == (None, None)
    assert choose_row_layout(replace(facts, forced_slices="off"), None).ranges is None
    assert choose_row_layout(replace(facts, forced_buckets="1"), None).ranges is None
    with pytest.raises(PlanError, match=r"spark\.cep\.slices"):
        choose_row_layout(replace(facts, forced_slices="maybe"), None)
