"""Limits that the matcher can reach: what was too much, where, and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import LimitError

if TYPE_CHECKING:
    from spark_cep.udfs.rows.table import Table


def steps(table: Table, begin: int, allowed: int, reached: int) -> LimitError:
    """`begin`: where the search began."""
    where, row = _where(table, begin)
    return LimitError(
        f"{where} took more than {allowed:,} steps of the matcher; it was trying row {row + 1:,}",
        hint="conditions on LAST, FIRST or aggregates inside nested repetitions are what "
        "usually gets here: bound the repetitions, add WITHIN or a partition key, or raise it: "
        f"limits=cep.Limits(backtracking_steps={allowed * 10}), or in SQL behind the clause "
        f"/*+ backtracking_steps({allowed * 10}) */",
        details={
            "key": table.key_of(begin), "row": row, "limit": "backtracking_steps",
            "allowed": allowed, "reached": reached,
        },
    )  # fmt: skip


def ways(table: Table, begin: int, allowed: int) -> LimitError:
    where, row = _where(table, begin)
    return LimitError(
        f"{where}: more than {allowed:,} ways wait to be tried for the match that would begin at "
        f"row {row + 1:,}",
        hint="bound the repetitions in the pattern, or add WITHIN or a partition key",
        details={
            "key": table.key_of(begin), "row": row, "limit": "ways",
            "allowed": allowed, "reached": allowed,
        },
    )  # fmt: skip


def rows(reached: int, allowed: int) -> LimitError:
    return LimitError(
        f"a bucket of {reached:,} rows is too large for the matcher",
        hint="partition by more columns, or deal the keys to more buckets",
        details={"limit": "bucket_rows", "allowed": allowed, "reached": reached},
    )


def _where(table: Table, begin: int) -> tuple[str, int]:
    key = table.key_of(begin)
    where = f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"
    return where, int(table.places(np.array([begin]))[0])
