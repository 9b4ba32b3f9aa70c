"""Hints behind a clause: MATCH_RECOGNIZE (...) /*+ plan('zstream'), shed(keep => 0.3) */.

Spark ignores hints that it does not know. These are ours alone, so a misspelled one is an error:
a plan that was asked for and silently not used would be worse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError
from spark_cep.shed import Shed
from spark_cep.sql.statement import SqlToken, Statement, UnterminatedTextError
from spark_cep.udfs.program import Limits

if TYPE_CHECKING:
    from spark_cep.errors import PatternError


# --------------------------------------------------------------------------------------------------
# What the library says of Python's options, in the words of SQL.
#
# Most messages speak of variables and columns and mean the same in both languages. Those that name
# an option, or show what to write, are told here as a statement has it. Texts that nobody lists
# stay as they are.
# --------------------------------------------------------------------------------------------------


_EVENT_ROWS = "ONE ROW PER MATCH and ALL ROWS PER MATCH"
# In the order in which they are tried: longer phrases stand before what they contain.
_PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r'order_by="ts", or several columns: order_by=\["ts", "id DESC"\]',
     "write ORDER BY ts, or ORDER BY ts, id DESC"),
    (r'order_by=\["ts", "(.*?)"\]', r"ORDER BY ts, \1"),
    (r"\border_by\b", "ORDER BY"),
    (r"\bpartition_by\b", "PARTITION BY"),
    (r"\bafter_match cannot be read", "this AFTER MATCH SKIP cannot be read"),
    (r"\bafter_match names", "AFTER MATCH SKIP names"),
    (r'ask for rows="all" \((.*)\)', r"write \1"),
    (r'measures=\{"last": "LAST\(b\.price\)"\}, or ask for rows="all"',
     "MEASURES LAST(b.price) AS last, or write ALL ROWS PER MATCH"),
    (r'rows="one" and rows="all"', _EVENT_ROWS),
    (r"rows='all omit empty'", "ALL ROWS PER MATCH OMIT EMPTY MATCHES"),
    (r"rows='all with unmatched'", "ALL ROWS PER MATCH WITH UNMATCHED ROWS"),
    (r'rows="all" shows the input\'s rows, and has no place for measures',
     "ALL ROWS PER MATCH shows the input's rows, and has no place for MEASURES"),
    (r'\.within\("10 minutes"\)', "WITHIN INTERVAL '10' MINUTES"),
    (r"\.?\bwithin\((\d[\d.]*)\)", r"WITHIN \1"),
    (r"write '(\S+) seconds'", r"write INTERVAL '\1' SECONDS"),
    (r"write days: '(\d+) days'", r"write days: INTERVAL '\1' DAYS"),
    (r'\bplan="([\w-]+)"', r"plan('\1')"),
    (r"\b(?:that )?(plan|adapt|statistics)= is ", r"the hint \1(...) is "),
    (r", or an object: cep\.plans\..*", ""),
    (r'shed=cep\.Shed\(keep=0\.3\), cep\.Shed\(latency="(.*?)"\) or .*',
     r"shed(keep => 0.3), shed(latency => '\1') or shed(rows_per_second => 100000)"),
    (r'cep\.Shed\((\w+)="(.*?)"\)', r"shed(\1 => '\2')"),
    (r"cep\.Shed\((\w+)=([\d._]+)\)",
     lambda found: f"shed({found[1]} => {found[2].replace('_', '')})"),
    (r"cep\.Shed takes", "shed takes"),
    (r", or leave shed= out", ""),
    (r"\bshed= ", "the hint shed(...) "),
    (r'\.strategy\("skip till any match"\)', "SKIP TILL ANY MATCH"),
    (r"cep\.Limits\((\w+)=1_000_000\), or None for no limit", r"/*+ \1(1000000) */"),
    (r"limits=cep\.Limits\((\w+)=([\d_]+)\)",
     lambda found: f"/*+ {found[1]}({int(found[2])}) */"),
    (r"before matching: df\.withColumn\('x', F\.expr\('(.*?)'\)\)",
     r"in a subquery: FROM (SELECT *, \1 AS x FROM t) MATCH_RECOGNIZE (...)"),
    (r"before matching: df\.withColumnRenamed\(.*?\)", "in a subquery in front of MATCH_RECOGNIZE"),
    (r"rename the input's: df\.withColumnRenamed\(.*?\)", "rename the input's in a subquery"),
    (r"a bare column stands only in event\(name, condition\), where it is that event's own",
     "a bare column stands in DEFINE, where it is the variable's own"),
)  # fmt: skip
_RULES = tuple((re.compile(phrase, re.S), said) for phrase, said in _PHRASES)


def reword_for_sql(text: str) -> str:
    """A message or a hint for somebody who wrote SQL.

    >>> reword_for_sql("order_by: the input has no column tz")
    'ORDER BY: the input has no column tz'
    >>> reword_for_sql("write the window in the column's own unit, as a number: within(10)")
    "write the window in the column's own unit, as a number: WITHIN 10"
    """
    for phrase, said in _RULES:
        text = phrase.sub(said, text)
    return text


_TEXTS = {"plan", "adapt"}
_LIMITS = tuple(Limits.__dataclass_fields__)
# What a stream's history is cannot be said in a statement.
_SHED = tuple(name for name in Shed.__dataclass_fields__ if name != "history")
_HINT = "hints are plan('zstream'), adapt('off'), shed(keep => 0.3) and " + ", ".join(
    f"{name}(1000000)" for name in _LIMITS
)


def read_hints(statement: Statement, span: tuple[int, int] | None) -> dict[str, Any]:
    """Options of match_pattern from the characters of a hint."""
    if span is None:
        return {}
    try:
        inner = Statement(statement.text[span[0] : span[1]])
    except UnterminatedTextError:
        raise statement.error("this hint cannot be read", span, hint=_HINT) from None
    found: dict[str, Any] = {}
    limits: dict[str, int] = {}
    for tokens in _hint_calls(inner):
        at = (span[0] + tokens[0].start, span[0] + tokens[-1].end)
        name, arguments = tokens[0].text.lower(), tokens[2:-1]
        if name == "shed":
            found[name] = _read_shed(statement, at, arguments)
        else:
            (limits if name in _LIMITS else found)[name] = _hint_value(
                statement, at, name, arguments
            )
    if limits:
        try:
            found["limits"] = Limits(**limits)
        except CepError as error:
            raise _hint_error(statement, span, error) from None
    return found


def _hint_calls(inner: Statement) -> Iterator[tuple[SqlToken, ...]]:
    """The tokens of each call, name to bracket; of what is none, the tokens that are there."""
    index, count = 0, len(inner.tokens)
    while index < count:
        if inner.tokens[index].is_symbol(","):
            index += 1
            continue
        closed = inner.partners.get(index + 1) if inner.symbol(index + 1, "(") else None
        stop = count if closed is None else closed + 1
        yield inner.tokens[index:stop]
        index = stop


def _hint_value(
    statement: Statement, at: tuple[int, int], name: str, arguments: tuple[SqlToken, ...]
) -> Any:
    """name('text') or name(number)."""
    if len(arguments) == 1:
        value = arguments[0]
        if name in _TEXTS and value.kind == "string":
            return value.text
        if name in _LIMITS and value.kind == "number" and value.text.isdigit():
            return int(value.text)
    raise _unknown_hint_error(statement, at)


def _read_shed(statement: Statement, at: tuple[int, int], arguments: tuple[SqlToken, ...]) -> Shed:
    """shed(keep => 0.3, policy => 'random'): the arguments of cep.Shed by their names."""
    found: dict[str, Any] = {}
    tokens = [token for token in arguments if not token.is_symbol(",")]
    for place in range(0, len(tokens), 3):
        name, *rest = tokens[place : place + 3]
        if len(rest) < 2 or not rest[0].is_symbol("=>") or name.text.lower() not in _SHED:
            known = ", ".join(_SHED)
            hint = f"shed(keep => 0.3, policy => 'utility'); its arguments are {known}"
            raise statement.error("this shed cannot be read", at, hint=hint)
        found[name.text.lower()] = _literal_value(rest[1])
    try:
        return Shed(**found)
    except CepError as error:
        raise _hint_error(statement, at, error) from None


def _literal_value(token: SqlToken) -> Any:
    if token.kind != "number":
        return token.text
    return int(token.text) if token.text.isdigit() else float(token.text)


def _hint_error(statement: Statement, span: tuple[int, int], error: CepError) -> PatternError:
    hint = None if error.hint is None else reword_for_sql(error.hint)
    return statement.error(reword_for_sql(error.message), span, hint=hint)


def _unknown_hint_error(statement: Statement, span: tuple[int, int]) -> PatternError:
    text = statement.text[span[0] : span[1]]
    return statement.error(f"{text} is no hint for MATCH_RECOGNIZE", span, hint=_HINT)
