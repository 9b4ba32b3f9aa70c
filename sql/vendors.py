"""Spellings of other systems whose meaning is certain, as edits to the text of a part.

    LAG(x), LEAD(x, 2)                      PREV(x), NEXT(x, 2)
    LAG(x, 2, d)                            d where there is no such row
    MATCH_SEQUENCE_NUMBER(), MATCH_ROW_NUMBER()
                                            RUNNING count(*)
    CLASSIFIER                              CLASSIFIER(), where no column has the name
    MATCH_ROWTIME(), MATCH_ROWTIME(ts)      FINAL LAST(ts)
    q.price, db.ticks.price                 price, where q and db.ticks are names of the input

A variable or subset of the pattern comes before the input's name of the same spelling, and the
input's name before a struct column of that name, as in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.expressions.aggregates import AGGREGATES, NAVIGATIONS
from spark_cep.sql.statement import derive_text

if TYPE_CHECKING:
    from spark_cep.sql.clause import Span
    from spark_cep.sql.statement import Statement, TextEdit

_NAVIGATIONS = {"LAG": "PREV", "LEAD": "NEXT", "PREV": "PREV", "NEXT": "NEXT"}
_ROW_NUMBERS = {"MATCH_SEQUENCE_NUMBER", "MATCH_ROW_NUMBER"}


@dataclass(frozen=True)
class PartNames:
    """What names mean in a part of a clause, in lower case. `columns`: of the input, None where
    they are not known yet. `time`: the text of the first order column. `has_classifier`: the word
    CLASSIFIER alone names nothing. `outer`, `outer_columns`:
    names of tables around the clause that it may refer to, and of their columns."""

    qualifiers: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    columns: frozenset[str] | None = None
    time: str | None = None
    in_define: bool = False
    calls: bool = True
    outer: frozenset[str] = frozenset()
    outer_columns: frozenset[str] = frozenset()
    has_classifier: bool = False


def is_bare_classifier(statement: Statement, index: int) -> bool:
    """Whether the token is CLASSIFIER as Snowflake has it, without parentheses."""
    is_part = statement.symbol(index - 1, ".") or statement.symbol(index + 1, ".", "(", "->")
    return statement.is_at(index, "CLASSIFIER") and not is_part


def vendor_edits(
    statement: Statement, span: Span, names: PartNames, edits: Sequence[TextEdit] = ()
) -> list[TextEdit]:
    """The edits within a range of the statement, together with those that there are already. What
    is replaced by these stays as it is."""
    first, stop = token_range(statement, span)
    replaced = [(start, end) for start, end, _ in edits if start < end]
    found = list(edits)
    # From right to left: what is inside a call comes before the call.
    for index in reversed(range(first, stop)):
        token = statement.tokens[index]
        if token.kind not in {"word", "quoted"} or statement.symbol(index - 1, "."):
            continue
        if any(start <= token.start < end for start, end in replaced):
            continue
        is_classifier = names.has_classifier and is_bare_classifier(statement, index)
        if is_classifier and not _is_lambda_argument(statement, index, stop):
            found.append((token.start, token.end, "CLASSIFIER()"))
        elif not statement.symbol(index + 1, "("):
            found += _qualifier_edits(statement, index, stop, names)
        elif names.calls:
            found = _call_edits(statement, index, names, found)
    return found


def token_range(statement: Statement, span: Span) -> tuple[int, int]:
    """The tokens [first, stop) of a range of characters."""
    return statement.first_token(span[0]), statement.first_token(span[1])


# ---- calls ---------------------------------------------------------------------------------------


def _call_edits(
    statement: Statement, index: int, names: PartNames, found: list[TextEdit]
) -> list[TextEdit]:
    token, closed = statement.tokens[index], statement.partners.get(index + 1)
    name = token.text.upper()
    if closed is None or token.kind != "word":
        return found
    arguments = call_arguments(statement, index + 1, closed)
    whole = (token.start, statement.tokens[closed].end)
    if name in _ROW_NUMBERS:
        if arguments:
            raise statement.error(f"{name} takes no arguments", whole, hint=f"write {token.text}()")
        outer = _call_around(statement, index)
        if outer is not None:
            raise statement.error(
                f"{outer} cannot contain {name}",
                whole,
                hint="write FINAL count(*) for the number of rows of the match, RUNNING count(*) "
                "for that of the row",
            )
        says_semantics = statement.tokens[index - 1].is_word("RUNNING", "FINAL")
        return [*found, (*whole, "count(*)" if says_semantics else "RUNNING count(*)")]
    if name == "MATCH_ROWTIME":
        given = [derive_text(statement.text, each, found).text for each in arguments]
        time = _time_of_match(statement, whole, given, names)
        return [*_without(found, whole), (*whole, time)]
    # A function of a window is refused with the window.
    is_window = statement.is_at(closed + 1, "OVER")
    if name not in _NAVIGATIONS or is_window:
        return found
    if len(arguments) == 3 and name in {"PREV", "NEXT"}:
        vendor = "LAG" if name == "PREV" else "LEAD"
        listed = ", ".join(statement.text[slice(*each)] for each in arguments)
        raise statement.error(
            f"{name} takes no default", arguments[2], hint=f"write {vendor}({listed})"
        )
    if len(arguments) == 3:
        found = _with_default(statement, index, closed, arguments, found)
    if name != _NAVIGATIONS[name]:
        found = [*found, (token.start, token.end, _NAVIGATIONS[name])]
    return found


def _call_around(statement: Statement, index: int) -> str | None:
    """The aggregate or navigation around a token."""
    opened = statement.groups[index]
    while opened > 0:
        name = statement.tokens[opened - 1]
        known = name.kind == "word" and name.text.lower() in {*AGGREGATES, *NAVIGATIONS}
        if known or name.is_word(*_NAVIGATIONS):
            return name.text.upper()
        opened = statement.groups[opened]
    return None


def call_arguments(statement: Statement, opened: int, closed: int) -> list[Span]:
    """The arguments of a call, between its commas."""
    commas = [at for at in statement.top(opened + 1, closed) if statement.symbol(at, ",")]
    begins = [opened, *commas]
    return [
        statement.span(begin + 1, end)
        for begin, end in zip(begins, [*commas, closed], strict=True)
        if end > begin + 1
    ]


def _time_of_match(
    statement: Statement, whole: Span, arguments: Sequence[str], names: PartNames
) -> str:
    if names.in_define:
        raise statement.error(
            "MATCH_ROWTIME is the time of the last row of a match, which DEFINE does not know",
            whole,
            hint=f"write {names.time or 'ts'}, the time of the row",
        )
    if len(arguments) > 1 or (not arguments and names.time is None):
        raise statement.error(
            "MATCH_ROWTIME needs the column of the event time",
            whole,
            hint="write ORDER BY ts, or MATCH_ROWTIME(ts)",
        )
    return f"FINAL LAST({arguments[0] if arguments else names.time})"


def _without(edits: Sequence[TextEdit], span: Span) -> list[TextEdit]:
    """The edits that are not within a range."""
    return [each for each in edits if not (span[0] <= each[0] and each[1] <= span[1])]


def _with_default(
    statement: Statement,
    index: int,
    closed: int,
    arguments: Sequence[Span],
    found: list[TextEdit],
) -> list[TextEdit]:
    """PREV(x, n, d) as CASE WHEN PREV(x IS NULL, n) IS NULL THEN d ELSE PREV(x, n) END: the inner
    condition is NULL only where there is no such row."""
    value, offset, default = arguments
    name = _NAVIGATIONS[statement.tokens[index].text.upper()]
    words = statement.tokens[slice(*token_range(statement, value))]
    if any(each.is_word("FIRST", "LAST") for each in words):
        text = statement.text[statement.tokens[index].start : offset[1]]
        raise statement.error(
            f"{name} over FIRST or LAST takes no default",
            default,
            hint=f"write coalesce({text}), {statement.text[slice(*default)]})",
        )
    given, rows, otherwise = (derive_text(statement.text, each, found).text for each in arguments)
    start, end = statement.tokens[index].start, statement.tokens[closed].end
    inside = (offset[1], default[1])
    return [
        *_without(found, inside),
        (start, start, f"CASE WHEN {name}(({given}) IS NULL, {rows}) IS NULL "
                       f"THEN ({otherwise}) ELSE "),
        (*inside, ""),
        (end, end, " END"),
    ]  # fmt: skip


# ---- the input's name ----------------------------------------------------------------------------


def _qualifier_edits(
    statement: Statement, index: int, stop: int, names: PartNames
) -> Iterator[TextEdit]:
    """Removes `q.` of q.price."""
    tokens = statement.tokens
    name = tokens[index].text.casefold()
    if name not in names.qualifiers or name in names.variables:
        return
    if _is_lambda_argument(statement, index, stop):
        return
    last = index
    while (
        statement.symbol(last + 1, ".")
        and statement.symbol(last + 3, ".")
        and tokens[last + 2].text.casefold() in names.qualifiers
    ):
        last += 2
    column = last + 2
    if not statement.symbol(last + 1, ".") or column >= stop or statement.symbol(column + 1, "("):
        return
    wanted = tokens[column].text.casefold()
    if names.columns is not None and name in names.columns and wanted not in names.columns:
        # A field of a struct.
        return
    yield tokens[index].start, tokens[column].start, ""


def _is_lambda_argument(statement: Statement, index: int, stop: int) -> bool:
    name = statement.tokens[index].text.casefold()
    return any(
        statement.symbol(at + 1, "->") and statement.tokens[at].text.casefold() == name
        for at in range(stop)
    )
