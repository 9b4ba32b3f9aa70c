"""The plan as HTML: the picture, and beside it the statistics that it was chosen from.

Notebooks show the fragment that is also in the page. It has no script, no style sheet and no
reference to anything outside, so it can be mailed or kept with a log. Its colours are those of the
page around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from spark_cep.explanation import numbers
from spark_cep.explanation.drawing import draw_plan
from spark_cep.explanation.facts import (
    candidate_rates,
    condition_selectivities,
    cost_unit,
    plan_title,
    rejected_plans,
)
from spark_cep.explanation.svg import Markup, join_markup, make_element
from spark_cep.explanation.text import ReportSection, stage_sections, summary_section

if TYPE_CHECKING:
    from spark_cep.explanation.facts import PlanFacts


_MONOSPACE = "font-family:ui-monospace,Menlo,Consolas,monospace"
_CELL = "padding:2px 14px 2px 0;text-align:left;vertical-align:top"
_NUMBER = "padding:2px 14px 2px 0;text-align:right;vertical-align:top"
_HEAD = "border-bottom:1px solid #88888880;font-weight:600;"


def render_page(plans: Sequence[PlanFacts]) -> str:
    """An HTML document with the plans of one DataFrame."""
    head = make_element(
        "head",
        Markup('<meta charset="utf-8"/>'),
        make_element("title", " + ".join(plan_title(facts) for facts in plans)),
    )
    body = make_element("body", *map(render_fragment, plans), style="margin:24px")
    return "<!doctype html>\n" + make_element(
        "html", head, body, lang="en", style="color-scheme:light dark"
    )


def render_fragment(facts: PlanFacts) -> Markup:
    """The HTML of one plan, as a notebook shows it."""
    # In the order of the questions: which plan, why, instead of which, from which numbers.
    tables = join_markup(
        _render_section(summary_section(facts)),
        _considered_plans(facts),
        _rate_table(facts),
        _selectivity_table(facts),
        _render_list("Invariants", facts.get("invariants") or []),
    )
    beside = make_element(
        "div",
        make_element("div", draw_plan(facts), style="flex:0 1 auto;min-width:260px"),
        make_element("div", tables, style="flex:1 1 420px"),
        style="display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start",
    )
    heading = make_element(
        "div",
        f"Match #{facts['number']}: ",
        make_element(
            "code", str(facts["pattern"]), style=f"{_MONOSPACE};color:inherit;background:none"
        ),
        style="font-size:15px;font-weight:600;margin-bottom:12px",
    )
    where = make_element(
        "div",
        *[make_element("div", _render_section(each)) for each in stage_sections(facts)],
        style="display:flex;flex-wrap:wrap;gap:24px",
    )
    return make_element("div", heading, beside, where, style="font-size:13px;line-height:1.5")


def _render_section(section: ReportSection) -> Markup:
    return _render_table(section.title, (), [(label, text) for label, text in section.rows])


def _considered_plans(facts: PlanFacts) -> Markup:
    cost = facts.get("cost")
    chosen = (
        f"{plan_title(facts)} (chosen)",
        numbers.format_amount(cost),
        "",
        str(facts["reason"]),
    )
    others = [
        (name, numbers.format_amount(other), numbers.format_factor(other, cost), reason)
        for name, other, reason in rejected_plans(facts)
    ]
    heads = ("plan", f"pairs{cost_unit(facts)}, estimated", "", "because")
    return _render_table("Plans", heads, [chosen, *others] if others else [], {1, 2})


def _rate_table(facts: PlanFacts) -> Markup:
    rows = [(name, numbers.format_amount(rate)) for name, rate in candidate_rates(facts).items()]
    return _render_table("Rates", ("variable", "candidates in a window"), rows, {1})


def _selectivity_table(facts: PlanFacts) -> Markup:
    rows = [(text, numbers.format_amount(share)) for text, share in condition_selectivities(facts)]
    return _render_table("Selectivities", ("condition", "keeps"), rows, {1})


def _render_list(name: str, texts: Sequence[str]) -> Markup:
    return _render_table(name, (), [(text,) for text in texts])


def _render_table(
    name: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: frozenset[int] | set[int] = frozenset(),
) -> Markup:
    """A table, or nothing without rows. The columns in `numbers` are aligned on the right."""
    if not rows:
        return Markup("")

    def cells(tag: str, texts: Sequence[str], more: str = "") -> Iterator[Markup]:
        for place, text in enumerate(texts):
            yield make_element(tag, text, style=more + (_NUMBER if place in numbers else _CELL))

    head = [make_element("tr", *cells("th", heads, _HEAD))] if heads else []
    body = [make_element("tr", *cells("td", row)) for row in rows]
    caption = make_element("div", name, style="font-weight:600;margin-top:12px")
    table = make_element(
        "table", make_element("tbody", *head, *body), style="border-collapse:collapse"
    )
    return make_element("div", caption, table)
