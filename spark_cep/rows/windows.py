"""Row patterns in window frames: what the SQL front end asks for, and what Spark may compute there.

`udfs/rows/frames.py` gives a frame its meaning. What Spark computes on neighbouring rows, it reads
from the whole partition, so that is allowed only where the pattern keeps it inside the frame.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.expressions.names import quote_name
from spark_cep.expressions.problems import Place, Problems
from spark_cep.udfs.row_program import Frame, RowRead
from spark_cep.udfs.rows.frames import rows_before

if TYPE_CHECKING:
    from spark_cep.expressions.schema import ColumnRequests
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.rows.compiled import CompiledRowPattern
    from spark_cep.udfs.expressions import Expression


@dataclass(frozen=True)
class WindowRequest:
    """A row pattern in a window frame. Each row of the input has a row in the answer.

    `shown`: the columns of the input in the answer. `folds`: the measures that stand for window
    functions; without a match they have the value over no rows, while other measures are NULL.
    `following`: the rows of the frame after the current one, a number or the name of a BIGINT
    column; None: UNBOUNDED. `seeks`: SEEK instead of INITIAL."""

    shown: tuple[str, ...]
    folds: frozenset[str]
    following: int | str | None = None
    seeks: bool = False

    def frame(self, shipment: ColumnRequests) -> Frame:
        if isinstance(self.following, str):
            return Frame(bound=shipment.column(quote_name(self.following)), seeks=self.seeks)
        return Frame(self.following, seeks=self.seeks)

    def text(self) -> str:
        """The frame for explain."""
        end = "unbounded"
        if isinstance(self.following, int):
            end = "current row" if self.following == 0 else str(self.following)
        elif self.following is not None:
            end = "as many as a column says"
        end = end if end == "current row" else f"{end} following"
        return f"each row, in its window frame up to {end}{', seek' if self.seeks else ''}"


_DISTANCE = re.compile(r", (\d+)\) OVER \(")


def check_neighbours(compiled: CompiledRowPattern, shipment: Shipment, frame: Frame) -> None:
    """Refuses conditions that Spark computes on neighbouring rows which may be outside the
    frame."""
    problems = Problems()
    before = rows_before(compiled.pattern, len(compiled.variables))
    for variable, (least, most), (text, _) in zip(
        compiled.variables, before, compiled.conditions, strict=True
    ):
        back, ahead = _reach(variable.define, shipment)
        last = None if most is None or frame.seeks else most + ahead
        in_end = not frame.is_bounded or (
            last is not None and frame.following is not None and last <= frame.following
        )
        if back > least or (ahead and not in_end):
            word = "PREV" if back > least else "NEXT"
            problems.add(
                f"DEFINE {variable.name}: Spark computes this condition, and {word} in it may read "
                "beyond the window frame, where it must be NULL",
                Place.whole(text or ""),
                hint="let other variables come first: PATTERN (a b+); or compute the condition in "
                "a subquery, with lag or lead"
                if word == "PREV"
                else "use UNBOUNDED FOLLOWING, or compute the condition in a subquery, with lead",
            )
    problems.raise_if_any()


def _reach(define: Expression | None, shipment: Shipment) -> tuple[int, int]:
    """How many rows back and ahead Spark reads for a condition."""
    back = ahead = 0
    for leaf in () if define is None else define.walk():
        if not isinstance(leaf, RowRead) or leaf.column is None:
            continue
        text = str(shipment.shipped[leaf.column].expression)
        distance = max(map(int, _DISTANCE.findall(text)), default=0)
        back = max(back, distance if "lag(" in text else 0)
        ahead = max(ahead, distance if "lead(" in text else 0)
    return back, ahead
