"""Which share of the matches each shedding policy keeps, over patterns of every shape, with Spark.

    python -m benchmarks.shed_shapes [--shapes NAME ...] [--keeps K ...] [--seeds S ...] [--quick]
                                     [--json FILE] [--figures FOLDER]
    python -m benchmarks.shed_shapes --without-spark    the same in a tenth of the time
    python -m benchmarks.shed_shapes --without-spark --policies espice hspice pspice random-partials
                                                        beside methods of the literature
    python -m benchmarks.shed_shapes --read FILE ...    the report of runs that were kept
    python -m benchmarks.shed_shapes --check            are the matches those of the full answer
    python -m benchmarks.shed_shapes --cost             shedding beside the full answer, in seconds

A *cell* is a shape (`shed_shape_rows.py`) and the share of the rows that stays; every policy runs
in it with several seeds. Policies take turns. load_shedding.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

import spark_cep as cep
from benchmarks import shed_shape_engine, shedding
from benchmarks.pictures import FIGURES, draw
from benchmarks.reporting import Claim
from benchmarks.session import start
from benchmarks.shed_shape_figures import (
    BY_HAND,
    KEEPS,
    LITERATURE,
    POLICIES,
    SEEDS,
    UTILITY,
    Cell,
    Outcome,
    Setting,
    cells,
    panels,
    report,
)
from benchmarks.shed_shape_rows import Columns, Shape, in_blocks, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
FULL_ROUNDS = 3
CHECKED = ("chain of 3", "rising list", "NOT", "AND, cyclic", "OR", "optional", "same kind, rising")


# ---- runs --------------------------------------------------------------------------------------


def measure(spark: SparkSession, shape: Shape, setting: Setting, folder: Path) -> list[Outcome]:
    """Every policy with every seed in each cell of the shape, after the full answers."""
    columns = shape.make()
    rows = _write(spark, columns, folder, f"{shape.name} all")
    full = FullAnswer(*_time_full(rows, shape))
    found: list[Outcome] = []
    for keep in setting.keeps:
        for seed in setting.seeds:
            for policy in setting.policies:
                shed = cep.Shed(keep=keep, policy=policy, seed=seed)
                found.append(_ask(rows, shape, shed, full))
            if setting.by_hand:
                here = in_blocks(shape, columns, keep, seed)
                some = {name: values[here] for name, values in columns.items()}
                few = _write(spark, some, folder, f"{shape.name} {keep} {seed}")
                kept = full.share(match(few, shape).count())
                found.append(Outcome(shape.name, keep, BY_HAND, seed, kept, full.seconds))
        _progress(full, [each for each in found if each.keep == keep])
    return found


@dataclass(frozen=True)
class FullAnswer:
    """Its matches, and the median of its seconds."""

    matches: int
    seconds: float

    def share(self, matches: int) -> float:
        return matches / max(self.matches, 1)


def _time_full(rows: DataFrame, shape: Shape) -> tuple[int, float]:
    # The first one does not count.
    matches, taken = match(rows, shape).count(), []
    for _ in range(FULL_ROUNDS):
        started = time.perf_counter()
        match(rows, shape).count()
        taken.append(time.perf_counter() - started)
    return matches, statistics.median(taken)


def _ask(rows: DataFrame, shape: Shape, shed: cep.Shed, full: FullAnswer) -> Outcome:
    started = time.perf_counter()
    answer = match(rows, shape, shed)
    called = time.perf_counter()
    kept = full.share(answer.count())
    ended = time.perf_counter()
    facts = cep.plan_of(answer).to_dict()["shedding"]
    assert shed.keep is not None
    return Outcome(
        shape.name,
        shed.keep,
        shed.policy,
        shed.seed,
        kept,
        full.seconds,
        _stayed(answer),
        facts.get("estimated_recall"),
        _pair(facts.get("recall_interval")),
        facts.get("recall_unknown"),
        called - started,
        ended - called,
    )


def _progress(full: FullAnswer, outcomes: Sequence[Outcome]) -> None:
    cell = Cell(outcomes[0].shape, outcomes[0].keep, tuple(outcomes))
    kept = ", ".join(f"{each} {100 * cell.kept(each):.1f}" for each in cell.policies)
    print(f"{cell.name}: {kept} of {full.matches:,} matches, {full.seconds:.2f} s in full",
          file=sys.stderr, flush=True)  # fmt: skip


def match(ticks: DataFrame, shape: Shape, shed: cep.Shed | None = None, **more: Any) -> DataFrame:
    return cep.match_pattern(
        ticks, shape.pattern, partition_by=shape.partition, order_by="t", shed=shed, **more
    )


def _pair(interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (float(interval[0]), float(interval[1]))


def _stayed(answer: DataFrame) -> float | None:
    """Every row of a shape may be one variable, or all: the sums are in proportion to the rows."""
    counts = (cep.metrics(answer).get("shed") or {}).values()
    kept, dropped = (sum(each[name] for each in counts) for name in ("kept", "dropped"))
    return kept / (kept + dropped) if kept + dropped else None


def _write(spark: SparkSession, columns: Columns, folder: Path, name: str) -> DataFrame:
    """The rows as Parquet, in as many files as partitions, each a stretch of time."""
    path = folder / name.replace(" ", "-").replace(",", "")
    path.mkdir()
    whole = pa.table(dict(columns))
    size = -(-whole.num_rows // PARTITIONS)
    for part in range(PARTITIONS):
        pq.write_table(whole.slice(part * size, size), path / f"part-{part}.parquet")
    return spark.read.parquet(str(path))


# ---- no match is invented ----------------------------------------------------------------------


def check(spark: SparkSession, shapes: Sequence[Shape], keep: float, folder: Path) -> list[Claim]:
    """Whether the matches of every policy, by the numbers of their rows, are some of the full
    answer's, none of them twice."""
    found = []
    for shape in shapes:
        rows = _write(spark, shape.make(), folder, f"{shape.name} checked")
        everything = match_rows(rows, shape)
        for policy in POLICIES:
            kept = match_rows(rows, shape, cep.Shed(keep=keep, policy=policy))
            text = f"{shape.name}, {policy}: every match is one of the full answer"
            found.append(claim_of_subset(text, kept, everything))
            print(found[-1].line(), flush=True)
    return found


def match_rows(rows: DataFrame, shape: Shape, shed: cep.Shed | None = None) -> list[str]:
    """The variables and numbers of the rows of each match, as text."""
    event = F.concat_ws(" ", "variable", F.format_string("%08d", "i"))
    answer = match(rows, shape, shed, rows="all").groupBy("match_id")
    events = answer.agg(F.array_join(F.sort_array(F.collect_list(event)), ", ").alias("events"))
    return [str(each) for each in events.toPandas()["events"]]


def claim_of_subset(text: str, kept: Sequence[object], everything: Sequence[object]) -> Claim:
    invented = len({*kept} - {*everything})
    twice = len(kept) - len({*kept})
    figures = f"{len(kept):,} of {len(everything):,}, {invented:,} invented, {twice:,} twice"
    return Claim(text, not invented and not twice, figures)


# ---- the program -------------------------------------------------------------------------------


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = start()
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    try:
        yield spark
    finally:
        spark.stop()


def read(files: Sequence[Path]) -> list[Outcome]:
    """What `--json` wrote; of an outcome that is in several files the last."""
    found: dict[tuple[object, ...], Outcome] = {}
    for file in files:
        for each in json.loads(file.read_text()):
            outcome = Outcome(**{**each, "interval": _pair(each["interval"])})
            found[outcome.shape, outcome.keep, outcome.policy, outcome.seed] = outcome
    return [*found.values()]


def run(shapes: Sequence[Shape], setting: Setting, json_file: Path | None) -> list[Outcome]:
    """The outcomes of all shapes; the file is written after each of them."""
    found: list[Outcome] = []
    with ExitStack() as stack:
        if setting.with_spark:
            spark = stack.enter_context(_session())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for shape in shapes:
            if setting.with_spark:
                found += measure(spark, shape, setting, folder)
            else:
                found += shed_shape_engine.measure(shape, setting)
            if json_file is not None:
                json_file.write_text(json.dumps([asdict(each) for each in found]))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Load shedding over patterns of every shape.")
    parser.add_argument("--shapes", nargs="+", default=[], metavar="NAME", help="these alone")
    known = (*POLICIES, *LITERATURE)
    parser.add_argument("--policies", nargs="+", choices=known, help="utility, and these")
    parser.add_argument("--keeps", nargs="+", type=float, metavar="K", help="shares of the rows")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="S", help="of the policies")
    parser.add_argument("--quick", action="store_true", help="one seed, keep 0.3")
    parser.add_argument("--by-hand", action="store_true", help="whole keys by hand, too")
    parser.add_argument("--without-spark", action="store_true", help="the engine alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there")
    parser.add_argument("--read", nargs="+", type=Path, metavar="FILE", help="report on these")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw it there")
    parser.add_argument("--check", action="store_true", help="compare matches with the full ones")
    parser.add_argument("--cost", action="store_true", help="seconds beside the full answer")
    parser.add_argument("--rounds", type=int, default=3, help="of --cost")
    given = parser.parse_args(arguments)
    # That shedding costs more than it saves for so few rows is no news here.
    warnings.simplefilter("ignore", cep.PatternWarning)
    if given.cost:
        quick = ["--quick"] if given.quick else []
        shedding.main(["batch", "steep", "--rounds", str(given.rounds), *quick])
        return
    if given.check:
        with _session() as spark, tempfile.TemporaryDirectory() as folder:
            checked = check(spark, named(given.shapes or CHECKED), 0.3, Path(folder))
        raise SystemExit(not all(claim.holds for claim in checked))
    setting = Setting(
        tuple(dict.fromkeys((UTILITY, *(given.policies or POLICIES)))),
        given.keeps or ((0.3,) if given.quick else KEEPS),
        given.seeds or (SEEDS[:1] if given.quick else SEEDS),
        given.by_hand,
        not given.without_spark,
    )
    outcomes = read(given.read) if given.read else run(named(given.shapes), setting, given.json)
    print(report(outcomes))
    if given.figures or not (given.quick or given.shapes):
        draw("load-shedding-shapes", panels(cells(outcomes)), given.figures or FIGURES)


if __name__ == "__main__":
    main()
