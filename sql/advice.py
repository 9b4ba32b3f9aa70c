"""Better words for problems that users of other systems have: at the word itself, with what to
write instead in the user's own text.

    PREVIOUS(price)      did you mean PREV?
    b.ts - a.ts < 30     days as numbers (Oracle): b.ts - a.ts < INTERVAL 30 DAYS
    "b".price            a string in Spark: `b`.price
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.aggregates import AGGREGATES
from spark_cep.expressions.problems import Place, Problem, Problems, nearest_name
from spark_cep.expressions.syntax import SyntaxProblem, apply_edits
from spark_cep.rows.calls import parse_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.expressions.syntax import Edit, ParsedExpression

_UNKNOWN_FUNCTION = re.compile(r"Cannot resolve (?:routine|function) `(\w+)`")
_NAVIGATIONS = ("PREV", "NEXT", "FIRST", "LAST", "CLASSIFIER", "MATCH_NUMBER")
_SYNONYMS = {
    "PREVIOUS": "PREV", "PRIOR": "PREV", "PRECEDING": "PREV", "BEFORE": "PREV",
    "FOLLOWING": "NEXT", "SUBSEQUENT": "NEXT", "AFTER": "NEXT",
    "MATCHNUMBER": "MATCH_NUMBER", "MATCH_NO": "MATCH_NUMBER", "MATCH_ID": "MATCH_NUMBER",
    # Functions of other systems that take the same arguments under another name.
    "IFF": "IF", "BOOLOR_AGG": "BOOL_OR", "BOOLAND_AGG": "BOOL_AND", "LOGICAL_OR": "BOOL_OR",
    "LOGICAL_AND": "BOOL_AND", "COUNTIF": "COUNT_IF", "SAFE_DIVIDE": "TRY_DIVIDE",
    "SAFE_CAST": "TRY_CAST", "TO_JSON_STRING": "TO_JSON", "OBJECT_CONSTRUCT": "NAMED_STRUCT",
    "GROUP_CONCAT": "LISTAGG", "ARBITRARY": "ANY_VALUE", "APPROX_DISTINCT": "APPROX_COUNT_DISTINCT",
    "REGEXP_CONTAINS": "REGEXP_LIKE", "EDITDISTANCE": "LEVENSHTEIN", "EDIT_DISTANCE": "LEVENSHTEIN",
    "LEVENSHTEIN_DISTANCE": "LEVENSHTEIN", "ARRAY_LENGTH": "ARRAY_SIZE", "STRPOS": "INSTR",
    "STARTS_WITH": "STARTSWITH", "ENDS_WITH": "ENDSWITH", "BYTE_LENGTH": "OCTET_LENGTH",
    "GENERATE_ARRAY": "SEQUENCE", "TO_HEX": "HEX", "CURRENT_DATETIME": "LOCALTIMESTAMP",
}  # fmt: skip
_NUMBER = r"(?:TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL\([\d, ]+\))"
_TIME = r"(?:INTERVAL [A-Z ]+|TIMESTAMP(?:_NTZ)?|DATE)"
_NOT_A_NAME = re.compile(r"Can't extract a value from|does not refer to a column")
_QUOTED_NAME = re.compile(r'"([^"\\]+)"(?=\s*\.\s*[\w`"])')
_MIXED = re.compile(rf'"?{_TIME}"? and "?{_NUMBER}|"?{_NUMBER}"? and "?{_TIME}')
_COMPARISONS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.Between)
_UNITS = (("DAYS", 1), ("HOURS", 24), ("MINUTES", 24 * 60), ("SECONDS", 24 * 60 * 60))


def advise(problem: Problem) -> Problem:
    """The problem, in better words if it is one of those above."""
    if problem.place is None:
        return problem
    unknown = _UNKNOWN_FUNCTION.search(problem.message)
    if unknown is not None:
        return _advise_function(problem, problem.place, unknown[1])
    if _MIXED.search(problem.message):
        return _advise_days(problem, problem.place)
    if _NOT_A_NAME.search(problem.message):
        return _advise_quotes(problem, problem.place)
    return problem


def _advise_function(problem: Problem, place: Place, name: str) -> Problem:
    text = place.text[place.start : place.end]
    found = re.search(rf"\b{re.escape(name)}\s*\(", text, re.I)
    if found is not None:
        start = place.start + found.start()
        place = Place(place.text, start, start + len(name))
    known = (*_NAVIGATIONS, *(each.upper() for each in AGGREGATES))
    meant = _SYNONYMS.get(name.upper()) or nearest_name(name, known)
    hint = f"did you mean {meant}?" if meant else "register it in the session, or correct its name"
    return Problem(f"there is no function {name}", place, hint)


def _advise_quotes(problem: Problem, place: Place) -> Problem:
    found = _QUOTED_NAME.search(place.text, place.start, place.end)
    if found is None:
        return problem
    return Problem(
        f"{found[0]} is a string in Spark, not a name",
        Place(place.text, *found.span()),
        f"write `{found[1]}`: names are quoted with backticks",
    )


# ---- days as numbers -----------------------------------------------------------------------------


def _advise_days(problem: Problem, place: Place) -> Problem:
    text = place.text[place.start : place.end]
    try:
        parsed = parse_calls(text, Problems(), in_define=False).parsed
    except SyntaxProblem:
        return problem
    for node in parsed.root.find_all(*_COMPARISONS, exp.Add, exp.Sub):
        edits = list(_interval_edits(parsed, node))
        if edits:
            start, end = parsed.span(node)
            written = apply_edits(parsed.text, start, end, edits)
            number = parsed.text[slice(*edits[0][:2])]
            is_sum = isinstance(node, exp.Add | exp.Sub)
            return replace(
                problem,
                message=f"in Spark an interval is added to a time, not {number} as a number of days"
                if is_sum
                else "a difference of times is an interval in Spark, and cannot be compared with "
                f"{number} as a number of days",
                place=Place(place.text, place.start + start, place.start + end),
                hint=f"write {' '.join(written.split())}",
            )
    return problem


def _interval_edits(parsed: ParsedExpression, node: exp.Expr) -> Iterator[Edit]:
    """Intervals in place of the numbers of days that a difference of times is compared with, or
    that are added to a time."""
    operands = [node.args.get(name) for name in ("this", "expression", "low", "high")]
    days = [(each, _days(each)) for each in operands if each is not None]
    others = [each for each, number in days if number is None]
    if isinstance(node, exp.Add | exp.Sub):
        # date + 1 is a date; a comparison with it is not refused.
        is_time_with_days = days[0][1] is None and days[1][1] is not None
        is_difference = is_time_with_days and next(others[0].find_all(exp.Sub), None) is not None
        if not is_time_with_days or is_difference:
            return
    elif len(others) != 1 or next(others[0].find_all(exp.Sub), None) is None:
        return
    for each, number in days:
        if number is not None:
            yield (*parsed.span(each), _interval(number))


_OPERATIONS: Mapping[type[exp.Expr], Callable[[Fraction, Fraction], Fraction]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}


def _days(node: exp.Expr) -> Fraction | None:
    """The value of an expression over numbers alone."""
    if isinstance(node, exp.Paren | exp.Neg):
        inner = _days(node.this)
        return -inner if inner is not None and isinstance(node, exp.Neg) else inner
    if isinstance(node, exp.Literal):
        is_number = not node.is_string and re.fullmatch(r"\d*\.?\d+", node.this)
        return Fraction(node.this) if is_number else None
    operation = _OPERATIONS.get(type(node))
    left, right = (None, None) if operation is None else map(_days, (node.this, node.expression))
    if operation is None or left is None or right is None:
        return None
    return None if operation is operator.truediv and not right else operation(left, right)


def _interval(days: Fraction) -> str:
    """The interval in the largest unit of which it is a whole number.

    >>> _interval(Fraction(30)), _interval(Fraction(60, 86400)), _interval(Fraction(-1, 2))
    ('INTERVAL 30 DAYS', 'INTERVAL 1 MINUTE', "INTERVAL '-12' HOURS")
    """
    for unit, count in _UNITS:
        if (days * count).denominator == 1:
            number = str(days * count)
            if days < 0:
                return f"INTERVAL '{number}' {unit}"
            return f"INTERVAL {number} {unit.removesuffix('S') if number == '1' else unit}"
    return f"INTERVAL '{float(days * 86400):.6f}' SECONDS"
