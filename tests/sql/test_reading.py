"""What is read from a clause, and what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest

from spark_cep import all_of, any_of, event, no, seq
from spark_cep.errors import PatternError
from spark_cep.row_patterns import RowPattern
from spark_cep.shed import Shed
from spark_cep.udfs.program import Limits
from tests.sql.recorded import rewritten


def call(inside: str, *, behind: str = "", args: Any = None) -> dict[str, Any]:
    (only,) = rewritten(f"SELECT * FROM ticks AS t MATCH_RECOGNIZE ({inside}){behind}", args).calls
    return only


def test_every_part_of_a_clause_is_handed_on() -> None:
    found = call(
        """PARTITION BY t.symbol, `the venue` ORDER BY ts, t.id DESC NULLS LAST
        MEASURES LAST(down.price) AS bottom, count(*) AS `how many`
        ALL ROWS PER MATCH OMIT EMPTY MATCHES
        AFTER MATCH SKIP TO LAST up
        PATTERN (strt down+ up{2,3}?) WITHIN INTERVAL '10' MINUTES
        SUBSET u = (down, up)
        DEFINE down AS price < PREV(price), /* ) */ up AS price > PREV(price) -- up
        """
    )
    pattern = found["pattern"]
    assert isinstance(pattern, RowPattern)
    assert pattern.text == "strt down+ up{2,3}?"
    assert pattern.variables.subsets == (("u", frozenset({1, 2})),)
    assert pattern.define == (("down", "price < PREV(price)"), ("up", "price > PREV(price)"))
    assert pattern.window is not None
    assert pattern.window.duration == "INTERVAL '10' MINUTES"
    assert found["partition_by"] == ["symbol", "the venue"]
    assert found["order_by"] == ["ts", "id DESC NULLS LAST"]
    assert found["measures"] == {"bottom": "LAST(down.price)", "how many": "count(*)"}
    assert found["rows"] == "all omit empty"
    assert found["after_match"] == "SKIP TO LAST up"


@pytest.mark.parametrize("name", ["c.s.ticks.x", "s.ticks.x", "ticks.x", "C.S.`ticks`.x"])
def test_keys_may_have_the_whole_name_of_the_table_before_them(name: str) -> None:
    text = f"PARTITION BY {name} ORDER BY {name} DESC, abs({name}) PATTERN (a)"
    (found,) = rewritten(f"SELECT * FROM c.s.ticks MATCH_RECOGNIZE ({text})").calls
    assert found["partition_by"] == ["x"]
    assert found["order_by"] == ["x DESC", "abs(x)"]


def test_a_struct_column_with_the_name_of_its_table() -> None:
    text = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY t.t.x PATTERN (a))"
    (found,) = rewritten(text).calls
    assert found["order_by"] == ["t.x"]


@pytest.mark.parametrize("call", ["PREV(x)", "x + LAST(y)", "CLASSIFIER()", "MATCH_NUMBER()"])
def test_partitions_know_nothing_of_matches(call: str) -> None:
    with pytest.raises(PatternError, match="before they are matched"):
        rewritten(f"SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY {call} AS k PATTERN (a))")


def test_what_is_not_said_is_left_to_match_pattern() -> None:
    found = call("PATTERN (a)")
    assert found["rows"] == "one"
    for name in ("partition_by", "order_by", "measures", "after_match"):
        assert found[name] is None


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("ONE ROW PER MATCH", "one"),
        ("ALL ROWS PER MATCH", "all"),
        ("all rows per match show empty matches", "all"),
        ("ALL ROWS PER MATCH WITH UNMATCHED ROWS", "all with unmatched"),
    ],
)
def test_rows_per_match(words: str, rows: str) -> None:
    assert call(f"{words} PATTERN (a)")["rows"] == rows


def test_words_of_the_grammar_may_be_names() -> None:
    found = call(
        "PARTITION BY partition ORDER BY measures, order MEASURES pattern AS pattern, define AS "
        "define, pattern(x) + one AS one, subset AS subset, t.strict AS strict ONE ROW PER MATCH "
        "PATTERN (define pattern) DEFINE define AS define > 1, pattern AS pattern(2) > strict"
    )
    assert list(found["measures"]) == ["pattern", "define", "one", "subset", "strict"]
    assert found["measures"]["one"] == "pattern(x) + one"
    assert found["order_by"] == ["measures", "order"]
    assert [name for name, _ in found["pattern"].define] == ["define", "pattern"]


def test_names_may_stand_in_quotes() -> None:
    pattern = call('PATTERN (`a b` "!") SUBSET "u v" = ("!", `a b`) DEFINE "!" AS TRUE')["pattern"]
    assert pattern.variables.names == ("a b", "!")
    assert pattern.variables.subsets == (("u v", frozenset({0, 1})),)


def test_a_pattern_of_events() -> None:
    found = call(
        "PATTERN SEQ(a, NOT x, b+, OR(c, AND(d, !e))?, SEQ(f, `g`){2,4}) WITHIN 2000 EVENTS "
        "SKIP TILL NEXT MATCH CONSUME DEFINE A AS k = 'A', x AS k = 'X' AND x.p > a.p, g AS k = 1"
    )
    parts = (
        event("a", "k = 'A'"),
        no(event("x", "k = 'X' AND x.p > a.p")),
        "b+",
        any_of("c", all_of("d", "!e")).optional(),
        seq("f", event("g", "k = 1")).times("{2,4}"),
    )
    wanted = seq(*parts).within(events=2000).strategy("skip till next match")
    assert found["pattern"] == wanted.consumption("consume")


def test_a_not_of_a_group_of_events() -> None:
    found = call(
        "PATTERN SEQ(a, NOT SEQ(x, OR(y, z)), b, !AND(v, w), c) "
        "DEFINE y AS k = 'Y' AND y.p > x.p, a AS k = 'A'"
    )
    no_sequence = no(seq("x", any_of(event("y", "k = 'Y' AND y.p > x.p"), "z")))
    wanted = seq(event("a", "k = 'A'"), no_sequence, "b", no(all_of("v", "w")), "c")
    assert found["pattern"] == wanted


@pytest.mark.parametrize(
    ("words", "strategy", "consumption"),
    [
        ("", None, None),
        ("SKIP TILL ANY MATCH", "any", None),
        ("skip till next match reuse", "next", "reuse"),
        ("STRICT", "strict", None),
        ("CONSUME", None, "consume"),
    ],
)
def test_selection_of_events(words: str, strategy: str | None, consumption: str | None) -> None:
    pattern = call(f"PATTERN a+ {words} DEFINE a AS TRUE")["pattern"]
    assert pattern.selection == strategy
    assert pattern.consuming == consumption


@pytest.mark.parametrize(
    ("within", "duration"),
    [
        ("INTERVAL '10' MINUTES", "INTERVAL '10' MINUTES"),
        ("INTERVAL 10 MINUTES", "INTERVAL 10 MINUTES"),
        ("INTERVAL '1 02:30' DAY TO MINUTE", "1 DAY 02 HOUR 30 MINUTE"),
        ("'10 minutes'", "'10 minutes'"),
        ("10", 10),
        (":w", 2.5),
        ("INTERVAL :n MINUTES", "INTERVAL 5 MINUTES"),
    ],
)
def test_windows(within: str, duration: object) -> None:
    pattern = call(f"PATTERN SEQ(a, b) WITHIN {within}", args={"w": 2.5, "n": 5})["pattern"]
    assert pattern.window.duration == duration


def test_hints_are_options() -> None:
    behind = " /*+ plan('zstream'), planner('dp'), optimize('latency'), adapt('off') matches(10) */"
    found = call("PATTERN SEQ(a, b)", behind=behind)
    assert (found["plan"], found["planner"]) == ("zstream", "dp")
    assert found["optimize"] == "latency"
    assert found["adapt"] == "off"
    assert found["limits"] == Limits(matches=10)


def test_limits_on_work_are_hints() -> None:
    found = call("PATTERN SEQ(a, b)", behind=" /*+ seconds(90), pairs(1000) */")
    assert found["limits"] == Limits(seconds=90, pairs=1000)
    found = call("PATTERN SEQ(a, b)", behind=" /*+ seconds(0.5) */")
    assert found["limits"] == Limits(seconds=0.5)


def test_shedding_is_a_hint_with_named_arguments() -> None:
    behind = " /*+ shed(keep => 0.3, POLICY => 'random', seed => 7), plan('tree') */"
    found = call("PATTERN SEQ(a, b)", behind=behind)
    assert found["shed"] == Shed(keep=0.3, policy="random", seed=7)
    assert found["plan"] == "tree"
    found = call("PATTERN SEQ(a, b)", behind=" /*+ shed(latency => '1.5 seconds') */")
    assert found["shed"] == Shed(latency="1.5 seconds")


@pytest.mark.parametrize(
    ("clause", "message", "marked"),
    [
        ("MATCH_RECOGNIZE ()", "has no PATTERN", "MATCH_RECOGNIZE"),
        ("MATCH_RECOGNIZE (ORDER BY a, PATTERN (a))", "unexpected comma", ","),
        ("MATCH_RECOGNIZE (foo PATTERN (a))", "foo was not expected here", "foo"),
        ("MATCH_RECOGNIZE (PATTERN (a) PATTERN (b))", "PATTERN is given twice", "PATTERN (b"),
        ("MATCH_RECOGNIZE (PATTERN (a)+)", r"\+ was not expected", "+)"),
        ("MATCH_RECOGNIZE (MEASURES x PATTERN (a))", "a measure needs a name", "x PATTERN"),
        (
            "MATCH_RECOGNIZE (MEASURES x AS y, z AS Y PATTERN (a))",
            "names Y twice",
            "Y PAT",
        ),
        ("MATCH_RECOGNIZE (MEASURES x AS y,, z AS y PATTERN (a))", "an item is missing", ", z"),
        ("MATCH_RECOGNIZE (PARTITION BY 1 PATTERN (a))", "not a literal", "1"),
        ("MATCH_RECOGNIZE (PARTITION BY (a, b) PATTERN (a))", "PARTITION BY a, b", "(a, b)"),
        (
            "MATCH_RECOGNIZE (ALL ROWS PER MATCH SHOW PATTERN (a))",
            "did you mean ALL ROWS PER MATCH SHOW EMPTY MATCHES",
            "ALL",
        ),
        ("MATCH_RECOGNIZE (AFTER MATCH PATTERN (a))", "does not say where to skip", "AFTER"),
        ("MATCH_RECOGNIZE (ONE ROW PER MATCHES PATTERN (a))", "mean ONE ROW PER MATCH", "MATCHES"),
        (
            "MATCH_RECOGNIZE (MEASURES x AS y ALL ROWS PATTERN (a))",
            "is not a choice of rows",
            "ALL",
        ),
        ("MATCH_RECOGNIZE (ORDER BY x, MEASURES y AS z PATTERN (a))", "unexpected comma", ", MEAS"),
        (
            "MATCH_RECOGNIZE (ORDER BY x, ALL ROWS PER MATCH PATTERN (a))",
            "unexpected comma",
            ", ALL",
        ),
        ("MATCH_RECOGNIZE (PATTERN ())", "the pattern is empty", "()"),
        ("MATCH_RECOGNIZE (PATTERN (a) DEFINES a AS x)", "did you mean DEFINE", "DEFINES"),
        ("MATCH_RECOGNIZE (PATTERN (a) foo a AS x)", "hint: it may be followed by", "foo"),
        ("MATCH_RECOGNIZE (MEASURES f(x AS y PATTERN (a))", "bracket is not closed", "(x"),
        (
            "MATCH_RECOGNIZE (AFTER MATCH SKIP TO FIRST z PATTERN (a) SUBSET u = a)",
            "expected a subset",
            "u",
        ),
        ("MATCH_RECOGNIZE (PATTERN (a || b))", "unexpected", "| b"),
        ("MATCH_RECOGNIZE (PATTERN (a) WITHIN)", "WITHIN has no duration", "WITHIN"),
        ("MATCH_RECOGNIZE (PATTERN (a) WITHIN 10 EVENTS)", "applies to event patterns only", "10"),
        ("MATCH_RECOGNIZE (PATTERN (a) STRICT)", "STRICT applies to event patterns", "STRICT"),
        ("MATCH_RECOGNIZE (PATTERN (a) DEFINE b AS TRUE)", "DEFINE defines b", "b AS"),
        ("MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS x, a AS y)", "DEFINE names a twice", "a AS y"),
        ("MATCH_RECOGNIZE (PATTERN (a) DEFINE a x)", "expected a definition", "a x"),
        ("MATCH_RECOGNIZE (PATTERN SEQ(a, b+?))", r"\? was not expected", "?"),
        ("MATCH_RECOGNIZE (PATTERN SEQ(a, b DEFINE a AS x)", "is not closed", "(a, b"),
        ("MATCH_RECOGNIZE (PATTERN SEQ(a, ))", r"\) was not expected", "))"),
        ("MATCH_RECOGNIZE (PATTERN SEQ(a, b{4,2}))", "larger than its upper bound", "{4"),
        ("MATCH_RECOGNIZE (PATTERN SEQ(a, f(b)))", "f was not expected", "f(b"),
        ("MATCH_RECOGNIZE (PATTERN SEQ(a, b) DEFINE q AS TRUE)", "DEFINE names q", "q"),
        ("MATCH_RECOGNIZE (PATTERN SEQ(a, b) SUBSET u = (a, b))", "SUBSET applies to row", "u"),
        (
            "MATCH_RECOGNIZE (AFTER MATCH SKIP TO NEXT ROW PATTERN SEQ(a, b))",
            "AFTER MATCH SKIP applies to row patterns only",
            "SKIP",
        ),
        ("MATCH_RECOGNIZE (PATTERN SEQ(a, b) SKIP TILL LAST)", "is not a strategy", "SKIP"),
        ("MATCH_RECOGNIZE (PATTERN (a)) /*+ plann('x') */", "is not a hint", "plann"),
        ("MATCH_RECOGNIZE (PATTERN (a)) /*+ plan(zstream) */", "plan takes a string", "plan"),
        (
            "MATCH_RECOGNIZE (PATTERN (a)) /*+ seconds(-5) */",
            "seconds takes a number above 0",
            "seconds",
        ),
        (
            "MATCH_RECOGNIZE (PATTERN (a)) /*+ backtracking_steps(1.5) */",
            "backtracking_steps takes a whole number above 0",
            "backtracking_steps",
        ),
        ("MATCH_RECOGNIZE (PATTERN (a)) /*+ second(5) */", "did you mean seconds", "second"),
        ("MATCH_RECOGNIZE (MEASURES * PATTERN (a))", "not a star", "*"),
        ("MATCH_RECOGNIZE (PATTERN (a) DEFINE a AS x > @low)", "@low is not a parameter", "@low"),
        ("MATCH_RECOGNIZE (PATTERN (a+ DEFINE a AS x > 1)", r"add \)", "(a+"),
        ("MATCH_RECOGNIZE (PATTERN (a{0,1000000}))", "600,000 instructions", "{0,1000000}"),
        ("MATCH_RECOGNIZE (PATTERN (a)) /*+ shed(0.3) */", "arguments of shed cannot be", "shed"),
        ("MATCH_RECOGNIZE (PATTERN (a)) /*+ shed(kep => 0.3) */", "cannot be read", "shed"),
        ("MATCH_RECOGNIZE (PATTERN (a)) /*+ shed(keep => 3) */", "keep is 3", "shed"),
        ("MATCH_RECOGNIZE (PATTERN (a)) /*+ shed(seed => 3) */", "shed takes one of", "shed"),
        ("MATCH_RECOGNIZE (PATTERN (a)) /*+ shed(keep => 0.3 */", "cannot be read", "shed"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(clause: str, message: str, marked: str) -> None:
    text = f"SELECT *\nFROM ticks {clause}"
    with pytest.raises(PatternError, match=message) as caught:
        rewritten(text)
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert problem["text"] == text
    assert problem["line"] == 2
    line = text.split("\n")[1]
    assert line[problem["column"] - 1 :].startswith(marked)


def test_nothing_is_asked_of_spark_before_all_clauses_are_read() -> None:
    good, bad = "MATCH_RECOGNIZE (PATTERN (a))", "MATCH_RECOGNIZE (PATTERN (+ a))"
    with pytest.raises(PatternError):
        rewritten(f"SELECT * FROM nope {good} JOIN t {bad}")
