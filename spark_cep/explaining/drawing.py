"""The plan as a picture: one drawing for each branch, one below the other.

Only the facts of explain are read, so a plan can be drawn wherever they are: without Spark, from
a log. Data first: `plan_sketch` places boxes and lines, `svg` writes them down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_cep.explaining.drawn_chain import chain, undecided
from spark_cep.explaining.drawn_joins import joins
from spark_cep.explaining.drawn_runs import runs
from spark_cep.explaining.drawn_tree import tree
from spark_cep.explaining.labels import NARROW_CELLS, Variable
from spark_cep.explaining.planned import (
    Branch,
    Facts,
    binds_late,
    branches,
    is_chain,
    negated,
    title,
    unit,
)
from spark_cep.explaining.sketch import GAP, Sketch, at, box, clipped, stacked
from spark_cep.explaining.svg import svg

if TYPE_CHECKING:
    from spark_cep.explaining.markup import Markup

# An OR of many parts has a branch for each; from here on a branch is one line of text.
_DRAWN_BRANCHES = 6


def drawn(facts: Facts) -> Markup:
    """The plan as SVG."""
    return svg(plan_sketch(facts), f"the plan {title(facts)} of {facts['pattern']}")


def plan_sketch(facts: Facts) -> Sketch:
    if not binds_late(facts):
        return runs(facts)
    return stacked(list(_parts(facts)))


def _parts(facts: Facts) -> Iterator[Sketch]:
    every = branches(facts)
    for place, each in enumerate(every[:_DRAWN_BRANCHES]):
        picture = _branch(each, facts)
        heading = f"branch {place + 1} of {len(every)}"
        yield _under(heading, picture) if len(every) > 1 else picture
    rest = every[_DRAWN_BRANCHES:]
    for place, each in enumerate(rest, _DRAWN_BRANCHES + 1):
        names = " ".join(each.variables)
        yield Sketch((box([f"branch {place}: {clipped(names)}"], hint=names),))
    boxes, x = [], 0.0
    for name in negated(facts):
        boxes.append(at(Variable(name, "NOT ", "not").box(facts, NARROW_CELLS), x, 0))
        x += boxes[-1].width + GAP
    if unit(facts) and any(each.nodes for each in every):
        yield Sketch((box([f"pairs and matches are for{unit(facts)}"]),))
    if boxes:
        yield _under("tested as soon as the variables around it are bound", Sketch(tuple(boxes)))


def _branch(branch: Branch, facts: Facts) -> Sketch:
    kind = facts["plan"]
    if kind == "tree":
        return tree(branch, facts)
    if kind == "hybrid":
        return joins(branch, facts)
    if branch.shape is None:
        return undecided(branch, facts)
    draws_chain = is_chain(branch.shape) and kind != "zstream"
    return chain(branch, facts) if draws_chain else joins(branch, facts)


def _under(heading: str, picture: Sketch) -> Sketch:
    return stacked([Sketch((box([heading]),)), picture], gap=GAP / 3)
