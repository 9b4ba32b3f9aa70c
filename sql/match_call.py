"""A `Clause` as a call of `match_pattern`.

Texts that are in the statement as they are go on as excerpts of it, so that errors in them are
shown in the statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError
from spark_cep.expressions.row_grammar import may_be_empty
from spark_cep.pattern import (
    AllOf,
    AnyOf,
    Event,
    EventPatternNode,
    NoEvent,
    NoGroup,
    OptionalPart,
    Pattern,
    Repeat,
    Seq,
    iter_events,
)
from spark_cep.row_patterns import row_pattern
from spark_cep.sql.clause import Clause, EventPatternTree, Identifier, RowPatternText, TextPart
from spark_cep.sql.correlation import qualified_columns
from spark_cep.sql.messages import locate_error
from spark_cep.sql.parameters import bind_bounds, parameter_edits, parameter_value
from spark_cep.sql.statement import derive_text
from spark_cep.sql.subqueries import subquery_edits
from spark_cep.sql.vendors import PartNames, is_bare_classifier, token_range, vendor_edits

if TYPE_CHECKING:
    from spark_cep.sql.clause import Span
    from spark_cep.sql.statement import DerivedText, Statement
    from spark_cep.sql.subqueries import HiddenColumn

MatchFunction = Callable[..., Any]


@dataclass(frozen=True)
class MatchCall:
    """One call of match_pattern. `made` holds the texts that differ from what the user wrote,
    `hidden` the columns that the input gets for them. `source`: what the call was made of."""

    source: _CallSource
    pattern: Any
    options: Mapping[str, Any]
    made: Sequence[DerivedText]
    hidden: tuple[HiddenColumn, ...] = ()

    @property
    def clause(self) -> Clause:
        return self.source.clause

    @property
    def partition_names(self) -> list[str]:
        """The partition columns as the clause names them."""
        return self.options["partition_by"] or []

    def run(
        self,
        df: Any,
        match: MatchFunction,
        unused: frozenset[str] = frozenset(),
        partition_by: Sequence[str] | None = None,
        computed: Mapping[str, str] | None = None,
    ) -> Any:
        """The matches; `match` is match_pattern, which may leave out the `unused` measures.
        `partition_by`: the names of the partition columns in `df`. `computed`: the texts of
        columns that the clause added to it."""
        call = self._with_columns(frozenset(each.casefold() for each in df.columns))
        without: dict[str, Any] = {"unused": unused} if unused else {}
        if computed:
            without["computed"] = computed
        options = {**call.options}
        if partition_by:
            options["partition_by"] = list(partition_by)
        try:
            return match(df, call.pattern, **options, **without)
        except CepError as error:
            raise locate_error(error, self.source.statement, self.clause, call.made) from None

    def _with_columns(self, columns: frozenset[str]) -> MatchCall:
        """The call, made again where a column has the name of the input, or where none has that
        of CLASSIFIER without parentheses."""
        if self.source.columns is not None:
            return self
        if not self.clause.qualifiers & columns and not self._says_classifier():
            return self
        return _make_call(replace(self.source, columns=columns))

    def _says_classifier(self) -> bool:
        statement = self.source.statement
        return any(
            is_bare_classifier(statement, at)
            for part in self.clause.parts()
            for at in range(*token_range(statement, part.span))
        )

    def without_outer(self) -> MatchCall:
        """The call of a clause that refers to nothing around it."""
        return _make_call(replace(self.source, outer=frozenset())) if self.source.outer else self

    def with_outer_columns(self, columns: frozenset[str], outer: frozenset[str]) -> MatchCall:
        """The call for an input of these columns, in a query that has the `outer` columns."""
        return _make_call(replace(self.source, columns=columns, outer_columns=outer))


@dataclass(frozen=True)
class _CallSource:
    """`columns`: of the input, in lower case; None where they are not known. `outer`,
    `outer_columns`: names of the tables around the clause that it may refer to, and of their
    columns that need none."""

    statement: Statement
    clause: Clause
    args: Any = None
    markers: tuple[int, ...] = ()
    columns: frozenset[str] | None = None
    outer: frozenset[str] = frozenset()
    outer_columns: frozenset[str] = frozenset()


def prepare_call(
    statement: Statement,
    clause: Clause,
    args: Any = None,
    markers: tuple[int, ...] = (),
    *,
    outer: frozenset[str] = frozenset(),
) -> MatchCall:
    """The call for a clause; raises PatternError for what can be checked without data. `outer`:
    names of the tables around the clause that it may refer to."""
    return _make_call(_CallSource(statement, clause, args, markers, outer=outer))


def _make_call(source: _CallSource) -> MatchCall:
    call = _CallArguments(source)
    call.check_outer()
    try:
        pattern, options = call.pattern(), call.options()
        call.check_subqueries(pattern)
    except CepError as error:
        raise locate_error(error, source.statement, source.clause, call.made) from None
    return MatchCall(source, pattern, options, call.made, tuple(call.hidden))


@dataclass
class _CallArguments:
    """The arguments of a call. In their texts parameters are replaced by values, subqueries by
    hidden columns, and spellings of other systems by those of the standard."""

    source: _CallSource
    made: list[DerivedText] = field(default_factory=list)
    hidden: list[HiddenColumn] = field(default_factory=list)

    @property
    def statement(self) -> Statement:
        return self.source.statement

    @property
    def clause(self) -> Clause:
        return self.source.clause

    @property
    def args(self) -> Any:
        return self.source.args

    @property
    def markers(self) -> tuple[int, ...]:
        return self.source.markers

    @property
    def columns(self) -> frozenset[str] | None:
        return self.source.columns

    def check_outer(self) -> None:
        """Refuses columns of the query around the clause where it needs something else."""
        within, pattern = self.clause.within, self.clause.pattern
        parts = [
            (each, "ORDER BY", "remove it: it is the same in all rows")
            for each in self.clause.order_by
        ]
        if isinstance(pattern, RowPatternText):
            part = TextPart(pattern.span)
            parts.append((part, "PATTERN", "count in DEFINE: b AS count(b.*) <= t.n"))
        if within is not None:
            parts.append((within, "WITHIN", "compare in DEFINE: b AS ts - a.ts <= t.longest"))
        for part, word, hint in parts:
            names = self.source.outer - self.clause.qualifiers
            for each in qualified_columns(self.statement, part.span, names):
                raise self.statement.error(
                    f"{each.text.replace('`', '')} is a column of the query around the clause, "
                    f"which {word} cannot refer to",
                    part.span,
                    hint=hint,
                )

    def pattern(self) -> Any:
        """The pattern with its conditions and its window."""
        pattern = self.clause.pattern
        made = self._rows(pattern) if isinstance(pattern, RowPatternText) else self._events(pattern)
        return made if self.clause.within is None else self._within(made, self.clause.within)

    def options(self) -> dict[str, Any]:
        """The other arguments of match_pattern."""
        clause = self.clause
        measures = {
            each.name.text: self.text(each.part, self._names(measure=number))
            for number, each in enumerate(clause.measures)
        }
        after = clause.after_match and self.statement.excerpt(clause.after_match.span)
        names = self._order_names()
        return {
            "order_by": [self.text(each, names) for each in clause.order_by] or None,
            "partition_by": [self._column(each) for each in clause.partition_by] or None,
            "measures": measures or None,
            "rows": clause.rows or "one",
            "after_match": after,
            **clause.hints,
        }

    def text(self, part: TextPart, names: PartNames | None = None) -> str:
        """A part's text as match_pattern takes it. `names` None: only parameters are replaced."""
        edits = list(parameter_edits(self.statement, part, self.args, self.markers))
        if names is not None:
            found = subquery_edits(self.statement, part.span, names, self.hidden)
            self.hidden += found.columns
            replaced = [(start, end) for start, end, _ in found.edits if start < end]
            outside = [
                each
                for each in edits
                if not any(start <= each[0] and each[1] <= end for start, end in replaced)
            ]
            edits = vendor_edits(self.statement, part.span, names, [*found.edits, *outside])
        return self._made(derive_text(self.statement.text, part.span, edits), part.span)

    def _made(self, made: DerivedText, span: Span) -> str:
        if made.text == self.statement.text[slice(*span)]:
            return self.statement.excerpt(span)
        self.made.append(made)
        return made.text

    def _order_names(self) -> PartNames:
        return PartNames(self.clause.qualifiers, columns=self.columns)

    def _names(self, *, in_define: bool = False, measure: int = 0) -> PartNames:
        """What names mean in DEFINE, or in the measure of this number."""
        clause, pattern = self.clause, self.clause.pattern
        subsets = {each.name.text.casefold() for each in clause.subsets}
        if isinstance(pattern, EventPatternTree):
            named = {each.name.casefold() for each, _ in iter_events(pattern.root.root)}
            # In MEASURES a bare column would belong to no event.
            qualifiers = clause.qualifiers if in_define else frozenset()
            variables = frozenset(named | subsets)
            return self._with_outer(
                PartNames(qualifiers, variables, in_define=in_define, calls=False), measure
            )
        first, stop = token_range(self.statement, pattern.span)
        words = {
            token.text.casefold()
            for token in self.statement.tokens[first:stop]
            if token.kind in {"word", "quoted"}
        }
        time = None
        if clause.order_by:
            span = clause.order_by[0].span
            edits = vendor_edits(self.statement, span, self._order_names())
            time = _DIRECTION.sub("", derive_text(self.statement.text, span, edits).text)
        return self._with_outer(
            PartNames(
                clause.qualifiers,
                frozenset(words | subsets),
                self.columns,
                time,
                in_define=in_define,
                has_classifier=self._has_classifier(words | subsets, in_define=in_define),
            ),
            measure,
        )

    def _has_classifier(self, variables: set[str], *, in_define: bool) -> bool:
        """Whether CLASSIFIER alone is the function: no column, variable or measure has the name."""
        if self.columns is None:
            return False
        if "classifier" in self.columns | self.source.outer_columns | variables:
            return False
        measures = () if in_define else self.clause.measures
        return all(each.name.text.casefold() != "classifier" for each in measures)

    def _with_outer(self, names: PartNames, measure: int) -> PartNames:
        """The names with those of the tables around the clause, which come last. A measure may use
        the measures before it: `k AS k` is not its own."""
        columns = self.columns or frozenset()
        outer = self.source.outer - names.variables - names.qualifiers - columns
        earlier = () if names.in_define else self.clause.measures[:measure]
        bare = self.source.outer_columns - names.variables - columns
        return replace(
            names, outer=outer, outer_columns=bare - {each.name.text.casefold() for each in earlier}
        )

    def check_subqueries(self, pattern: Any) -> None:
        """Refuses subqueries in measures that may have no row to be read from."""
        spans = [each.part.span for each in self.clause.measures]
        for each in self.hidden:
            at = each.subquery.whole
            if not any(start <= at[0] and at[1] <= end for start, end in spans):
                continue
            reason = None
            what = "a column of the outer query" if each.subquery.kind == "outer" else "a subquery"
            if isinstance(pattern, Pattern):
                reason = f"{what} in MEASURES of an event pattern is not supported"
            elif may_be_empty(pattern.root):
                reason = f"{what} in MEASURES is not supported where a match may have no rows"
            if reason is not None:
                text = " ".join(self.statement.text[slice(*at)].split())
                raise self.statement.error(
                    reason, at, hint=f"write {text} behind the clause: SELECT m.*, {text} FROM ..."
                )

    def _column(self, name: Identifier) -> str:
        start, end = name.span
        inner = (start + 1, end - 1) if end - start == len(name.text) + len("``") else name.span
        found = self.statement.excerpt(inner)
        return found if found == name.text else name.text

    def _rows(self, pattern: RowPatternText) -> Any:
        excerpt, names = self.statement.excerpt, self._names(in_define=True)
        bound = bind_bounds(self.statement, TextPart(pattern.span), self.args, self.markers)
        made = row_pattern(
            self._made(bound, pattern.span),
            define=[
                (excerpt(each.name.span), self.text(each.part, names))
                for each in self.clause.define
            ],
            subset=[
                (excerpt(each.name.span), [excerpt(member.span) for member in each.members])
                for each in self.clause.subsets
            ],
        )
        return made.longest() if self._is_longest() else made

    def _is_longest(self) -> bool:
        part = self.clause.longest_value
        if part is None:
            return self.clause.longest is not None
        value = parameter_value(self.statement, part, self.args, self.markers)
        if not isinstance(value, bool):
            raise self.statement.error(
                f"use_longest_match is true or false, and this parameter is {value!r}",
                part.span,
                hint="give a boolean",
            )
        return value

    def _events(self, tree: EventPatternTree) -> Pattern:
        conditions = {
            each.name.text.casefold(): self.text(each.part, self._names(in_define=True))
            for each in self.clause.define
        }
        self._check_events(tree)
        made = Pattern(_add_conditions(tree.root.root, conditions))
        if tree.strategy is not None:
            made = made.strategy(tree.strategy)
        return made if tree.consumption is None else made.consumption(tree.consumption)

    def _check_events(self, tree: EventPatternTree) -> None:
        clause = self.clause
        if clause.subsets:
            raise self.statement.error(
                "SUBSET applies to row patterns only",
                clause.subsets[0].name.span,
                hint="name the variables one by one",
            )
        if clause.after_match is not None:
            raise self.statement.error(
                "AFTER MATCH SKIP applies to row patterns only",
                clause.after_match.span,
                hint="write CONSUME after the pattern if an event may be in only one match",
            )
        if clause.longest is not None:
            raise self.statement.error(
                "use_longest_match applies to row patterns only",
                clause.longest,
                hint="remove OPTIONS (...): an event pattern gives every match, or the first with "
                "SKIP TILL NEXT MATCH",
            )
        known = {each.name.casefold() for each, _ in iter_events(tree.root.root)}
        for each in clause.define:
            if each.name.text.casefold() not in known:
                raise self.statement.error(
                    f"DEFINE names {each.name.text}, which the pattern does not have",
                    each.name.span,
                    hint="add it to the pattern, or remove its definition",
                )

    def _within(self, pattern: Any, part: TextPart) -> Any:
        value = parameter_value(self.statement, part, self.args, self.markers)
        if value is None:
            value = read_duration(self.text(part))
        if isinstance(value, EventCount):
            if isinstance(pattern, Pattern):
                return pattern.within(events=value.events)
            raise self.statement.error(
                "WITHIN n EVENTS applies to event patterns only",
                part.span,
                hint="bound the rows of a row pattern with quantifiers: b{,10}",
            )
        return pattern.within(value)


def _add_conditions(node: EventPatternNode, conditions: Mapping[str, str]) -> EventPatternNode:
    """The tree with the conditions of DEFINE in its events."""
    if isinstance(node, Event):
        return replace(node, condition=conditions.get(node.name.casefold()))
    if isinstance(node, NoEvent):
        condition = conditions.get(node.event.name.casefold())
        return NoEvent(replace(node.event, condition=condition))
    if isinstance(node, Repeat | OptionalPart | NoGroup):
        return replace(node, part=_add_conditions(node.part, conditions))
    assert isinstance(node, Seq | AllOf | AnyOf)
    return replace(node, parts=tuple(_add_conditions(part, conditions) for part in node.parts))


# ---- WITHIN --------------------------------------------------------------------------------------

_DIRECTION = re.compile(r"(?:\s+(?:ASC|DESC))?(?:\s+NULLS\s+(?:FIRST|LAST))?\s*$", re.I)
_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")
_EVENTS = re.compile(r"(\d+)\s+EVENTS?", re.I)
_RANGE = re.compile(
    r"INTERVAL\s+(?P<sign>-?)\s*'(?P<text>[^']*)'\s+(?P<first>DAY|HOUR|MINUTE)\s+TO\s+"
    r"(?P<last>HOUR|MINUTE|SECOND)",
    re.I,
)
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_SIGNED = re.compile(r"INTERVAL\s+([+-])\s*'\s*(\d[^']*)'(.*)", re.I | re.S)


@dataclass(frozen=True)
class EventCount:
    """WITHIN 2000 EVENTS."""

    events: int


def read_duration(text: str) -> str | int | Decimal | EventCount:
    """The text after WITHIN, as `.within` takes it: an interval in any of Spark's spellings, a
    number, or a count of events.

    >>> read_duration("INTERVAL '10' MINUTES"), read_duration("10"), read_duration("20 events")
    ("INTERVAL '10' MINUTES", 10, EventCount(events=20))
    >>> read_duration("INTERVAL '1 02:30' DAY TO MINUTE")
    '1 DAY 02 HOUR 30 MINUTE'
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return int(text) if text.isdigit() else Decimal(text)
    counted = _EVENTS.fullmatch(text)
    if counted is not None:
        return EventCount(int(counted[1]))
    ranged = _RANGE.fullmatch(text)
    if ranged is not None:
        return _range_terms(ranged) or text
    signed = _SIGNED.fullmatch(text)
    if signed is not None:
        return f"INTERVAL '{signed[1]}{signed[2]}'{signed[3]}"
    return text


def _range_terms(found: re.Match[str]) -> str | None:
    """'1 02:30' DAY TO MINUTE as terms; None unless the text has a number for each unit."""
    first, last = (_UNITS.index(found[name].upper()) for name in ("first", "last"))
    numbers = re.split(r"[ :]+", found["text"].strip())
    units = _UNITS[first : last + 1]
    if len(numbers) != len(units) or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    return " ".join(
        f"{found['sign']}{number} {unit}" for number, unit in zip(numbers, units, strict=True)
    )
