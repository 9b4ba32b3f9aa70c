"""Broken statements and SASE texts, and what becomes of them without Spark.

`statements()` and `sase_texts()` cut, double, swap and replace tokens of valid texts;
`answer_to_statement` and `answer_to_sase` take the whole way of the driver, with stand-ins for
`spark.sql` and Spark's types: reading, parameters, pushdown, options, DEFINE and MEASURES.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError, PatternError
from spark_cep.events.compile import compile_pattern
from spark_cep.events.measures import compile_measures
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.options import check_options, check_row_options
from spark_cep.row_patterns import RowPattern
from spark_cep.rows.compile import compile_row_pattern
from spark_cep.sql.composer import QueryComposer, SessionFunctions, SparkQuery, match_clauses
from spark_cep.sql.kinds import (
    check_not_permanent,
    check_single_statement,
    find_explain,
    read_temporary_view,
)
from spark_cep.sql.location import find_clauses
from spark_cep.sql.sase.query import sase
from spark_cep.sql.statement import Statement, UnterminatedTextError
from spark_cep.sql.window_query import find_window_selects
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Type
from tests.compiling import FakeShipment
from tests.fake_typer import LocalTyper
from tests.sql.recorded import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.pattern import Pattern
    from spark_cep.rows.windows import WindowRequest

COLUMNS = {
    "symbol": Type("string"), "venue": Type("string"), "kind": Type("string"), "n": BIGINT,
    "ts": Type("timestamp"), "day": Type("date"), "price": DOUBLE, "qty": Type("int", 32),
    "amount": Type("decimal", precision=10, scale=2), "flag": BOOL, "addr": Type("other"),
    "tags": Type("other"), "show": BIGINT, "b": BIGINT,
}  # fmt: skip
INFOS = [ColumnInfo(name, type_) for name, type_ in COLUMNS.items()]
ARGS = [1, "x", 2.5]

# ---- valid texts ---------------------------------------------------------------------------------

_UP = "up AS price > PREV(price)"
_DOWN = "down AS price < PREV(price)"


def _row(body: str) -> str:
    return f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts {body}) AS m"


def _measured(*measures: str) -> str:
    listed = ", ".join(f"{text} AS m{at}" for at, text in enumerate(measures))
    return _row(f"MEASURES {listed} PATTERN (a b+ c?) DEFINE b AS price > a.price, c AS flag")


def _defined(condition: str) -> str:
    return _row(f"MEASURES LAST(c.n) AS m PATTERN (a b+ c) DEFINE b AS flag, c AS {condition}")


STATEMENTS = (
    _row(f"MEASURES FIRST(down.ts) AS since PATTERN (strt down+ up+) DEFINE {_DOWN}, {_UP}"),
    _row(f"ALL ROWS PER MATCH SHOW EMPTY MATCHES PATTERN (strt down{{1,3}} up) DEFINE {_DOWN}"),
    _row("ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (a*) DEFINE a AS flag"),
    _row("ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (a b) DEFINE b AS n > a.n"),
    _row(f"AFTER MATCH SKIP PAST LAST ROW PATTERN (^ strt up{{2,}}? $) DEFINE {_UP}"),
    _row(f"AFTER MATCH SKIP TO NEXT ROW PATTERN (strt up) DEFINE {_UP}"),
    _row("AFTER MATCH SKIP TO FIRST b PATTERN (a b) DEFINE b AS price >= 1.5e3"),
    _row("AFTER MATCH SKIP TO LAST u PATTERN (a b) SUBSET u = (a, b) DEFINE b AS price <> 1"),
    _row("MEASURES count(*) AS n PATTERN (PERMUTE(a, b, c) | {- d -} ()) DEFINE a AS price < 3"),
    _row("MEASURES count(u.*) AS k PATTERN ((a | b)+ c) SUBSET u = (a, b) DEFINE a AS flag"),
    _row("MEASURES n AS k PATTERN (a b{,4}) WITHIN INTERVAL '10' MINUTES DEFINE b AS price > 1"),
    _row("MEASURES a.`n` AS `the k` PATTERN (a `b c`+) DEFINE `b c` AS `b c`.price > 1"),
    _row("MEASURES CLASSIFIER() AS c, MATCH_NUMBER() AS k ALL ROWS PER MATCH PATTERN (a b)"),
    _measured("LAST(b.price, 1)", "FIRST(b.price)", "PREV(LAST(a.price, 1), 2)", "NEXT(a.n)"),
    _measured("RUNNING LAST(b.price)", "FINAL sum(b.qty)", "FINAL count(*)", "count(b.*)"),
    _measured("avg(DISTINCT b.price)", "min(b.day)", "max(price)", "count(DISTINCT kind)"),
    _measured("collect_list(b.n)", "listagg(b.kind, ',')", "max_by(b.n, b.price)", "stddev(b.n)"),
    _measured("a.kind || '-' || b.kind", "upper(a.kind)", "round(avg(b.price), 2)", "addr.city"),
    _measured("CASE WHEN a.n > 1 THEN 'x' ELSE b.kind END", "CAST(a.n AS STRING)", "a.tags[0]"),
    _measured("transform(collect_list(b.n), x -> x + 1)", "nvl(a.n, 0)", "last(b.addr.city)"),
    _measured("EXTRACT(YEAR FROM a.ts)", "trim(BOTH ' ' FROM a.kind)", "substring(a.kind, 1, 2)"),
    _measured("timestampdiff(MINUTE, a.ts, LAST(b.ts))", "datediff(c.day, a.day)", "c.n % 2"),
    _measured("count(b)", "count(n)", "bool_or(b.flag)", "count_if(b.flag)", "show", "a.show"),
    _defined("price > 1 AND NOT flag OR kind IS NOT NULL"),
    _defined("price BETWEEN a.price AND a.price * 2 AND n IN (1, 2, a.n)"),
    _defined("kind LIKE 'x%' AND kind RLIKE '^[a-z]+$'"),
    _defined("abs(price - a.price) > 0.5 AND coalesce(a.n, n) = 3"),
    _defined("ts - a.ts < INTERVAL 5 MINUTES AND day > DATE '2024-01-01'"),
    _defined("timestampdiff(SECOND, a.ts, ts) < 5 AND datediff(day, a.day) < 30"),
    _defined("avg(b.price) < price AND count(*) < 9 AND sum(b.qty) > LAST(b.qty, 1)"),
    _defined("CASE WHEN n > 1 THEN price ELSE a.price END < greatest(price, LAST(b.price))"),
    _defined("CLASSIFIER() = 'c' AND PREV(CLASSIFIER()) <> 'c' AND MATCH_NUMBER() < 3"),
    _defined("PREV(price, 2) < NEXT(price) AND FIRST(n) <=> 1 AND c.n IS NOT NULL"),
    _defined("amount * 2 < a.amount + 1.5 AND qty DIV 2 = a.qty % 3 AND -n < +a.n"),
    _defined("exists(tags, t -> t = 'x') AND addr.city = 'y' AND a.addr.city <> ''"),
    _defined("if(flag, n, a.n) > nullif(n, 0)"),
    _defined("price / a.price > 1 AND upper(kind) = lower(a.kind) AND power(n, 2) > 1"),
    _measured("sum(b.qty) FILTER (WHERE b.n > 3)", "count(*) FILTER (WHERE NOT flag)"),
    _measured("listagg(b.kind, '-') WITHIN GROUP (ORDER BY b.n DESC)", "to_json(struct(a.n, b.n))"),
    _defined("sum(b.qty) FILTER (WHERE b.n > 3) > 1 AND count(DISTINCT b.kind) < 4"),
    _defined("LAG(price, 2) < LEAD(price) AND MATCH_SEQUENCE_NUMBER() < 3"),
    _defined("round(price / a.price, 2) > 1.5 AND substring(a.kind, 1, 2) = left(kind, 2)"),
    _row("MEASURES MATCH_ROWTIME() AS r, MATCH_ROW_NUMBER() AS k, FIRST(n) f, f * 2 AS g "
         "PATTERN (a b+) DEFINE b AS n > 1 OPTIONS (use_longest_match = true)"),
    "SELECT * FROM ticks q MATCH_RECOGNIZE (PARTITION BY date(ts) AS on_day, upper(q.kind) AS big "
    "ORDER BY date_trunc('hour', q.ts) DESC, q.n + 1 MEASURES q.price AS p PATTERN (a b{?,5} | ) "
    "DEFINE b AS q.kind > ?)m",
    "SELECT * FROM ticks MATCH_RECOGNIZE (DEFINE b AS n > 1 SUBSET u = (a, b) PATTERN (a b{2,}) "
    "AFTER MATCH SKIP TO u ALL ROWS PER MATCH MEASURES LAST(u.n) AS k ORDER BY ts PARTITION BY n)",
    "SELECT * FROM ticks JOIN other ON ticks.n = other.n MATCH_RECOGNIZE (ORDER BY ts MEASURES "
    "a.price AS p PATTERN (a b) DEFINE b AS price > a.price) AS m JOIN t USING (n)",
    "SELECT p OVER w, avg(price) OVER w + 1, last_value(price) IGNORE NULLS OVER w, rank() OVER v "
    "FROM ticks t WINDOW v AS (PARTITION BY symbol ORDER BY ts), w AS (v MEASURES LAST(b.price) AS "
    "p, CLASSIFIER() AS c ROWS BETWEEN CURRENT ROW AND n + 1 FOLLOWING AFTER MATCH SKIP TO LAST b "
    "INITIAL PATTERN (a {- b+ -} (c | PERMUTE(d, e))) SUBSET u = (a, b) DEFINE b AS n > a.n)",
    "SELECT symbol, nth_value(price, 2) OVER (PARTITION BY symbol ORDER BY ts ROWS BETWEEN CURRENT "
    "ROW AND 3 FOLLOWING PATTERN (a b+) DEFINE b AS sum(b.qty) > 3) FROM (SELECT * FROM ticks) s",
    "SELECT * FROM VALUES (1, true), (2, false) t(n, flag) MATCH_RECOGNIZE (ORDER BY n DESC NULLS "
    "LAST, flag MEASURES count(flag) AS m PATTERN ((flag b)+) DEFINE b AS NOT flag)",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol, ticks.venue ORDER BY ts MEASURES "
    "MATCH_NUMBER() AS k PATTERN (a b) DEFINE b AS n > ?) AS m (x, y) WHERE m.x = 'A' AND k > ?",
    "WITH r AS (SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(n) AS n PATTERN "
    "(a+) DEFINE a AS flag)) SELECT r.n, t.price FROM r JOIN ticks t ON t.n = r.n LIMIT 3",
    "SELECT * FROM (SELECT * FROM ticks WHERE n > 1) MATCH_RECOGNIZE (ORDER BY ts MEASURES 1 AS k "
    "PATTERN (a)) CROSS JOIN ticks MATCH_RECOGNIZE (ORDER BY n MEASURES 2 AS j PATTERN (b)) x",
    "CREATE OR REPLACE TEMPORARY VIEW v (a COMMENT 'x', b) AS SELECT * FROM ticks MATCH_RECOGNIZE "
    "(ORDER BY ts MEASURES FIRST(n) AS f, LAST(n) AS l PATTERN (a b*) DEFINE b AS flag)",
    "EXPLAIN PATTERN SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (a b) DEFINE b AS "
    "n > 1) /*+ backtracking_steps(1000), seconds(600) */",
    "INSERT INTO t SELECT * FROM ticks TABLESAMPLE (5 ROWS) AS s MATCH_RECOGNIZE (ORDER BY s.ts "
    "MEASURES count(*) AS c PATTERN (show call+) DEFINE call AS show.price < call.show)",
    "SELECT sum(k) OVER (PARTITION BY symbol ORDER BY k) FROM ticks MATCH_RECOGNIZE (PARTITION BY "
    "symbol ORDER BY ts MEASURES count(*) AS k PATTERN (a if? else*) DEFINE if AS n > 1) -- end",
    "SELECT n, k OVER w, sum(price) OVER w FROM ticks WHERE n > 1 WINDOW w AS (PARTITION BY symbol "
    "ORDER BY ts MEASURES LAST(price) AS k ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING AFTER "
    "MATCH SKIP TO NEXT ROW SEEK PATTERN (a b+) DEFINE b AS price > PREV(price)) ORDER BY n",
    "SELECT last_value(price) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND 5 FOLLOWING PATTERN "
    "(a b+) DEFINE b AS price > a.price) + 1 AS top, count(*) OVER () AS c FROM ticks",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY venue ORDER BY ts MEASURES c.price - "
    "a.price AS gain PATTERN SEQ(a, NOT x, b+, c) WITHIN INTERVAL '10' MINUTES SKIP TILL ANY MATCH "
    "DEFINE a AS price < 6, x AS price > 14.9, b AS b.price > a.price, c AS n % 2 = 0)",
    "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN SEQ(a, AND(b, c), OR(d, e)?) WITHIN "
    "2000 EVENTS SKIP TILL NEXT MATCH CONSUME DEFINE b AS kind = 'x', c AS c.price < a.price)",
    "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES count(b) AS n, sum(b.qty) AS s, "
    "first(b.price) AS f, match_start AS x PATTERN SEQ(a, b{2,4}, !c, d) WITHIN INTERVAL 1 HOUR "
    "STRICT DEFINE b AS b.price > prev(b.price), d AS d.n IN (a.n, 3)) /*+ plan('zstream') */",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts ALL ROWS PER MATCH "
    "PATTERN SEQ(a, b) WITHIN INTERVAL '10' DAYS DEFINE b AS b.kind LIKE a.kind) "
    "/*+ shed(keep => 0.3) */",
)  # fmt: skip

SASE_TEXTS = (
    "PATTERN SEQ(Stock a, Stock b) WHERE a.symbol = b.symbol AND a.price < b.price WITHIN 4 hours",
    "PATTERN SEQ(Stock+ a[], Stock b) WHERE [symbol] AND a[1].qty > 1000 AND a[i].price > "
    "a[i-1].price AND b.qty < 0.8 * a[a.LEN].qty WITHIN 1 hour",
    "PATTERN SEQ(A a, ~(B b), C c) WHERE skip_till_any_match(a, b, c) { a.n = c.n and b.n = a.n } "
    "WITHIN 10 minutes",
    "PATTERN SEQ(A x, OR(B y, C z)) WHERE x.price ∈ {1, 2, 3} ∧ (¬(x.n = 2) ∨ x.qty ≤ 5) WITHIN "  # noqa: RUF001
    "100 hours",
    "PATTERN SEQ(A a, B b[]) WHERE skip_till_next_match(a, b[]) { b[i].price > b[i-1].price } "
    "WITHIN 12 hours",
    "PATTERN AND(A a, OR(B b, C c)) WHERE a.kind LIKE 'x%' AND ABS(a.price - b.price) < 1.5e2 "
    "WITHIN 30 seconds",
)  # fmt: skip

# ---- broken texts --------------------------------------------------------------------------------

_HIDDEN = re.compile(r"__cep_\w+")
_TOKEN = re.compile(r"\s+|\w+|'[^']*'|`[^`]*`|[<>=!|]+|.", re.S)
_STRANGE = (
    "'", '"', "`", "/*", "*/", "--", "\\", ";", "?", ":p", "{", "}", "{-", "-}", "[", "]", "$",
    "^", "@", "#", "ß", "数", "😀", "\u00a0", "\u2028", "\x00", "\uff11", "é", "İ", "9" * 400,
    "9" * 5000, "²", "٣", "1e999", "1.", ".5", "0x1F", "1BD", "5L", "-0", "''", "``", '""', "(",
    ")", ",", ".", "..", "*", "()", "->", "=>", "::", ":", "||", "|", "NULL", "TRUE", "SELECT",
    "FROM", "WHERE", "ORDER BY", "DISTINCT", "FILTER", "OVER ()", "WITHIN GROUP", "IGNORE NULLS",
    "AS", "CASE", "WHEN", "THEN", "ELSE", "END", "NOT", "IN", "IS", "BETWEEN", "LIKE", "AND", "OR",
    "INTERVAL", "DATE", "CAST(", "if", "show", "call", "explain", "execute", "any", "all",
    "values", "drop", "insert", "exists(", "remote('x', n)", "CLASSIFIER()", "MATCH_NUMBER()",
    "PREV(", "FIRST(", "count(", "LATERAL", "MATCH_RECOGNIZE (", "PATTERN", "DEFINE", "MEASURES",
    "SUBSET", "AFTER MATCH", "PERMUTE(", "SEQ(", "current_date", "x -> x", "explode(tags)",
    "rand()", "lag(n)", "a.b.c.d.e", "array(1, 2)", "struct(*)", "b.*", "(" * 60, ")" * 60,
    "NOT " * 50, "- " * 50, "a.", "/*+ x(1) */", "\n", "{{", "{%", "{#", "%}",
)  # fmt: skip


def _tokens(text: str) -> list[str]:
    return [token for token in _TOKEN.findall(text) if token]


def _broken(texts: Sequence[str], seed: int) -> Iterator[str]:
    chosen = random.Random(seed)
    split = [_tokens(text) for text in texts]
    pool = [token for tokens in split for token in tokens if not token.isspace()]
    while True:
        tokens = list(chosen.choice(split))
        for _ in range(chosen.choice((1, 1, 1, 2, 2, 3, 5))):
            at = chosen.randrange(len(tokens))
            kind = chosen.randrange(8)
            if kind == 0:
                del tokens[at]
            elif kind == 1:
                tokens.insert(at, tokens[at])
            elif kind == 2:
                other = chosen.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            elif kind == 3:
                tokens[at] = chosen.choice(pool)
            elif kind == 4:
                tokens.insert(at, f" {chosen.choice(pool)} ")
            elif kind == 5:
                tokens[at] = chosen.choice(_STRANGE)
            elif kind == 6:
                tokens.insert(at, f" {chosen.choice(_STRANGE)} ")
            elif len(tokens) > 1:
                stop = min(len(tokens), at + chosen.randrange(1, 12))
                del tokens[at:stop]
            tokens = tokens or [" "]
        text = "".join(tokens)
        yield text if chosen.random() > 0.1 else text[: chosen.randrange(len(text) + 1)]


def statements(seed: int = 0) -> Iterator[str]:
    return _broken(STATEMENTS, seed)


def sase_texts(seed: int = 0) -> Iterator[str]:
    return _broken(SASE_TEXTS, seed)


# ---- answers -------------------------------------------------------------------------------------


class _Typer(LocalTyper):
    """What it does not know is a number; over a match every expression is BOOLEAN."""

    def of_row(self, expressions: Sequence[Any]) -> list[Type | str]:
        found = super().of_row(expressions)
        return [DOUBLE if "known here" in str(each) else each for each in found]

    def of_match(self, expressions: Any, variables: Any) -> list[Type | str]:
        return [BOOL for _ in expressions]


@dataclass(frozen=True)
class _Input:
    name: str
    schema: None = None
    columns: tuple[str, ...] = ()

    def toDF(self, *names: str) -> _Input:
        return replace(self, columns=names)


def _input(query: SparkQuery) -> _Input:
    hidden = dict.fromkeys(_HIDDEN.findall(query.text))
    items = [(each, "n") if each.startswith("__cep_i") else (each,) for each in hidden]
    return _Input("input", columns=(*COLUMNS, *(name for item in items for name in item)))


def answer_to_statement(text: str) -> str:
    """ "prepared", "left to Spark" or the error's message; raises what must not leave `cep.sql`."""
    try:
        return _prepare(text)
    except UnterminatedTextError:
        return "left to Spark"
    except CepError as error:
        _check_places(error, text)
        return error.message


def answer_to_sase(text: str) -> str:
    try:
        _match(_Input("rows"), sase(text, "kind"), order_by="ts")
    except CepError as error:
        return error.message
    return "prepared"


def _prepare(text: str) -> str:
    statement = Statement(text)
    found = find_clauses(statement)
    selects = find_window_selects(statement)
    if not found and not selects:
        find_explain(statement)
        return "left to Spark"
    if read_temporary_view(statement) is None:
        check_not_permanent(statement)
    check_single_statement(statement)
    composer = QueryComposer(statement, ARGS)
    session = SessionFunctions(_input, _match, lambda rows, *_: rows, _match_window)
    match_clauses(composer, found, session, selects)
    assert composer.query([(0, len(text))]).frames
    return "prepared"


def _match(
    df: Any, pattern: Any, *, order_by: Any = None, partition_by: Any = None, **options: Any
) -> Rows:
    options.pop("unused", None)
    window = options.pop("window", None)
    options = {"rows": "one", "measures": None, "plan": "auto", "limits": None} | options
    if isinstance(pattern, RowPattern):
        rows = check_row_options(statistics=None, **{"after_match": None, **options})
        compile_row_pattern(
            pattern, INFOS, order_by=order_by, partition_by=partition_by, typer=_Typer(COLUMNS),
            shipment=FakeShipment(), time_zone="America/New_York", measures=rows.measures,
            rows="each row" if window else rows.rows, after_match=rows.after_match, window=window,
        )  # fmt: skip
    else:
        _match_events(pattern, order_by, partition_by, options)
    return Rows("matches")


def _match_window(df: Any, pattern: Any, *, window: WindowRequest, **options: Any) -> Rows:
    return _match(df, pattern, window=window, **options)


def _match_events(pattern: Pattern, order_by: Any, partition_by: Any, options: Any) -> None:
    checked = check_options(**{"statistics": None, "adapt": "invariants", **options})
    compiled = compile_pattern(
        pattern, INFOS, order_by=order_by, partition_by=partition_by, typer=_Typer(COLUMNS),
        shipment=FakeShipment(), time_zone="America/New_York",
    )  # fmt: skip
    if checked.measures:
        compile_measures(dict(checked.measures), compiled, INFOS, typer=_Typer(COLUMNS))


def _check_places(error: CepError, text: str) -> None:
    """Every problem of a PatternError has a place inside the statement, and draws it."""
    if not isinstance(error, PatternError):
        return
    problems: Any = error.details["problems"]
    assert problems
    lines = text.split("\n")
    for problem in problems:
        assert problem["text"] == text, problem
        assert 1 <= problem["line"] <= len(lines), problem
        assert 1 <= problem["column"] <= len(lines[problem["line"] - 1]) + 1, problem
