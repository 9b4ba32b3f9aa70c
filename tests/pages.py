"""The code of a page, run from top to bottom in one session, and what it prints.

A block of SQL is run and shown. What a block prints must be the plain block under it, if one
stands directly under it; a block with nothing under it only has to run. A block of `diff` between
the two says which lines of the code are changed before it is run.
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
_BLOCK = re.compile(
    r"```(?P<language>python|sql)\n(?P<code>.*?)```"
    r"(?:\s*```diff\n(?P<changes>.*?)```)?"
    r"(?:\n\s*```\n(?P<output>.*?)```)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """`line`: of the page, where the code begins. `changes`: lines that are replaced before it is
    run. `output`: what stands under it."""

    language: str
    code: str
    output: str | None
    line: int
    changes: str | None = None

    @property
    def changed_code(self) -> str:
        return changed(self.code, self.changes) if self.changes else self.code


def blocks(page: str) -> list[Block]:
    """The code of a page of this project."""
    return blocks_of((ROOT / page).read_text())


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            found["language"],
            found["code"],
            found["output"],
            text.count("\n", 0, found.start("code")) + 1,
            found["changes"],
        )
        for found in _BLOCK.finditer(text)
    ]


def changed(code: str, changes: str) -> str:
    """The code with each run of `-` lines replaced by the `+` lines that follow it."""
    for run in re.finditer(r"((?:^-.*\n)+)((?:^\+.*\n)*)", changes, re.MULTILINE):
        old, new = (re.sub(r"^[-+]", "", part, flags=re.MULTILINE) for part in run.groups())
        if code.count(old) != 1:
            raise ValueError(f"the code does not have these lines once:\n{old}")
        code = code.replace(old, new)
    return code


def printed(page: str, spark: SparkSession) -> Iterator[tuple[Block, str]]:
    """Each block and what it prints."""
    names: dict[str, Any] = {"spark": spark}
    for block in blocks(page):
        if block.language == "sql":
            yield block, shown(block.changed_code, names["spark"])
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            # Empty lines, so that an error names the line of the page.
            code = "\n" * (block.line - 1) + block.changed_code
            exec(compile(code, page, "exec"), names)
        yield block, out.getvalue()


def shown(statement: str, spark: SparkSession) -> str:
    """What a statement prints when it is shown."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        spark.sql(statement).show(truncate=False)
    return out.getvalue()


def differences(page: str, spark: SparkSession) -> list[tuple[int, str, str]]:
    """Line, what stands in the page, what was printed."""
    return [
        (block.line, block.output.strip(), text.strip())
        for block, text in printed(page, spark)
        if block.output is not None and block.output.strip() != text.strip()
    ]
