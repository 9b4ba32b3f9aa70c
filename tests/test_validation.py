"""Every message about a wrong pattern, once: what it says, where it points, what it proposes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import spark_cep as cep
from spark_cep import all_of, any_of, event, no, row_pattern, seq, udf
from spark_cep.errors import CepError, PatternError
from spark_cep.events import branches
from spark_cep.expressions.refusals import column_refusal
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.pattern import Event, Pattern, Seq, iter_events
from spark_cep.udfs.expressions import BIGINT, BOOL, Type
from tests.compiling import INFOS, compiled, problems
from tests.fake_typer import LocalTyper

AB = seq("a", "b")
LIST = seq("a", "b+")
NOT = seq("a", "!x", "!y", "b")


@pytest.mark.parametrize(
    ("pattern", "text", "message", "marked", "hint"),
    [
        # names
        (AB, "a.prcie < b.price", "the input has no column prcie", "prcie", "did you mean price?"),
        (AB, "a.zzz < 1", "the input has no column zzz", "zzz", "its columns are ts, ntz"),
        (AB, "c.price > 1", "the pattern has no variable c", "c", "its variables are a, b"),
        (AB, "price > 1", "price does not refer to a variable", "price", "write a.price"),
        (AB, "addr.city = 'x'", "addr.city does not refer to", "addr.city", "write a.addr.city"),
        (AB, "1 = 1", "1 = 1 does not refer to a variable", "1 = 1", "a column of a variable"),
        (AB, "a = b.qty", "a is a variable, not a column", "a", "a.ts"),
        (AB, "a.* = 1", "a.* is not a value", "a.*", "name one column"),
        (
            AB,
            "exists(a.tags, qty -> qty > a.qty)",
            "the lambda argument qty hides the column qty",
            "a.qty",
            "rename the lambda argument",
        ),
        # syntax
        (AB, "a.qty < b.qty b", "unexpected 'b'", "b", "as in WHERE"),
        (AB, "a.qty <", "an operand is missing next to '<'", "<", "as in WHERE"),
        (AB, "a.name = 'x", "this quote or comment is not closed", "'x", "as in WHERE"),
        (AB, "", "the expression is empty", "", "as in WHERE"),
        # types
        (
            AB,
            "a.price + b.price",
            "must be TRUE or FALSE, but a.price + b.price is DOUBLE",
            "a.price + b.price",
            "compare it",
        ),
        (AB, "a.qty", "must be TRUE or FALSE, but a.qty is INT", "a.qty", "compare it"),
        (AB, "a.name - 1 > b.qty", "cannot type `name` - 1", "a.name - 1", None),
        (AB, "a.flag > 1", "cannot type `flag` > 1", "a.flag > 1", None),
        (AB, "a.flag < b.qty", "cannot type `flag` < `qty`", "a.flag < b.qty", None),
        (AB, "a.qty OR b.flag", "but a.qty is INT", "a.qty", "compare it"),
        (AB, "b.flag OR a.qty + b.qty", "is INT", "a.qty + b.qty", "compare it"),
        (LIST, "sum(b.name) > 1", "sum() does not take STRING", "sum(b.name)", "number"),
        (LIST, "max(b.addr) > 1", "max() does not take", "max(b.addr)", "ordered"),
        # what has no place in a condition
        (AB, "rand() < a.price", "rand() is not deterministic", "rand", "withColumn"),
        (AB, "a.qty = 1 OR uuid() = 'x'", "uuid() is not deterministic", "uuid", "withColumn"),
        (AB, "explode(a.tags) = 1", "explode() returns several", "explode", "explode the input"),
        (AB, "row_number() > a.qty", "row_number() is a window", "row_number", "before matching"),
        (LIST, "stddev(b.qty) > 1", "the aggregate stddev()", "stddev", "first, last, count"),
        (AB, "a.qty IN (SELECT 1)", "subqueries are not supported", "SELECT 1", "join"),
        (
            LIST,
            "sum(b.qty) OVER (ORDER BY b.qty) > 1",
            "window functions are not supported",
            "sum(b.qty) OVER (ORDER BY b.qty)",
            "first, last, count",
        ),
        (LIST, "count(b) FILTER (WHERE b.flag) > 1", "FILTER is not", None, "first"),
        # lists
        (LIST, "sum(a.qty) > 1", "sum(a.qty): a binds one row", "sum(a.qty)", '"a+"'),
        (LIST, "prev(a.qty) > 1", "prev(a.qty): a binds one row", "prev(a.qty)", '"a+"'),
        (LIST, "count(a) > 1", "count(a): a binds one row", "count(a)", '"a+"'),
        (LIST, "count(*) > 1", "count() takes one expression", "count(*)", "count(b) counts"),
        (LIST, "sum(b.qty + a.qty) > 1", "sum() takes one expression over the columns",
         "sum(b.qty + a.qty)", "sum(b.price)"),
        (LIST, "sum(DISTINCT b.qty) > 1", "sum() takes one expression", None, "sum(b.price)"),
        (LIST, "prev(b.qty, 2) > 1", "prev() takes one expression", "prev(b.qty, 2)",
         "prev(b.price)"),
        (LIST, "sum(prev(b.qty)) > 1", "navigation cannot be nested", "sum(prev(b.qty))",
         "columns"),
        (LIST, "sum(b) > 1", "b is a variable, not a column", "b", "b.ts"),
        # negation
        (NOT, "x.qty = y.qty", "more than one negated variable: x and y", "x.qty = y.qty", "each"),
        (NOT, "max(x.qty) > 1", "x is negated, so it binds no list", "max(x.qty)", "x.column"),
        # what nobody can evaluate
        (LIST, "a.name LIKE b.name", "does not compute LIKE over several variables, and Spark "
         "cannot test it on finished matches because b binds a list", "a.name LIKE b.name", "udf"),
        (NOT, "power(a.qty, x.qty) > 1", "does not compute power() over several variables, and "
         "Spark cannot test it on finished matches because x is negated", None, "cep.udf"),
        (AB.strategy("strict"), "a.name || b.name = 'x'", "because under this strategy", None,
         "udf"),
        (AB.consumption("consume"), "a.name || b.name = 'x'", "matches compete", None, "cep.udf"),
    ],
)  # fmt: skip
def test_a_wrong_condition_is_one_problem(
    pattern: Pattern, text: str, message: str, marked: str | None, hint: str | None
) -> None:
    (problem,) = problems(pattern.where(text))
    assert message in problem["message"]
    assert problem["text"] == text
    assert problem["line"] == 1
    if marked is not None:
        assert text[problem["column"] - 1 :].startswith(marked)
        assert _caret_length(pattern.where(text)) == max(1, len(marked))
    assert (hint or "") in (problem["hint"] or "")
    assert (hint is None) == (problem["hint"] is None)


def _caret_length(pattern: Pattern) -> int:
    with pytest.raises(PatternError) as caught:
        compiled(pattern)
    return caught.value.message.count("^")


def one(pattern: Pattern, **options: Any) -> tuple[str, str, Any]:
    (problem,) = problems(pattern, **options)
    marked = None if problem["text"] is None else problem["text"][problem["column"] - 1 :]
    return problem["message"], problem["hint"] or "", marked


# ---- the pattern -------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["a", "A", "!a", "a+"])
@pytest.mark.parametrize("built", [seq, all_of, any_of])
def test_a_variable_bound_twice_is_refused_when_written(
    built: Callable[..., Pattern], second: str
) -> None:
    name = second.strip("!+")
    for parts in (("a", "b", second), ("b", seq("c", "a"), all_of(second, "d"))):
        with pytest.raises(PatternError) as caught:
            built(*parts)
        assert f"the variable {name} is bound twice" in caught.value.message
        assert f'"{name}+"' in (caught.value.hint or "")


def test_a_variable_bound_twice_in_nodes_put_together_by_hand_is_found() -> None:
    message, hint, marked = one(Pattern(Seq((Event("a"), Event("A")))))
    assert "the variable A is bound twice (as a; case makes no difference)" in message
    assert '"A+"' in hint
    assert marked == "A"


def test_an_empty_pattern() -> None:
    assert "the pattern is empty" in one(Pattern(Seq(())))[0]


def test_a_pattern_of_negations_only() -> None:
    message, hint, _ = one(all_of("!x", "!y").within("1 hour"))
    assert "has no variable that binds a row" in message
    assert "not negated" in hint


def test_a_misplaced_negation() -> None:
    assert "NOT x is an alternative of any_of" in one(any_of("a", no("x")))[0]
    assert "needs a time window" in one(seq("a", "!x"))[0]


# ---- conditions in event() ---------------------------------------------------------------------


def test_an_unknown_column_in_an_event() -> None:
    message, hint, marked = one(seq(event("a", "qty > 1 AND prise > 3"), "b"))
    assert message == "the input has no column prise"
    assert hint == "did you mean price?"
    assert marked == "prise > 3"


def test_an_unknown_variable_in_an_event() -> None:
    assert one(seq(event("a", "bb.qty > 1"), "b"))[0] == "the pattern has no variable bb"


def test_a_name_that_two_columns_have() -> None:
    columns = [*INFOS, ColumnInfo("Qty", BIGINT)]
    message, hint, marked = one(AB.where("a.qty > 1"), columns=columns)
    assert message == "qty is ambiguous: the input has 2 columns with this name"
    assert "withColumnRenamed" in hint
    assert marked == "qty > 1"
    assert problems(AB.where("a.qty > 1"), columns=columns, case_sensitive=True) == []


class Column:
    def __init__(self, printed: str, type_: Type | str) -> None:
        self.printed, self.type = printed, type_

    def __str__(self) -> str:
        return f"Column<'{self.printed}'>"


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("(rand() > 0.5)", BOOL), "rand() is not deterministic"),
        (Column("explode(tags)", BOOL), "explode() returns several rows"),
        (Column("(qty + 1)", BIGINT), "must be TRUE or FALSE, but that of a is BIGINT"),
        (Column("(zz > 1)", "no column zz"), "the condition of a: no column zz"),
    ],
)
def test_a_wrong_column(column: Any, message: str) -> None:
    found, _, marked = one(seq(event("a", column), "b"))
    assert message in found
    assert marked is not None


@pytest.mark.parametrize(
    "printed",
    [
        "Column<'=(name, 'rand()')'>",
        "Column<'=(name, 'it\\'s rand()')'>",
        "Column<'name = \"rand()\"'>",
    ],
)
def test_a_literal_of_a_column_is_no_call(printed: str) -> None:
    assert column_refusal(_Printed(printed)) is None


@pytest.mark.parametrize(
    "printed",
    [
        "Column<'>(rand(1L), 0.5)'>",
        "Column<'and(=(name, 'x'), =(rand(1L), 'y'))'>",
        "Column<'and(=(it's, rand(1L)), 'y')'>",
    ],
)
def test_a_call_beside_literals_is_found(printed: str) -> None:
    found = column_refusal(_Printed(printed))
    assert found is not None
    assert found.place.text[found.place.start : found.place.end] == "rand"


class _Printed:
    def __init__(self, printed: str) -> None:
        self.printed = printed

    def __str__(self) -> str:
        return self.printed


# ---- order, partition, window ------------------------------------------------------------------


def test_no_order() -> None:
    for order_by in (None, []):
        message, hint, _ = one(AB, order_by=order_by)
        assert "order_by is missing" in message
        assert 'order_by="ts"' in hint


@pytest.mark.parametrize(
    ("order_by", "message", "marked"),
    [
        ("tss", "order_by: the input has no column tss", "tss"),
        (["ts", "qty DESC, price"], "order_by is not valid", "DESC, price"),
        ("rand()", "order_by: rand() is not deterministic", "rand()"),
        ("ts DESC", "must be ascending", "ts DESC"),
        ("name", "the event time, so it cannot be STRING", "name"),
        ("flag", "the event time, so it cannot be BOOLEAN", "flag"),
        (["ts", "tags"], "order_by: tags cannot be ordered", "tags"),
        (["ts", "name - 1"], "order_by: cannot type", "name - 1"),
    ],
)
def test_a_wrong_order(order_by: Any, message: str, marked: str) -> None:
    found, _, place = one(AB, order_by=order_by, typer=_NoOrder())
    assert message in found
    assert place == marked


class _NoOrder(LocalTyper):
    def __init__(self) -> None:
        super().__init__({column.name: column.type for column in INFOS})

    def of_row(self, expressions: Any) -> list[Type | str]:
        given = super().of_row(expressions)
        return [
            "no order" if "`tags`) <" in str(e) else t
            for e, t in zip(expressions, given, strict=True)
        ]


def test_a_wrong_partition() -> None:
    message, hint, marked = one(AB, partition_by=["card", "nmae"])
    assert message == "partition_by: the input has no column nmae"
    assert hint == "did you mean name?"
    assert marked == "nmae"
    assert "takes column names, not int" in one(AB, partition_by=[3])[0]


@pytest.mark.parametrize(
    ("pattern", "order_by", "message", "marked"),
    [
        (AB.within(10), "ts", "needs a unit", "10"),
        (AB.within("2 hours"), "card", "first order column is BIGINT", "2 hours"),
    ],
)
def test_a_window_that_does_not_fit_the_event_time(
    pattern: Pattern, order_by: str, message: str, marked: str
) -> None:
    found, hint, place = one(pattern, order_by=order_by)
    assert message in found
    assert hint
    assert place == marked


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"duration": "5 minuts"}, "unknown unit minuts"),
        ({"duration": "soon"}, "'soon' is not a duration"),
        ({"duration": "10"}, "needs a unit"),
        ({"duration": "0 hours"}, "must be positive"),
        ({"duration": timedelta(0)}, "must be positive"),
        ({"duration": -1}, "must be positive"),
        ({"duration": float("inf")}, "must be finite"),
        ({"duration": True}, "takes text, a timedelta or a number, not bool"),
        ({"duration": ["5 minutes"]}, "takes text, a timedelta or a number, not list"),
        ({"duration": "2 months"}, "no fixed length"),
        ({"events": 0}, "must be positive"),
        ({"events": "5"}, "takes a number of rows"),
        ({}, "either a duration or events="),
    ],
)
def test_a_wrong_window_is_refused_when_written(window: dict[str, Any], message: str) -> None:
    with pytest.raises(PatternError, match=re.escape(message)) as caught:
        AB.within(**window)
    assert caught.value.hint or caught.value.details
    if "duration" in window:
        with pytest.raises(PatternError, match=re.escape(message)):
            row_pattern("a b").within(window["duration"])


# ---- the report --------------------------------------------------------------------------------


def test_all_problems_are_reported_at_once() -> None:
    pattern = seq(event("a", "prise > 1"), "b").where("a.qty +", "b.qty", "rand() > b.qty")
    found = problems(pattern.within(5), order_by="ts", partition_by="nmae")
    assert [problem["message"].split(":")[0][:40] for problem in found] == [
        "partition_by",
        "within(5) needs a unit",
        "the input has no column prise",
        "this is not a Spark SQL expression",
        "rand() is not deterministic, so the matc",
        "a condition must be TRUE or FALSE, but b",
    ]


def test_the_message_draws_the_place() -> None:
    with pytest.raises(PatternError) as caught:
        compiled(AB.where("a.qty > 1\n  AND b.prise < 2"))
    assert str(caught.value) == (
        "the input has no column prise\n"
        "  at line 2, column 9:\n"
        "      AND b.prise < 2\n"
        "            ^^^^^\n"
        "  hint: did you mean price?"
    )


def test_several_problems_are_numbered() -> None:
    with pytest.raises(PatternError) as caught:
        compiled(AB.where("a.x > 1"), order_by=None)
    assert str(caught.value).startswith("the pattern has 2 problems\n1. order_by is missing")
    assert "\n2. the input has no column x\n  at line 1, column 3:\n" in str(caught.value)


# ---- cep.udf -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "cep.udf takes a function, not int"),
        ((lambda x: x,), "is not a valid function name"),
        ((lambda x: x, "double", "sum"), "sum is already a SQL function"),
        ((lambda x: x, "double", "prev"), "prev is already a SQL function"),
        ((lambda x: x, "array<int>", "f"), "a cep.udf cannot return"),
    ],
)
def test_a_wrong_user_function(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(PatternError) as caught:
        udf(*arguments)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_user_function_is_not_for_spark() -> None:
    udf(lambda x: x, "boolean", "is_odd_test")
    assert compiled(AB.where("is_odd_test(a.qty)")).conditions() == ["is_odd_test(a[`qty`])"]
    message = one(AB.where("is_odd_test(a.name || b.name)").strategy("strict"))[0]
    assert "does not compute || over several variables" in message


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("LEAST(a.qty + b.qty, 1.5D) || 'x' = 'y'", "||"),
        ("least(a.name, b.name) LIKE 'x'", "LIKE"),
        ("upper(concat(a.name, b.name)) || lower(b.name) = 'x'", "||"),
        ("upper(a.name || b.name) = 'x'", "upper()"),
    ],
)
def test_a_condition_that_cannot_be_tested_names_the_operation_at_fault(
    text: str, blamed: str
) -> None:
    with pytest.raises(PatternError) as caught:
        compiled(AB.consumption("consume").where(text))
    assert f"does not compute {blamed} over several variables" in caught.value.message


def test_too_many_ways_are_counted_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(tree: object) -> object:
        raise AssertionError(f"made the choices of {tree}")

    monkeypatch.setattr(branches, "_choices", made)
    optional = [f"v{i}?" for i in range(19)]
    ors = [any_of(f"x{i}", f"y{i}") for i in range(60)]
    for many in (seq("s", all_of(*optional), "e"), seq(*ors)):
        (problem,) = problems(many)
        assert "more than 4096 combinations" in problem["message"]


@pytest.mark.parametrize(
    "pattern",
    [
        seq("a", "b?", any_of("c", seq("d", "e?"), "f*")),
        seq("a?", "!x", all_of("b{0,2}", any_of("c", seq("d?", "e?"))).optional()).within("1 hour"),
        all_of("a*", "b?").within("1 hour"),
        any_of(seq("a", "b").times("*"), seq("c", "d?")),
    ],
)
def test_the_ways_to_fill_a_pattern_are_counted_as_they_are_made(pattern: Pattern) -> None:
    index = {event.name: number for number, (event, _) in enumerate(iter_events(pattern.root))}
    tree = branches._tree(pattern.root, index)
    made = list(branches._choices(tree))
    unfilled = [c for c in made if c.tree is None or not branches._positives(c.tree)]
    assert branches._counts(tree) == (len(made), len(unfilled))


# ---- builders ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "braces"),
    [((3,), "{3}"), ((2, 4), "{2,4}"), ((0, 2), "{0,2}"), (("+",), "+"), ((" {2,} ",), "{2,}")],
)
def test_times_takes_text_and_numbers(written: tuple[Any, ...], braces: str) -> None:
    assert event("a").times(*written) == event(f"a{braces}")
    assert seq("a", "b").times(*written) == seq("a", "b").times(braces)


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (lambda: event("a").times(0), "the upper bound of {0} is 0"),
        (lambda: event("a").times(-1), "is not a quantifier"),
        (lambda: event("a").times(4, 2), "the lower bound of {4,2} is larger than its upper bound"),
        (lambda: event("a").times(True), "times(True) is not a quantifier"),
        (lambda: event("a").times(2.5), "times(2.5) is not a quantifier"),
        (lambda: event("a").times("+", 3), "times('+', 3) is not a quantifier"),
        (lambda: event("a").times(None), "times(None) is not a quantifier"),
        (lambda: event(3), "3 is not the name of a variable"),
        (lambda: event("a", 5), "the condition of a is of type int"),
        (lambda: event("a", ["x > 1"]), "the condition of a is of type list"),
        (lambda: seq(["a", "b"]), "takes names and patterns, not list"),
        (lambda: no(3), "takes names and patterns, not int"),
        (lambda: AB.where(True), "takes Spark SQL text, not bool"),
        (lambda: AB.where(["a.x > 1"]), "takes Spark SQL text, not list"),
        (lambda: AB.strategy(["strict"]), "unknown strategy"),
        (lambda: AB.consumption(None), "unknown consumption"),
        (lambda: row_pattern(3), "takes the pattern as text, not int"),
        (lambda: row_pattern("a b", "price > 1"), "define= takes a dict, not str"),
        (lambda: row_pattern("a b", 5), "define= takes a dict, not int"),
        (lambda: row_pattern("a b", [("a",)]), "define= takes a dict, not list"),
        (lambda: row_pattern("a b", {"a": 5}), "the condition of a is of type int"),
        (
            lambda: row_pattern("a b", subset={"u": 5}),
            "the subset u takes the names of variables, not 5",
        ),
        (lambda: row_pattern("a b", subset="u"), "subset= takes a dict, not str"),
        (lambda: cep.plans.chain(1, 2), "chain takes names of variables"),
        (lambda: cep.plans.chain(["a", "b"]), "chain takes names of variables"),
        (lambda: cep.plans.join("a", "b", "c"), "is not a pair"),
        (lambda: cep.plans.join(5), "is not a pair"),
        (lambda: cep.plans.join({"a", "b"}), "is not a pair"),
        (lambda: cep.plans.hybrid(eager=5, lazy=["a"]), "hybrid takes names of variables"),
        (lambda: cep.plans.hybrid(eager="ab", lazy=["c"]), "hybrid takes names of variables"),
        (lambda: cep.adapt.threshold("0.3"), "the threshold is '0.3'"),
        (lambda: cep.adapt.invariants(k="1"), "k is '1'"),
        (lambda: cep.adapt.invariants(distance=[1]), "the distance is [1]"),
        (lambda: cep.Statistics(rates=[("a", 1)]), "rates takes a dict, not list"),
        (lambda: cep.Statistics(rates={"a": "1"}), "the rate of 'a' is '1'"),
        (
            lambda: cep.Statistics(selectivities={"ab": 0.1}),
            "'ab', which is not a pair of variables",
        ),
        (lambda: cep.Statistics(selectivities={("a", "b"): None}), "the selectivity of"),
        (cep.Shed, "takes one of keep, latency and rows_per_second"),
        (lambda: cep.Shed(keep="0.3"), "keep is '0.3'"),
        (lambda: cep.Shed(keep=0.3, policy=["utility"]), "policy is ["),
        (lambda: cep.Shed(latency=5), "latency 5 is not a duration"),
        (lambda: cep.Shed(keep=0.3, seed="7"), "seed is '7'"),
        (lambda: cep.Shed(keep=0.3, history=5), "history must be a batch DataFrame"),
        (lambda: cep.cache.lru(None), "None is not a cache size"),
        (lambda: cep.cache.cost_based("1 MB", fetch_weight="0.7"), "fetch_weight is '0.7'"),
        (lambda: cep.Remote.fetch(None, "int"), "fn takes a function"),
        (lambda: cep.Remote.fetch(print, 5), "value_type"),
        (lambda: cep.Remote.table(5, key="a"), "table"),
        (lambda: cep.Limits(partial_matches="5"), "partial_matches"),
        (lambda: cep.Limits(matches=0), "matches"),
        (lambda: cep.udf(5), "udf"),
    ],
)
def test_a_slip_in_a_builder_is_an_error_of_the_library(
    slip: Callable[[], object], message: str
) -> None:
    with pytest.raises(CepError) as caught:
        slip()
    assert message in caught.value.message
    assert caught.value.hint or caught.value.details
