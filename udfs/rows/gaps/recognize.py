"""Which row patterns are points with gaps between them, and why the others are not.

In `R Z* B Z* M` the variables R, B and M take one row each, the *points*; Z takes what lies
between, a *gap*. Where a gap asks nothing of the match so far, a match is known by its points:
which rows lie in a gap follows from where it begins and ends. So matches can be found by joining
the points, and preferment is an order of their rows: a greedy gap prefers the latest next point,
a reluctant one the earliest, the first gap before the second.

Always holds: what is recognized has exactly the matches that the kernel finds. Whatever is not
certainly so is not recognized, with a reason that the user can read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.rows.gaps.conditions import Crossing, NoGaps, Resolver, Source, conjunction
from spark_cep.udfs.rows.leaves import is_physical, under_test

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.rows.program import Node, RowProgram

# Candidates are bits of a mask of 64.
MOST_POINTS: Final = 60


@dataclass(frozen=True)
class Point:
    """One row. `label` as in `Block`; `alone`: what it asks of the row and its neighbours."""

    variable: int
    label: int
    alone: Expression | None = None


@dataclass(frozen=True)
class Gap:
    """`low`..`high` rows (None: no end), each of which meets `condition`."""

    variable: int
    label: int
    low: int
    high: int | None
    greedy: bool
    condition: Expression | None = None


@dataclass(frozen=True)
class Gapped:
    """`gaps[k]`: what lies between point k and the next, None where they are adjacent; the last
    is what lies behind the last point. `crossing`: conditions over several points, their cells
    reading `sources`."""

    points: tuple[Point, ...]
    gaps: tuple[Gap | None, ...]
    crossing: tuple[Crossing, ...]
    sources: tuple[Source, ...]


def recognized(program: RowProgram) -> Gapped | str:
    """The points and gaps of a pattern, or why it is not made of them."""
    try:
        return _recognized(program)
    except NoGaps as no:
        return no.reason


def _recognized(program: RowProgram) -> Gapped:
    names = [variable.name for variable in program.variables]
    parts = list(_parts(program.pattern, excluded=False))
    points, gaps = _placed(parts, names)
    fillers = {gap.variable: _filler(program, gap.variable) for gap in gaps if gap is not None}
    resolver = Resolver(tuple(point.variable for point in points), names)
    for place, point in enumerate(points):
        define = program.variables[point.variable].define
        if define is not None:
            resolver.add(define, place)
    return Gapped(
        tuple(
            Point(point.variable, point.label, conjunction(resolver.alone[place]))
            for place, point in enumerate(points)
        ),
        tuple(gap and _filled(gap, fillers) for gap in gaps),
        tuple(resolver.crossing),
        tuple(resolver.sources),
    )


# ---- the shape ---------------------------------------------------------------------------------


def _parts(node: Node, *, excluded: bool) -> Iterator[Point | Gap]:
    """What the pattern is a sequence of."""
    if node.kind == "variable":
        yield Point(node.variable, 2 * node.variable + excluded)
    elif node.kind == "concat":
        for part in node.parts:
            yield from _parts(part, excluded=excluded)
    elif node.kind == "exclude":
        yield from _parts(node.parts[0], excluded=True)
    elif node.kind == "repeat":
        yield from _repeated(node, excluded)
    elif node.kind != "empty":
        raise NoGaps(f"the pattern has {_WORDS[node.kind]}")


_WORDS: Final = {
    "alternate": "alternatives", "permute": "PERMUTE", "start": "the anchor ^",
    "end": "the anchor $",
}  # fmt: skip


def _repeated(node: Node, excluded: bool) -> Iterator[Point | Gap]:
    (body,) = node.parts
    if (node.low, node.high) == (1, 1):
        yield from _parts(body, excluded=excluded)
        return
    if node.high == 0:
        return
    inner = excluded
    while body.kind == "exclude" or (body.kind == "concat" and len(body.parts) == 1):
        inner = inner or body.kind == "exclude"
        body = body.parts[0]
    if body.kind != "variable":
        raise NoGaps("a group is repeated")
    label = 2 * body.variable + inner
    yield Gap(body.variable, label, node.low, node.high, node.greedy)


def _placed(parts: list[Point | Gap], names: list[str]) -> tuple[list[Point], list[Gap | None]]:
    points: list[Point] = []
    gaps: list[Gap | None] = []
    for part in parts:
        if isinstance(part, Point):
            points.append(part)
            gaps.append(None)
        elif not points:
            raise NoGaps(f"the pattern begins with the repeated {names[part.variable]}")
        elif gaps[-1] is not None:
            raise NoGaps(
                f"{names[gaps[-1].variable]} and {names[part.variable]}, side by side, are both "
                "repeated"
            )
        else:
            gaps[-1] = part
    _check(points, gaps, names)
    return points, gaps


def _check(points: list[Point], gaps: list[Gap | None], names: list[str]) -> None:
    if not any(gaps[:-1]):
        raise NoGaps("no variable between two others is repeated")
    if len(points) > MOST_POINTS:
        raise NoGaps(f"the pattern has more than {MOST_POINTS} single rows")
    variables = [point.variable for point in points]
    for variable in variables:
        if variables.count(variable) > 1:
            raise NoGaps(f"{names[variable]} stands in several places")
    for gap in gaps:
        if gap is not None and gap.variable in variables:
            raise NoGaps(f"{names[gap.variable]} stands both alone and repeated")


# ---- gaps --------------------------------------------------------------------------------------


def _filler(program: RowProgram, variable: int) -> Expression | None:
    """What the rows of a gap have to meet."""
    name, define = program.variables[variable].name, program.variables[variable].define
    if define is None:
        return None
    condition = under_test(define, variable)
    if not is_physical(condition):
        raise NoGaps(f"the condition of the repeated {name} reads the match so far")
    return condition


def _filled(gap: Gap, fillers: Mapping[int, Expression | None]) -> Gap:
    return Gap(gap.variable, gap.label, gap.low, gap.high, gap.greedy, fillers[gap.variable])
