"""A Redis of the tests' own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.services.process import Service, free_port, missing


class Redis:
    """What was written is there again when it comes back. `admin` writes."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            missing("redis-server", "redis-server")
            raise AssertionError
        self.port = free_port()
        self.password = password
        command = [
            binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "yes", "--appendfsync", "no", "--dir", str(folder),
        ]  # fmt: skip
        if password is not None:
            command += ["--requirepass", password]
        self.service = Service(command, folder / "log")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def admin(self) -> Any:
        import redis

        return redis.Redis(port=self.port, password=self.password, socket_timeout=5)

    def start(self) -> None:
        self.service.start(self._answers)

    def stop(self) -> None:
        self.service.stop()

    def _answers(self) -> bool:
        import redis

        try:
            return bool(self.admin.ping())
        except redis.RedisError:
            return False


@contextmanager
def running_redis(password: str | None = None) -> Iterator[Redis]:
    with TemporaryDirectory(prefix="spark-cep-redis-") as folder:
        server = Redis(Path(folder), password)
        server.start()
        try:
            yield server
        finally:
            server.service.release()
            server.stop()
