"""The bytecode of conditions that read the path: what `bytecode.py` writes and `kernel.py` runs.

A stack machine. An entry is an int64 or a float64 with a flag; the compiler knows which of the
two it is. Booleans are 0 and 1, strings codes that keep their order, decimals unscaled.
"""

from __future__ import annotations

from typing import Final

# Flags of a value. All but the first two end the evaluation.
VALID: Final = 0
NULL: Final = 1
UNFIT: Final = 2  # the value is right, but 64 bits cannot hold it
FAILED: Final = 3  # an ANSI error
UNKNOWN: Final = 4  # a row behind the known ones has it

# What a condition comes to.
FALSE: Final = 0
TRUE: Final = 1
ASK: Final = 2  # only Python can tell
ERROR: Final = 3
BEYOND: Final = 4  # only a row that has not come yet can tell

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
OP_MEAN_INT: Final = 13  # b: digits that the result has more
OP_AND_SKIP: Final = 14  # a: where to go on if the left side decides
OP_AND: Final = 15
OP_OR_SKIP: Final = 16
OP_OR: Final = 17
OP_NOT: Final = 18
OP_JUMP: Final = 19
OP_JUMP_UNLESS: Final = 20
OP_JUMP_IF_VALUE: Final = 21  # keeps the value; drops a NULL and goes on
OP_IS_NULL: Final = 22
OP_IS_NAN: Final = 23
OP_COMPARE_INT: Final = 24  # a: relation
OP_COMPARE_FLOAT: Final = 25
OP_SAME_INT: Final = 26
OP_SAME_FLOAT: Final = 27
OP_ARITHMETIC_INT: Final = 28  # a: operator; b: bits, negative: wraps around
OP_ARITHMETIC_WIDE: Final = 29  # a: operator; what overflows is UNFIT
OP_ARITHMETIC_FLOAT: Final = 30  # a: operator; b: 1 if dividing by 0 is an error
OP_DIVIDE_INT: Final = 31  # a: operator (div, %); b: as above
OP_NEGATE_INT: Final = 32  # a: 1 for abs; b: bits, negative: wraps around, 0: cannot overflow
OP_NEGATE_FLOAT: Final = 33
OP_INT_TO_FLOAT: Final = 34
OP_ROUND: Final = 35  # to 32 bits
OP_SCALE: Final = 36  # a: factor
OP_DIGITS: Final = 37  # a: first magnitude that is too large; b: 1 if that is an error
OP_DECIMAL_TO_FLOAT: Final = 38  # a: power of ten
OP_EXTREME_INT: Final = 39  # a: 1 for greatest
OP_EXTREME_FLOAT: Final = 40

RELATIONS: Final = ("=", "<>", "<", "<=", ">", ">=")
OPERATORS: Final = ("+", "-", "*", "/", "%", "div")

# Where a read starts.
CURRENT: Final = 0
FIRST: Final = 1
LAST: Final = 2

# What is kept of a set's rows along the path, beside how many they are.
COUNTED: Final = 0
SUM_INT: Final = 1
SUM_FLOAT: Final = 2
LEAST_INT: Final = 3
LEAST_FLOAT: Final = 4
MOST_INT: Final = 5
MOST_FLOAT: Final = 6

# What a merged state is compared by.
KEY_LAST: Final = 0
KEY_FIRST: Final = 1
KEY_LAST_LABEL: Final = 2
KEY_FIRST_LABEL: Final = 3
KEY_FOLD: Final = 4
KEY_MATCH_NUMBER: Final = 5
KEY_LIMIT: Final = 6
