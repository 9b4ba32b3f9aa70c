"""What the command line takes, prints and returns. The demo itself runs in tests/spark."""

from __future__ import annotations

import pytest

from spark_cep import cli, demo
from spark_cep.errors import LimitError, PatternError
from spark_cep.udfs.errors import WorkerError


def fail_with(problem: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*, rows: int, as_json: bool) -> None:
        raise problem

    monkeypatch.setattr(demo, "run", run)


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == cli.DONE
    assert "demo" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == cli.DONE
    assert capsys.readouterr().out.startswith("spark-cep ")


@pytest.mark.parametrize("arguments", [["run"], ["demo", "--rows", "x"], ["demo", "--rows", "3"]])
def test_wrong_arguments_end_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == cli.WRONG_ARGUMENTS


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
    assert cli.main(["demo"]) == cli.REFUSED
    assert "hint:" in capsys.readouterr().err


def test_a_spark_that_cannot_start_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(demo.SparkUnavailable("no Java"), monkeypatch)
    assert cli.main(["demo"]) == cli.NO_SPARK
    assert capsys.readouterr().err == "spark-cep: no Java\n"


def test_an_error_of_somebody_else_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(ZeroDivisionError(), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        cli.main(["demo"])
