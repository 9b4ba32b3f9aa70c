"""Generated streams whose statistics change, as columns of numpy: the same seed, the same stream.

A stream is a row of *laws*: for a number of events each kind has its share of them, and each
attribute of each kind a normal distribution. Arrivals are Poisson, so `t`, in ticks, is what
windows are cut from. A law's shares decide the rates, its means the selectivities: the condition
`a.x < b.x` holds for a share of the pairs that only the distance of the two means decides.

`traffic` and `stocks` have the shapes that the adaptive-invariants paper reports of its two
datasets, which are not redistributable: rates and selectivities far apart, and still until they
change completely; or close together, and never still. `apam` is that paper's own generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Columns = Mapping[str, np.ndarray]

SEED = 20_181
TICKS_PER_EVENT = 1_000

# Between the rarest and the most frequent kind of the traffic stream, whatever lies between.
TRAFFIC_SKEW = 50.0
# How far the means of its kinds lie from 0, at most, in standard deviations.
TRAFFIC_SPREAD = 0.4
# The stock stream's shares (their logarithms) and means wander slowly and jitter from law to law.
STOCKS_DRIFT = 0.3
STOCKS_JITTER = 0.1
STOCKS_LAW_EVENTS = 5_000
# After so many laws little is left of where a wandering value was.
STOCKS_MEMORY_LAWS = 20


@dataclass(frozen=True)
class Laws:
    """One row a law. `lengths` in events; `shares` (laws, kinds), each row with the sum 1;
    `means` (laws, kinds) by attribute, for a standard deviation of 1."""

    lengths: np.ndarray
    shares: np.ndarray
    means: Mapping[str, np.ndarray]

    @property
    def kinds(self) -> int:
        return int(self.shares.shape[1])


def drawn(laws: Laws, seed: int = SEED) -> Columns:
    """The events of the laws, in the order of their time, with `kind` from 0 on."""
    random = np.random.default_rng(seed)
    law = np.repeat(np.arange(len(laws.lengths)), laws.lengths)
    bounds = np.cumsum(laws.shares, axis=1)[:, :-1]
    kind = (random.random(len(law))[:, np.newaxis] >= bounds[law]).sum(axis=1)
    gaps = random.exponential(TICKS_PER_EVENT, len(law))
    values = {name: random.normal(means[law, kind]) for name, means in sorted(laws.means.items())}
    return {"t": np.cumsum(gaps).astype(np.int64), "kind": kind, **values}


def traffic(events: int, kinds: int, shifts: int = 3) -> Laws:
    """Shares on a geometric ladder; `shifts` times shares and means are dealt anew, and then what
    was rarest is most frequent, and what was most frequent is rarest or next to it."""
    random = np.random.default_rng([SEED, kinds])
    ladder = TRAFFIC_SKEW ** np.linspace(0, 1, kinds)
    spread = np.linspace(-TRAFFIC_SPREAD, TRAFFIC_SPREAD, kinds)
    places = [random.permutation(kinds)]
    while len(places) <= shifts:
        place, last = random.permutation(kinds), places[-1]
        if place[last.argmin()] == kinds - 1 and place[last.argmax()] <= 1:
            places.append(place)
    shares = np.array([ladder[place] for place in places])
    means = {
        name: np.array([spread[random.permutation(kinds)] for _ in places])
        for name in ("vehicles", "speed")
    }
    return Laws(_lengths(events, len(places)), shares / shares.sum(axis=1, keepdims=True), means)


def stocks(events: int, kinds: int) -> Laws:
    """Shares and means that are nearly the same for all kinds and never still."""
    random = np.random.default_rng([SEED, kinds])
    laws = max(1, events // STOCKS_LAW_EVENTS)
    shares = np.exp(_wandering(laws, kinds, random))
    means = _wandering(laws, kinds, random)
    return Laws(_lengths(events, laws), shares / shares.sum(axis=1, keepdims=True), {"diff": means})


def _wandering(laws: int, kinds: int, random: np.random.Generator) -> np.ndarray:
    """A value for each law and kind: a slow walk that is drawn back to 0, and jitter."""
    kept = np.exp(-1 / STOCKS_MEMORY_LAWS)
    steps = random.normal(0, STOCKS_DRIFT, (laws, kinds))
    steps[1:] *= np.sqrt(1 - kept**2)
    walk = steps
    for law in range(1, laws):
        walk[law] += kept * walk[law - 1]
    found: np.ndarray = walk + random.normal(0, STOCKS_JITTER, (laws, kinds))
    return found


def _lengths(events: int, laws: int) -> np.ndarray:
    """Equal lengths with the sum `events`."""
    return np.diff(np.linspace(0, events, laws + 1).astype(np.int64))


# The width of every range of an APAM attribute.
APAM_RANGE = 1_000_000


def apam(events: int, selectivities: Sequence[float], seed: int = SEED) -> Columns:
    """One kind more than selectivities, all equally frequent; `t` counts the events.

    Condition i asks for `left.attr<i+1> < right.attr<i+1>` of kinds i and i + 1. Both are uniform
    over ranges of one width R, the right one so far below the left one that they overlap in x:
    `<` then holds for x^2 / 2R^2 of the pairs. With one range inside the other, the same share
    would come from a few events that are in half of all pairs each, and work would come in bursts
    as long as a window, which no queue model knows of.
    """
    random = np.random.default_rng(seed)
    kind = random.integers(0, len(selectivities) + 1, events)
    attributes = {}
    for number, selectivity in enumerate(selectivities):
        overlap = round(APAM_RANGE * np.sqrt(2 * selectivity))
        lowered = (kind > number) * (APAM_RANGE - overlap)
        attributes[f"attr{number + 1}"] = random.integers(0, APAM_RANGE, events) - lowered
    return {"t": np.arange(events), "kind": kind, **attributes}
