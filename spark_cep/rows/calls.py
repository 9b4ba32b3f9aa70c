"""The calls of row patterns: navigation, CLASSIFIER, MATCH_NUMBER and aggregates.

They are found in a parsed expression and checked by the standard's rules of nesting:

    PREV, NEXT      take an expression, or one FIRST or LAST
    FIRST, LAST     take an expression over columns and CLASSIFIER
    aggregates      take expressions over columns, CLASSIFIER and MATCH_NUMBER
    RUNNING, FINAL  precede FIRST, LAST and aggregates; no FINAL in DEFINE
    FILTER          follows aggregates, WITHIN GROUP those of Spark that have it
    IGNORE NULLS    follows FIRST, LAST and any_value, which are then over all rows of a set

RUNNING and FINAL are replaced by blanks before parsing, because SQL parsers do not know them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlglot import TokenType, exp

from spark_cep.expressions.aggregates import AGGREGATES, NAVIGATIONS, aggregate_rule
from spark_cep.expressions.identifiers import NamePredicate, no_names
from spark_cep.expressions.problems import Excerpt, Place, Problems
from spark_cep.expressions.syntax import ParsedExpression, is_call_name, parse_expression, tokenize

if TYPE_CHECKING:
    from sqlglot import Token


CallKind = Literal["physical", "logical", "classifier", "number", "aggregate"]
_KINDS: Mapping[str, CallKind] = {
    "prev": "physical",
    "next": "physical",
    "classifier": "classifier",
    "match_number": "number",
    **dict.fromkeys(AGGREGATES, "aggregate"),
    **dict.fromkeys(NAVIGATIONS, "logical"),
}
_NODES: Mapping[type[exp.Expr], str] = {
    exp.First: "first",
    exp.Last: "last",
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.Any: "any",
}
# What may stand around a function: both have its names and calls inside them.
_NULLS = (exp.IgnoreNulls, exp.RespectNulls)
_CLAUSES = (exp.Filter, exp.WithinGroup, *_NULLS)
# IGNORE NULLS is for functions that read one row, RESPECT NULLS also for lists.
_LISTS = {"collect_list", "collect_set", "array_agg"}
_SEMANTICS = {"RUNNING", "FINAL"}
_ARRAYS = {"array_agg", "collect_list", "collect_set"}
_IGNORES_NULLS = re.compile(r"\s+IGNORE\s+NULLS$", re.I)
SEMANTICS_HINT = "RUNNING and FINAL precede FIRST, LAST or an aggregate: FINAL LAST(b.price)"


@dataclass(frozen=True)
class RowCall:
    """One call: characters [start, end), with RUNNING or FINAL in front and FILTER behind.

    `node`: with WITHIN GROUP and FILTER. `final` None: neither is given. `offset`: the second
    argument of a navigation, or its default. `inside`: the innermost call around it. `filter`: the
    condition of FILTER (WHERE ...). `order`: of WITHIN GROUP (ORDER BY ...). `ignores_nulls`: TRUE
    for IGNORE NULLS, FALSE for RESPECT NULLS; None: neither is given.
    """

    node: exp.Expr
    name: str
    kind: CallKind
    start: int
    end: int
    arguments: tuple[exp.Expr, ...]
    offset: int = 0
    distinct: bool = False
    final: bool | None = None
    inside: RowCall | None = None
    filter: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()
    ignores_nulls: bool | None = None

    @property
    def operands(self) -> tuple[exp.Expr, ...]:
        """All expressions in it."""
        keys = [each.this for each in self.order]
        return (*self.arguments, *keys, *([] if self.filter is None else [self.filter]))

    def around(self) -> list[RowCall]:
        """The calls around it, from the inside out."""
        return [] if self.inside is None else [self.inside, *self.inside.around()]


@dataclass(frozen=True)
class RowCalls:
    """The calls of an expression. `around`: by node id, the innermost call that contains or is the
    node."""

    parsed: ParsedExpression
    calls: Mapping[int, RowCall]
    around: Mapping[int, RowCall | None]

    def at(self, node: exp.Expr) -> RowCall | None:
        return self.calls.get(id(node))

    def below(self, node: exp.Expr) -> list[RowCall]:
        return [self.calls[id(each)] for each in node.walk() if id(each) in self.calls]


def parse_calls(
    text: str,
    problems: Problems,
    *,
    in_define: bool,
    aggregates: frozenset[str] = frozenset(),
    is_name: NamePredicate = no_names,
) -> RowCalls:
    """Parses the text; raises SyntaxProblem. Calls that violate a rule become problems.
    `aggregates`: those of the session. `is_name`: whether a word such as current_date is a name."""
    tokens = tokenize(text)
    semantics = _semantics(text, tokens)
    blank = text
    for start, end, _ in semantics.values():
        blank = blank[:start] + " " * (end - start) + blank[end:]
    parsed = parse_expression(Excerpt.altered(blank, text), is_name)
    finder = _CallFinder(parsed, semantics, problems, in_define=in_define)
    return finder.run(aggregates)


def _semantics(text: str, tokens: Sequence[Token]) -> dict[int, tuple[int, int, bool]]:
    """RUNNING and FINAL by the start of the function name after it: start, end, whether FINAL."""
    found = {}
    for word, name, bracket in zip(tokens, tokens[1:], tokens[2:], strict=False):
        spelled = text[word.start : word.end + 1].upper()
        is_call = bracket.token_type == TokenType.L_PAREN and is_call_name(name)
        if spelled in _SEMANTICS and is_call:
            found[name.start] = (word.start, word.end + 1, spelled == "FINAL")
    return found


def call_kind_of(
    node: exp.Expr, aggregates: frozenset[str] = frozenset()
) -> tuple[str, CallKind] | None:
    """The name and kind of the call that a node is, without its FILTER and WITHIN GROUP.
    `aggregates`: those of the session."""
    name = _NODES.get(type(node))
    if name is None and isinstance(node, exp.Anonymous):
        name = node.name.lower()
    kind = _KINDS.get(name) if name is not None else None
    if name in aggregates:
        kind = "aggregate"
    return None if name is None or kind is None else (name, kind)


def function_of(node: exp.Expr) -> exp.Expr:
    """The function inside FILTER and WITHIN GROUP."""
    while isinstance(node, _CLAUSES):
        node = node.this
    return node


def _clauses_of(node: exp.Expr) -> tuple[exp.Expr | None, tuple[exp.Ordered, ...]]:
    """The condition of FILTER and the order of WITHIN GROUP."""
    condition: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()
    while isinstance(node, _CLAUSES):
        if isinstance(node, exp.Filter):
            condition = node.expression.this
        elif isinstance(node, exp.WithinGroup):
            order = tuple(node.expression.expressions)
        node = node.this
    return condition, order


def clause_nodes(call: RowCall) -> list[exp.Expr]:
    """FILTER, WITHIN GROUP and IGNORE NULLS of a call."""
    return _clauses_around(call.node)


def _clauses_around(node: exp.Expr) -> list[exp.Expr]:
    """The clauses around a function, and IGNORE NULLS in its parentheses."""
    found: list[exp.Expr] = []
    while isinstance(node, _CLAUSES):
        found.append(node)
        node = node.this
    known = call_kind_of(node)
    inside = [node.args.get("this"), *node.expressions]
    if known is not None and known[0] in NAVIGATIONS:
        found += [each for each in inside if isinstance(each, _NULLS)]
    return found


def _has_filter(node: exp.Expr) -> bool:
    return _clauses_of(node)[0] is not None


def _order_hint(name: str, value: str, keys: str) -> str:
    """What to write instead of `name(value ORDER BY keys)`."""
    if name in {"listagg", "string_agg"}:
        return f"write {name}({value}) WITHIN GROUP (ORDER BY {keys})"
    if name in {"array_agg", "collect_list"}:
        return (
            f"the rows come in the order of the match: {name}({value}); to sort by {keys}, write "
            f"array_sort({name}(struct({keys}, {value})))"
        )
    return f"the order does not matter here: {name}({value})"


def _written(name: str, value: str, offset: int, default: int) -> str:
    """A navigation as text; the default offset is left out."""
    return f"{name}({value})" if offset == default else f"{name}({value}, {offset})"


def _is_bare_name(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.table


class _CallFinder:
    def __init__(
        self,
        parsed: ParsedExpression,
        semantics: Mapping[int, tuple[int, int, bool]],
        problems: Problems,
        *,
        in_define: bool,
    ) -> None:
        self._parsed = parsed
        self._semantics = dict(semantics)
        self._problems = problems
        self._in_define = in_define

    def run(self, aggregates: frozenset[str]) -> RowCalls:
        calls: dict[int, RowCall] = {}
        around: dict[int, RowCall | None] = {}
        # Breadth first: a node's parent comes before it.
        for node in self._parsed.root.walk():
            inside = around.get(id(node.parent)) if node is not self._parsed.root else None
            known = call_kind_of(function_of(node), aggregates)
            if known is not None and not isinstance(node.parent, _CLAUSES):
                name, kind = known
                if name in NAVIGATIONS and (_has_filter(node) or self._ignores_nulls(node, name)):
                    kind = "aggregate"
                call = self._call(node, name, kind, inside)
                self._check_place(call)
                calls[id(node)] = inside = call
            around[id(node)] = inside
        for start, end, _ in self._semantics.values():
            place = Place(self._parsed.text, start, end)
            shown = place.outermost()
            self._problems.add(
                f"unexpected {shown.text[shown.start : shown.end].upper()}",
                place,
                hint=SEMANTICS_HINT,
            )
        return RowCalls(self._parsed, calls, around)

    def _call(self, node: exp.Expr, name: str, kind: CallKind, inside: RowCall | None) -> RowCall:
        start, end = self._parsed.span(node)
        semantics = None
        if kind in {"logical", "aggregate"}:
            semantics = self._semantics.pop(start, None)
        if semantics is not None:
            start = semantics[0]
        function = function_of(node)
        arguments, distinct = self._arguments(function)
        offset = 0
        ignores_nulls = self._ignores_nulls(node, name)
        if name in NAVIGATIONS and self._flag(node) is not None:
            arguments = arguments[:1]
        elif kind in {"physical", "logical"}:
            offset = self._offset(node, 1 if kind == "physical" else 0)
            arguments = arguments[:1]
        self._check_nulls(node, name, ignores_nulls, arguments)
        self._check_count(node, name, kind, arguments)
        self._check_arguments(node, kind, arguments, distinct=distinct)
        if kind != "aggregate" and any(_clauses_of(node)):
            self._refuse_clauses(node)
        final = None if semantics is None else semantics[2]
        if final and self._in_define:
            self._problems.add(
                "FINAL is not allowed in DEFINE",
                Place(self._parsed.text, start, end),
                hint="remove FINAL: conditions see only the rows matched so far",
            )
        return RowCall(
            node, name, kind, start, end, arguments, offset, distinct, final, inside,
            *_clauses_of(node), ignores_nulls,
        )  # fmt: skip

    def _arguments(self, node: exp.Expr) -> tuple[tuple[exp.Expr, ...], bool]:
        given = [] if isinstance(node, exp.Anonymous) else [node.this]
        given = [each for each in [*given, *node.expressions] if each is not None]
        distinct = len(given) == 1 and isinstance(given[0], exp.Distinct)
        if distinct:
            given = given[0].expressions
        clauses = _clauses_around(node)
        given = [each.this if any(each is one for one in clauses) else each for each in given]
        return tuple(self._without_clause(node, each) for each in given), distinct

    def _without_clause(self, node: exp.Expr, argument: exp.Expr) -> exp.Expr:
        """Refuses what other systems write behind an argument: `array_agg(p ORDER BY i LIMIT 3)`,
        `any_value(p HAVING MAX i)`."""
        if isinstance(argument, exp.Limit | exp.HavingMax):
            value: exp.Expr = argument.this
            kind = "LIMIT" if isinstance(argument, exp.Limit) else "HAVING"
            text, name = self._parsed.text, self._spelled(node)
            after, end = self._parsed.span(value)[1], self._parsed.span(argument)[1]
            start = after + len(text[after:end]) - len(text[after:end].lstrip())
            shown, other = self._parsed.text_of(value), argument.args["expression"]
            if kind == "LIMIT":
                count = self._parsed.text_of(other)
                hint = "remove it"
                if name.lower() in _ARRAYS:
                    hint = f"write slice({name.lower()}({shown}), 1, {count})"
            else:
                function = "max_by" if argument.args.get("max") else "min_by"
                hint = f"write {function}({shown}, {self._parsed.text_of(other)})"
            place = Place(text, start, end)
            self._problems.add(f"{kind} inside {name} is not Spark SQL", place, hint=hint)
            return self._without_order(node, value)
        return self._without_order(node, argument)

    def _without_order(self, node: exp.Expr, argument: exp.Expr) -> exp.Expr:
        """Refuses `array_agg(p ORDER BY i)`, which is not Spark SQL."""
        if not isinstance(argument, exp.Order):
            return argument
        value: exp.Expr = argument.this
        text = self._parsed.text
        _, end = self._parsed.span(argument)
        opened = self._parsed.tokens[self._parsed.tokens_of(node)[0] + 1].end + 1
        after = self._parsed.span(value)[1]
        start = after + len(text[after:end]) - len(text[after:end].lstrip())
        keys = ", ".join(self._parsed.text_of(each.this) for each in argument.expressions)
        name, before = self._spelled(node), _IGNORES_NULLS.sub("", text[opened:start].strip())
        self._problems.add(
            f"ORDER BY inside {name} is not Spark SQL",
            Place(text, start, end),
            hint=_order_hint(name.lower(), before, keys),
        )
        return value

    def _refuse_clauses(self, node: exp.Expr) -> None:
        name = self._spelled(node)
        clause = "FILTER" if isinstance(node, exp.Filter) else "WITHIN GROUP"
        self._add(
            node,
            f"{clause} follows an aggregate, and {name} reads one row",
            f"remove {clause}; of the rows that meet a condition, max_by(price, ts) FILTER (WHERE "
            "...) has the last and min_by the first",
        )

    # ---- NULLs -----------------------------------------------------------------------------------

    def _ignores_nulls(self, node: exp.Expr, name: str) -> bool | None:
        """Whether IGNORE NULLS (True) or RESPECT NULLS (False) is given, behind the function,
        behind its argument, or as a second argument that is TRUE or FALSE."""
        flag = self._flag(node) if name in NAVIGATIONS else None
        if flag is not None:
            return flag
        given = [each for each in _clauses_around(node) if isinstance(each, _NULLS)]
        return isinstance(given[0], exp.IgnoreNulls) if given else None

    def _flag(self, node: exp.Expr) -> bool | None:
        """The second argument of last(x, true)."""
        places = self._argument_places(node)
        if len(places) != len(("value", "flag")):
            return None
        place = places[1]
        text = self._parsed.text[place.start : place.end].lower()
        return {"true": True, "false": False}.get(text)

    def _check_nulls(
        self, node: exp.Expr, name: str, ignores: bool | None, arguments: Sequence[exp.Expr]
    ) -> None:
        if ignores is None or name in NAVIGATIONS or (not ignores and name in _LISTS):
            self._check_offset_of_nulls(node, name, ignores, arguments)
            return
        spelled = self._spelled(node)
        value = self._parsed.text_of(arguments[0]) if arguments else "price"
        if name in {"prev", "next"}:
            if not ignores:
                return
            message = f"{spelled} reads one row at a distance, so it cannot ignore NULLs"
            hint = (
                f"of the rows of the match so far, LAST({value}) IGNORE NULLS has the last value; "
                f"of all rows, compute last_value({value}) IGNORE NULLS OVER (...) as a column of "
                "the input"
            )
        elif ignores:
            message = f"{spelled} does not have IGNORE NULLS"
            hint = f"write {spelled}({value}): aggregates skip NULL"
        else:
            message = f"{spelled} does not have RESPECT NULLS"
            hint = f"write {spelled}(coalesce({value}, ...)) with a value for NULL"
        self._add(node, message, hint)

    def _check_offset_of_nulls(
        self, node: exp.Expr, name: str, ignores: bool | None, arguments: Sequence[exp.Expr]
    ) -> None:
        places = self._argument_places(node) if name in NAVIGATIONS and ignores else []
        if len(places) < len(("value", "offset")) or self._flag(node) is not None:
            return
        spelled = self._spelled(node)
        offset = self._parsed.text[places[1].start : places[1].end]
        place = int(offset) + 1 if re.fullmatch(r"\d{1,9}", offset) else 1
        place = -place if NAVIGATIONS[name] == "last" else place
        value = self._parsed.text_of(arguments[0]) if arguments else "price"
        self._add(
            node,
            f"{spelled} has either an offset or IGNORE NULLS",
            f"a list has no NULLs: try_element_at(collect_list({value}), {place})",
        )

    # ---- arguments -------------------------------------------------------------------------------

    def _offset(self, node: exp.Expr, default: int) -> int:
        """The offset, read from the tokens: the nodes of FIRST and LAST do not keep it."""
        places = self._argument_places(node)
        name = self._spelled(node)
        if len(places) > 2:
            self._problems.add(
                f"{name} takes an expression and an offset",
                self._parsed.place(node),
                hint=f"write {name}(price, 2)",
            )
        if len(places) < 2:
            return default
        place = places[1]
        text = self._parsed.text[place.start : place.end]
        if not re.fullmatch(r"\d{1,9}", text):
            self._problems.add(
                f"{name}: the offset must be an integer literal, not {text}",
                place,
                hint=f"write a number of rows, 0 or larger: {name}(price, 2)",
            )
            return default
        return int(text)

    def _argument_places(self, node: exp.Expr) -> list[Place]:
        first, last = self._parsed.tokens_of(node)
        tokens = self._parsed.tokens
        found: list[Place] = []
        depth, start, end = 0, None, 0
        for token in tokens[first : last + 1]:
            opens = token.token_type in {TokenType.L_PAREN, TokenType.L_BRACKET}
            closes = token.token_type in {TokenType.R_PAREN, TokenType.R_BRACKET}
            depth += opens
            if depth == 1 and (token.token_type == TokenType.COMMA or closes):
                if start is not None:
                    found.append(Place(self._parsed.text, start, end))
                start = None
            elif start is None and not (depth == 1 and opens) and depth:
                start = token.start
            end = token.end + 1
            depth -= closes
            if closes and not depth:
                break
        if start is None and len(found) == 1 and self._ends_in_comma(tokens[first : last + 1]):
            self._add(node, f"an argument of {self._spelled(node)} is missing", None)
        return found

    def _ends_in_comma(self, tokens: Sequence[Token]) -> bool:
        return len(tokens) > 1 and tokens[-2].token_type == TokenType.COMMA

    def _check_count(
        self, node: exp.Expr, name: str, kind: CallKind, arguments: Sequence[exp.Expr]
    ) -> None:
        spelled, count = self._spelled(node), len(arguments)
        if kind == "number" and count:
            self._add(node, f"{spelled} takes no arguments", f"write {spelled}()")
        elif kind == "classifier" and count > 1:
            self._add(node, f"{spelled} takes at most one variable", f"write {spelled}(a)")
        elif kind in {"physical", "logical"} and not count:
            self._add(node, f"{spelled} takes an expression", f"write {spelled}(price)")
        elif kind == "aggregate":
            least, most = aggregate_rule(name).arguments
            if count < least or (most is not None and count > most):
                wanted = "one expression" if least == 1 else f"{least} expressions"
                example = ", ".join(("price", "ts", "3")[:least])
                self._add(node, f"{spelled} takes {wanted}", f"write {spelled}({example})")

    def _check_arguments(
        self, node: exp.Expr, kind: CallKind, arguments: Sequence[exp.Expr], *, distinct: bool
    ) -> None:
        """Refuses what would have no effect: LAST(DISTINCT x), CLASSIFIER(a.x), count(*, x)."""
        spelled = self._spelled(node)
        shown = ", ".join(self._parsed.text_of(each) for each in arguments)
        has_star = any(isinstance(each, exp.Star) for each in arguments)
        is_count = isinstance(function_of(node), exp.Count)
        counts_rows = is_count and len(arguments) == 1 and not distinct
        if distinct and (kind != "aggregate" or self._name_of(node) in NAVIGATIONS):
            self._add(
                node,
                f"{spelled} takes no DISTINCT",
                f"write {spelled}({shown}); DISTINCT is for aggregates: count(DISTINCT b.price)",
            )
        elif kind == "classifier" and arguments and not _is_bare_name(arguments[0]):
            named = next(arguments[0].find_all(exp.Column), None)
            at = 0 if named is None else self._parsed.tokens_of(named)[0]
            variable = "a" if named is None else self._parsed.tokens[at].text
            self._problems.add(
                f"{spelled} takes a variable, not {shown}",
                self._parsed.place(arguments[0]),
                hint=f"write {spelled}({variable})",
            )
        elif kind == "aggregate" and has_star and not counts_rows:
            self._add(
                node,
                f"{spelled} takes * only as count(*)",
                f"name a column, {spelled}(b.price), or count rows: count(*)",
            )

    # ---- nesting ---------------------------------------------------------------------------------

    def _check_place(self, call: RowCall) -> None:
        if call.inside is None or call.kind == "classifier":
            return
        outer, name = call.inside, self._spelled(call.node)
        outside = self._spelled(outer.node)
        if outer.kind in {"classifier", "number"}:
            return
        if call.kind == "aggregate":
            self._add(
                call.node,
                f"{outside} cannot contain the aggregate {name}",
                "aggregates cannot be nested; they take columns of the rows"
                if outer.kind == "aggregate"
                else f"navigation takes columns of one row; use {self._parsed.text_of(call.node)} "
                "alone",
            )
        elif outer.kind == "aggregate" and call.kind != "number":
            self._add(
                call.node,
                f"{outside} cannot contain {name}",
                f"an aggregate takes columns of the rows: {outside}(b.price)",
            )
        elif call.kind == "number" and outer.kind != "aggregate":
            self._add(
                call.node,
                f"{outside} cannot contain {name}()",
                f"{name}() is the same for all rows of a match: use it outside {outside}",
            )
        elif call.kind == "physical":
            self._add(
                call.node,
                f"{outside} cannot contain {name}",
                f"swap the two: {self._swapped(call, outer)}"
                if outer.kind == "logical"
                else f"add the offsets: {self._summed(call, outer)}",
            )
        elif call.kind == "logical" and not self._is_direct(call, outer):
            self._add(
                call.node,
                f"{outside} cannot contain an expression over {name}"
                if outer.kind == "physical"
                else f"{outside} cannot contain {name}",
                f"{outside} takes one FIRST or LAST alone: "
                f"{_written(outside, self._parsed.text_of(call.node), outer.offset, 1)}"
                if outer.kind == "physical"
                else "use one of them, with an offset: LAST(b.price, 1)",
            )

    def _swapped(self, call: RowCall, outer: RowCall) -> str:
        """PREV(LAST(x, 1), 2) for LAST(PREV(x, 2), 1)."""
        inner = _written(self._spelled(outer.node), self._value(call), outer.offset, 0)
        return _written(self._spelled(call.node), inner, call.offset, 1)

    def _summed(self, call: RowCall, outer: RowCall) -> str:
        """PREV(x, 3) for PREV(PREV(x), 2)."""
        shift = sum(-each.offset if each.name == "prev" else each.offset for each in (call, outer))
        return _written("PREV" if shift < 0 else "NEXT", self._value(call), abs(shift), 1)

    def _value(self, call: RowCall) -> str:
        return self._parsed.text_of(call.arguments[0]) if call.arguments else "price"

    def _is_direct(self, call: RowCall, outer: RowCall) -> bool:
        """Whether FIRST or LAST is the whole argument of PREV or NEXT."""
        if outer.kind != "physical" or not outer.arguments:
            return False
        return outer.arguments[0].unnest() is call.node

    def _name_of(self, node: exp.Expr) -> str:
        return self._spelled(node).lower()

    def _spelled(self, node: exp.Expr) -> str:
        first, _ = self._parsed.tokens_of(node)
        return self._parsed.tokens[first].text.upper()

    def _add(self, node: exp.Expr, message: str, hint: str | None) -> None:
        self._problems.add(message, self._parsed.place(node), hint=hint)
