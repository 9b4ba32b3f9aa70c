"""What the kernel works on: constants of its bytecode and its state, and tuples of arrays.

No array ever changes its type, so the kernel is compiled once. `Any` stands for numpy arrays: mypy
cannot check what numba compiles. What is annotated to it, type and dimensions, is what numba
compiles for, and what each call is checked against (`object_code`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple, TypeAlias

# ---- bytecode of conditions, written by `bytecode.py` and run by `interpreter.py` --------------
#
# A stack machine. An entry of the stack is an int64 or a float64 with a flag; the compiler of the
# bytecode knows which of the two. Booleans are 0 and 1, strings codes that keep their order,
# decimals unscaled.

# Flags of a value. All but the first two end the evaluation.
VALID: Final = 0
NULL: Final = 1
UNFIT: Final = 2  # the value is right, but 64 bits cannot hold it
FAILED: Final = 3  # an ANSI error
UNKNOWN: Final = 4  # it depends on a row that has not arrived

# Results of a condition.
FALSE: Final = 0
TRUE: Final = 1
NEEDS_PYTHON: Final = 2  # 64 bits cannot hold a value
ERROR: Final = 3
NEEDS_LATER_ROW: Final = 4

OP_END: Final = 0
OP_INT: Final = 1  # a: constant
OP_FLOAT: Final = 2
OP_NULL: Final = 3
OP_READ_INT: Final = 4  # a: read
OP_READ_FLOAT: Final = 5
OP_EXISTS: Final = 6
OP_LABEL: Final = 7
OP_MATCH_NUMBER: Final = 8
OP_COUNT: Final = 9  # a: aggregate
OP_FOLD_INT: Final = 10
OP_FOLD_FLOAT: Final = 11
OP_MEAN_FLOAT: Final = 12
OP_MEAN_INT: Final = 13  # b: factor for the additional digits of the result
OP_AND_SKIP: Final = 14  # a: where to continue if the left side decides
OP_AND: Final = 15
OP_OR_SKIP: Final = 16
OP_OR: Final = 17
OP_NOT: Final = 18
OP_JUMP: Final = 19
OP_JUMP_UNLESS: Final = 20
OP_JUMP_IF_VALUE: Final = 21  # keeps the value; drops a NULL and continues
OP_IS_NULL: Final = 22
OP_IS_NAN: Final = 23
OP_COMPARE_INT: Final = 24  # a: relation
OP_COMPARE_FLOAT: Final = 25
OP_SAME_INT: Final = 26
OP_SAME_FLOAT: Final = 27
OP_ARITHMETIC_INT: Final = 28  # a: operator; b: bits, negative: wraps around
OP_ARITHMETIC_WIDE: Final = 29  # a: operator; an overflow needs Python
OP_ARITHMETIC_FLOAT: Final = 30  # a: operator; b: 1 if dividing by 0 is an error
OP_DIVIDE_INT: Final = 31  # a: operator (div, %); b: as above
OP_NEGATE_INT: Final = 32  # a: 1 for abs; b: bits, negative: wraps around, 0: cannot overflow
OP_NEGATE_FLOAT: Final = 33
OP_INT_TO_FLOAT: Final = 34
OP_ROUND: Final = 35  # to 32 bits
OP_SCALE: Final = 36  # a: factor
OP_DIGITS: Final = 37  # a: smallest magnitude that is too large; b: 1 if that is an error
OP_DECIMAL_TO_FLOAT: Final = 38  # a: power of ten
OP_EXTREME_INT: Final = 39  # a: 1 for greatest
OP_EXTREME_FLOAT: Final = 40
OP_SPREAD: Final = 41  # a: aggregate; b: see SAMPLE and ROOT
OP_AT_INT: Final = 42  # a: aggregate that keeps a row; b: column that is read there
OP_AT_FLOAT: Final = 43

# Bits of OP_SPREAD: divide by one less than the number of values; take the square root.
SAMPLE: Final = 1
ROOT: Final = 2

RELATIONS: Final = ("=", "<>", "<", "<=", ">", ">=")
OPERATORS: Final = ("+", "-", "*", "/", "%", "div")

# Where a read starts.
CURRENT: Final = 0
FIRST: Final = 1
LAST: Final = 2

# Folds over the rows of a set, kept along the path beside their number.
COUNTED: Final = 0
SUM_INT: Final = 1
SUM_FLOAT: Final = 2
LEAST_INT: Final = 3
LEAST_FLOAT: Final = 4
MOST_INT: Final = 5
MOST_FLOAT: Final = 6
SPREAD: Final = 7  # the mean and the sum of the squared distances from it, as Spark keeps them
LEAST_AT_INT: Final = 8  # the last row that has the least value
LEAST_AT_FLOAT: Final = 9
MOST_AT_INT: Final = 10
MOST_AT_FLOAT: Final = 11
FIRST_AT: Final = 12  # the first row that has a value
LAST_AT: Final = 13
BIT_AND: Final = 14
BIT_OR: Final = 15
BIT_XOR: Final = 16

# Keys by which two paths are compared.
KEY_LAST: Final = 0
KEY_FIRST: Final = 1
KEY_LAST_LABEL: Final = 2
KEY_FIRST_LABEL: Final = 3
KEY_FOLD: Final = 4
KEY_MATCH_NUMBER: Final = 5
KEY_LIMIT: Final = 6

# ---- why the kernel stopped --------------------------------------------------------------------

DONE: Final = 0
OUTPUT_FULL: Final = 1
STACK_FULL: Final = 2  # the stack of alternatives or of marks
QUESTION: Final = 3  # only Python can evaluate a condition or a measure
TOO_MANY_STEPS: Final = 4
SKIPS_NOWHERE: Final = 5  # AFTER MATCH SKIP TO a variable that has no row
SKIPS_IN_PLACE: Final = 6  # ... or to the match's first row
PAUSED: Final = 7  # so that Python can look at the clock
NEEDS_BOUNDS: Final = 8  # of the searches from here on

# ---- answers of Python -------------------------------------------------------------------------

NO: Final = 0
YES: Final = 1
NOT_YET: Final = 2  # it depends on a row that has not arrived

# ---- the state of the kernel, an array of int64 ------------------------------------------------

PHASE: Final = 0
PARTITION: Final = 1
BEGIN: Final = 2  # the row where the search began
NUMBER: Final = 3
COVERED: Final = 4  # the row after the last row of any match
PC: Final = 5
ROW: Final = 6
DEPTH: Final = 7  # alternatives on the stack
TRAIL: Final = 8  # marks made by this search
STEPS: Final = 9
STEPS_BEFORE: Final = 10
ANSWER: Final = 11
FOUND: Final = 12  # matches written
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
PAUSE_AT: Final = 23  # the steps, charged ones included, after which the kernel pauses
CHARGED: Final = 24  # steps that the costs of this partition's steps amount to, beyond themselves
BOUNDING: Final = 25  # searches have bounds in this partition
BOUND_FROM: Final = 26  # those that begin here and up to `BOUND_TO`
BOUND_TO: Final = 27
# Of the longest match: one more than its length so far, 0 if there is none, and its instruction.
BEST: Final = 28
BEST_PC: Final = 29
STATE_SIZE: Final = 30

# ---- columns of `KernelRows.parts`, one row per partition --------------------------------------

# Where the next search begins, what matches have covered, and the number of the last match: read
# when the kernel begins the partition, written when it leaves it.
NEXT: Final = 0
NEXT_COVERED: Final = 1
NEXT_NUMBER: Final = 2
HAS_FIRST: Final = 3  # the first row here is the first of the partition
IS_OPEN: Final = 4  # rows may still arrive
PART_SIZE: Final = 5

# ---- values of PHASE ---------------------------------------------------------------------------

SEARCH: Final = 0  # begin the next search
RESUME: Final = 1  # continue at an instruction
ANSWERED: Final = 2  # continue with the answer of Python
CHOSEN: Final = 3  # the longest match is known

# ---- AFTER MATCH SKIP --------------------------------------------------------------------------

PAST_LAST: Final = 0
NEXT_ROW: Final = 1
TO_FIRST: Final = 2
TO_LAST: Final = 3


# ---- arrays ------------------------------------------------------------------------------------

Bools: TypeAlias = Annotated[Any, "bool", 1]
Bytes: TypeAlias = Annotated[Any, "uint8", 1]
Ints32: TypeAlias = Annotated[Any, "int32", 1]
Ints: TypeAlias = Annotated[Any, "int64", 1]
Words: TypeAlias = Annotated[Any, "uint64", 1]
Floats: TypeAlias = Annotated[Any, "float64", 1]
BoolTable: TypeAlias = Annotated[Any, "bool", 2]
ByteTable: TypeAlias = Annotated[Any, "uint8", 2]
Int32Table: TypeAlias = Annotated[Any, "int32", 2]
IntTable: TypeAlias = Annotated[Any, "int64", 2]
FloatTable: TypeAlias = Annotated[Any, "float64", 2]


class KernelInstructions(NamedTuple):
    """`need`: bits of the variables that can come first, `END_BIT` if the match can end here.
    `place`: the bit of the mark; -1: no mark; -2 - n: list n of keys."""

    op: Ints32
    first: Ints32
    second: Ints32
    label: Ints32
    need: Words
    place: Ints32
    # entry, skip, shows unmatched rows, rows ahead of measures, steps, words, merging, bounding
    settings: Ints


class KernelRows(NamedTuple):
    """`may`: a bit for each variable whose physical conditions hold, or may hold; `more`: the same
    for the variables beyond the bits. `reach`: for each variable, the rows ahead that its physical
    conditions read. `limit`: the position after the last row that WITHIN allows, empty without
    WITHIN; one more than the end of the partition if rows that WITHIN allows may still arrive."""

    begin: Ints
    end: Ints
    parts: IntTable
    reach: Ints
    may: Words
    more: BoolTable
    limit: Ints
    skip_to: Bools


class KernelConditions(NamedTuple):
    """`start`: for each variable, where its bytecode begins; -1: none; -2: Python evaluates it.
    `charge`: the steps that a row of the variable costs beyond one."""

    start: Ints
    charge: Ints
    code: IntTable
    ints: Ints
    floats: Floats
    reads: IntTable  # anchor, set, offset, shift, column
    int_columns: IntTable
    int_flags: ByteTable
    float_columns: FloatTable
    float_flags: ByteTable
    stack_int: Ints
    stack_float: Floats
    stack_flag: Bytes


class KernelPath(NamedTuple):
    """What conditions read of the path: the rows of each set, and the folds over them as they were
    after each row, so that going back only forgets the last entries."""

    member: BoolTable
    rows: Int32Table
    sizes: Ints
    folds: IntTable  # kind, set, column, values, distinct
    ints: IntTable
    floats: FloatTable
    counts: IntTable
    codes: IntTable
    seen: Int32Table


class KernelMemo(NamedTuple):
    """Instructions that failed, by row. `merged`: pairs of an instruction with a row, and of the
    fingerprint of the path there."""

    marks: Words
    keys: Ints  # where each list of keys begins in `key`
    key: IntTable  # kind, fold, anchor, set, offset, shift, column, whether that is a float
    merged: Words


class KernelBounds(NamedTuple):
    """`group`: for each instruction, the line of `until`, or -1. `until`: for each search from
    `BOUND_FROM` on, the position from which on the instruction cannot lead to a match."""

    group: Ints32
    until: IntTable


class BacktrackStack(NamedTuple):
    """Alternatives to be tried, and the marks made since (`trail`: how many before each)."""

    pc: Ints32
    row: Ints32
    trail: Ints
    marked: Ints


class KernelMatches(NamedTuple):
    """The output. `labels` has those of all matches, one match after the other."""

    start: Ints
    length: Ints
    number: Ints
    labels: Ints32


# ---- what the compiled functions take ----------------------------------------------------------


class SearchArguments(NamedTuple):
    program: KernelInstructions
    rows: KernelRows
    conditions: KernelConditions
    path: KernelPath
    memory: KernelMemo
    bounds: KernelBounds
    stack: BacktrackStack
    matches: KernelMatches
    state: Ints


class SumArguments(NamedTuple):
    values: Floats
    fresh: Bools
    result: Floats


class LeastArguments(NamedTuple):
    codes: Ints
    fresh: Bools
    result: Ints
