"""An HTTP service in a thread, whose answers a test decides."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Reply:
    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class JsonService:
    """`answer` is what it says; `asked` what it was asked, `most` how much at once."""

    def __init__(self) -> None:
        self.answer: Callable[[Asked], Reply] = lambda asked: Reply(status=404)
        self.asked: list[Asked] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                service._connections.append(self.connection)

            def do_GET(self) -> None:
                self._serve(b"")

            def do_POST(self) -> None:
                self._serve(self.rfile.read(int(self.headers["Content-Length"])))

            def _serve(self, body: bytes) -> None:
                reply = service.reply(Asked(self.command, self.path, dict(self.headers), body))
                with suppress(OSError):
                    self.send_response(reply.status)
                    for name, value in reply.headers.items():
                        self.send_header(name, value)
                    if "Content-Length" not in reply.headers:
                        self.send_header("Content-Length", str(len(reply.content)))
                    self.end_headers()
                    self.wfile.write(reply.content)
                if "Content-Length" in reply.headers:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def reply(self, asked: Asked) -> Reply:
        with self._lock:
            self.asked.append(asked)
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            return self.answer(asked)
        finally:
            with self._lock:
                self._now -= 1

    def stop(self) -> None:
        """The connections that clients keep open, too."""
        self._server.shutdown()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()


@contextmanager
def running_http() -> Iterator[JsonService]:
    service = JsonService()
    try:
        yield service
    finally:
        service.stop()
