"""What the command line takes, prints and returns. The demo itself runs in tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_cep.cli import command, demo, statements
from spark_cep.errors import LimitError, PatternError
from spark_cep.spark.session import SparkStartError
from spark_cep.udfs.errors import WorkerError


def fail_with(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*, rows: int, as_json: bool) -> None:
        raise problem

    monkeypatch.setattr(demo, "run_demo", run)


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == command.DONE
    assert "demo" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--version"])
    assert ended.value.code == command.DONE
    assert capsys.readouterr().out.startswith("spark-cep ")


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "--sql", "SELECT 1", "--table", "t"], ["demo", "--rows", "3"]]
)
def test_wrong_arguments_end_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == command.WRONG_ARGUMENTS


@pytest.mark.parametrize(
    "problem",
    [
        PatternError("no variable b", hint="add b"),
        RuntimeError(
            f"PythonException: Traceback ... {WorkerError(LimitError('too many', hint='less'))}"
        ),
    ],
)
def test_an_error_of_the_library_ends_with_1_and_its_hint(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(problem, monkeypatch)
    assert command.main(["demo"]) == command.FAILED
    assert "hint:" in capsys.readouterr().err


def test_a_spark_that_cannot_start_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(SparkStartError("no Java"), monkeypatch)
    assert command.main(["demo"]) == command.NO_SPARK
    assert capsys.readouterr().err == "spark-cep: no Java\n"


def test_an_error_of_somebody_else_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(ZeroDivisionError(), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        command.main(["demo"])


def test_a_statement_and_its_tables_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[statements.StatementTask] = []
    monkeypatch.setattr(statements, "run_statement", ran.append)
    monkeypatch.setattr(statements, "explain_statement", ran.append)
    tables = ["--table", "t=ticks.csv", "--table", "u=a=b"]
    assert command.main(["run", "--sql", "SELECT 1", *tables, "--out", "x.json"]) == command.DONE
    assert command.main(["explain", "--sql", "SELECT 1", "--json"]) == command.DONE
    wanted = statements.StatementTask("SELECT 1", {"t": "ticks.csv", "u": "a=b"}, "x.json")
    assert ran == [wanted, statements.StatementTask("SELECT 1", {}, as_json=True)]


def test_a_format_that_is_not_known_is_refused_before_spark_starts() -> None:
    assert command.main(["run", "--sql", "SELECT 1", "--table", "t=ticks.xls"]) == command.FAILED


def test_a_statement_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "query.sql"
    path.write_text("SELECT 1")
    assert statements.statement_of(str(path)) == "SELECT 1"
    assert statements.statement_of("SELECT 2") == "SELECT 2"


def test_warming_up_prints_where_the_compiled_matcher_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "warm_up", lambda _: "/shared/matcher.bin")
    assert command.main(["warm-up"]) == command.DONE
    assert capsys.readouterr().out.endswith("compiled: /shared/matcher.bin\n")
