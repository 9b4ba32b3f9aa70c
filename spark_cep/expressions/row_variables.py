"""The names of a row pattern: its variables and subsets, DEFINE, and AFTER MATCH SKIP.

Variables are numbered in the order of their first use in PATTERN; a subset is a set of numbers.
Names are case insensitive and may be quoted. As in the standard, subsets contain variables, not
other subsets, so they have no cycles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_cep.expressions.problems import Place, Problems, list_names, nearest_name
from spark_cep.expressions.row_grammar import PatternNode, unquote, variable_nodes
from spark_cep.udfs.row_program import RowPatternNode, Skip


@dataclass(frozen=True)
class RowVariables:
    """`subsets`: each name with the numbers of its variables."""

    names: tuple[str, ...]
    subsets: tuple[tuple[str, frozenset[int]], ...] = ()

    def number(self, name: str) -> int | None:
        """The number of a variable of PATTERN."""
        folded = [each.casefold() for each in self.names]
        wanted = unquote(name).casefold()
        return folded.index(wanted) if wanted in folded else None

    def rows_of(self, name: str) -> frozenset[int] | None:
        """The numbers of a variable or subset; None if the name is unknown."""
        number = self.number(name)
        if number is not None:
            return frozenset({number})
        return next((rows for each, rows in self.subsets if _is_same_name(each, name)), None)

    def all(self) -> tuple[tuple[str, frozenset[int]], ...]:
        """Variables, then subsets."""
        own = tuple((name, frozenset({number})) for number, name in enumerate(self.names))
        return own + self.subsets

    def hint_for(self, name: str) -> str:
        """The hint for an unknown name."""
        known = [each for each, _ in self.all()]
        nearest = nearest_name(name, known)
        return f"did you mean {nearest}?" if nearest else f"its variables are {list_names(known)}"


def variable_names(root: PatternNode) -> tuple[str, ...]:
    """The variables in the order and spelling of their first use.

    >>> from spark_cep.expressions.row_grammar import parse_row_pattern
    >>> variable_names(parse_row_pattern("Strt up+ STRT"))
    ('Strt', 'up')
    """
    found: dict[str, str] = {}
    for node in variable_nodes(root):
        found.setdefault(node.name.casefold(), node.name)
    return tuple(found.values())


def number_pattern(root: PatternNode, variables: RowVariables) -> RowPatternNode:
    """The pattern for the engine, with numbers for the variables."""
    number = variables.number(root.name) if root.kind == "variable" else None
    return RowPatternNode(
        root.kind,
        -1 if number is None else number,
        tuple(number_pattern(part, variables) for part in root.parts),
        root.low,
        root.high,
        root.greedy,
    )


def add_subsets(
    names: Sequence[str], subsets: Iterable[tuple[str, Sequence[str]]], problems: Problems
) -> RowVariables:
    """The variables of the pattern with its subsets; invalid subsets become problems."""
    variables = RowVariables(tuple(names))
    subsets = list(subsets)
    found: list[tuple[str, frozenset[int]]] = []
    for name, members in subsets:
        place = Place.whole(name)
        if variables.number(name) is not None:
            problems.add(
                f"the subset {name} has the name of a variable of the pattern",
                place,
                hint="give it another name; case does not matter",
            )
        elif any(_is_same_name(name, other) for other, _ in found):
            problems.add(f"the subset {name} is defined twice", place, hint="remove one of them")
        elif not members:
            problems.add(
                f"the subset {name} is empty", place, hint=f"write its variables: {name} = (a)"
            )
        else:
            numbers = [_member(name, each, variables, subsets, problems) for each in members]
            found.append((unquote(name), frozenset(each for each in numbers if each is not None)))
    return RowVariables(tuple(names), tuple(found))


def _member(
    subset: str,
    name: str,
    variables: RowVariables,
    subsets: Sequence[tuple[str, Sequence[str]]],
    problems: Problems,
) -> int | None:
    number = variables.number(name)
    if number is not None:
        return number
    place = Place.whole(name)
    if any(_is_same_name(name, other) for other, _ in subsets):
        problems.add(
            f"the subset {subset} contains the subset {name}",
            place,
            hint=f"list the variables of {name} instead",
        )
    else:
        problems.add(
            f"the subset {subset} contains {name}, which is not a variable of the pattern",
            place,
            hint=variables.hint_for(name),
        )
    return None


def check_define(names: Sequence[str], variables: RowVariables, problems: Problems) -> None:
    """Reports names in DEFINE that are not variables of the pattern, or are defined twice."""
    seen: set[str] = set()
    for name in names:
        place = Place.whole(name)
        if variables.number(name) is None:
            is_subset = variables.rows_of(name) is not None
            what = "a subset" if is_subset else "not a variable of the pattern"
            problems.add(
                f"DEFINE defines {name}, which is {what}",
                place,
                hint="define its variables instead"
                if is_subset
                else f"{variables.hint_for(name)}; or add it to the pattern",
            )
        elif unquote(name).casefold() in seen:
            problems.add(
                f"DEFINE defines {name} twice", place, hint="combine the conditions with AND"
            )
        seen.add(unquote(name).casefold())


def _is_same_name(left: str, right: str) -> bool:
    return unquote(left).casefold() == unquote(right).casefold()


# ---- AFTER MATCH SKIP ----------------------------------------------------------------------------


_NAME = r'[^\W\d]\w*|"(?:[^"]|"")+"|`(?:[^`]|``)+`'
_SKIP = re.compile(
    rf"\s*(?:AFTER\s+MATCH\s+)?SKIP\s+(?:(?P<past>PAST\s+LAST\s+ROW)|TO\s+(?P<next>NEXT\s+ROW)|"
    rf"TO\s+(?:(?P<end>FIRST|LAST)\s+)?(?P<name>{_NAME}))\s*",
    re.I,
)
_HINT = "write SKIP PAST LAST ROW, SKIP TO NEXT ROW, SKIP TO FIRST b or SKIP TO LAST b"
_SKIPS = ("SKIP PAST LAST ROW", "SKIP TO NEXT ROW")
# Words that are no variables: SKIP TO NEXT.
_SKIP_WORDS = {
    "NEXT": "did you mean SKIP TO NEXT ROW?",
    "LAST": "did you mean SKIP PAST LAST ROW, or SKIP TO LAST b for a variable b?",
    "PAST": "did you mean SKIP PAST LAST ROW?",
    "FIRST": "write a variable after it: SKIP TO FIRST b",
}
# SKIP TO LAST ROW.
_SKIP_ROWS = {
    "FIRST": "did you mean SKIP TO NEXT ROW?",
    "LAST": "did you mean SKIP PAST LAST ROW?",
}


def _nearest_skip_hint(text: str) -> str | None:
    words = " ".join(re.sub(r"^\s*AFTER\s+MATCH\s", "", text, flags=re.I).upper().split())
    nearest = nearest_name(words, _SKIPS)
    return f"did you mean {nearest}?" if nearest else None


def skip_of(text: str | None, variables: RowVariables, problems: Problems) -> Skip:
    """The AFTER MATCH SKIP clause; past the last row by default. Whether a skip does not advance
    depends on the match, so the engine checks that.

    >>> from spark_cep.expressions.row_variables import RowVariables
    >>> skip_of("skip to first b", RowVariables(("A", "B")), Problems())
    Skip(kind='first', variables=frozenset({1}))
    """
    if text is None:
        return Skip()
    found = _SKIP.fullmatch(text)
    if found is None:
        problems.add(
            "after_match is not a valid SKIP clause",
            Place.whole(text),
            hint=_nearest_skip_hint(text) or _HINT,
        )
        return Skip()
    if found["past"] or found["next"]:
        return Skip("past last row" if found["past"] else "next row")
    name = unquote(found["name"])
    rows = variables.rows_of(name)
    if rows is None:
        problems.add(
            f"after_match names {name}, which is not a variable of the pattern",
            Place(text, found.start("name"), found.end("name")),
            hint=_SKIP_WORDS.get(name.upper(), variables.hint_for(name))
            if name.upper() != "ROW" or not found["end"]
            else _SKIP_ROWS[found["end"].upper()],
        )
        return Skip()
    return Skip("first" if (found["end"] or "").upper() == "FIRST" else "last", rows)
