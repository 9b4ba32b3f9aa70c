"""What the kernel works on: tuples of arrays, and what the places of its state mean.

All of a type that never changes, so that the kernel is compiled once. `Any` stands for numpy
arrays: mypy cannot see into what numba compiles.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

# ---- why the kernel stopped ---------------------------------------------------------------------

DONE: Final = 0
FULL: Final = 1  # the output
DEEP: Final = 2  # the stack of ways or of marks
QUESTION: Final = 3
TOO_MANY_STEPS: Final = 4
SKIPS_NOWHERE: Final = 5  # AFTER MATCH SKIP TO a variable that has no row
SKIPS_IN_PLACE: Final = 6  # ... or to the match's first row

# ---- what Python answers ------------------------------------------------------------------------

NO: Final = 0
YES: Final = 1
NOT_YET: Final = 2  # a row that has not come can tell

# ---- places in its state, an array of int64 -----------------------------------------------------

PHASE: Final = 0
PARTITION: Final = 1
BEGIN: Final = 2  # the row where the search began
NUMBER: Final = 3
COVERED: Final = 4  # the row behind all that a match has
PC: Final = 5
ROW: Final = 6
WAYS: Final = 7
TRAIL: Final = 8
STEPS: Final = 9
STEPS_BEFORE: Final = 10
ANSWER: Final = 11
FOUND: Final = 12  # records written
LABELS: Final = 13  # labels written
FORGOTTEN: Final = 14  # rows before this one have no marks
MERGING: Final = 15
EPOCH: Final = 16
HITS: Final = 17
MATCHES: Final = 18
EMPTY: Final = 19
UNMATCHED: Final = 20
ERRORS: Final = 21
FARTHEST: Final = 22
STATE_SIZE: Final = 24

# ---- columns of `Rows.parts`, one row a partition ------------------------------------------------

# Where its next search begins, what a match has covered, and the number of its last match: read
# when the partition is begun, written when it is left.
NEXT: Final = 0
NEXT_COVERED: Final = 1
NEXT_NUMBER: Final = 2
HAS_FIRST: Final = 3  # its first row is the partition's first
IS_OPEN: Final = 4  # rows may still come behind its last
PART_SIZE: Final = 5

SEARCH: Final = 0
GO_ON: Final = 1
ANSWERED: Final = 2

# ---- AFTER MATCH SKIP ---------------------------------------------------------------------------

PAST_LAST: Final = 0
NEXT_ROW: Final = 1
TO_FIRST: Final = 2
TO_LAST: Final = 3


class Instructions(NamedTuple):
    """`need`: bits of the variables that can come first, `ENDS` if the match can end here.
    `place`: the bit of a mark; -1: none; -2 - n: list n of keys."""

    op: Any
    first: Any
    second: Any
    label: Any
    need: Any
    place: Any
    settings: Any  # entry, skip, shows unmatched rows, measures' reach, steps, words, merging


class Rows(NamedTuple):
    """`may`: a bit for each variable whose physical conditions hold, or may hold. `more`: for
    those beyond the bits. `limit`: the row behind the last that WITHIN allows, empty without; one
    more than the partition's end where rows that are allowed may still come. `reach`: how far
    behind a row a variable's physical conditions look."""

    begin: Any
    end: Any
    parts: Any
    reach: Any
    may: Any
    more: Any
    limit: Any
    skip_to: Any


class Conditions(NamedTuple):
    """`start`: by variable where its bytecode begins, -1: none, -2: Python's."""

    start: Any
    code: Any
    ints: Any
    floats: Any
    reads: Any  # anchor, set, offset, shift, column
    int_columns: Any
    int_flags: Any
    float_columns: Any
    float_flags: Any
    stack_int: Any
    stack_float: Any
    stack_flag: Any


class Path(NamedTuple):
    """What conditions read of the path: the rows of each set, and folds over them as they were
    after each row, so that going back is to forget the last entries."""

    member: Any
    rows: Any
    sizes: Any
    folds: Any  # kind, set, column, values, distinct
    ints: Any
    floats: Any
    counts: Any
    codes: Any
    seen: Any


class Memory(NamedTuple):
    """`merged`: pairs of a place and of what was read ahead there."""

    marks: Any
    keys: Any  # lists of what is compared
    key: Any  # kind, fold, anchor, set, offset, shift, column, whether that is a float
    merged: Any


class Ways(NamedTuple):
    pc: Any
    row: Any
    trail: Any
    marked: Any


class Found(NamedTuple):
    start: Any
    length: Any
    number: Any
    labels: Any
