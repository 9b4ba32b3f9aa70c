"""The command line runs a statement over files, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = "ts,k,p\n1,A,10\n2,B,20\n3,A,5\n4,B,7\n"
QUERY = """SELECT * FROM ticks MATCH_RECOGNIZE (
  ORDER BY ts MEASURES a.ts AS a, b.p - a.p AS gain
  PATTERN SEQ(a, b) WITHIN 1 DEFINE a AS k = 'A', b AS k = 'B'
)"""


def command(tmp_path: Path, *arguments: str) -> str:
    (tmp_path / "ticks.csv").write_text(ROWS)
    (tmp_path / "query.sql").write_text(QUERY)
    given = ["--sql", str(tmp_path / "query.sql"), "--table", f"ticks={tmp_path / 'ticks.csv'}"]
    done = subprocess.run(
        [sys.executable, "-m", "spark_cep.cli", *arguments, *given],
        capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_answer_is_printed(tmp_path: Path) -> None:
    lines = command(tmp_path, "run", "--json").splitlines()
    assert sorted(map(json.loads, lines), key=lambda row: row["a"]) == [  # type: ignore[no-any-return]
        {"a": 1, "gain": 10},
        {"a": 3, "gain": 2},
    ]


def test_the_answer_is_written(tmp_path: Path) -> None:
    assert command(tmp_path, "run", "--out", "pairs.json") == ""
    written = [path.read_text() for path in (tmp_path / "pairs.json").glob("*.json")]
    assert '{"a":3,"gain":2}' in "".join(written)


def test_the_plan_is_printed(tmp_path: Path) -> None:
    assert json.loads(command(tmp_path, "explain", "--json"))["pattern"]
