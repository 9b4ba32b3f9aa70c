"""An intruder who came through the main gate, seen by three cameras.

Example 1 of "Efficient Adaptive Detection of Complex Event Patterns" (Kolchinsky, Schuster; VLDB
2018). Camera A watches the main gate, B the lobby, C the restricted area, which has an entrance
of its own. Who is seen by A, then B, then C did not take that one. There the pattern is written

    PATTERN SEQ(A a, B b, C c)
    WHERE ((a.person_id = b.person_id) ^ (b.person_id = c.person_id))
    WITHIN 10 minutes

All three are tied by the person, so the work is dealt out by person without being told to:
see "partition" in the plan. Run it with `python examples/security_cameras.py`.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

import spark_cep as cep
from spark_cep import event, seq

INTRUDER = (
    seq(event("a", "camera = 'A'"), event("b", "camera = 'B'"), event("c", "camera = 'C'"))
    .where("a.person_id = b.person_id", "b.person_id = c.person_id")
    .within("10 minutes")
)

EIGHT = datetime(2018, 8, 27, 8, 0, tzinfo=UTC)
VISITORS, STAFF = 3_000, 60
INTRUDERS = frozenset({7, 1_984, 2_501})


def sightings(spark: SparkSession) -> DataFrame:
    """A day of visitors (gate, often lobby), staff (restricted area only) and three intruders."""
    chance = random.Random(2018)
    rows = []

    def seen(camera: str, person: int, at: float) -> None:
        rows.append((camera, person, EIGHT + timedelta(seconds=round(at))))

    for visitor in range(VISITORS):
        arrival = chance.uniform(0, 9 * 3600)
        seen("A", visitor, arrival)
        if visitor in INTRUDERS or chance.random() < 0.3:
            seen("B", visitor, arrival + chance.uniform(30, 180))
        if visitor in INTRUDERS:
            seen("C", visitor, arrival + chance.uniform(200, 500))
    for employee in range(VISITORS, VISITORS + STAFF):
        for _ in range(5):
            seen("C", employee, chance.uniform(0, 9 * 3600))
    return spark.createDataFrame(rows, "camera string, person_id int, ts timestamp")


def main(spark: SparkSession) -> DataFrame:
    matches = sightings(spark).match_pattern(
        INTRUDER,
        order_by="ts",
        measures={"person_id": "a.person_id", "gate": "a.ts", "lobby": "b.ts", "inside": "c.ts"},
    )
    cep.explain(matches)
    matches.orderBy("gate").show(truncate=False)
    return matches


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what runs this
    builder = SparkSession.builder.appName("security cameras")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    main(session)
    session.stop()
