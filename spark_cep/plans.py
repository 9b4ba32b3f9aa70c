"""The plans a user may ask for, and what becomes of a name or a plan object.

A plan changes how long an answer takes, never the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn
from typing import Literal as Choice

from spark_cep.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.program import Variable

Kind = Choice["auto", "eager", "lazy-chain"]
_KINDS: tuple[Kind, ...] = ("auto", "eager", "lazy-chain")
_LATER = ("tree", "zstream", "hybrid")


@dataclass(frozen=True)
class Wish:
    """A plan as the user asked for it. `order` names the variables of a chain."""

    kind: Kind
    order: tuple[str, ...] | None = None


def eager() -> Wish:
    """Binds the variables in the order of the pattern."""
    return Wish("eager")


def lazy_chain() -> Wish:
    """Binds the variable with the fewest candidates first."""
    return Wish("lazy-chain")


def chain(*names: str) -> Wish:
    """Binds the variables in the order given, every positive variable once.

    >>> chain("c", "b", "a")
    Wish(kind='lazy-chain', order=('c', 'b', 'a'))
    """
    if not names:
        raise PlanError("chain() names no variable", hint='cep.plans.chain("c", "b", "a")')
    return Wish("lazy-chain", names)


def tree() -> NoReturn:
    """Not available yet."""
    _refuse("tree")


def join(parts: object) -> NoReturn:
    """Not available yet."""
    del parts
    _refuse("zstream")


def hybrid(eager: Sequence[str] = (), lazy: Sequence[str] = ()) -> NoReturn:
    """Not available yet."""
    _refuse("hybrid")


def wish(plan: object) -> Wish:
    """What the option `plan=` asks for.

    >>> wish("lazy-chain")
    Wish(kind='lazy-chain', order=None)
    """
    if isinstance(plan, Wish):
        return plan
    if plan in _LATER:
        _refuse(str(plan))
    for kind in _KINDS:
        if plan == kind:
            return Wish(kind)
    raise PlanError(
        f"{plan!r} is no plan",
        hint='plan is "auto", "eager" or "lazy-chain", or an object: cep.plans.chain("c", "b")',
    )


def order_of(names: Sequence[str], variables: Sequence[Variable]) -> tuple[int, ...]:
    """Variable ids in the order that a chain names them; every positive variable once."""
    ids = {each.name.casefold(): number for number, each in enumerate(variables)}
    wanted = [number for number, each in enumerate(variables) if not each.negated]
    found: list[int] = []
    for name in names:
        number = ids.get(str(name).casefold())
        if number is None:
            _misfit(f"names {name!r}, which the pattern does not have", variables)
        if number not in wanted:
            _misfit(f"names {name!r}, which is negated and needs no place", variables)
        if number in found:
            _misfit(f"names {name!r} twice", variables)
        found.append(number)
    missing = [variables[number].name for number in wanted if number not in found]
    if missing:
        _misfit(f"leaves out {', '.join(missing)}", variables)
    return tuple(found)


def _misfit(problem: str, variables: Sequence[Variable]) -> NoReturn:
    names = ", ".join(f'"{each.name}"' for each in variables if not each.negated)
    raise PlanError(
        f"the chain {problem}",
        hint=f"name every positive variable once, in any order: cep.plans.chain({names})",
    )


def _refuse(name: str) -> NoReturn:
    raise PlanError(
        f"the plan {name!r} is not available yet",
        hint='use plan="auto", "lazy-chain" or "eager"; the answer is the same',
    )
