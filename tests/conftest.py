"""What all tests share: known random cases; services, started when first asked for, stopped at
the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.random_cases import use_known_cases
from tests.services.http_service import JsonService, running_http
from tests.services.postgres_service import Postgres, running_postgres
from tests.services.redis_service import Redis, running_redis

use_known_cases()


@pytest.fixture(scope="session")
def redis_of_session() -> Iterator[Redis]:
    with running_redis() as server:
        yield server


@pytest.fixture
def redis_server(redis_of_session: Redis) -> Redis:
    """An empty Redis."""
    redis_of_session.admin.flushall()
    return redis_of_session


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def json_service() -> Iterator[JsonService]:
    with running_http() as service:
        yield service
