"""The README's code runs as printed and gives the output printed under it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"

pytestmark = pytest.mark.spark


def test_the_code_of_the_readme_prints_what_stands_under_it(spark: SparkSession) -> None:
    found = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    code, output = found.groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(README), "exec"), {"spark": spark})
    assert printed.getvalue().strip() == output.strip()
