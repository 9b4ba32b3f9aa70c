"""partition_by: the names of input columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_cep.compiling.problems import Place, Problems

if TYPE_CHECKING:
    from spark_cep.compiling.names import Names


def partition_of(partition_by: Any, names: Names, problems: Problems) -> tuple[str, ...]:
    """The partition columns as the input spells them; those that are wrong become problems."""
    given = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
    found = []
    for name in given:
        if not isinstance(name, str):
            problems.add(
                f"partition_by takes column names, not {type(name).__name__}",
                hint='partition_by="venue" or partition_by=["venue", "currency"]; compute other '
                "keys as columns first",
            )
            continue
        bare = name.strip()
        if len(bare) > 1 and bare[0] == bare[-1] == "`":
            bare = bare[1:-1].replace("``", "`")
        before = len(problems.found)
        column = names.column(bare, Place.whole(name), problems)
        if column is not None and column.name not in found:
            found.append(column.name)
        elif len(problems.found) > before:
            _say_partition_by(problems)
    return tuple(found)


def _say_partition_by(problems: Problems) -> None:
    last = problems.found.pop()
    problems.add(f"partition_by: {last.message}", last.place, hint=last.hint)
