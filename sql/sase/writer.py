"""Conditions as Spark SQL over variable.column, one text for each conjunct.

The text is put together from the user's own names and literals, with parentheses where Spark would
read it differently without them. A mistake is added to the problems and writing goes on, so that
users see every unknown name at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from spark_cep.expressions.problems import Place
from spark_cep.sql.sase.names import SaseScope, name_sql
from spark_cep.sql.sase.nodes import (
    ArithmeticNode,
    BareName,
    ColumnReference,
    ComparisonChain,
    ElementAccess,
    ForAllCondition,
    FunctionCall,
    LogicalNot,
    LogicalOperation,
    RemoteAccess,
    SameCondition,
    SaseExpression,
    SetLiteral,
    SetMembership,
    SqlLiteral,
    SqlPredicate,
    TimeOfDay,
)
from spark_cep.sql.sase.resolver import for_all_numbers, spell_name

if TYPE_CHECKING:
    from spark_cep.sql.sase.nodes import SaseVariable


@dataclass(frozen=True)
class SaseConjunct:
    """A conjunct with the names of its `variables`."""

    text: str
    variables: frozenset[str]


def split_conjuncts(node: SaseExpression, scope: SaseScope) -> list[SaseConjunct]:
    """Every conjunct once, in the order of the text.

    Each conjunct is a text of its own, because the compiler tests and explains conjuncts, and
    because a conjunct that names an unfilled variable is not tested: as a whole, `a < b < c`
    without a c would say nothing about a and b. ∀ and SAME are expanded here;
    inside OR or NOT they are not conjuncts.
    """
    found = _walk_conjuncts(node, WritingContext(scope, scope.symbols.numbers))
    return list(dict.fromkeys(found))


def _walk_conjuncts(node: SaseExpression, context: WritingContext) -> Iterator[SaseConjunct]:
    if isinstance(node, LogicalOperation) and node.operator == "AND":
        for part in node.parts:
            yield from _walk_conjuncts(part, context)
    elif isinstance(node, ForAllCondition):
        for inner in expand_for_all(node, context):
            yield from _walk_conjuncts(node.body, inner)
    elif isinstance(node, SameCondition):
        for attribute in node.attributes:
            for text, variables in _same_equalities(attribute, context):
                yield SaseConjunct(text, variables)
    else:
        for part in split_chain(node):
            inner = replace(context, named=set())
            text = write_expression(part, inner, ALONE)
            yield SaseConjunct(text, frozenset(inner.named))


def _same_equalities(
    attribute: SaseExpression, context: WritingContext
) -> Iterator[tuple[str, frozenset[str]]]:
    for one, other in equal_pairs(context.scope.variables):
        right = write_expression(attribute, replace(context, own=other, named=set()), COMPARED)
        if one is other:
            left, right = right, f"prev({right})"
        else:
            left = write_expression(attribute, replace(context, own=one, named=set()), COMPARED)
        yield f"{left} = {right}", frozenset({one.name, other.name})


def equal_pairs(variables: Sequence[SaseVariable]) -> Iterator[tuple[SaseVariable, SaseVariable]]:
    """The pairs that SAME compares; a variable with itself means each element and the one before.

    A conjunct that names an unfilled variable is not tested. So a variable that every match fills
    is compared with each other one. Where none is certain to be filled, all pairs are compared,
    because a chain through a variable of another OR branch would connect nothing. NULL equals
    nothing.
    """
    anchor = next((v for v in variables if v.always and not v.negated and not v.is_list), None)
    if anchor is not None:
        yield from ((anchor, other) for other in variables if other is not anchor)
        return
    for variable in variables:
        if variable.is_list and not variable.negated:
            yield variable, variable
    for one, other in combinations(variables, 2):
        if not (one.negated and other.negated) and not one.excludes(other):
            yield one, other


def expand_for_all(node: ForAllCondition, context: WritingContext) -> Iterator[WritingContext]:
    for number in for_all_numbers(node, context.numbers, context.scope.symbols):
        yield replace(context, numbers={**context.numbers, node.index: number})


def split_chain(node: SaseExpression) -> Iterator[SaseExpression]:
    """a < b < c is a < b and b < c."""
    if not isinstance(node, ComparisonChain):
        yield node
        return
    for place, operator in enumerate(node.operators):
        yield replace(node, operands=node.operands[place : place + 2], operators=(operator,))


# ---- expressions ---------------------------------------------------------------------------------

# How strongly Spark's operators bind.
_OR, _AND, _NOT, _COMPARED, _SUM, _PRODUCT, _SIGN, _VALUE = range(8)
# How strongly a text must bind alone, and beside a comparison.
ALONE, COMPARED = _OR, _SUM
_STRENGTH = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}
_UNKNOWN = "NULL"  # in the place of what was reported as a problem
_ONE_CALL = re.compile(r"\w+\([^()]*\)")
_TIME_FORMAT = "HH:mm:ss.SSSSSS"


@dataclass(frozen=True)
class WritingContext:
    """What is in effect where a text is written: `numbers` of ∀ and of symbols, and inside SAME
    `own`, the variable whose columns bare names are. `named` collects the used variables."""

    scope: SaseScope
    numbers: Mapping[str, int]
    own: SaseVariable | None = None
    named: set[str] = field(default_factory=set)

    def problem(self, message: str, place: Place, hint: str) -> str:
        self.scope.problems.add(message, place, hint=hint)
        return _UNKNOWN


def write_expression(node: SaseExpression, context: WritingContext, least: int) -> str:
    """The text, in parentheses if it binds less strongly than `least`."""
    text, strength = _WRITERS[type(node)](node, context)
    return text if strength >= least else f"({text})"


def _write_literal(node: SqlLiteral, _: WritingContext) -> tuple[str, int]:
    return node.text, _VALUE


def _write_time_of_day(node: TimeOfDay, _: WritingContext) -> tuple[str, int]:
    return f"'{node.text}'", _VALUE


def _write_bare_name(node: BareName, context: WritingContext) -> tuple[str, int]:
    if context.own is not None:
        return _write_column(context.own, (node.name,), node.place, context), _VALUE
    symbols = context.scope.symbols
    if node.name in symbols and not context.scope.spells(node.name):
        text = symbols.value(node.name, node.place) or _UNKNOWN
        return text, _SIGN if text.startswith("-") else _VALUE
    number = context.numbers.get(node.name)
    if number is not None:
        return str(number), _VALUE if number >= 0 else _SIGN
    variable = context.scope.variable(spell_name(node.name, context.numbers) or node.name)
    if variable is not None:
        hint = f"name one of its columns, such as {variable.name}.price"
        return context.problem(f"{node.name} is a variable, not a value", node.place, hint), _VALUE
    symbols.unknown(node.name, node.place, [each.name for each in context.scope.variables])
    return _UNKNOWN, _VALUE


def _write_operand(node: SaseExpression, context: WritingContext, *, may_be_text: bool) -> str:
    """An unknown word beside = is a string: a.ticker = MSFT."""
    if (
        isinstance(node, BareName)
        and may_be_text
        and context.own is None
        and _is_unknown(node, context)
    ):
        return f"'{node.name}'"
    return write_expression(node, context, _SUM)


def _is_unknown(node: BareName, context: WritingContext) -> bool:
    """Whether a word has no meaning. Case counts here: the A in `a.kind = A` is a string."""
    known = node.name in context.scope.symbols or node.name in context.numbers
    return not known and not context.scope.spells(
        spell_name(node.name, context.numbers) or node.name
    )


def _write_column_reference(node: ColumnReference, context: WritingContext) -> tuple[str, int]:
    name = spell_name(node.parts[0], context.numbers) or node.parts[0]
    variable = context.scope.variable(name)
    if context.own is not None and variable is not None:
        hint = f"name the column alone: SAME[{node.parts[-1]}]"
        return context.problem("SAME applies to every event", node.place, hint), _VALUE
    if context.own is not None:
        return _write_column(context.own, node.parts, node.place, context), _VALUE
    if variable is None:
        place = Place(node.place.text, node.place.start, node.place.start + len(node.parts[0]))
        context.scope.unknown_variable(name, place)
        return _UNKNOWN, _VALUE
    if node.reading != "each" and (not variable.is_list or variable.negated):
        hint = f"it binds one row; declare a list, {variable.declared.type}+ {name}[]"
        context.problem(f"{name} is not a list", node.place, hint)
    text = _write_column(variable, node.parts[1:], node.place, context)
    return text if node.reading == "each" else f"{node.reading}({text})", _VALUE


def _write_column(
    variable: SaseVariable, parts: tuple[str, ...], place: Place, context: WritingContext
) -> str:
    context.named.add(variable.name)
    context.scope.check_attribute(variable, parts[0], place)
    return ".".join([name_sql(variable.name), *map(name_sql, parts)])


def _write_element(node: ElementAccess, context: WritingContext) -> tuple[str, int]:
    base = write_expression(node.base, context, _VALUE)
    return f"{base}[{write_expression(node.index, context, _OR)}]", _VALUE


def _write_call(node: FunctionCall, context: WritingContext) -> tuple[str, int]:
    function = context.scope.function(node.name, node.place)
    if function is None:
        return _UNKNOWN, _VALUE
    is_template = "{" in function
    takes_variables = is_template or node.name.casefold() == "count"
    arguments = [_write_argument(each, context, takes_variables) for each in node.arguments]
    if not is_template:
        return f"{function}({', '.join(arguments)})", _VALUE
    text = _fill_function(function, arguments, node, context)
    return (text if _ONE_CALL.fullmatch(text) else f"({text})"), _VALUE


def _write_argument(node: SaseExpression, context: WritingContext, takes_variables: bool) -> str:
    if isinstance(node, BareName) and takes_variables and context.own is None:
        variable = context.scope.variable(spell_name(node.name, context.numbers) or node.name)
        if variable is not None:
            context.named.add(variable.name)
            return name_sql(variable.name)
    return write_expression(node, context, _OR)


def _fill_function(
    template: str, arguments: list[str], node: FunctionCall, context: WritingContext
) -> str:
    wanted = [int(each) for each in re.findall(r"\{(\d+)\}", template)]
    if wanted and max(wanted) >= len(arguments):
        hint = f"symbols= defines it as {template}"
        message = f"{node.name} takes {max(wanted) + 1} arguments, not {len(arguments)}"
        return context.problem(message, node.place, hint)

    def argument(found: re.Match[str]) -> str:
        text = arguments[int(found[1])]
        return text if re.fullmatch(r"[\w.`]+", text) else f"({text})"

    return re.sub(r"\{(\d+)\}", argument, template)


def _write_remote(node: RemoteAccess, context: WritingContext) -> tuple[str, int]:
    text = write_remote_call(
        node,
        lambda each: write_expression(each, context, _OR),
        lambda word: _is_unknown(word, context),
    )
    if text is None:
        hint = "write REMOTE[t1.user] or REMOTE[places, t1.user]"
        text = context.problem("REMOTE needs a key", node.place, hint)
    return text, _VALUE


def write_remote_call(
    node: RemoteAccess, write: Callable[[SaseExpression], str], is_free: Callable[[BareName], bool]
) -> str | None:
    """REMOTE[t1.user] as remote(t1.user), REMOTE[places, t1.user] as remote('places', t1.user).

    None without a key. `write` writes an expression, `is_free` says whether a word has no other
    meaning.

    The papers print no name for a source. Which one is meant is not known here: the call stays
    without a name, and the compiler of conditions finds the source by the key.
    """
    name, keys = None, node.arguments
    if len(keys) > 1:
        name = _remote_source_name(keys[0], is_free)
    if not keys:
        return None
    own = keys if name is None else keys[1:]
    texts = [*([name] if name else []), *map(write, own)]
    return f"remote({', '.join(texts)})"


def _remote_source_name(node: SaseExpression, is_free: Callable[[BareName], bool]) -> str | None:
    """The name, given as a word or as a string."""
    if isinstance(node, BareName) and is_free(node):
        return f"'{node.name}'"
    is_text = isinstance(node, SqlLiteral) and node.text.startswith("'")
    return node.text if isinstance(node, SqlLiteral) and is_text else None


def _write_arithmetic(node: ArithmeticNode, context: WritingContext) -> tuple[str, int]:
    if node.left is None:
        return f"{node.operator}{write_expression(node.right, context, _VALUE)}", _SIGN
    strength = _STRENGTH[node.operator]
    left, right = (
        write_expression(node.left, context, strength),
        write_expression(node.right, context, strength + 1),
    )
    return f"{left} {node.operator} {right}", strength


def _write_comparison(node: ComparisonChain, context: WritingContext) -> tuple[str, int]:
    texts = []
    for link in split_chain(node):
        assert isinstance(link, ComparisonChain)
        texts.append(_write_link(link, context))
    return " AND ".join(texts), _COMPARED if len(texts) == 1 else _AND


def _write_link(link: ComparisonChain, context: WritingContext) -> str:
    (left, right), (operator,) = link.operands, link.operators
    may_be_text = operator in {"=", "<>"}
    if isinstance(left, TimeOfDay) != isinstance(right, TimeOfDay):
        return f"{_write_day_time(left, context)} {operator} {_write_day_time(right, context)}"
    both_words = isinstance(left, BareName) and isinstance(right, BareName)
    one = _write_operand(left, context, may_be_text=may_be_text and not both_words)
    other = _write_operand(right, context, may_be_text=may_be_text)
    return f"{one} {operator} {other}"


def _write_day_time(node: SaseExpression, context: WritingContext) -> str:
    """The time of day of a timestamp, to compare with another: both as strings of one length."""
    text = write_expression(node, context, _SUM)
    return text if isinstance(node, TimeOfDay) else f"date_format({text}, '{_TIME_FORMAT}')"


def _write_membership(node: SetMembership, context: WritingContext) -> tuple[str, int]:
    value = _write_operand(node.value, context, may_be_text=False)
    no = "NOT " if node.negated else ""
    if isinstance(node.container, SetLiteral):
        members = [
            _write_operand(each, context, may_be_text=True) for each in node.container.members
        ]
        if not members:
            hint = "list its members: a.x IN (1, 2)"
            members = [context.problem("the set is empty", node.container.place, hint)]
        return f"{value} {no}IN ({', '.join(members)})", _COMPARED
    if isinstance(node.container, BareName):
        given = context.scope.symbols.members(node.container.name, node.container.place)
        return f"{value} {no}IN ({', '.join(given) or _UNKNOWN})", _COMPARED
    if isinstance(node.container, RemoteAccess):
        return f"{value} {no}IN {write_expression(node.container, context, _VALUE)}", _COMPARED
    array = write_expression(node.container, context, _OR)
    return f"{no}array_contains({array}, {value})", _NOT if node.negated else _VALUE


def _write_set(node: SetLiteral, context: WritingContext) -> tuple[str, int]:
    return context.problem("a set is not a value", node.place, "write a.x IN {1, 2}"), _VALUE


def _write_predicate(node: SqlPredicate, context: WritingContext) -> tuple[str, int]:
    first, *rest = (write_expression(each, context, _SUM) for each in node.operands)
    after = [f"{word} {text}" for word, text in zip(node.words, rest, strict=False)]
    return " ".join([first, *(after or node.words)]), _COMPARED


def _write_not(node: LogicalNot, context: WritingContext) -> tuple[str, int]:
    return f"NOT {write_expression(node.part, context, _COMPARED)}", _NOT


def _write_logical(node: LogicalOperation, context: WritingContext) -> tuple[str, int]:
    strength = _AND if node.operator == "AND" else _OR
    parts = (write_expression(part, context, strength) for part in node.parts)
    return f" {node.operator} ".join(parts), strength


def _write_for_all(node: ForAllCondition, context: WritingContext) -> tuple[str, int]:
    parts = [write_expression(node.body, inner, _AND) for inner in expand_for_all(node, context)]
    return " AND ".join(parts) or "TRUE", _AND


def _write_same(node: SameCondition, context: WritingContext) -> tuple[str, int]:
    hint = "connect it to the other conditions with AND: WHERE SAME[x] AND ..."
    message = "SAME cannot be part of another condition"
    return context.problem(message, node.place, hint), _VALUE


_WRITERS: dict[type, Callable[[Any, WritingContext], tuple[str, int]]] = {
    SqlLiteral: _write_literal,
    TimeOfDay: _write_time_of_day,
    BareName: _write_bare_name,
    ColumnReference: _write_column_reference,
    ElementAccess: _write_element,
    FunctionCall: _write_call,
    RemoteAccess: _write_remote,
    ArithmeticNode: _write_arithmetic,
    ComparisonChain: _write_comparison,
    SetLiteral: _write_set,
    SetMembership: _write_membership,
    SqlPredicate: _write_predicate,
    LogicalNot: _write_not,
    LogicalOperation: _write_logical,
    ForAllCondition: _write_for_all,
    SameCondition: _write_same,
}
