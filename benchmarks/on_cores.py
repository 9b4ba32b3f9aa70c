"""The no-key workload in a process that is held to some cores of the machine.

Run by `benchmarks.event_patterns`; prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path


def main() -> None:
    name, cores, folder, rounds, scale = sys.argv[1:]
    # Before anything is started: the JVM and the workers inherit it.
    os.sched_setaffinity(0, set(range(int(cores))))
    from benchmarks.event_patterns import Run, leaping  # noqa: PLC0415
    from benchmarks.floor import floor_of  # noqa: PLC0415
    from benchmarks.session import start  # noqa: PLC0415
    from benchmarks.timing import take_turns  # noqa: PLC0415

    spark = start(int(cores))
    try:
        matches = leaping(Run(Path(folder), int(rounds), float(scale)), spark)
        action = matches.count if name == "match" else lambda: floor_of(matches)
        timed = take_turns({name: action}, rounds=int(rounds), warmups=3)[name]
        print(json.dumps(asdict(timed)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
