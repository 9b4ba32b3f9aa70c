"""Calls of remote in row patterns: which column of which row stands for each."""

from __future__ import annotations

import pytest

from spark_cep import row_pattern
from spark_cep.expressions.problems import Problems
from spark_cep.expressions.remote_calls import LookupRequests
from spark_cep.rows.lookups import replace_define_calls, replace_measure_calls

TYPES = {"limits": "double"}


def defined(condition: str, own: str = "b") -> tuple[str, list[tuple[str, ...]]]:
    """The condition that the compiler gets, blanks left out, and the keys that are looked up."""
    problems, seeking = Problems(), LookupRequests(TYPES)
    pattern = row_pattern("a b", {own: condition}, subset={"u": ["a", "b"]})
    found = dict(replace_define_calls(pattern, seeking, problems).define)[own]
    problems.raise_if_any()
    assert len(str(found)) == len(condition)
    return " ".join(str(found).split()), [each.keys for each in seeking.found]


@pytest.mark.parametrize(
    ("condition", "text", "keys"),
    [
        ("remote('limits', org) > 1", "__cep_r0 > 1", [("org",)]),
        ("remote('limits', B.org) > 1", "__cep_r0 > 1", [("org",)]),
        ("remote('limits', org, b.x) > 1", "__cep_r0 > 1", [("org", "x")]),
        ("remote('limits', lower(a.org)) > 1", "a.__cep_r0 > 1", [("lower(org)",)]),
        ("remote('limits', 'all') > 1", "__cep_r0 > 1", [("'all'",)]),
        ("remote('limits', PREV(org, 2)) > 1", "PREV( __cep_r0, 2) > 1", [("org",)]),
        ("remote('limits', PREV(LAST(a.org))) > 1", "PREV(LAST( a.__cep_r0)) > 1", [("org",)]),
        ("PREV(remote('limits', org)) > 1", "PREV( __cep_r0) > 1", [("org",)]),
        ("remote('limits', addr.city).x > 1", "__cep_r0.x > 1", [("addr.city",)]),
        ("remote('limits', org) > remote('limits', org)", "__cep_r0 > __cep_r0", [("org",)]),
    ],
)
def test_a_call_is_a_column_of_the_row_that_its_key_is_read_at(
    condition: str, text: str, keys: list[tuple[str, ...]]
) -> None:
    found, looked_up = defined(condition)
    assert (found.replace("( ", "("), looked_up) == (text.replace("( ", "("), keys)


def test_conditions_to_the_left_on_the_same_row_keep_keys_from_being_asked_for() -> None:
    _, keys = defined("kind = 'x' AND x > PREV(x) AND remote('limits', CAST(y AS INT)) > x AND z")
    assert keys == [("CASE WHEN (kind = 'x') THEN CAST(y AS INT) END",)]
    _, keys = defined("kind = 'x' OR remote('limits', y) > x")
    assert keys == [("y",)]
    _, keys = defined("kind = 'x' AND remote('limits', a.y) > x")
    assert keys == [("y",)]


@pytest.mark.parametrize(
    "key", ["a.org, org", "a.org || b.org", "count(a.x)", "CLASSIFIER()", "PREV(org), org"]
)
def test_a_key_of_several_rows_is_refused_in_define(key: str) -> None:
    problems = Problems()
    pattern = row_pattern("a b", {"b": f"x > remote('limits', {key})"})
    replace_define_calls(pattern, LookupRequests(TYPES), problems)
    assert "is not over a single row" in str(problems.error())


def test_measures_read_columns_only_inside_navigations_and_aggregates() -> None:
    seeking, problems = LookupRequests(TYPES), Problems()
    texts = [
        ("m", "LAST(remote('limits', b.org)) + sum(remote('limits', x))"),
        ("n", "remote('limits', LAST(b.org), x)"),
    ]
    found = dict(replace_measure_calls(texts, row_pattern("a b"), seeking, problems))
    assert "".join(found["m"].split()) == "LAST(b.__cep_r0)+sum(__cep_r1)"
    assert found["n"] == texts[1][1]
    assert not problems.found


def test_in_of_an_array_is_written_as_a_function() -> None:
    problems = Problems()
    pattern = row_pattern("a b", {"b": "x > 1 AND y IN remote('limits', org)"})
    replace_define_calls(pattern, LookupRequests(TYPES), problems)
    error = problems.error()
    assert "IN with an array is supported only in conditions of event patterns" in str(error)
    assert error.hint == "write array_contains(remote('limits', org), y)"
