"""Drawn plans: all variables are there, no label covers another, nothing leaves the picture."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest

from spark_cep.explanation.drawing import draw_plan, sketch_plan
from spark_cep.explanation.facts import plan_title
from spark_cep.explanation.svg import MARGIN, PADDING, Box, Line, Sketch, clip_text, text_width
from tests.explained import branch, chain, facts

SVG = "{http://www.w3.org/2000/svg}"
LONG = [f"the_very_long_name_of_variable_{n}_so_it_is" for n in range(3)]
WIDE = ["温度", "湿度", "气压"]


def bushy(names: list[str]) -> Any:
    """A balanced tree."""
    if len(names) == 1:
        return names[0]
    half = len(names) // 2
    return [bushy(names[:half]), bushy(names[half:])]


def hybrid(names: list[str], eager: list[str]) -> dict[str, Any]:
    lazy = [name for name in names if name not in eager]
    return facts("hybrid", names, branches=[branch(names, chain(*eager, *lazy), eager)])


def alternatives(count: int) -> dict[str, Any]:
    """An OR of so many pairs."""
    pairs = [[f"a{n}", f"b{n}"] for n in range(count)]
    names = [name for pair in pairs for name in pair]
    return facts("lazy-chain", names, branches=[branch(pair, chain(*pair)) for pair in pairs])


def runs(parts: Any, names: list[str], strategy: str = "skip till next match") -> dict[str, Any]:
    return facts("eager", names, strategy=strategy, parts=parts, branches=None)


def event(name: str) -> dict[str, Any]:
    return {"kind": "event", "variable": name}


def of(kind: str, *parts: Any, **bounds: int | None) -> dict[str, Any]:
    return {"kind": kind, "parts": list(parts), **bounds}


NESTED = of(
    "seq",
    event("a"),
    of("repeat", of("seq", event("b"), event("c")), low=1, high=None),
    of("any", event("d"), of("all", event("e"), of("optional", event("f")))),
    {"kind": "not", "variable": "g"},
    of("optional", of("repeat", event("h"), low=2, high=4)),
)


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for count in (1, 2, 3, 8):
        names = list("abcdefgh"[:count])
        back = chain(*reversed(names))
        yield f"chain {count}", facts("lazy-chain", names, back)
        yield f"eager {count}", facts("eager", names, chain(*names))
        yield f"zstream {count}", facts("zstream", names, bushy(names))
        yield f"left-deep zstream {count}", facts("zstream", names, back)
        yield f"tree {count}", facts("tree", names)
        yield f"undecided {count}", facts("lazy-chain", names)
        yield f"hybrid {count}", hybrid(names, names[: (count + 1) // 2])
        yield f"runs {count}", runs(None, names)
    for kind, shape in (("lazy-chain", chain(*LONG)), ("zstream", bushy(LONG)), ("tree", None)):
        yield f"{kind}, long names", facts(kind, LONG, shape)
    yield "wide letters", facts("zstream", WIDE, bushy(WIDE))
    yield "three branches", alternatives(3)
    yield "thirty branches", alternatives(30)
    yield "a nested pattern", runs(NESTED, list("abcdefgh"))
    old = facts("lazy-chain", ["a", "b"])
    for name in ("branches", "statistics", "cost", "rung", "shown", "invariants"):
        del old[name]
    yield "the barest facts", old
    narrow = facts("zstream", ["a", "b", "c"], [["a", "b"], "c"], statistics=None)
    narrow["before"]["candidates"] = {"a": [], "b": [], "c": []}
    narrow["branches"][0]["nodes"].pop(0)
    yield "joins wider than what they join", narrow
    negated = facts("lazy-chain", ["a", "b"], chain("b", "a"))
    negated["before"]["candidates"]["x"] = ["kind = 'X'"]
    yield "a negated variable", negated
    group = {"kind": "not", "text": "SEQ(x, y)", "variables": ["x", "y"]}
    grouped = facts("lazy-chain", ["a", "b"], chain("b", "a"))
    grouped["parts"] = of("seq", event("a"), group, event("b"))
    grouped["before"]["candidates"] |= {"x": [], "y": []}
    yield "a negated group", grouped


CASES = dict(cases())
ANY = pytest.mark.parametrize("plan", CASES.values(), ids=CASES)


def meet(one: Box, two: Box) -> bool:
    return (
        min(one.x + one.width, two.x + two.width) > max(one.x, two.x) + 0.01
        and min(one.y + one.height, two.y + two.height) > max(one.y, two.y) + 0.01
    )


def crosses(line: Line, box: Box) -> bool:
    """Whether a line passes through the inside of a box, walked in small steps."""
    inset = 1.0
    for (x, y), (to_x, to_y) in zip(line.points, line.points[1:], strict=False):
        steps = int(max(abs(to_x - x), abs(to_y - y)) / 2) + 1
        for step in range(steps + 1):
            at_x, at_y = x + (to_x - x) * step / steps, y + (to_y - y) * step / steps
            if (
                box.x + inset < at_x < box.x + box.width - inset
                and box.y + inset < at_y < box.y + box.height - inset
            ):
                return True
    return False


def labels(sketch: Sketch) -> list[Box]:
    return [box for box in sketch.boxes if box.style != "frame"]


@ANY
def test_no_label_covers_another(plan: dict[str, Any]) -> None:
    for one, two in combinations(labels(sketch_plan(plan)), 2):
        assert not meet(one, two), (one, two)


@ANY
def test_no_line_runs_through_a_label(plan: dict[str, Any]) -> None:
    sketch = sketch_plan(plan)
    for line in sketch.lines:
        for box in labels(sketch):
            assert not crosses(line, box), (line, box)


@ANY
def test_labels_hold_their_text(plan: dict[str, Any]) -> None:
    for box in labels(sketch_plan(plan)):
        room = box.width - (0 if box.style == "note" else 2 * PADDING)
        assert max(map(text_width, box.lines)) <= room + 0.01, box


@ANY
def test_everything_is_inside_the_picture(plan: dict[str, Any]) -> None:
    root = ElementTree.fromstring(draw_plan(plan))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= MARGIN - 0.1
        assert y >= MARGIN - 0.1
        assert x + w <= width
        assert y + h <= height
    for line in root.iter(f"{SVG}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


@ANY
def test_every_variable_occurs(plan: dict[str, Any]) -> None:
    root = ElementTree.fromstring(draw_plan(plan))
    words = {word for text in root.itertext() for word in text.replace(",", " ").split()}
    assert set(plan["before"]["candidates"]) <= words


@ANY
def test_the_picture_needs_nothing_from_outside(plan: dict[str, Any]) -> None:
    root = ElementTree.fromstring(draw_plan(plan))
    tags = {each.tag.removeprefix(SVG) for each in root.iter()}
    assert tags <= {"svg", "g", "rect", "text", "title", "polyline", "polygon"}
    for each in root.iter():
        assert not {"href", "id", "class", "src", "onclick"} & set(each.attrib)


def texts(plan: dict[str, Any]) -> list[str]:
    return [box.lines[0] for box in sketch_plan(plan).boxes if box.lines]


def test_a_chain_takes_its_variables_in_its_order_and_stores_the_rest() -> None:
    plan = facts("lazy-chain", ["a", "b", "c"], chain("c", "a", "b"))
    assert texts(plan) == [
        "q0", "stores a, b", "take c",
        "q1", "stores b", "take a",
        "q2", "take b",
        "match",
    ]  # fmt: skip


def test_an_eager_chain_stores_nothing() -> None:
    plan = facts("eager", ["a", "b"], chain("a", "b"))
    assert texts(plan) == ["q0", "take a", "q1", "take b", "match"]


def test_a_step_says_its_rate_its_conditions_and_its_cost() -> None:
    plan = facts("lazy-chain", ["a", "b"], chain("b", "a"))
    step = next(box for box in sketch_plan(plan).boxes if box.lines[0] == "take a")
    assert step.lines == (
        "take a",
        "10 in a window",
        "ticker = 'A'",
        "a.price < 3 * b.price",
        "≈ 2,000 pairs",
        "≈ 200 matches",
    )


def test_a_picture_says_what_its_costs_are_for() -> None:
    plan = facts("lazy-chain", ["a", "b"], chain("b", "a"), unit="a million rows")
    assert texts(plan)[-1] == "pairs and matches are for a million rows"


def test_a_chain_of_zstream_is_drawn_as_joins() -> None:
    plan = facts("zstream", ["a", "b", "c"], [["a", "b"], "c"])
    assert texts(plan) == ["a b c", "a b", "a", "b", "c"]


def test_parents_stand_above_the_middle_of_what_they_join() -> None:
    sketch = sketch_plan(facts("zstream", list("abcd"), [["a", "b"], ["c", "d"]]))
    by_name = {box.lines[0]: box for box in sketch.boxes}
    assert by_name["a b c d"].y < by_name["a b"].y < by_name["a"].y
    assert by_name["a b"].top[0] == (by_name["a"].top[0] + by_name["b"].top[0]) / 2


def test_a_hybrid_without_an_eager_group_has_buffers_only_and_says_so() -> None:
    found = hybrid(list("abc"), [])
    lines = texts(found)
    assert [line for line in lines if line.startswith(("buffer ", "merge "))] == [
        "merge 2: a b c", "merge 1: a b", "buffer a", "buffer b", "buffer c",
    ]  # fmt: skip
    assert plan_title(found) == "hybrid a→b→c, all bound late"
    assert plan_title(hybrid(list("abc"), list("abc"))) == "hybrid a→b→c, all kept ready"
    assert plan_title(hybrid(list("abc"), list("ab"))) == "hybrid a→b→c"


def test_a_hybrid_frames_the_eager_group_and_numbers_the_merges() -> None:
    sketch = sketch_plan(hybrid(list("abcd"), ["b", "c"]))
    frame = next(box for box in sketch.boxes if box.style == "frame")
    inside = {box.lines[0] for box in labels(sketch) if meet(box, frame)}
    assert inside == {"b c", "b", "c", "kept in the state"}
    outside = {box.lines[0] for box in labels(sketch)} - inside
    assert outside == {"merge 1: b c a", "merge 2: b c a d", "buffer a", "buffer d"}


def test_a_small_tree_has_a_state_for_each_set_of_variables() -> None:
    sketch = sketch_plan(facts("tree", ["a", "b", "c"]))
    states = [box.lines[0] for box in sketch.boxes if box.style != "note"]
    assert states == ["start", "a", "b", "c", "a b", "a c", "b c", "a b c"]
    assert len(sketch.lines) == 3 + 3 * 2 + 3


def test_a_large_tree_is_summed_up() -> None:
    found = texts(facts("tree", list("abcde")))
    assert len(found) == 5 + 3
    assert "all bound" in found


def test_an_order_that_is_open_is_not_drawn_as_decided() -> None:
    assert "each bucket orders them by its own counts" in texts(facts("lazy-chain", ["a", "b"]))


def test_runs_are_drawn_as_the_pattern_says() -> None:
    found = texts(runs(NESTED, list("abcdefgh")))
    for label in ("one of", "all, in any order", "NOT g", "1 or more times", "2 to 4 times"):
        assert label in found
    assert found.count("or nothing") == 2


def test_a_repeated_group_is_one_step_and_none_of_its_variables_is_negated() -> None:
    names = ["a", "(b c)"]
    plan = facts("lazy-chain", names, chain(*names))
    plan["statistics"]["rates"] = {"a": 1, "b": 20, "c": 30}
    plan["before"]["candidates"] = {"a": [], "b": ["kind = 'B'"], "c": ["kind = 'C'"]}
    sketch = sketch_plan(plan)
    group = next(box for box in sketch.boxes if box.lines[0] == "take (b c)")
    assert group.lines[1] == "20 and 30 in a window"
    assert group.lines[2:4] == ("kind = 'B'", "kind = 'C'")
    assert not any(text.startswith("NOT") for text in texts(plan))


def test_a_variable_that_no_branch_binds_is_negated() -> None:
    assert texts(CASES["a negated variable"])[-1] == "NOT x"


def test_a_negated_group_is_one_box() -> None:
    found = texts(CASES["a negated group"])
    assert [text for text in found if text.startswith("NOT")] == ["NOT SEQ(x, y)"]


def test_many_branches_are_listed_after_the_first_few() -> None:
    found = texts(alternatives(30))
    assert "branch 6 of 30" in found
    assert "branch 7: a6 b6" in found


def test_long_names_are_clipped_and_whole_in_the_hint() -> None:
    sketch = sketch_plan(facts("lazy-chain", LONG, chain(*LONG)))
    step = next(box for box in sketch.boxes if box.lines[0].startswith("take "))
    assert step.lines[0].endswith("…")
    assert step.hint.startswith(LONG[0])


def test_wide_letters_take_two_places() -> None:
    assert text_width("温度") == text_width("abcd")
    assert clip_text("温度湿度", 5) == "温度…"


def test_what_users_wrote_cannot_become_markup() -> None:
    bad = "<script>&'\"\x00"
    plan = facts("lazy-chain", ["a", "b"], chain("b", "a"), pattern=bad)
    plan["before"]["candidates"] = {"a": [bad], "b": []}
    root = ElementTree.fromstring(draw_plan(plan))
    assert not list(root.iter(f"{SVG}script"))
    assert "<script>&'\"\ufffd" in [each.text for each in root.iter(f"{SVG}text")]
