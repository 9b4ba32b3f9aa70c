"""Purchases above a limit that only a service knows, in places that the customer does not know.

The situation of "EIRES: Efficient Integration of Remote Data in Event Stream Processing" (Zhao,
van der Aa, Nguyen, Nguyen, Weidlich; SIGMOD 2021): a condition needs what the stream does not
carry, and a lookup takes longer than everything else. There the query is written

    SEQ(T1 t1, T2 t2) WHERE t1.user = t2.user ^ t2.loc NOT IN REMOTE[t1.user] ... WITHIN 30 minutes

The service here is an HTTP server on this machine that takes 20 ms for an answer. Limits are a
table. What was looked up where, and how long matching waited for it, is printed at the end.

Run it with `python examples/remote_limits.py`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

import spark_cep as cep
from spark_cep import event, seq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLACES = ("Rome", "Oslo", "Lima", "Bern", "Kyiv", "Doha")
USERS, PURCHASES, DELAY_S = 300, 12, 0.02
THIEVES = frozenset({17, 123, 250})
MORNING = datetime(2021, 6, 20, 8, 0, tzinfo=UTC)

STOLEN = (
    seq(event("t1", "amount < 20"), event("t2", "amount > remote('limits', user)"))
    .where("t1.user = t2.user", "t2.place NOT IN remote('places', t1.user)")
    .within("30 minutes")
)


def known(user: int) -> list[str]:
    """The places where a user has been."""
    return sorted(random.Random(user).sample(PLACES, 3))


class Service(BaseHTTPRequestHandler):
    """POST {"users": [...]} gives their places."""

    def do_POST(self) -> None:
        time.sleep(DELAY_S)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({str(user): known(user) for user in asked["users"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    """The service, and its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/places"
    finally:
        server.shutdown()
        server.server_close()


def places_from(address: str) -> Callable[[list[int]], dict[int, list[str]]]:
    """What the workers call. `cep.Remote.http(address, method="POST", ...)` does the same, and
    needs httpx."""

    def places(users: list[int]) -> dict[int, list[str]]:
        from urllib.request import Request, urlopen  # noqa: PLC0415 - it runs in the workers

        body = json.dumps({"users": users}).encode()
        with urlopen(Request(address, body), timeout=5) as answer:
            found = json.load(answer)
        return {user: found[str(user)] for user in users if str(user) in found}

    return places


def purchases(spark: SparkSession) -> DataFrame:
    """A day in places that users know; of three thieves a small sum, then a large one away."""
    chance = random.Random(2021)
    rows = []
    for user in range(USERS):
        for _ in range(PURCHASES):
            at = MORNING + timedelta(seconds=chance.randrange(12 * 3600))
            rows.append((user, at, chance.choice(known(user)), round(chance.uniform(5, 150), 2)))
    for user in sorted(THIEVES):
        at = MORNING + timedelta(seconds=chance.randrange(12 * 3600))
        away = next(place for place in PLACES if place not in known(user))
        rows += [(user, at, known(user)[0], 9.0), (user, at + timedelta(minutes=4), away, 900.0)]
    return spark.createDataFrame(rows, "user int, at timestamp, place string, amount double")


def limits(spark: SparkSession) -> DataFrame:
    rows = [(user, 50.0 + user % 7 * 10) for user in range(USERS)]
    return spark.createDataFrame(rows, "user int, most double")


def main(spark: SparkSession) -> DataFrame:
    with serving() as address:
        matches = purchases(spark).match_pattern(
            STOLEN,
            order_by="at",
            remotes={
                "limits": cep.Remote.table(limits(spark), key="user", value="most"),
                "places": cep.Remote.fetch(places_from(address), "array<string>", batch_size=25),
            },
            measures={
                "user": "t2.user",
                "place": "t2.place",
                "amount": "t2.amount",
                "over": "t2.amount - remote('limits', t2.user)",
            },
        )
        cep.explain(matches)
        # The service is there as long as this block.
        found = spark.createDataFrame(matches.collect(), matches.schema)
    found.orderBy("user").show(truncate=False)
    for name, value in cep.metrics(matches)["remotes"]["places"].items():
        sys.stdout.write(f"{name:<16} {value:.3g}\n")
    return found


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what runs this
    builder = SparkSession.builder.appName("remote limits")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    main(session)
    session.stop()
