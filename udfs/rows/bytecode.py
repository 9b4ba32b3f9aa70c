"""Compiles conditions that read the path to bytecode for the kernel.

The bytecode computes what `values/evaluate.py` would, or the kernel reports that it cannot (a
decimal of more than 64 bits) and Python evaluates the condition. A condition with an operation that
has no instruction raises `UnsupportedExpression`, and all of it is evaluated in Python. A
subexpression that depends only on the row under test and its neighbours is computed beforehand, for
all rows at once, and read as a column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from spark_cep.udfs.expressions import BOOL, DOUBLE, Call, Constant, Type
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead
from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.instructions import ANYTHING, PathNeed, PathReads
from spark_cep.udfs.rows.leaves import is_physical, split_conjuncts
from spark_cep.udfs.values.functions import is_function
from spark_cep.udfs.values.vectors import WORD_KINDS

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import RowProgram, VariableSet


_ANCHORS = {"current": r.CURRENT, "first": r.FIRST, "last": r.LAST}
KernelColumn = tuple[int, bool]
# A read n steps back means that two paths are compared by n values. Beyond this, comparing costs
# more than walking, and the needs of all instructions together grow with the square.
FARTHEST_STEP: Final = 32
_INT64_DIGITS = 18
_DAY_US = 86_400_000_000
_EXACT_POWER = 22
SPREADS: Final = {
    "var_pop": 0,
    "var_samp": r.SAMPLE,
    "stddev_pop": r.ROOT,
    "stddev_samp": r.SAMPLE | r.ROOT,
}
# For integers, and for floats.
_EXTREMES: Final = {
    "min": (r.LEAST_INT, r.LEAST_FLOAT),
    "max": (r.MOST_INT, r.MOST_FLOAT),
}
_EXTREME_ROWS: Final = {
    "min_by": (r.LEAST_AT_INT, r.LEAST_AT_FLOAT),
    "max_by": (r.MOST_AT_INT, r.MOST_AT_FLOAT),
    "first": (r.FIRST_AT, r.FIRST_AT),
    "last": (r.LAST_AT, r.LAST_AT),
}
_BITS: Final = {"bit_and": r.BIT_AND, "bit_or": r.BIT_OR, "bit_xor": r.BIT_XOR}
_TIMES = ("timestamp", "timestamp_ntz", "interval", "months", "date")
_T = TypeVar("_T")


class UnsupportedExpression(Exception):
    """The kernel has no instruction for this expression."""


# ---- what conditions read ----------------------------------------------------------------------


@dataclass(frozen=True)
class ValueColumn:
    """A value for each row: of a shipped column, or of an expression over the row and its
    neighbours. `as_float`: integers are converted to floats."""

    column: int | None
    type: Type
    expression: Expression | None = None
    as_float: bool = False

    @property
    def is_float(self) -> bool:
        return self.as_float or self.type.kind == "float"


@dataclass(frozen=True)
class PathFold:
    """An aggregate over the rows of a set, kept along the path.

    `values`: where its numbers begin among those kept as integers, or as floats. `once`: the
    shipped column whose equal values count once. `distinct`: the index among the folds that have
    such a column, because each of them counts for itself what it has seen.
    """

    kind: int
    which: int
    column: int
    values: int
    once: int = -1
    distinct: int = -1

    @property
    def is_float(self) -> bool:
        return self.kind in (r.SUM_FLOAT, r.LEAST_FLOAT, r.MOST_FLOAT, r.SPREAD)

    @property
    def lines(self) -> int:
        """How many numbers are kept."""
        return 2 if self.kind == r.SPREAD else 1


@dataclass
class ConditionReads:
    """What the conditions of a program read of the path and of the rows, each thing once.

    It follows from the program alone, so the driver can compile a program to check whether it can
    run; `arrays.py` supplies the values of a bucket.
    """

    program: RowProgram
    sets: list[frozenset[int]] = field(default_factory=list)
    ints: list[ValueColumn] = field(default_factory=list)
    floats: list[ValueColumn] = field(default_factory=list)
    reads: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    folds: list[PathFold] = field(default_factory=list)
    distinct: list[int] = field(default_factory=list)
    path_reads: PathReads = field(default_factory=lambda: defaultdict(set))

    @property
    def ansi(self) -> bool:
        return self.program.ansi

    def which(self, variables: VariableSet) -> int:
        """The number of a set; -1 for all rows of the path, which need no list."""
        if variables is None or len(variables) == len(self.program.variables):
            return -1
        return _index_of(self.sets, variables)

    def column(self, column: int, type_: Type, *, as_float: bool = False) -> KernelColumn:
        return self._add_column(ValueColumn(column, type_, as_float=as_float))

    def computed(self, expression: Expression) -> KernelColumn:
        return self._add_column(ValueColumn(None, expression.type, expression))

    def read(self, node: RowRead | Classifier, column: KernelColumn | None) -> int:
        which = self.which(node.variables)
        place, is_float = column or (-1, False)
        if column is not None and node.anchor != "current":
            self.path_reads[node.anchor, which].add((place, is_float, node.shift))
        read = (_ANCHORS[node.anchor], which, node.offset, node.shift, place)
        return _index_of(self.reads, read)

    def constant(self, node: Constant) -> int | float | Constant:
        """The value as the kernel holds it. Strings stay constants: their codes are only known with
        the strings of a bucket."""
        if node.type.kind in WORD_KINDS:
            return node
        return float(node.value) if node.type.kind == "float" else int(node.value)

    def fold(self, node: Aggregate) -> int:
        everything = frozenset(range(len(self.program.variables)))
        which = _index_of(self.sets, everything if node.variables is None else node.variables)
        kind, column = self._fold_kind(node)
        counts_once = node.distinct and node.name not in ("min", "max", *_EXTREME_ROWS)
        once = node.column if counts_once and node.column is not None else -1
        new = PathFold(kind, which, column[0], 0, once)
        for place, fold in enumerate(self.folds):
            if replace(fold, values=0, distinct=-1) == new:
                return place
        values = sum(fold.lines for fold in self.folds if fold.is_float == new.is_float)
        distinct = -1
        if once >= 0:
            distinct = len(self.distinct)
            self.distinct.append(once)
        self.folds.append(replace(new, values=values, distinct=distinct))
        return len(self.folds) - 1

    def needs(self, leaf: Expression) -> PathNeed:
        """What a leaf of a compiled condition needs to know of the path."""
        if isinstance(leaf, RowRead | Classifier):
            label = " label" if isinstance(leaf, Classifier) else ""
            if (label and leaf.shift) or (not label and leaf.column is None):  # type: ignore[union-attr]
                return ANYTHING
            if leaf.offset > FARTHEST_STEP:
                return ANYTHING
            return PathNeed(leaf.anchor + label, self.which(leaf.variables), leaf.offset)
        if hasattr(leaf, "column"):
            fold = self.fold(leaf)  # type: ignore[arg-type]
            return ANYTHING if self.folds[fold].distinct >= 0 else PathNeed("fold", fold)
        return PathNeed("number")

    def _fold_kind(self, node: Aggregate) -> tuple[int, KernelColumn]:
        if node.column is None:
            return r.COUNTED, (-1, False)
        if node.name == "count":
            return r.COUNTED, self.column(node.column, Type("other"))
        if node.by is not None:
            return _EXTREME_ROWS[node.name][node.by[1].kind == "float"], self.column(*node.by)
        if node.name in _EXTREMES:
            is_float = node.type.kind == "float"
            return _EXTREMES[node.name][is_float], self.column(node.column, node.type)
        if node.type.kind == "float":
            kind = r.SPREAD if node.name in SPREADS else r.SUM_FLOAT
            return kind, self.column(node.column, DOUBLE, as_float=True)
        return _BITS.get(node.name, r.SUM_INT), self.column(node.column, Type("int"))

    def _add_column(self, column: ValueColumn) -> KernelColumn:
        columns = self.floats if column.is_float else self.ints
        return _index_of(columns, column), column.is_float


def _index_of(known: list[_T], value: _T) -> int:
    """The index of the value in the list, to which it is added if it is new."""
    if value not in known:
        known.append(value)
    return known.index(value)


# ---- bytecode ----------------------------------------------------------------------------------


@dataclass
class Bytecode:
    """The bytecode of all conditions of a program. `stack`: the entries that it needs at most."""

    code: list[tuple[int, int, int]] = field(default_factory=list)
    ints: list[int | Constant] = field(default_factory=list)
    floats: list[float] = field(default_factory=list)
    stack: int = 1

    def compile_condition(self, condition: Expression, state: ConditionReads) -> int:
        """Appends the code of a condition and returns where it begins. Leaves no code behind if it
        raises `UnsupportedExpression`."""
        start = len(self.code)
        writer = _BytecodeWriter(self, state)
        try:
            writer.condition(condition)
        except UnsupportedExpression:
            del self.code[start:]
            raise
        self.stack = max(self.stack, writer.deepest)
        return start


class _BytecodeWriter:
    """Writes the code of one condition."""

    def __init__(self, into: Bytecode, state: ConditionReads) -> None:
        self._into = into
        self._state = state
        self._depth = 0
        self.deepest = 1

    # ---- instructions --------------------------------------------------------------------------

    def _write(self, op: int, a: int = 0, b: int = 0, *, grows: int = 0) -> int:
        self._depth += grows
        self.deepest = max(self.deepest, self._depth)
        self._into.code.append((op, a, b))
        return len(self._into.code) - 1

    def _land(self, jump: int) -> None:
        """Sets the target of a jump to the next instruction."""
        op, _, b = self._into.code[jump]
        self._into.code[jump] = (op, len(self._into.code), b)

    # ---- expressions ---------------------------------------------------------------------------

    def condition(self, node: Expression) -> None:
        """The first conjunct that is not TRUE rejects the row: after a NULL, the conjuncts that
        follow are not evaluated."""
        *firsts, last = split_conjuncts(node)
        rejects = []
        for each in firsts:
            self.value(each)
            rejects.append(self._write(r.OP_JUMP_UNLESS, grows=-1))
        self.value(last)
        self._write(r.OP_END, grows=-1)
        if rejects:
            for jump in rejects:
                self._land(jump)
            self._write(r.OP_NULL, grows=1)
            self._write(r.OP_END, grows=-1)

    def value(self, node: Expression) -> bool:  # noqa: PLR0911
        """Writes the code for a value; returns whether the value is held as a float."""
        if isinstance(node, Constant):
            return self._constant(node)
        if is_physical(node) and not isinstance(node, RowRead):
            if node.type.kind in (*WORD_KINDS, "other") and _calls_function(node):
                raise UnsupportedExpression  # words that no column has: there is no code for them
            return self._column(self._state.computed(node))
        if isinstance(node, RowRead):
            return self._read(node)
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, Classifier):
            self._write(r.OP_LABEL, self._state.read(node, None), grows=1)
            return False
        if isinstance(node, MatchNumber):
            self._write(r.OP_MATCH_NUMBER, grows=1)
            return False
        if isinstance(node, Call) and node.name in _CALLS:
            return _CALLS[node.name](self, node)
        raise UnsupportedExpression

    def _constant(self, node: Constant) -> bool:
        if node.value is None:
            self._write(r.OP_NULL, grows=1)
            return node.type.kind == "float"
        value = self._state.constant(node)
        if isinstance(value, float):
            self._into.floats.append(value)
            self._write(r.OP_FLOAT, len(self._into.floats) - 1, grows=1)
            return True
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise UnsupportedExpression
        self._into.ints.append(value)
        self._write(r.OP_INT, len(self._into.ints) - 1, grows=1)
        return False

    def _column(self, column: tuple[int, bool]) -> bool:
        is_float = column[1]
        read = self._state.read(RowRead("current", 0, BOOL), column)
        self._write(r.OP_READ_FLOAT if is_float else r.OP_READ_INT, read, grows=1)
        return is_float

    def _read(self, node: RowRead) -> bool:
        if node.column is None:
            self._write(r.OP_EXISTS, self._state.read(node, None), grows=1)
            return False
        place, is_float = self._state.column(node.column, node.type)
        read = self._state.read(node, (place, is_float))
        self._write(r.OP_READ_FLOAT if is_float else r.OP_READ_INT, read, grows=1)
        return is_float

    def _aggregate(self, node: Aggregate) -> bool:
        if node.argument is not None:
            raise UnsupportedExpression
        fold = self._state.fold(node)
        if node.name in SPREADS:
            self._write(r.OP_SPREAD, fold, SPREADS[node.name], grows=1)
            return True
        if node.by is not None:
            assert node.column is not None
            place, is_float = self._state.column(node.column, node.type)
            self._write(r.OP_AT_FLOAT if is_float else r.OP_AT_INT, fold, place, grows=1)
            return is_float
        kind = self._state.folds[fold].kind
        is_float = kind in (r.SUM_FLOAT, r.LEAST_FLOAT, r.MOST_FLOAT)
        if node.name == "count":
            self._write(r.OP_COUNT, fold, grows=1)
        elif node.name != "avg":
            self._write(r.OP_FOLD_FLOAT if is_float else r.OP_FOLD_INT, fold, grows=1)
            if node.type.kind == "decimal":
                self._digits(node.type)
        elif is_float:
            self._write(r.OP_MEAN_FLOAT, fold, grows=1)
        else:
            self._write(r.OP_MEAN_INT, fold, 10**4 if node.type.kind == "decimal" else 1, grows=1)
            if node.type.kind == "decimal":
                self._digits(node.type)
        return is_float

    def _digits(self, type_: Type) -> None:
        if type_.precision <= _INT64_DIGITS:
            self._write(r.OP_DIGITS, 10**type_.precision, int(self._state.ansi))

    # ---- logic ---------------------------------------------------------------------------------

    def connective(self, node: Call) -> bool:
        skip, combine = (r.OP_AND_SKIP, r.OP_AND) if node.name == "and" else (r.OP_OR_SKIP, r.OP_OR)
        self.value(node.arguments[0])
        for argument in node.arguments[1:]:
            jump = self._write(skip)
            self.value(argument)
            self._write(combine, grows=-1)
            self._land(jump)
        return False

    def not_(self, node: Call) -> bool:
        self.value(node.arguments[0])
        self._write(r.OP_NOT)
        return False

    def null_test(self, node: Call) -> bool:
        self.value(node.arguments[0])
        self._write(r.OP_IS_NULL)
        if node.name == "is_not_null":
            self._write(r.OP_NOT)
        return False

    def is_nan(self, node: Call) -> bool:
        if not self.value(node.arguments[0]):
            raise UnsupportedExpression
        self._write(r.OP_IS_NAN)
        return False

    def if_(self, node: Call) -> bool:
        condition, then, otherwise = node.arguments
        self.value(condition)
        unless = self._write(r.OP_JUMP_UNLESS, grows=-1)
        self._as(then, node.type)
        done = self._write(r.OP_JUMP, grows=-1)
        self._land(unless)
        is_float = self._as(otherwise, node.type)
        self._land(done)
        return is_float

    def coalesce(self, node: Call) -> bool:
        jumps = []
        for argument in node.arguments[:-1]:
            self._as(argument, node.type)
            jumps.append(self._write(r.OP_JUMP_IF_VALUE, grows=-1))
        is_float = self._as(node.arguments[-1], node.type)
        for jump in jumps:
            self._land(jump)
        return is_float

    def nullif(self, node: Call) -> bool:
        left, right = node.arguments
        same = Call("=", (left, right), BOOL)
        return self.if_(Call("if", (same, Constant(None, left.type), left), node.type))

    def in_(self, node: Call) -> bool:
        head, *items = node.arguments
        equal = tuple(Call("=", (head, item), BOOL) for item in items)
        return self.connective(Call("or", equal, BOOL))

    def extreme(self, node: Call) -> bool:
        is_float = self._as(node.arguments[0], node.type)
        op = r.OP_EXTREME_FLOAT if is_float else r.OP_EXTREME_INT
        for argument in node.arguments[1:]:
            self._as(argument, node.type)
            self._write(op, int(node.name == "greatest"), grows=-1)
        return is_float

    def _as(self, node: Expression, type_: Type) -> bool:
        """A value held as its type requires; an untyped NULL is a NULL of any type."""
        is_float = self.value(node)
        if is_float != (type_.kind == "float") and node.type.kind != "null":
            if is_float or node.type.kind != "int":
                raise UnsupportedExpression
            self._write(r.OP_INT_TO_FLOAT)
        return type_.kind == "float"

    # ---- comparison ----------------------------------------------------------------------------

    def comparison(self, node: Call) -> bool:
        left, right = node.arguments
        types = [each.type for each in node.arguments if each.type.kind != "null"]
        if len({type_.kind for type_ in types}) > 1 or len({type_.scale for type_ in types}) > 1:
            raise UnsupportedExpression
        self.value(left)
        self.value(right)
        is_float = bool(types) and types[0].kind == "float"
        if node.name == "<=>":
            self._write(r.OP_SAME_FLOAT if is_float else r.OP_SAME_INT, grows=-1)
        else:
            op = r.OP_COMPARE_FLOAT if is_float else r.OP_COMPARE_INT
            self._write(op, r.RELATIONS.index(node.name), grows=-1)
        return False

    # ---- arithmetic ----------------------------------------------------------------------------

    def arithmetic(self, node: Call) -> bool:
        kind, operator = node.type.kind, r.OPERATORS.index(node.name)
        kinds = [argument.type.kind for argument in node.arguments]
        if kind == "float":
            for argument in node.arguments:
                self._as(argument, node.type)
            self._write(r.OP_ARITHMETIC_FLOAT, operator, int(self._state.ansi), grows=-1)
            if node.type.bits < 64:
                self._write(r.OP_ROUND)
            return True
        if node.name == "/" or ("date" in kinds and kind != "interval"):
            raise UnsupportedExpression
        if kind not in ("int", "decimal", *_TIMES):
            raise UnsupportedExpression
        self._operands(node)
        self._integers(node, operator)
        if kind == "interval" and kinds[0] == "date":
            self._into.ints.append(_DAY_US)
            self._write(r.OP_INT, len(self._into.ints) - 1, grows=1)
            self._write(r.OP_ARITHMETIC_INT, r.OPERATORS.index("*"), 64, grows=-1)
        return False

    def _operands(self, node: Call) -> None:
        """Writes the operands, decimals rescaled to one scale."""
        most = max(argument.type.scale for argument in node.arguments)
        for argument in node.arguments:
            if self.value(argument):
                raise UnsupportedExpression
            factor = 10 ** (most - argument.type.scale)
            if node.name != "*" and factor > 1:
                if factor >= 1 << 63:
                    raise UnsupportedExpression
                self._write(r.OP_SCALE, factor)

    def _integers(self, node: Call, operator: int) -> None:
        ansi = int(self._state.ansi)
        if node.name in ("%", "div"):
            self._write(r.OP_DIVIDE_INT, operator, ansi, grows=-1)
            if node.type.kind == "decimal":
                self._digits(node.type)
        elif node.type.kind == "decimal":
            self._write(r.OP_ARITHMETIC_WIDE, operator, grows=-1)
            self._digits(node.type)
        else:
            self._write(r.OP_ARITHMETIC_INT, operator, self._width(node.type), grows=-1)

    def _width(self, type_: Type) -> int:
        """The bits of the result, negative if it wraps around. Times never wrap around, in any
        session."""
        bits = type_.bits if type_.kind == "int" else 64
        return -bits if type_.kind == "int" and not self._state.ansi else bits

    def sign(self, node: Call) -> bool:
        is_float = self._as(node.arguments[0], node.type)
        is_abs = int(node.name == "abs")
        if is_float:
            self._write(r.OP_NEGATE_FLOAT, is_abs)
        else:
            if node.type.kind == "decimal" and node.type.precision > _INT64_DIGITS:
                raise UnsupportedExpression
            width = 0 if node.type.kind == "decimal" else self._width(node.type)
            self._write(r.OP_NEGATE_INT, is_abs, width)
        return is_float

    # ---- conversion ----------------------------------------------------------------------------

    def cast(self, node: Call) -> bool:
        source, target = node.arguments[0].type, node.type
        is_float = self.value(node.arguments[0])
        if source.kind == "null":
            return target.kind == "float"
        if target.kind == "decimal" and source.kind in ("int", "decimal"):
            digits = target.scale - (source.scale if source.kind == "decimal" else 0)
            if not 0 <= digits <= _INT64_DIGITS:
                raise UnsupportedExpression
            if digits:
                self._write(r.OP_SCALE, 10**digits)
            self._digits(target)
        elif target.kind == "float" and source.kind == "decimal" and target.bits == 64:
            if source.scale > min(_EXACT_POWER, _INT64_DIGITS):
                raise UnsupportedExpression
            self._write(r.OP_DECIMAL_TO_FLOAT, 10**source.scale)
        elif (source.kind, target.kind) == ("int", "float"):
            self._write(r.OP_INT_TO_FLOAT)
            if target.bits < 64:
                self._write(r.OP_ROUND)
        elif (source.kind, target.kind) == ("date", "timestamp_ntz"):
            self._write(r.OP_SCALE, _DAY_US)
        elif source.kind != target.kind or source.bits > target.bits:
            raise UnsupportedExpression
        else:
            return is_float
        return target.kind == "float"


def _calls_function(node: Expression) -> bool:
    return any(
        isinstance(each, Call) and (each.name == "->" or is_function(each.name))
        for each in node.walk()
    )


_CALLS: Final[dict[str, Callable[[_BytecodeWriter, Call], bool]]] = {
    **dict.fromkeys(("and", "or"), _BytecodeWriter.connective),
    "not": _BytecodeWriter.not_,
    **dict.fromkeys(("is_null", "is_not_null"), _BytecodeWriter.null_test),
    "isnan": _BytecodeWriter.is_nan,
    "if": _BytecodeWriter.if_,
    "coalesce": _BytecodeWriter.coalesce,
    "nullif": _BytecodeWriter.nullif,
    "in": _BytecodeWriter.in_,
    **dict.fromkeys(("least", "greatest"), _BytecodeWriter.extreme),
    **dict.fromkeys((*r.RELATIONS, "<=>"), _BytecodeWriter.comparison),
    **dict.fromkeys(r.OPERATORS, _BytecodeWriter.arithmetic),
    **dict.fromkeys(("neg", "abs"), _BytecodeWriter.sign),
    "cast": _BytecodeWriter.cast,
}
