"""Links, headings, file names and the index of decisions in the documents hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


FOLDERS = "spark_cep|sql|udfs|tests|docs|benchmarks|examples|.ci"
PATHS = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/[\w./-]*\w\.(?:py|md|svg|toml))\b")
# A file that is named without its folder, as in a docstring of the same folder.
FILES = re.compile(r"`(\w+\.py)`")
MODULES = [
    path
    for folder in ("spark_cep", "sql", "udfs", "tests", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def missing(text: str) -> list[str]:
    """The files that a text names and that are not there."""
    names = {path.name for path in MODULES}
    gone = [path for path in PATHS.findall(text) if not (ROOT / path).exists()]
    return gone + [name for name in FILES.findall(text) if name not in names]


def headings(document: Path) -> set[str]:
    found = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in found}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        path, _, anchor = link.partition("#")
        target = (document.parent / path) if path else document
        assert target.exists(), link
        if anchor:
            assert anchor in headings(target), link


def test_missing_files_are_found() -> None:
    text = "`udfs/program.py` and docs/nope.md, in `engine.py` and `no_such_file.py`"
    assert missing(text) == ["docs/nope.md", "no_such_file.py"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_files_that_exist(document: Path) -> None:
    assert missing(document.read_text()) == []


def test_docstrings_name_files_that_exist() -> None:
    gone = {
        path.relative_to(ROOT).as_posix(): names
        for path in MODULES
        if path != Path(__file__)
        for names in [missing("\n".join(docstrings(path)))]
        if names
    }
    assert gone == {}


def test_contributing_stays_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_bytes()) <= 6 * 1024


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    assert [path.name for path in folder.glob("0*.md") if f"({path.name})" not in index] == []
