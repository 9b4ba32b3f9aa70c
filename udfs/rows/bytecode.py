"""Conditions that read the path, as bytecode for the kernel.

Always holds: what the bytecode computes is what `values/evaluate.py` would, or the kernel says
that it cannot tell (a decimal of more than 64 bits) and Python does. An operation that is not
here raises `Unknown`, and the whole condition is Python's.

Everything below a path read that depends on the row under test alone is computed beforehand, for
all rows at once, and read as a column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.expressions import BOOL, Call, Constant, Type
from spark_cep.udfs.rows import opcodes as o
from spark_cep.udfs.rows.leaves import conjuncts, is_physical
from spark_cep.udfs.rows.program import Aggregate, Classifier, MatchNumber, Read

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.rows.state import State

_INT64_DIGITS = 18
_DAY_US = 86_400_000_000
_EXACT_POWER = 22
_TIMES = ("timestamp", "timestamp_ntz", "interval", "months", "date")


class Unknown(Exception):
    """The kernel has no instruction for this."""


@dataclass
class Bytecode:
    code: list[tuple[int, int, int]] = field(default_factory=list)
    ints: list[int | Constant] = field(default_factory=list)
    floats: list[float] = field(default_factory=list)
    stack: int = 1

    def compiled(self, condition: Expression, state: State) -> int:
        """Where the condition's code begins. Leaves nothing behind if it is `Unknown`."""
        start = len(self.code)
        writer = _Writer(self, state)
        try:
            writer.condition(condition)
        except Unknown:
            del self.code[start:]
            raise
        self.stack = max(self.stack, writer.deepest)
        return start


class _Writer:
    """Writes one condition. `value` leaves the code for a value and says how it is held."""

    def __init__(self, into: Bytecode, state: State) -> None:
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
        """The jump written there goes to what is written next."""
        op, _, b = self._into.code[jump]
        self._into.code[jump] = (op, len(self._into.code), b)

    # ---- expressions ---------------------------------------------------------------------------

    def condition(self, node: Expression) -> None:
        """The first conjunct that is not TRUE rejects: what stands behind one that is NULL is not
        looked at."""
        *firsts, last = conjuncts(node)
        rejects = []
        for each in firsts:
            self.value(each)
            rejects.append(self._write(o.OP_JUMP_UNLESS, grows=-1))
        self.value(last)
        self._write(o.OP_END, grows=-1)
        if rejects:
            for jump in rejects:
                self._land(jump)
            self._write(o.OP_NULL, grows=1)
            self._write(o.OP_END, grows=-1)

    def value(self, node: Expression) -> bool:  # noqa: PLR0911
        """Whether the value is held as a float."""
        if isinstance(node, Constant):
            return self._constant(node)
        if is_physical(node) and not isinstance(node, Read):
            return self._column(self._state.computed(node))
        if isinstance(node, Read):
            return self._read(node)
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, Classifier):
            self._write(o.OP_LABEL, self._state.read(node, None), grows=1)
            return False
        if isinstance(node, MatchNumber):
            self._write(o.OP_MATCH_NUMBER, grows=1)
            return False
        if isinstance(node, Call) and node.name in _CALLS:
            return _CALLS[node.name](self, node)
        raise Unknown

    def _constant(self, node: Constant) -> bool:
        if node.value is None:
            self._write(o.OP_NULL, grows=1)
            return node.type.kind == "float"
        value = self._state.constant(node)
        if isinstance(value, float):
            self._into.floats.append(value)
            self._write(o.OP_FLOAT, len(self._into.floats) - 1, grows=1)
            return True
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise Unknown
        self._into.ints.append(value)
        self._write(o.OP_INT, len(self._into.ints) - 1, grows=1)
        return False

    def _column(self, column: tuple[int, bool]) -> bool:
        is_float = column[1]
        read = self._state.read(Read("current", 0, BOOL), column)
        self._write(o.OP_READ_FLOAT if is_float else o.OP_READ_INT, read, grows=1)
        return is_float

    def _read(self, node: Read) -> bool:
        if node.column is None:
            self._write(o.OP_EXISTS, self._state.read(node, None), grows=1)
            return False
        place, is_float = self._state.column(node.column, node.type)
        read = self._state.read(node, (place, is_float))
        self._write(o.OP_READ_FLOAT if is_float else o.OP_READ_INT, read, grows=1)
        return is_float

    def _aggregate(self, node: Aggregate) -> bool:
        if node.argument is not None:
            raise Unknown
        fold = self._state.fold(node)
        kind = self._state.folds[fold].kind
        is_float = kind in (o.SUM_FLOAT, o.LEAST_FLOAT, o.MOST_FLOAT)
        if node.name == "count":
            self._write(o.OP_COUNT, fold, grows=1)
        elif node.name != "avg":
            self._write(o.OP_FOLD_FLOAT if is_float else o.OP_FOLD_INT, fold, grows=1)
            if node.type.kind == "decimal":
                self._digits(node.type)
        elif is_float:
            self._write(o.OP_MEAN_FLOAT, fold, grows=1)
        else:
            self._write(o.OP_MEAN_INT, fold, 10**4 if node.type.kind == "decimal" else 1, grows=1)
            if node.type.kind == "decimal":
                self._digits(node.type)
        return is_float

    def _digits(self, type_: Type) -> None:
        if type_.precision <= _INT64_DIGITS:
            self._write(o.OP_DIGITS, 10**type_.precision, int(self._state.ansi))

    # ---- logic ---------------------------------------------------------------------------------

    def connective(self, node: Call) -> bool:
        skip, combine = (o.OP_AND_SKIP, o.OP_AND) if node.name == "and" else (o.OP_OR_SKIP, o.OP_OR)
        self.value(node.arguments[0])
        for argument in node.arguments[1:]:
            jump = self._write(skip)
            self.value(argument)
            self._write(combine, grows=-1)
            self._land(jump)
        return False

    def not_(self, node: Call) -> bool:
        self.value(node.arguments[0])
        self._write(o.OP_NOT)
        return False

    def null_test(self, node: Call) -> bool:
        self.value(node.arguments[0])
        self._write(o.OP_IS_NULL)
        if node.name == "is_not_null":
            self._write(o.OP_NOT)
        return False

    def is_nan(self, node: Call) -> bool:
        if not self.value(node.arguments[0]):
            raise Unknown
        self._write(o.OP_IS_NAN)
        return False

    def if_(self, node: Call) -> bool:
        condition, then, otherwise = node.arguments
        self.value(condition)
        unless = self._write(o.OP_JUMP_UNLESS, grows=-1)
        self._as(then, node.type)
        done = self._write(o.OP_JUMP, grows=-1)
        self._land(unless)
        is_float = self._as(otherwise, node.type)
        self._land(done)
        return is_float

    def coalesce(self, node: Call) -> bool:
        jumps = []
        for argument in node.arguments[:-1]:
            self._as(argument, node.type)
            jumps.append(self._write(o.OP_JUMP_IF_VALUE, grows=-1))
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
        op = o.OP_EXTREME_FLOAT if is_float else o.OP_EXTREME_INT
        for argument in node.arguments[1:]:
            self._as(argument, node.type)
            self._write(op, int(node.name == "greatest"), grows=-1)
        return is_float

    def _as(self, node: Expression, type_: Type) -> bool:
        """A value in the form of a type: a NULL of no type is one of any."""
        is_float = self.value(node)
        if is_float != (type_.kind == "float") and node.type.kind != "null":
            if is_float or node.type.kind != "int":
                raise Unknown
            self._write(o.OP_INT_TO_FLOAT)
        return type_.kind == "float"

    # ---- comparison ----------------------------------------------------------------------------

    def comparison(self, node: Call) -> bool:
        left, right = node.arguments
        types = [each.type for each in node.arguments if each.type.kind != "null"]
        if len({type_.kind for type_ in types}) > 1 or len({type_.scale for type_ in types}) > 1:
            raise Unknown
        self.value(left)
        self.value(right)
        is_float = bool(types) and types[0].kind == "float"
        if node.name == "<=>":
            self._write(o.OP_SAME_FLOAT if is_float else o.OP_SAME_INT, grows=-1)
        else:
            op = o.OP_COMPARE_FLOAT if is_float else o.OP_COMPARE_INT
            self._write(op, o.RELATIONS.index(node.name), grows=-1)
        return False

    # ---- arithmetic ----------------------------------------------------------------------------

    def arithmetic(self, node: Call) -> bool:
        kind, operator = node.type.kind, o.OPERATORS.index(node.name)
        kinds = [argument.type.kind for argument in node.arguments]
        if kind == "float":
            for argument in node.arguments:
                self._as(argument, node.type)
            self._write(o.OP_ARITHMETIC_FLOAT, operator, int(self._state.ansi), grows=-1)
            if node.type.bits < 64:
                self._write(o.OP_ROUND)
            return True
        if node.name == "/" or ("date" in kinds and kind != "interval"):
            raise Unknown
        if kind not in ("int", "decimal", *_TIMES):
            raise Unknown
        self._scaled(node)
        self._integers(node, operator)
        if kind == "interval" and kinds[0] == "date":
            self._into.ints.append(_DAY_US)
            self._write(o.OP_INT, len(self._into.ints) - 1, grows=1)
            self._write(o.OP_ARITHMETIC_INT, o.OPERATORS.index("*"), 64, grows=-1)
        return False

    def _scaled(self, node: Call) -> None:
        """The operands, decimals brought to one scale."""
        most = max(argument.type.scale for argument in node.arguments)
        for argument in node.arguments:
            if self.value(argument):
                raise Unknown
            factor = 10 ** (most - argument.type.scale)
            if node.name != "*" and factor > 1:
                if factor >= 1 << 63:
                    raise Unknown
                self._write(o.OP_SCALE, factor)

    def _integers(self, node: Call, operator: int) -> None:
        ansi = int(self._state.ansi)
        if node.name in ("%", "div"):
            self._write(o.OP_DIVIDE_INT, operator, ansi, grows=-1)
            if node.type.kind == "decimal":
                self._digits(node.type)
        elif node.type.kind == "decimal":
            self._write(o.OP_ARITHMETIC_WIDE, operator, grows=-1)
            self._digits(node.type)
        else:
            self._write(o.OP_ARITHMETIC_INT, operator, self._width(node.type), grows=-1)

    def _width(self, type_: Type) -> int:
        """Bits of the result, negative where it wraps around. Times fail in any session."""
        bits = type_.bits if type_.kind == "int" else 64
        return -bits if type_.kind == "int" and not self._state.ansi else bits

    def sign(self, node: Call) -> bool:
        is_float = self._as(node.arguments[0], node.type)
        is_abs = int(node.name == "abs")
        if is_float:
            self._write(o.OP_NEGATE_FLOAT, is_abs)
        else:
            if node.type.kind == "decimal" and node.type.precision > _INT64_DIGITS:
                raise Unknown
            width = 0 if node.type.kind == "decimal" else self._width(node.type)
            self._write(o.OP_NEGATE_INT, is_abs, width)
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
                raise Unknown
            if digits:
                self._write(o.OP_SCALE, 10**digits)
            self._digits(target)
        elif target.kind == "float" and source.kind == "decimal" and target.bits == 64:
            if source.scale > min(_EXACT_POWER, _INT64_DIGITS):
                raise Unknown
            self._write(o.OP_DECIMAL_TO_FLOAT, 10**source.scale)
        elif (source.kind, target.kind) == ("int", "float"):
            self._write(o.OP_INT_TO_FLOAT)
            if target.bits < 64:
                self._write(o.OP_ROUND)
        elif (source.kind, target.kind) == ("date", "timestamp_ntz"):
            self._write(o.OP_SCALE, _DAY_US)
        elif source.kind != target.kind or source.bits > target.bits:
            raise Unknown
        else:
            return is_float
        return target.kind == "float"


_CALLS: Final[dict[str, Callable[[_Writer, Call], bool]]] = {
    **dict.fromkeys(("and", "or"), _Writer.connective),
    "not": _Writer.not_,
    **dict.fromkeys(("is_null", "is_not_null"), _Writer.null_test),
    "isnan": _Writer.is_nan,
    "if": _Writer.if_,
    "coalesce": _Writer.coalesce,
    "nullif": _Writer.nullif,
    "in": _Writer.in_,
    **dict.fromkeys(("least", "greatest"), _Writer.extreme),
    **dict.fromkeys((*o.RELATIONS, "<=>"), _Writer.comparison),
    **dict.fromkeys(o.OPERATORS, _Writer.arithmetic),
    **dict.fromkeys(("neg", "abs"), _Writer.sign),
    "cast": _Writer.cast,
}
