"""A SELECT over windows with row patterns, as a query over the answer of the matcher.

    SELECT t.id, price - first_value(price) OVER w AS gain FROM ticks t WHERE ... WINDOW w AS (...)

    1  SELECT *, t.id, price AS __cep_w0, ... FROM ticks t WHERE ...     by Spark
    2  the rows of 1 with a column for each call: FIRST(price) AS __cep_m0    by the matcher
    3  SELECT __cep_s0 AS id, __cep_w0 - __cep_m0 AS gain FROM (rows of 2)    by Spark

Items without such a call are computed whole in 1. In the others the calls are replaced by columns
of 2, and the columns, subqueries and other window functions around them are computed in 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from spark_cep.errors import CepError
from spark_cep.expressions.aggregates import AGGREGATES, NAVIGATIONS
from spark_cep.expressions.names import quote_name
from spark_cep.expressions.syntax import MAX_DIGITS, SyntaxProblem, parse_expression
from spark_cep.rows.windows import WindowRequest
from spark_cep.sql.location import ClauseLocation
from spark_cep.sql.match_call import prepare_call
from spark_cep.sql.messages import locate_error
from spark_cep.sql.selects import find_select, list_items
from spark_cep.sql.statement import FramePiece, derive_text
from spark_cep.sql.windows import SelectWindows, find_pattern_windows, pattern_span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spark_cep.expressions.syntax import ParsedExpression
    from spark_cep.sql.match_call import MatchCall
    from spark_cep.sql.selects import Select
    from spark_cep.sql.statement import QueryPiece, Statement, TextEdit
    from spark_cep.sql.windows import PatternWindow, WindowCall

# They ignore the frame of their window.
_RANKING = frozenset(
    {
        "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead",
    }
)  # fmt: skip
_GENERATORS = frozenset(
    {
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
    }
)
_WITH_UNIT = frozenset(
    {"timestampdiff", "timestampadd", "datediff", "dateadd", "date_diff", "date_add", "timediff"}
)
_NOT_BEFORE_ALIAS = frozenset(
    {
        "OVER", "AND", "OR", "NOT", "THEN", "ELSE", "WHEN", "CASE", "BETWEEN", "LIKE", "RLIKE",
        "ILIKE", "IS", "IN", "DISTINCT", "FROM", "AS", "DIV", "INTERVAL", "COLLATE", "ESCAPE",
    }
)  # fmt: skip
_OWN_COLUMNS = re.compile(r", __cep_\w+|, \.\.\. \(\d+ in all\)")
_HIDDEN = re.compile(r"__cep_w\d+")
_UNKNOWN = re.compile(r"with name `([^`]+)` cannot be resolved")
_NO_COLUMN = re.compile(r"the input has no column (.+)")
# Columns that take the place of calls.
_OF_CALLS = ("__cep_m", "__cep_w")
_UNSUPPORTED = {
    "QUALIFY": "put the SELECT into a subquery, and its condition into WHERE around it",
    "CLUSTER BY": "put the SELECT into a subquery",
    "DISTRIBUTE BY": "put the SELECT into a subquery",
}


def find_window_selects(statement: Statement) -> tuple[WindowSelect, ...]:
    """Every SELECT over windows with row patterns; raises PatternError for what is wrong in
    them."""
    found: dict[int, tuple[Select, list[int]]] = {}
    for opened in find_pattern_windows(statement):
        select = find_select(statement, opened)
        if select is None:
            raise statement.error_at(
                "a row pattern in a window needs a SELECT with a FROM",
                opened,
                hint="write SELECT ... FROM t WINDOW w AS (...)",
            )
        found.setdefault(select.first, (select, []))[1].append(opened)
    return tuple(WindowSelect(statement, select, opened) for select, opened in found.values())


@dataclass
class _WindowPlan:
    """One window that is called: its pattern, and the columns of the answer by name. `folds`: those
    of window functions, with the characters of their calls."""

    window: PatternWindow
    call: MatchCall
    partition: list[str]
    order: list[str]
    following: int | str | None
    measures: dict[str, str] = field(default_factory=dict)
    folds: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _OutputItem:
    """An item of the list, or of ORDER BY: computed in the input, or over calls as `pieces`."""

    number: int = -1
    pieces: list[QueryPiece] = field(default_factory=list)


class WindowSelect:
    """One SELECT with its windows. `location`: where it is, for the common table expressions that
    it can see."""

    def __init__(self, statement: Statement, select: Select, opened: Sequence[int]) -> None:
        self._statement = statement
        self._select = select
        self._opened = opened
        self.stop = select.stop
        self.span = statement.span(select.first, select.stop)
        self.location = ClauseLocation(
            select.first, select.stop, select.first, select.stop, self.span, None
        )
        self._windows = SelectWindows(statement, select)
        self._is_grouped = "GROUP BY" in select.sections
        self._plans: dict[int, _WindowPlan] = {}
        self._hidden: dict[str, tuple[str, list[QueryPiece]]] = {}
        self._inner: list[tuple[int, int]] = []
        self._output: list[_OutputItem] = []
        self._aliases: set[str] = set()
        self._ambiguous: set[str] = set()
        self._behind: list[QueryPiece] = []
        self._args: Any = None
        self._markers: tuple[int, ...] = ()
        self._check_sections()

    def pattern_spans(self) -> list[tuple[int, int]]:
        """The characters of each PATTERN (...)."""
        return [pattern_span(self._statement, opened) for opened in self._opened]

    # ---- what can be said without data -----------------------------------------------------------

    def _check_sections(self) -> None:
        statement, sections = self._statement, self._select.sections
        for name, hint in _UNSUPPORTED.items():
            if name in sections:
                raise statement.error_at(
                    f"{name} beside a row pattern in a window is not supported",
                    sections[name].first,
                    hint=hint,
                )
        for name, section in sections.items():
            if name in ("WINDOW", "ORDER BY", "SORT BY"):
                continue
            calls = self._windows.calls(section.content, section.stop)
            if calls:
                raise statement.error_at(
                    f"a window cannot be used in {name}",
                    calls[0].first,
                    hint="put the SELECT into a subquery, and the condition around it",
                )

    def prepare(self, args: Any, markers: tuple[int, ...]) -> None:
        """Plans the queries; raises PatternError for what can be checked without data."""
        self._args, self._markers = args, markers
        select = self._select
        outputs: set[str] = set()
        for first, stop in select.items:
            item, name = self._output_item(first, stop)
            self._output.append(item)
            outputs.add(name.casefold())
        self._check_groups()
        for section in ("ORDER BY", "SORT BY"):
            if section in select.sections:
                self._behind += [f" {section} ", *self._order_pieces(section, outputs)]
        for section in ("LIMIT", "OFFSET"):
            if section in select.sections:
                found = select.sections[section]
                self._behind += [" ", self._statement.span(found.first, found.stop)]

    def _output_item(self, first: int, stop: int) -> tuple[_OutputItem, str]:
        """The item, and the name that ORDER BY can know it by."""
        statement = self._statement
        calls = self._windows.calls(first, stop)
        if not calls:
            if statement.tokens[first].text.lower() in _GENERATORS and statement.symbol(
                first + 1, "("
            ):
                raise statement.error_at(
                    f"{statement.tokens[first].text} beside a row pattern in a window would add "
                    "rows to it",
                    first,
                    hint="use it in a subquery, or as LATERAL VIEW",
                )
            self._inner.append((first, stop))
            is_name = statement.tokens[stop - 1].kind in {"word", "quoted"}
            name = statement.tokens[stop - 1].text if is_name else ""
            return _OutputItem(len(self._inner) - 1), name
        alias = self._alias(first, stop)
        if alias is None:
            name = self._default_name(first, stop, calls)
            pieces = [*self._over_calls(first, stop), f" AS {quote_name(name)}"]
            return _OutputItem(pieces=pieces), name
        self._aliases.add(statement.tokens[alias].text.casefold())
        named = stop - 1 - statement.is_at(stop - 2, "AS")
        pieces = [*self._over_calls(first, named), " AS ", statement.span(alias, alias + 1)]
        return _OutputItem(pieces=pieces), statement.tokens[alias].text

    def _alias(self, first: int, stop: int) -> int | None:
        statement = self._statement
        last, before = stop - 1, stop - 2
        token = statement.tokens[last]
        if stop - first < 3 or token.kind not in {"word", "quoted"}:
            return None
        if statement.is_at(before, "AS"):
            return last
        if token.is_word("END", "NULL", "TRUE", "FALSE"):
            return None
        previous = statement.tokens[before]
        ends = previous.kind != "symbol" or previous.is_symbol(")", "]")
        return last if ends and not previous.is_word(*_NOT_BEFORE_ALIAS) else None

    def _default_name(self, first: int, stop: int, calls: Sequence[WindowCall]) -> str:
        """A measure's name; of other items the text, without what is in a window's brackets."""
        only = calls[0]
        if (only.first, only.stop) == (first, stop) and only.arguments is None:
            return only.name
        statement = self._statement
        edits: list[TextEdit] = [
            (*statement.span(each.window.opened, each.window.closed + 1), "(...)")
            for each in calls
            if each.first < each.window.opened < each.stop
        ]
        text = derive_text(statement.text, statement.span(first, stop), edits).text
        return " ".join(text.split())

    def _order_pieces(self, section: str, outputs: set[str]) -> Iterator[QueryPiece]:
        statement, found = self._statement, self._select.sections[section]
        for number, (first, stop) in enumerate(list_items(statement, found.content, found.stop)):
            yield ", " if number else ""
            end = self._end_of_order(first, stop)
            is_plain = end == first + 1 and statement.tokens[first].kind in {"word", "number"}
            if is_plain and (
                statement.tokens[first].kind == "number" or statement.is_at(first, "ALL")
            ):
                yield statement.span(first, stop)
                continue
            yield from self._over_calls(first, end, outputs)
            if end < stop:
                yield " "
                yield statement.span(end, stop)

    def _end_of_order(self, first: int, stop: int) -> int:
        """The token after the expression: ASC, DESC, NULLS FIRST or LAST."""
        end = stop
        if end - first > 2 and self._statement.is_at(end - 2, "NULLS"):
            end -= 2
        if end - first > 1 and self._statement.tokens[end - 1].is_word("ASC", "DESC"):
            end -= 1
        return end

    def _check_groups(self) -> None:
        if not self._is_grouped:
            return
        section = self._select.sections["GROUP BY"]
        for first, stop in list_items(self._statement, section.content, section.stop):
            token = self._statement.tokens[first]
            if stop - first == 1 and (token.kind == "number" or token.is_word("ALL")):
                raise self._statement.error_at(
                    "GROUP BY beside a row pattern in a window takes expressions only",
                    first,
                    hint="repeat the expression, or group in a subquery",
                )

    def _group_names(self) -> list[tuple[tuple[int, int], str]]:
        """The plain columns of GROUP BY, which the pattern can read, by their names."""
        section = self._select.sections["GROUP BY"]
        found = {}
        for first, stop in list_items(self._statement, section.content, section.stop):
            tokens = self._statement.tokens[first:stop]
            names = [each.kind in {"word", "quoted"} for each in tokens[::2]]
            if all(names) and all(each.is_symbol(".") for each in tokens[1::2]):
                found[tokens[-1].text.casefold()] = ((first, stop), tokens[-1].text)
        return list(found.values())

    # ---- expressions over calls ------------------------------------------------------------------

    def _over_calls(
        self, first: int, stop: int, outputs: set[str] | None = None
    ) -> list[QueryPiece]:
        """An expression over the matcher's answer. `outputs`: names that stay names."""
        statement = self._statement
        span = statement.span(first, stop)
        edits: list[TextEdit] = []
        for call in self._windows.calls(first, stop):
            edits.append((*statement.span(call.first, call.stop), self._column_of(call)))
        derived = derive_text(statement.text, span, edits)
        try:
            parsed = parse_expression(derived.text)
            nodes = list(self._input_nodes(parsed.root, parsed, frozenset(outputs or ())))
            for node in nodes:
                parsed.cut(node)
        except SyntaxProblem as problem:
            start = derived.source(problem.place.start)
            end = derived.source(max(problem.place.start, problem.place.end - 1)) + 1
            raise statement.error(
                f"this expression around a window cannot be read: {problem.message}",
                (start, max(end, start + 1)),
                hint="give the window function a name in a subquery, and use the name around it",
            ) from None
        for node in nodes:
            start, end = parsed.span(node)
            place = (derived.source(start), derived.source(end - 1) + 1)
            edits.append((*place, quote_name(self._hide([place]))))
        return list(_pieces(span, edits))

    def _input_nodes(
        self, node: exp.Expr, parsed: ParsedExpression, outputs: frozenset[str]
    ) -> Iterator[exp.Expr]:
        """The outermost parts that are computed in the input."""
        has_call = any(each.name.startswith(_OF_CALLS) for each in node.find_all(exp.Column))
        if isinstance(node, exp.Column):
            is_output = not node.table and node.name.casefold() in outputs
            if not has_call and not is_output:
                yield node
            return
        is_query = isinstance(node, exp.Subquery | exp.Exists | exp.Window | exp.Select) or (
            isinstance(node, exp.In) and node.args.get("query") is not None
        )
        if is_query and has_call:
            raise SyntaxProblem(
                "a window or a subquery cannot contain another window with a row pattern",
                parsed.place(node),
            )
        is_input = not has_call and any(
            isinstance(each, exp.Column | exp.Star | exp.AggFunc) for each in node.walk()
        )
        if is_query or (self._is_grouped and is_input):
            yield node
            return
        skipped = _bound_names(node)
        for child in _arguments(node):
            for found in self._input_nodes(child, parsed, outputs):
                if not (isinstance(found, exp.Column) and found.name in skipped):
                    yield found

    def _hide(self, pieces: Sequence[QueryPiece]) -> str:
        """The column of the input that has this expression."""
        text = "".join(
            each if isinstance(each, str) else self._statement.text[slice(*each)]
            for each in pieces
            if not isinstance(each, FramePiece)
        )
        return self._hidden.setdefault(text, (f"__cep_w{len(self._hidden)}", list(pieces)))[0]

    # ---- calls -----------------------------------------------------------------------------------

    def _column_of(self, call: WindowCall) -> str:
        """The column that has the value of the call."""
        if call.arguments is not None and call.name.lower() in _RANKING:
            return quote_name(self._hide(self._ranking_pieces(call)))
        plan = self._plan(call.window)
        if call.arguments is None:
            text, is_fold = plan.call.options["measures"][call.name], False
        else:
            text, is_fold = self._fold(call), True
        for name, known in plan.measures.items():
            if known == text and (name in plan.folds) == is_fold:
                return quote_name(name)
        name = f"__cep_m{sum(len(each.measures) for each in self._plans.values())}"
        plan.measures[name] = text
        if is_fold:
            plan.folds[name] = self._statement.span(call.first, call.stop)
        return quote_name(name)

    def _ranking_pieces(self, call: WindowCall) -> list[QueryPiece]:
        statement, window = self._statement, call.window
        pieces: list[QueryPiece] = [statement.span(call.first, call.over), " OVER ("]
        for word, items in (("PARTITION BY ", window.partition), (" ORDER BY ", window.order)):
            for number, item in enumerate(items):
                pieces += [", " if number else word, statement.span(*item)]
        return [*pieces, ")"]

    def _fold(self, call: WindowCall) -> str:
        """The measure over the rows of the match that the function stands for."""
        statement, name = self._statement, call.name.lower()
        assert call.arguments is not None
        opened, closed = call.arguments
        first = opened + 1
        distinct = statement.is_at(first, "DISTINCT")
        items = list(list_items(statement, first + distinct, closed))
        ignores = call.ignores_nulls
        is_any_value = name == "any_value" and len(items) == 1 and not ignores
        is_aggregate = name in AGGREGATES and name not in NAVIGATIONS
        if call.filter is not None and not (is_any_value or is_aggregate):
            raise statement.error_at(
                "FILTER is for aggregates",
                call.filter[0],
                hint=f"write {call.name}(CASE WHEN flag THEN n END) IGNORE NULLS OVER w",
            )
        is_filtered = call.filter is not None
        if (name in NAVIGATIONS and not is_filtered) or name == "nth_value":
            return self._navigation(call, items, ignores)
        if name not in AGGREGATES:
            raise statement.error_at(
                f"{call.name}() cannot be used over a window with a row pattern",
                call.first,
                hint="use an aggregate, first_value, last_value, nth_value or a measure; rank, "
                "row_number, lag and lead ignore the frame",
            )
        ordered = [at for at in statement.top(first, closed) if statement.is_at(at, "ORDER", "BY")]
        if ordered:
            raise statement.error_at(
                "ORDER BY is not supported in a function over a row pattern",
                ordered[0],
                hint="remove it: the rows come in the order of the window",
            )
        texts = [self._argument(call, *item) for item in items]
        text = f"{call.name}({'DISTINCT ' if distinct else ''}{', '.join(texts)})"
        if call.filter is None:
            return text
        # The condition is about one row, so it is a column of the input.
        kept = quote_name(self._hide([statement.span(*call.filter)]))
        return f"{text} FILTER (WHERE {kept})"

    def _navigation(self, call: WindowCall, items: Sequence[tuple[int, int]], ignores: bool) -> str:
        statement, name = self._statement, call.name.lower()
        further = items[1:]
        offset = 0
        if name == "nth_value" and further:
            token = statement.tokens[further[0][0]]
            is_number = further[0][1] - further[0][0] == 1 and re.fullmatch("[0-9]+", token.text)
            if is_number and len(token.text) > MAX_DIGITS:
                raise statement.error_at("this number has too many digits", further[0][0])
            if not is_number or int(token.text) < 1:
                raise statement.error_at(
                    "the second argument of nth_value is a number from 1", further[0][0]
                )
            offset, further = int(token.text) - 1, further[1:]
        elif name == "nth_value":
            raise statement.error_at("nth_value takes a value and a number", call.first)
        if further and statement.tokens[further[0][0]].is_word("TRUE", "FALSE"):
            ignores = ignores or statement.is_at(further[0][0], "TRUE")
            further = further[1:]
        if not items or further:
            at = further[0][0] if further else call.first
            raise statement.error_at(f"{call.name}() takes one value", at)
        value = self._argument(call, *items[0])
        is_last = NAVIGATIONS.get(name) == "last"
        if ignores:
            values = f"collect_list({value})"
            return f"get({values}, {f'size({values}) - 1' if is_last else offset})"
        if is_last:
            return f"LAST({value})"
        return f"FIRST({value}, {offset})" if offset else f"FIRST({value})"

    def _argument(self, call: WindowCall, first: int, stop: int) -> str:
        statement = self._statement
        token = statement.tokens[first]
        if stop - first == 1:
            if token.kind in {"number", "string"} or token.is_symbol("*"):
                return statement.cut(first, stop)
            if self._is_plain(first, stop) and not self._is_variable(call.window, token.text):
                return quote_name(token.text)
        return quote_name(self._hide([statement.span(first, stop)]))

    def _is_plain(self, first: int, stop: int) -> bool:
        """Whether it is the name of a column of the input, which SELECT * has."""
        token = self._statement.tokens[first]
        is_name = token.kind == "quoted" or (
            token.kind == "word"
            and not token.is_word(
                "NULL", "TRUE", "FALSE", "CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_USER"
            )
        )
        return stop - first == 1 and is_name and not self._is_grouped

    def _is_variable(self, window: PatternWindow, name: str) -> bool:
        """Whether a variable or a subset of the pattern is spelled like that."""
        start, end = pattern_span(self._statement, window.opened)
        known = {
            each.text.casefold()
            for each in self._statement.tokens[window.opened : window.closed]
            if start <= each.start < end
        }
        known |= {each.name.text.casefold() for each in window.clause.subsets}
        return name.casefold() in known

    def _plan(self, window: PatternWindow) -> _WindowPlan:
        if window.opened not in self._plans:
            markers = window.markers(self._markers)
            call = prepare_call(window.statement, window.clause, self._args, markers)
            if call.hidden:
                raise window.statement.error(
                    "a window with a row pattern cannot have subqueries",
                    call.hidden[0].subquery.whole,
                    hint="compute the value in FROM: FROM (SELECT *, (SELECT avg(price) FROM "
                    "ticks) AS level FROM ticks)",
                )
            following: int | str | None = None
            if isinstance(window.following, tuple):
                span = self._statement.span(*window.following)
                following = self._hide(["CAST(", span, " AS BIGINT)"])
            else:
                following = window.following
            self._plans[window.opened] = _WindowPlan(
                window,
                call,
                [self._key(*item) for item in window.partition],
                [self._order(*item) for item in window.order],
                following,
            )
        return self._plans[window.opened]

    def _key(self, first: int, stop: int) -> str:
        if self._is_plain(first, stop):
            return self._statement.tokens[first].text
        return self._hide([self._statement.span(first, stop)])

    def _order(self, first: int, stop: int) -> str:
        end = self._end_of_order(first, stop)
        behind = f" {self._statement.cut(end, stop)}" if end < stop else ""
        return quote_name(self._key(first, end)) + behind

    # ---- the queries -----------------------------------------------------------------------------

    def answer(self, run: Callable[..., Any], match_window: Callable[..., Any]) -> Any:
        """The answer of the SELECT. `run`: runs a query of pieces."""
        try:
            rows = run(self._input_pieces(), is_input=True)
        except Exception as problem:
            self._check_alias(str(problem))
            raise
        if getattr(rows, "isStreaming", False):
            raise self._statement.error(
                "a row pattern in a window cannot be answered on a stream: each row waits for a "
                "match that later rows may complete",
                self._statement.span(self._opened[0] - 1, self._opened[0] + 1),
                hint="use MATCH_RECOGNIZE in FROM, whose matches are certain by the watermark",
            )
        rows, columns, items = self._named(rows)
        plans = list(self._plans.values())
        shown = [name for item in items for name, _ in item]
        for number, plan in enumerate(plans):
            later = {
                self._statement.tokens[at].text.casefold()
                for each in plans[number + 1 :]
                for at in self._tokens_of(each)
            }
            kept = [each for each in columns if each.casefold() in later]
            kept += self._hidden_behind(plans[number + 1 :])
            rows = self._matched(rows, plan, tuple(dict.fromkeys([*shown, *kept])), match_window)
            shown += plan.measures
        return run(self._output_pieces(rows, items), is_input=False)

    def _hidden_behind(self, plans: Sequence[_WindowPlan]) -> list[str]:
        """The columns that the last query and these windows need of what was computed before."""
        texts = [
            each
            for pieces in (*(each.pieces for each in self._output), self._behind)
            for each in pieces
            if isinstance(each, str)
        ]
        for plan in plans:
            texts += [*plan.partition, *plan.order, *plan.measures.values(), str(plan.following)]
        used = {name for text in texts for name in _HIDDEN.findall(text)}
        return [name for name, _ in self._hidden.values() if name in used]

    def _check_alias(self, problem: str) -> None:
        """Explains an unknown column that is the alias of an item over windows."""
        found = _UNKNOWN.search(problem)
        name = "" if found is None else found[1].casefold()
        if name not in self._aliases:
            return
        tokens = self._statement.tokens
        at = next(
            (
                at
                for first, stop in self._inner
                for at in range(first, stop)
                if tokens[at].text.casefold() == name
            ),
            self._select.first,
        )
        raise self._statement.error_at(
            f"{tokens[at].text} is the name of an item with a row pattern, which the others cannot "
            "use",
            at,
            hint="put the SELECT into a subquery, and use the name around it",
        )

    def _tokens_of(self, plan: _WindowPlan) -> Iterator[int]:
        """The tokens that may name columns of the input for a window."""
        yield from range(plan.window.opened, plan.window.closed)
        for item in (*plan.window.partition, *plan.window.order):
            yield from range(*item)
        for start, end in plan.folds.values():
            tokens = self._statement.tokens
            yield from (at for at, each in enumerate(tokens) if start <= each.start < end)

    def _input_pieces(self) -> list[QueryPiece]:
        statement, sections = self._statement, self._select.sections
        pieces: list[QueryPiece] = ["SELECT ", self._hint()]
        if self._is_grouped:
            for span, name in self._group_names():
                pieces += [statement.span(*span), f" AS {quote_name(name)}, "]
        else:
            pieces.append("*, ")
        for number, item in enumerate(self._inner):
            pieces += [f"0 AS __cep_i{number}, ", statement.span(*item), ", "]
        pieces.append(f"0 AS __cep_i{len(self._inner)}")
        for name, hidden in self._hidden.values():
            pieces += [", ", *hidden, f" AS {name}"]
        for name in ("FROM", "WHERE", "GROUP BY", "HAVING"):
            if name in sections:
                pieces += [" ", statement.span(sections[name].first, sections[name].stop)]
        for number, window in enumerate(self._windows.ordinary()):
            pieces += [", " if number else " WINDOW ", statement.span(*window)]
        return pieces

    def _hint(self) -> str:
        """/*+ BROADCAST(t) */ of the SELECT."""
        tokens, first = self._statement.tokens, self._select.first
        between = self._statement.text[tokens[first].end : tokens[first + 1].start].strip()
        return f"{between} " if between.startswith("/*+") else ""

    def _named(self, rows: Any) -> tuple[Any, list[str], list[list[tuple[str, str]]]]:
        """The rows with a name for each column; the names of the input's columns, and of each item
        its columns with the names that the answer shows."""
        given = list(rows.columns)
        count = len(self._hidden)
        marks = [given.index(f"__cep_i{number}") for number in range(len(self._inner) + 1)]
        folded = [name.casefold() for name in given[: marks[0]]]
        names = [
            name if folded.count(name.casefold()) == 1 else f"__cep_d{at}"
            for at, name in enumerate(given[: marks[0]])
        ]
        self._ambiguous = {name for name in folded if folded.count(name) > 1}
        columns = [name for name in names if not name.startswith("__cep_d")]
        items: list[list[tuple[str, str]]] = []
        for begin, end in pairwise(marks):
            names.append(given[begin])
            item = [(f"__cep_s{at}", given[at]) for at in range(begin + 1, end)]
            names += [name for name, _ in item]
            items.append(item)
        names += given[marks[-1] : len(given) - count] + [name for name, _ in self._hidden.values()]
        return rows.toDF(*names), columns, items

    def _matched(
        self, rows: Any, plan: _WindowPlan, shown: tuple[str, ...], match_window: Callable[..., Any]
    ) -> Any:
        """The rows with the columns of one window."""
        request = WindowRequest(shown, frozenset(plan.folds), plan.following, plan.window.seeks)
        if not plan.measures:
            return rows
        options = {
            "order_by": plan.order or None,
            "partition_by": plan.partition or None,
            "measures": plan.measures,
            "after_match": plan.call.options["after_match"],
        }
        try:
            return match_window(rows, plan.call.pattern, window=request, **options)
        except CepError as error:
            raise self._located(error, plan) from None

    def _located(self, error: CepError, plan: _WindowPlan) -> CepError:
        """The error with its places in what the user wrote."""
        texts = {plan.measures[name]: span for name, span in plan.folds.items()}
        given: Any = error.details.get("problems")
        if given:
            problems = [
                self._about_columns(self._at_key(self._at_call(each, texts), plan))
                for each in given
            ]
            error.details["problems"] = problems
        call = plan.call
        return locate_error(error, plan.window.statement, call.clause, call.made)

    def _at_call(
        self, problem: dict[str, Any], texts: dict[str, tuple[int, int]]
    ) -> dict[str, Any]:
        """A problem of a window function, at its call."""
        span = texts.get(problem.get("text") or "")
        return problem if span is None else self._placed(problem, span)

    def _at_key(self, problem: dict[str, Any], plan: _WindowPlan) -> dict[str, Any]:
        """A problem of PARTITION BY or ORDER BY, at its items."""
        word = str(problem["message"]).partition(":")[0]
        items = {"partition_by": plan.window.partition, "order_by": plan.window.order}.get(word)
        if not items or problem.get("text") == self._statement.whole:
            return problem
        return self._placed(problem, self._statement.span(items[0][0], items[-1][1]))

    def _about_columns(self, problem: dict[str, Any]) -> dict[str, Any]:
        """The problem without names that the user did not write."""
        found = _NO_COLUMN.search(str(problem["message"]))
        if found is not None and found[1].casefold() in self._ambiguous:
            return {
                **problem,
                "message": f"several tables of FROM have a column {found[1]}",
                "hint": f"choose one in a subquery: FROM (SELECT t.{found[1]}, ... FROM t ...)",
            }
        hint = problem.get("hint")
        return {**problem, "hint": hint and _OWN_COLUMNS.sub("", hint)}

    def _placed(self, problem: dict[str, Any], span: tuple[int, int]) -> dict[str, Any]:
        place = self._statement.place(span)
        line, column = place.line_and_column()
        return {
            **problem, "text": place.text, "line": line, "column": column,
            "length": place.end - place.start,
        }  # fmt: skip

    def _output_pieces(
        self, rows: Any, items: Sequence[Sequence[tuple[str, str]]]
    ) -> list[QueryPiece]:
        pieces: list[QueryPiece] = ["SELECT DISTINCT " if self._select.is_distinct else "SELECT "]
        for number, output in enumerate(self._output):
            pieces.append(", " if number else "")
            if output.pieces:
                pieces += output.pieces
            else:
                columns = [
                    f"{quote_name(own)} AS {quote_name(name)}" for own, name in items[output.number]
                ]
                pieces.append(", ".join(columns))
        return [*pieces, " FROM ", FramePiece(rows), *self._behind]


def _pieces(span: tuple[int, int], edits: Sequence[TextEdit]) -> Iterator[QueryPiece]:
    """The characters with edits."""
    done = span[0]
    for start, end, text in sorted(edits):
        if done < start:
            yield done, start
        yield text
        done = end
    if done < span[1]:
        yield done, span[1]


def _bound_names(node: exp.Expr) -> set[str]:
    """The parameters of a lambda function."""
    if not isinstance(node, exp.Lambda):
        return set()
    return {each.name for each in node.expressions}


def _arguments(node: exp.Expr) -> Iterator[exp.Expr]:
    """The children of a node, without the name of a unit of time."""
    children = list(node.iter_expressions())
    has_unit = isinstance(node, exp.Anonymous) and node.name.lower() in _WITH_UNIT
    if has_unit and len(node.expressions) == len(("unit", "from", "to")):
        children = [each for each in children if each is not node.expressions[0]]
    yield from children
