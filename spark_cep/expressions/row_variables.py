"""The names of a row pattern: its variables, its subsets, and what they are numbers of.

A variable's number is its place among the variables as PATTERN first names them; a subset is a
set of such numbers. Names match without regard to case, and may stand in quotes. Subsets are made
of variables, not of subsets, as the standard has it, so there are no cycles among them.
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
    """`subsets`: names and the numbers of their variables."""

    names: tuple[str, ...]
    subsets: tuple[tuple[str, frozenset[int]], ...] = ()

    def number(self, name: str) -> int | None:
        """Of a variable of PATTERN."""
        folded = [each.casefold() for each in self.names]
        wanted = unquote(name).casefold()
        return folded.index(wanted) if wanted in folded else None

    def rows_of(self, name: str) -> frozenset[int] | None:
        """The variables that a name stands for; None if there is none of this name."""
        number = self.number(name)
        if number is not None:
            return frozenset({number})
        return next((rows for each, rows in self.subsets if _is_same_name(each, name)), None)

    def all(self) -> tuple[tuple[str, frozenset[int]], ...]:
        """Variables, then subsets."""
        own = tuple((name, frozenset({number})) for number, name in enumerate(self.names))
        return own + self.subsets

    def meant(self, name: str) -> str:
        """A hint for a name that is none of these."""
        known = [each for each, _ in self.all()]
        close = nearest_name(name, known)
        return f"did you mean {close}?" if close else f"its variables are {list_names(known)}"


def variable_names(root: PatternNode) -> tuple[str, ...]:
    """Every variable as PATTERN first spells it.

    >>> from spark_cep.expressions.row_grammar import parse_row_pattern
    >>> variable_names(parse_row_pattern("Strt up+ STRT"))
    ('Strt', 'up')
    """
    found: dict[str, str] = {}
    for node in variable_nodes(root):
        found.setdefault(node.name.casefold(), node.name)
    return tuple(found.values())


def number_pattern(root: PatternNode, variables: RowVariables) -> RowPatternNode:
    """The pattern as the engine takes it."""
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
    """The variables of the pattern, and its subsets."""
    variables = RowVariables(tuple(names))
    subsets = list(subsets)
    found: list[tuple[str, frozenset[int]]] = []
    for name, members in subsets:
        place = Place.whole(name)
        if variables.number(name) is not None:
            problems.add(
                f"the subset {name} has the name of a variable of the pattern",
                place,
                hint="give it another name; case makes no difference",
            )
        elif any(_is_same_name(name, other) for other, _ in found):
            problems.add(f"the subset {name} is there twice", place, hint="drop one of them")
        elif not members:
            problems.add(f"the subset {name} is empty", place, hint=f"name variables: {name} = (a)")
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
            f"the subset {subset} names {name}, which is a subset",
            place,
            hint=f"subsets are made of variables: name those of {name}",
        )
    else:
        problems.add(
            f"the subset {subset} names {name}, which the pattern does not have",
            place,
            hint=variables.meant(name),
        )
    return None


def check_define(names: Sequence[str], variables: RowVariables, problems: Problems) -> None:
    """Whether DEFINE names variables of the pattern, each once."""
    seen: set[str] = set()
    for name in names:
        place = Place.whole(name)
        if variables.number(name) is None:
            is_subset = variables.rows_of(name) is not None
            what = "a subset" if is_subset else "which the pattern does not have"
            problems.add(
                f"DEFINE names {name}, {what}",
                place,
                hint="define the variables that it is made of"
                if is_subset
                else f"{variables.meant(name)}; or add it to the pattern",
            )
        elif unquote(name).casefold() in seen:
            problems.add(
                f"DEFINE names {name} twice", place, hint="put the conditions together with AND"
            )
        seen.add(unquote(name).casefold())


def _is_same_name(left: str, right: str) -> bool:
    return unquote(left).casefold() == unquote(right).casefold()


# --------------------------------------------------------------------------------------------------
# AFTER MATCH SKIP: where the search for the next match begins.
#
# Whether a skip goes nowhere is known only for the match that it follows, so that is the engine's
# to say.
# --------------------------------------------------------------------------------------------------


_NAME = r'[^\W\d]\w*|"(?:[^"]|"")+"|`(?:[^`]|``)+`'
_SKIP = re.compile(
    rf"\s*(?:AFTER\s+MATCH\s+)?SKIP\s+(?:(?P<past>PAST\s+LAST\s+ROW)|TO\s+(?P<next>NEXT\s+ROW)|"
    rf"TO\s+(?:(?P<end>FIRST|LAST)\s+)?(?P<name>{_NAME}))\s*",
    re.I,
)
_HINT = "write SKIP PAST LAST ROW, SKIP TO NEXT ROW, SKIP TO FIRST b or SKIP TO LAST b"


def skip_of(text: str | None, variables: RowVariables, problems: Problems) -> Skip:
    """What the text says; past the last row if there is none.

    >>> from spark_cep.expressions.row_variables import RowVariables
    >>> skip_of("skip to first b", RowVariables(("A", "B")), Problems())
    Skip(kind='first', variables=frozenset({1}))
    """
    if text is None:
        return Skip()
    found = _SKIP.fullmatch(text)
    if found is None:
        problems.add("after_match cannot be read", Place.whole(text), hint=_HINT)
        return Skip()
    if found["past"] or found["next"]:
        return Skip("past last row" if found["past"] else "next row")
    name = unquote(found["name"])
    rows = variables.rows_of(name)
    if rows is None:
        problems.add(
            f"after_match names {name}, which the pattern does not have",
            Place(text, found.start("name"), found.end("name")),
            hint=variables.meant(name),
        )
        return Skip()
    return Skip("first" if (found["end"] or "").upper() == "FIRST" else "last", rows)
