"""Row patterns in window frames (feature R020): one row of the answer for each row of the input.

The search for the current row sees the rows of its frame, ROWS BETWEEN CURRENT ROW AND ..., and no
others: PREV and NEXT beyond the frame are NULL. Three rewritings make this an ordinary program:

- *bounds*: a match from a row ends at the latest with the row's frame (`RowTable.limits`).
- *guards*: a read that may leave the frame is tested first, by the positions of the rows. Where
  the pattern alone says that it cannot, as PREV in `b` of (a b+), nothing is added.
- *SEEK*: `skipped*? (pattern)`. A reluctant repetition takes as few rows as possible, so the first
  row at which there is a match is found. The rows of `skipped` belong to no match, so "all rows of
  the match" becomes the set of the other variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import BIGINT, BOOL, Call, Constant, Expression, UserCall
from spark_cep.udfs.row_program import (
    Aggregate,
    Classifier,
    RowPatternNode,
    RowProgram,
    RowRead,
    RowVariable,
)
from spark_cep.udfs.rows.leaves import longest_match, resolve_tested_row
from spark_cep.udfs.rows.search import MatchBlock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_cep.udfs.row_program import Frame, VariableSet


# The variable that takes the rows before the match of SEEK. No user can write the name.
SKIPPED: Final = ""


# ---- the program -------------------------------------------------------------------------------


def bind_frame(program: RowProgram) -> RowProgram:
    """The program with the frame's meaning in its pattern, its conditions and its measures. Raises
    CepError for what could read beyond the frame unseen."""
    frame = program.frame
    if frame is None:
        return program
    pattern, variables = program.pattern, program.variables
    whole: VariableSet = None
    if frame.seeks:
        whole = frozenset(range(len(variables)))
        skipped = RowPatternNode("variable", len(variables))
        prefix = RowPatternNode("repeat", parts=(skipped,), low=0, high=None, greedy=False)
        pattern = RowPatternNode("concat", parts=(prefix, pattern))
        variables = (*variables, RowVariable(SKIPPED))
    before = rows_before(pattern, len(variables))
    binding = _FrameBinding(frame, len(program.columns), whole)
    return replace(
        program,
        pattern=pattern,
        variables=tuple(
            each
            if each.define is None
            else replace(each, define=binding.condition(each.define, number, before[number]))
            for number, each in enumerate(variables)
        ),
        measures=tuple(binding.over_match(each) for each in program.measures),
    )


@dataclass(frozen=True)
class _FrameBinding:
    """`position`: the column with the position of each row. `whole`: the variables of a match."""

    frame: Frame
    position: int
    whole: VariableSet

    def condition(
        self, define: Expression, variable: int, before: tuple[int, int | None]
    ) -> Expression:
        """`before`: the least and the most rows between the first row of the frame and a row of
        the variable."""
        return self._bound(resolve_tested_row(define, variable), before)

    def over_match(self, leaf: Expression) -> Expression:
        """The leaf without the rows that SEEK skips."""
        if self.whole is None or not isinstance(leaf, RowRead | Aggregate | Classifier):
            return leaf
        is_current = not isinstance(leaf, Aggregate) and leaf.anchor == "current"
        if is_current or leaf.variables is not None:
            return leaf
        return replace(leaf, variables=self.whole)

    def _bound(self, node: Expression, before: tuple[int, int | None]) -> Expression:
        if isinstance(node, Call | UserCall):
            return replace(
                node, arguments=tuple(self._bound(each, before) for each in node.arguments)
            )
        leaf = self.over_match(node)
        if isinstance(leaf, Aggregate) and leaf.argument is not None:
            self._check_argument(leaf.argument)
        if isinstance(leaf, RowRead) and leaf.shift and not self._is_inside(leaf, before):
            return Call("if", (self._test(leaf), leaf, Constant(None, leaf.type)), leaf.type)
        if isinstance(leaf, Classifier) and leaf.shift < 0 and self.whole is not None:
            skipped = Call("=", (leaf, Constant(max(self.whole) + 1, leaf.type)), BOOL)
            return Call("if", (skipped, Constant(None, leaf.type), leaf), leaf.type)
        return leaf

    def _is_inside(self, leaf: RowRead, before: tuple[int, int | None]) -> bool:
        """Whether the pattern alone says that the read stays in the frame."""
        least, most = before
        if leaf.shift > 0:
            if not self.frame.is_bounded:
                return True
            following = self.frame.following
            known = leaf.anchor == "current" and following is not None and most is not None
            return known and (most or 0) + leaf.shift <= (following or 0)
        return leaf.anchor == "current" and least + leaf.shift >= 0

    def _test(self, leaf: RowRead) -> Expression:
        """Whether the row that is read is in the frame."""
        at = replace(leaf, column=self.position, type=BIGINT, shift=0)
        read = Call("+", (at, Constant(leaf.shift, BIGINT)), BIGINT)
        begin = RowRead("first", self.position, BIGINT)
        if leaf.shift < 0:
            return Call(">=", (read, begin), BOOL)
        following: Expression = Constant(self.frame.following, BIGINT)
        if self.frame.bound is not None:
            following = RowRead("first", self.frame.bound, BIGINT)
        return Call("<=", (read, Call("+", (begin, following), BIGINT)), BOOL)

    def _check_argument(self, argument: Expression) -> None:
        if any(isinstance(each, RowRead | Classifier) and each.shift for each in argument.walk()):
            raise CepError(
                "an aggregate of DEFINE whose argument has both CLASSIFIER() and PREV or NEXT "
                "cannot be bounded by a window frame",
                hint="compute the neighbour's value in a subquery, with lag or lead",
            )


# ---- where a variable may be -------------------------------------------------------------------


def rows_before(pattern: RowPatternNode, count: int) -> list[tuple[int, int | None]]:
    """For each variable the least and the most rows of a match in front of one of its rows; None:
    there is no bound.

    >>> a, b = RowPatternNode("variable", 0), RowPatternNode("variable", 1)
    >>> plus = RowPatternNode("repeat", parts=(b,), low=1, high=None)
    >>> rows_before(RowPatternNode("concat", parts=(a, plus)), 2)
    [(0, 0), (1, None)]
    """
    found = _RowsBefore([(-1, 0)] * count)
    found.visit(pattern, 0, 0)
    return [(max(least, 0), most) for least, most in found.ranges]


@dataclass
class _RowsBefore:
    """`ranges`: by variable; a least of -1: the variable was not met yet."""

    ranges: list[tuple[int, int | None]] = field(default_factory=list)

    def visit(self, node: RowPatternNode, low: int, high: int | None) -> None:
        """`low`, `high`: the rows in front of the node."""
        if node.kind == "variable":
            least, most = self.ranges[node.variable]
            first = least < 0
            self.ranges[node.variable] = (
                low if first else min(least, low),
                high if first else None if most is None or high is None else max(most, high),
            )
        elif node.kind == "concat":
            for part in node.parts:
                self.visit(part, low, high)
                low, high = low + shortest_match(part), _plus(high, longest_match(part))
        elif node.kind == "permute":
            for part in node.parts:
                most = high
                for other in node.parts:
                    most = most if other is part else _plus(most, longest_match(other))
                self.visit(part, low, most)
        elif node.kind == "repeat":
            longest, most = longest_match(node.parts[0]), high
            if longest != 0:
                further = None if node.high is None else max(node.high - 1, 0)
                repeats = further is None or further > 0
                if repeats:
                    most = (
                        None
                        if further is None or longest is None
                        else _plus(high, further * longest)
                    )
            self.visit(node.parts[0], low, most)
        else:
            for part in node.parts:
                self.visit(part, low, high)


def _plus(rows: int | None, more: int | None) -> int | None:
    return None if rows is None or more is None else rows + more


def shortest_match(node: RowPatternNode) -> int:
    """The fewest rows of a match."""
    if node.kind == "variable":
        return 1
    lengths = [shortest_match(part) for part in node.parts]
    if node.kind == "repeat":
        return node.low * lengths[0]
    return min(lengths, default=0) if node.kind == "alternate" else sum(lengths)


# ---- the answer --------------------------------------------------------------------------------


def with_every_row(blocks: Iterable[MatchBlock], size: int) -> Iterator[MatchBlock]:
    """The blocks with an unmatched row for each of the `size` rows at which no match begins. The
    blocks come in the order of their rows."""
    done = 0
    for block in blocks:
        if len(block):
            stop = int(block.start[-1]) + 1
            yield _filled(block, done, stop)
            done = stop
    if done < size:
        nothing = np.zeros(0, np.int64)
        empty = MatchBlock(nothing, nothing, nothing, np.zeros(0, np.int32), np.zeros(1, np.int64))
        yield _filled(empty, done, size)


def _filled(block: MatchBlock, begin: int, stop: int) -> MatchBlock:
    """The rows [begin, stop), each with its match or unmatched."""
    number = np.full(stop - begin, -1, np.int64)
    length = np.zeros(stop - begin, np.int64)
    at = block.start - begin
    number[at], length[at] = block.number, block.length
    bounds = np.concatenate([[0], np.cumsum(length)])
    return MatchBlock(np.arange(begin, stop), length, number, block.labels, bounds)
