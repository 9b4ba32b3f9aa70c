"""The command line: `spark-cep`.

Answers go to standard output and progress to standard error, so that `spark-cep demo --json | jq`
works. Exit codes: 0 done, 1 an error of the library, 2 wrong arguments, 3 Spark could not start
(usually because there is no Java).
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
from spark_cep.udfs.object_code import CACHE_VARIABLE, warm_up
from spark_cep.udfs.rows import loading

DONE, FAILED, WRONG_ARGUMENTS, NO_SPARK = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return DONE
    try:
        _run_command(options)
    except SparkStartError as problem:
        print(f"spark-cep: {problem}", file=sys.stderr)
        return NO_SPARK
    except Exception as problem:
        return _report_problem(problem)
    return DONE


def _run_command(options: argparse.Namespace) -> None:
    if options.command == "demo":
        demo.run_demo(rows=options.rows, as_json=options.json)
        return
    if options.command == "warm-up":
        print(f"the matcher of row patterns is compiled: {warm_up(loading.MATCHER)}")
        return
    tables, as_json = dict(options.table), options.json
    if options.command == "run":
        task = statements.StatementTask(options.sql, tables, options.out, as_json)
        statements.run_statement(task)
    else:
        statements.explain_statement(statements.StatementTask(options.sql, tables, None, as_json))


def _report_problem(problem: Exception) -> int:
    error: CepError | None = error_of(problem)
    if error is None:
        raise problem
    print(f"spark-cep: {error}", file=sys.stderr)
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark-cep",
        description="Event patterns and MATCH_RECOGNIZE for Spark DataFrames.",
        epilog="exit codes: 0 done, 1 an error in the statement or a limit reached, "
        "2 wrong arguments, 3 Spark could not start",
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
    commands.add_parser(
        "warm-up",
        help="compile the matcher of row patterns, so that no query has to",
        description="Compiles the matcher of row patterns, unless this package has it, and keeps "
        f"it where this machine's executors find it: in the folder {CACHE_VARIABLE} if that is "
        "set, else beside the package, in the user's cache, or in the temporary folder. Nothing "
        "is done twice.",
    )
    return parser


def _statement_command(commands: Any, name: str, what: str, as_json: str) -> Any:
    command = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}. The statement may use all of Spark SQL.",
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
