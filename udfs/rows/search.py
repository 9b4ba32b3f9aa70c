"""Runs the kernel over a bucket: gives it room, answers what it asks, hands on what it found.

Matches come in blocks of bounded size. The kernel is called again where it stopped. A batch is a
search of partitions that have ended; where rows may still come, `standing` says afterwards how far
it got.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.rows import arrays, exceeded, loading
from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.asking import Asking
from spark_cep.udfs.rows.failures import skips_in_place, skips_nowhere
from spark_cep.udfs.rows.standing import Ends, Standing

if TYPE_CHECKING:
    from spark_cep.udfs.errors import CepError
    from spark_cep.udfs.rows.compiled import Compiled
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import Tally

# Matched rows of one block: the labels of one more partition fit in besides.
BLOCK_ROWS: Final = 1 << 21
FIRST_WAYS: Final = 1 << 10
# Ways that wait to be tried, of 32 bytes each: one or two a row where a repetition is greedy.
MOST_WAYS: Final = 1 << 27
# Rows have a number of 32 bits.
MOST_ROWS: Final = (1 << 31) - 1
# A question takes Python 50 to 500 us, a step 10 to 100 ns.
QUESTION_STEPS: Final = 2_000


@dataclass(frozen=True)
class Block:
    """Matches in the order of their partitions and rows. `number` is NULL (-1) where a row stands
    for itself, unmatched; a match of length 0 is empty and stands at `start`. `bounds`: where the
    rows of each match begin and end in `labels`; a label is twice the variable, plus 1 if the row
    is excluded from the answer."""

    start: Array
    length: Array
    number: Array
    labels: Array
    bounds: Array

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Counts:
    """`steps`: instructions tried. `hits`: ways not gone because they had failed before."""

    matches: int = 0
    empty_matches: int = 0
    unmatched_rows: int = 0
    steps: int = 0
    hits: int = 0
    asked: int = 0


class Search:
    """`ends`: of which partitions the end is known; by default of all. `standing`: where the
    searches stand, once the blocks have been walked through."""

    def __init__(
        self, made: Compiled, table: Table, tally: Tally, ends: Ends | None = None
    ) -> None:
        if table.size + len(table.begins) > MOST_ROWS:
            raise exceeded.rows(table.size, MOST_ROWS)
        self._made = made
        self._table = table
        self._tally = tally
        self._ends = ends or Ends(Standing.at_start(table))
        self._asking = Asking(made, table, tally, self._ends)
        self.counts = Counts()

    @property
    def standing(self) -> Standing:
        return self._ends.standing()

    def blocks(self) -> Iterator[Block]:
        if not self._table.size:
            return
        table, made = self._table, self._made
        memory, places, words = arrays.memory(made, table)
        program = arrays.instructions(made, places, words)
        longest = int((table.ends - table.begins).max())
        rows = min(table.size, BLOCK_ROWS)
        found = r.Found(
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.zeros(rows + longest, np.int32),
        )
        state = np.zeros(r.STATE_SIZE, np.int64)
        state[r.PARTITION], state[r.BEGIN] = -1, table.size
        fixed = (
            program,
            arrays.rows(made, table, self._tally, self._ends),
            arrays.conditions(made, table, self._ends),
            arrays.path(made, table),
            memory,
        )
        ways = _ways(FIRST_WAYS)
        kernel = loading.search()
        while True:
            stop = kernel(*fixed, ways, found, state)
            if stop == r.DEEP:
                if len(ways.pc) >= MOST_WAYS:
                    raise exceeded.ways(table, int(state[r.BEGIN]), MOST_WAYS)
                ways = _deeper(ways)
            elif stop == r.QUESTION:
                self._answer(state, found)
            elif stop in (r.DONE, r.FULL):
                yield _block(state, found)
                state[r.FOUND] = state[r.LABELS] = 0
                if stop == r.DONE:
                    break
            else:
                raise self._error(stop, state)
        self._count(state)

    def _answer(self, state: Array, found: r.Found) -> None:
        self.counts.asked += 1
        state[r.ANSWER] = self._asking.answer(state, found.labels)
        state[r.PHASE] = r.ANSWERED
        if self._made.program.limits.backtracking_steps is None:
            # The limit that nobody set bounds the time; one that is set counts steps.
            state[r.STEPS_BEFORE] -= QUESTION_STEPS

    def _count(self, state: Array) -> None:
        self._tally.errors += int(state[r.ERRORS])
        counts = self.counts
        counts.matches, counts.empty_matches = int(state[r.MATCHES]), int(state[r.EMPTY])
        counts.unmatched_rows = int(state[r.UNMATCHED])
        counts.steps, counts.hits = int(state[r.STEPS]), int(state[r.HITS])

    def _error(self, stop: int, state: Array) -> CepError:
        begin = int(state[r.BEGIN])
        if stop == r.SKIPS_NOWHERE:
            return skips_nowhere(self._table, begin)
        if stop == r.SKIPS_IN_PLACE:
            return skips_in_place(self._table, begin)
        limit = self._made.program.limits.backtracking_steps
        allowed = arrays.STEPS if limit is None else limit
        taken = int(state[r.STEPS] - state[r.STEPS_BEFORE])
        return exceeded.steps(self._table, begin, allowed, taken)


def _block(state: Array, found: r.Found) -> Block:
    size, labels = int(state[r.FOUND]), int(state[r.LABELS])
    length = found.length[:size].copy()
    return Block(
        found.start[:size].copy(),
        length,
        found.number[:size].copy(),
        found.labels[:labels].copy(),
        np.concatenate([[0], np.cumsum(length)]),
    )


def _ways(size: int) -> r.Ways:
    return r.Ways(
        np.zeros(size, np.int32),
        np.zeros(size, np.int32),
        np.zeros(size, np.int64),
        np.zeros(2 * size, np.int64),
    )


def _deeper(ways: r.Ways) -> r.Ways:
    return r.Ways(*(np.concatenate([each, np.zeros_like(each)]) for each in ways))
