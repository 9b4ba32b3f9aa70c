"""Properties of the grammar: what is written down from a pattern is read as that pattern, an
expression means what Spark SQL would have it mean, and nothing but a PatternError is ever raised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep import all_of, any_of, event, no, sase, seq
from spark_cep.errors import PatternError
from tests.reference.expressions import Scope, Value, evaluate

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

# ---- patterns ----------------------------------------------------------------------------------


@dataclass
class Writer:
    """Draws a pattern together with one of the texts for it."""

    draw: st.DrawFn
    used: int = 0

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def name(self) -> str:
        self.used += 1
        return f"v{self.used}"

    def declared(self) -> tuple[str, Pattern]:
        name = self.name()
        kind = self.pick("A", "Bee", "C")
        return self.pick(f"{kind} {name}", f"{kind}  {name}(x, y)"), event(name, f"k = '{kind}'")

    def part(self, depth: int) -> tuple[str, Pattern]:
        forms: list[Callable[[], tuple[str, Pattern]]] = [
            self.declared,
            lambda: self.quantified(*self.declared()),
            self.group,
        ]
        if depth:
            forms += [
                lambda: self.nested("SEQ", seq, depth),
                lambda: self.nested("AND", all_of, depth),
                lambda: self.nested("OR", any_of, depth),
                lambda: self.infix(depth),
            ]
        return self.draw(st.sampled_from(forms))()

    def quantified(self, text: str, pattern: Pattern) -> tuple[str, Pattern]:
        quantifier = self.pick("+", "*", "?", "{2}", "{1,3}", "{2,}", "{,4}")
        if quantifier == "+" and self.pick("sign", "word") == "word":
            return f"{self.pick('KLEENE', 'kleene')}({text})", pattern.times("+")
        return f"{text}{self.pick('', ' ')}{quantifier}", pattern.times(quantifier)

    def group(self) -> tuple[str, Pattern]:
        (one, first), (other, second) = self.declared(), self.declared()
        text = self.pick(f"({one}, {other})", f"SEQ({one}, {other})", f"({one}; {other})")
        return self.quantified(text, seq(first, second))

    def nested(self, word: str, combine: Callable[..., Pattern], depth: int) -> tuple[str, Pattern]:
        parts = [self.part(depth - 1) for _ in range(self.draw(st.integers(1, 3)))]
        texts = ", ".join(text for text, _ in parts)
        name = self.pick(word, word.lower())
        return f"{name}{self.pick('', ' ')}({texts})", combine(*(p for _, p in parts))

    def infix(self, depth: int) -> tuple[str, Pattern]:
        parts = [self.part(depth - 1) for _ in range(2)]
        operator, combine = self.draw(
            st.sampled_from([(" AND ", all_of), ("^", all_of), (" or ", any_of), ("|", any_of)])
        )
        text = operator.join(text for text, _ in parts)
        return f"({text})", combine(*(pattern for _, pattern in parts))

    def negated(self) -> tuple[str, Pattern]:
        text, pattern = self.declared()
        sign = self.pick("~", "!", "¬", "NOT ", "neg ")
        return self.pick(f"{sign}{text}", f"{sign}({text})"), no(pattern)

    def whole(self) -> tuple[str, Pattern]:
        parts = [self.part(2) for _ in range(self.draw(st.integers(2, 3)))]
        # A negation between parts that are always there needs no window.
        parts = [self.declared(), self.negated(), self.declared(), *parts]
        texts = [text for text, _ in parts]
        text = f"SEQ({', '.join(texts)})" if self.pick("s", ";") == "s" else "; ".join(texts)
        return text, seq(*(pattern for _, pattern in parts))


@st.composite
def written(draw: st.DrawFn) -> tuple[str, Pattern]:
    return Writer(draw).whole()


@settings(max_examples=150, deadline=None)
@given(written())
def test_a_pattern_written_down_is_read_as_that_pattern(case: tuple[str, Pattern]) -> None:
    text, expected = case
    for whole in (f"PATTERN {text}", f"{text}."):
        assert sase(whole, type_column="k") == expected


@settings(max_examples=50, deadline=None)
@given(written(), st.sampled_from(["\n", "\t", "  ", " \n  "]))
def test_white_space_and_case_of_keywords_make_no_difference(
    case: tuple[str, Pattern], space: str
) -> None:
    text, expected = case
    spread = text.replace(" ", space).replace("(", f"{space}(").replace(",", f",{space}")
    # A bound is one token: {1, 3} is written without a place for space.
    spread = spread.replace(f",{space}3}}", ",3}").replace(f",{space}4}}", ",4}")
    assert sase(spread.replace("SEQ", "Seq"), type_column="k") == expected


# ---- conditions --------------------------------------------------------------------------------

ROWS: dict[str, dict[str, Value]] = {
    "a": {"x": 3, "y": -2, "s": "M"},
    "b": {"x": 0, "y": None, "s": "N"},
    "c": {"x": 7, "y": 5, "s": None},
}


def numbers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a.x", "a.y", "b.x", "b.y", "c.x", "1", "2", "10", "0"])
    if not depth:
        return leaf
    part = numbers(depth - 1)
    return st.one_of(
        leaf,
        st.builds("{} {} {}".format, part, st.sampled_from("+-*"), part),
        part.map("({})".format),
        part.map("- ({})".format),
    )


def booleans(depth: int) -> st.SearchStrategy[str]:
    comparison = st.builds(
        "{} {} {}".format,
        numbers(2),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        numbers(2),
    )
    test = st.one_of(
        comparison,
        st.builds("{} {}".format, numbers(1), st.sampled_from(["IS NULL", "IS NOT NULL"])),
        st.builds("{} {}IN ({}, {})".format, numbers(1), st.sampled_from(["", "NOT "]),
                  numbers(1), numbers(1)),
        st.builds("{} BETWEEN {} AND {}".format, numbers(1), numbers(1), numbers(1)),
        st.builds("{}.s = '{}'".format, st.sampled_from("abc"), st.sampled_from("MN")),
    )  # fmt: skip
    if not depth:
        return test
    part = booleans(depth - 1)
    return st.one_of(
        test,
        st.builds("{} {} {}".format, part, st.sampled_from(["AND", "OR"]), part),
        part.map("({})".format),
        part.map("NOT ({})".format),
        test.map("NOT {}".format),
    )


def value_of(text: str) -> Value:
    return evaluate(sqlglot.parse_one(text, dialect="spark"), Scope(ROWS))


FREE = dict.fromkeys("abc")


@settings(max_examples=300, deadline=None)
@given(booleans(3))
def test_a_condition_holds_when_spark_sql_says_so(text: str) -> None:
    found = sase(f"SEQ(a, b, c) WHERE {text}", symbols=FREE).conditions
    assert all(value_of(each) is True for each in found) == (value_of(text) is True)


@settings(max_examples=200, deadline=None)
@given(booleans(3))
def test_a_condition_read_again_stays_as_it_is(text: str) -> None:
    found = sase(f"SEQ(a, b, c) WHERE {text}", symbols=FREE).conditions
    again = sase("SEQ(a, b, c) WHERE " + " AND ".join(f"({each})" for each in found), symbols=FREE)
    assert again.conditions == found


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["a.x", "b.x", "c.x", "4"]), min_size=2, max_size=5), st.data())
def test_a_chain_of_comparisons_is_each_of_its_links(
    operands: list[str], data: st.DataObject
) -> None:
    operators = [data.draw(st.sampled_from(["<", "<=", "=", "<>"])) for _ in operands[1:]]
    chain = "".join(f" {o} {x}" for o, x in zip(operators, operands[1:], strict=True))
    found = sase(f"SEQ(a, b, c) WHERE {operands[0]}{chain}", symbols=FREE).conditions
    links = zip(operands, operators, operands[1:], strict=False)
    assert set(found) == {" ".join(link) for link in links}


# ---- anything at all ---------------------------------------------------------------------------

WORDS = [
    "PATTERN", "WHERE", "WITHIN", "SEQ", "AND", "OR", "NOT", "KLEENE", "SAME", "REMOTE", "IN", "∀",
    "i", "a", "b", "S_1", "S_n", "S_{i-1}", "...", "(", ")", "[", "]", "{", "}", ",", ";", ":", ".",
    "=", "<", "+", "*", "?", "-", "~", "∈", "10", "2.5", "k", "6:00", "'x'", "hours", "events", "T",
    "°", "..", "IS", "NULL", "BETWEEN", "LIKE", "count", "f", "skip_till_next_match", "a.x", "b.y",
]  # fmt: skip


def tokens_of(words: list[str]) -> Iterator[str]:
    yield " ".join(words)
    yield "".join(words)
    yield "SEQ(a, b) WHERE " + " ".join(words)
    yield "SEQ(a, b) WHERE a.x = 1 WITHIN " + " ".join(words)
    yield f"SEQ(a, {' '.join(words)}, b)"


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_words_give_a_pattern_or_a_pattern_error(words: list[str]) -> None:
    for text in tokens_of(words):
        with contextlib.suppress(PatternError):
            sase(text, type_column="kind", symbols={"n": 3, "T": 0.5, "i": 2})


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_characters_give_a_pattern_or_a_pattern_error(text: str) -> None:
    for whole in (text, f"SEQ(a, b) WHERE {text}"):
        with contextlib.suppress(PatternError):
            sase(whole, type_column="kind")
