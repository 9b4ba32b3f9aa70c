"""Functions between rows of the match that the worker computes (udfs/functions).

A node becomes a `Call` with the name of a registered function. Spark says what type the result
has, and whether the text is valid at all; the operands are converted to what the function takes, as
Spark does implicitly: by Spark, if they are over one row, else by the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from spark_cep.expressions.conditions import TypeMismatch
from spark_cep.expressions.operands import ConstantOperand, Conversion, InexactError, RowOperand
from spark_cep.expressions.syntax import SPARK_FUNCTIONS
from spark_cep.expressions.translation import compare, negate, translate_arithmetic
from spark_cep.expressions.types import TIMES, name_of
from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import (
    BIGINT,
    BOOL,
    DOUBLE,
    Call,
    Constant,
    Expression,
    Type,
    UserCall,
)
from spark_cep.udfs.functions.conversion import converts
from spark_cep.udfs.functions.formats import printable, prints
from spark_cep.udfs.functions.hashes import hashes
from spark_cep.udfs.functions.nested import (
    element_type,
    map_types,
    named_type,
    ranking,
    sql_of,
    struct_fields,
)
from spark_cep.udfs.functions.patterns import translate_regex
from spark_cep.udfs.functions.times import EXTRACTED, TIME_UNITS, is_known_zone
from spark_cep.udfs.values.functions import find_function

if TYPE_CHECKING:
    from spark_cep.expressions.conditions import Guards
    from spark_cep.expressions.translation import CompilerSession
    from spark_cep.rows.conditions import ConditionTranslation
    from spark_cep.udfs.functions.registry import Function


STRING = Type("string")
_INT = Type("int", 32)
_KIND_TYPES: Final = {
    "string": STRING,
    "binary": Type("binary"),
    "bool": BOOL,
    "int": _INT,
    "bigint": BIGINT,
    "double": DOUBLE,
    "date": Type("date"),
    "timestamp": Type("timestamp"),
}
# Kinds whose values functions take as they are.
_PLAIN: Final = frozenset(
    {
        "bool", "int", "float", "decimal", "string", "binary", "date", "timestamp",
        "timestamp_ntz", "interval", "months", "null",
    }
)  # fmt: skip
# A float that Java prints with a digit too many before Java 19.
_PRINTED: Final = "CAST(5.684341886080802E-14D AS STRING)"
_SHORTEST: Final = "5.684341886080802E-14"
# The zero of an array as a set, which is -0.0 in older versions of Spark, and two zeros in some.
_ZERO_OF_SET: Final = "CAST(array_distinct(array(-0.0D))[0] AS STRING)"


@dataclass(frozen=True)
class _Spelling:
    """A call as the text spells it. `negated`: with NOT."""

    name: str
    arguments: Sequence[exp.Expr | Expression]
    negated: bool = False


class FunctionConversion(Conversion):
    """Converts by the worker what is computed from several rows."""

    def __init__(self, session: CompilerSession) -> None:
        super().__init__(session.typer, ansi=session.ansi)
        self._zone = session.time_zone

    def to(self, operand: Expression, target: Type, *, in_engine: bool = False) -> Expression:
        try:
            return super().to(operand, target, in_engine=in_engine)
        except InexactError:
            if isinstance(operand, ConstantOperand) or "other" in {operand.type.kind, target.kind}:
                raise
            return self.by_worker("convert", operand, target)

    def by_worker(self, name: str, operand: Expression, target: Type) -> Expression:
        """`name`: convert or try_convert."""
        if not converts(operand.type, target):
            raise InexactError(
                f"a cast of {name_of(operand.type)} to {name_of(target)} for a value of several "
                "variables"
            )
        kinds = {operand.type.kind, target.kind}
        is_zoned = "timestamp" in kinds and kinds != {"timestamp", "int"}
        if is_zoned and not is_known_zone(self._zone):
            raise InexactError(f"a cast in the time zone {self._zone}")
        arguments: list[Expression] = [operand, Constant(self._zone if is_zoned else "", STRING)]
        if operand.type.kind == "float" and target.kind == "string":
            is_shortest = self.constant(_PRINTED).value == _SHORTEST
            arguments.append(Constant(is_shortest, BOOL))
        return Call(name, tuple(arguments), target)


def translate_function(  # noqa: PLR0911
    t: ConditionTranslation, node: exp.Expr, guards: Guards
) -> Expression | None:
    """The node as a call of the worker; None if it is no function, InexactError if the worker does
    not have it for these types."""
    if type(node) in _OPERATORS:
        return _operator(t, node, guards)
    if isinstance(node, exp.Cast | exp.TryCast):
        return _cast(t, node, guards)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "equal_null":
        return compare(t, "<=>", *(t.build(each, guards) for each in node.expressions))
    if isinstance(node, exp.Anonymous) and node.name.lower() == "typeof":
        return _type_name(t, node)
    if isinstance(node, exp.Anonymous) and node.name.lower() in _ATTEMPTS:
        return _attempt(t, node, guards)
    rule = _SPELLINGS.get(type(node))
    spelling = None if rule is None else rule(node)
    if spelling is None:
        return None
    if spelling.name not in _OVERLOADED | _CAST_NAMES and find_function(spelling.name) is None:
        return _of_session(t, node, guards)
    arguments = [
        each if isinstance(each, Expression) else t.build(each, guards)
        for each in spelling.arguments
    ]
    result = t.type_between_rows(node)
    if spelling.name in _CAST_NAMES and len(arguments) == 1:
        return convert(t, arguments[0], result, node)
    found = _call(t, node, spelling.name, arguments, result)
    return negate(found) if spelling.negated else found


def _type_name(t: ConditionTranslation, node: exp.Anonymous) -> Expression:
    """typeof() depends on no row."""
    (argument,) = node.expressions
    type_ = t.type_between_rows(argument)
    name = sql_of(type_)
    if name is None:
        raise _refusal(t, node)
    return Constant(name, STRING)


def _of_session(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> UserCall:
    """A call of a Python function that is registered in the session."""
    result = t.type_between_rows(node)
    name = node.name
    if not isinstance(node, exp.Anonymous) or name.upper() in SPARK_FUNCTIONS:
        raise _refusal(t, node)
    found = t.session.typer.session_function(t.text_between_rows(node), name)
    if isinstance(found, str):
        raise TypeMismatch(found, node, f"register it with cep.udf, for pandas Series: {name}")
    if found is None:
        raise _refusal(t, node)
    arguments = tuple(t.build(each, guards) for each in node.expressions)
    unfit = next((each.type for each in arguments if not found.takes(each.type)), None)
    unfit = result if unfit is None and not found.returns(result) else unfit
    if unfit is not None or not arguments:
        shown = "no argument" if unfit is None else sql_name_of(unfit)
        raise InexactError(f"{t.describe(node)} with {shown}", node)
    return UserCall(name, found, arguments, result)


def sql_name_of(type_: Type) -> str:
    return type_.sql.upper() or name_of(type_)


def _refusal(t: ConditionTranslation, node: exp.Expr) -> InexactError:
    return InexactError(f"{t.describe(node)} over several variables", node)


# ---- calls ---------------------------------------------------------------------------------------


def _call(
    t: ConditionTranslation,
    node: exp.Expr,
    name: str,
    arguments: Sequence[Expression],
    result: Type,
) -> Expression:
    name = _by_types(name, arguments, result)
    known = find_function(name)
    kinds = None if known is None else known.kinds(len(arguments))
    if known is None or kinds is None:
        raise _refusal(t, node)
    if result.kind == "other" and named_type(result.sql) is None:
        raise InexactError(f"{t.describe(node)} with the result {sql_name_of(result)}", node)
    _check_zeros(t, node, name, arguments[0].type if arguments else result)
    made = [
        _as_kind(t, node, each, kind, (arguments, result))
        for each, kind in zip(arguments, kinds, strict=True)
    ]
    _check_constants(name, made, node)
    return Call(name, (*made, *_zone(t, known, node)), result)


def _check_zeros(t: ConditionTranslation, node: exp.Expr, name: str, array: Type) -> None:
    if name not in _SETS or (element_type(array) or array).kind != "float":
        return
    if t.conversion.constant(_ZERO_OF_SET).value != "0.0":
        raise TypeMismatch(
            f"{name}() of {sql_name_of(array)} over several variables keeps -0.0 in this version "
            "of Spark",
            node,
            "use arrays of integers or decimals",
        )


def _zone(t: ConditionTranslation, known: Function, node: exp.Expr) -> tuple[Expression, ...]:
    if not known.zoned:
        return ()
    zone = t.session.time_zone
    if not is_known_zone(zone):
        raise InexactError(f"{t.describe(node)} in the time zone {zone}", node)
    return (Constant(zone, STRING),)


def _check_constants(name: str, arguments: Sequence[Expression], node: exp.Expr) -> None:
    """Reports a regular expression or a format that the worker cannot evaluate."""
    _check_format(name, arguments, node)
    pattern = arguments[1] if name in _WITH_REGEX else None
    text = pattern.constant.value if isinstance(pattern, ConstantOperand) else None
    if isinstance(text, str):
        try:
            translate_regex(text)
        except CepError as problem:
            raise TypeMismatch(problem.message, node, problem.hint) from None


def _check_format(name: str, arguments: Sequence[Expression], node: exp.Expr) -> None:
    place = {"format_string": 0, "printf": 0, "date_format": 1, "from_unixtime": 1}.get(name)
    if place is None or place >= len(arguments):
        return
    given = arguments[place]
    text = given.constant.value if isinstance(given, ConstantOperand) else None
    types = tuple(each.type for each in arguments[1:])
    is_known = isinstance(text, str) and (prints(text) if place else printable(text, types))
    if not is_known:
        shown = repr(text) if isinstance(text, str) else "that is no literal"
        raise InexactError(f"{name}() over several variables with the format {shown}", node)


_WITH_REGEX: Final = frozenset(
    {
        "rlike", "regexp", "regexp_like", "regexp_extract", "regexp_replace", "regexp_count",
        "regexp_substr", "split", "regexp_extract_all", "regexp_instr",
    }
)  # fmt: skip


_SETS: Final = frozenset(
    {"array_distinct", "array_union", "array_intersect", "array_except", "arrays_overlap"}
)
_OVERLOADED: Final = frozenset({"concat", "reverse", "element_at", "try_element_at", "[]"})


def _by_types(name: str, arguments: Sequence[Expression], result: Type) -> str:
    """The function for a name that has several, by the types of the arguments."""
    first = arguments[0].type if arguments else result
    is_map = first.sql.startswith("map<")
    if name == "concat":
        return "concat_arrays" if result.kind == "other" else "concat_strings"
    if name == "reverse":
        return "reverse_array" if first.kind == "other" else "reverse_string"
    if name in {"element_at", "try_element_at"}:
        return "map_item" if is_map else f"{name}_array"
    if name == "format_number" and arguments[-1].type.kind == "string":
        return ""  # a pattern, not a number of digits
    if name == "[]":
        return "map_item" if is_map else "array_item"
    return name


# ---- operands ------------------------------------------------------------------------------------


def _as_kind(  # noqa: PLR0911, PLR0912
    t: ConditionTranslation,
    node: exp.Expr,
    operand: Expression,
    kind: str,
    around: tuple[Sequence[Expression], Type],
) -> Expression:
    arguments, result = around
    type_ = operand.type
    if kind in _KIND_TYPES:
        return convert(t, operand, _KIND_TYPES[kind], node)
    if kind == "result":
        return convert(t, operand, result, node)
    if kind == "element_of_result":
        return convert(t, operand, element_type(result) or type_, node)
    if kind == "element":
        return _element(t, node, operand, element_type(arguments[0].type))
    if kind == "key":
        types = map_types(arguments[0].type)
        return _element(t, node, operand, None if types is None else types[0])
    if kind in {"array", "map", "strings", "sortable"}:
        inner = element_type(type_) if kind != "map" else map_types(type_)
        if (
            inner is None
            or (kind == "strings" and inner != STRING)
            or (kind == "sortable" and not _has_order(element_type(type_)))
        ):
            raise InexactError(f"{t.describe(node)} of {sql_name_of(type_)}", node)
        return operand
    if kind == "text":
        return operand if type_.kind == "binary" else convert(t, operand, STRING, node)
    if kind == "hashed":
        if not hashes(type_):
            raise InexactError(f"{t.describe(node)} of {sql_name_of(type_)}", node)
        return operand
    allowed = {
        "any": _PLAIN,
        "number": {"int", "float", "decimal"},
        "decimals": {"int", "decimal"},
        "time": TIMES,
    }[kind]
    is_nested = kind == "any" and type_.kind == "other" and named_type(type_.sql) is not None
    if type_.kind in allowed or is_nested:
        return operand
    if kind == "number" and type_.kind in {"string", "null"}:
        return convert(t, operand, DOUBLE, node)
    if kind == "time" and type_.kind in {"string", "null"}:
        return convert(t, operand, Type("timestamp"), node)
    raise InexactError(f"{t.describe(node)} of {sql_name_of(type_)}", node)


def _element(
    t: ConditionTranslation, node: exp.Expr, operand: Expression, element: Type | None
) -> Expression:
    """A value that is compared with elements of an array, or keys of a map. Integers of different
    widths compare as they are; Spark widens other elements too, which the worker does not."""
    if element is None:
        raise _refusal(t, node)
    if operand.type == element or operand.type.kind == element.kind == "int":
        return operand
    if operand.type.kind in {"int", "null"} and element.kind in {"float", "decimal", "string"}:
        return convert(t, operand, element, node)
    raise InexactError(
        f"{t.describe(node)} of {sql_name_of(operand.type)} in {sql_name_of(element)}", node
    )


def _is_same_inside(a: Type, b: Type) -> bool:
    """Whether values of the types are the same in Python: types that differ in the names of fields
    and in the widths of integers."""
    if a.kind == b.kind == "int" or (a == b and a.kind != "other"):
        return True
    insides = [inside(a) for a in (a, b)]
    return len(insides[0]) == len(insides[1]) > 0 and all(map(_is_same_inside, *insides))


def inside(type_: Type) -> tuple[Type, ...]:
    """The types inside an array, a map or a struct, behind a type for which of these it is."""
    element, entry, fields = element_type(type_), map_types(type_), struct_fields(type_)
    if element is not None:
        return (_ARRAY, element)
    if entry is not None:
        return (_MAP, *entry)
    return () if fields is None else (_STRUCT, *(each for _, each in fields))


_ARRAY, _MAP, _STRUCT = (Type("decimal", precision=n) for n in (101, 102, 103))


def _has_order(type_: Type | None) -> bool:
    return type_ is not None and ranking(type_, type_.sql) is not None


def convert(
    t: ConditionTranslation, operand: Expression, target: Type, node: exp.Expr | None = None
) -> Expression:
    """The operand as CAST gives it: computed by Spark over one row, else by the worker."""
    if "other" in {operand.type.kind, target.kind}:
        if operand.type.sql == target.sql or _is_same_inside(operand.type, target):
            return operand
        if isinstance(operand, RowOperand) and operand.text and operand.reading == "each":
            text = f"CAST({operand.text} AS {sql_name_of(target)})"
            return replace(operand, text=text, type=target)
        if operand.type.kind == "null":
            return Constant(None, target)
        raise InexactError(f"a cast of {sql_name_of(operand.type)} to {sql_name_of(target)}", node)
    if operand.type.kind == "null":
        return Constant(None, target)
    return t.conversion.to(operand, target)


# ---- operators -----------------------------------------------------------------------------------


_OPERATORS: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide", exp.Mod: "mod",
}  # fmt: skip


def _operator(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> Expression:
    """Arithmetic that the engine's own rules leave: decimals whose result is rounded, times with
    intervals by the calendar, dates with days."""
    left, right = (t.build(each, guards) for each in (node.this, node.expression))
    name, result = _OPERATORS[type(node)], t.type_between_rows(node)
    kinds = (left.type.kind, right.type.kind)
    if name == "add" and kinds[0] in {"interval", "months", "int"} and kinds[1] in TIMES:
        left, right, kinds = right, left, kinds[::-1]
    if result.kind == "decimal" and set(kinds) <= {"int", "decimal"}:
        return _call(t, node, f"{name}_decimals", (left, right), result)
    if name in {"add", "subtract"} and kinds[0] in TIMES:
        if kinds[1] in {"interval", "months"}:
            by = right if name == "add" else Call("neg", (right,), right.type)
            shift = "shift_time" if kinds[1] == "interval" else "shift_months"
            return _call(t, node, shift, (left, by), result)
        if kinds == ("date", "int"):
            function = "date_add" if name == "add" else "date_sub"
            return _call(t, node, function, (left, right), result)
        if name == "subtract" and kinds[1] in TIMES and result.kind == "interval":
            target = Type("date" if set(kinds) == {"date"} else "timestamp_ntz")
            sides = tuple(convert(t, each, target, node) for each in (left, right))
            return Call("-", sides, result)
    if name == "divide" and kinds == ("interval", "int"):
        return _call(t, node, "divide_interval", (left, right), result)
    raise InexactError(f"{name_of(left.type)} {t.describe(node)} {name_of(right.type)}", node)


_ATTEMPTS: Final[dict[str, type[exp.Binary]]] = {
    "try_add": exp.Add,
    "try_subtract": exp.Sub,
    "try_multiply": exp.Mul,
    "try_divide": exp.Div,
    "try_mod": exp.Mod,
}


def _attempt(t: ConditionTranslation, node: exp.Anonymous, guards: Guards) -> Expression:
    """try_add and its like: the operator, with NULL for an error."""
    if len(node.expressions) != len(("left", "right")):
        raise _refusal(t, node)
    operator = _ATTEMPTS[node.name.lower()]
    left, right = node.expressions
    plain = operator(this=left, expression=right)
    left.parent = right.parent = node
    try:
        value = translate_arithmetic(t, plain, guards)
    except InexactError:
        operands = tuple(t.build(each, guards) for each in (left, right))
        result = t.type_between_rows(node)
        if result.kind != "decimal":
            raise _refusal(t, node) from None
        value = _call(t, node, f"{_OPERATORS[operator]}_decimals", operands, result)
    return Call("try", (value,), value.type)


def _cast(t: ConditionTranslation, node: exp.Expr, guards: Guards) -> Expression:
    operand, target = t.build(node.this, guards), t.type_between_rows(node)
    if target.kind == "other" or operand.type.kind == "other":
        raise InexactError(f"a cast to {sql_name_of(target)} of a value of several rows", node)
    is_safe = t.describe(node) == "try_cast()"
    if is_safe and operand.type.kind != "null":
        return t.conversion.by_worker("try_convert", operand, target)
    return convert(t, operand, target, node)


# ---- spellings -----------------------------------------------------------------------------------


def _named(node: exp.Expr) -> _Spelling | None:  # noqa: PLR0911
    name, arguments = node.name.lower(), list(node.expressions)
    if name in {"ltrim", "rtrim"} and len(arguments) == len(("characters", "text")):
        return _Spelling(f"{name}_characters", arguments[::-1])
    if name in {"date_part", "datepart"} and len(arguments) == len(("field", "time")):
        field = arguments[0]
        is_text = isinstance(field, exp.Literal) and field.is_string
        found = EXTRACTED.get(field.name.lower()) if is_text else None
        return None if found is None else _Spelling(found, arguments[1:])
    if name in {"timestampadd", "timestampdiff", "timediff", "dateadd", "date_add", "date_diff",
                "datediff"} and len(arguments) == len(("unit", "number", "time")):  # fmt: skip
        unit = arguments[0].name.lower()
        if unit not in TIME_UNITS:
            return None
        is_sum = name in {"timestampadd", "dateadd", "date_add"}
        function = "timestampadd" if is_sum else "timestampdiff"
        return _Spelling(function, [Constant(unit, STRING), *arguments[1:]])
    if name == "dateadd":
        return _Spelling("date_add", arguments)
    if name in _INTERNAL:
        return None
    return _Spelling(name, arguments)


# Names of functions that are none of Spark's.
_INTERNAL: Final = frozenset(
    {
        "convert", "try_convert", "add_decimals", "subtract_decimals", "multiply_decimals",
        "divide_decimals", "mod_decimals", "shift_time", "shift_months", "divide_interval",
        "concat_strings", "concat_arrays", "reverse_string", "reverse_array", "array_item",
        "map_item", "element_at_array", "try_element_at_array", "ltrim_characters",
        "rtrim_characters", "second_fraction", "bit_and", "bit_or", "bit_xor", "bit_not",
        "yearofweek", "dayofweek_iso",
    }
)  # fmt: skip


def _like(node: exp.Expr) -> _Spelling | None:
    escape: list[exp.Expr] = []
    negated = False
    if isinstance(node, exp.Escape):
        escape, node = [node.expression], node.this
    if isinstance(node, exp.Not):
        negated, node = True, node.this
    if not isinstance(node, exp.Like | exp.ILike):
        return None
    if isinstance(node.expression, exp.Any | exp.All | exp.Tuple | exp.Paren):
        return None
    negated ^= bool(node.args.get("negate"))
    name = "like" if isinstance(node, exp.Like) else "ilike"
    return _Spelling(name, [node.this, node.expression, *escape], negated)


# string(x) is CAST(x AS STRING).
_CAST_NAMES: Final = frozenset(
    {
        "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string",
        "binary", "date", "timestamp", "to_timestamp",
    }
)  # fmt: skip


def _trim(node: exp.Expr) -> _Spelling:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
    if node.expression is None or not node.args.get("expression"):
        return _Spelling(name, [node.this])
    is_one_side = name != "trim"
    return _Spelling(f"{name}_characters" if is_one_side else name, [node.this, node.expression])


def _given(node: exp.Expr, *keys: str) -> list[exp.Expr]:
    return [node.args[key] for key in keys if node.args.get(key) is not None]


def _rounded(name: str) -> Callable[[exp.Expr], _Spelling | None]:
    return lambda node: None if node.args.get("decimals") else _Spelling(name, [node.this])


def _extract(node: exp.Expr) -> _Spelling | None:
    found = EXTRACTED.get(node.this.name.lower())
    return None if found is None else _Spelling(found, [node.expression])


def _both(name: str) -> Callable[[exp.Expr], _Spelling]:
    return lambda node: _Spelling(name, [node.this, node.expression])


_SPELLINGS: Final[dict[type[exp.Expr], Callable[[exp.Expr], _Spelling | None]]] = {
    exp.Anonymous: _named,
    exp.DPipe: _both("concat"),
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.RegexpLike: _both("rlike"),
    exp.BitwiseAnd: _both("bit_and"),
    exp.BitwiseOr: _both("bit_or"),
    exp.BitwiseXor: _both("bit_xor"),
    exp.BitwiseNot: lambda node: _Spelling("bit_not", [node.this]),
    exp.BitwiseLeftShift: _both("shiftleft"),
    exp.BitwiseRightShift: _both("shiftright"),
    exp.Substring: lambda node: _Spelling("substring", _given(node, "this", "start", "length")),
    exp.Trim: _trim,
    exp.StrPosition: lambda node: _Spelling("locate", _given(node, "substr", "this", "position")),
    exp.Overlay: lambda node: _Spelling(
        "overlay",
        _given(node, "this", "expression", "from_", "from", "for_", "for"),
    ),
    exp.Extract: _extract,
    exp.Floor: _rounded("floor"),
    exp.Ceil: _rounded("ceil"),
    exp.Bracket: lambda node: _Spelling("[]", [node.this, *node.expressions]),
}
