"""What is connected is closed behind each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_cep.udfs.sources import clients


@pytest.fixture(autouse=True)
def _connections_are_closed() -> Iterator[None]:
    yield
    clients.forget_all_clients()
