"""A PostgreSQL of the tests' own, whose users need passwords."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from tests.services.process import Service, free_port, missing

OWNER = "owner"
# Signs that mean something in URLs, in SQL and in Python.
PASSWORD = "p4ss w:rd/@'\"%"


class Postgres:
    """A cluster in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.user = _user()
        if self.user is not None:
            shutil.chown(folder, self.user)
        binaries = _binaries()
        self._create(binaries)
        command = [
            str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(self.port),
            "-h", "127.0.0.1", "-k", str(folder), "-F", "-c", "max_connections=40",
        ]  # fmt: skip
        self.service = Service(command, folder / "log", self.user)

    def url(self, user: str = OWNER, password: str | None = PASSWORD) -> str:
        secret = "" if password is None else f":{quote(password, safe='')}"
        return f"postgresql+psycopg://{user}{secret}@127.0.0.1:{self.port}/postgres"

    def execute(self, *statements: str) -> None:
        with self._connected() as connection:
            for statement in statements:
                connection.execute(statement)

    def start(self) -> None:
        self.service.start(self._answers)

    def stop(self) -> None:
        self.service.stop()

    def _create(self, binaries: Path) -> None:
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        if self.user is not None:
            shutil.chown(secret, self.user)
        subprocess.run(
            [
                binaries / "initdb", "-D", self.folder / "data", "-U", OWNER, "-A", "scram-sha-256",
                f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "--no-sync",
            ],
            check=True, capture_output=True, user=self.user, cwd="/",
            extra_groups=[] if self.user else None,
        )  # fmt: skip

    def _connected(self) -> Any:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=OWNER, password=PASSWORD, dbname="postgres",
            autocommit=True, connect_timeout=5,
        )  # fmt: skip

    def _answers(self) -> bool:
        import psycopg

        try:
            self._connected().close()
        except psycopg.OperationalError:
            return False
        return True


def _user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _binaries() -> Path:
    """Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    missing("PostgreSQL", "postgresql")
    raise AssertionError


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    with TemporaryDirectory(prefix="spark-cep-postgres-") as folder:
        server = Postgres(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.service.release()
            server.stop()
