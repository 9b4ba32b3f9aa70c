"""docs/sase.md: every query of the papers stands there, is read, and compiles on its table."""

from __future__ import annotations

from typing import Any

import pytest

from spark_cep import sase
from spark_cep.errors import PatternError
from spark_cep.udfs.expressions import BIGINT, Type
from tests.cases import code
from tests.compiling import compiled
from tests.fake_typer import LocalTyper
from tests.sql.sase_page import blocks, columns, patterns

PATTERNS = patterns()
# What the papers print: figures, listings, examples and templates.
PRINTED = {
    "lazy": ["figure_1", "section_7", "figure_8_cba", "figure_8_acb"],
    "adaptive": [
        "example_1", "figure_4", "conjunction", "sequence", "negation", "kleene", "disjunction",
    ],
    "apam": ["section_2", "section_4", "figure_2", "figure_3"],
    "eires": ["listing_1", "listing_2_q1", "listing_2_q2", "listing_3", "listing_4"],
    "darling": [
        "pattern_1", "pattern_2", "section_4", "a_1", "a_2", "a_3", "b_1", "b_2", "b_3", "b_4",
        "c_1", "c_2", "c_3",
    ],
}  # fmt: skip


class PageTyper(LocalTyper):
    """Knows the functions that the page's texts use and the tests' typer does not."""

    def _answer(self, expression: Any) -> Type | str:
        found = super()._answer(expression)
        if isinstance(found, str) and "date_format" in expression:
            return super()._answer("1 = 1")
        return BIGINT if isinstance(found, str) and expression.startswith("floor(") else found


def test_every_query_of_the_papers_is_on_the_page() -> None:
    expected = {f"{paper}_{name}" for paper, names in PRINTED.items() for name in names}
    assert set(PATTERNS) == expected | {"rising", "ladder"}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_text_of_the_page_compiles_on_its_table(name: str) -> None:
    infos = columns(name)
    typer = PageTyper({column.name: column.type for column in infos})
    found = compiled(PATTERNS[name], columns=infos, typer=typer, time_zone="UTC")
    assert found.compiled.branches


def test_the_parenthesis_that_listing_1_lacks_is_pointed_at() -> None:
    printed = next(text for text in blocks("text") if "SAME[cc]" in text)
    with pytest.raises(PatternError, match=r"\( is not closed\n  at line 1, column 4"):
        sase(printed, type_column="type")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "lazy_figure_1",
            "seq(event('a'), event('b'), event('c')).where(\"a.ticker = 'MSFT'\", "
            "\"b.ticker = 'GOOG'\", \"c.ticker = 'AAPL'\", 'a.price < b.price', "
            "'b.price < c.price').within(4 hours)",
        ),
        (
            "apam_figure_3",
            "seq(event('A', 'type = 0'), event('B', 'type = 1'), event('C', 'type = 2'), "
            "event('D', 'type = 3'), event('E', 'type = 4')).where('A.attr1 < B.attr1', "
            "'B.attr2 < C.attr2', 'C.attr3 < D.attr3', 'D.attr4 < E.attr4').within(events=2000)",
        ),
        (
            "eires_listing_1",
            "seq(event('t1', \"type = 'T'\"), any_of(seq(event('d', \"type = 'D'\"), "
            "event('t2', \"type = 'T'\")), seq(event('l', \"type = 'L'\"), "
            "event('t3', \"type = 'T'\")))).where('t1.cc = d.cc', 't1.cc = t2.cc', "
            "'t1.cc = l.cc', 't1.cc = t3.cc', 't1.vol > 10000', 't2.vol > 10000', "
            "'t1.loc <> t2.loc', 'NOT array_contains(t1.known_places, t2.loc)', "
            "'l.limit > t1.highest_limit', 't3.vol > 50000', "
            "'NOT array_contains(t3.authorized, t3.ben)').within(5 min)",
        ),
        (
            "darling_a_2",
            "seq(event('S_1', \"ticker = 'MSFT'\"), event('S_2', \"ticker = 'GOOG'\").times("
            "'{1,}'), event('S_3', \"ticker = 'AAPL'\"), event('S_4', \"ticker = 'INTC'\"))"
            ".where('S_2.open > S_1.open * 1.1D', 'S_3.open > S_2.open * 1.1D', "
            "'S_4.open > S_3.open * 1.1D').within(60 minutes)",
        ),
    ],
)
def test_a_printed_query_is_the_pattern_that_its_words_say(name: str, expected: str) -> None:
    assert code(PATTERNS[name]) == expected
