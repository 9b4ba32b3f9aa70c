"""No exception but the library's own leaves a text that a user can write.

Tokens of valid texts are cut, doubled, swapped and replaced (fuzzing.py). The oracle: a call is
prepared, or there is a PatternError whose places are inside the statement. SPARK_CEP_EXAMPLES=10
tries 100,000 texts that were not tried before.
"""

from __future__ import annotations

import os
import random
from itertools import islice

import pytest

from tests.sql.fuzzing import (
    SASE_TEXTS,
    STATEMENTS,
    answer_to_sase,
    answer_to_statement,
    sase_texts,
    statements,
)

_EXPLORES = "SPARK_CEP_EXAMPLES" in os.environ


@pytest.mark.parametrize("text", STATEMENTS)
def test_the_statements_are_valid_before_they_are_broken(text: str) -> None:
    assert answer_to_statement(text) == "prepared"


@pytest.mark.parametrize("text", SASE_TEXTS)
def test_the_sase_texts_are_valid_before_they_are_broken(text: str) -> None:
    assert answer_to_sase(text) == "prepared"


@pytest.mark.parametrize("seed", range(4))
def test_a_broken_statement_is_prepared_or_refused_with_a_place(seed: int) -> None:
    answers = [answer_to_statement(text) for text in islice(statements(seed), 400)]
    refused = [each for each in answers if each not in {"prepared", "left to Spark"}]
    assert 200 < len(refused) < 390


def test_a_broken_sase_text_is_prepared_or_refused() -> None:
    answers = [answer_to_sase(text) for text in islice(sase_texts(), 300)]
    assert {"prepared"} < set(answers)


_SEED = random.SystemRandom().randrange(2**32) if _EXPLORES else 2016


@pytest.mark.slow
@pytest.mark.parametrize("seed", [_SEED])
def test_many_more_broken_texts(seed: int) -> None:
    for text in islice(statements(seed), 80_000 if _EXPLORES else 8_000):
        answer_to_statement(text)
    for text in islice(sase_texts(seed), 20_000 if _EXPLORES else 2_000):
        answer_to_sase(text)


def _row(body: str) -> str:
    return f"SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts {body})"


def _defined(condition: str) -> str:
    return _row(f"MEASURES 1 AS m PATTERN (a b+ c) DEFINE c AS {condition}")


DEEP = {
    "brackets": _defined("(" * 3000 + "price" + ")" * 3000 + " > a.price"),
    "a sum of several rows": _defined(" + ".join(["price", "a.price"] * 1000) + " > 1"),
    "signs": _defined("- " * 3000 + "price > a.price"),
    "NOT": _defined("NOT " * 3000 + "price > a.price"),
    "calls": _defined("abs(" * 3000 + "price - a.price" + ")" * 3000 + " > 1"),
    "CASE": _defined("CASE WHEN flag THEN " * 1000 + "price" + " END" * 1000 + " > a.price"),
    "lambdas": _defined("exists(tags, x -> " * 1000 + "true" + ")" * 1000),
    "a sum of events": _row(
        "PATTERN SEQ(a, b) WITHIN INTERVAL '1' HOUR DEFINE b AS "
        + " + ".join(["b.price", "a.price"] * 1000)
        + " > 1"
    ),
    "groups of rows": _row(f"PATTERN ({'(' * 3000}a{')' * 3000})"),
    "groups of events": _row(f"PATTERN {'SEQ(' * 3000}a{', b)' * 3000} WITHIN INTERVAL '1' HOUR"),
    "an endless number": _defined("9" * 5000 + " > a.price"),
    "an endless quantifier": _row(f"PATTERN (a{{{'9' * 5000}}})"),
    "an endless limit": _row(f"PATTERN (a) MEASURES 1 AS m) /*+ rows({'9' * 5000}) */ --"),
}


@pytest.mark.parametrize("name", DEEP)
def test_what_is_too_deep_or_too_long_is_refused(name: str) -> None:
    assert answer_to_statement(DEEP[name]) not in {"prepared", "left to Spark"}
