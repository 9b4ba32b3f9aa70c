"""The command line: `spark-cep`.

Answers go to standard output and progress to standard error, so that `spark-cep demo --json | jq`
works. Exit codes: 0 done, 1 the library refused or a limit ended the query, 2 wrong arguments,
3 Spark could not start (most often: no Java).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from spark_cep import demo
from spark_cep.errors import CepError, error_of

DONE, REFUSED, WRONG_ARGUMENTS, NO_SPARK = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return DONE
    try:
        demo.run(rows=given.rows, as_json=given.json)
    except demo.SparkUnavailable as problem:
        print(f"spark-cep: {problem}", file=sys.stderr)
        return NO_SPARK
    except Exception as problem:
        return _report(problem)
    return DONE


def _report(problem: Exception) -> int:
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
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('spark-cep')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    command = commands.add_parser(
        "demo",
        help="find card fraud in generated payments, print the plan and the matches",
        description="Generates card payments, looks for a fraud pattern in them, and prints the "
        "plan and the matches.",
    )
    command.add_argument(
        "--rows", type=_row_count, default=demo.ROWS, metavar="N", help="payments (%(default)s)"
    )
    command.add_argument("--json", action="store_true", help="one JSON object, for programs")
    return parser


def _row_count(text: str) -> int:
    rows = int(text)
    if rows < demo.FEWEST_ROWS:
        raise argparse.ArgumentTypeError(f"at least {demo.FEWEST_ROWS} rows, not {rows}")
    return rows


if __name__ == "__main__":
    sys.exit(main())
