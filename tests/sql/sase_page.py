"""docs/sase.md as data: every text of the page, made into its pattern, and the tables they run on.

A block of Python assigns patterns to names; a block of plain text is a query as printed, which
cannot run as it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from spark_cep.expressions.schema import ColumnInfo
from spark_cep.pattern import Pattern
from spark_cep.udfs.expressions import BIGINT, DOUBLE, Type

PAGE = Path(__file__).parents[2] / "docs" / "sase.md"
ARRAY = Type("other")
STRING = Type("string")
TIME = Type("timestamp")
INT = Type("int", 32)

# The first word of a pattern's name -> the columns of its table.
TABLES: dict[str, dict[str, Type]] = {
    "rising": {"kind": STRING, "ticker": STRING, "price": DOUBLE},
    "ladder": {"ticker": STRING, "price": DOUBLE},
    "lazy": {"ticker": STRING, "price": DOUBLE, "history": ARRAY},
    "adaptive": {"camera": STRING, "person_id": BIGINT, "ticker": STRING, "diff": DOUBLE},
    "apam": {"type": STRING, **{f"attr{number}": INT for number in range(1, 10)}},
    "eires_listing_1": {
        "type": STRING, "cc": BIGINT, "vol": DOUBLE, "loc": STRING, "limit": DOUBLE,
        "ben": STRING, "known_places": ARRAY, "highest_limit": DOUBLE, "authorized": ARRAY,
    },
    "eires_listing_2": {
        "type": STRING, "ID": BIGINT, "v1": DOUBLE, "v2": DOUBLE, "remote_v1": DOUBLE,
        "remote_v2": DOUBLE,
    },
    "eires_listing_3": {
        "boundary": DOUBLE, "channel": INT, "time": TIME, "level": STRING,
        "sensor_temperature": DOUBLE, "sensor_humidity": DOUBLE,
    },
    "eires_listing_4": {
        "event": STRING, "task_id": BIGINT, "machine": BIGINT, "region": STRING,
        "machine_regions": ARRAY,
    },
    "darling": {
        "type": STRING, "cardID": BIGINT, "amount": DOUBLE, "price": DOUBLE, "ticker": STRING,
        "volume": DOUBLE, "open": DOUBLE, "sensor": STRING, "x": DOUBLE, "y": DOUBLE, "v": DOUBLE,
        "line": INT, "dist": DOUBLE, "delay": DOUBLE,
    },
}  # fmt: skip
SPARK_TYPES = {
    "other": "array<string>", "string": "string", "timestamp": "timestamp", "int": "bigint",
    "float": "double",
}  # fmt: skip


def blocks(language: str) -> list[str]:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return found


def patterns() -> dict[str, Pattern]:
    """Every pattern of the page under the name that it has there."""
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, str(PAGE), "exec"), names)
    return {name: value for name, value in names.items() if isinstance(value, Pattern)}


def columns(name: str) -> list[ColumnInfo]:
    table = next(table for start, table in TABLES.items() if name.startswith(start))
    kinds = {"type": INT} if name == "apam_figure_3" else {}
    return [ColumnInfo("ts", order_type(name))] + [
        ColumnInfo(column, kinds.get(column, type_)) for column, type_ in table.items()
    ]


def order_type(name: str) -> Type:
    """APAM's timestamps are plain numbers."""
    return BIGINT if name.startswith("apam") else TIME


def schema(name: str) -> str:
    """The same as Spark's DDL."""
    parts = []
    for column in columns(name):
        kind = SPARK_TYPES[column.type.kind]
        if column.name == "history":
            kind = "array<double>"
        parts.append(f"`{column.name}` {kind}")
    return ", ".join(parts)
