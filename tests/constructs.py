"""What shows that each construct that docs/sql.md calls working works: statements of the page for
users of other systems, by name, and the statements here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

# VALUES (1, 10), (2, 8), (3, 7), (4, 9), (5, 12) AS t(id, p)
PRICES = (10, 8, 7, 9, 12)


@dataclass(frozen=True)
class Statement:
    text: str
    answer: list[tuple[Any, ...]]
    args: Mapping[str, Any] | None = None


STATEMENTS = {
    "a clause over the answer of another": Statement(
        "SELECT * FROM (SELECT * FROM range(3) MATCH_RECOGNIZE (ORDER BY id MEASURES "
        "count(*) AS n, FIRST(id) AS f AFTER MATCH SKIP TO NEXT ROW PATTERN (a a))) "
        "MATCH_RECOGNIZE (ORDER BY f MEASURES sum(n) AS total PATTERN (b+))",
        [(4,)],
    ),
    "VALUES": Statement(
        "SELECT * FROM VALUES (1), (2) AS v(x) MATCH_RECOGNIZE (ORDER BY x MEASURES "
        "LAST(x) AS y PATTERN (a+))",
        [(2,)],
    ),
    "an alias inside": Statement(
        "SELECT * FROM t q MATCH_RECOGNIZE (ORDER BY q.id MEASURES LAST(q.p) AS low "
        "PATTERN (a down+) DEFINE down AS q.p < PREV(q.p))",
        [(7,)],
    ),
    "an alias with columns, and no DEFINE": Statement(
        "SELECT m.y FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES FIRST(p) AS a, LAST(p) AS b "
        "PATTERN (a{5})) AS m (x, y)",
        [(12,)],
    ),
    "a join in front": Statement(
        "SELECT * FROM t JOIN (SELECT id AS n, p AS q FROM t) AS u ON u.n = t.id + 1 "
        "MATCH_RECOGNIZE (ORDER BY t.id MEASURES LAST(u.q) AS low PATTERN (a+) "
        "DEFINE a AS u.q < t.p)",
        [(7,)],
    ),
    "LATERAL": Statement(
        "SELECT o.id, m.low FROM t AS o, LATERAL (SELECT * FROM (SELECT * FROM t WHERE t.id > "
        "o.id) MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(p) AS low PATTERN (b+ $) "
        "DEFINE b AS p >= o.p)) AS m ORDER BY o.id",
        [(1, 12), (2, 12), (3, 12), (4, 12)],
    ),
    "a descending order": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY p DESC NULLS FIRST, id "
        "MEASURES collect_list(id) AS ids PATTERN (a+))",
        [([5, 1, 4, 2, 3],)],
    ),
    "no measures": Statement(
        "SELECT id FROM t MATCH_RECOGNIZE (ORDER BY id ALL ROWS PER MATCH PATTERN (up) "
        "DEFINE up AS p > PREV(p))",
        [(4,), (5,)],
    ),
    "measures of measures": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES sum(p) AS total, "
        "total / count(*) AS mean PATTERN (a{4}))",
        [(34, 8.5)],
    ),
    "quantifiers": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES "
        "concat_ws('', collect_list(CLASSIFIER())) AS parts "
        "PATTERN (a{2} b{1,}? c{,1} d{0,2}? e* f?? $))",
        [("aabce",)],
    ),
    "empty parts": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES "
        "concat_ws('', collect_list(CLASSIFIER())) AS parts "
        "PATTERN (() a (b | ) c) DEFINE b AS p > 100)",
        [("ac",), ("ac",)],
    ),
    "a parameter of a quantifier": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(id) AS till PATTERN (a{:n}))",
        [(2,), (4,)],
        {"n": 2},
    ),
    "aggregates of Spark": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES percentile(p, 0.5) AS middle, "
        "max_by(id, p) AS top PATTERN (a+))",
        [(9.0, 5)],
    ),
    "clauses of aggregates": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES count(DISTINCT p % 2) AS kinds, "
        "sum(p) FILTER (WHERE p > 8) AS high, "
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY p) AS middle PATTERN (a+))",
        [(2, 31, 9.0)],
    ),
    "FILTER in DEFINE": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES count(*) AS n PATTERN (a+) "
        "DEFINE a AS count(*) FILTER (WHERE p > 8) <= 1)",
        [(1,), (1,), (3,)],
    ),
    "aggregates that are folded": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES collect_list(id) AS ids "
        "PATTERN (a+) DEFINE a AS percentile(p, 0.5) FILTER (WHERE p < 12) >= 7.5 "
        "AND percentile_cont(0.5) WITHIN GROUP (ORDER BY p) <= 9 "
        "AND count(DISTINCT p) <= 2)",
        [([2, 3],), ([4],)],
    ),
    "IGNORE NULLS": Statement(
        "SELECT * FROM (SELECT id, nullif(p, 12) AS p FROM t) MATCH_RECOGNIZE (ORDER BY id "
        "MEASURES LAST(p) IGNORE NULLS AS l, first(p, true) AS f, "
        "any_value(p IGNORE NULLS) AS any, collect_list(p) RESPECT NULLS AS list "
        "PATTERN (a+) DEFINE a AS LAST(p) IGNORE NULLS < 10)",
        [(9, 8, 8, [8, 7, 9, None])],
    ),
    "the longest match by a parameter": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES count(*) AS n "
        "PATTERN (^ (a | a b)) OPTIONS (use_longest_match = :longest))",
        [(2,)],
        {"longest": True},
    ),
    "functions between rows": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES b.id AS id PATTERN (a x* b) "
        "DEFINE x AS p < a.p, b AS concat(round(p / a.p, 1), '') LIKE '1.%')",
        [(5,)],
    ),
    "a window in OVER": Statement(
        "SELECT id, count(*) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING "
        "PATTERN (a up+) DEFINE up AS p > PREV(p)) AS n FROM t",
        [(1, 0), (2, 0), (3, 2), (4, 0), (5, 0)],
    ),
    "a default of LAG": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(p) AS low PATTERN (low+) "
        "DEFINE low AS lag(p, 1, 100) > p)",
        [(7,)],
    ),
    "clauses in another order": Statement(
        "SELECT * FROM t MATCH_RECOGNIZE (DEFINE down AS p < PREV(p) PATTERN (a down+) "
        "MEASURES LAST(p) AS low ORDER BY id)",
        [(7,)],
    ),
    "MATCH_ROW_NUMBER": Statement(
        "SELECT id, n FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES MATCH_ROW_NUMBER() AS n "
        "ALL ROWS PER MATCH PATTERN (a down+) DEFINE down AS p < PREV(p))",
        [(1, 1), (2, 2), (3, 3)],
    ),
}

# The rows of the two tables, by their cell that names the construct.
SHOWN_BY = {
    "**Input (R010)**: tables, views, subqueries, common table expressions, VALUES, table "
    "functions, another clause": (
        "Snowflake 6", "Trino 6", "a clause over the answer of another", "VALUES",
    ),
    "joins with ON in front of the clause, which takes them all": ("a join in front",),
    "a table name or alias before the clause, in it: `q.price`": ("an alias inside",),
    "columns of the enclosing query: `LATERAL (... MATCH_RECOGNIZE ...)`": ("LATERAL",),
    "an alias and names of columns after it: `) AS m (since, bottom)`": (
        "an alias with columns, and no DEFINE",
    ),
    "**Clauses**: PARTITION BY, ORDER BY with several columns, ASC, DESC, NULLS FIRST, NULLS "
    "LAST": ("Snowflake 8", "Oracle 12", "a descending order"),
    "MEASURES, or none; measures that use earlier ones": ("no measures", "measures of measures"),
    "ONE ROW PER MATCH; ALL ROWS PER MATCH, with SHOW EMPTY MATCHES, OMIT EMPTY MATCHES, WITH "
    "UNMATCHED ROWS": ("Oracle 1", "Oracle 2", "Trino 12", "Snowflake 10", "Snowflake 9"),
    "AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, TO FIRST b, TO LAST b, TO b": (
        "Flink 6", "Flink 8", "Trino 10", "Oracle 1", "Snowflake 7",
    ),
    "SUBSET; a variable without DEFINE; no DEFINE at all": (
        "Oracle 6", "Oracle 5", "an alias with columns, and no DEFINE",
    ),
    "**PATTERN**: concatenation, `\\|`, groups, `()`, `^`, `$`, PERMUTE, `{- -}`": (
        "Trino 8", "BigQuery 11", "Oracle 7", "Oracle 8", "empty parts",
    ),
    "an empty alternative: `(a \\| )`": ("empty parts",),
    "`*` `+` `?` `{n}` `{n,}` `{,m}` `{n,m}`, each also reluctant": ("quantifiers",),
    "a parameter in `{n}`": ("a parameter of a quantifier",),
    "**DEFINE and MEASURES**: PREV, NEXT, FIRST, LAST with offsets, PREV and NEXT of FIRST and "
    "LAST": ("Trino 10",),
    "RUNNING, FINAL (in MEASURES)": ("Oracle 2", "Trino 9"),
    "CLASSIFIER(), CLASSIFIER(u), MATCH_NUMBER()": ("Trino 4", "Trino 6"),
    "`a.price` and `price`, `count(*)`, `count(a.*)`, `sum(u.price)`": (
        "Snowflake 1", "Oracle 6",
    ),
    "subqueries that read nothing of the match": ("Trino 12",),
    "functions between rows of the match in DEFINE": ("functions between rows", "Flink 9"),
    "**Aggregates (R030)**: in MEASURES all of Spark and of the session, functions in Python too": (
        "aggregates of Spark",
    ),
    "DISTINCT, FILTER, WITHIN GROUP in MEASURES": ("clauses of aggregates",),
    "in DEFINE [those that can be folded](row-patterns.md#define-which-rows-a-variable-takes), "
    "with DISTINCT, FILTER and WITHIN GROUP": (
        "Flink 2", "Trino 9", "FILTER in DEFINE", "aggregates that are folded",
    ),
    "`LAST(a.x) IGNORE NULLS`, `first(x, true)`, `any_value(x IGNORE NULLS)`, "
    "`collect_list(x) RESPECT NULLS`": ("IGNORE NULLS",),
    "**Windows (R020)**: `WINDOW w AS (... PATTERN ...)`, `OVER (... PATTERN ...)`": (
        "Trino 2", "a window in OVER",
    ),
    "frames from CURRENT ROW to UNBOUNDED FOLLOWING or n FOLLOWING": (
        "Trino 2", "a window in OVER",
    ),
    "MEASURES of a window, `bottom OVER w`; aggregates and `first_value`, `last_value`, "
    "`nth_value` over the matched rows": ("Trino 2", "Trino 3"),
    "AFTER MATCH SKIP, INITIAL, SEEK, SUBSET in a window": ("Trino 2", "Trino 3"),
    "`LAG(price)`, `LEAD(price, 2)`": ("Snowflake 1", "Snowflake 2"),
    "a default, `LAG(price, 1, 0)`": ("a default of LAG",),
    "a measure without AS": ("Snowflake 3",),
    "`MATCH_SEQUENCE_NUMBER()`": ("Snowflake 2",),
    "`CLASSIFIER` without parentheses": ("Snowflake 2",),
    "expressions in PARTITION BY and ORDER BY": ("Snowflake 11",),
    "R020, `array_agg(CLASSIFIER())`, `max_by`, subqueries": (
        "Trino 2", "Trino 4", "Trino 7", "Trino 12",
    ),
    "`WITHIN INTERVAL '10' MINUTE` after PATTERN": ("Flink 3",),
    "`MATCH_ROWTIME()`, `MATCH_ROWTIME(ts)`": ("Flink 4",),
    "`MATCH_ROW_NUMBER()`": ("MATCH_ROW_NUMBER",),
    "`OPTIONS (use_longest_match = false)`, `= true`, `= :parameter`": (
        "BigQuery 7", "BigQuery 6", "the longest match by a parameter",
    ),
    "clauses in another order": ("clauses in another order",),
}  # fmt: skip


# What is refused, by the same cells.
REFUSED = {
    "... in PATTERN, WITHIN and ORDER BY": (
        "SELECT * FROM t AS o, LATERAL (SELECT * FROM t "
        "MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(p) AS low PATTERN (a{o.id})))"
    ),
    "a recursive common table expression that matches its own rows": (
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT m + 1 AS n FROM r "
        "MATCH_RECOGNIZE (ORDER BY n MEASURES LAST(n) AS m PATTERN (a))) SELECT * FROM r"
    ),
    "INITIAL, SEEK in MATCH_RECOGNIZE": (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(p) AS low SEEK PATTERN (a))"
    ),
    "`{- -}` together with WITH UNMATCHED ROWS": (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id ALL ROWS PER MATCH WITH UNMATCHED ROWS "
        "PATTERN (a {- b -}))"
    ),
    "subqueries that read columns of the match": (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(p) AS low PATTERN (a b) "
        "DEFINE b AS p > (SELECT max(u.p) FROM t AS u WHERE u.id < a.id))"
    ),
    "window functions": (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(p) AS low PATTERN (a) "
        "DEFINE a AS p > lag(p) OVER (ORDER BY id))"
    ),
    "in DEFINE the others: approximations, sketches, aggregates of the session": (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(p) AS low PATTERN (a+) "
        "DEFINE a AS p > approx_percentile(p, 0.5))"
    ),
    "IGNORE NULLS with an offset, or after PREV and NEXT": (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES LAST(p, 1) IGNORE NULLS AS low "
        "PATTERN (a+))"
    ),
    "`^`, `$`, MATCH_NUMBER() in a window": (
        "SELECT count(*) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING "
        "PATTERN (a+ $) DEFINE a AS p > 0) AS n FROM t"
    ),
}


def constructs() -> dict[str, str]:
    """The constructs of docs/sql.md and their states."""
    text = (ROOT / "docs" / "sql.md").read_text()
    section = text.split("\n## Every construct\n")[1].split("\n## ")[0]
    lines = [line[2:-2] for line in section.splitlines() if line.startswith("| ")]
    rows = [re.split(r" ?(?<!\\)\| ?", line) for line in lines]
    # Without the headings.
    return {row[-2].strip(): row[-1].strip() for row in rows if row[-1].strip() != "here"}


def constructs_that_are(state: str) -> set[str]:
    return {name for name, each in constructs().items() if each.startswith(state)}
