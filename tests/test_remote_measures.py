"""Calls of remote in texts: what the compiler of measures is shown instead, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_cep import seq
from spark_cep.errors import PatternError
from spark_cep.events.measures import compile_remote_measures
from spark_cep.expressions.problems import Problems
from spark_cep.expressions.remote_calls import LookupRequest, separate_remote_calls
from tests.compiling import COLUMNS, INFOS, compiled
from tests.fake_typer import LocalTyper

if TYPE_CHECKING:
    from spark_cep.events.measures import CompiledMeasures

TYPES = {"limits": "double", "Places": "array<string>"}
PATTERN = seq("a", "b+", "c").within("1 hour")


def measured(**measures: str) -> CompiledMeasures:
    return compile_remote_measures(
        list(measures.items()),
        compiled(PATTERN).compiled,
        INFOS,
        typer=LocalTyper(COLUMNS),
        case_sensitive=False,
        types=TYPES,
    )


def test_a_call_becomes_a_column_and_its_key_is_compiled_like_a_measure() -> None:
    found = measured(over="c.price - remote('LIMITS', c.card + a.qty)")
    (only,) = found.measures
    assert only.text.split() == ["`c`.`price`", "-", "`__cep_a0`"]
    assert found.sought == (LookupRequest("limits", ("`c`.`card` + `a`.`qty`",), "__cep_a0"),)
    assert found.sought[0].called() == "remote('limits', c.card + a.qty)"


def test_what_only_a_key_reads_is_shipped() -> None:
    assert measured(m="remote('limits', a.card)").reads == {0: frozenset({"card"})}


def test_each_call_has_a_column_of_its_own() -> None:
    found = measured(m="remote('limits', a.card) + remote('limits', a.card, c.name)", n="a.price")
    assert [each.name for each in found.measures] == ["m", "n"]
    assert [each.keys for each in found.sought] == [("`a`.`card`",), ("`a`.`card`", "`c`.`name`")]


@pytest.mark.parametrize(
    ("text", "aside"),
    [
        ("remote('limits', a.x)", "__cep_a0()"),
        ("f( remote('limits', a.x).y )", "f( __cep_a0()           .y )"),
        ("a.x\n+ Remote('limits',\n a.x)", "a.x\n+ __cep_a0()      \n     "),
        ("remotes(a.x)", "remotes(a.x)"),
        ("'remote(a.x)'", "'remote(a.x)'"),
    ],
)
def test_all_other_text_stays_in_its_place(text: str, aside: str) -> None:
    found = dict(separate_remote_calls([("m", text)], TYPES, Problems()).texts)["m"]
    assert (found.rstrip(" "), len(found)) == (aside.rstrip(" "), len(text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("c.price - remote('limit', c.card)", "there is no remote source 'limit'"),
        ("remote('limits')", "needs a source and a key"),
        ("remote('limits', remote('limits', a.card))", "contains a call of remote()"),
        ("exists(array(1), x -> remote('limits', x) > 1)", "depends on the lambda argument x"),
        ("remote('limits', prize)", "prize does not refer to a variable"),
        ("remote('limits', rand(1) OVER ())", "not a Spark SQL expression|not supported here"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(PatternError, match=problem) as raised:
        measured(m=text)
    assert text.splitlines()[0] in str(raised.value)


def test_a_key_is_shown_in_the_text_that_the_user_wrote() -> None:
    with pytest.raises(PatternError) as raised:
        measured(m="a.price - remote('limits', a.crad)")
    lines = str(raised.value).splitlines()
    assert lines[2].strip() == "a.price - remote('limits', a.crad)"
    assert lines[3].index("^") == lines[2].index("crad")


def test_in_of_an_array_is_written_as_a_function_in_measures() -> None:
    with pytest.raises(PatternError) as caught:
        measured(m="NOT (c.name NOT IN remote('places', a.name))")
    assert (
        "IN with an array is supported only in conditions of event patterns" in caught.value.message
    )
    assert caught.value.hint == "write NOT array_contains(remote('places', a.name), c.name)"
