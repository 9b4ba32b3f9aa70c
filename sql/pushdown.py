"""What of a statement may be done in front of its MATCH_RECOGNIZE clauses.

Spark's optimizer does not see through the function that matches. What it would do for a window, a
statement tells us:

- A condition on partition columns, `WHERE m.symbol = 'A'`, may as well choose rows of the input,
  for each partition is matched by itself. It is moved through subqueries and common table
  expressions, and through a clause to the input of that clause. It also stays where it is.
- A measure that nothing behind the clause names need not be computed.

The statement is read with each clause as a subquery over its input. What cannot be read that way,
or leaves a doubt, is left as it is: then only time is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from spark_cep.expressions.comparisons import (
    SOURCE_TEXT,
    cannot_fail,
    conjuncts_of,
    is_comparison,
    is_strict,
    write_comparison,
)
from spark_cep.expressions.remote_calls import mentions_remote
from spark_cep.sql.clause import RowPatternText
from spark_cep.sql.location import find_withs
from spark_cep.sql.parameters import LiteralTypeError, is_named_parameter, sql_literal
from spark_cep.sql.statement import derive_text

if TYPE_CHECKING:
    from spark_cep.expressions.comparisons import TypeOf
    from spark_cep.sql.clause import Clause, NamedExpression
    from spark_cep.sql.location import ClauseLocation
    from spark_cep.sql.statement import Statement, TextEdit

PUSHDOWN_CONF = "spark.cep.pushdown"


@dataclass(frozen=True)
class KeyCondition:
    """A condition on partition columns, by the names that PARTITION BY has for them."""

    tree: exp.Expr

    def cannot_fail(self, type_of: TypeOf) -> bool:
        # Equal floating point numbers have several forms, of which a key shows one.
        return cannot_fail(self.tree, type_of, floats=False)

    def is_spelled(self, names: Sequence[str]) -> bool:
        """Whether all of its columns are among the names, spelled like that."""
        return all(column.name in names for column in self.tree.find_all(exp.Column))

    def sql(self) -> str:
        return write_comparison(self.tree)


@dataclass(frozen=True)
class ClausePushdown:
    """What may be done in front of one clause, and the names of measures that nobody asks for."""

    conditions: tuple[KeyCondition, ...] = ()
    unused: frozenset[str] = frozenset()


NO_PUSHDOWN = ClausePushdown()


def find_pushdown(
    statement: Statement,
    locations: Sequence[ClauseLocation],
    clauses: Sequence[Clause],
    args: Any,
    markers: tuple[int, ...],
) -> tuple[ClausePushdown, ...]:
    """For each clause what may be done in front of it."""
    root = _read_statement(statement, locations, args, markers)
    if root is None:
        return (NO_PUSHDOWN,) * len(clauses)
    finder = _ConditionFinder(root, clauses)
    for select in root.find_all(exp.Select):
        finder.move_conditions(select)
    unused = [
        _unused_measures(statement, location, clause, finder.marker(number))
        for number, (location, clause) in enumerate(zip(locations, clauses, strict=True))
    ]
    return tuple(
        ClausePushdown(tuple(finder.found[number]), names) for number, names in enumerate(unused)
    )


# ---- the statement as a tree ---------------------------------------------------------------------

_MARKER = "__cep_clause_"
_STRING = "__cep_string_"


def _read_statement(
    statement: Statement, locations: Sequence[ClauseLocation], args: Any, markers: tuple[int, ...]
) -> exp.Expr | None:
    """The query of a statement; None if it cannot be read. Each clause is the subquery (SELECT
    __cep_clause_0 FROM input), a parameter its value; strings keep the text that they have."""
    start = _query_start(statement)
    if start is None or any(statement.symbol(at, "|>") for at in range(len(statement.tokens))):
        return None
    inside = {at for each in locations for at in range(each.opened, each.closed)}
    if any(each.word in inside for each in locations):
        return None
    strings: list[str] = []
    edits = list(_clause_edits(statement, locations))
    for index, token in enumerate(statement.tokens):
        if index in inside or index < start:
            continue
        begin, end = token.start, token.end
        if token.kind == "string" and not statement.is_at(index - 1, "INTERVAL"):
            text = statement.text[begin:end]
        elif token.is_symbol("?", ":"):
            found = _parameter_text(statement, index, args, markers)
            if found is None:
                continue
            text, end = found
        else:
            continue
        if text[0] in _QUOTES:
            edits.append((begin, end, f"'{_STRING}{len(strings)}'"))
            strings.append(text)
        elif token.kind != "string":
            edits.append((begin, end, text))
    whole = statement.span(start, len(statement.tokens))
    return _parse(derive_text(statement.text, whole, edits).text, strings)


_QUOTES = ("'", '"')


def _query_start(statement: Statement) -> int | None:
    """The first token of the query in EXPLAIN, INSERT, CREATE VIEW and the like."""
    withs = {each.first for each in find_withs(statement)}
    return next(
        (
            at
            for at in statement.top(0, len(statement.tokens))
            if statement.is_at(at, "SELECT")
            or at in withs
            or (at == 0 and statement.symbol(at, "("))
        ),
        None,
    )


def _clause_edits(statement: Statement, locations: Sequence[ClauseLocation]) -> Iterator[TextEdit]:
    begins: dict[int, str] = {}
    # A clause after another has the same beginning and encloses it.
    for number, each in enumerate(locations):
        begin = each.span[0]
        begins[begin] = f"(SELECT {_MARKER}{number} FROM {begins.get(begin, '')}"
        yield statement.tokens[each.word].start, each.span[1], ")"
    yield from ((begin, begin, text) for begin, text in begins.items())


def _parameter_text(
    statement: Statement, index: int, args: Any, markers: tuple[int, ...]
) -> tuple[str, int] | None:
    """The literal for the parameter at a token, and where the parameter ends."""
    token = statement.tokens[index]
    if token.is_symbol("?"):
        number = markers.index(token.start) if token.start in markers else len(markers)
        if not isinstance(args, list) or number >= len(args):
            return None
        value, end = args[number], token.end
    elif not is_named_parameter(statement, index):
        return None
    else:
        name = statement.tokens[index + 1]
        if not isinstance(args, Mapping) or name.text not in args:
            return None
        value, end = args[name.text], name.end
    try:
        return sql_literal(value), end
    except LiteralTypeError:
        return None


def _parse(text: str, strings: Sequence[str]) -> exp.Expr | None:
    try:
        found = sqlglot.parse(text, read="spark")
    except (SqlglotError, RecursionError):
        return None
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        return None
    root = found[0]
    for node in list(root.find_all(exp.Literal)):
        value = str(node.this)
        if node.is_string and value.startswith(_STRING):
            source = strings[int(value.removeprefix(_STRING))]
            node.set("this", source[1:-1])
            node.meta[SOURCE_TEXT] = source
    return root


# ---- conditions ----------------------------------------------------------------------------------

# What a query may have for a condition on its columns to be a condition on its input: a row of it
# depends on one row of each of its tables, and whether it is there on nothing else.
_ROW_BY_ROW = {
    "expressions", "from_", "joins", "where", "laterals", "with_", "distinct", "hint", "order",
}  # fmt: skip
_NULLS_LEFT, _NULLS_RIGHT = {"RIGHT", "FULL"}, {"LEFT", "FULL"}


class _ConditionFinder:
    """Collects the conditions on partition columns of each clause."""

    def __init__(self, root: exp.Expr, clauses: Sequence[Clause]) -> None:
        self.root = root
        self.clauses = clauses
        self.found: list[list[KeyCondition]] = [[] for _ in clauses]
        self._selects = {
            select.expressions[0].name: select
            for select in root.find_all(exp.Select)
            if _clause_number(select) is not None
        }

    def marker(self, number: int) -> exp.Select | None:
        """The subquery that stands for a clause."""
        return self._selects.get(f"{_MARKER}{number}")

    def move_conditions(self, select: exp.Select) -> None:
        """Moves what WHERE and ON of one query say of its tables."""
        where = select.args.get("where")
        if where is not None:
            for condition in conjuncts_of(where.this):
                self._move(select, condition, None)
        for number, join in enumerate(_joins(select)):
            on = join.args.get("on")
            for condition in () if on is None else conjuncts_of(on):
                self._move(select, condition, number)

    def _move(self, select: exp.Select, condition: exp.Expr, join: int | None) -> None:
        """Moves a condition of WHERE, or of ON of a join, to the table that it is on."""
        if not is_comparison(condition) or not _is_plain_from(select):
            return
        tables = _tables(select)
        places = {self._place(tables, each) for each in condition.find_all(exp.Column)}
        place = next(iter(places)) if len(places) == 1 else None
        if place is None or not _may_move(_joins(select), place, join, is_strict(condition)):
            return
        self._move_into(select, tables[place], condition)

    def _place(self, tables: Sequence[exp.Expr], column: exp.Column) -> int | None:
        """Which of the tables has the column, if that is certain."""
        name = column.table.casefold()
        if name:
            found = [
                at for at, table in enumerate(tables) if table.alias_or_name.casefold() == name
            ]
        else:
            # A name that two tables have is an error, so it is that of the one known to have it.
            found = [at for at, table in enumerate(tables) if self._has_column(table, column)]
        return found[0] if len(found) == 1 else None

    def _has_column(self, table: exp.Expr, column: exp.Column) -> bool:
        query = self._query(table)
        return query is not None and self._origin(query, table, column.name) is not None

    def _move_into(self, select: exp.Select, table: exp.Expr, condition: exp.Expr) -> None:
        """Moves a condition on one table of a query into the query that the table is."""
        query = self._query(table)
        if query is None:
            return
        moved = condition.copy()
        for column in list(moved.find_all(exp.Column)):
            origin = self._origin(query, table, column.name)
            if origin is None:
                return
            column.replace(origin)
        number = _clause_number(query)
        if number is not None:
            self.found[number].append(KeyCondition(moved))
        self._move(query, moved, None)

    def _query(self, table: exp.Expr) -> exp.Select | None:
        """The query that a table of FROM is, if conditions may be moved into it."""
        if any(table.args.get(name) for name in ("sample", "pivots", "joins", "laterals")):
            return None
        query: Any = None
        if isinstance(table, exp.Subquery):
            query = table.this
        elif isinstance(table, exp.Table) and not table.db:
            query = self._common_table(table)
        if not isinstance(query, exp.Select):
            return None
        has_more = {name for name, value in query.args.items() if value} - _ROW_BY_ROW
        is_whole = any(each.find(exp.Window, exp.AggFunc) for each in query.expressions)
        return None if has_more or is_whole else query

    def _common_table(self, table: exp.Table) -> exp.Expr | None:
        """The query of a common table expression that is used once."""
        name = table.name.casefold()
        defined = [each for each in self.root.find_all(exp.CTE) if each.alias.casefold() == name]
        used = [each for each in self.root.find_all(exp.Table) if each.name.casefold() == name]
        is_recursive = any(each.recursive for each in self.root.find_all(exp.With))
        if len(defined) != 1 or len(used) != 1 or is_recursive:
            return None
        found = defined[0].this
        return found if isinstance(found, exp.Expr) else None

    def _origin(self, query: exp.Select, table: exp.Expr, name: str) -> exp.Column | None:
        """The column inside the query that a column of its answer is."""
        number = _clause_number(query)
        if number is not None:
            return self._partition_column(number, table, name)
        names = _column_aliases(self._definition(table))
        outputs = query.expressions
        if names:
            if any(each.is_star for each in outputs) or len(names) != len(outputs):
                return None
            chosen = [each for each, alias in zip(outputs, names, strict=True) if alias == name]
        else:
            folded = name.casefold()
            chosen = [each for each in outputs if each.output_name.casefold() == folded]
        if len(chosen) == 1:
            found = chosen[0].unalias()
            return found.copy() if isinstance(found, exp.Column) else None
        stars = [each for each in outputs if each.is_star]
        if chosen or len(stars) != 1:
            return None
        (star,) = stars
        inner = star.this if isinstance(star, exp.Column) else star
        if any(inner.args.get(each) for each in ("except_", "except", "replace", "rename")):
            return None
        origin = exp.column(name, table=star.table if isinstance(star, exp.Column) else None)
        return origin if self._place(_tables(query), origin) is not None else None

    def _definition(self, table: exp.Expr) -> exp.Expr:
        if isinstance(table, exp.Table):
            name = table.name.casefold()
            return next(e for e in self.root.find_all(exp.CTE) if e.alias.casefold() == name)
        return table

    def _partition_column(self, number: int, table: exp.Expr, name: str) -> exp.Column | None:
        """The input's column that a column of a clause's answer is."""
        clause = self.clauses[number]
        columns = [each.text for each in clause.partition_by]
        is_row_pattern = isinstance(clause.pattern, RowPatternText)
        aliases = _column_aliases(table)
        if aliases:
            # The answer begins with the partition columns.
            starts = is_row_pattern or not (clause.rows or "one").startswith("all")
            at = [place for place, alias in enumerate(aliases) if alias == name]
            if not starts or len(at) != 1 or at[0] >= len(columns):
                return None
            return exp.column(columns[at[0]])
        hidden = {each.name.text.casefold() for each in clause.measures}
        if not is_row_pattern:
            hidden |= {"match_id", "variable"}
        found = [each for each in columns if each.casefold() == name.casefold()]
        if len(found) != 1 or name.casefold() in hidden:
            return None
        return exp.column(name)


def _clause_number(select: exp.Expr) -> int | None:
    """The number of the clause that a subquery stands for."""
    name = select.expressions[0].name if len(select.expressions) == 1 else ""
    return int(name.removeprefix(_MARKER)) if name.startswith(_MARKER) else None


def _joins(select: exp.Select) -> list[exp.Join]:
    return list(select.args.get("joins") or ())


def _tables(select: exp.Select) -> list[exp.Expr]:
    first = select.args.get("from_")
    if first is None:
        return []
    return [first.this, *(join.this for join in _joins(select))]


def _is_plain_from(select: exp.Select) -> bool:
    """Whether a name means a column of one table: USING and NATURAL make one column of two."""
    return bool(_tables(select)) and not any(
        join.args.get("using") or join.method or isinstance(join.this, exp.Lateral)
        for join in _joins(select)
    )


def _column_aliases(table: exp.Expr) -> list[str]:
    alias = table.args.get("alias")
    return [] if alias is None else [each.name for each in alias.args.get("columns") or ()]


def _may_move(joins: Sequence[exp.Join], place: int, on: int | None, strict: bool) -> bool:
    """Whether a condition on the table at `place` may choose rows before the joins.

    `on`: the condition is that of this join, else of WHERE. A row of the table that fails it would
    have to be missed by nobody: an outer join keeps rows whose partner is gone, with NULLs, which a
    strict condition of WHERE then drops.
    """
    before = len(joins)
    if on is not None:
        join = joins[on]
        kind, side = join.kind, join.side
        if place == on + 1:
            # Partners of the other side's rows; rows of this side must not be kept for themselves.
            return side not in _NULLS_LEFT or kind in _SEMI
        if place > on or kind == "ANTI" or (side in _NULLS_RIGHT and kind not in _SEMI):
            return False
        before = on
    own = joins[place - 1] if place else None
    if own is not None and own.kind in _SEMI:
        return False
    if strict:
        return True
    gets_nulls = own is not None and own.side in _NULLS_RIGHT
    return not gets_nulls and not any(
        join.side in _NULLS_LEFT and join.kind not in _SEMI for join in joins[place:before]
    )


_SEMI = {"SEMI", "ANTI"}


# ---- measures ------------------------------------------------------------------------------------

# Names may be made of strings, or be patterns themselves.
_DYNAMIC = ("IDENTIFIER", "NATURAL")
_REGEX = re.compile(r"[^\w\s$-]")
# Other names may be several tokens where they are not quoted.
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _unused_measures(
    statement: Statement, location: ClauseLocation, clause: Clause, marker: exp.Select | None
) -> frozenset[str]:
    """The measures whose names are nowhere else in the statement, where no star takes them."""
    table = None if marker is None else marker.parent
    select = None if table is None else table.parent_select
    if table is None or select is None or _clause_number(select) is not None:
        # Behind a clause that gives all rows, every column of its input is in the answer.
        return frozenset()
    if _column_aliases(table) or table.args.get("pivots"):
        return frozenset()
    if any(mentions_remote(str(statement.excerpt(each.part.span))) for each in clause.measures):
        return frozenset()
    outside = [
        token
        for index, token in enumerate(statement.tokens)
        if not location.opened <= index <= location.closed and token.kind in {"word", "quoted"}
    ]
    if any(token.is_word(*_DYNAMIC) for token in outside) or any(
        token.kind == "quoted" and _REGEX.search(token.text) for token in outside
    ):
        return frozenset()
    if _takes_all(select, table):
        return frozenset()
    names = {token.text.casefold() for token in outside}
    unused = set()
    # A measure may use the measures before it.
    for each in reversed(clause.measures):
        name = each.name.text
        if _PLAIN_NAME.fullmatch(name) and name.casefold() not in names:
            unused.add(name)
        else:
            names |= _bare_names(statement, each)
    return frozenset(unused)


def _bare_names(statement: Statement, measure: NamedExpression) -> set[str]:
    """The names in a measure that no variable is in front of."""
    first, stop = (statement.first_token(at) for at in measure.part.span)
    return {
        statement.tokens[at].text.casefold()
        for at in range(first, stop)
        if statement.tokens[at].kind in {"word", "quoted"} and not statement.symbol(at - 1, ".")
    }


def _takes_all(select: exp.Select, table: exp.Expr) -> bool:
    """Whether a star of the query, or of a query in it, may stand for the table's columns."""
    sources = {id(each) for each in _tables(select)}
    if id(table) not in sources:
        return True
    waiting: list[exp.Expr] = list(select.iter_expressions())
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.With) or (
            id(node) in sources and not isinstance(node, exp.Lateral)
        ):
            continue
        if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
            return True
        waiting += node.iter_expressions()
    return False
