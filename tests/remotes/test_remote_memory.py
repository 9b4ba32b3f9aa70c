"""What a lookup keeps of the keys that it has seen: no more than its cache may take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.errors import RemoteError
from spark_cep.udfs.events.remote_needs import need_history
from spark_cep.udfs.remote_spec import Caching, FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes import lookup as lookup_module
from spark_cep.udfs.remotes.keys import KEY_BYTES
from spark_cep.udfs.remotes.lookup import Lookup
from spark_cep.udfs.remotes.stage import LookupStage, StageColumn, look_up_batches
from tests.remotes.simulated import Source, failing, ids_of, looked_up


def batches_of_strings(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, size):
        keys = pa.array([f"customer-{key:08d}" for key in range(start, start + size)])
        yield pa.RecordBatch.from_arrays([keys, keys], ["p0", "k0_0"])


def lengths(keys: list[str]) -> dict[str, int]:
    return {key: int(key[-3:]) for key in keys}


def test_a_stage_keeps_its_keys_within_the_cache_while_batches_pass() -> None:
    remote = RemoteSpec("r", lengths, (pa.string(),), pa.int64(), caching=Caching(capacity=1 << 20))
    stage = LookupStage((StageColumn(remote, (1,), pa.int64()),), ("p0", "v0", "metrics"))
    lookup = Lookup(remote)
    most = 0
    tracemalloc.start()
    try:
        for place, batch in enumerate(
            look_up_batches(stage, batches_of_strings(60_000, 1000), (lookup,))
        ):
            assert batch.column("v0").to_pylist() == [n % 1000 for n in range(1000)], place
            most = max(most, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        lookup.close()
    # All keys would take more than 10 MiB: values and keys take 1 MiB each, and five batches wait.
    assert most < 5 << 20
    assert len(lookup._keys) * KEY_BYTES < 3 << 20


def whole_of(key: int) -> int | None:
    return None if key % 7 == 6 else key // 4


def parts_of(whole: int) -> dict[int, int]:
    return {key: key * 10 for key in range(4 * whole, 4 * whole + 3) if whole_of(key) == whole}


class Wholes(Source):
    def __call__(self, keys: list[int]) -> Any:
        super().__call__(keys)
        return {key: parts_of(key) for key in keys}


def value_of(key: int | None, *, has_wholes: bool) -> int | None:
    if key is None or (has_wholes and (whole_of(key) is None or key % 4 == 3)):
        return None
    return key * 10


@pytest.mark.parametrize("seed", range(60))
def test_what_is_forgotten_between_blocks_changes_no_value(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle is the source itself."""
    random = Random(seed)
    monkeypatch.setattr(lookup_module, "LEAST_KEY_BYTES", random.choice([0, KEY_BYTES * 6]))
    has_wholes = random.random() < 0.4
    source = Wholes(delay=0.05) if has_wholes else Source(delay=0.05)
    policy: Any = random.choice(["lru", "cost"])
    lookup, clock = looked_up(
        source,
        strategy=random.choice(["blocking", "cached", "prefetch", "lazy", "hybrid"]),
        caching=Caching(policy, random.choice([0, 40, 400, KEY_BYTES * 8])),
        part_of=whole_of if has_wholes else None,
        fetch_policy=FetchPolicy(batch=3, in_flight=2, retries=9, backoff=0.01),
    )
    held: list[tuple[list[int | None], Any]] = []
    for _ in range(60):
        keys = [random.choice([None, *range(40)]) for _ in range(random.randint(0, 6))]
        ids = ids_of(lookup, *keys)
        step = random.random()
        if random.random() < 0.1 and not has_wholes:
            source.answers.append(failing())
        if step < 0.2:
            lookup.ask(ids, ahead=True)
        elif step < 0.4:
            lookup.ask(ids)
            held.append((keys, ids))
        elif step < 0.5 and len(ids):
            lookup.needed(ids[ids >= 0], np.ones(int((ids >= 0).sum())), random.randint(0, 2))
        elif step < 0.6:
            lookup.end()
        elif step < 0.65:
            lookup.trigger()
            held = []
        elif held:
            keys, ids = held.pop(random.randrange(len(held)))
            lookup.wait(ids)
            wanted = [value_of(key, has_wholes=has_wholes) for key in keys]
            assert lookup.arrow(ids).to_pylist() == wanted
        lookup.settle()
        clock.advance(random.choice([0.0, 0.01, 0.2]))
        if random.random() < 0.7:
            lookup.forget_keys([ids for _, ids in held])
            in_use = {key for keys, _ in held for key in keys} - {None}
            if not lookup.remote.caching.capacity and not lookup._unfinished and not has_wholes:
                present = lookup._states.present()
                spared = int(lookup._states.is_spared(present).sum())
                assert len(lookup._keys) <= max(len(in_use) + spared, 6)
    source.answers = []
    for keys, ids in held:
        lookup.wait(ids)
        wanted = [value_of(key, has_wholes=has_wholes) for key in keys]
        assert lookup.arrow(ids).to_pylist() == wanted


def test_a_failure_is_raised_for_its_key_after_others_were_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup_module, "LEAST_KEY_BYTES", 0)
    source = Source({1: 10, 2: "text", 3: 30})
    lookup, clock = looked_up(source, caching=Caching(capacity=0))
    ids = ids_of(lookup, 3, 2)
    lookup.wait(ids_of(lookup, 1))
    lookup.ask(ids)
    clock.advance(1)
    lookup.settle()
    lookup.arrow(ids_of(lookup, 1))
    lookup.settle()
    history = need_history(lookup)
    lookup.forget_keys([ids])
    assert need_history(lookup) is not history
    assert need_history(lookup) is need_history(lookup)
    assert len(lookup._keys) == 2
    with pytest.raises(RemoteError, match="for key 2 str instead of int64"):
        lookup.wait(ids)
    lookup.wait(ids[:1])
    assert lookup.arrow(ids[:1]).to_pylist() == [30]
