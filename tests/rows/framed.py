"""Row patterns in window frames by the definition: for each row that was not skipped, the reference
matches the rows of the frame as if they were the whole partition. So PREV and NEXT end with the
frame, and nothing is shared with the engine, which searches in the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from spark_cep.udfs.row_program import Frame, MatchNumber, RowPatternNode
from spark_cep.udfs.rows.frames import bind_frame
from spark_cep.udfs.rows.leaves import has_anchor
from tests.rows.programs import K, T, X, answer, cases, compare, current, last
from tests.rows.reference import Labels, Reference, Row, Seen, SkipError, value

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import RowProgram


def framed(case: RowProgram, **frame: Any) -> RowProgram:
    return replace(case, rows="each row", frame=Frame(**frame))


def found(case: RowProgram, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """(key, time, *measures) of each row, by the engine."""
    return answer(bind_frame(case), rows)


def expected(case: RowProgram, rows: Sequence[Row], budget: int = 100_000) -> list[tuple[Any, ...]]:
    """The same by the definition."""
    shown: list[tuple[Any, ...]] = []
    for key in sorted({row[K] for row in rows}):
        ordered = sorted((row for row in rows if row[K] == key), key=lambda row: row[T])
        next_search = 0
        for place, row in enumerate(ordered):
            match = None
            if place >= next_search:
                visible = ordered[place : _frame_end(case, ordered, place)]
                match = _match(case, visible, budget)
                if match is not None:
                    next_search = place + _skip(case, *match)
            measures = _measures(case, ordered[place:], None)
            if match is not None:
                measures = _measures(case, visible, match)
            shown.append((row[K], row[T], *measures))
    return shown


def _frame_end(case: RowProgram, ordered: Sequence[Row], place: int) -> int:
    assert case.frame is not None
    following = case.frame.following
    if case.frame.bound is not None:
        following = ordered[place][case.frame.bound]
    return len(ordered) if following is None else place + following + 1


def _match(case: RowProgram, visible: Sequence[Row], budget: int) -> tuple[int, Labels] | None:
    assert case.frame is not None
    starts = range(len(visible)) if case.frame.seeks else range(1)
    for start in starts:
        labels = Reference(case, visible, budget).match(start, 1)
        if labels is not None:
            return start, labels
    return None


def _skip(case: RowProgram, start: int, labels: Labels) -> int:
    """How far it is from the current row to the next search."""
    if not labels or case.skip.kind == "next row":
        return 1
    if case.skip.kind == "past last row":
        return start + len(labels)
    places = [place for place, (v, _) in enumerate(labels) if v in case.skip.variables]
    if not places:
        raise SkipError("has nowhere to go")
    to = places[0] if case.skip.kind == "first" else places[-1]
    if start + to == 0:
        raise SkipError("would go to the first row")
    return start + to


def _measures(
    case: RowProgram, visible: Sequence[Row], match: tuple[int, Labels] | None
) -> list[Any]:
    start, labels = (0, ()) if match is None else match
    last = start + len(labels) - 1 if labels else None
    seen = Seen(visible, start, labels, last, 1)
    return [
        (None if match is None else seen.number) if isinstance(each, MatchNumber)
        else value(each, seen)
        for each in case.measures
    ]  # fmt: skip


def _has_no_anchor(pattern: RowPatternNode) -> bool:
    return not (has_anchor(pattern, "start") or has_anchor(pattern, "end"))


@st.composite
def _compared(draw: st.DrawFn) -> Expression:
    """The row under test and a row near it, or near another row of the match."""
    shift = draw(st.sampled_from([-2, -1, -1, 1, 1, 2]))
    variables = draw(st.sampled_from([None, [0], [1]]))
    near = draw(st.sampled_from([current(shift=shift), last(variables, shift=shift)]))
    return compare(draw(st.sampled_from(["<=", ">=", "<>"])), current(), near)


compared = _compared()


@st.composite
def framed_cases(draw: st.DrawFn) -> tuple[RowProgram, list[Row]]:
    case, rows = draw(cases().filter(lambda drawn: _has_no_anchor(drawn[0].pattern)))
    case = replace(case, within=None)
    case = replace(case, measures=tuple(m for m in case.measures if not _numbers(m)))
    if draw(st.booleans()):
        neighbours = draw(st.dictionaries(st.integers(0, 3), compared, min_size=1, max_size=2))
        case = replace(
            case,
            variables=tuple(
                replace(each, define=neighbours.get(at, each.define))
                for at, each in enumerate(case.variables)
            ),
        )
    bounds: list[dict[str, int]] = [{"following": 0}, {"following": 1}, {"following": 3}]
    frame = draw(st.sampled_from([{}, {}, {"bound": X}, *bounds]))
    # A bound is known and not negative.
    if "bound" in frame:
        rows = [(k, t, abs(x or 0), s, f) for k, t, x, s, f in rows]
    return framed(case, seeks=draw(st.booleans()), **frame), rows


def _numbers(measure: Any) -> bool:
    """A match has no number in a window; the engine's says only whether there is a match."""
    return isinstance(measure, MatchNumber)
