"""Expressions as Spark SQL over variable.column.

Text is put together from the user's own names and literals; parentheses stand where the reading
of Spark would else differ. What is wrong is added to the problems and writing goes on, so that a
user sees every unknown name at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from spark_cep.compiling.problems import Place
from spark_cep.sql.sase_families import numbers_of, spelled
from spark_cep.sql.sase_nodes import (
    Arithmetic,
    Call,
    Compared,
    Dotted,
    Expression,
    ForAll,
    Item,
    Joined,
    Listed,
    Member,
    Not,
    Remote,
    Same,
    Sql,
    Tested,
    TimeOfDay,
    Word,
)
from spark_cep.sql.sase_remote import remote_call
from spark_cep.sql.sase_scope import Scope, name_text

if TYPE_CHECKING:
    from spark_cep.sql.sase_tree import Variable

# How strongly Spark's operators bind.
_OR, _AND, _NOT, _COMPARED, _SUM, _PRODUCT, _SIGN, _VALUE = range(8)
# How strongly a text has to bind at least to stand alone, and beside a comparison.
ALONE, COMPARED = _OR, _SUM
_STRENGTH = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}
_UNKNOWN = "NULL"  # stands for what is a problem already
_ONE_CALL = re.compile(r"\w+\([^()]*\)")
_TIME_FORMAT = "HH:mm:ss.SSSSSS"


@dataclass(frozen=True)
class Frame:
    """What holds for a part of the text. `numbers`: those of ∀ and of symbols. `own`: the variable
    whose columns bare names are, inside SAME."""

    scope: Scope
    numbers: Mapping[str, int]
    own: Variable | None = None
    named: set[str] = field(default_factory=set)

    def problem(self, message: str, place: Place, hint: str) -> str:
        self.scope.problems.add(message, place, hint=hint)
        return _UNKNOWN


def counted(node: ForAll, frame: Frame) -> Iterator[Frame]:
    for number in numbers_of(node, frame.numbers, frame.scope.symbols):
        yield replace(frame, numbers={**frame.numbers, node.index: number})


def links(node: Expression) -> Iterator[Expression]:
    """a < b < c is a < b and b < c."""
    if not isinstance(node, Compared):
        yield node
        return
    for place, operator in enumerate(node.operators):
        yield replace(node, operands=node.operands[place : place + 2], operators=(operator,))


def text_of(node: Expression, frame: Frame, least: int) -> str:
    """The text, in parentheses if it binds less strongly than `least`."""
    text, strength = _WRITERS[type(node)](node, frame)
    return text if strength >= least else f"({text})"


def _sql(node: Sql, _: Frame) -> tuple[str, int]:
    return node.text, _VALUE


def _time_of_day(node: TimeOfDay, _: Frame) -> tuple[str, int]:
    return f"'{node.text}'", _VALUE


def _word(node: Word, frame: Frame) -> tuple[str, int]:
    if frame.own is not None:
        return _column(frame.own, (node.name,), node.place, frame), _VALUE
    symbols = frame.scope.symbols
    if node.name in symbols and not frame.scope.spells(node.name):
        text = symbols.value(node.name, node.place) or _UNKNOWN
        return text, _SIGN if text.startswith("-") else _VALUE
    number = frame.numbers.get(node.name)
    if number is not None:
        return str(number), _VALUE if number >= 0 else _SIGN
    variable = frame.scope.variable(spelled(node.name, frame.numbers) or node.name)
    if variable is not None:
        hint = f"name one of its columns, such as {variable.name}.price"
        return frame.problem(f"{node.name} is a variable, not a value", node.place, hint), _VALUE
    symbols.unknown(node.name, node.place, [each.name for each in frame.scope.variables])
    return _UNKNOWN, _VALUE


def _operand(node: Expression, frame: Frame, *, may_be_text: bool) -> str:
    """A word beside = that nobody knows is its own text: a.ticker = MSFT."""
    if isinstance(node, Word) and may_be_text and frame.own is None and _is_unknown(node, frame):
        return f"'{node.name}'"
    return text_of(node, frame, _SUM)


def _is_unknown(node: Word, frame: Frame) -> bool:
    """Variables match without regard to case elsewhere; in `a.kind = A` the capital is a text."""
    known = node.name in frame.scope.symbols or node.name in frame.numbers
    return not known and not frame.scope.spells(spelled(node.name, frame.numbers) or node.name)


def _dotted(node: Dotted, frame: Frame) -> tuple[str, int]:
    name = spelled(node.parts[0], frame.numbers) or node.parts[0]
    variable = frame.scope.variable(name)
    if frame.own is not None and variable is not None:
        hint = f"name the column alone: SAME[{node.parts[-1]}]"
        return frame.problem("SAME is about every event", node.place, hint), _VALUE
    if frame.own is not None:
        return _column(frame.own, node.parts, node.place, frame), _VALUE
    if variable is None:
        place = Place(node.place.text, node.place.start, node.place.start + len(node.parts[0]))
        frame.scope.unknown_variable(name, place)
        return _UNKNOWN, _VALUE
    if node.reading != "each" and (not variable.is_list or variable.negated):
        hint = f"it binds one row; declare a list, {variable.declared.type}+ {name}[]"
        frame.problem(f"{name} is no list", node.place, hint)
    text = _column(variable, node.parts[1:], node.place, frame)
    return text if node.reading == "each" else f"{node.reading}({text})", _VALUE


def _column(variable: Variable, parts: tuple[str, ...], place: Place, frame: Frame) -> str:
    frame.named.add(variable.name)
    frame.scope.check_attribute(variable, parts[0], place)
    return ".".join([name_text(variable.name), *map(name_text, parts)])


def _item(node: Item, frame: Frame) -> tuple[str, int]:
    return f"{text_of(node.base, frame, _VALUE)}[{text_of(node.index, frame, _OR)}]", _VALUE


def _call(node: Call, frame: Frame) -> tuple[str, int]:
    function = frame.scope.function(node.name, node.place)
    if function is None:
        return _UNKNOWN, _VALUE
    is_template = "{" in function
    takes_variables = is_template or node.name.casefold() == "count"
    arguments = [_argument(each, frame, takes_variables) for each in node.arguments]
    if not is_template:
        return f"{function}({', '.join(arguments)})", _VALUE
    text = _filled(function, arguments, node, frame)
    return (text if _ONE_CALL.fullmatch(text) else f"({text})"), _VALUE


def _argument(node: Expression, frame: Frame, takes_variables: bool) -> str:
    if isinstance(node, Word) and takes_variables and frame.own is None:
        variable = frame.scope.variable(spelled(node.name, frame.numbers) or node.name)
        if variable is not None:
            frame.named.add(variable.name)
            return name_text(variable.name)
    return text_of(node, frame, _OR)


def _filled(template: str, arguments: list[str], node: Call, frame: Frame) -> str:
    wanted = [int(each) for each in re.findall(r"\{(\d+)\}", template)]
    if wanted and max(wanted) >= len(arguments):
        hint = f"its text in symbols= is {template}"
        message = f"{node.name} takes {max(wanted) + 1} arguments, not {len(arguments)}"
        return frame.problem(message, node.place, hint)

    def argument(found: re.Match[str]) -> str:
        text = arguments[int(found[1])]
        return text if re.fullmatch(r"[\w.`]+", text) else f"({text})"

    return re.sub(r"\{(\d+)\}", argument, template)


def _remote(node: Remote, frame: Frame) -> tuple[str, int]:
    text = remote_call(
        node, lambda each: text_of(each, frame, _OR), lambda word: _is_unknown(word, frame)
    )
    if text is None:
        hint = "name the key: REMOTE[t1.user] or REMOTE[places, t1.user]"
        text = frame.problem("REMOTE looks up by a key", node.place, hint)
    return text, _VALUE


def _arithmetic(node: Arithmetic, frame: Frame) -> tuple[str, int]:
    if node.left is None:
        return f"{node.operator}{text_of(node.right, frame, _VALUE)}", _SIGN
    strength = _STRENGTH[node.operator]
    left, right = text_of(node.left, frame, strength), text_of(node.right, frame, strength + 1)
    return f"{left} {node.operator} {right}", strength


# ---- conditions --------------------------------------------------------------------------------


def _compared(node: Compared, frame: Frame) -> tuple[str, int]:
    texts = []
    for link in links(node):
        assert isinstance(link, Compared)
        texts.append(_link(link, frame))
    return " AND ".join(texts), _COMPARED if len(texts) == 1 else _AND


def _link(link: Compared, frame: Frame) -> str:
    (left, right), (operator,) = link.operands, link.operators
    may_be_text = operator in {"=", "<>"}
    if isinstance(left, TimeOfDay) != isinstance(right, TimeOfDay):
        return f"{_of_day(left, frame)} {operator} {_of_day(right, frame)}"
    both_words = isinstance(left, Word) and isinstance(right, Word)
    one = _operand(left, frame, may_be_text=may_be_text and not both_words)
    other = _operand(right, frame, may_be_text=may_be_text)
    return f"{one} {operator} {other}"


def _of_day(node: Expression, frame: Frame) -> str:
    """Beside a time of day stands that of a time: both as text of one length."""
    text = text_of(node, frame, _SUM)
    return text if isinstance(node, TimeOfDay) else f"date_format({text}, '{_TIME_FORMAT}')"


def _member(node: Member, frame: Frame) -> tuple[str, int]:
    value = _operand(node.value, frame, may_be_text=False)
    no = "NOT " if node.negated else ""
    if isinstance(node.container, Listed):
        members = [_operand(each, frame, may_be_text=True) for each in node.container.members]
        if not members:
            hint = "name its members: a.x IN (1, 2)"
            members = [frame.problem("the set is empty", node.container.place, hint)]
        return f"{value} {no}IN ({', '.join(members)})", _COMPARED
    if isinstance(node.container, Word):
        given = frame.scope.symbols.members(node.container.name, node.container.place)
        return f"{value} {no}IN ({', '.join(given) or _UNKNOWN})", _COMPARED
    if isinstance(node.container, Remote):
        return f"{value} {no}IN {text_of(node.container, frame, _VALUE)}", _COMPARED
    array = text_of(node.container, frame, _OR)
    return f"{no}array_contains({array}, {value})", _NOT if node.negated else _VALUE


def _listed(node: Listed, frame: Frame) -> tuple[str, int]:
    return frame.problem("a set stands alone", node.place, "write a.x IN {1, 2}"), _VALUE


def _tested(node: Tested, frame: Frame) -> tuple[str, int]:
    first, *rest = (text_of(each, frame, _SUM) for each in node.operands)
    behind = [f"{word} {text}" for word, text in zip(node.words, rest, strict=False)]
    return " ".join([first, *(behind or node.words)]), _COMPARED


def _not(node: Not, frame: Frame) -> tuple[str, int]:
    return f"NOT {text_of(node.part, frame, _COMPARED)}", _NOT


def _joined(node: Joined, frame: Frame) -> tuple[str, int]:
    strength = _AND if node.operator == "AND" else _OR
    parts = (text_of(part, frame, strength) for part in node.parts)
    return f" {node.operator} ".join(parts), strength


def _for_all(node: ForAll, frame: Frame) -> tuple[str, int]:
    parts = [text_of(node.body, inner, _AND) for inner in counted(node, frame)]
    return " AND ".join(parts) or "TRUE", _AND


def _same(node: Same, frame: Frame) -> tuple[str, int]:
    hint = "put it beside the other conditions, with AND: WHERE SAME[x] AND ..."
    message = "SAME ties all events of the match, so it stands for itself"
    return frame.problem(message, node.place, hint), _VALUE


_WRITERS: dict[type, Callable[[Any, Frame], tuple[str, int]]] = {
    Sql: _sql,
    TimeOfDay: _time_of_day,
    Word: _word,
    Dotted: _dotted,
    Item: _item,
    Call: _call,
    Remote: _remote,
    Arithmetic: _arithmetic,
    Compared: _compared,
    Listed: _listed,
    Member: _member,
    Tested: _tested,
    Not: _not,
    Joined: _joined,
    ForAll: _for_all,
    Same: _same,
}
