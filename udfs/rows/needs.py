"""What can still matter at each place of a program: which variables may come next, and what of
the path so far is read further ahead.

Where nothing of the path is read ahead, a failure is a fact about the rows: it holds for every
path and every search of the partition. Where something is, it holds for all paths that agree in
just that. A row taken by a variable changes what is read: the last row of A behind a CHAR of A is
that row, whatever came before, and the one before the last was the last one. So needs are carried
from the end to the start, through each CHAR, until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.rows import opcodes as o
from spark_cep.udfs.rows.flatten import CHAR, MATCH, SPLIT

if TYPE_CHECKING:
    from spark_cep.udfs.rows.flatten import Code

ENDS: Final = 1 << 63
MANY: Final = 62


@dataclass(frozen=True)
class Need:
    """One thing that is read of the path. kind "last" and "first": the row `offset` steps from
    the end of the rows bound to `which` (a set's number, -1: all rows); "last label" and "first
    label": the variable that row is bound to. "fold": aggregate number `which`. "number": the
    match's. "anything": what cannot be told from a few values."""

    kind: str
    which: int = -1
    offset: int = 0


ANYTHING: Final = Need("anything")
Members = Sequence[frozenset[int]]


def first_variables(code: Code) -> npt.NDArray[np.uint64]:
    """For each instruction, a bit for each variable that a row may be next; `ENDS` if the match
    may end without one. Bit `MANY` stands for all variables from there on."""
    found: list[int | None] = [None] * len(code.op)
    for start in range(len(code.op)):
        waiting = [start]
        while waiting:
            here = waiting[-1]
            if found[here] is not None:
                waiting.pop()
                continue
            ahead = _without_a_row(code, here)
            missing = [each for each in ahead if found[each] is None]
            if missing:
                waiting += missing
                continue
            bits = _own(code, here)
            for each in ahead:
                bits |= found[each] or 0
            found[here] = bits
            waiting.pop()
    return np.array(found, np.uint64)


def _without_a_row(code: Code, here: int) -> list[int]:
    op = int(code.op[here])
    if op == SPLIT:
        return [int(code.first[here]), int(code.second[here])]
    return [] if op in (CHAR, MATCH) else [int(code.first[here])]


def _own(code: Code, here: int) -> int:
    if code.op[here] == MATCH:
        return ENDS
    return 1 << min(int(code.label[here]) >> 1, MANY) if code.op[here] == CHAR else 0


def meeting_places(code: Code) -> npt.NDArray[np.bool_]:
    """Instructions that can be come to in more than one way. Marking these is enough: any other
    is reached as often as the one before it."""
    ways = np.zeros(len(code.op), np.int64)
    inner = code.op != MATCH
    np.add.at(ways, code.first[inner], 1)
    np.add.at(ways, code.second[code.op == SPLIT], 1)
    ways[code.entry] += 1
    found: npt.NDArray[np.bool_] = (ways > 1) & inner
    return found


def read_ahead(
    code: Code, reads: Sequence[Iterable[Need]], members: Members
) -> list[frozenset[Need]]:
    """What is needed at each instruction. `reads`: what each variable's condition reads, the row
    under test being bound already. `members`: the variables of each set."""
    own = [frozenset(each) for each in reads]
    needed: list[frozenset[Need]] = [frozenset()] * len(code.op)
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
        found = _at(code, here, needed, own, members)
        if found != needed[here]:
            needed[here] = found
            waiting += before[here]
    return needed


def _at(
    code: Code,
    here: int,
    needed: list[frozenset[Need]],
    own: list[frozenset[Need]],
    members: Members,
) -> frozenset[Need]:
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
        if (need := _before(after, variable, members)) is not None
    )


def _before(need: Need, variable: int, members: Members) -> Need | None:
    """What must be known before a row of `variable` for `need` to be known behind it."""
    if need.kind not in ("last", "last label"):
        return need
    if need.which >= 0 and variable not in members[need.which]:
        return need
    return None if need.offset == 0 else Need(need.kind, need.which, need.offset - 1)


Key = tuple[int, int, int, int, int, int, int, int]
# What is read of the rows of a set: column, whether it is a float, and the shift.
Looks = dict[tuple[str, int], set[tuple[int, bool, int]]]


def keys_of(needs: frozenset[Need], looks: Looks, has_limit: bool) -> list[Key] | None:
    """What the kernel compares two paths by; None where they cannot be compared."""
    if ANYTHING in needs:
        return None
    keys: list[Key] = []
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
