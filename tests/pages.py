"""The code of a page, run from top to bottom in one session, and what it prints.

A block of SQL is run and shown. What a block prints must be the plain block under it, if one
stands directly under it; a block with nothing under it only has to run.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"```(python|sql)\n(.*?)```(?:\n\s*```\n(.*?)```)?", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """`line`: of the page, where the code begins. `output`: what stands under it."""

    language: str
    code: str
    output: str | None
    line: int


def blocks(page: str) -> list[Block]:
    """The code of a page of this project."""
    text = (ROOT / page).read_text()
    return [
        Block(found[1], found[2], found[3], text.count("\n", 0, found.start(2)) + 1)
        for found in _BLOCK.finditer(text)
    ]


def printed(page: str, spark: SparkSession) -> Iterator[tuple[Block, str]]:
    """Each block and what it prints."""
    names: dict[str, Any] = {"spark": spark}
    for block in blocks(page):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if block.language == "sql":
                names["spark"].sql(block.code).show(truncate=False)
            else:
                # Empty lines, so that an error names the line of the page.
                code = "\n" * (block.line - 1) + block.code
                exec(compile(code, page, "exec"), names)
        yield block, out.getvalue()


def differences(page: str, spark: SparkSession) -> list[tuple[int, str, str]]:
    """Line, what stands in the page, what was printed."""
    return [
        (block.line, block.output.strip(), text.strip())
        for block, text in printed(page, spark)
        if block.output is not None and block.output.strip() != text.strip()
    ]
