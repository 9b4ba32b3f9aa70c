"""Statements nobody has written: taken apart and put together again, and broken ones."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from spark_cep.errors import CepError
from spark_cep.sql.kinds import check_not_permanent, read_temporary_view
from spark_cep.sql.statement import Statement, UnterminatedTextError
from tests.sql.recorded import rewritten

QUERY = """WITH a AS (SELECT 1), b(k) AS (WITH a AS (SELECT 2) SELECT * FROM a MATCH_RECOGNIZE (
PARTITION BY t.x, y ORDER BY ts DESC NULLS LAST MEASURES LAST(a.x, 1) + :p AS y, count(*) AS n
ALL ROWS PER MATCH SHOW EMPTY MATCHES AFTER MATCH SKIP TO LAST b
PATTERN (^ a{2,3}? (b | {- c -})* $) WITHIN INTERVAL '10' MINUTES SUBSET u = (a, b)
DEFINE a AS x > ?, b AS x['k'] < 2) AS m (x, y))
SELECT * FROM (SELECT * FROM b) JOIN VALUES (1, 2), (3, 4) AS t(ts, x) MATCH_RECOGNIZE (
ORDER BY ts MEASURES 1 AS x PATTERN SEQ(a, NOT x, OR(b+, AND(c, !d))?{2,4}) WITHIN 20 EVENTS
SKIP TILL NEXT MATCH CONSUME DEFINE x AS b = 1) /*+ plan('zstream') */ ON x = y"""
VIEW = """CREATE OR REPLACE TEMPORARY VIEW v (a COMMENT 'x', b) COMMENT 'y' AS
SELECT sum(x) OVER w FROM t MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS TRUE)
WINDOW w AS (ORDER BY x PATTERN (a) DEFINE a AS b)"""
WINDOWS = """WITH q AS (SELECT 1) SELECT /*+ BROADCAST(t) */ DISTINCT a.x, label OVER w AS l,
CASE WHEN nth_value(a.y, 2) IGNORE NULLS OVER (w) > :p THEN lag(x) OVER w END z, sum(y + ?) OVER (
v MEASURES LAST(b.x) AS top ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING EXCLUDE NO OTHERS INITIAL
PATTERN (a b?) DEFINE b AS x > ?), max(x) OVER v FROM t a JOIN u ON a.x = u.x WHERE x IN (SELECT 1)
GROUP BY a.x, y HAVING count(*) > 1 WINDOW v AS (PARTITION BY a.x, lower(y) ORDER BY y DESC),
w AS (PARTITION BY x ORDER BY upper(y) DESC NULLS LAST MEASURES CLASSIFIER() AS label, x AS val
ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING AFTER MATCH SKIP TO LAST b SEEK
PATTERN (a{2,3}? (b | c)*) SUBSET u = (a, b) DEFINE a AS x > PREV(x), b AS y['k'] < 2)
ORDER BY label OVER w DESC, z, a.y LIMIT 3"""
WORDS = [
    [text[token.start : token.end] for token in Statement(text).tokens]
    for text in (QUERY, VIEW, WINDOWS)
]
EDITS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=4)

NAMES = st.sampled_from(
    ["a", "B1", "_x", "measures", "pattern", "define", "order", "one", "skip", "strict", "`a b`"]
)
EXPRESSIONS = st.sampled_from(
    ["x", "LAST(a.x, 1)", "x['k'] + 1", "'AS y, PATTERN ('", "CASE WHEN x THEN 1 END", "pattern(1)"]
)
SPACES = st.sampled_from([" ", "\n", "\t ", " /* PATTERN ( */ ", " -- DEFINE '\n"])


@given(st.sampled_from(WORDS), EDITS, st.integers(0, 2_000))
def test_broken_statements_are_refused_or_left_to_spark(
    words: list[str], edits: list[tuple[int, int]], length: int
) -> None:
    words = list(words)
    for at, other in edits:
        if at % 2:
            del words[at % len(words)]
        else:
            words.insert(at % len(words), words[other % len(words)])
    text = " ".join(words)[: length or None]
    with contextlib.suppress(CepError, UnterminatedTextError):
        rewritten(text, [1, 2])
    with contextlib.suppress(CepError, UnterminatedTextError):
        statement = Statement(text)
        if read_temporary_view(statement) is None:
            check_not_permanent(statement)


@given(
    st.lists(st.tuples(EXPRESSIONS, NAMES), max_size=3, unique_by=lambda each: each[1]),
    st.lists(NAMES, min_size=1, max_size=3, unique=True),
    st.lists(SPACES, min_size=30, max_size=30),
)
def test_what_was_put_in_is_taken_out(
    measures: list[tuple[str, str]], variables: list[str], spaces: list[str]
) -> None:
    words = ["SELECT", "*", "FROM", "t", "match_recognize", "(", "order by", "measures"]
    if measures:
        words += ["MEASURES", ", ".join(f"{text} AS {name}" for text, name in measures)]
    words += ["One", "Row", "Per", "Match", "Pattern", f"({' '.join(variables)})", "Define"]
    words += [", ".join(f"{name} AS x > 1" for name in variables), ")", "AS", "m"]
    text = "".join(word + space for word, space in zip(words, spaces, strict=False))
    recorded = rewritten(text)
    (call,) = recorded.calls
    bare = {name: name.strip("`") for name in (*variables, *(name for _, name in measures))}
    assert call["order_by"] == ["measures"]
    assert (call["measures"] or {}) == {bare[name]: text for text, name in measures}
    assert call["pattern"].variables.names == tuple(bare[name] for name in variables)
    assert [name.strip("`") for name, _ in call["pattern"].define] == [
        bare[name] for name in variables
    ]
    assert {condition for _, condition in call["pattern"].define} == {"x > 1"}
    assert "<matches 1>" in recorded.query
