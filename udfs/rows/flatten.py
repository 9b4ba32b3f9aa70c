"""The pattern as a program of instructions, in the order in which the text prefers.

    CHAR   the row meets `label`'s variable; go on at `first`, one row later
    SPLIT  try `first`; if that fails, `second`
    START  only before the first row of the partition; END only behind the last
    MATCH  done

Always holds: an instruction is all that the future of a search depends on, besides the row and
what conditions read of the path: no counters, no marks. So "this instruction failed at this row"
can be remembered as one bit. That is why repetitions are copied as often as their bounds say, and
why PERMUTE has one state for each *set* of parts done: 2^n of them, not n! orders.

No cycle is without CHAR, so nothing loops in place. The standard lets an iteration match nothing
only while it is needed for the lower bound, or as the last one. Whether an iteration has consumed
a row is part of the place in the program: `emit` gets two continuations, `consumed` and `empty`,
and the text behind the first row of an iteration is emitted apart from that before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.errors import PatternError

if TYPE_CHECKING:
    from spark_cep.udfs.rows.program import Node

CHAR: Final = 0
SPLIT: Final = 1
START: Final = 2
END: Final = 3
MATCH: Final = 4

# A program of this size takes some seconds to make; PERMUTE of 15 variables has half of it.
MOST_INSTRUCTIONS = 600_000

# Parts that need no instruction, or the same again, are bounded by how often they are written out.
MOST_EMITTED = 4_000_000

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Code:
    """`label`: twice the variable's number, plus 1 inside an exclusion."""

    op: Ints
    first: Ints
    second: Ints
    label: Ints
    entry: int


def flatten(pattern: Node) -> Code:
    """
    >>> from spark_cep.udfs.rows.program import Node
    >>> a, b = Node("variable", 0), Node("variable", 1)
    >>> code = flatten(Node("concat", parts=(Node("repeat", parts=(a,), low=1, high=None), b)))
    >>> list(zip(code.op.tolist(), code.first.tolist(), code.second.tolist())), code.entry
    ([(4, 0, 0), (0, 0, 0), (1, 3, 1), (0, 2, 0)], 3)
    """
    flattening = _Flattening()
    entry = flattening.emit(pattern, _Ways(0, 0), excluded=False)
    op, first, second, label = np.array(flattening.instructions, np.int32).T.copy()
    return Code(op, first, second, label, entry)


@dataclass(frozen=True)
class _Ways:
    """Where to go on: `consumed` if the innermost iteration has taken a row, else `empty`."""

    consumed: int
    empty: int

    def after_a_row(self) -> _Ways:
        return _Ways(self.consumed, self.consumed)

    @property
    def differ(self) -> bool:
        return self.consumed != self.empty


class _Flattening:
    """Emits from the end to the start, so that every continuation is known; equal instructions
    are one instruction."""

    def __init__(self) -> None:
        self.instructions: list[tuple[int, int, int, int]] = [(MATCH, 0, 0, 0)]
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._nullable: dict[int, bool] = {}
        self._emitted = 0

    def emit(self, node: Node, ways: _Ways, *, excluded: bool) -> int:  # noqa: PLR0911
        self._emitted += 1
        if self._emitted > MOST_EMITTED:
            raise _too_large("the pattern")
        if node.kind == "variable":
            return self._add(CHAR, ways.consumed, label=2 * node.variable + excluded)
        if node.kind == "empty":
            return ways.empty
        if node.kind in ("start", "end"):
            return self._add(START if node.kind == "start" else END, ways.empty)
        if node.kind == "exclude":
            return self.emit(node.parts[0], ways, excluded=True)
        if node.kind == "repeat":
            return self._repeat(node, ways, excluded)
        if node.kind == "permute":
            return self._permute(node, ways, excluded)
        if node.kind == "alternate":
            return self._choice([self.emit(part, ways, excluded=excluded) for part in node.parts])
        return self._concat(node, ways, excluded)

    def nullable(self, node: Node) -> bool:
        """Whether the node may match no row at all."""
        found = self._nullable.get(id(node))
        if found is None:
            found = self._nullable[id(node)] = self._may_be_empty(node)
        return found

    def _may_be_empty(self, node: Node) -> bool:
        if node.kind == "repeat" and node.low == 0:
            return True
        if node.kind == "alternate":
            return any(map(self.nullable, node.parts))
        return node.kind != "variable" and all(map(self.nullable, node.parts))

    def _concat(self, node: Node, ways: _Ways, excluded: bool) -> int:
        starts = [True]  # whether a part can be reached without a row
        for part in node.parts:
            starts.append(starts[-1] and self.nullable(part))
        for place in range(len(node.parts) - 1, -1, -1):
            part = node.parts[place]
            consumed = ways.consumed
            if place or not ways.differ:
                consumed = self.emit(part, ways.after_a_row(), excluded=excluded)
            empty = consumed
            if ways.differ and starts[place]:
                empty = self.emit(part, ways, excluded=excluded)
            ways = _Ways(consumed, empty)
        return ways.empty

    def _repeat(self, node: Node, ways: _Ways, excluded: bool) -> int:
        if node.high == 0:
            return ways.empty
        body = node.parts[0]

        def once(ways: _Ways) -> int:
            return self.emit(body, ways, excluded=excluded)

        def again(iteration: int, leave: int) -> int:
            return self._choice([iteration, leave] if node.greedy else [leave, iteration])

        unroll = self._empty_iterations if self.nullable(body) else self._iterations
        return unroll(node, ways, once, again)

    def _iterations(
        self,
        node: Node,
        ways: _Ways,
        once: Callable[[_Ways], int],
        again: Callable[[int, int], int],
    ) -> int:
        """Every iteration takes a row: whoever has done one has consumed."""
        low = node.low
        if node.high is None:
            loop = self._reserve()
            done = once(_Ways(loop, loop))
            self._settle(loop, node, done, ways.consumed)
            if low == 0:
                return again(done, ways.empty) if ways.differ else loop
            low -= 1
        else:
            done = ways.consumed
            for count in range(node.high - 1, low - 1, -1):
                done = again(once(_Ways(done, done)), ways.consumed if count else ways.empty)
        for _ in range(low):
            done = once(_Ways(done, done))
        return done

    def _empty_iterations(
        self,
        node: Node,
        ways: _Ways,
        once: Callable[[_Ways], int],
        again: Callable[[int, int], int],
    ) -> int:
        """`consumed` and `empty`: after so many iterations, with and without a row before or
        within this repetition. An empty iteration from the lower bound on is the last."""
        low, consumed, empty = node.low, ways.consumed, ways.empty
        if node.high is None:
            loop = self._reserve()
            self._settle(loop, node, once(_Ways(loop, ways.consumed)), ways.consumed)
            consumed = loop
            empty = again(once(_Ways(loop, ways.empty)), ways.empty) if ways.differ else loop
            counts = range(low - 1, -1, -1)
        else:
            counts = range(node.high - 1, -1, -1)
        for count in counts:
            is_last = count + 1 >= low
            leave = ways if is_last else _Ways(consumed, empty)
            after = once(_Ways(consumed, leave.consumed))
            before = once(_Ways(consumed, leave.empty)) if ways.differ else after
            if count >= low:
                after, before = again(after, ways.consumed), again(before, ways.empty)
            consumed, empty = after, before
        return empty if ways.differ else consumed

    def _permute(self, node: Node, ways: _Ways, excluded: bool) -> int:
        """A state for each set of parts done, each trying the parts left in the text's order:
        that is the lexical order of the permutations."""
        parts = node.parts
        if len(parts) << max(len(parts) - 1, 0) > MOST_INSTRUCTIONS:
            raise _too_large(f"PERMUTE of {len(parts)} parts")
        everything = (1 << len(parts)) - 1
        states = {everything: ways}
        for done in range(everything - 1, -1, -1):
            left = [i for i in range(len(parts)) if not done >> i & 1]
            tried = [(parts[i], states[done | 1 << i]) for i in left]
            consumed = empty = self._choice(
                [self.emit(part, to.after_a_row(), excluded=excluded) for part, to in tried]
            )
            if ways.differ:
                empty = self._choice([self.emit(p, to, excluded=excluded) for p, to in tried])
            states[done] = _Ways(consumed, empty)
        return states[0].empty

    def _choice(self, entries: list[int]) -> int:
        chosen = entries[-1]
        for entry in reversed(entries[:-1]):
            if entry != chosen:
                chosen = self._add(SPLIT, entry, chosen)
        return chosen

    def _reserve(self) -> int:
        """A SPLIT whose ways are not known yet."""
        self.instructions.append((SPLIT, 0, 0, 0))
        return len(self.instructions) - 1

    def _settle(self, loop: int, node: Node, iteration: int, leave: int) -> None:
        first, second = (iteration, leave) if node.greedy else (leave, iteration)
        self.instructions[loop] = (SPLIT, first, second, 0)

    def _add(self, op: int, first: int, second: int = 0, label: int = 0) -> int:
        instruction = (op, first, second, label)
        found = self._known.get(instruction)
        if found is None:
            found = self._known[instruction] = len(self.instructions)
            self.instructions.append(instruction)
            if found > MOST_INSTRUCTIONS:
                raise _too_large("the pattern")
        return found


def _too_large(what: str) -> PatternError:
    return PatternError(
        f"{what} needs more than {MOST_INSTRUCTIONS:,} steps when it is written out",
        hint="repetition counts multiply: nesting them is what usually gets here; PERMUTE has one "
        "state for each set of its parts",
    )
