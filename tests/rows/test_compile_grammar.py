"""The text of PATTERN: what it means, and what is said where it means nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.errors import PatternError
from spark_cep.expressions.problems import Excerpt
from spark_cep.expressions.row_grammar import PatternNode, node_text, parse_row_pattern
from spark_cep.row_patterns import row_pattern
from tests.rows.compiling import marked


def short(node: PatternNode) -> str:
    """A tree without places: `(a b)` is a sequence, `[a b]` alternatives, `<a b>` any order."""
    inner = " ".join(short(part) for part in node.parts)
    if node.kind == "repeat":
        high = "" if node.high is None else node.high
        return f"{inner}{{{node.low},{high}}}{'' if node.greedy else '?'}"
    marks = {
        "variable": node.name,
        "concat": f"({inner})",
        "alternate": f"[{inner}]",
        "permute": f"<{inner}>",
        "exclude": f"-{inner}-",
        "empty": "()",
        "start": "^",
        "end": "$",
    }
    return marks[node.kind]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", "a"),
        ("a b c", "(a b c)"),
        ("a | b c | d", "[a (b c) d]"),
        ("(a | b) c", "([a b] c)"),
        ("a+ b* c?", "(a{1,} b{0,} c{0,1})"),
        ("a+? b*? c??", "(a{1,}? b{0,}? c{0,1}?)"),
        ("a{2} b{2,} c{,3} d{2,3} e{,}", "(a{2,2} b{2,} c{0,3} d{2,3} e{0,})"),
        ("a{2}? b{0,1}?", "(a{2,2}? b{0,1}?)"),
        ("(a b)+", "(a b){1,}"),
        ("((a))", "a"),
        ("()", "()"),
        ("a | ()", "[a ()]"),
        ("(a | ) b", "([a ()] b)"),
        ("(| a)+ b", "([() a]{1,} b)"),
        ("a |", "[a ()]"),
        ("{- a | -} PERMUTE(a |, b)", "(-[a ()]- <[a ()] b>)"),
        ("^ a $", "(^ a $)"),
        ("^* $+ ()*", "(^{0,} ${1,} (){0,})"),
        ("{- a b -}+ c", "(-(a b)-{1,} c)"),
        ("{-a-}", "-a-"),
        ("PERMUTE(a, b c, d+)", "<a (b c) d{1,}>"),
        ("permute (a, PERMUTE(b, c))", "<a <b c>>"),
        ("permute b", "(permute b)"),
        ('"!" `a b` "say ""x""" ', '(! a b say "x")'),
        ("a /* not b */ -- nor c\n d", "(a d)"),
        ("größe {- _x1 -}", "(größe -_x1-)"),
    ],
)
def test_a_pattern_is_read_as_the_standard_has_it(text: str, tree: str) -> None:
    assert short(parse_row_pattern(text)) == tree


def test_comments_contain_comments() -> None:
    assert parse_row_pattern("a /* b /* + */ c */+ /**/").kind == "repeat"
    with pytest.raises(PatternError, match="unexpected character '/'"):
        parse_row_pattern("a /* b /* c */")


def test_every_part_knows_its_place() -> None:
    text = "x  (a | b+ )+  {- c -}"
    tree = parse_row_pattern(text)
    assert [node_text(text, part) for part in tree.parts] == ["x", "(a | b+ )+", "{- c -}"]


@pytest.mark.parametrize(
    ("text", "message", "at", "hint"),
    [
        ("", "the pattern is empty", None, "write variables"),
        ("  ", "the pattern is empty", "  ", "write variables"),
        ("a || b", "unexpected |", "| b", "() for the empty"),
        ("(|| a)", "unexpected |", "| a)", "() for the empty"),
        ("a b)", "unexpected )", ")", "no matching ("),
        ("a -} b", "unexpected -}", "-} b", "no matching {-"),
        ("(a b", "this ( is not closed", "(a b", "add )"),
        ("{- a b", "this {- is not closed", "{- a b", "add -}"),
        ("(a {- b )", "unexpected )", ")", None),
        ("a{3,2}", "the lower bound of {3,2} is larger than its upper bound", "{3,2}", "{2,3}"),
        ("a{0}", "the upper bound of {0} is 0", "{0}", "at least 1"),
        ("a{,0}", "the upper bound of {,0} is 0", "{,0}", "at least 1"),
        ("a{0,0}", "the upper bound of {0,0} is 0", "{0,0}", "at least 1"),
        ("a{}", "{} is not a quantifier", "{}", "{2,4}"),
        ("a{2", "{2 is not a quantifier", "{2", "{2,4}"),
        ("a{b}", "{b} is not a quantifier", "{b}", "{2,4}"),
        ("+ a", "unexpected +", "+ a", "after the part that it repeats"),
        ("a | *", "unexpected *", "*", "after the part that it repeats"),
        ("a+* b", "a+ already has a quantifier", "* b", "(a+)*"),
        ("a{2}{3}", "a{2} already has a quantifier", "{3}", "(a{2}){n}"),
        ("a, b", "unexpected ,", ", b", "PERMUTE(a, b)"),
        ("PERMUTE()", "unexpected )", ")", "() for the empty"),
        ("PERMUTE(a, )", "unexpected )", ")", "() for the empty"),
        ("a 'b'", "a string is not a variable", "'b'", "backticks"),
        ("a `b", "this quote is not closed", "`b", "backticks"),
        ("a & b", "unexpected character '&'", "& b", "{n,m}"),
        ("a.b", "unexpected character '.'", ".b", "{n,m}"),
        ("2a", "unexpected 2", "2a", "consists of names"),
        ("(" * 101 + "a" + ")" * 101, "nested deeper than 100 levels", None, "quantifiers"),
    ],
)
def test_what_is_no_pattern_is_refused(
    text: str, message: str, at: str | None, hint: str | None
) -> None:
    with pytest.raises(PatternError) as raised:
        parse_row_pattern(text)
    (problem,) = raised.value.details["problems"]  # type: ignore[misc]
    assert message in problem["message"]
    if at is not None:
        assert marked(problem) == at
    if hint is not None:
        assert hint in problem["hint"]


def test_a_pattern_that_was_cut_from_a_query_is_shown_there() -> None:
    query = "SELECT * FROM t MATCH_RECOGNIZE (\n  PATTERN (a b{3,2})\n  DEFINE b AS TRUE)"
    start = query.index("a b{")
    with pytest.raises(PatternError) as raised:
        row_pattern(Excerpt(query, start, query.index(")", start)))
    assert "line 2, column 15" in raised.value.message
    assert "  PATTERN (a b{3,2})\n" in raised.value.message


NAMES = st.sampled_from(["a", "b", "C", "`x y`"])


def written(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifiers = st.sampled_from(["", "+", "*?", "?", "{2}", "{1,3}?", "{,2}", "{,}"])
    return st.one_of(
        st.lists(parts, min_size=2, max_size=3).map(lambda each: f"({' '.join(each)})"),
        st.lists(parts, min_size=2, max_size=3).map(lambda each: f"({' | '.join(each)})"),
        st.lists(parts, min_size=1, max_size=3).map(lambda each: f"PERMUTE({', '.join(each)})"),
        parts.map(lambda each: f"{{- {each} -}}"),
        st.tuples(parts, quantifiers).map(lambda each: f"({each[0]}){each[1]}"),
    )


@given(st.recursive(NAMES, written, max_leaves=8))
def test_a_part_read_by_itself_is_the_same_part(text: str) -> None:
    def without_places(node: PatternNode) -> str:
        return short(node)

    def check(node: PatternNode) -> None:
        assert without_places(parse_row_pattern(node_text(text, node))) == without_places(node)
        for part in node.parts:
            check(part)

    check(parse_row_pattern(text))
