"""Requests to an HTTP service, on one client and a bounded pool of threads for each worker process.

A batch of GETs goes in rounds: what failed in passing is asked again while time is left, after the
pause that the service asked for, at once if the round brought any answer, else after pauses of
this file. If no key at all is answered, or the service says that it is asked too often, the call
fails and going on is up to the retries of the remote; if others are, then a key that keeps
failing has failed by itself. So one bad key in a hundred costs some requests, not the batch.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from spark_cep.udfs.errors import RemoteError
from spark_cep.udfs.sources.decoding import MisfitError, from_json
from spark_cep.udfs.sources.http_answer import Bounds, BusyError, body_of

# The loggers that write URLs and headers.
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy")
# Between rounds that bring nothing, while the service answers other keys.
_PAUSES_S = (0.05, 0.2, 0.8)


@dataclass
class _Rounds:
    """`answers` by URL: JSON, None where there is nothing, or why this one has none."""

    waiting: list[str]
    answers: dict[str, Any] = field(default_factory=dict)
    idle: int = 0

    def heard(self, busy: dict[str, BusyError], bounds: Bounds) -> None:
        """Pauses before the next round, or ends it."""
        progress = len(busy) < len(self.waiting)
        self.waiting = list(busy)
        if not busy:
            return
        first = next(iter(busy.values()))
        named = [error.after for error in busy.values() if error.after is not None]
        if named:
            _pause(max(named), first, bounds)
        elif not self.answers or any(error.too_often for error in busy.values()):
            raise first
        elif not progress and self.idle == len(_PAUSES_S):
            tries = f", asked {self.idle + 1} times or more"
            self.answers |= {url: RemoteError(f"{why}{tries}") for url, why in busy.items()}
            self.waiting = []
        elif not progress:
            _pause(_PAUSES_S[self.idle], first, bounds)
            self.idle += 1


@dataclass(frozen=True)
class Client:
    """A worker's client of one service."""

    http: Any
    threads: ThreadPoolExecutor
    scrubbing: logging.Filter

    def close(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self.scrubbing)
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.http.close()

    def get_all(self, urls: list[str], bounds: Bounds) -> dict[str, Any]:
        """The answers of all these URLs."""
        rounds = _Rounds(list(dict.fromkeys(urls)))
        while rounds.waiting:
            rounds.heard(self._round(rounds, bounds), bounds)
        return rounds.answers

    def _round(self, rounds: _Rounds, bounds: Bounds) -> dict[str, BusyError]:
        """Takes the answers in and gives what failed in passing."""
        asked = [(url, self.threads.submit(self.get, url, bounds)) for url in rounds.waiting]
        busy = {}
        try:
            for url, answer in asked:
                try:
                    rounds.answers[url] = answer.result()
                except BusyError as error:
                    busy[url] = error
        finally:
            # One that fails for all ends the batch: the others need not be asked.
            for _, answer in asked:
                answer.cancel()
        return busy

    def get(self, url: str, bounds: Bounds) -> Any:
        return self._ask("GET", url, bounds)

    def post(self, url: str, body: Any, bounds: Bounds) -> Any:
        """The answer to one POST, asked again where the service says when."""
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        while True:
            try:
                return self._ask("POST", url, bounds, content=content, headers=headers)
            except BusyError as error:
                busy = error
            if busy.after is None:
                raise busy
            _pause(busy.after, busy, bounds)

    def _ask(self, method: str, url: str, bounds: Bounds, **sent: Any) -> Any:
        """Raises BusyError alone for what may pass, other errors for what does not."""
        import httpx  # noqa: PLC0415

        wrong = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
        try:
            with self.http.stream(method, url, timeout=bounds.left(), **sent) as response:
                body = body_of(response, bounds)
            return from_json(body) if isinstance(body, bytes) else body
        except MisfitError as error:
            # The page of some server between may be gone at the next try.
            problem = f"the answer {error}"
        except wrong:
            raise
        except (httpx.TransportError, httpx.StreamError) as error:
            problem = str(error) or type(error).__name__
        raise BusyError(problem)


def connect(headers: dict[str, str], concurrency: int, scrub: Callable[[str], str]) -> Client:
    """A client of its own pool. Nothing is connected yet."""
    import httpx  # noqa: PLC0415

    scrubbing = _Scrubbing(scrub)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(scrubbing)
    http = httpx.Client(
        headers={"Accept": "application/json", **headers},
        follow_redirects=False,
        limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
    )
    threads = ThreadPoolExecutor(concurrency, thread_name_prefix="remote-http")
    return Client(http, threads, scrubbing)


class _Scrubbing(logging.Filter):
    """httpx logs each URL, which may hold a token."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        super().__init__()
        self._scrub = scrub

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._scrub(record.getMessage()), None
        return True


def _pause(seconds: float, busy: BusyError, bounds: Bounds) -> None:
    """Until the service is to be asked again; what failed, where that is too late."""
    if time.monotonic() + seconds >= bounds.until:
        raise busy
    time.sleep(seconds)
