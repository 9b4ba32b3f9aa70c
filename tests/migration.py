"""The statements of the page for users of other systems, by system."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.pages import ROOT, Block, blocks_of

PAGE = "docs/coming-from.md"
SYSTEMS = ("Snowflake", "Oracle", "Trino", "Flink", "BigQuery")
_TITLE = re.compile(r"^\*\*(\d+)\. .*\*\*$", re.MULTILINE)


@dataclass(frozen=True)
class PastedStatement:
    """`note`: the line under its answer."""

    system: str
    number: int
    block: Block
    note: str

    @property
    def name(self) -> str:
        return f"{self.system} {self.number}"


def pasted_statements() -> list[PastedStatement]:
    return [each for system in SYSTEMS for each in _statements_of(system)]


def _statements_of(system: str) -> list[PastedStatement]:
    text = (ROOT / PAGE).read_text()
    section = text.split(f"\n## {system}\n")[1].split("\n## ")[0]
    parts = _TITLE.split(section)[1:]
    found = []
    for number, part in zip(parts[::2], parts[1::2], strict=True):
        (block,) = blocks_of(part)
        note = part.rsplit("```", 1)[1].strip()
        found.append(PastedStatement(system, int(number), block, note))
    return found
