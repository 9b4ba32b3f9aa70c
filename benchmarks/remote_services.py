"""Services that answer after a set delay: a function that sleeps, an HTTP server, a Redis.

    python -m benchmarks.remote_services SECONDS      # the HTTP server, prints its port

All give the same limit for an account. The servers are processes of their own on free ports of
loopback, so that they take no time from the engine's interpreter.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from tempfile import TemporaryDirectory

ACCOUNTS = 10_000
_START_S = 10.0


def limit(account: int) -> float:
    """Spread evenly over 0 to 1."""
    return account * 7_919 % 10_007 / 10_007


@dataclass(frozen=True)
class Sleeping:
    """The function of a user whose service takes so many seconds for a batch."""

    seconds: float

    def __call__(self, accounts: Sequence[int]) -> Mapping[int, float]:
        time.sleep(self.seconds)
        return {account: limit(account) for account in accounts}


@contextmanager
def http_server(seconds: float) -> Iterator[str]:
    """Its URL, for a POST with a batch of keys."""
    command = [sys.executable, "-m", "benchmarks.remote_services", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/limits"
        finally:
            server.terminate()


@contextmanager
def redis_server() -> Iterator[str]:
    """Its URL; `limit:{account}` holds the limits."""
    import redis  # noqa: PLC0415 - an extra

    binary = shutil.which("redis-server")
    if binary is None:
        raise FileNotFoundError("redis-server is not installed")
    port = _free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    with (
        TemporaryDirectory(prefix="spark-cep-redis-") as folder,
        subprocess.Popen([*command, folder], stdout=subprocess.DEVNULL) as server,
    ):
        try:
            with redis.Redis(port=port) as client:
                _until_it_answers(client, redis.RedisError)
                client.mset({f"limit:{each}": limit(each) for each in range(ACCOUNTS)})
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()


def _until_it_answers(client: object, failure: type[Exception]) -> None:
    end = time.monotonic() + _START_S
    while True:
        try:
            client.ping()  # type: ignore[attr-defined]
            return
        except failure:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


# ---- the HTTP server ---------------------------------------------------------------------------


class _Limits(BaseHTTPRequestHandler):
    """Answers a POST of `{"keys": [...]}` with an object from keys to limits."""

    protocol_version = "HTTP/1.1"
    # Headers and body would else wait for each other's acknowledgement, 40 ms.
    wbufsize = -1
    seconds = 0.0

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.seconds)
        body = json.dumps({str(key): limit(key) for key in asked["keys"]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the log would be a line for each request."""


def main() -> None:
    arguments = argparse.ArgumentParser(description="Limits of accounts, after a delay.")
    arguments.add_argument("seconds", type=float)
    _Limits.seconds = arguments.parse_args().seconds
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Limits)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
