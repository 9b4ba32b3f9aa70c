"""Measures that use the measures before them."""

from __future__ import annotations

import pytest

from spark_cep.rows.compiled import reading_name
from tests.compiling import COLUMNS
from tests.fake_typer import LocalTyper
from tests.rows.compiling import compiled, marked, problems


def written(measures: dict[str, str], pattern: str = "a b+") -> dict[str, str]:
    """Each measure with its readings in the places of their names."""
    found = compiled(pattern, measures=measures, rows="all", typer=LocalTyper(COLUMNS))
    texts = {each.name: each.sql for each in found.compiled.measures}
    for number, reading in reversed(list(enumerate(found.readings()))):
        name = reading_name(number)
        texts = {key: text.replace(name, f"<{reading}>") for key, text in texts.items()}
    return texts


def test_the_name_gives_way_to_the_measure_with_its_semantics() -> None:
    found = written(
        {"top": "FINAL LAST(b.price)", "twice": "TOP * 2", "more": "twice + top", "n": "count(*)"}
    )
    assert found["twice"] == "(<!last(b)[`price`]>) * 2"
    assert found["more"] == "((<!last(b)[`price`]>) * 2) + (<!last(b)[`price`]>)"


@pytest.mark.parametrize(
    ("name", "text", "meaning"),
    [
        ("price", "price + 1", "<last(*)[`price`]> + 1"),
        ("a", "a.price + 1", "<last(a)[`price`]> + 1"),
        ("x", "exists(array(qty), x -> x > 1)", "exists(array(<last(*)[`qty`]>), x -> x > 1)"),
    ],
)
def test_what_comes_first(name: str, text: str, meaning: str) -> None:
    """A column of the input, a variable, the argument of a lambda."""
    assert written({name: "count(*)", "m": text})["m"] == meaning


def test_a_comment_at_the_end_of_a_measure_hides_nothing() -> None:
    assert written({"n": "count(*) -- all", "m": "n + 1"})["m"].endswith("\n) + 1")


def test_a_later_measure_is_not_known_yet() -> None:
    (problem,) = problems("a b", measures={"m": "n + 1", "n": "count(*)"})
    assert problem["message"] == "the input has no column n"


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("n + 1 + nope", "the input has no column nope", "nope"),
        ("1 + sum(n)", "SUM cannot contain the aggregate COUNT", "n)"),
    ],
)
def test_a_mistake_is_at_its_place_in_what_was_written(text: str, message: str, at: str) -> None:
    (problem,) = problems("a b", measures={"n": "count(*) + count(*)", "m": text})[:1]
    assert problem["message"] == message
    assert problem["text"] == text
    assert marked(problem) == at
