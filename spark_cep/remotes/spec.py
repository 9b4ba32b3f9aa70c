"""What goes to the workers of a remote source: the user's, with everything decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from spark_cep.remotes.remote import Fetched
from spark_cep.remotes.remote import Remote as Given
from spark_cep.udfs.remotes.spec import Remote

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.remotes.choice import Decided


def new_token() -> str:
    """One for each call of match_pattern: no two queries share a cache."""
    return uuid4().hex


def shipped(
    remote: Given, name: str, types: tuple[Sequence[pa.DataType], pa.DataType], how: Decided,
    token: str,
) -> Remote:  # fmt: skip
    """`types`: those of the key's parts, and of the value. A source that this library has is told
    of them here, so that what does not fit is said before any job."""
    keys, value = types
    source = remote.source
    assert isinstance(source, Fetched)
    reading = getattr(source.fn, "reading", None)
    has_reading = getattr(source.fn, "scrub", None) is not None and reading is not None
    return Remote(
        name=name,
        fetch=reading(value, len(keys)) if has_reading and reading is not None else source.fn,
        keys=tuple(keys),
        value=value,
        strategy=how.strategy,
        caching=how.caching,
        patience=source.patience,
        on_error=source.on_error,
        ttl=source.ttl,
        part_of=source.part_of,
        token=token,
    )
