"""What AFTER MATCH SKIP can do wrong, which only the rows tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import CepError

if TYPE_CHECKING:
    from spark_cep.udfs.rows.table import Table


def skips_nowhere(table: Table, begin: int) -> CepError:
    """`begin`: the position at which the match begins."""
    where, what, row = _said(table, begin)
    return CepError(
        f"{where}: {what} has nowhere to go: the match that begins at row {row + 1} has no row of "
        "that variable",
        hint="skip to a variable that every match fills, or use SKIP PAST LAST ROW",
        details={"key": table.key_of(begin), "row": row},
    )


def skips_in_place(table: Table, begin: int) -> CepError:
    where, what, row = _said(table, begin)
    return CepError(
        f"{where}: {what} would go to the first row of the match that begins at row {row + 1}, "
        "and find the same match for ever",
        hint="skip to a variable that comes later in the match, or use SKIP TO NEXT ROW",
        details={"key": table.key_of(begin), "row": row},
    )


def _said(table: Table, begin: int) -> tuple[str, str, int]:
    key, program = table.key_of(begin), table.program
    where = f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"
    names = sorted(program.variables[v].name for v in program.skip.variables)
    what = f"AFTER MATCH SKIP TO {program.skip.kind.upper()} {' or '.join(names)}"
    return where, what, int(table.places(np.array([begin]))[0])
