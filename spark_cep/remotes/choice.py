"""Which strategy and which cache a remote source gets, and why.

EIRES (section 6) splits queries by how greedily they take rows. A greedy one, skip till any match
with reuse, has many partial matches that need the same values: what was asked for last is asked
for again, and postponing a condition costs partial matches only. One that is not takes each row
on the conditions that hold then, so a condition that has no answer yet stops the run: it cannot be
postponed, and what will be needed is best told by its utility. None of it changes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.udfs.remotes.spec import Caching, Strategy

if TYPE_CHECKING:
    from spark_cep.remotes.checks import Wish
    from spark_cep.udfs.program import Consumption
    from spark_cep.udfs.program import Strategy as Selection

_SELECTIONS: dict[Selection, str] = {
    "any": "skip till any match",
    "next": "skip till next match",
    "strict": "strict",
}
# What a strategy is without its postponing.
_WITHOUT_POSTPONING: dict[Strategy, Strategy] = {
    "lazy": "cached",
    "post": "cached",
    "hybrid": "prefetch",
}


@dataclass(frozen=True)
class Decided:
    """A remote source's strategy and cache. `why` and `why_cache` are sentences for explain."""

    strategy: Strategy
    caching: Caching
    why: str
    why_cache: str


def decided(
    wish: Wish, caching: Caching | None, selection: Selection, consumption: Consumption
) -> Decided:
    """For a source that conditions of the engine ask.

    >>> decided("auto", None, "next", "reuse").strategy
    'prefetch'
    >>> decided("lazy", None, "next", "reuse").why
    'not lazy: skip till next match decides on each row at once'
    """
    greedy = selection == "any" and consumption == "reuse"
    strategy, why = _strategy(wish, _hindrance(selection, consumption))
    if caching is not None:
        return Decided(strategy, caching, why, "as asked for")
    if greedy:
        reason = "many partial matches ask for the same values, so the latest used are kept"
        return Decided(strategy, Caching("lru"), why, reason)
    reason = "few partial matches share a value, so what is needed most for its size is kept"
    return Decided(strategy, Caching("cost"), why, reason)


def local() -> Decided:
    """For a table that the workers have as a whole."""
    return Decided("cached", Caching(), "the table is in every worker", "nothing is fetched")


def outside(wish: Wish, caching: Caching | None) -> Decided:
    """For a source that is asked before or behind the engine: by whole batches of rows, whose
    keys are all known, so there is nothing to guess and nothing to postpone.

    >>> outside("lazy", None).why
    'not lazy: all keys of a batch of rows are known at once'
    """
    strategy: Strategy = "blocking" if wish == "blocking" else "cached"
    why = "all keys of a batch of rows are known at once"
    if wish != "auto":
        why = "as asked for" if wish == strategy else f"not {wish}: {why}"
    reason = "as asked for" if caching is not None else "keys come again in later rows"
    return Decided(strategy, caching or Caching("lru"), why, reason)


def _hindrance(selection: Selection, consumption: Consumption) -> str | None:
    """Why a condition cannot wait for its value."""
    if selection != "any":
        return f"{_SELECTIONS[selection]} decides on each row at once"
    if consumption != "reuse":
        return "with consume a match takes its rows from the others at once"
    return None


def _strategy(wish: Wish, hindrance: str | None) -> tuple[Strategy, str]:
    if wish == "auto":
        if hindrance is None:
            return "hybrid", "values are fetched ahead, and conditions may wait for the rest"
        return "prefetch", f"values are fetched ahead; no condition waits, for {hindrance}"
    without = _WITHOUT_POSTPONING.get(wish)
    if hindrance is not None and without is not None:
        return without, f"not {wish}: {hindrance}"
    return wish, "as asked for"
