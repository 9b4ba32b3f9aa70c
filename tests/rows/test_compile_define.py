"""DEFINE: which row a name is read at, what Spark computes, and what the engine is given."""

from __future__ import annotations

import pytest

from tests.rows.compiling import compiled

SUBSETS = {"u": ["a", "b"], "w": ["a", "c"]}


def define(condition: str) -> str:
    """What becomes of the condition of b in `a b+ c`."""
    return compiled("a b+ c", define={"B": condition}, subset=SUBSETS).define("b")


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        # one row: Spark's, whole
        ("price > 10", ".[`price` > 10]"),
        ("upper(name) LIKE 'X%' OR flag", ".[upper(`name`) LIKE 'X%' OR `flag`]"),
        ("b.price > qty AND u.flag", ".[`price` > `qty` AND `flag`]"),
        ("LAST(b.price) > RUNNING LAST(qty)", ">(.[`price`], cast float64(.[`qty`]))"),
        # other rows
        ("price < PREV(price)", "<(.[`price`], .-1[`price`])"),
        ("price < NEXT(u.price, 2)", "<(.[`price`], .+2[`price`])"),
        ("price > a.price", ">(.[`price`], last(a)[`price`])"),
        ("price > w.price", ">(.[`price`], last(a|c)[`price`])"),
        ("PREV(a.price, 0) > 1", ">(last(a)[`price`], 1.0)"),
        ("FIRST(price) > FIRST(b.price, 2)", ">(first(*)[`price`], first(b+2)[`price`])"),
        ("LAST(u.price, 1) > 1", ">(last(a|b-1)[`price`], 1.0)"),
        ("PREV(LAST(a.price, 1), 2) > 1", ">(last(a-1)-2[`price`], 1.0)"),
        ("NEXT(FIRST(price)) > 1", ">(first(*)+1[`price`], 1.0)"),
        ("PREV(price * 2 + qty) > 1", ">(.-1[`price` * 2 + `qty`], 1.0)"),
        ("PREV(upper(name)) = 'X'", "=(.-1[upper(`name`)], 'X')"),
        ("any_value(a.price) > 1", ">(first(a)[`price`], 1.0)"),
        # a row that may not be there gives NULL only where NULLs give NULL
        ("a.price + a.qty > 3", "last(a)[`price` + `qty` > 3]"),
        ("a.name IS NULL OR flag", "or(is_null(last(a)[`name`]), .[`flag`])"),
        # a NOT whose operand is no text of its own
        ("a.name IS NOT NULL", "not(is_null(last(a)[`name`]))"),
        ("a.name NOT IN ('x')", "not(in(last(a)[`name`], 'x'))"),
        (
            "upper(a.name) = name",
            "=(if(last(a)[there is], last(a)[upper(`name`)], "
            ".[upper((CAST(NULL AS STRING)))]), .[`name`])",
        ),
        (
            "upper(PREV(name)) = lower(RUNNING LAST(name)) "
            "OR upper(PREV(LAST(a.name, 1), 2)) = 'X'",
            "or(=(if(.-1[there is], .-1[upper((`name`))], .[upper(((CAST(NULL AS STRING))))]), "
            ".[lower((`name`))]), =(if(last(a-1)-2[there is], last(a-1)-2[upper(((`name`)))], "
            ".[upper((((CAST(NULL AS STRING)))))]), 'X'))",
        ),
        # aggregates
        ("count(*) < 3", "<(count(*: ), 3)"),
        ("count(a.*) = count(u)", "=(count(a: ), count(a|b: ))"),
        ("sum(qty) > 100 * b.qty", ">(sum(*: `qty`), .[100 * `qty`])"),
        ("avg(a.price - a.qty) > 0", ">(avg(a: `price` - `qty`), 0.0)"),
        ("count(DISTINCT w.name) = 1", "=(count(a|c: distinct `name`), 1)"),
        ("count_if(price > 3) > 2", ">(count(*: CASE WHEN `price` > 3 THEN 1 END), 2)"),
        ("every(flag)", "min(*: CAST(`flag` AS BOOLEAN))"),
        ("sum(1) > 3", ">(sum(*: 1), 3)"),
        ("stddev(a.price) > 2D", ">(stddev_samp(a: CAST(`price` AS DOUBLE)), 2.0)"),
        ("max_by(a.name, a.qty) = 'x'", "=(max_by(a: `name` by `qty`), 'x')"),
        # FILTER
        (
            "sum(a.qty) FILTER (WHERE a.price > 3) > 1",
            ">(sum(a: CASE WHEN `price` > 3 THEN `qty` END), 1)",
        ),
        ("count(*) FILTER (WHERE flag) > 1", ">(count(*: CASE WHEN `flag` THEN 1 END), 1)"),
        (
            "var_pop(a.qty) FILTER (WHERE a.flag) > 1D",
            ">(var_pop(a: CASE WHEN `flag` THEN CAST(`qty` AS DOUBLE) END), 1.0)",
        ),
        (
            "min_by(qty, price) FILTER (WHERE flag) > 1",
            ">(min_by(*: `qty` by CASE WHEN `flag` THEN `price` END), 1)",
        ),
        (
            "sum(qty) FILTER (WHERE CLASSIFIER() = 'a') > 1",
            ">(sum(*: if(=(label ., 0), .[`qty`], None)), 1)",
        ),
        ("max(qty + MATCH_NUMBER()) > 5", ">(max(*: +(.[`qty`], match number)), 5)"),
        # labels
        ("CLASSIFIER() = 'b'", "any row"),
        ("CLASSIFIER() = 'B'", "False"),
        ("CLASSIFIER(w) <> 'a'", "<>(label last(a|c), 0)"),
        ("CLASSIFIER(w) = 'nobody'", "=(label last(a|c), -1)"),
        ("PREV(CLASSIFIER()) IN ('a', 'b')", "in(label .-1, 0, 1)"),
        ("LAST(CLASSIFIER(), 3) = 'a'", "=(label last(*-3), 0)"),
        ("name = lower(CLASSIFIER())", ".[`name` = lower('b')]"),
        ("MATCH_NUMBER() > 1", ">(match number, 1)"),
        # constants
        ("TRUE", "any row"),
        ("1 < 2 OR price > 3", ".[1 < 2 OR `price` > 3]"),
        # guards stay beside what they guard
        (
            "qty <> 0 AND 10 / qty > PREV(price)",
            "and(.[`qty` <> 0], >(.[CASE WHEN (NOT ((`qty` <> 0) <=> FALSE)) THEN 10 / `qty` "
            "END], .-1[`price`]))",
        ),
        # differences of times
        (
            "datediff(day, a.day) <= 2",
            "<=(-(.[unix_date(CAST(`day` AS DATE))], last(a)[unix_date(CAST(`day` AS DATE))]), 2)",
        ),
        (
            "timestampdiff(MINUTE, PREV(ts), ntz) < 5",
            "<(div(-(.[timestampdiff(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', `ntz`)], "
            ".-1[timestampdiff(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', (`ts`))]), 60000000), "
            "5)",
        ),
        # rows at fixed distances: Spark's, if the engine has no operation for it
        (
            "name LIKE PREV(name)",
            ".[`name` LIKE lag(`name`, 1) OVER (ORDER BY `ts` ASC NULLS FIRST)]",
        ),
        (
            "price > a.price AND round(price / NEXT(LAST(qty * 2), 3), 1) < 2",
            "and(>(.[`price`], last(a)[`price`]), <(.[round(`price` / lead(`qty` * 2, 3) OVER "
            "(ORDER BY `ts` ASC NULLS FIRST), 1)], 2.0))",
        ),
        (
            "flag AND power(price, PREV(qty, 0) + PREV(qty)) > 1",
            "and(.[`flag`], >(.[CASE WHEN (NOT ((`flag`) <=> FALSE)) THEN power(`price`, (`qty`) + "
            "lag(`qty`, 1) OVER (ORDER BY `ts` ASC NULLS FIRST)) END], 1.0))",
        ),
    ],
)
def test_a_name_is_read_at_the_row_that_it_means(condition: str, found: str) -> None:
    assert define(condition) == found


def test_a_label_beside_a_column_becomes_a_string() -> None:
    assert define("CLASSIFIER(w) = name") == (
        "=(if(=(label last(a|c), 0), 'a', if(=(label last(a|c), 1), 'b', "
        "if(=(label last(a|c), 2), 'c', None))), .[`name`])"
    )


@pytest.mark.parametrize(
    ("condition", "guarded"),
    [
        (
            "CASE name WHEN 'n' THEN CAST(name AS INT) + PREV(qty) END > 1",
            ".[CASE WHEN ((`name`) = ('n')) THEN CAST(`name` AS INT) END]",
        ),
        (
            "CASE PREV(name) WHEN 'n' THEN qty + PREV(CAST(name AS INT)) END > 1",
            "if(=(.-1[`name`], 'n'), +(.[`qty`], .-1[CAST(`name` AS INT)]), None)",
        ),
        (
            "CASE PREV(name) WHEN 'n' THEN qty + CAST(PREV(name) AS INT) END > 1",
            ".-1[CASE WHEN (((`name`)) = ('n')) THEN CAST((`name`) AS INT) END]",
        ),
        (
            "CASE WHEN a.flag AND flag THEN qty ELSE CAST(name AS INT) + a.qty END > 1",
            "+(.[CAST(`name` AS INT)], last(a)[`qty`])",
        ),
        (
            "if(a.flag AND flag, CAST(name AS INT) + a.qty, 0) > 1",
            ".[CASE WHEN (`flag`) THEN CAST(`name` AS INT) END]",
        ),
        (
            "nvl2(name, CAST(name AS INT) + PREV(qty), 0) > 1",
            ".[CASE WHEN ((`name`) IS NOT NULL) THEN CAST(`name` AS INT) END]",
        ),
        (
            "coalesce(price, CAST(name AS INT) + PREV(qty)) > 1",
            ".[CASE WHEN ((`price`) IS NULL) THEN CAST(`name` AS INT) END]",
        ),
        (
            "nvl(a.price, CAST(a.name AS INT) + qty) > 1",
            "last(a)[CASE WHEN ((`price`) IS NULL) THEN CAST(`name` AS INT) END]",
        ),
    ],
)
def test_a_branch_is_computed_only_on_rows_where_it_may_be_taken(
    condition: str, guarded: str
) -> None:
    assert guarded in define(condition)


def test_names_match_without_regard_to_case_and_keep_their_first_spelling() -> None:
    found = compiled(
        "Strt down+ STRT", define={"DOWN": "Price < strt.PRICE"}, subset={"Both": ["STRT", "Down"]}
    )
    assert [each.name for each in found.compiled.variables] == ["Strt", "down"]
    assert found.define("down") == "<(.[`price`], last(Strt)[`price`])"
    assert found.compiled.pattern.parts[2].variable == 0


def test_variables_without_a_condition_are_any_row() -> None:
    found = compiled("a b", define={"b": "price > 1"})
    assert found.define("a") == "any row"
    assert found.compiled.conditions == ((None, False), ("price > 1", True))


def test_a_column_named_like_a_variable_is_a_column_where_it_stands_alone() -> None:
    found = compiled("qty b", define={"b": "price > qty AND price > qty.qty"})
    assert (
        found.define("b")
        == "and(.[`price` > `qty`], >(.[`price`], cast float64(last(qty)[`qty`])))"
    )


def test_within_is_in_the_unit_of_the_event_time() -> None:
    from spark_cep.row_patterns import row_pattern

    found = compiled(row_pattern("a b").within("30 minutes")).compiled
    assert found.window is not None
    assert found.window.size == 30 * 60 * 1_000_000
    assert compiled("a b", order_by=["price DESC", "ts"]).compiled.window is None


def test_an_order_is_not_needed_without_a_window() -> None:
    assert compiled("a b", order_by=None).compiled.orders == ()


@pytest.mark.parametrize(
    ("text", "kind", "variables"),
    [
        (None, "past last row", set()),
        ("SKIP PAST LAST ROW", "past last row", set()),
        ("after match skip to next  row", "next row", set()),
        ("SKIP TO FIRST B", "first", {1}),
        ("SKIP TO LAST b", "last", {1}),
        ("SKIP TO `c`", "last", {2}),
        ("SKIP TO w", "last", {0, 2}),
        ("SKIP TO FIRST", "last", {3}),
    ],
)
def test_after_match_says_where_to_go_on(text: str | None, kind: str, variables: set[int]) -> None:
    found = compiled("a b+ c first?", subset=SUBSETS, after_match=text).compiled.skip
    assert (found.kind, found.variables) == (kind, variables)


def test_spark_sees_the_rows_beside_a_row_in_the_partition_and_order_of_the_pattern() -> None:
    found = compiled(
        "a b",
        define={"b": "name LIKE PREV(name, 2)"},
        partition_by=["name", "we ird"],
        order_by=["price DESC", "lower(name) NULLS LAST"],
    )
    assert found.define("b") == (
        ".[`name` LIKE lag(`name`, 2) OVER (PARTITION BY `name`, `we ird` ORDER BY `price` DESC "
        "NULLS LAST, lower(`name`) ASC NULLS LAST)]"
    )


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("name LIKE a.name", "like(.[`name`], last(a)[`name`])"),
        ("name NOT LIKE LAST(b.name, 1)", "not(like(.[`name`], last(b-1)[`name`]))"),
        (
            "name LIKE concat(PREV(name), CLASSIFIER())",
            "like(.[`name`], concat_strings(.-1[`name`], 'b'))",
        ),
        ("array_contains(a.tags, name)", "array_contains(last(a)[`tags`], .[`name`])"),
        (
            "concat(a.name, qty) = 'x'",
            "=(concat_strings(last(a)[`name`], .[CAST((`qty`) AS STRING)]), 'x')",
        ),
        ("round(price / a.price) > 1", ">(round(/(.[`price`], last(a)[`price`])), 1.0)"),
    ],
)
def test_functions_between_rows_of_the_match_are_the_workers(condition: str, found: str) -> None:
    assert compiled("a b", define={"b": condition}).define("b") == found


def test_without_an_order_neighbours_are_no_business_of_spark() -> None:
    found = compiled("a b", define={"b": "name LIKE PREV(name)"}, order_by=None)
    assert found.define("b") == "like(.[`name`], .-1[`name`])"


GUARDED = {"a": "name LIKE '1%' AND price > PREV(price) AND flag", "b": "price > 3"}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("CAST(a.name AS INT) < qty", "<(last(a)[CASE WHEN ({}) THEN CAST(`name` AS INT) END], "),
        ("max(CAST(a.name AS INT)) < qty", "<(max(a: CASE WHEN ({}) THEN CAST(`name` AS INT) END)"),
        ("PREV(LAST(CAST(a.name AS INT))) < qty", "<(last(a)-1[CAST(`name` AS INT)], "),
        ("max(CAST(u.name AS INT)) < qty", "<(max(a|b: CASE WHEN ({}) OR ((`price` > 3)) THEN "),
        ("max(CAST(w.name AS INT)) < qty", "<(max(a|c: CAST(`name` AS INT))"),
        ("CAST(c.name AS INT) > 1", ".[CAST(`name` AS INT) > 1]"),
        ("a.name > name", ">(last(a)[`name`], "),
    ],
)
def test_what_is_computed_of_a_variable_is_guarded_by_its_own_conditions(
    condition: str, found: str
) -> None:
    known = "(`name` LIKE '1%') AND (`flag`)"
    define = {**GUARDED, "c": condition}
    result = compiled("a b c", define=define, subset=SUBSETS).define("c")
    assert result.startswith(found.format(known))
