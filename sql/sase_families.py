"""Families: S_1, ..., S_n counted out, and the numbers that ∀ goes through.

A family's members are plain variables called S_1, S_2 and so on. `S_1, ..., KLEENE(S_j), ..., S_n`
is filled between its neighbours, so it says what it prints for every j strictly between 1 and n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.sql.sase_nodes import (
    Combined,
    Declared,
    Dots,
    ForAll,
    Negated,
    PatternNode,
    Repeated,
    Sql,
    Word,
)
from spark_cep.sql.sase_symbols import Symbols, numbered
from spark_cep.sql.sase_tokens import failed

if TYPE_CHECKING:
    from spark_cep.compiling.problems import Place, Problems

# More variables than this are a slip of the pen, not a pattern.
MAX_MEMBERS = 1_000
_EXAMPLE = 'S_1, ..., S_n with symbols={"n": 4}'


def spelled(name: str, numbers: Mapping[str, int]) -> str | None:
    """The name with its number counted out; None if its subscript has no number.

    >>> spelled("S_{i-1}", {"i": 3}), spelled("person_id", {}), spelled("S_{k}", {})
    ('S_2', 'person_id', None)
    """
    if "{" not in name and name.rpartition("_")[2].isdecimal():
        return name
    found = numbered(name, numbers)
    if found is not None:
        return f"{found[0]}_{found[1]}"
    return None if "{" in name else name


def counted_out(node: PatternNode, numbers: Mapping[str, int]) -> PatternNode:
    """The pattern without dots, every name spelled."""
    return _Families(numbers).counted_out(node)


@dataclass(frozen=True)
class _Families:
    numbers: Mapping[str, int]

    def counted_out(self, node: PatternNode) -> PatternNode:
        if isinstance(node, Declared):
            return self._declared(node)
        if isinstance(node, Negated | Repeated):
            return replace(node, part=self.counted_out(node.part))
        if isinstance(node, Combined):
            return replace(node, parts=tuple(self._parts(node.parts)))
        return failed("dots stand between two members of a family", node.place, f"write {_EXAMPLE}")

    def _declared(self, node: Declared) -> Declared:
        names = spelled(node.type, self.numbers), spelled(node.name, self.numbers)
        if names[0] is None or names[1] is None:
            hint = 'give its numbers, such as symbols={"n": 4}'
            failed(f"the subscript of {_shown(node.name)} has no number", node.place, hint)
        return replace(node, type=names[0], name=names[1])

    def _parts(self, parts: tuple[PatternNode, ...]) -> Iterator[PatternNode]:
        for place, part in enumerate(parts):
            if not isinstance(part, Dots):
                yield self.counted_out(part)
            elif not 0 < place < len(parts) - 1:
                failed("dots stand between two events", part.place, f"write {_EXAMPLE}")
            else:
                yield from self._between(parts[place - 1], part, parts[place + 1])

    def _between(
        self, before: PatternNode, dots: Dots, after: PatternNode
    ) -> Iterator[PatternNode]:
        first, last = self._member(before, dots), self._member(after, dots)
        (family, low), (other, high) = self._number(first, dots), self._number(last, dots)
        if family != other:
            message = f"the dots lead from {first.name} to {last.name}, two families"
            failed(message, dots.place, f"write {_EXAMPLE}")
        if high <= low:
            message = f"the dots lead from {family}_{low} to {family}_{high}"
            failed(message, dots.place, "the number behind the dots is the larger one")
        if high - low > MAX_MEMBERS:
            failed(f"{high - low} events are too many", dots.place, "give a smaller number")
        for number in range(low + 1, high):
            yield self._copied(first, number, dots.place)

    def _copied(self, member: Declared, number: int, place: Place) -> Declared:
        family, _ = self._number(member, Dots(place))
        type_ = numbered(member.type, self.numbers)
        of_family = member.type if type_ is None else f"{type_[0]}_{number}"
        return replace(member, name=f"{family}_{number}", type=of_family, place=place)

    def _member(self, node: PatternNode, dots: Dots) -> Declared:
        while isinstance(node, Negated | Repeated):
            node = node.part
        if not isinstance(node, Declared):
            failed("dots stand between two events", dots.place, f"write {_EXAMPLE}")
        return node

    def _number(self, member: Declared, dots: Dots) -> tuple[str, int]:
        found = numbered(member.name, self.numbers)
        if found is None:
            hint = f"write {_EXAMPLE}"
            failed(f"{_shown(member.name)}, beside the dots, has no number", dots.place, hint)
        return found


def numbers_of(node: ForAll, numbers: Mapping[str, int], symbols: Symbols) -> list[int]:
    """What ∀ goes through; empty and a problem where that cannot be told."""
    if isinstance(node.numbers, Word):
        return _of_set(node.numbers, symbols)
    found = [_whole(each, numbers) for each in node.numbers.members]
    bounds = [each for each in found if each is not None]
    if len(bounds) < len(found) or not bounds:
        hint = 'write {2, n} with symbols={"n": 4}'
        symbols.problems.add("these are no whole numbers", node.numbers.place, hint=hint)
        return []
    if not node.is_range:
        return bounds
    low, high = bounds
    if high - low > MAX_MEMBERS:
        symbols.problems.add(
            f"∀ goes through {high - low + 1} numbers",
            node.numbers.place,
            hint=f"at most {MAX_MEMBERS} are taken",
        )
        return []
    return list(range(low, high + 1))


def _of_set(word: Word, symbols: Symbols) -> list[int]:
    given = symbols.family(word.name) or []
    found = [each for each in given if isinstance(each, int) and not isinstance(each, bool)]
    if not found or len(found) < len(given):
        _say_no_numbers(word, symbols.problems)
        return []
    return found


def _say_no_numbers(word: Word, problems: Problems) -> None:
    hint = f'write {{2, n}}, or give whole numbers in symbols={{"{word.name}": [2, 3]}}'
    problems.add(f"{word.name} is no list of whole numbers", word.place, hint=hint)


def _whole(node: object, numbers: Mapping[str, int]) -> int | None:
    if isinstance(node, Word):
        return numbers.get(node.name)
    return int(node.text) if isinstance(node, Sql) and node.text.isdecimal() else None


def _shown(name: str) -> str:
    """The name as printed: S_{n} is S_n.

    >>> _shown("S_{n}"), _shown("S_{i-1}"), _shown("a")
    ('S_n', 'S_{i-1}', 'a')
    """
    base, _, rest = name.partition("_{")
    return f"{base}_{rest[:-1]}" if rest and rest[:-1].isalnum() else name
