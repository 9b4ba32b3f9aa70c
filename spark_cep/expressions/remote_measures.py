"""Measures whose calls of remote() are replaced by placeholders while they are compiled.

Each call becomes a placeholder of the same length (`__cep_a0()`), so that places in messages stay
those of the user's text, and its keys become expressions of their own. To the typer a placeholder
is a NULL of the value's type. Afterwards the name of the lookup column replaces it. So a remote
value can be used in every function of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.expressions.problems import Excerpt, Place, Problems
from spark_cep.expressions.remote_calls import (
    LookupRequest,
    RemoteCallText,
    find_remote_calls,
    lambda_argument,
    mentions_remote,
    refuse_membership,
)
from spark_cep.expressions.syntax import (
    ParsedExpression,
    SyntaxProblem,
    apply_edits,
    parse_expression,
)

if TYPE_CHECKING:
    from sqlglot import exp

    from spark_cep.expressions.schema import Typer
    from spark_cep.udfs.expressions import Constant, Type


_PLACEHOLDER = re.compile(r"__cep_a(\d+)\(\)")


@dataclass(frozen=True)
class MeasureTexts:
    """Measures without calls of remote(). `texts`: the measures, then the keys under reserved
    names. `calls`: the source and the names of the keys of each call."""

    texts: tuple[tuple[str, str], ...]
    calls: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def sought(self, sql: Mapping[str, str]) -> tuple[LookupRequest, ...]:
        """The lookups; `sql`: the compiled keys by name."""
        texts = {name: " ".join(text.split()) for name, text in self.texts}
        return tuple(
            LookupRequest(
                remote,
                tuple(sql[key] for key in keys),
                lookup_column_name(number),
                tuple(texts[key] for key in keys),
            )
            for number, (remote, keys) in enumerate(self.calls)
        )


def separate_remote_calls(
    measures: Sequence[tuple[str, str]],
    known: Mapping[str, object],
    problems: Problems,
    read: Callable[[str], ParsedExpression] = parse_expression,
) -> MeasureTexts:
    """The measures with placeholders. A text that cannot be parsed is left for the compiler.

    >>> measures = [("over", "c.x - remote('limits', c.org)")]
    >>> separate_remote_calls(measures, {"limits": 0}, Problems()).texts
    (('over', 'c.x - __cep_a0()             '), ('__cep_k0_0', 'c.org'))
    """
    texts: list[tuple[str, str]] = []
    keys: list[tuple[str, str]] = []
    calls: list[tuple[str, tuple[str, ...]]] = []
    for name, text in measures:
        edits = []
        for parsed, call in _separable_calls(text, known, problems, read):
            number = len(calls)
            names = tuple(f"__cep_k{number}_{place}" for place in range(len(call.keys)))
            spans = [_key_span(text, parsed, key) for key in call.keys]
            keys += [(n, Excerpt(text, *span)) for n, span in zip(names, spans, strict=True)]
            calls.append((call.name, names))
            edits.append(_placeholder_edit(text, call.place, f"__cep_a{number}()"))
        altered = apply_edits(text, 0, len(text), edits)
        texts.append((name, Excerpt.altered(altered, text) if edits else text))
    return MeasureTexts((*texts, *keys), tuple(calls))


def _separable_calls(
    text: str,
    known: Mapping[str, object],
    problems: Problems,
    read: Callable[[str], ParsedExpression],
) -> Iterator[tuple[ParsedExpression, RemoteCallText]]:
    if not mentions_remote(text):
        return
    try:
        parsed = read(text)
    except SyntaxProblem:
        return
    for call in find_remote_calls(parsed, known, problems):
        if refuse_membership(parsed, call.node, problems):
            continue
        argument = lambda_argument(call)
        if argument is None:
            yield parsed, call
            continue
        problems.add(
            f"the key of {call.name!r} depends on the lambda argument {argument}",
            call.place,
            hint="use a key of one row, such as remote('limits', first(b.org)), or explode the "
            "list in the result and join",
        )


def _key_span(text: str, parsed: ParsedExpression, node: exp.Expr) -> tuple[int, int]:
    """The characters of a key, with RUNNING or FINAL in front, which the parser does not see."""
    start, end = parsed.span(node)
    gap = text[len(parsed.text[:start].rstrip()) : start]
    return start - len(gap.lstrip()), end


def _placeholder_edit(text: str, place: Place, name: str) -> tuple[int, int, str]:
    """The edit that replaces a call by a name, padded with blanks to the same length."""
    gap = "".join(c if c == "\n" else " " for c in text[place.start + len(name) : place.end])
    return place.start, place.end, name + gap


def lookup_column_name(number: int) -> str:
    """The column with the value of a measure's call.

    >>> lookup_column_name(1)
    '__cep_a1'
    """
    return f"__cep_a{number}"


def over_lookup_columns(sql: str) -> str:
    """A compiled measure with lookup columns in place of the placeholders.

    >>> over_lookup_columns("`c`.`x` - __cep_a0()    ")
    '`c`.`x` - `__cep_a0`    '
    """
    return _PLACEHOLDER.sub(lambda found: f"`{lookup_column_name(int(found[1]))}`", sql)


class PlaceholderTyper:
    """A typer that treats placeholders as NULLs of the types of their values."""

    def __init__(self, typer: Typer, types: Sequence[str]) -> None:
        self._typer = typer
        self._types = tuple(types)

    def of_row(self, expressions: Sequence[object]) -> list[Type | str]:
        return self._typer.of_row([self._replace_if_text(each) for each in expressions])

    def of_match(
        self, expressions: Sequence[str], variables: Mapping[str, bool]
    ) -> list[Type | str]:
        return self._typer.of_match([self._replace(each) for each in expressions], variables)

    def constants(self, expressions: Sequence[str]) -> list[Constant | str]:
        return self._typer.constants(expressions)

    def _replace_if_text(self, expression: object) -> object:
        return self._replace(expression) if isinstance(expression, str) else expression

    def _replace(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda found: f"CAST(NULL AS {self._types[int(found[1])]}) ", text)
