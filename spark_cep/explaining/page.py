"""The plan as HTML: the picture, and beside it what it was chosen from.

One fragment is the same in a notebook and in a page of its own. It has no script, no style sheet
and no reference to anything outside, so it can be mailed or kept with a log; colours are those of
the page around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from spark_cep.explaining import figures
from spark_cep.explaining.drawing import drawn
from spark_cep.explaining.markup import Markup, element, together
from spark_cep.explaining.planned import rates, rejected, selectivities, title, unit
from spark_cep.explaining.sections import Section, run_where, summary

if TYPE_CHECKING:
    from spark_cep.explaining.planned import Facts

_MONOSPACE = "font-family:ui-monospace,Menlo,Consolas,monospace"
_CELL = "padding:2px 14px 2px 0;text-align:left;vertical-align:top"
_NUMBER = "padding:2px 14px 2px 0;text-align:right;vertical-align:top"
_HEAD = "border-bottom:1px solid #88888880;font-weight:600;"


def page(plans: Sequence[Facts]) -> str:
    """A document of its own with the plans of one DataFrame."""
    head = element(
        "head",
        Markup('<meta charset="utf-8"/>'),
        element("title", " + ".join(title(facts) for facts in plans)),
    )
    body = element("body", *map(fragment, plans), style="margin:24px")
    return "<!doctype html>\n" + element(
        "html", head, body, lang="en", style="color-scheme:light dark"
    )


def fragment(facts: Facts) -> Markup:
    """What a notebook shows."""
    # In the order in which they are asked for: which plan, why, against what, from what.
    tables = together(
        _section(summary(facts)),
        _considered(facts),
        _rates(facts),
        _selectivities(facts),
        _list("Invariants", list(facts.get("invariants") or [])),
    )
    beside = element(
        "div",
        element("div", drawn(facts), style="flex:0 1 auto;min-width:260px"),
        element("div", tables, style="flex:1 1 420px"),
        style="display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start",
    )
    heading = element(
        "div",
        f"Match #{facts['number']}: ",
        element("code", str(facts["pattern"]), style=f"{_MONOSPACE};color:inherit;background:none"),
        style="font-size:15px;font-weight:600;margin-bottom:12px",
    )
    where = element(
        "div",
        *[element("div", _section(each)) for each in run_where(facts)],
        style="display:flex;flex-wrap:wrap;gap:24px",
    )
    return element("div", heading, beside, where, style="font-size:13px;line-height:1.5")


def _section(section: Section) -> Markup:
    return _table(section.title, (), [(label, text) for label, text in section.rows])


def _considered(facts: Facts) -> Markup:
    cost = facts.get("cost")
    chosen = (f"{title(facts)} (chosen)", figures.amount(cost), "", str(facts["reason"]))
    others = [
        (name, figures.amount(other), figures.times(other, cost), reason)
        for name, other, reason in rejected(facts)
    ]
    heads = ("plan", f"pairs{unit(facts)}, estimated", "", "because")
    return _table("Plans", heads, [chosen, *others] if others else [], {1, 2})


def _rates(facts: Facts) -> Markup:
    rows = [(name, figures.amount(rate)) for name, rate in rates(facts).items()]
    return _table("Rates", ("variable", "candidates in a window"), rows, {1})


def _selectivities(facts: Facts) -> Markup:
    rows = [(text, figures.amount(share)) for text, share in selectivities(facts)]
    return _table("Selectivities", ("condition", "keeps"), rows, {1})


def _list(name: str, texts: Sequence[str]) -> Markup:
    return _table(name, (), [(text,) for text in texts])


def _table(
    name: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: frozenset[int] | set[int] = frozenset(),
) -> Markup:
    """`numbers`: the columns that are aligned on the right. Without rows there is no table."""
    if not rows:
        return Markup("")

    def cells(tag: str, texts: Sequence[str], more: str = "") -> Iterator[Markup]:
        for place, text in enumerate(texts):
            yield element(tag, text, style=more + (_NUMBER if place in numbers else _CELL))

    head = [element("tr", *cells("th", heads, _HEAD))] if heads else []
    body = [element("tr", *cells("td", row)) for row in rows]
    caption = element("div", name, style="font-weight:600;margin-top:12px")
    table = element("table", element("tbody", *head, *body), style="border-collapse:collapse")
    return element("div", caption, table)
