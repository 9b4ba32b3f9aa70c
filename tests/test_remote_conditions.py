"""`remote(...)` in conditions: what becomes a column, what the engine asks, what is refused."""

from __future__ import annotations

import pytest

from spark_cep import all_of, event, seq
from spark_cep.expressions.lookups import RemoteSchema
from spark_cep.udfs.expressions import DOUBLE
from tests.looked_up import TEXT, array, drawn, looking, plain, problem

PAIR = seq("a", "b").within("1 hour")


def test_a_tables_value_is_a_column_and_its_condition_a_mask() -> None:
    found = looking(PAIR.where("remote('t_limit', a.name) > a.price"))
    assert found.compiled.masks == (("`__cep_remote_0` > `price`",), ())
    (column,) = found.compiled.lookups
    assert (column.remote.name, column.keys, column.variable) == ("t_limit", ("`name`",), None)
    assert not found.compiled.remotes


def test_a_tables_value_beside_another_variable_is_a_cell_of_the_engine() -> None:
    found = looking(PAIR.where("b.price > remote('t_limit', a.name)"))
    assert found.conditions() == [">(b[`price`], a[`__cep_remote_0`])"]


def test_a_column_is_looked_up_once_for_all_who_ask_by_the_same_key() -> None:
    found = looking(PAIR.where("remote('t_limit', a.name) > 1 AND REMOTE('T_LIMIT', b.name) > 2"))
    assert [each.name for each in found.compiled.lookups] == ["__cep_remote_0"]
    assert found.compiled.masks == (("`__cep_remote_0` > 1",), ("`__cep_remote_0` > 2",))


def test_a_key_that_may_fail_is_computed_for_its_variable_and_under_its_guards() -> None:
    found = looking(PAIR.where("a.flag OR remote('t_limit', upper(a.name)) > 1"))
    (column,) = found.compiled.lookups
    assert column.variable == 0
    assert column.keys == ("upper(`name`)",)
    assert column.guards == ("(NOT ((`flag`) <=> TRUE))",)


@pytest.mark.parametrize(
    ("text", "guards"),
    [
        ("CASE WHEN a.flag THEN {} ELSE 0D END > 1", ("(`flag`)",)),
        ("CASE a.name WHEN 'n' THEN {} ELSE 0D END > 1", ("((`name`) = ('n'))",)),
        ("a.flag AND coalesce(a.price, {}) > 1", ("((`price`) IS NULL)",)),
        (
            "a.flag OR coalesce(a.price, {}) > 1",
            ("(NOT ((`flag`) <=> TRUE))", "((`price`) IS NULL)"),
        ),
        ("if({} > 1, {}, 0D) > 2", ()),
    ],
)
def test_a_key_in_a_branch_is_guarded_by_its_test(text: str, guards: tuple[str, ...]) -> None:
    text = text.replace("{}", "remote('t_limit', upper(a.name))")
    (column,) = looking(PAIR.where(text)).compiled.lookups
    assert column.guards == guards


def test_in_of_an_array_is_written_as_array_contains_for_spark() -> None:
    found = looking(PAIR.where("a.name NOT IN remote('t_places', a.name) AND b.flag"))
    assert found.compiled.masks[0] == ("(NOT array_contains(`__cep_remote_0`, `name`))",)


def test_in_of_a_tables_array_over_two_variables_is_a_member_of_a_cell() -> None:
    found = looking(PAIR.where("b.name NOT IN remote('t_places', a.name)"))
    assert found.conditions() == ["not(member(b[`name`], a[`__cep_remote_0`]))"]


def test_fields_of_structs_are_read_of_the_column_or_by_the_engine() -> None:
    found = looking(PAIR.where("b.name = remote('t_info', a.name).region"))
    assert found.conditions() == ["=(b[`name`], a[`__cep_remote_0`.region])"]
    found = looking(PAIR.where("b.price > remote('f_info', a.name).MAX"))
    assert found.conditions() == [">(b[`price`], f_info(a[`name`]).max)"]


def test_a_fetched_value_is_asked_for_by_the_engine_also_on_one_row() -> None:
    found = looking(PAIR.where("a.price > remote('f_limit', a.name)"))
    assert found.compiled.masks == ((), ())
    assert found.conditions() == [">(a[`price`], f_limit(a[`name`]))"]
    (asked,) = found.compiled.remotes
    assert asked.keys == (TEXT,)


def test_fetched_arrays_are_asked_for_members() -> None:
    found = looking(PAIR.where("b.name NOT IN remote('f_places', a.name)"))
    assert found.conditions() == ["not(member(b[`name`], f_places(a[`name`])))"]
    found = looking(PAIR.where("array_contains(remote('f_info', a.name).tags, b.name)"))
    assert found.conditions() == ["member(b[`name`], f_info(a[`name`]).tags)"]


def test_an_unknown_array_may_be_taken_for_an_empty_one() -> None:
    found = looking(PAIR.where("b.name NOT IN coalesce(remote('f_places', a.name), array())"))
    assert found.conditions() == [
        "not(if(is_null(f_places(a[`name`])), if(is_null(b[`name`]), None, False), "
        "member(b[`name`], f_places(a[`name`]))))"
    ]


def test_keys_may_be_whatever_the_engine_computes() -> None:
    pattern = seq("a", "b+").within("1 hour")
    found = looking(pattern.where("b.price > remote('f_limit', prev(b.name), a.qty, last(b.day))"))
    assert found.conditions() == [
        ">(b[`price`], f_limit(b.prev[`name`], cast int64(a[`qty`]), b.last[`day`]))"
    ]


def test_a_key_over_several_variables_makes_a_table_one_of_the_engine() -> None:
    found = looking(PAIR.where("remote('pair', a.name, b.qty) > 1"))
    assert not found.compiled.lookups
    assert found.conditions() == [">(pair(a[`name`], cast int64(b[`qty`])), 1.0)"]


def test_what_the_engine_does_not_compute_is_looked_up_before_for_one_variable() -> None:
    found = looking(PAIR.where("remote('f_info', a.name).region LIKE 'e%'"))
    assert found.compiled.masks[0] == ("`__cep_remote_0`.region LIKE 'e%'",)
    assert not found.compiled.remotes
    found = looking(seq("a", "b+").where("max(remote('f_limit', b.name)) > a.price"))
    assert found.conditions() == [">(b.max[`__cep_remote_0`], a[`price`])"]


def test_a_condition_on_finished_matches_reads_a_hidden_field() -> None:
    found = looking(PAIR.where("remote('t_info', a.name).region LIKE concat(b.name, '%')"))
    assert found.compiled.after == ("`a`.`__cep_remote_0`.region LIKE concat(`b`.`name`, '%')",)
    assert found.compiled.hidden == ((0, "__cep_remote_0"),)


def test_equal_values_of_one_column_partition_the_input() -> None:
    found = looking(PAIR.where("remote('t_limit', a.name) = remote('t_limit', b.name)"))
    assert found.compiled.inferred == ("`__cep_remote_0`",)
    found = looking(PAIR.where("remote('f_limit', a.name) = remote('f_limit', b.name)"))
    assert not found.compiled.inferred


def test_a_negated_variable_and_an_unordered_one_look_up_like_any_other() -> None:
    pattern = seq("a", "!n", "b").where("n.price > remote('f_limit', a.name)").within("1 hour")
    assert looking(pattern).conditions() == [">(n[`price`], f_limit(a[`name`]))"]
    assert looking(all_of("a", "b").where("b.price > remote('t_limit', a.name)")).conditions()


def test_the_name_may_be_left_out_where_the_key_tells_it() -> None:
    sources = {
        "t1_name": RemoteSchema("t1_name", plain(DOUBLE)),
        "name": RemoteSchema("name", array(TEXT)),
        "card": RemoteSchema("card", plain(DOUBLE)),
    }
    pattern = seq("t1", "t2").within("1 hour")
    found = looking(
        pattern.where("t2.price > remote(t1.name)", "t1.name NOT IN remote(t2.name)"),
        sources=sources,
    )
    assert found.conditions() == [
        ">(t2[`price`], t1_name(t1[`name`]))",
        "not(member(t1[`name`], name(t2[`name`])))",
    ]
    found = looking(pattern.where("t2.price > remote(t1.day)"), sources={"x": sources["card"]})
    assert [each.remote.name for each in found.compiled.remotes] == ["card"]


WRONG = [
    ("remote('limt', a.name) > 1", "there is no remote source 'limt'", "remote('limt', a.name)"),
    ("remote('f_limit') > a.price", "needs a source and a key", "remote('f_limit')"),
    ("remote(a.day) > 1", "does not name a remote source", "remote(a.day)"),
    (
        "remote('pair', a.name) > 1",
        "the key of 'pair' has 2 parts (name, card), but this call has 1",
        "remote('pair', a.name)",
    ),
    (
        "remote('f_limit', remote('f_places', a.name)) > 1",
        "the key of 'f_limit' contains a call of remote()",
        "remote('f_places', a.name)",
    ),
    (
        "exists(a.tags, t -> remote('f_limit', t) > 1)",
        "depends on the lambda argument t",
        "remote('f_limit', t)",
    ),
    (
        "b.price > remote('f_info', a.name).mx",
        "has no field mx",
        "remote('f_info', a.name).mx",
    ),
    (
        "b.price > remote('f_limit', a.tags)",
        "the key of 'f_limit' cannot be a nested or collated type",
        "a.tags",
    ),
    (
        "a.price > remote('pair', a.name, b.day)",
        "the key of 'pair' is DATE, but its key column card is BIGINT",
        "b.day",
    ),
    (
        "b.name IN remote('f_limit', a.name)",
        "remote('f_limit', a.name) is DOUBLE, not an array",
        "remote('f_limit', a.name)",
    ),
    (
        "b.price IN remote('f_places', a.name)",
        "is ARRAY<STRING>, so it cannot contain DOUBLE",
        "b.price",
    ),
    (
        "remote('f_info', a.name, b.qty).region LIKE 'e%'",
        "because the key of its lookup is not of one variable",
        "remote('f_info', a.name, b.qty).region LIKE 'e%'",
    ),
    (
        "b.card IN remote('f_numbers', a.name, b.name)",
        "membership of BIGINT in an array of INT",
        "b.card IN remote('f_numbers', a.name, b.name)",
    ),
    ("remote('f_limit', 'x') > 1", "does not refer to a variable", "remote('f_limit', 'x') > 1"),
]


@pytest.mark.parametrize(("text", "message", "place"), WRONG)
def test_what_cannot_be_looked_up_is_said_where_it_stands(
    text: str, message: str, place: str
) -> None:
    found = problem(PAIR.where(text))
    assert message in found["message"]
    assert drawn(found) == place


def test_a_joined_table_is_asked_by_types_that_compare() -> None:
    found = problem(PAIR.where("remote('pair', a.name, a.day) > 1"))
    assert drawn(found) == "a.day"


def test_a_source_is_asked_with_keys_of_one_type() -> None:
    found = problem(
        PAIR.where("b.price > remote('f_limit', a.name)", "b.price < remote('f_limit', a.card)")
    )
    assert "'f_limit' is BIGINT here, but STRING in another call" in found["message"]
    assert drawn(found) == "remote('f_limit', a.card)"
    assert found["hint"] == "cast the key in one of the two"


def test_a_source_is_asked_with_as_many_keys_everywhere() -> None:
    found = problem(
        PAIR.where("b.price > remote('f_limit', a.name)", "remote('f_limit', a.name, b.name) > 1")
    )
    assert "STRING and STRING here, but STRING in another call" in found["message"]
    assert found["hint"] == "use the same number of key columns in every call"


def test_the_order_does_not_hang_on_remote_data() -> None:
    found = problem(PAIR, order_by=["ts", "coalesce(remote('t_limit', name), 0)"])
    assert found["message"] == "order_by: remote() is not supported here"
    assert drawn(found) == "remote('t_limit', name)"


def test_without_remotes_a_call_says_what_is_missing() -> None:
    found = problem(PAIR.where("remote('f_limit', a.name) > 1"), sources={})
    assert found["hint"].startswith("remotes= is not set")


def test_a_bare_column_is_a_key_of_its_own_event() -> None:
    found = looking(seq(event("a", "remote('t_limit', name) > price"), "b"))
    assert found.compiled.masks[0] == ("`__cep_remote_0` > `price`",)
