"""What the worker's functions are called, what they take, and how they report an error.

Values are plain: integers (also days, microseconds, months and unscaled decimals), floats, bool,
str, bytes, tuples for arrays, dicts for maps. A function gets None only if it `takes_null`; else
its result is NULL where an argument is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type

Run = Callable[..., Any]
_Run = TypeVar("_Run", bound=Run)


class Failure(Exception):
    """An error of Spark under ANSI, NULL otherwise; `always`: an error in both."""

    def __init__(self, *, always: bool = False) -> None:
        super().__init__()
        self.always = always


@dataclass(frozen=True)
class Binding:
    """What a call is known to have before it is evaluated."""

    arguments: tuple[Type, ...]
    result: Type
    ansi: bool


@dataclass(frozen=True)
class Function:
    """`parameters`: the kind of each argument; the driver converts to it as Spark does:

        string, binary, bool, int, bigint, double, date, timestamp    this type
        number, time, any, text (string or binary), decimals (integers too)    as it is
        array, sortable (an array), map; element (of the array), key (of the map)
        result    the type of the result

    `optional`: how many may be missing at the end. `repeated`: the last one may come any number of
    times. `zoned`: the session's time zone is added as the last argument.
    """

    parameters: tuple[str, ...]
    bind: Callable[[Binding], Run]
    optional: int = 0
    repeated: bool = False
    takes_null: bool = False
    zoned: bool = False

    def kinds(self, count: int) -> tuple[str, ...] | None:
        """The kinds of so many arguments; None if there may not be so many."""
        known = self.parameters
        if self.repeated and count >= len(known) - 1:
            return known[:-1] + known[-1:] * (count - len(known) + 1)
        return known[:count] if len(known) - self.optional <= count <= len(known) else None


FUNCTIONS: Final[dict[str, Function]] = {}


def function(
    names: str, parameters: str, *, takes_null: bool = False, zoned: bool = False
) -> Callable[[_Run], _Run]:
    """Registers a function that needs to know nothing but the values."""

    def register(run: _Run) -> _Run:
        _register(names, parameters, lambda _: run, takes_null=takes_null, zoned=zoned)
        return run

    return register


def bound_function(
    names: str, parameters: str, *, takes_null: bool = False, zoned: bool = False
) -> Callable[[Callable[[Binding], Run]], Callable[[Binding], Run]]:
    """Registers a function that depends on the types or on ANSI."""

    def register(bind: Callable[[Binding], Run]) -> Callable[[Binding], Run]:
        _register(names, parameters, bind, takes_null=takes_null, zoned=zoned)
        return bind

    return register


def _register(
    names: str,
    parameters: str,
    bind: Callable[[Binding], Run],
    *,
    takes_null: bool,
    zoned: bool,
) -> None:
    """`parameters`: kinds, with ? for optional ones, and * for a last one that may repeat."""
    words = parameters.split()
    found = Function(
        tuple(word.rstrip("?*") for word in words),
        bind,
        sum(word.endswith("?") for word in words),
        bool(words) and words[-1].endswith("*"),
        takes_null,
        zoned,
    )
    for name in names.split():
        FUNCTIONS[name] = found


# Distinct arguments whose result is kept, for each call of a program.
MOST_KEPT: Final = 1 << 14
_MISSING: Final = object()


class BoundFunction:
    """A function for the types of one call. Results are kept by their arguments, unless these are
    floats, among which 0.0 and -0.0 are equal but not the same."""

    def __init__(self, name: str, binding: Binding) -> None:
        known = FUNCTIONS[name]
        self._run = known.bind(binding)
        self._takes_null = known.takes_null
        kinds = {type_.kind for type_ in binding.arguments}
        self._kept: dict[Any, Any] | None = None if kinds & {"float", "other"} else {}

    def evaluate(
        self, arguments: Sequence[Sequence[Any]]
    ) -> tuple[list[Any], list[int], list[int]]:
        """The results, and the places of errors: under ANSI, and of those in any session."""
        results: list[Any] = []
        failed: list[int] = []
        always: list[int] = []
        for place, values in enumerate(zip(*arguments, strict=True)):
            if not self._takes_null and None in values:
                results.append(None)
                continue
            found = self._result(values)
            if isinstance(found, Failure):
                (always if found.always else failed).append(place)
                found = None
            results.append(found)
        return results, failed, always

    def _result(self, values: tuple[Any, ...]) -> Any:
        kept = self._kept
        if kept is not None:
            found = kept.get(values, _MISSING)
            if found is not _MISSING:
                return found
        try:
            found = self._run(*values)
        except Failure as failure:
            found = failure
        if kept is not None:
            if len(kept) >= MOST_KEPT:
                kept.clear()
            kept[values] = found
        return found
