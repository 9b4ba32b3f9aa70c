"""Compiles a row pattern to instructions, and analyses what can matter at each instruction.

    CHAR   a row meets the condition of `label`'s variable; continue at `first`, one row later
    SPLIT  try `first`; if that fails, `second`
    START  only before the first row of the partition; END only after the last
    MATCH  done

Besides the row and what conditions read of the path, the instruction alone determines the future of
a search: there are no counters. So "this instruction failed at this row" can be remembered as one
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.errors import PatternError
from spark_cep.udfs.rows import records as r

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowPatternNode


CHAR: Final = 0
SPLIT: Final = 1
START: Final = 2
END: Final = 3
MATCH: Final = 4

# Bits of a set of variables that a row may be next: the match may end without another row; and all
# variables from this one on.
END_BIT: Final = 1 << 63
OVERFLOW_BIT: Final = 62

# Compiling so many takes some seconds; PERMUTE of 15 variables has half as many.
MOST_INSTRUCTIONS = 600_000
# Parts that need no instruction, or one that exists already, are bounded by how often they are
# emitted.
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
    """The instructions of a pattern, in the order in which the pattern prefers its alternatives.

    Because instructions have no counters, a repetition is copied as often as its bounds say, and
    PERMUTE has one state for each *set* of parts that are done: 2^n of them, not n! orders.

    >>> from spark_cep.udfs.row_program import RowPatternNode
    >>> a, b = RowPatternNode("variable", 0), RowPatternNode("variable", 1)
    >>> several = RowPatternNode("repeat", parts=(a,), low=1, high=None)
    >>> code = flatten_pattern(RowPatternNode("concat", parts=(several, b)))
    >>> list(zip(code.op.tolist(), code.first.tolist(), code.second.tolist())), code.entry
    ([(4, 0, 0), (0, 0, 0), (1, 3, 1), (0, 2, 0)], 3)
    """
    emitter = _InstructionEmitter()
    entry = emitter.emit(pattern, _Continuations(0, 0), excluded=False)
    op, first, second, label = np.array(emitter.instructions, np.int32).T.copy()
    return InstructionList(op, first, second, label, entry)


@dataclass(frozen=True)
class _Continuations:
    """Where to continue: at `consumed` if the innermost iteration has taken a row, else at
    `empty`."""

    consumed: int
    empty: int

    def after_row(self) -> _Continuations:
        return _Continuations(self.consumed, self.consumed)

    @property
    def differ(self) -> bool:
        return self.consumed != self.empty


class _InstructionEmitter:
    """Emits from the end to the start, so that every continuation is known; equal instructions are
    emitted once.

    There is no cycle without a CHAR, so a search cannot loop without taking rows. The standard lets
    an iteration match nothing only while the lower bound needs it, or as the last iteration.
    Whether an iteration has taken a row is part of the position in the program: `emit` gets two
    continuations, `consumed` and `empty`, and what follows the first row of an iteration is emitted
    separately from what precedes it.
    """

    def __init__(self) -> None:
        self.instructions: list[tuple[int, int, int, int]] = [(MATCH, 0, 0, 0)]
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._nullable: dict[int, bool] = {}
        self._emitted = 0

    def emit(self, node: RowPatternNode, then: _Continuations, *, excluded: bool) -> int:  # noqa: PLR0911
        self._emitted += 1
        if self._emitted > MOST_EMITTED:
            raise _too_large("the pattern")
        if node.kind == "variable":
            return self._add(CHAR, then.consumed, label=2 * node.variable + excluded)
        if node.kind == "empty":
            return then.empty
        if node.kind in ("start", "end"):
            return self._add(START if node.kind == "start" else END, then.empty)
        if node.kind == "exclude":
            return self.emit(node.parts[0], then, excluded=True)
        if node.kind == "repeat":
            return self._repeat(node, then, excluded)
        if node.kind == "permute":
            return self._permute(node, then, excluded)
        if node.kind == "alternate":
            return self._choice([self.emit(part, then, excluded=excluded) for part in node.parts])
        return self._concat(node, then, excluded)

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

    def _concat(self, node: RowPatternNode, then: _Continuations, excluded: bool) -> int:
        starts = [True]  # whether a part can be reached without a row
        for part in node.parts:
            starts.append(starts[-1] and self.nullable(part))
        for place in range(len(node.parts) - 1, -1, -1):
            part = node.parts[place]
            consumed = then.consumed
            if place or not then.differ:
                consumed = self.emit(part, then.after_row(), excluded=excluded)
            empty = consumed
            if then.differ and starts[place]:
                empty = self.emit(part, then, excluded=excluded)
            then = _Continuations(consumed, empty)
        return then.empty

    def _repeat(self, node: RowPatternNode, then: _Continuations, excluded: bool) -> int:
        if node.high == 0:
            return then.empty
        body = node.parts[0]

        def once(then: _Continuations) -> int:
            return self.emit(body, then, excluded=excluded)

        def again(iteration: int, leave: int) -> int:
            return self._choice([iteration, leave] if node.greedy else [leave, iteration])

        unroll = self._empty_iterations if self.nullable(body) else self._iterations
        return unroll(node, then, once, again)

    def _iterations(
        self,
        node: RowPatternNode,
        then: _Continuations,
        once: Callable[[_Continuations], int],
        again: Callable[[int, int], int],
    ) -> int:
        """The body cannot be empty: after an iteration, a row has been consumed."""
        low = node.low
        if node.high is None:
            loop = self._reserve()
            done = once(_Continuations(loop, loop))
            self._set_split(loop, node, done, then.consumed)
            if low == 0:
                return again(done, then.empty) if then.differ else loop
            low -= 1
        else:
            done = then.consumed
            for count in range(node.high - 1, low - 1, -1):
                done = again(
                    once(_Continuations(done, done)), then.consumed if count else then.empty
                )
        for _ in range(low):
            done = once(_Continuations(done, done))
        return done

    def _empty_iterations(
        self,
        node: RowPatternNode,
        then: _Continuations,
        once: Callable[[_Continuations], int],
        again: Callable[[int, int], int],
    ) -> int:
        """The body may be empty. `consumed` and `empty` are the continuations after `count`
        iterations, with and without a row before or within this repetition. An empty iteration at
        or after the lower bound is the last one."""
        low, consumed, empty = node.low, then.consumed, then.empty
        if node.high is None:
            loop = self._reserve()
            self._set_split(loop, node, once(_Continuations(loop, then.consumed)), then.consumed)
            consumed = loop
            empty = (
                again(once(_Continuations(loop, then.empty)), then.empty) if then.differ else loop
            )
            counts = range(low - 1, -1, -1)
        else:
            counts = range(node.high - 1, -1, -1)
        for count in counts:
            is_last = count + 1 >= low
            leave = then if is_last else _Continuations(consumed, empty)
            after = once(_Continuations(consumed, leave.consumed))
            before = once(_Continuations(consumed, leave.empty)) if then.differ else after
            if count >= low:
                after, before = again(after, then.consumed), again(before, then.empty)
            consumed, empty = after, before
        return empty if then.differ else consumed

    def _permute(self, node: RowPatternNode, then: _Continuations, excluded: bool) -> int:
        """A state for each set of parts that are done. Each state tries the remaining parts in
        their order in the pattern, which gives the lexical order of the permutations."""
        parts = node.parts
        if len(parts) << max(len(parts) - 1, 0) > MOST_INSTRUCTIONS:
            raise _too_large(f"PERMUTE of {len(parts)} parts")
        everything = (1 << len(parts)) - 1
        states = {everything: then}
        for done in range(everything - 1, -1, -1):
            left = [i for i in range(len(parts)) if not done >> i & 1]
            tried = [(parts[i], states[done | 1 << i]) for i in left]
            consumed = empty = self._choice(
                [self.emit(part, to.after_row(), excluded=excluded) for part, to in tried]
            )
            if then.differ:
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
        """Adds a SPLIT whose targets are not known yet."""
        self.instructions.append((SPLIT, 0, 0, 0))
        return len(self.instructions) - 1

    def _set_split(self, loop: int, node: RowPatternNode, iteration: int, leave: int) -> None:
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
        f"{what} compiles to more than {MOST_INSTRUCTIONS:,} instructions",
        hint="repetition counts multiply when repetitions are nested: lower them; PERMUTE needs a "
        "state for every set of its parts: list fewer parts",
    )


# ---- analysis: what may come next --------------------------------------------------------------


def first_variables(code: InstructionList) -> npt.NDArray[np.uint64]:
    """For each instruction the variables that a row may be next, as bits; `END_BIT` if the match
    may end without another row. Bit `OVERFLOW_BIT` stands for all variables from there on."""
    variables: list[int | None] = [None] * len(code.op)
    for start in range(len(code.op)):
        waiting = [start]
        while waiting:
            here = waiting[-1]
            if variables[here] is not None:
                waiting.pop()
                continue
            ahead = _next_without_row(code, here)
            missing = [each for each in ahead if variables[each] is None]
            if missing:
                waiting += missing
                continue
            bits = _own_variables(code, here)
            for each in ahead:
                bits |= variables[each] or 0
            variables[here] = bits
            waiting.pop()
    return np.array(variables, np.uint64)


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
    """The instructions that can be reached in more than one way. It is enough to mark these: any
    other is reached as often as its only predecessor."""
    predecessors = np.zeros(len(code.op), np.int64)
    inner = code.op != MATCH
    np.add.at(predecessors, code.first[inner], 1)
    np.add.at(predecessors, code.second[code.op == SPLIT], 1)
    predecessors[code.entry] += 1
    several: npt.NDArray[np.bool_] = (predecessors > 1) & inner
    return several


# ---- analysis: what is read of the path --------------------------------------------------------


@dataclass(frozen=True)
class PathNeed:
    """One thing that is read of the path.

    "first" and "last": the row `offset` steps from that end of the rows of set number `which` (-1:
    all rows); "first label" and "last label": the variable of that row. "fold": aggregate number
    `which`. "number": the number of the match. "anything": what cannot be expressed by a few
    values.
    """

    kind: str
    which: int = -1
    offset: int = 0


ANYTHING: Final = PathNeed("anything")
VariableSets = Sequence[frozenset[int]]
MemoKey = tuple[int, int, int, int, int, int, int, int]
# What is read of the rows of a set: the column, whether it is a float, and the shift.
PathReads = dict[tuple[str, int], set[tuple[int, bool, int]]]


def path_needs(
    code: InstructionList, reads: Sequence[Iterable[PathNeed]], members: VariableSets
) -> list[frozenset[PathNeed]]:
    """What the instructions from each instruction on read of the path so far. `reads`: what the
    condition of each variable reads, with the row under test already bound. `members`: the
    variables of each set.

    Where nothing of the path is read, a failure is a fact about the rows: it holds for every path
    and every search of the partition. Where something is read, it holds for all paths that agree in
    exactly that. A row taken by a variable changes what is read: after CHAR of A, the last row of A
    is that row, whatever came before, and the row before the last of A was the last one. So needs
    are propagated backwards through each CHAR until nothing changes.
    """
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
    """What must be known before a row of `variable` so that `need` is known after it; None if the
    row itself gives it."""
    if need.kind not in ("last", "last label"):
        return need
    if need.which >= 0 and variable not in members[need.which]:
        return need
    return None if need.offset == 0 else PathNeed(need.kind, need.which, need.offset - 1)


def memo_keys(
    needs: frozenset[PathNeed], path_reads: PathReads, has_limit: bool
) -> list[MemoKey] | None:
    """The values by which the kernel compares two paths; None if they cannot be compared."""
    if ANYTHING in needs:
        return None
    keys: list[MemoKey] = []
    for need in sorted(needs, key=lambda each: (each.kind, each.which, each.offset)):
        is_first = need.kind.startswith("first")
        anchor = r.FIRST if is_first else r.LAST
        if need.kind == "number":
            keys.append((r.KEY_MATCH_NUMBER, 0, 0, 0, 0, 0, 0, 0))
        elif need.kind == "fold":
            keys.append((r.KEY_FOLD, need.which, 0, 0, 0, 0, 0, 0))
        elif need.kind.endswith("label"):
            kind = r.KEY_FIRST_LABEL if is_first else r.KEY_LAST_LABEL
            keys.append((kind, 0, anchor, need.which, need.offset, 0, 0, 0))
        else:
            kind = r.KEY_FIRST if is_first else r.KEY_LAST
            keys += [
                (kind, 0, anchor, need.which, need.offset, shift, column, int(is_float))
                for column, is_float, shift in sorted(path_reads[need.kind, need.which])
            ]
    if has_limit:
        keys.append((r.KEY_LIMIT, 0, 0, 0, 0, 0, 0, 0))
    return keys
