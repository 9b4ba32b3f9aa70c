"""From the parsed PATTERN and WITHIN clauses to a pattern and what is known of its variables.

Every shape that the compiler would refuse is refused here already: here its place in the text is
known, and the hint can be written in SASE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from spark_cep.errors import PatternError
from spark_cep.events.branches import build_branches
from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.windows import Within, window_of
from spark_cep.pattern import EventPatternNode, Pattern, all_of, any_of, event, iter_events, no, seq
from spark_cep.sql.parameters import sql_string
from spark_cep.sql.sase.lexer import raise_syntax_error
from spark_cep.sql.sase.names import Symbols, name_sql, split_subscript, value_sql
from spark_cep.sql.sase.nodes import (
    BareName,
    Combination,
    EventDeclaration,
    EventNegation,
    FamilyDots,
    ForAllCondition,
    Repetition,
    SaseNode,
    SaseVariable,
    SqlLiteral,
    WindowAmount,
    WindowClause,
)
from spark_cep.sql.sase.parser import WINDOW_HINT
from spark_cep.udfs.expressions import Type

# ---- families ------------------------------------------------------------------------------------

# A larger number is taken for a typing error.
MAX_MEMBERS = 1_000
_EXAMPLE = 'S_1, ..., S_n with symbols={"n": 4}'


def expand_families(node: SaseNode, numbers: Mapping[str, int]) -> SaseNode:
    """The pattern without dots, with every subscript a number.

    The members of a family are plain variables called S_1, S_2 and so on. `S_1, ..., KLEENE(S_j),
    ..., S_n` is filled between its neighbours, so it repeats what it prints for every j strictly
    between 1 and n.
    """
    return _FamilyExpansion(numbers).expand(node)


@dataclass(frozen=True)
class _FamilyExpansion:
    numbers: Mapping[str, int]

    def expand(self, node: SaseNode) -> SaseNode:
        if isinstance(node, EventDeclaration):
            return self._declared(node)
        if isinstance(node, EventNegation | Repetition):
            return replace(node, part=self.expand(node.part))
        if isinstance(node, Combination):
            return replace(node, parts=tuple(self._parts(node.parts)))
        return raise_syntax_error(
            "dots must be between two members of a family", node.place, f"write {_EXAMPLE}"
        )

    def _declared(self, node: EventDeclaration) -> EventDeclaration:
        names = spell_name(node.type, self.numbers), spell_name(node.name, self.numbers)
        if names[0] is None or names[1] is None:
            hint = 'give its value: symbols={"n": 4}'
            raise_syntax_error(
                f"the subscript of {_printed_name(node.name)} has no value", node.place, hint
            )
        return replace(node, type=names[0], name=names[1])

    def _parts(self, parts: tuple[SaseNode, ...]) -> Iterator[SaseNode]:
        for place, part in enumerate(parts):
            if not isinstance(part, FamilyDots):
                yield self.expand(part)
            elif not 0 < place < len(parts) - 1:
                raise_syntax_error(
                    "dots must be between two events", part.place, f"write {_EXAMPLE}"
                )
            else:
                yield from self._between(parts[place - 1], part, parts[place + 1])

    def _between(self, before: SaseNode, dots: FamilyDots, after: SaseNode) -> Iterator[SaseNode]:
        first, last = self._member(before, dots), self._member(after, dots)
        (family, low), (other, high) = self._number(first, dots), self._number(last, dots)
        if family != other:
            message = f"the dots go from {first.name} to {last.name}, which are of two families"
            raise_syntax_error(message, dots.place, f"write {_EXAMPLE}")
        if high <= low:
            message = f"the dots go from {family}_{low} to {family}_{high}"
            raise_syntax_error(
                message, dots.place, "the number after the dots must be the larger one"
            )
        if high - low > MAX_MEMBERS:
            raise_syntax_error(
                f"the dots stand for {high - low} events",
                dots.place,
                f"at most {MAX_MEMBERS} are allowed",
            )
        for number in range(low + 1, high):
            yield self._copied(first, number, dots.place)

    def _copied(self, member: EventDeclaration, number: int, place: Place) -> EventDeclaration:
        family, _ = self._number(member, FamilyDots(place))
        type_ = split_subscript(member.type, self.numbers)
        of_family = member.type if type_ is None else f"{type_[0]}_{number}"
        return replace(member, name=f"{family}_{number}", type=of_family, place=place)

    def _member(self, node: SaseNode, dots: FamilyDots) -> EventDeclaration:
        while isinstance(node, EventNegation | Repetition):
            node = node.part
        if not isinstance(node, EventDeclaration):
            raise_syntax_error("dots must be between two events", dots.place, f"write {_EXAMPLE}")
        return node

    def _number(self, member: EventDeclaration, dots: FamilyDots) -> tuple[str, int]:
        found = split_subscript(member.name, self.numbers)
        if found is None:
            hint = f"write {_EXAMPLE}"
            raise_syntax_error(
                f"{_printed_name(member.name)}, next to the dots, has no number", dots.place, hint
            )
        return found


def spell_name(name: str, numbers: Mapping[str, int]) -> str | None:
    """The name with its number; None if its subscript has no value.

    >>> spell_name("S_{i-1}", {"i": 3}), spell_name("person_id", {}), spell_name("S_{k}", {})
    ('S_2', 'person_id', None)
    """
    if "{" not in name and name.rpartition("_")[2].isdecimal():
        return name
    found = split_subscript(name, numbers)
    if found is not None:
        return f"{found[0]}_{found[1]}"
    return None if "{" in name else name


def _printed_name(name: str) -> str:
    """The name as printed: S_{n} is S_n.

    >>> _printed_name("S_{n}"), _printed_name("S_{i-1}"), _printed_name("a")
    ('S_n', 'S_{i-1}', 'a')
    """
    base, _, rest = name.partition("_{")
    return f"{base}_{rest[:-1]}" if rest and rest[:-1].isalnum() else name


def for_all_numbers(
    node: ForAllCondition, numbers: Mapping[str, int], symbols: Symbols
) -> list[int]:
    """The numbers that ∀ ranges over; empty, with a problem, where they are unknown."""
    if isinstance(node.numbers, BareName):
        return _set_numbers(node.numbers, symbols)
    found = [_as_integer(each, numbers) for each in node.numbers.members]
    bounds = [each for each in found if each is not None]
    if len(bounds) < len(found) or not bounds:
        hint = 'write {2, n} with symbols={"n": 4}'
        symbols.problems.add("these are not whole numbers", node.numbers.place, hint=hint)
        return []
    if not node.is_range:
        return bounds
    low, high = bounds
    if high - low > MAX_MEMBERS:
        symbols.problems.add(
            f"∀ ranges over {high - low + 1} numbers",
            node.numbers.place,
            hint=f"at most {MAX_MEMBERS} are allowed",
        )
        return []
    return list(range(low, high + 1))


def _set_numbers(word: BareName, symbols: Symbols) -> list[int]:
    given = symbols.family(word.name) or []
    found = [each for each in given if isinstance(each, int) and not isinstance(each, bool)]
    if not found or len(found) < len(given):
        _report_no_numbers(word, symbols.problems)
        return []
    return found


def _report_no_numbers(word: BareName, problems: Problems) -> None:
    hint = f'write {{2, n}}, or give whole numbers in symbols={{"{word.name}": [2, 3]}}'
    problems.add(f"{word.name} is not a list of whole numbers", word.place, hint=hint)


def _as_integer(node: object, numbers: Mapping[str, int]) -> int | None:
    if isinstance(node, BareName):
        return numbers.get(node.name)
    return int(node.text) if isinstance(node, SqlLiteral) and node.text.isdecimal() else None


# ---- variables -----------------------------------------------------------------------------------

_NO_DECLARATION = EventDeclaration("", "", Place("", 0, 0))


def collect_variables(node: SaseNode) -> list[SaseVariable]:
    """The variables from left to right; refuses patterns that cannot have a match."""
    found = list(_walk_variables(node, SaseVariable(_NO_DECLARATION)))
    seen: dict[str, SaseVariable] = {}
    for variable in found:
        first = seen.setdefault(variable.name.casefold(), variable)
        if first is not variable:
            _raise_bound_twice(variable, first)
    if all(variable.negated for variable in found):
        hint = "add an event that is not negated: SEQ(A a, NOT(B b))"
        raise_syntax_error("every event of the pattern is negated", node.place, hint)
    return found


def _walk_variables(node: SaseNode, so_far: SaseVariable) -> Iterator[SaseVariable]:
    """`so_far` holds what is true of all variables below the node."""
    if isinstance(node, EventDeclaration):
        yield replace(so_far, declared=node)
    elif isinstance(node, EventNegation):
        yield from _walk_variables(node.part, replace(so_far, negated=True))
    elif isinstance(node, Repetition):
        optional = node.quantifier in {"*", "?"} or node.quantifier.startswith(("{0", "{,"))
        is_list = so_far.is_list or node.quantifier != "?"
        below = replace(so_far, is_list=is_list, always=so_far.always and not optional)
        yield from _walk_variables(node.part, below)
    elif isinstance(node, Combination):
        choice = node.kind == "any" and len(node.parts) > 1
        # A match may fill several alternatives of a repeated OR.
        excludes = choice and not so_far.is_list
        for side, part in enumerate(node.parts):
            branches = (*so_far.branches, (id(node), side)) if excludes else so_far.branches
            always = so_far.always and not choice
            yield from _walk_variables(part, replace(so_far, always=always, branches=branches))


def _raise_bound_twice(variable: SaseVariable, first: SaseVariable) -> None:
    name, declared = variable.name, variable.declared
    same = "" if first.name == name else f" (as {first.name}; case makes no difference)"
    example = f"{declared.type} {name}1, {declared.type} {name}2".lower() if declared.bare else ""
    hint = f"give each event a name of its own: {example or f'{declared.type} {name}2'}"
    raise_syntax_error(f"the variable {name} is bound twice{same}", declared.place, hint)


# ---- types ---------------------------------------------------------------------------------------


def type_conditions(
    variables: Sequence[SaseVariable], symbols: Symbols, type_column: str | None
) -> dict[str, str]:
    """The condition of each variable's type, over bare columns; unknown types become problems.

    `Stock a` is a row of type Stock. Which rows these are is given by the column that holds the
    type, or for a single type by a symbol.
    """
    found = {}
    for variable in variables:
        text = _type_condition(variable.declared, symbols, type_column)
        if text is not None:
            found[variable.name] = text
    return found


def _type_condition(
    declared: EventDeclaration, symbols: Symbols, type_column: str | None
) -> str | None:
    type_ = declared.type
    if type_ in symbols:
        given = symbols.get(type_)
        if given is None or isinstance(given, str):
            return given
        if not declared.bare:
            hint = f'give a condition, symbols={{"{type_}": "kind = 1"}}, or None'
            symbols.problems.add(f"the symbol {type_} is not a type", declared.place, hint=hint)
            return None
    if type_column is not None:
        return f"{name_sql(type_column)} = {_type_value(declared, symbols)}"
    if not declared.bare:
        hint = (
            f'give the column that holds the type, type_column="kind", or the meaning of {type_}, '
            f'symbols={{"{type_}": "ticker = \'A\'"}}; {{"{type_}": None}} if every row is one'
        )
        message = f"nothing says which rows are of type {type_}"
        symbols.once(message, declared.place, hint)
    return None


def _type_value(declared: EventDeclaration, symbols: Symbols) -> str:
    """The type's value: its name, or for a member of a family the value in the family's list."""
    member = split_subscript(declared.type, {})
    family = None if member is None else symbols.family(member[0])
    if member is None or family is None:
        return sql_string(declared.type)
    base, number = member
    if not 1 <= number <= len(family):
        hint = f'give {number} members in symbols={{"{base}": [...]}}'
        message = f"the family {base} has only {len(family)} members"
        symbols.problems.add(message, declared.place, hint=hint)
        return "NULL"
    return value_sql(family[number - 1])


def check_bare(
    variables: Iterable[SaseVariable],
    symbols: Symbols,
    type_column: str | None,
    constrained: frozenset[str],
) -> None:
    """Refuses bare names that nothing restricts; `constrained` have a condition of their own.

    Without a type column a bare name is only a variable. If nothing restricted it, `A; B; C` over a
    table without types would match any three rows.
    """
    if type_column is not None:
        return
    for variable in variables:
        name, declared = variable.name, variable.declared
        if declared.bare and name not in constrained and name not in symbols:
            hint = (
                f'give type_column="kind" if {name} is a type, or a condition such as '
                f"{name}.kind = '{name}'; symbols={{\"{name}\": None}} if every row may be {name}"
            )
            symbols.problems.add(f"nothing says which rows are {name}", declared.place, hint=hint)


# ---- pattern -------------------------------------------------------------------------------------


def build_tree(node: SaseNode, conditions: dict[str, str]) -> Pattern:
    """The pattern, with the condition of each variable's type."""
    if isinstance(node, EventDeclaration):
        return _build_event(node, conditions)
    if isinstance(node, EventNegation):
        _check_negated(node.part)
        return no(build_tree(node.part, conditions))
    if isinstance(node, Repetition):
        _check_body(node)
        return build_tree(node.part, conditions).times(node.quantifier)
    assert isinstance(node, Combination)
    if node.kind == "any":
        _check_sides(node)
    combine = {"seq": seq, "all": all_of, "any": any_of}[node.kind]
    return combine(*(build_tree(part, conditions) for part in node.parts))


def _check_negated(node: SaseNode) -> None:
    if isinstance(node, EventNegation):
        hint = "write NOT(A a), or a group of events that must not all occur: NOT(SEQ(A a, B b))"
        raise_syntax_error("a negated event is negated again", node.place, hint)
    if isinstance(node, Repetition):
        hint = "write NOT(A a): no such row at all; NOT(SEQ(A a1, A a2)): not two of them"
        raise_syntax_error("a negated event has a quantifier", node.place, hint)
    for part in node.parts if isinstance(node, Combination) else ():
        _check_negated(part)


def _build_event(node: EventDeclaration, conditions: dict[str, str]) -> Pattern:
    try:
        return event(node.name, conditions.get(node.name))
    except PatternError as error:
        raise_syntax_error(error.message, node.place, "a name has letters, digits and _")


def _check_body(node: Repetition) -> None:
    body = node.part
    hint = "a quantifier takes an event, A+ a, or a group: (A a, B b)+, AND(A a, B b)+, OR(...)+"
    if isinstance(body, EventDeclaration):
        return
    if isinstance(body, EventNegation):
        raise_syntax_error(
            "a negated event has a quantifier", node.place, "write NOT(A a): no such row at all"
        )
    if isinstance(body, Repetition):
        raise_syntax_error("a part has two quantifiers", node.place, "keep one of them")
    assert isinstance(body, Combination)
    if node.quantifier == "?":
        return
    if body.kind == "any":
        _check_alternatives(body)
    else:
        _check_members(body, hint)


def _check_alternatives(body: Combination) -> None:
    hint = "an alternative is an event or a group of events: OR(SEQ(A a, B b), C c)+"
    for part in body.parts:
        if isinstance(part, EventNegation):
            raise_syntax_error("a repeated OR cannot have NOT", part.place, hint)
        is_or = isinstance(part, Combination) and part.kind == "any"
        if isinstance(part, Repetition) or (is_or and body.kind != "any"):
            raise_syntax_error("an alternative may contain only events", part.place, hint)
        if isinstance(part, Combination):
            _check_alternatives(part)


def _check_members(body: Combination, hint: str) -> None:
    for part in body.parts:
        if isinstance(part, Repetition) or (isinstance(part, Combination) and part.kind == "any"):
            raise_syntax_error("a repeated group may contain only events", part.place, hint)
        if isinstance(part, Combination):
            _check_members(part, hint)
    inside = body.parts if body.kind == "all" else (body.parts[0], body.parts[-1])
    for part in inside:
        if isinstance(part, EventNegation):
            what = "have NOT in AND" if body.kind == "all" else "begin or end with NOT"
            raise_syntax_error(f"a repeated group cannot {what}", part.place, hint)


def _check_sides(node: Combination) -> None:
    for part in node.parts:
        if isinstance(part, EventNegation):
            hint = "put it into a sequence: SEQ(A a, NOT(B b), C c) OR ..."
            raise_syntax_error("NOT directly in OR has no bounds", part.place, hint)


def check_bounds(node: SaseNode, pattern: Pattern, problems: Problems) -> None:
    """Checks that events or a window bound every NOT, and that no match can be empty."""
    root: EventPatternNode = pattern.root
    index = {each.name: number for number, (each, _) in enumerate(iter_events(root))}
    within = pattern.window
    try:
        build_branches(root, index, has_time_window=within is not None and within.events is None)
    except PatternError as error:
        place, hint = node.place, error.hint
        for negated in _find_negations(node):
            if error.message.startswith(f"NOT {_negated_names(negated)} "):
                place = negated.place
                hint = "add WITHIN 10 minutes, or put it between two events that are always there"
        problems.add(error.message, place, hint=hint)


def _negated_names(node: EventNegation) -> str:
    """As `build_branches` names them: x, or (x, y) for a group."""
    names = [each.name for each in _walk_variables(node, SaseVariable(_NO_DECLARATION))]
    return names[0] if isinstance(node.part, EventDeclaration) else f"({', '.join(names)})"


def _find_negations(node: SaseNode) -> Iterator[EventNegation]:
    if isinstance(node, EventNegation):
        yield node
    elif isinstance(node, Repetition):
        yield from _find_negations(node.part)
    elif isinstance(node, Combination):
        for part in node.parts:
            yield from _find_negations(part)


# ---- window --------------------------------------------------------------------------------------

_EVENT_UNITS = ("event", "events")


def resolve_window(node: WindowClause, symbols: Symbols) -> Within | None:
    """The window of the pattern; None, with a problem, if it is not valid."""
    place = node.place
    if len(node.amounts) == 1:
        amount = node.amounts[0]
        if amount.unit is None:
            return _bare_window(amount, symbols, place)
        if amount.unit.casefold() in _EVENT_UNITS:
            return _event_window(amount, symbols, place)
    units = [each.unit for each in node.amounts]
    if None in units or any(unit.casefold() in _EVENT_UNITS for unit in units if unit):
        symbols.problems.add("this is not a duration", place, hint=WINDOW_HINT)
        return None
    numbers = [_amount_number(each, symbols, place) for each in node.amounts]
    text = " ".join(f"{number} {unit}" for number, unit in zip(numbers, units, strict=True))
    return None if None in numbers else _check_window(Within(text), symbols, place)


def _bare_window(amount: WindowAmount, symbols: Symbols, place: Place) -> Within | None:
    if isinstance(amount.number, BareName):
        given = symbols.get(amount.number.name)
        if isinstance(given, str | timedelta | int | float) and not isinstance(given, bool):
            return _check_window(Within(given), symbols, place)
        name = amount.number.name
        hint = f'give it in symbols={{"{name}": "20 minutes"}}, or {WINDOW_HINT}'
        symbols.problems.add(f"unknown duration {name}", place, hint=hint)
        return None
    text = amount.number.text
    size = int(text) if text.isdecimal() else float(text)
    if size <= 0:
        symbols.problems.add("the window must be larger than zero", place, hint=WINDOW_HINT)
        return None
    return Within(size)


def _event_window(amount: WindowAmount, symbols: Symbols, place: Place) -> Within | None:
    number = _amount_number(amount, symbols, place)
    if number is None:
        return None
    if not number.isdecimal() or int(number) == 0:
        symbols.problems.add(f"{number} is not a number of events", place, hint=WINDOW_HINT)
        return None
    return Within(events=int(number))


def _amount_number(amount: WindowAmount, symbols: Symbols, place: Place) -> str | None:
    if not isinstance(amount.number, BareName):
        return amount.number.text
    name = amount.number.name
    found = symbols.numbers.get(name)
    if found is None:
        hint = f'give it in symbols={{"{name}": 10}}, or {WINDOW_HINT}'
        symbols.problems.add(f"unknown number {name}", place, hint=hint)
    return None if found is None else str(found)


def _check_window(found: Within, symbols: Symbols, place: Place) -> Within | None:
    """Checks that strings and timedeltas are durations."""
    if not isinstance(found.duration, str | timedelta):
        return found
    try:
        window_of(found, Type("timestamp"))
    except PatternError as error:
        symbols.problems.take(error, place)
        return None
    return found
