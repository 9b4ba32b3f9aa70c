"""The generated streams and queries of the eires paper (Table 2, Listings 2 to 4).

Sizes are those of the published programs: events of one of four types, with an `id` from 1 to 10;
windows of 6 and 8 milliseconds; a cache of 2,000 elements, which is 10 % of the keys. How often
events come is not published: every 20 microseconds here, so a window has 300 or 400 of them. Where
a value of a remote element is compared, and where `a.v1 = d.v1`, values are equal modulo a small
number: two of 20,000 values are equal so rarely that few matches would be left to measure.

The case studies have data of the shape of the paper's: what satellites and a cluster report is not
published in a form that fits here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from spark_cep.pattern import Pattern, any_of, event, seq

KEYS = 20_000
IDS = 10
EXPONENT = 1.01
# Seconds between events.
GAP = 20e-6
Dataset = Literal["DS1", "DS2"]
Columns = Mapping[str, np.ndarray]


# ---- streams -----------------------------------------------------------------------------------


def stream(dataset: str, events: int, seed: int = 0) -> Columns:
    """Columns by name. `kind` 0 to 3 for A to D; `v2` as a key follows the keys of `v1`; `x` and
    `y` are what values of remote elements are compared with."""
    random = np.random.default_rng(seed)
    shares = np.full(KEYS, 1 / KEYS)
    if dataset == "DS2":
        shares = np.arange(1, KEYS + 1, dtype=np.float64) ** -EXPONENT
        shares /= shares.sum()
    v1, v2 = (random.choice(KEYS, events, p=shares) for _ in range(2))
    return {
        "t": np.arange(events),
        "kind": random.integers(0, 4, events),
        "id": random.integers(0, IDS, events),
        "v1": v1,
        "v2": v2 + KEYS,
        "half": v1 % 2,
        "x": (v1 % 2).astype(np.float64),
        "y": (v2 % 5).astype(np.float64),
    }


def answer(key: int, modulus: int) -> float:
    """What the remote element of a key says: any function that spreads keys evenly."""
    return float((key * 0x9E3779B97F4A7C15 >> 40) % modulus)


# ---- queries -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """`name` as in the figures. `windows`: in events, non-greedy and greedy. `modulus`: values of
    the source are below it. `partition_by`: what is the same in all events of a match. `rows`: its
    stream, by dataset and number of events."""

    name: str
    pattern: Pattern
    windows: tuple[int, int]
    modulus: int
    partition_by: tuple[str, ...] = ()
    rows: Callable[[str, int], Columns] = stream

    def within(self, *, greedy: bool) -> Pattern:
        pattern = self.pattern.within(self.windows[greedy])
        return pattern if greedy else pattern.strategy("skip till next match")


def _kinds(names: str, kinds: str) -> list[Pattern]:
    return [
        event(name, f"kind = {'ABCD'.index(kind)}") for name, kind in zip(names, kinds, strict=True)
    ]


def _eight(name: str, *conditions: str) -> Query:
    """A sequence of eight events: A, B, C, D twice."""
    pattern = seq(*_kinds("abcdefgh", "ABCDABCD")).where("a.half = d.half", *conditions)
    return Query(name, pattern, (400, 300), 2, ("id",))


# The keys are those of earlier events: a lookup ahead is possible, which the paper's text on
# lookahead classes and its figures for PFetch need.
Q1 = _eight("Q1", "d.x = remote('values', a.v1)", "h.x = remote('values', b.v1)")
# Listing 2 word by word: the key is that of the event that needs it.
Q1_PRINTED = _eight("Q1 as printed", "a.x = remote('values', d.v1)", "b.x = remote('values', h.v1)")
# Figure 12: the remote condition at the very end, and earlier.
Q1_LAST = _eight("Q1, remote last", "h.x = remote('values', a.v1)")


def early(classes: int) -> Query:
    """Q1 with its only remote condition where so many classes come after it."""
    tested = "abcdefgh"[7 - classes]
    return _eight(f"Q1, {classes} after", f"{tested}.x = remote('values', a.v1)")


Q2 = Query(
    "Q2",
    any_of(
        seq(*_kinds("abcd", "ABCD")).where("a.v1 = b.v1", "d.y = remote('values', a.v1)"),
        seq(*_kinds("pqr", "ACB")).where("p.v1 = r.v1", "q.y = remote('values', p.v2)"),
    ),
    (400, 400),
    5,
)


# ---- case studies ------------------------------------------------------------------------------


def fires(_: str, events: int, seed: int = 0) -> Columns:
    """Radiation of 200 areas in three channels (0 to 2 for 7, 14 and 16), high one time in three;
    each report names the sensor of one of 2,000 stations nearby."""
    random = np.random.default_rng(seed)
    area = random.integers(0, 200, events)
    return {
        "t": np.arange(events),
        "area": area,
        "channel": random.integers(0, 3, events),
        "level": random.random(events),
        "station": area * 10 + random.integers(0, 10, events),
    }


def tasks(_: str, events: int, seed: int = 0) -> Columns:
    """The life of tasks in a cluster, 100 under way at a time: submitted (0), scheduled (1) and
    evicted (2) on a machine, up to three times, or failed (3). 12,500 machines in 20 regions."""
    random = np.random.default_rng(seed)
    kind, task, machine = (np.empty(events, np.int64) for _ in range(3))
    running = [(number, 0, 0) for number in range(100)]
    begun = len(running)
    for row in range(events):
        place = int(random.integers(0, len(running)))
        number, step, where = running[place]
        if step % 2:
            where = int(random.integers(0, 12_500))
        kind[row] = (0, 1, 2, 1, 2, 1, 3)[step]
        task[row], machine[row] = number, where
        running[place] = (number, step + 1, where)
        # One in five is finished for good after each eviction.
        if step == 6 or (step in (2, 4) and random.random() < 0.2):
            running[place] = (begun, 0, 0)
            begun += 1
    region = (machine % 20).astype(np.float64)
    return {"t": np.arange(events), "task": task, "kind": kind, "machine": machine,
            "region": region}  # fmt: skip


# Two rounds of the three channels, each with a condition on the station's values.
BUSHFIRE = Query(
    "bushfire",
    seq(*(event(name, f"channel = {place % 3} AND level > 0.66")
          for place, name in enumerate("abcdef"))).where(
        "c.level < remote('values', c.station) / 2", "f.level < remote('values', f.station) / 2",
        "a.level < b.level",
    ),
    (6_000, 6_000), 4, ("area",), fires,
)  # fmt: skip
CLUSTER = Query(
    "cluster",
    seq(*(event(name, f"kind = {kind}")
          for name, kind in zip("abcdefg", (0, 1, 2, 1, 2, 1, 3), strict=True))).where(
        "b.machine = c.machine", "d.machine = e.machine", "f.machine = g.machine",
        "b.region <> remote('values', d.machine)", "d.region <> remote('values', f.machine)",
    ),
    (5_000, 5_000), 20, ("task",), tasks,
)  # fmt: skip
