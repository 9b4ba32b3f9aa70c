"""From a clause to a call of `match_pattern`.

Texts that stand in the statement as they are go on as excerpts of it, so that errors in them show
the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError
from spark_cep.pattern import All, Event, Node, Not, Optional, Pattern, Repeat, Seq, events
from spark_cep.pattern import Any as AnyOf
from spark_cep.row_patterns import row_pattern
from spark_cep.sql.clause import Clause, EventTree, Name, Part, RowText
from spark_cep.sql.durations import EventCount, duration
from spark_cep.sql.locating import located
from spark_cep.sql.parameters import bound, value_of

if TYPE_CHECKING:
    from spark_cep.sql.derived import Derived
    from spark_cep.sql.statement import Statement

Match = Callable[..., Any]


@dataclass(frozen=True)
class Recognition:
    """One call of match_pattern. `made`: its texts that are not as the user wrote them."""

    statement: Statement
    clause: Clause
    pattern: Any
    options: Mapping[str, Any]
    made: Sequence[Derived]

    def run(self, df: Any, match: Match) -> Any:
        """The matches; `match` is match_pattern."""
        try:
            return match(df, self.pattern, **self.options)
        except CepError as error:
            raise located(error, self.statement, self.clause, self.made) from None


def recognition(
    statement: Statement, clause: Clause, args: Any = None, markers: tuple[int, ...] = ()
) -> Recognition:
    """What to call match_pattern with; raises PatternError for what can be known without data."""
    call = _Call(statement, clause, args, markers)
    try:
        return Recognition(statement, clause, call.pattern(), call.options(), call.made)
    except CepError as error:
        raise located(error, statement, clause, call.made) from None


@dataclass
class _Call:
    """The arguments of a call, texts with the values of parameters in them."""

    statement: Statement
    clause: Clause
    args: Any = None
    markers: tuple[int, ...] = ()
    made: list[Derived] = field(default_factory=list)

    def pattern(self) -> Any:
        """The pattern as the rest of the library takes it."""
        pattern = self.clause.pattern
        made = self._rows(pattern) if isinstance(pattern, RowText) else self._events(pattern)
        return made if self.clause.within is None else self._within(made, self.clause.within)

    def options(self) -> dict[str, Any]:
        """The other arguments of match_pattern."""
        clause = self.clause
        measures = {each.name.text: self.text(each.part) for each in clause.measures}
        after = clause.after_match and self.statement.excerpt(clause.after_match.span)
        return {
            "order_by": [self.text(each) for each in clause.order_by] or None,
            "partition_by": [self._column(each) for each in clause.partition_by] or None,
            "measures": measures or None,
            "rows": clause.rows or "one",
            "after_match": after,
            **clause.hints,
        }

    def text(self, part: Part) -> str:
        """A part's text with its parameters filled in."""
        made = bound(self.statement, part, self.args, self.markers)
        if len(made.pieces) == 1 and made.pieces[0][2]:
            return self.statement.excerpt(part.span)
        self.made.append(made)
        return made.text

    def _column(self, name: Name) -> str:
        start, end = name.span
        inner = (start + 1, end - 1) if end - start == len(name.text) + len("``") else name.span
        found = self.statement.excerpt(inner)
        return found if found == name.text else name.text

    def _rows(self, pattern: RowText) -> Any:
        excerpt = self.statement.excerpt
        return row_pattern(
            excerpt(pattern.span),
            define=[(excerpt(each.name.span), self.text(each.part)) for each in self.clause.define],
            subset=[
                (excerpt(each.name.span), [excerpt(member.span) for member in each.members])
                for each in self.clause.subsets
            ],
        )

    def _events(self, tree: EventTree) -> Pattern:
        conditions = {
            each.name.text.casefold(): self.text(each.part) for each in self.clause.define
        }
        self._check_events(tree)
        made = Pattern(_with_conditions(tree.root.root, conditions))
        if tree.strategy is not None:
            made = made.strategy(tree.strategy)
        return made if tree.consumption is None else made.consumption(tree.consumption)

    def _check_events(self, tree: EventTree) -> None:
        clause = self.clause
        if clause.subsets:
            raise self.statement.error(
                "SUBSET belongs to row patterns",
                clause.subsets[0].name.span,
                hint="name the variables one by one",
            )
        if clause.after_match is not None:
            raise self.statement.error(
                "AFTER MATCH SKIP belongs to row patterns",
                clause.after_match.span,
                hint="write CONSUME behind the pattern if an event may be in one match only",
            )
        known = {each.name.casefold() for each, _ in events(tree.root.root)}
        for each in clause.define:
            if each.name.text.casefold() not in known:
                raise self.statement.error(
                    f"DEFINE names {each.name.text}, which the pattern does not have",
                    each.name.span,
                    hint="add it to the pattern, or drop its definition",
                )

    def _within(self, pattern: Any, part: Part) -> Any:
        value = value_of(self.statement, part, self.args, self.markers)
        if value is None:
            value = duration(self.text(part))
        if isinstance(value, EventCount):
            if isinstance(pattern, Pattern):
                return pattern.within(events=value.events)
            raise self.statement.error(
                "WITHIN n EVENTS belongs to event patterns",
                part.span,
                hint="bound the rows of a row pattern with quantifiers: b{,10}",
            )
        return pattern.within(value)


def _with_conditions(node: Node, conditions: Mapping[str, str]) -> Node:
    """The tree with the conditions of DEFINE in its events."""
    if isinstance(node, Event):
        return replace(node, condition=conditions.get(node.name.casefold()))
    if isinstance(node, Not):
        condition = conditions.get(node.event.name.casefold())
        return Not(replace(node.event, condition=condition))
    if isinstance(node, Repeat | Optional):
        return replace(node, part=_with_conditions(node.part, conditions))
    assert isinstance(node, Seq | All | AnyOf)
    return replace(node, parts=tuple(_with_conditions(part, conditions) for part in node.parts))
