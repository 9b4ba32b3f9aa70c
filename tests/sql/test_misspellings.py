"""Misspelled words are shown where they are, with the word that was meant."""

from __future__ import annotations

import pytest

from spark_cep.errors import PatternError
from spark_cep.expressions.problems import Place, Problem
from spark_cep.sql.advice import advise
from tests.sql.recorded import rewritten


def problem_of(clause: str) -> tuple[str, str]:
    """What is marked from its beginning on, and the hint."""
    text = f"SELECT * FROM ticks t {clause}"
    with pytest.raises(PatternError) as caught:
        rewritten(text)
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    return text[problem["column"] - 1 :][: problem["length"]], problem["hint"]


@pytest.mark.parametrize(
    ("inside", "marked", "meant"),
    [
        ("MEASURES x AS y ALL ROW PER MATCH PATTERN (a)", "ROW", "ALL ROWS PER MATCH"),
        ("ONE ROWS PER MATCH PATTERN (a)", "ROWS", "ONE ROW PER MATCH"),
        ("ONE ROW PER MATCHES PATTERN (a)", "MATCHES", "ONE ROW PER MATCH"),
        ("ALL ROWS PER MATCH WITH UNMATCHED ROW PATTERN (a)", "ROW",
         "ALL ROWS PER MATCH WITH UNMATCHED ROWS"),
        ("ALL ROWS PER MATCH OMIT EMPTY ROWS PATTERN (a)", "ROWS",
         "ALL ROWS PER MATCH OMIT EMPTY MATCHES"),
        ("ALL ROWS PATTERN (a)", "ALL ROWS", "ALL ROWS PER MATCH"),
        ("ORDER BY ts MEASURE x AS y PATTERN (a)", "MEASURE", "MEASURES"),
        ("MEASURES x AS y PATERN (a)", "PATERN", "PATTERN"),
        ("PATTERN (a) SUBSETS u = (a)", "SUBSETS", "SUBSET"),
        ("PATTERN (a) SUBSET u = (a) DEFNE a AS x > 1", "DEFNE", "DEFINE"),
        ("PATTERN (a) WITHIN INTERVAL '1' HOUR DEFINED a AS x > 1", "DEFINED", "DEFINE"),
        ("ORDER BY ts WITHN INTERVAL '1' HOUR PATTERN (a)", "WITHN", "WITHIN"),
        ("PARTITON BY x PATTERN (a)", "PARTITON", "PARTITION BY"),
        ("PARTITION BY x ORDERED BY ts PATTERN (a)", "ORDERED", "ORDER BY"),
        ("PARTITION x PATTERN (a)", "PARTITION", "PARTITION BY"),
        ("AFTER MATCHES SKIP TO NEXT ROW PATTERN (a)", "MATCHES", "AFTER MATCH SKIP"),
        ("ORDER BY ts AFTER SKIP TO NEXT ROW PATTERN (a)", "SKIP", "AFTER MATCH SKIP"),
        ("PATTERN SEQ(a, b) SKIP TIL ANY MATCH", "TIL", "SKIP TILL"),
        ("ORDER BY ts SKIP PAST LAST ROW PATTERN (a)", "SKIP", "AFTER MATCH SKIP"),
        ("MEASURES x AS y SKIP TO NEXT ROW PATTERN (a)", "SKIP", "AFTER MATCH SKIP"),
        ("PATTERN (a) SKIP TO LAST a DEFINE a AS x > 1", "SKIP", "AFTER MATCH SKIP"),
    ],
)  # fmt: skip
def test_did_you_mean(inside: str, marked: str, meant: str) -> None:
    assert problem_of(f"MATCH_RECOGNIZE ({inside})") == (marked, f"did you mean {meant}?")


def test_the_name_of_the_clause_misspelled() -> None:
    marked, hint = problem_of("MATCH_RECOGNISE (ORDER BY ts PATTERN (a))")
    assert (marked, hint) == ("MATCH_RECOGNISE", "did you mean MATCH_RECOGNIZE?")


@pytest.mark.parametrize("word", ["SEEK", "INITIAL"])
def test_words_of_windows(word: str) -> None:
    marked, hint = problem_of(f"MATCH_RECOGNIZE (ORDER BY ts {word} PATTERN (a))")
    assert (marked, hint) == (word, f"remove {word}: PATTERN (...)")


@pytest.mark.parametrize(
    "inside",
    [
        "MEASURES x measure, y patterns, z subsets PATTERN (a)",
        "MEASURES define AS defines, partitions + 1 AS measure PATTERN (a)",
        "PARTITION BY measure ORDER BY patern, withn DESC PATTERN (a)",
        "ORDER BY ts PATTERN (patern define_) DEFINE patern AS measured > 1, define_ AS subset < 2",
        "MEASURES RUNNING measured(x) AS y PATTERN (a)",
        "MEASURES CASE WHEN one THEN row END AS all_rows ONE ROW PER MATCH PATTERN (a)",
    ],
)
def test_names_may_be_like_the_words(inside: str) -> None:
    assert len(rewritten(f"SELECT * FROM t MATCH_RECOGNIZE ({inside})").calls) == 1


# ---- what Spark says -----------------------------------------------------------------------------

_INCOMPATIBLE = '("INTERVAL DAY TO SECOND" and "DOUBLE")'


def advised(text: str, message: str) -> tuple[str, str | None]:
    found = advise(Problem(message, Place(f"DEFINE b AS {text}", 12, 12 + len(text)), None))
    assert found.place is not None
    return found.place.text[found.place.start : found.place.end], found.hint


@pytest.mark.parametrize(
    ("text", "marked", "written"),
    [
        ("x > 1 AND d - a.d < 30", "d - a.d < 30", "d - a.d < INTERVAL 30 DAYS"),
        ("ts - a.ts < 60/86400", "ts - a.ts < 60/86400", "ts - a.ts < INTERVAL 1 MINUTE"),
        ("1.5 >= LAST(ts) - a.ts", "1.5 >= LAST(ts) - a.ts",
         "INTERVAL 36 HOURS >= LAST(ts) - a.ts"),
        ("ts - PREV(ts) > -(1)", "ts - PREV(ts) > -(1)", "ts - PREV(ts) > INTERVAL '-1' DAYS"),
        ("ts - a.ts < 1/24/60/60/2", "ts - a.ts < 1/24/60/60/2",
         "ts - a.ts < INTERVAL '0.500000' SECONDS"),
        ("ts - a.ts BETWEEN 1 AND 2 * 2", "ts - a.ts BETWEEN 1 AND 2 * 2",
         "ts - a.ts BETWEEN INTERVAL 1 DAY AND INTERVAL 4 DAYS"),
        ("x AND ts < a.ts + 1/24", "a.ts + 1/24", "a.ts + INTERVAL 1 HOUR"),
    ],
)  # fmt: skip
def test_days_as_numbers_become_intervals(text: str, marked: str, written: str) -> None:
    assert advised(text, f"incompatible types {_INCOMPATIBLE}") == (marked, f"write {written}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('x > "a".price', 'Can\'t extract a value from "a". Need a complex type'),
        ('LAST("a" . `price`) > 1', 'LAST("a" . `price`) does not refer to a column'),
    ],
)
def test_names_in_double_quotes_are_strings(text: str, message: str) -> None:
    written = "write `a`: names are quoted with backticks"
    assert advised(text, message) == ('"a"', written)


def test_a_struct_that_is_none_stays_as_spark_says_it() -> None:
    text = "x.price = 'a'"
    assert advised(text, 'Can\'t extract a value from "x".') == (text, None)


@pytest.mark.parametrize("text", ["x - y < 30 AND (", "ts < 30", "a.ts - b.ts < n"])
def test_other_mixtures_stay_as_spark_says_it(text: str) -> None:
    assert advised(text, f"incompatible types {_INCOMPATIBLE}") == (text, None)


@pytest.mark.parametrize(
    ("text", "name", "hint"),
    [
        ("x > PREVIOUS(x)", "PREVIOUS", "did you mean PREV?"),
        ("CLASIFIER ( ) = 'A'", "CLASIFIER", "did you mean CLASSIFIER?"),
        ("FIRTS(a.x) > cuont(*)", "FIRTS", "did you mean FIRST?"),
        ("IFF(x > 1, 2, 3)", "IFF", "did you mean IF?"),
        ("safe_divide(x, 2)", "safe_divide", "did you mean TRY_DIVIDE?"),
        ("x > qqqq(1)", "qqqq", "register it in the session, or correct its name"),
    ],
)
def test_unknown_functions(text: str, name: str, hint: str) -> None:
    message = f"Cannot resolve routine `{name}` on search path [`system`.`builtin`]."
    assert advised(text, message) == (name, hint)
    assert advised(text, message.replace("routine", "function")) == (name, hint)
