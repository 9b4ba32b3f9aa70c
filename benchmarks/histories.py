"""Generated stock quotes that carry their price history, for the correlations of the lazy-nfa
paper.

All stocks follow one market, a walk whose drift turns now and then, each with noise of its own;
so most pairs of histories are correlated, and a higher threshold keeps fewer of them. Quotes
arrive as Poisson processes whose rates may change every minute. The same seed gives the same
quotes of a sector, whatever the rates of the others are. `steady` and `switching` are the rates of
that paper's experiments, whose events a, b and c are quotes of the three sectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.data import SEED

# Also the window, in minutes: as in the paper.
HISTORY = 20
SECTORS = ("finance", "hi-tech", "search")
STOCKS_IN_SECTOR = 4
# Relative to the drift of a minute. Correlations of two histories within one window then exceed
# 0.7 for 92 in 100 pairs, 0.85 for 24.
NOISE = 3.0
MINUTES_BETWEEN_TURNS = 2_000
# Quotes a minute of the first two sectors, which take turns in being a fifth more frequent.
PER_MINUTE = 0.6
SWING = 0.2
SWING_MINUTES = 4_000
# In the changing stream the rarest type is a hundred times rarer than the others.
RARE = 0.01
PHASES = ("c", "a", "b", "c", "a", "b")


@dataclass(frozen=True)
class Quotes:
    """`t` in minutes, ascending."""

    t: np.ndarray
    sector: np.ndarray
    history: pa.Array

    def __len__(self) -> int:
        return len(self.t)

    def columns(self) -> dict[str, np.ndarray | pa.Array]:
        return {"t": self.t, "sector": self.sector, "history": self.history}


def steady(minutes: int, share: float) -> np.ndarray:
    """Rates of the sectors: `share` is how often the third quotes, relative to the others."""
    swing = SWING * np.sin(2 * np.pi * np.arange(minutes) / SWING_MINUTES)
    c = np.full(minutes, share)
    return PER_MINUTE * np.stack([1 + swing, 1 - swing, c], axis=1)


def switching(phase_events: int) -> np.ndarray:
    """Rates of the sectors, one of them rare; another one after each `phase_events`."""
    minutes = round(phase_events / (PER_MINUTE * (2 + RARE)))
    rates = np.full((len(PHASES), minutes, 3), PER_MINUTE)
    for phase, rare in enumerate(PHASES):
        rates[phase, :, "abc".index(rare)] *= RARE
    return rates.reshape(-1, 3)


def quotes(rates: np.ndarray) -> Quotes:
    """Quotes for `rates`: a row for each minute, a column for each sector of SECTORS."""
    minutes = len(rates)
    prices = _prices(minutes)
    parts = [_arrivals(rates[:, sector], sector) for sector in range(len(SECTORS))]
    t = np.concatenate([times for times, _ in parts])
    stock = np.concatenate([stocks for _, stocks in parts])
    order = np.argsort(t, kind="stable")
    t, stock = t[order], stock[order]
    # A history ends at the minute of its quote; walks begin HISTORY minutes before the first.
    minute = t.astype(np.int64)[:, np.newaxis] + np.arange(HISTORY)
    history = prices[minute, stock[:, np.newaxis]]
    return Quotes(
        t,
        np.array(SECTORS)[stock // STOCKS_IN_SECTOR],
        pa.FixedSizeListArray.from_arrays(pa.array(history.ravel()), HISTORY),
    )


def pearson(left: object, right: object) -> np.ndarray:
    """The correlation coefficient of each pair of histories; a `cep.udf`, so it gets Series."""
    x, y = _centred(left), _centred(right)
    spread = np.einsum("ij,ij->i", x, x) * np.einsum("ij,ij->i", y, y)
    found: np.ndarray = np.einsum("ij,ij->i", x, y) / np.sqrt(spread)
    return found


def _centred(histories: object) -> np.ndarray:
    arrays = list(np.asarray(histories))
    rows = np.concatenate(arrays).reshape(-1, HISTORY) if arrays else np.zeros((0, HISTORY))
    centred: np.ndarray = rows - rows.mean(axis=1, keepdims=True)
    return centred


def _arrivals(rates: np.ndarray, sector: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng([SEED, sector])
    counts = random.poisson(rates)
    t = np.repeat(np.arange(len(rates)), counts) + random.random(counts.sum())
    return t, sector * STOCKS_IN_SECTOR + random.integers(0, STOCKS_IN_SECTOR, len(t))


def _prices(minutes: int) -> np.ndarray:
    """A row for each minute, a column for each stock."""
    random = np.random.default_rng([SEED, len(SECTORS)])
    length, stocks = minutes + HISTORY, len(SECTORS) * STOCKS_IN_SECTOR
    turns = random.random(length) < 1 / MINUTES_BETWEEN_TURNS
    drift = np.where(np.cumsum(turns) % 2, -1.0, 1.0)
    noise = NOISE * random.standard_normal((length, stocks))
    walk: np.ndarray = np.cumsum(drift)[:, np.newaxis] + noise
    return walk
