"""What the boxes of a drawn plan say: a variable with its rate, a step with its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_cep.explaining.figures import amount
from spark_cep.explaining.planned import Facts, Node, members, rates
from spark_cep.explaining.sketch import NAME_CELLS, TEXT_CELLS, Box, Look, box, clipped

# Conditions in boxes that stand side by side; the pictures would be too wide to read otherwise.
NARROW_CELLS = 22
# Conditions written out in a box; how many more there are is said.
_SHOWN = 2


@dataclass(frozen=True)
class Variable:
    """A box about one variable; `says` stands before its name, `node` is the step it takes."""

    name: str
    says: str = ""
    look: Look = "event"
    node: Node | None = None

    def box(self, facts: Facts, cells: int = TEXT_CELLS) -> Box:
        names = members(self.name)
        own = [str(text) for name in names for text in facts["before"]["candidates"].get(name, [])]
        costs = cost(self.node)
        conditions = self.node.conditions if self.node else ()
        lines = [
            f"{self.says}{clipped(self.name, NAME_CELLS)}",
            *_rates(names, facts),
            *listed([*own, *conditions], cells),
            *costs,
        ]
        return box(lines, self.look, "\n".join([self.name, *own, *conditions, *costs]))


def join(node: Node | None, names: Sequence[str], says: str = "") -> Box:
    """A box about the variables bound together in one step."""
    title = f"{says}{clipped(' '.join(names), NAME_CELLS)}"
    costs = cost(node)
    conditions = node.conditions if node else ()
    hint = "\n".join([" ".join(names), *conditions, *costs])
    return box([title, *listed(conditions, NARROW_CELLS), *costs], "join", hint)


def cost(node: Node | None) -> list[str]:
    """What a step is expected to evaluate and to leave, as far as that is known."""
    if node is None:
        return []
    pairs = None if node.starts else node.pairs
    known = ((pairs, "pairs"), (node.partials, "matches" if node.is_last else "partial matches"))
    return [f"≈ {amount(value)} {what}" for value, what in known if value is not None]


def _rates(names: Sequence[str], facts: Facts) -> list[str]:
    found = [amount(rates(facts)[name]) for name in names if name in rates(facts)]
    return [f"{' and '.join(found)} in a window"] if found else []


def listed(conditions: Sequence[str], cells: int = TEXT_CELLS) -> list[str]:
    """
    >>> listed(["a.x = 1", "b.x = 2", "c.x = 3"])
    ['a.x = 1', 'b.x = 2', 'and 1 more']
    """
    shown = [clipped(each, cells) for each in conditions[:_SHOWN]]
    more = len(conditions) - _SHOWN
    return [*shown, f"and {more} more"] if more > 0 else shown
