"""The command line: `spark-cep`.

Answers go to standard output and progress to standard error, so that `spark-cep demo --json | jq`
works. Exit codes: 0 done, 1 the library refused or a limit ended the query, 2 wrong arguments,
3 Spark could not start (most often: no Java).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from spark_cep import __version__
from spark_cep.cli import demo, statements
from spark_cep.errors import CepError, error_of
from spark_cep.spark.session import SparkStartError

DONE, REFUSED, WRONG_ARGUMENTS, NO_SPARK = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return DONE
    try:
        _run_command(given)
    except SparkStartError as problem:
        print(f"spark-cep: {problem}", file=sys.stderr)
        return NO_SPARK
    except Exception as problem:
        return _report_problem(problem)
    return DONE


def _run_command(given: argparse.Namespace) -> None:
    if given.command == "demo":
        demo.run_demo(rows=given.rows, as_json=given.json)
        return
    tables = dict(given.table)
    if given.command == "run":
        statements.run_statement(statements.StatementTask(given.sql, tables, given.out, given.json))
    else:
        statements.explain_statement(
            statements.StatementTask(given.sql, tables, as_json=given.json)
        )


def _report_problem(problem: Exception) -> int:
    ours: CepError | None = error_of(problem)
    if ours is None:
        raise problem
    print(f"spark-cep: {ours}", file=sys.stderr)
    return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-cep",
        description="Patterns over time in Spark DataFrames.",
        epilog="exit codes: 0 done, 1 refused or a limit reached, 2 wrong arguments, "
        "3 Spark could not start",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    command = commands.add_parser(
        "demo",
        help="find card fraud in generated payments, print the plan and the matches",
        description="Generates card payments, looks for a fraud pattern in them, and prints the "
        "plan and the matches.",
    )
    command.add_argument(
        "--rows",
        type=_parse_row_count,
        default=demo.ROWS,
        metavar="N",
        help="payments (%(default)s)",
    )
    command.add_argument("--json", action="store_true", help="one JSON object, for programs")
    running = _statement_command(
        commands,
        "run",
        "run a statement with MATCH_RECOGNIZE over files, print or write the answer",
        "the answer, a row a line",
    )
    running.add_argument(
        "--out", metavar="PATH", help="write the answer: .parquet, .csv, .json or .orc"
    )
    _statement_command(
        commands,
        "explain",
        "print how the patterns of a statement are matched",
        "the plan",
    )
    return parser


def _statement_command(commands: Any, name: str, what: str, as_json: str) -> Any:
    command = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}. All of Spark SQL may stand in it.",
        epilog=f"example: spark-cep {name} --sql dips.sql --table ticks=ticks.parquet",
    )
    command.add_argument(
        "--sql", required=True, metavar="FILE|TEXT", help="the statement, or a file that holds it"
    )
    command.add_argument(
        "--table", action="append", default=[], type=_parse_table, metavar="NAME=PATH",
        help="a table of the statement: a file or folder; may be given several times",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help=f"JSON, for programs: {as_json}")
    return command


def _parse_table(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, path


def _parse_row_count(text: str) -> int:
    rows = int(text)
    if rows < demo.FEWEST_ROWS:
        raise argparse.ArgumentTypeError(f"at least {demo.FEWEST_ROWS} rows, not {rows}")
    return rows
