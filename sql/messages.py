"""Errors of `match_pattern` in the words of SQL, shown at their place in the statement.

A text that was passed on unchanged already knows its place. An error in a text with parameters in
it is traced back to what the user wrote, and an error in an option points at the option's section.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError, PatternError
from spark_cep.expressions.problems import Place, Problem, Problems
from spark_cep.sql.advice import advise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.sql.clause import Clause, Span
    from spark_cep.sql.statement import DerivedText, Statement

_ABOUT_ORDER = re.compile("^a stream is ordered by its event time|has no watermark on")
_WITHOUT_ORDER = re.compile("has no order_by")
_ABOUT_WINDOW = re.compile("without WITHIN|has no WITHIN")
_CLASH = re.compile(r"the answer would have two columns called '(.*?)'")


def locate_error(
    error: CepError, statement: Statement, clause: Clause, made: Sequence[DerivedText]
) -> CepError:
    """The error with its places in what the user wrote."""
    given: Any = error.details.get("problems")
    problems: list[dict[str, Any]] = given or [{"message": error.message, "hint": error.hint}]
    found = Problems(
        [_locate_problem(each, _problem_place(each, statement, clause, made)) for each in problems]
    )
    if isinstance(error, PatternError):
        return found.error()
    only = found.found[0]
    return type(error)(only.describe(), hint=only.hint, details=error.details)


def _locate_problem(given: dict[str, Any], place: Place) -> Problem:
    hint = given.get("hint")
    return advise(
        Problem(
            reword_for_sql(given["message"]), place, None if hint is None else reword_for_sql(hint)
        )
    )


def _problem_place(
    problem: dict[str, Any], statement: Statement, clause: Clause, made: Sequence[DerivedText]
) -> Place:
    text = problem.get("text")
    if text is None:
        return statement.place(_section_span(problem["message"], statement, clause))
    start = _text_offset(text, problem["line"], problem["column"])
    end = start + (problem.get("length") or 1)
    if text == statement.whole:
        return Place(text, start, end)
    for each in made:
        if text == each.text:
            return statement.place((each.source(start), each.source(max(start, end - 1)) + 1))
    if statement.text.count(text) == 1:
        begin = statement.text.index(text)
        return statement.place((begin + start, begin + end))
    return statement.place(_section_span(problem["message"], statement, clause))


def _text_offset(text: str, line: int, column: int) -> int:
    """The character at a line and column, both counted from 1."""
    begin = 0
    for _ in range(line - 1):
        begin = text.index("\n", begin) + 1
    return begin + column - 1


def _section_span(message: str, statement: Statement, clause: Clause) -> Span:
    """The section that a message about a whole option is about."""
    clash = _CLASH.match(message)
    if clash is not None:
        for each in clause.measures:
            if each.name.text == clash[1]:
                return each.name.span
    if clause.order_by and _ABOUT_ORDER.search(message):
        return clause.order_by[0].span
    keyword = re.match(r"\w+", statement.text[clause.span[0] :])
    if keyword is not None and _WITHOUT_ORDER.search(message):
        return clause.span[0], clause.span[0] + keyword.end()
    if _ABOUT_WINDOW.search(message) and clause.within is None:
        return clause.pattern.span
    word = re.split(r"[ =(:]", message, maxsplit=1)[0].lower()
    spans: dict[str, Sequence[Span]] = {
        "within": [clause.within.span] if clause.within else [],
        "order_by": [each.span for each in clause.order_by],
        "partition_by": [each.span for each in clause.partition_by],
        "after_match": [clause.after_match.span] if clause.after_match else [],
    }
    known = spans.get(word) or _hint_spans(message, clause) or [clause.span]
    return known[0][0], known[-1][1]


def _hint_spans(message: str, clause: Clause) -> Sequence[Span]:
    is_about = any(re.search(rf"\b{name}\b", message) for name in clause.hints)
    return [clause.hint] if is_about and clause.hint else []


# ---- wording -------------------------------------------------------------------------------------

_EVENT_ROWS = "ONE ROW PER MATCH and ALL ROWS PER MATCH"
# Messages that speak only of variables and columns mean the same in both languages; these name an
# option, or show what to write. Tried in this order: a phrase comes before those that it contains.
_PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r'order_by="ts", or several columns: order_by=\["ts", "id DESC"\]',
     "write ORDER BY ts, or ORDER BY ts, id DESC"),
    (r'order_by=\["ts", "(.*?)"\]', r"ORDER BY ts, \1"),
    (r"\border_by\b", "ORDER BY"),
    (r"\bpartition_by\b", "PARTITION BY"),
    (r"\bafter_match is not a valid SKIP clause", "this is not a valid AFTER MATCH SKIP"),
    (r"\bafter_match names", "AFTER MATCH SKIP names"),
    (r'ask for rows="all" \((.*)\)', r"write \1"),
    (r'measures=\{"last": "LAST\(b\.price\)"\}, or ask for rows="all"',
     "MEASURES LAST(b.price) AS last, or write ALL ROWS PER MATCH"),
    (r'rows="one" and rows="all"', _EVENT_ROWS),
    (r"rows='all omit empty'", "ALL ROWS PER MATCH OMIT EMPTY MATCHES"),
    (r"rows='all with unmatched'", "ALL ROWS PER MATCH WITH UNMATCHED ROWS"),
    (r'rows="all" shows the rows of the input and takes no measures',
     "ALL ROWS PER MATCH of an event pattern takes no MEASURES"),
    (r'\.within\("10 minutes"\)', "WITHIN INTERVAL '10' MINUTES"),
    (r"\.?\bwithin\((\d[\d.]*)\)", r"WITHIN \1"),
    (r"write '(\S+) seconds'", r"write INTERVAL '\1' SECONDS"),
    (r"write days: '(\d+) days'", r"write days: INTERVAL '\1' DAYS"),
    (r'\b(plan|planner)="([\w-]+)"', r"\1('\2')"),
    (r"\bleave planner= out", "leave the hint planner(...) out"),
    (r"\bplan= gives", "plan(...) gives"),
    (r"\b(?:that )?(plan|planner|optimize|adapt|statistics)= is ", r"the hint \1(...) is "),
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
    (r"cep\.Limits\((\w+)=([\d_]+)\), or None for no limit",
     lambda found: f"/*+ {found[1]}({int(found[2])}) */"),
    (r"limits=cep\.Limits\((\w+)=([\d_]+)\)",
     lambda found: f"/*+ {found[1]}({int(found[2])}) */"),
    (r"before matching: df\.withColumn\('x', F\.expr\('(.*?)'\)\)",
     r"in a subquery: FROM (SELECT *, \1 AS x FROM t) MATCH_RECOGNIZE (...)"),
    (r"before matching: df\.withColumnRenamed\(.*?\)", "in a subquery before MATCH_RECOGNIZE"),
    (r"rename the input's: df\.withColumnRenamed\(.*?\)", "rename the input's in a subquery"),
    (r"bare columns are allowed only in event\(name, condition\), where they belong to that event",
     "bare columns are allowed only in DEFINE, where they belong to the variable"),
)  # fmt: skip
_RULES = tuple((re.compile(phrase, re.S), said) for phrase, said in _PHRASES)


def reword_for_sql(text: str) -> str:
    """A message or a hint about Python options, for a user who wrote SQL.

    >>> reword_for_sql("order_by: the input has no column tz")
    'ORDER BY: the input has no column tz'
    >>> reword_for_sql("write a number in the unit of the column: within(10)")
    'write a number in the unit of the column: WITHIN 10'
    """
    for phrase, said in _RULES:
        text = phrase.sub(said, text)
    return text
