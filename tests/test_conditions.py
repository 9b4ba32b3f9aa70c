"""Where each conjunct goes, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_cep import all_of, any_of, event, no, seq, udf
from spark_cep.udfs.expressions import BIGINT, BOOL, Cell, Type, cells_of
from spark_cep.udfs.program import Variable, Window
from tests.compiling import compiled
from tests.fake_typer import LocalTyper

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

AB = seq("a", "b")


def only(text: str, pattern: Pattern = AB, **options: object) -> str:
    """The one condition that a text becomes."""
    (condition,) = compiled(pattern.where(text), **options).conditions()
    return condition


# ---- splitting and sorting ---------------------------------------------------------------------


def test_one_variable_conjuncts_go_into_masks_in_the_order_written() -> None:
    pattern = seq(event("a", "name = 'A' AND qty > 1"), event("b", "price > a.price"))
    found = compiled(pattern.where("(b.qty < 5 AND a.flag)", "a.name LIKE '%x'"))
    assert found.compiled.masks == (
        ("`name` = 'A'", "`qty` > 1", "`flag`", "`name` LIKE '%x'"),
        ("`qty` < 5",),
    )
    assert found.conditions() == [">(b[`price`], a[`price`])"]
    assert found.compiled.conditions[0].text == "price > a.price"
    assert found.compiled.conditions[0].variables == {0, 1}


def test_a_column_is_taken_as_it_is() -> None:
    class Column:
        def __str__(self) -> str:
            return "Column<'(kind = A)'>"

    column = Column()
    found = compiled(seq(event("a", column), "b").where("a.qty > 1"))  # type: ignore[arg-type]
    assert found.compiled.masks == ((column, "`qty` > 1"), ())


def test_variables_know_whether_they_are_lists_or_negated() -> None:
    pattern = seq("a", "b+", seq("c", "d").times("{2,3}"), "!x", "e?", "f")
    assert compiled(pattern).compiled.variables == (
        Variable("a"),
        Variable("b", is_list=True),
        Variable("c", is_list=True),
        Variable("d", is_list=True),
        Variable("x", negated=True),
        Variable("e"),
        Variable("f"),
    )


def test_a_conjunct_of_an_event_concerns_that_event_even_if_it_names_another() -> None:
    found = compiled(seq("a", event("!x", "a.qty > 3 AND qty = 1"), "b"))
    assert found.conditions() == ["a[`qty` > 3]"]
    assert found.compiled.conditions[0].variables == {0, 1}
    assert found.compiled.masks == ((), ("`qty` = 1",), ())


def test_a_conjunct_on_a_negated_variable_stays_a_condition() -> None:
    found = compiled(seq("a", "!x", "b").where("x.card = a.card"))
    assert found.conditions() == ["=(x[`card`], a[`card`])"]
    assert found.compiled.conditions[0].variables == {0, 1}


# ---- names -------------------------------------------------------------------------------------


def test_names_match_without_regard_to_case() -> None:
    assert only("A.PRICE < B.Price") == "<(a[`price`], b[`price`])"


def test_columns_match_exactly_where_the_session_says_so() -> None:
    assert only("A.price < b.price", case_sensitive=True) == "<(a[`price`], b[`price`])"


def test_backticks_and_fields_of_structs_are_kept() -> None:
    found = compiled(AB.where("a.`we ird` = 1", "b.addr.city.name = 'x'", "exists(a.tags, t -> t)"))
    assert found.compiled.masks == (
        ("`we ird` = 1", "exists(`tags`, t -> t)"),
        ("`addr`.city.name = 'x'",),
    )


def test_units_of_time_and_arguments_of_lambdas_are_no_columns() -> None:
    found = compiled(
        AB.where("timestampdiff(MINUTE, a.ts, a.ntz) > 5", "exists(b.tags, x -> x.f)"),
        typer=_Typer(),
    )
    assert found.compiled.masks == (
        ("timestampdiff(MINUTE, `ts`, `ntz`) > 5",),
        ("exists(`tags`, x -> x.f)",),
    )


def test_the_first_part_of_a_name_is_a_variable_if_there_is_one() -> None:
    pattern = seq(event("addr", "addr.qty > 1 AND addr.addr.city = 'x'"), "b")
    assert compiled(pattern).compiled.masks[0] == ("`qty` > 1", "`addr`.city = 'x'")
    assert compiled(seq(event("a", "addr.city = 'x'"), "b")).compiled.masks[0] == (
        "`addr`.city = 'x'",
    )


def test_keywords_are_safe_as_column_names() -> None:
    columns = [*_infos(), _info("current_date", BIGINT), _info("case", BIGINT)]
    found = compiled(AB.where("a.current_date = b.case"), columns=columns)
    assert found.conditions() == ["=(a[`current_date`], b[`case`])"]


# ---- hoisting ----------------------------------------------------------------------------------


def test_maximal_one_variable_parts_are_hoisted_as_written() -> None:
    assert only("upper(a.name)  = lower( b.name )", typer=_Typer()) == (
        "=(a[upper(`name`)], b[lower( `name` )])"
    )
    assert only("b.ts <= a.ts + INTERVAL 5 MINUTES") == (
        "<=(b[`ts`], a[`ts` + INTERVAL 5 MINUTES])"
    )


def test_computed_parts_are_guarded_and_plain_columns_are_not() -> None:
    found = compiled(AB.where("a.qty + 1 < b.qty"))
    assert found.shipment.texts == ["`qty` + 1", "`qty`"]
    assert found.shipment.guards == [frozenset({0}), frozenset()]


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("a.qty = 0 OR 9 / a.qty > b.qty", "CASE WHEN (NOT ((`qty` = 0) <=> TRUE)) THEN"),
        ("(a.flag AND 9 / a.qty > b.qty) OR b.flag", "CASE WHEN (NOT ((`flag`) <=> FALSE)) THEN"),
        ("CASE WHEN a.flag THEN 9 / a.qty ELSE b.qty END > 1", "CASE WHEN (`flag`) THEN"),
        ("if(a.flag, b.qty, 9 / a.qty) > 1", "CASE WHEN (NOT ((`flag`) <=> TRUE)) THEN"),
        (
            "CASE a.name WHEN 'n' THEN 9 / a.qty + b.qty ELSE 0 END > 5",
            "CASE WHEN ((`name`) = ('n')) THEN",
        ),
        (
            "CASE 'n' WHEN b.name THEN 1 WHEN a.name THEN 2 ELSE 9 / a.qty END > b.qty",
            "CASE WHEN (NOT ((('n') = (`name`)) <=> TRUE)) THEN",
        ),
        (
            "CASE a.qty WHEN 0 THEN 0 WHEN 1 THEN 9 / a.qty + b.qty END > 5",
            "CASE WHEN (NOT (((`qty`) = (0)) <=> TRUE)) AND ((`qty`) = (1)) THEN",
        ),
        ("nvl2(a.name, 9 / a.qty, b.qty) > 1", "CASE WHEN ((`name`) IS NOT NULL) THEN"),
        ("nvl2(a.name, b.qty, 9 / a.qty) > 1", "CASE WHEN ((`name`) IS NULL) THEN"),
        ("coalesce(a.price, 9 / a.qty, b.qty) > 1", "CASE WHEN ((`price`) IS NULL) THEN"),
        ("nvl(a.price, 9 / a.qty + b.qty) > 1", "CASE WHEN ((`price`) IS NULL) THEN"),
        ("ifnull(a.price, 9 / a.qty + b.qty) > 1", "CASE WHEN ((`price`) IS NULL) THEN"),
        (
            "a.qty BETWEEN 1 AND 9 / a.qty + b.qty",
            "CASE WHEN (NOT (((`qty`) >= (1)) <=> FALSE)) THEN",
        ),
        (
            "a.qty IN (0, 9 / a.qty + b.qty)",
            "CASE WHEN (NOT (((`qty`) = (0)) <=> TRUE)) THEN",
        ),
        # A condition over several variables still says something about each.
        ("if(a.flag AND b.flag, 9 / a.qty, b.qty) > 1", "CASE WHEN (`flag`) THEN"),
        (
            "if(a.flag OR b.flag, b.qty, 9 / a.qty) > 1",
            "CASE WHEN (NOT ((`flag`) <=> TRUE)) THEN",
        ),
        ("if(NOT (a.flag OR b.flag), 9 / a.qty, b.qty) > 1", "CASE WHEN (NOT (`flag`)) THEN"),
    ],
)
def test_hoisting_keeps_the_guards_that_stand_in_the_text(text: str, guarded: str) -> None:
    assert f"{guarded} 9 / `qty` END" in compiled(AB.where(text)).shipment.texts


@pytest.mark.parametrize(
    "text",
    [
        "b.flag OR 9 / a.qty > b.qty",
        "CASE b.name WHEN 'n' THEN 9 / a.qty ELSE 0 END > 5",
        "CASE a.name WHEN b.name THEN 9 / a.qty ELSE 0 END > 5",
        "coalesce(b.price, 9 / a.qty) > 1",
        "if(a.flag OR b.flag, 9 / a.qty, 0) > 1",
        "least(9 / a.qty, b.price) > 1",
        "nullif(9 / a.qty, b.price) > 1",
    ],
)
def test_guards_of_other_variables_are_not_made_up(text: str) -> None:
    assert "9 / `qty`" in compiled(AB.where(text)).shipment.texts


# ---- types -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a.qty < b.card", "<(a[`qty`], b[`card`])"),
        ("a.qty = b.price", "=(cast float64(a[`qty`]), b[`price`])"),
        ("a.weight < b.price", "<(cast float64(a[`weight`]), b[`price`])"),
        ("a.weight < b.qty", "<(cast float64(a[`weight`]), cast float64(b[`qty`]))"),
        (
            "a.amount < b.qty",
            "<(a[CAST((`amount`) AS DECIMAL(12,2))], b[CAST((`qty`) AS DECIMAL(12,2))])",
        ),
        ("a.amount < b.price", "<(cast float64(a[`amount`]), b[`price`])"),
        ("a.day < b.ts", "<(a[CAST((`day`) AS TIMESTAMP_LTZ)], b[`ts`])"),
        ("a.ntz < b.ts", "<(a[CAST((`ntz`) AS TIMESTAMP_LTZ)], b[`ts`])"),
        ("a.name = b.card", "=(a[try_cast((`name`) AS BIGINT)], b[`card`])"),
        ("a.qty + b.qty > 1.5", ">(cast decimal64(+(a[`qty`], b[`qty`])), 15)"),
        ("a.amount + b.amount > 1", ">(+(a[`amount`], b[`amount`]), 100)"),
        ("a.amount * b.amount > 0.5", ">(*(a[`amount`], b[`amount`]), 5000)"),
        ("a.qty / b.qty > 0.5", ">(/(cast float64(a[`qty`]), cast float64(b[`qty`])), 0.5)"),
        ("a.day - b.day > INTERVAL 2 DAYS", ">(-(a[`day`], b[`day`]), 172800000000)"),
        ("a.ntz - b.ntz > INTERVAL 2 HOURS", ">(-(a[`ntz`], b[`ntz`]), 7200000000)"),
        ("coalesce(a.qty, b.price) = 1", "=(coalesce(cast float64(a[`qty`]), b[`price`]), 1.0)"),
        ("a.qty IN (b.card, NULL)", "in(cast int64(a[`qty`]), b[`card`], None)"),
    ],
)
def test_operands_are_brought_to_sparks_common_type(text: str, condition: str) -> None:
    assert only(text) == condition


def test_integers_beside_floats_stay_floats_without_ansi() -> None:
    assert only("a.weight < b.qty", ansi=False) == "<(a[`weight`], cast float32(b[`qty`]))"


def test_timestamps_are_subtracted_as_local_times_where_clocks_change() -> None:
    text = "b.ts - a.ts < INTERVAL 5 MINUTES"
    assert only(text, time_zone="America/New_York") == (
        "<(-(b[CAST((`ts`) AS TIMESTAMP_NTZ)], a[CAST((`ts`) AS TIMESTAMP_NTZ)]), 300000000)"
    )
    assert only(text, time_zone="UTC") == "<(-(b[`ts`], a[`ts`]), 300000000)"
    assert only(text, time_zone="+02:00") == "<(-(b[`ts`], a[`ts`]), 300000000)"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("NOT a.qty = b.qty", "not(=(a[`qty`], b[`qty`]))"),
        ("a.qty IS DISTINCT FROM b.qty", "not(<=>(a[`qty`], b[`qty`]))"),
        ("(a.qty > b.qty) IS NOT TRUE", "not(<=>(>(a[`qty`], b[`qty`]), True))"),
        ("(a.qty > b.qty) IS NULL", "is_null(>(a[`qty`], b[`qty`]))"),
        ("a.qty BETWEEN b.qty AND b.card", "and(>=(a[`qty`], b[`qty`]), <=(a[`qty`], b[`card`]))"),
        ("a.flag OR b.flag OR a.qty = b.qty", "or(a[`flag`], b[`flag`], =(a[`qty`], b[`qty`]))"),
        (
            "CASE WHEN a.flag THEN b.qty WHEN b.flag THEN 3 END > 1",
            ">(if(a[`flag`], b[`qty`], if(b[`flag`], 3, None)), 1)",
        ),
        (
            "CASE a.qty WHEN b.qty THEN a.flag ELSE b.flag END",
            "if(=(a[`qty`], b[`qty`]), a[`flag`], b[`flag`])",
        ),
        ("nvl2(a.flag, a.qty, b.qty) = 2", "=(if(not(is_null(a[`flag`])), a[`qty`], b[`qty`]), 2)"),
        ("nullif(a.qty, b.qty) = 1", "=(if(=(a[`qty`], b[`qty`]), None, a[`qty`]), 1)"),
        ("abs(a.qty - b.qty) < 3", "<(abs(-(a[`qty`], b[`qty`])), 3)"),
        ("-(a.qty - b.qty) < -3", "<(neg(-(a[`qty`], b[`qty`])), -3)"),
        ("isnan(a.price - b.price)", "isnan(-(a[`price`], b[`price`]))"),
        ("CAST(a.qty - b.qty AS DOUBLE) > 1", ">(cast float64(-(a[`qty`], b[`qty`])), 1.0)"),
        ("greatest(a.name, b.name) = 'x'", "=(greatest(a[`name`], b[`name`]), 'x')"),
    ],
)
def test_operations_become_the_engines(text: str, condition: str) -> None:
    assert only(text) == condition


# ---- lists -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("b.price > prev(b.price)", ">(b[`price`], b.prev[`price`])"),
        ("prev(b.qty * 2) < b.qty", "<(b.prev[`qty` * 2], b[`qty`])"),
        ("count(b) >= 2", ">=(b.count[], 2)"),
        ("count(b.name) >= 2", ">=(b.count[`name`], 2)"),
        ("sum(b.qty) > a.qty", ">(b.sum[`qty`], a[`qty`])"),
        ("avg(b.qty) > 1", ">(b.avg[`qty`], 1.0)"),
        ("first(b.name) = a.name", "=(b.first[`name`], a[`name`])"),
        ("last(b.ts) <= a.ts", "<=(b.last[`ts`], a[`ts`])"),
        ("max(b.price) - min(b.price) < 3", "<(-(b.max[`price`], b.min[`price`]), 3.0)"),
    ],
)
def test_lists_are_read_element_by_element_or_folded(text: str, condition: str) -> None:
    assert only(text, seq("a", "b+")) == condition


@pytest.mark.parametrize(
    ("fold", "type_"),
    [
        ("sum(b.qty)", BIGINT),
        ("avg(b.qty)", Type("float", 64)),
        ("sum(b.weight)", Type("float", 64)),
        ("sum(b.amount)", Type("decimal", precision=20, scale=2)),
        ("avg(b.amount)", Type("decimal", precision=14, scale=6)),
        ("min(b.name)", Type("string")),
        ("count(b.addr)", BIGINT),
    ],
)
def test_folds_have_sparks_types(fold: str, type_: Type) -> None:
    found = compiled(seq("a", "b+").where(f"{fold} IS NULL"))
    (cell,) = cells_of(found.compiled.conditions[0].expression)
    assert cell.type == type_


def test_members_of_a_repeated_group_are_lists() -> None:
    pattern = seq("a", seq("b", "c").times("+")).where("sum(c.qty) > prev(b.qty)")
    assert compiled(pattern).conditions() == [">(c.sum[`qty`], b.prev[`qty`])"]


# ---- user functions ----------------------------------------------------------------------------


def test_user_functions_run_in_the_engine_on_hoisted_arguments() -> None:
    @udf(returns="double", name="pearson_test")
    def pearson(x: object, y: object) -> object:
        return x

    found = compiled(AB.where("pearson_test(a.tags, b.tags) > 0.9", "PEARSON_TEST(a.tags, 1) = 1"))
    assert found.conditions() == [
        ">(pearson_test(a[`tags`], b[`tags`]), 0.9)",
        "=(pearson_test(a[`tags`], 1), 1.0)",
    ]
    assert found.compiled.masks == ((), ())
    assert pearson(3, 4) == 3


# ---- after the engine --------------------------------------------------------------------------


def test_what_only_spark_can_evaluate_is_tested_on_finished_matches() -> None:
    found = compiled(AB.where("a.name || b.name LIKE '%x'", "a.qty < b.qty"))
    assert found.compiled.after == ("`a`.`name` || `b`.`name` LIKE '%x'",)
    assert found.conditions() == ["<(a[`qty`], b[`qty`])"]
    assert found.shipment.texts == ["`qty`"]


def test_it_is_not_tested_where_a_variable_is_unfilled() -> None:
    pattern = seq("a", "b", "c?").where("a.name LIKE c.name")
    assert compiled(pattern).compiled.after == ("`c` IS NULL OR (`a`.`name` LIKE `c`.`name`)",)


def test_comparisons_side_by_side_are_left_to_spark() -> None:
    assert compiled(AB.where("a.flag = a.qty < b.qty"), typer=_Typer()).compiled.after == (
        "`a`.`flag` = `a`.`qty` < `b`.`qty`",
    )


# ---- collations --------------------------------------------------------------------------------


def test_collated_strings_of_one_collation_compare_by_their_keys() -> None:
    class Collating(LocalTyper):
        def of_row(self, expressions: object) -> list[Type | str]:
            kinds = {"c": Type("binary"), "(": BOOL}
            return [kinds.get(str(e)[0], Type("other")) for e in expressions]  # type: ignore[attr-defined]

    columns = [*_infos(), _info("word", Type("other"))]
    typer = Collating({c.name: c.type for c in columns})
    found = compiled(AB.where("a.word < b.word"), columns=columns, typer=typer)
    assert found.conditions() == ["<(a[collation_key(`word`)], b[collation_key(`word`)])"]
    (left, right) = cells_of(found.compiled.conditions[0].expression)
    assert isinstance(left, Cell)
    assert left.type == right.type == Type("binary")


# ---- inferred keys -----------------------------------------------------------------------------


def keys(pattern: Pattern, strategy: str = "skip till any match") -> tuple[str, ...]:
    return compiled(pattern.within("1 hour").strategy(strategy)).compiled.inferred


def test_equalities_over_all_variables_become_a_key() -> None:
    pattern = seq("a", "!x", "b", "c").where("a.card = b.card AND c.card = b.card", "x.card=a.card")
    found = compiled(pattern.where("a.qty < b.qty").within("1 hour"))
    assert found.compiled.inferred == ("`card`",)
    assert found.conditions() == ["<(a[`qty`], b[`qty`])"]
    assert found.compiled.window == Window("time", 3_600_000_000)


def test_no_key_without_a_window_of_time() -> None:
    pattern = AB.where("a.card = b.card")
    assert compiled(pattern).compiled.inferred == ()
    assert compiled(pattern.within(events=5)).compiled.inferred == ()
    assert keys(pattern) == ("`card`",)


def test_no_key_under_strict_or_consume() -> None:
    pattern = AB.where("a.card = b.card")
    assert keys(pattern, "strict") == ()
    consuming = pattern.within("1 hour").consumption("consume")
    assert compiled(consuming).compiled.inferred == ()


def test_no_key_if_a_variable_stays_untied() -> None:
    assert keys(seq("a", "b", "c").where("a.card = b.card")) == ()
    assert keys(seq("a", "!x", "b").where("a.card = b.card")) == ()


def test_a_negated_variable_ties_nothing_together() -> None:
    assert keys(seq("a", "!x", "b").where("a.card = x.card AND x.card = b.card")) == ()


def test_no_key_if_an_unfilled_variable_was_the_link() -> None:
    assert keys(seq("a", "b?", "c").where("a.card = b.card AND b.card = c.card")) == ()
    linked = "a.card = b.card AND b.card = c.card AND a.card = c.card"
    assert keys(seq("a", "b?", "c").where(linked)) == ("`card`",)


def test_no_key_if_a_branch_fills_one_variable_alone() -> None:
    # A row whose card is NULL is a match of {a}; as a key it would be dropped.
    assert keys(seq("a", "b?").where("a.card = b.card")) == ()
    assert keys(any_of("a", "b").where("a.card = b.card")) == ()


def test_no_key_from_computed_or_different_columns() -> None:
    assert keys(AB.where("a.card = b.qty")) == ()
    assert keys(AB.where("a.card + 1 = b.card + 1")) == ()
    assert keys(AB.where("a.card <=> b.card")) == ()


def test_lists_are_tied_by_a_variable_outside() -> None:
    assert keys(seq("a", "b+").where("a.card = b.card")) == ("`card`",)
    group = seq("b", "c").times("+")
    assert keys(group.where("b.card = c.card")) == ()
    assert keys(seq("a", group).where("b.card = c.card AND a.card = b.card")) == ("`card`",)


def test_under_skip_till_next_every_row_must_be_tied_when_it_is_taken() -> None:
    next_ = "skip till next match"
    chain = "a.card = b.card AND b.card = c.card"
    assert keys(seq("a", "b", "c").where(chain), next_) == ()
    assert keys(seq("a", "b", "c").where(f"{chain} AND a.card = c.card"), next_) == ("`card`",)
    assert keys(seq("a", "b+").where("a.card = b.card"), next_) == ("`card`",)
    assert keys(seq("b+", "c").where("c.card = b.card"), next_) == ()


def test_several_keys_are_inferred_in_the_order_of_the_conditions() -> None:
    pattern = all_of("a", "b").where("a.name = b.name", "a.card = b.card", "b.card = a.card")
    assert keys(pattern) == ("`name`", "`card`")


# ---- orders and partitions ---------------------------------------------------------------------


def test_orders_know_direction_nulls_and_type() -> None:
    found = compiled(AB, order_by=["TS", "qty desc", "price ASC NULLS LAST", "addr.zip + 1"],
                     typer=_Typer()).compiled.orders  # fmt: skip
    assert [(o.expression, o.descending, o.nulls_first) for o in found] == [
        ("`ts`", False, True),
        ("`qty`", True, False),
        ("`price`", False, False),
        ("`addr`.zip + 1", False, True),
    ]
    assert [o.type.kind for o in found[:3]] == ["timestamp", "int", "float"]


def test_partition_columns_are_spelled_as_in_the_input() -> None:
    found = compiled(AB, partition_by=["NAME", "`we ird`", "name"]).compiled
    assert found.partition == ("name", "we ird")
    assert compiled(AB, partition_by="card").compiled.partition == ("card",)


def test_negations_without_positive_neighbours_need_the_window() -> None:
    assert compiled(seq("a", no("x")).within("1 hour")).compiled.branches[0].negations


# ---- what the tests above lean on --------------------------------------------------------------


class _Typer(LocalTyper):
    """Whatever it cannot type is what the comparison in it makes of it."""

    def __init__(self) -> None:
        super().__init__({c.name: c.type for c in _infos()})

    def of_row(self, expressions: object) -> list[Type | str]:
        given = super().of_row(expressions)  # type: ignore[arg-type]
        return [
            (BOOL if {"<", ">"} & set(str(text)) else Type("int", 32))
            if isinstance(type_, str)
            else type_
            for text, type_ in zip(expressions, given, strict=True)  # type: ignore[call-overload]
        ]

    def of_match(self, expressions: object, variables: object) -> list[Type | str]:
        return [BOOL for _ in expressions]  # type: ignore[attr-defined]


def _infos() -> list[object]:
    from tests.compiling import INFOS

    return list(INFOS)


def _info(name: str, type_: Type) -> object:
    from spark_cep.expressions.schema import ColumnInfo

    return ColumnInfo(name, type_)
