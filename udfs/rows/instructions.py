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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.errors import PatternError
from spark_cep.udfs.rows import records as o

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowPatternNode


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
class InstructionList:
    """`label`: twice the variable's number, plus 1 inside an exclusion."""

    op: Ints
    first: Ints
    second: Ints
    label: Ints
    entry: int


def flatten_pattern(pattern: RowPatternNode) -> InstructionList:
    """
    >>> from spark_cep.udfs.row_program import RowPatternNode
    >>> a, b = RowPatternNode("variable", 0), RowPatternNode("variable", 1)
    >>> several = RowPatternNode("repeat", parts=(a,), low=1, high=None)
    >>> code = flatten_pattern(RowPatternNode("concat", parts=(several, b)))
    >>> list(zip(code.op.tolist(), code.first.tolist(), code.second.tolist())), code.entry
    ([(4, 0, 0), (0, 0, 0), (1, 3, 1), (0, 2, 0)], 3)
    """
    flattening = _InstructionEmitter()
    entry = flattening.emit(pattern, _Continuations(0, 0), excluded=False)
    op, first, second, label = np.array(flattening.instructions, np.int32).T.copy()
    return InstructionList(op, first, second, label, entry)


@dataclass(frozen=True)
class _Continuations:
    """Where to go on: `consumed` if the innermost iteration has taken a row, else `empty`."""

    consumed: int
    empty: int

    def after_a_row(self) -> _Continuations:
        return _Continuations(self.consumed, self.consumed)

    @property
    def differ(self) -> bool:
        return self.consumed != self.empty


class _InstructionEmitter:
    """Emits from the end to the start, so that every continuation is known; equal instructions
    are one instruction."""

    def __init__(self) -> None:
        self.instructions: list[tuple[int, int, int, int]] = [(MATCH, 0, 0, 0)]
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._nullable: dict[int, bool] = {}
        self._emitted = 0

    def emit(self, node: RowPatternNode, ways: _Continuations, *, excluded: bool) -> int:  # noqa: PLR0911
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

    def nullable(self, node: RowPatternNode) -> bool:
        """Whether the node may match no row at all."""
        found = self._nullable.get(id(node))
        if found is None:
            found = self._nullable[id(node)] = self._may_be_empty(node)
        return found

    def _may_be_empty(self, node: RowPatternNode) -> bool:
        if node.kind == "repeat" and node.low == 0:
            return True
        if node.kind == "alternate":
            return any(map(self.nullable, node.parts))
        return node.kind != "variable" and all(map(self.nullable, node.parts))

    def _concat(self, node: RowPatternNode, ways: _Continuations, excluded: bool) -> int:
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
            ways = _Continuations(consumed, empty)
        return ways.empty

    def _repeat(self, node: RowPatternNode, ways: _Continuations, excluded: bool) -> int:
        if node.high == 0:
            return ways.empty
        body = node.parts[0]

        def once(ways: _Continuations) -> int:
            return self.emit(body, ways, excluded=excluded)

        def again(iteration: int, leave: int) -> int:
            return self._choice([iteration, leave] if node.greedy else [leave, iteration])

        unroll = self._empty_iterations if self.nullable(body) else self._iterations
        return unroll(node, ways, once, again)

    def _iterations(
        self,
        node: RowPatternNode,
        ways: _Continuations,
        once: Callable[[_Continuations], int],
        again: Callable[[int, int], int],
    ) -> int:
        """Every iteration takes a row: whoever has done one has consumed."""
        low = node.low
        if node.high is None:
            loop = self._reserve()
            done = once(_Continuations(loop, loop))
            self._settle(loop, node, done, ways.consumed)
            if low == 0:
                return again(done, ways.empty) if ways.differ else loop
            low -= 1
        else:
            done = ways.consumed
            for count in range(node.high - 1, low - 1, -1):
                done = again(
                    once(_Continuations(done, done)), ways.consumed if count else ways.empty
                )
        for _ in range(low):
            done = once(_Continuations(done, done))
        return done

    def _empty_iterations(
        self,
        node: RowPatternNode,
        ways: _Continuations,
        once: Callable[[_Continuations], int],
        again: Callable[[int, int], int],
    ) -> int:
        """`consumed` and `empty`: after so many iterations, with and without a row before or
        within this repetition. An empty iteration from the lower bound on is the last."""
        low, consumed, empty = node.low, ways.consumed, ways.empty
        if node.high is None:
            loop = self._reserve()
            self._settle(loop, node, once(_Continuations(loop, ways.consumed)), ways.consumed)
            consumed = loop
            empty = (
                again(once(_Continuations(loop, ways.empty)), ways.empty) if ways.differ else loop
            )
            counts = range(low - 1, -1, -1)
        else:
            counts = range(node.high - 1, -1, -1)
        for count in counts:
            is_last = count + 1 >= low
            leave = ways if is_last else _Continuations(consumed, empty)
            after = once(_Continuations(consumed, leave.consumed))
            before = once(_Continuations(consumed, leave.empty)) if ways.differ else after
            if count >= low:
                after, before = again(after, ways.consumed), again(before, ways.empty)
            consumed, empty = after, before
        return empty if ways.differ else consumed

    def _permute(self, node: RowPatternNode, ways: _Continuations, excluded: bool) -> int:
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
            states[done] = _Continuations(consumed, empty)
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

    def _settle(self, loop: int, node: RowPatternNode, iteration: int, leave: int) -> None:
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


# --------------------------------------------------------------------------------------------------
# What can still matter at each place of a program: which variables may come next, and what of
# the path so far is read further ahead.
#
# Where nothing of the path is read ahead, a failure is a fact about the rows: it holds for every
# path and every search of the partition. Where something is, it holds for all paths that agree in
# just that. A row taken by a variable changes what is read: the last row of A behind a CHAR of A is
# that row, whatever came before, and the one before the last was the last one. So needs are carried
# from the end to the start, through each CHAR, until nothing changes.
# --------------------------------------------------------------------------------------------------


END_BIT: Final = 1 << 63
OVERFLOW_BIT: Final = 62


@dataclass(frozen=True)
class PathNeed:
    """One thing that is read of the path. kind "last" and "first": the row `offset` steps from
    the end of the rows bound to `which` (a set's number, -1: all rows); "last label" and "first
    label": the variable that row is bound to. "fold": aggregate number `which`. "number": the
    match's. "anything": what cannot be told from a few values."""

    kind: str
    which: int = -1
    offset: int = 0


ANYTHING: Final = PathNeed("anything")
VariableSets = Sequence[frozenset[int]]


def first_variables(code: InstructionList) -> npt.NDArray[np.uint64]:
    """For each instruction, a bit for each variable that a row may be next; `END_BIT` if the match
    may end without one. Bit `OVERFLOW_BIT` stands for all variables from there on."""
    found: list[int | None] = [None] * len(code.op)
    for start in range(len(code.op)):
        waiting = [start]
        while waiting:
            here = waiting[-1]
            if found[here] is not None:
                waiting.pop()
                continue
            ahead = _next_without_row(code, here)
            missing = [each for each in ahead if found[each] is None]
            if missing:
                waiting += missing
                continue
            bits = _own_variables(code, here)
            for each in ahead:
                bits |= found[each] or 0
            found[here] = bits
            waiting.pop()
    return np.array(found, np.uint64)


def _next_without_row(code: InstructionList, here: int) -> list[int]:
    op = int(code.op[here])
    if op == SPLIT:
        return [int(code.first[here]), int(code.second[here])]
    return [] if op in (CHAR, MATCH) else [int(code.first[here])]


def _own_variables(code: InstructionList, here: int) -> int:
    if code.op[here] == MATCH:
        return END_BIT
    return 1 << min(int(code.label[here]) >> 1, OVERFLOW_BIT) if code.op[here] == CHAR else 0


def merge_points(code: InstructionList) -> npt.NDArray[np.bool_]:
    """Instructions that can be come to in more than one way. Marking these is enough: any other
    is reached as often as the one before it."""
    ways = np.zeros(len(code.op), np.int64)
    inner = code.op != MATCH
    np.add.at(ways, code.first[inner], 1)
    np.add.at(ways, code.second[code.op == SPLIT], 1)
    ways[code.entry] += 1
    found: npt.NDArray[np.bool_] = (ways > 1) & inner
    return found


def path_needs(
    code: InstructionList, reads: Sequence[Iterable[PathNeed]], members: VariableSets
) -> list[frozenset[PathNeed]]:
    """What is needed at each instruction. `reads`: what each variable's condition reads, the row
    under test being bound already. `members`: the variables of each set."""
    own = [frozenset(each) for each in reads]
    needed: list[frozenset[PathNeed]] = [frozenset()] * len(code.op)
    if not any(own):
        return needed
    before: list[list[int]] = [[] for _ in code.op]
    for here in range(len(code.op)):
        if code.op[here] != MATCH:
            before[code.first[here]].append(here)
        if code.op[here] == SPLIT:
            before[code.second[here]].append(here)
    waiting = list(range(len(code.op)))
    while waiting:
        here = waiting.pop()
        found = _needs_at(code, here, needed, own, members)
        if found != needed[here]:
            needed[here] = found
            waiting += before[here]
    return needed


def _needs_at(
    code: InstructionList,
    here: int,
    needed: list[frozenset[PathNeed]],
    own: list[frozenset[PathNeed]],
    members: VariableSets,
) -> frozenset[PathNeed]:
    op = int(code.op[here])
    if op == MATCH:
        return frozenset()
    ahead = needed[int(code.first[here])]
    if op == SPLIT:
        return ahead | needed[int(code.second[here])]
    if op != CHAR:
        return ahead
    variable = int(code.label[here]) >> 1
    return frozenset(
        need
        for after in ahead | own[variable]
        if (need := _need_before(after, variable, members)) is not None
    )


def _need_before(need: PathNeed, variable: int, members: VariableSets) -> PathNeed | None:
    """What must be known before a row of `variable` for `need` to be known behind it."""
    if need.kind not in ("last", "last label"):
        return need
    if need.which >= 0 and variable not in members[need.which]:
        return need
    return None if need.offset == 0 else PathNeed(need.kind, need.which, need.offset - 1)


MemoKey = tuple[int, int, int, int, int, int, int, int]
# What is read of the rows of a set: column, whether it is a float, and the shift.
PathReads = dict[tuple[str, int], set[tuple[int, bool, int]]]


def memo_keys(
    needs: frozenset[PathNeed], looks: PathReads, has_limit: bool
) -> list[MemoKey] | None:
    """What the kernel compares two paths by; None where they cannot be compared."""
    if ANYTHING in needs:
        return None
    keys: list[MemoKey] = []
    for need in sorted(needs, key=lambda each: (each.kind, each.which, each.offset)):
        is_first = need.kind.startswith("first")
        anchor = o.FIRST if is_first else o.LAST
        if need.kind == "number":
            keys.append((o.KEY_MATCH_NUMBER, 0, 0, 0, 0, 0, 0, 0))
        elif need.kind == "fold":
            keys.append((o.KEY_FOLD, need.which, 0, 0, 0, 0, 0, 0))
        elif need.kind.endswith("label"):
            kind = o.KEY_FIRST_LABEL if is_first else o.KEY_LAST_LABEL
            keys.append((kind, 0, anchor, need.which, need.offset, 0, 0, 0))
        else:
            kind = o.KEY_FIRST if is_first else o.KEY_LAST
            keys += [
                (kind, 0, anchor, need.which, need.offset, shift, column, int(is_float))
                for column, is_float, shift in sorted(looks[need.kind, need.which])
            ]
    if has_limit:
        keys.append((o.KEY_LIMIT, 0, 0, 0, 0, 0, 0, 0))
    return keys
