"""The canonical form of a query: what it means, as plain JSON data, and the fingerprint of that.

A checkpoint is compared with a query by this form. Every tag here is a literal, and nothing is
taken from the name of a class, a field or a module, so the code may be renamed and moved freely.
A field at its default is left out, so a field that is added later changes no form that exists.

What counts: the pattern, its conditions, window, order, keys, strategy, and the shipped columns.
What does not: how a program is run (plan, matcher, limits, block size, adaptation), how its texts
are laid out, what a user function does, and where remote values come from.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_cep.udfs.expressions import (
    Call,
    Cell,
    Constant,
    Expression,
    LambdaArgument,
    Member,
    RemoteCall,
    UserCall,
)
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.program import Condition, Order, Program, Tree, Variable, Window
    from spark_cep.udfs.row_program import (
        RowPatternNode,
        RowProgram,
        RowVariable,
        Skip,
        VariableSet,
    )


# PySpark calls the variables of a lambda x_1, y_2, z_3. They are bound in front of an arrow; a
# Connect session prints `LambdaFunction(body, x_1, y_2)`.
_LAMBDA_VARIABLE: Final = re.compile(r"\b[xyz]_\d+\b")
_BOUND_CLASSIC: Final = re.compile(r"(?:\([xyz]_\d+(?:, [xyz]_\d+)+\)|\b[xyz]_\d+) ->")
_BOUND_CONNECT: Final = re.compile(r"(?:, [xyz]_\d+)+(?=\))")

# Part of every checkpoint. A release that writes another form gives it another number.
FORMAT: Final = 1

Data = Mapping[str, Any]


def fingerprint(form: Data) -> str:
    """The hash of a form; equal forms have equal ones in every process and release."""
    text = json.dumps([FORMAT, form], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# ---- the query ---------------------------------------------------------------------------------


def query(
    program: Data,
    shipped: Sequence[Data],
    masks: Sequence[Sequence[Data]] = (),
    lookups: Sequence[Data] = (),
    required: Sequence[Data] = (),
) -> Data:
    """A program, and what it knows by number only: `shipped`, its columns; `masks`, for each
    variable its conditions on one row; `lookups`, the columns with remote values; `required`,
    what is NULL on no row that is shipped."""
    return {
        "program": program,
        "shipped": list(shipped),
        **_given("masks", [list(each) for each in masks], []),
        **_given("lookups", list(lookups), []),
        **_given("required", list(required), []),
    }


def with_computed(form: Data, columns: Mapping[str, Data]) -> Data:
    """The form of a query over an input with these computed columns: keys of PARTITION BY and
    subqueries of a statement. The query itself knows them by name only."""
    return {**form, **_given("computed", dict(columns), {})}


def shipped_column(expression: Data, guards: frozenset[int] | None = None) -> Data:
    """A shipped column. `guards`: it is computed for candidates of these variables only."""
    return {**expression, **_given("guards", _numbers(guards), None)}


def candidate_mask() -> Data:
    """The shipped column that says which variables a row may be; the masks say the rest."""
    return {"candidates": True}


def input_column(name: str) -> Data:
    return {"column": name}


def sql_text(text: str) -> Data:
    return {"sql": normalized(text)}


def spark_column(text: str) -> Data:
    """A Column, as Spark prints it. PySpark numbers the variables of lambda functions as they are
    made, so the same Column has other numbers in the next process; here they begin at 0.

    >>> spark_column("Column<'exists(a, x_7 -> exists(b, x_9 -> =(x_9, x_7)))'>")["expression"]
    "Column<'exists(a, x#0 -> exists(b, x#1 -> =(x#1, x#0)))'>"
    """
    numbers: dict[str, int] = {}
    bounds = _BOUND_CONNECT if "LambdaFunction(" in text else _BOUND_CLASSIC
    for bound in bounds.finditer(text):
        for name in _LAMBDA_VARIABLE.findall(bound[0]):
            numbers.setdefault(name, len(numbers))

    def renamed(found: re.Match[str]) -> str:
        name = found[0]
        return f"{name[0]}#{numbers[name]}" if name in numbers else name

    return {"expression": _LAMBDA_VARIABLE.sub(renamed, text)}


def lookup(source: str, keys: Sequence[str]) -> Data:
    return {"remote": source, "keys": [normalized(each) for each in keys]}


# ---- event patterns ----------------------------------------------------------------------------


def event_program(program: Program) -> Data:
    """The meaning of an event pattern's program; its columns are numbers."""
    return {
        "kind": "events",
        **_shape(program.columns, program.keys, program.orders, program.window, program.ansi),
        "mask": program.mask,
        "variables": [_variable(each) for each in program.variables],
        "pattern": _tree(program.tree),
        **_given("conditions", [_condition(each) for each in program.conditions], []),
        **_given("strategy", program.strategy, "any"),
        **_given("consumption", program.consumption, "reuse"),
        **_given("remotes", [_remote(each) for each in program.remotes], []),
    }


def _shape(
    columns: Sequence[str],
    keys: Sequence[int],
    orders: Sequence[Order],
    window: Window | None,
    ansi: bool,
) -> Data:
    return {
        "columns": len(columns),
        **_given("keys", list(keys), []),
        **_given("orders", [_order(each) for each in orders], []),
        **_given("window", None if window is None else _window(window), None),
        **_given("ansi", ansi, True),
    }


def _order(order: Order) -> Data:
    return {
        "column": order.column,
        "type": sql_type(order.type),
        **_given("descending", order.descending, False),
        **_given("nulls_first", order.nulls_first, True),
    }


def _window(window: Window) -> Data:
    return {window.kind: _number(window.size)}


def _variable(variable: Variable) -> Data:
    return {
        "name": variable.name,
        **_given("negated", variable.negated, False),
        **_given("list", variable.is_list, False),
    }


def _tree(tree: Tree) -> Data:
    if tree.kind in {"event", "not"} and not tree.parts:
        return {tree.kind: tree.variable}
    return {
        tree.kind: [_tree(each) for each in tree.parts],
        **_given("low", tree.low, 1),
        **_given("high", tree.high, 1),
    }


def _condition(condition: Condition) -> Data:
    return expression(condition.expression)


def _remote(remote: Any) -> Data:
    return {
        "name": remote.name,
        "keys": [arrow_type(each) for each in remote.keys],
        "value": arrow_type(remote.value),
    }


# ---- row patterns ------------------------------------------------------------------------------


def row_program(program: RowProgram) -> Data:
    """The meaning of a row pattern's program; its columns are numbers."""
    return {
        "kind": "rows",
        **_shape(program.columns, program.keys, program.orders, program.within, program.ansi),
        "variables": [_row_variable(each) for each in program.variables],
        "pattern": _node(program.pattern),
        **_given("measures", [expression(each) for each in program.measures], []),
        **_given("rows", program.rows, "one"),
        **_given("skip", _skip(program.skip), {"to": "past last row"}),
        **_given("frame", _frame(program), None),
        **_given("longest", program.longest, False),
    }


def _frame(program: RowProgram) -> Data | None:
    frame = program.frame
    if frame is None:
        return None
    return {"following": frame.following, "bound": frame.bound, "seeks": frame.seeks}


def _row_variable(variable: RowVariable) -> Data:
    define = None if variable.define is None else expression(variable.define)
    return {"name": variable.name, **_given("define", define, None)}


def _node(node: RowPatternNode) -> Data:
    if node.kind == "variable":
        return {"variable": node.variable}
    return {
        node.kind: [_node(each) for each in node.parts],
        **_given("low", node.low, 1),
        **_given("high", node.high, 1),
        **_given("greedy", node.greedy, True),
    }


def _skip(skip: Skip) -> Data:
    return {"to": skip.kind, **_given("variables", _numbers(skip.variables), [])}


# ---- expressions -------------------------------------------------------------------------------


def expression(node: Expression) -> Data:
    """An expression of the engine, of either kind of pattern."""
    form: dict[str, Any]
    if isinstance(node, UserCall):
        # The registry of functions ignores case.
        form = {"function": node.name.casefold(), "of": _all(node.arguments)}
    elif isinstance(node, Call):
        form = {"call": node.name, "of": _all(node.arguments)}
    elif isinstance(node, Constant):
        form = {"literal": _literal(node.value)}
    elif isinstance(node, LambdaArgument):
        form = {"argument": node.number}
    elif isinstance(node, RemoteCall):
        path = _given("path", list(node.path), [])
        form = {"remote": node.remote, "of": _all(node.arguments), **path}
    elif isinstance(node, Member):
        form = {"member": expression(node.value), "of": expression(node.array)}
    elif isinstance(node, Cell):
        reading = _given("reading", node.reading, "each")
        form = {"cell": node.column, "variable": node.variable, **reading}
    else:
        form = _of_rows(node)
    return {**form, "type": sql_type(node.type)}


def _of_rows(node: Expression) -> dict[str, Any]:
    if isinstance(node, RowRead):
        return {"read": node.column, **_place(node), **_given("anchor", node.anchor, "current")}
    if isinstance(node, Classifier):
        return {"classifier": True, **_place(node), **_given("anchor", node.anchor, "current")}
    if isinstance(node, Aggregate):
        argument = None if node.argument is None else expression(node.argument)
        by = None if node.by is None else [node.by[0], sql_type(node.by[1])]
        return {
            "aggregate": node.name,
            **_given("column", node.column, None),
            **_given("argument", argument, None),
            **_given("by", by, None),
            **_given("variables", _numbers(node.variables), None),
            **_given("distinct", node.distinct, False),
            **_given("final", node.final, False),
        }
    if isinstance(node, MatchNumber):
        return {"match_number": True}
    raise TypeError(f"no canonical form is written for {node!r}")


def _place(node: RowRead | Classifier) -> Data:
    return {
        **_given("variables", _numbers(node.variables), None),
        **_given("offset", node.offset, 0),
        **_given("shift", node.shift, 0),
        **_given("final", node.final, False),
    }


def _all(nodes: Sequence[Expression]) -> list[Data]:
    return [expression(each) for each in nodes]


def _literal(value: Any) -> Any:
    """JSON keeps no bytes and rounds no number alike everywhere; the type beside it says which of
    these a text is."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | bytes):
        return value.hex()
    raise TypeError(f"no canonical form is written for the literal {value!r}")


def _number(value: int | float) -> int | str:
    return value.hex() if isinstance(value, float) else value


def _numbers(values: VariableSet) -> list[int] | None:
    return None if values is None else sorted(values)


def _given(tag: str, value: Any, default: Any) -> Data:
    """The field, unless it is at its default. False is no 0 here."""
    is_default = value == default and isinstance(value, bool) == isinstance(default, bool)
    return {} if is_default else {tag: value}


# ---- types -------------------------------------------------------------------------------------


def sql_type(type_: Type) -> str:
    """
    >>> from spark_cep.udfs.expressions import Type
    >>> sql_type(Type("int", 32)), sql_type(Type("decimal", precision=10, scale=2))
    ('int32', 'decimal(10,2)')
    >>> sql_type(Type("string"))
    'string'
    """
    if type_.kind in {"int", "float"}:
        return f"{type_.kind}{type_.bits}"
    if type_.kind == "decimal":
        return f"decimal({type_.precision},{type_.scale})"
    return type_.kind


def schema(columns: pa.Schema) -> Data:
    """Names and types of stored columns. What Spark notes beside a column (a watermark's delay, a
    comment) and whether it may be NULL changes no row."""
    return {"columns": [[each.name, arrow_type(each.type)] for each in columns]}


def arrow_type(type_: pa.DataType) -> Any:
    """A name, or [name, parts] for a type with parts.

    >>> arrow_type(pa.list_(pa.struct([("n", pa.int64())])))
    ['list', ['struct', ['n', 'int64']]]
    """
    if pa.types.is_struct(type_):
        return ["struct", *([each.name, arrow_type(each.type)] for each in type_)]
    if pa.types.is_map(type_):
        return ["map", arrow_type(type_.key_type), arrow_type(type_.item_type)]
    if pa.types.is_fixed_size_list(type_):
        return ["fixed_list", type_.list_size, arrow_type(type_.value_type)]
    if pa.types.is_large_list(type_):
        return ["large_list", arrow_type(type_.value_type)]
    if pa.types.is_list(type_):
        return ["list", arrow_type(type_.value_type)]
    return str(type_)


# ---- SQL texts ---------------------------------------------------------------------------------

# Which tokens a text has must never depend on the release of a parser: state would be refused
# because of an update of sqlglot. So they are read here.
_TOKEN: Final = re.compile(
    r"""
    (?P<gap>   \s+ | --[^\n]* | /\*.*?\*/ )
  | (?P<quoted> [rR]'[^']*' | [rR]"[^"]*"
             | [xX]?'(?:[^'\\]|\\.|'')*' | [xX]?"(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` )
  | (?P<number> (?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LSYDFlsydf])?(?!\w) )
  | (?P<word>  \w+ )
  | (?P<sign>  <=>|<=|>=|<>|!=|==|\|\||->|=>|::|<<|>>>|>>|. )
    """,
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS: Final = frozenset(
    {
        "and", "any", "as", "asc", "between", "both", "by", "case", "cast", "collate", "cross",
        "current_date", "current_time", "current_timestamp", "desc", "distinct", "div", "else",
        "end", "escape", "except", "exists", "extract", "false", "filter", "first", "following",
        "for", "from", "ilike", "in", "interval", "is", "last", "leading", "like", "not", "null",
        "nulls", "or", "order", "over", "overlaps", "partition", "position", "preceding", "range",
        "regexp", "rlike", "row", "rows", "similar", "some", "substring", "symmetric", "then",
        "to", "trailing", "trim", "true", "unbounded", "union", "when", "where", "with", "within",
    }
)  # fmt: skip
# Names of types, units and prefixes of literals are words like any other elsewhere: a column may
# be called so.
_PREFIXES: Final = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz", "interval"})
_UNIT: Final = re.compile(
    r"(year|quarter|month|week|day|hour|minute|second|millisecond|microsecond|nanosecond)s?"
)


def normalized(text: str) -> str:
    """A Spark SQL expression, one space between tokens: without comments, keywords and names of
    functions in lower case. Other names stay as written, as `struct(A)` has another field than
    `struct(a)`.

    >>> normalized("ABS( Price )>1.5D  AND kind /* of trade */ IN ('A',\\t'b')")
    "abs ( Price ) > 1.5d and kind in ( 'A' , 'b' )"
    """
    found = [(each.lastgroup, each[0]) for each in _TOKEN.finditer(text)]
    tokens = [each for each in found if each[0] != "gap"]
    words: list[str] = []
    for place, (kind, token) in enumerate(tokens):
        before = words[-1] if words else ""
        after = tokens[place + 1] if place + 1 < len(tokens) else ("", "")
        folds = kind == "number" or (kind == "word" and _folds(token.lower(), before, after))
        words.append(token.lower() if folds else token)
    return " ".join(words)


def _folds(word: str, before: str, after: tuple[str | None, str]) -> bool:
    """Whether the case of the word means nothing."""
    if before == ".":
        return False
    if word in _KEYWORDS or after[1] == "(" or before in {"as", "::"}:
        return True
    if word in _PREFIXES:
        return after[0] in {"quoted", "number"}
    is_amount = before[:1].isdigit() or before[:1] == "'" or before == "to"
    return is_amount and _UNIT.fullmatch(word) is not None
