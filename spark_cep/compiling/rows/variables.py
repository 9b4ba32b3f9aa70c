"""The names of a row pattern: its variables, its subsets, and what they are numbers of.

A variable's number is its place among the variables as PATTERN first names them; a subset is a
set of such numbers. Names match without regard to case, and may stand in quotes. Subsets are made
of variables, not of subsets, as the standard has it, so there are no cycles among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_cep.compiling.problems import Place, Problems, listed, nearest
from spark_cep.compiling.rows.grammar import PatternNode, variables_of
from spark_cep.compiling.rows.tokens import unquoted
from spark_cep.udfs.rows.program import Node


@dataclass(frozen=True)
class RowVariables:
    """`subsets`: names and the numbers of their variables."""

    names: tuple[str, ...]
    subsets: tuple[tuple[str, frozenset[int]], ...] = ()

    def number(self, name: str) -> int | None:
        """Of a variable of PATTERN."""
        folded = [each.casefold() for each in self.names]
        wanted = unquoted(name).casefold()
        return folded.index(wanted) if wanted in folded else None

    def rows_of(self, name: str) -> frozenset[int] | None:
        """The variables that a name stands for; None if there is none of this name."""
        number = self.number(name)
        if number is not None:
            return frozenset({number})
        return next((rows for each, rows in self.subsets if _same(each, name)), None)

    def all(self) -> tuple[tuple[str, frozenset[int]], ...]:
        """Variables, then subsets."""
        own = tuple((name, frozenset({number})) for number, name in enumerate(self.names))
        return own + self.subsets

    def meant(self, name: str) -> str:
        """A hint for a name that is none of these."""
        known = [each for each, _ in self.all()]
        close = nearest(name, known)
        return f"did you mean {close}?" if close else f"its variables are {listed(known)}"


def named(root: PatternNode) -> tuple[str, ...]:
    """Every variable as PATTERN first spells it.

    >>> from spark_cep.compiling.rows.grammar import parse_pattern
    >>> named(parse_pattern("Strt up+ STRT"))
    ('Strt', 'up')
    """
    found: dict[str, str] = {}
    for node in variables_of(root):
        found.setdefault(node.name.casefold(), node.name)
    return tuple(found.values())


def numbered(root: PatternNode, variables: RowVariables) -> Node:
    """The pattern as the engine takes it."""
    number = variables.number(root.name) if root.kind == "variable" else None
    return Node(
        root.kind,
        -1 if number is None else number,
        tuple(numbered(part, variables) for part in root.parts),
        root.low,
        root.high,
        root.greedy,
    )


def with_subsets(
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
        elif any(_same(name, other) for other, _ in found):
            problems.add(f"the subset {name} is there twice", place, hint="drop one of them")
        elif not members:
            problems.add(f"the subset {name} is empty", place, hint=f"name variables: {name} = (a)")
        else:
            numbers = [_member(name, each, variables, subsets, problems) for each in members]
            found.append((unquoted(name), frozenset(each for each in numbers if each is not None)))
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
    if any(_same(name, other) for other, _ in subsets):
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


def check_defined(names: Sequence[str], variables: RowVariables, problems: Problems) -> None:
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
        elif unquoted(name).casefold() in seen:
            problems.add(
                f"DEFINE names {name} twice", place, hint="put the conditions together with AND"
            )
        seen.add(unquoted(name).casefold())


def _same(left: str, right: str) -> bool:
    return unquoted(left).casefold() == unquoted(right).casefold()
