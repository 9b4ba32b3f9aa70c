"""Services as processes of the tests: on loopback, on a free port, without the system's own.

Always holds: nothing of the machine's configuration is read or written, and what was started is
stopped, by its id.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

# Set by .ci/run, which installs the services: there a missing one is an error.
REQUIRED = "SPARK_CEP_NEED_SERVICES"


def missing(what: str, package: str) -> None:
    """Skips the test, or fails it where the service must be there."""
    text = f"{what} is not installed (on Debian: apt install {package})"
    if os.environ.get(REQUIRED):
        pytest.fail(text)
    pytest.skip(text)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Service:
    """A process that can be stopped, started again on the same port, and held still."""

    def __init__(self, command: Sequence[str], log: Path, user: str | None = None) -> None:
        self.command = list(command)
        self.log = log
        self.user = user
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, is_ready: Callable[[], bool], within_s: float = 60.0) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                user=self.user,
                extra_groups=[] if self.user else None,
                start_new_session=True,
                cwd="/",
            )
        until = time.monotonic() + within_s
        while not is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                pytest.fail(f"{self.command[0]} did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def hold(self) -> None:
        """It takes connections, since the kernel does, and answers nothing."""
        for one in self._family():
            one.send_signal(signal.SIGSTOP)

    def release(self) -> None:
        for one in self._family():
            one.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """At once, as when a machine dies."""
        if self.process is not None:
            for one in self._family():
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            self.process.wait()
            self.process = None

    def _family(self) -> list[psutil.Process]:
        if self.process is None or self.process.poll() is not None:
            return []
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]
