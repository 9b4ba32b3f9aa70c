"""Streams like those of the darling paper: stock prices, a soccer game, buses of a town.

Rows are generated, but for those of `game`, with what matters to a shedder: values say something of
a row's chances, levels differ by type and drift, rates differ by type where they did there. `kind`
is the event type, from 0; `i` numbers the rows.

Always holds: rows are in the order of their event time `t`, in microseconds, and no two have the
same one, so a stream may be cut between any two rows.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np

Columns = Mapping[str, np.ndarray]
Random = np.random.Generator

SECOND = 1_000_000
MINUTE = 60 * SECOND
# Kinds of the soccer stream; defenders follow.
GOAL_A, GOAL_B, BALL, DEFENDER = 0, 1, 2, 3
FIELD = (105.0, 68.0)  # metres


# ---- stock: every symbol once a minute ---------------------------------------------------------

# Logarithms. Levels of symbols differ, drift within days, and single updates vary.
LEVELS = (0.0, 0.8, -0.3, 0.8, 1.3, 0.2, 1.0, 0.5)
VOLUME = {"levels": 1.0, "drift": 0.07, "noise": 0.9}
OPEN = {"levels": 0.12, "drift": 0.015, "noise": 0.12}
DRIFT_MINUTES = 3_000.0


def stock(rows: int, symbols: int, seed: int = 0) -> Columns:
    """`symbols` kinds, one update a minute each, at a moment of its own in the minute."""
    random = np.random.default_rng(seed)
    minutes = -(-rows // symbols)
    values = {
        name: np.exp(_levelled(minutes, symbols, shape, random))
        for name, shape in (("volume", VOLUME), ("open", OPEN))
    }
    moments = random.integers(0, MINUTE, (minutes, symbols))
    t = np.arange(minutes)[:, None] * MINUTE + moments
    kind = np.broadcast_to(np.arange(symbols), t.shape)
    return _in_order(t.ravel(), kind.ravel(), {n: v.ravel() for n, v in values.items()}, rows)


def _levelled(minutes: int, symbols: int, shape: Mapping[str, float], random: Random) -> np.ndarray:
    levels = shape["levels"] * np.array([LEVELS[n % len(LEVELS)] for n in range(symbols)])
    drift = shape["drift"] * _wandering(minutes, symbols, DRIFT_MINUTES, random)
    found: np.ndarray = levels + drift + shape["noise"] * random.standard_normal(drift.shape)
    return found


# ---- soccer: positions and velocities ----------------------------------------------------------

# A tenth of the paper's 200 and 2,000 readings a second, so that a stream is as long as a game is
# interesting; windows are ten times as long.
PLAYER_HERTZ, BALL_HERTZ = 20, 200
HOMES = ((3.0, 34.0), (102.0, 34.0))


def soccer(rows: int, defenders: int, seed: int = 0) -> Columns:
    """Two goalkeepers, the ball, and defenders of team B. `x`, `y` in metres, `v` in metres a
    second."""
    random = np.random.default_rng(seed)
    rate = (2 + defenders) * PLAYER_HERTZ + BALL_HERTZ
    seconds = rows / rate + 1
    tracks = [
        *(_player(home, (4.0, 8.0), seconds, random) for home in HOMES),
        _ball(seconds, random),
        *(_player((82.0, 34.0), (9.0, 14.0), seconds, random) for _ in range(defenders)),
    ]
    t = np.concatenate([track[0] for track in tracks])
    kind = np.repeat(np.arange(len(tracks)), [len(track[0]) for track in tracks])
    values = {
        name: np.concatenate([track[place] for track in tracks])
        for place, name in enumerate(("x", "y", "v"), 1)
    }
    return _in_order(t, kind, values, rows)


_Track = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _player(
    home: tuple[float, float], spread: tuple[float, float], seconds: float, random: Random
) -> _Track:
    """Around a home, for some seconds here and there."""
    steps = int(seconds * PLAYER_HERTZ)
    moves = _wandering(steps, 2, 2.0 * PLAYER_HERTZ, random)
    x, y = (home[axis] + spread[axis] * moves[:, axis] for axis in (0, 1))
    # Sensors measure it apart from the position: a player's mean pace changes, steps vary.
    v = 3.0 * np.exp(
        0.5 * _wandering(steps, 1, 2.0 * PLAYER_HERTZ, random)[:, 0]
        + 0.4 * random.standard_normal(steps)
    )
    return _readings(steps, PLAYER_HERTZ, random), x, y, v


def _ball(seconds: float, random: Random) -> _Track:
    """From place to place over the whole field, at up to 30 metres a second."""
    steps = int(seconds * BALL_HERTZ)
    moves = _wandering(steps, 2, 2.5 * BALL_HERTZ, random)
    x = FIELD[0] * np.clip(0.5 + 0.28 * moves[:, 0], 0, 1)
    y = FIELD[1] * np.clip(0.5 + 0.25 * moves[:, 1], 0, 1)
    v = 10.0 * np.exp(0.5 * _wandering(steps, 1, 1.0 * BALL_HERTZ, random)[:, 0])
    return _readings(steps, BALL_HERTZ, random), x, y, np.minimum(v, 30.0)


def _readings(steps: int, hertz: int, random: Random) -> np.ndarray:
    gap = SECOND // hertz
    moments: np.ndarray = np.arange(steps) * gap + random.integers(0, gap, steps)
    return moments


# ---- game: rows of the DEBS 2013 Grand Challenge ------------------------------------------------

# Of the ball and two players. Where the file is not there, rows are generated with these means and
# deviations of x, y and v, in its units.
GAME = Path(__file__).parents[2] / "shared" / "data" / "soccer_50k.csv.gz"
SENSORS = {"13": GOAL_A, "61": GOAL_B, "8": BALL}
SENSOR_SECONDS = 21.36
SENSOR_ROWS = {GOAL_A: 4_665, GOAL_B: 3_784, BALL: 41_551}
SENSOR_VALUES = {
    GOAL_A: ((25_873, 41.5), (-5_704, 36.5), (109_698, 60_659)),
    GOAL_B: ((26_776, 241.1), (10, 100.2), (136_036, 83_324)),
    BALL: ((-7_159, 8.4), (-9_409, 8.2), (129_900, 70_019)),
}


def game(rows: int, seed: int = 0) -> Columns:
    """The first rows of the game: `x`, `y` in metres, `v` in metres a second. They begin at another
    row with another seed."""
    if GAME.exists():
        t, kind, values = _read_game()
    else:
        t, kind, values = _like_the_game(seed)
    begin = 1_000 * seed % max(len(t) - rows, 1)
    part = slice(begin, begin + rows)
    return _in_order(t[part], kind[part], {n: v[part] for n, v in values.items()}, rows)


def _read_game() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    with gzip.open(GAME, "rt") as lines:
        found = [line.split(",")[:6] for line in lines]
    sensor, t, x, y, _, v = zip(*found, strict=True)
    kind = np.array([SENSORS[each] for each in sensor])
    # Picoseconds.
    times = np.array(t, dtype=np.int64) // 1_000_000
    places = {name: np.array(of, dtype=float) / 1e3 for name, of in (("x", x), ("y", y))}
    return times - times[0], kind, {**places, "v": np.array(v, dtype=float) / 1e6}


def _like_the_game(seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    kind = np.repeat(list(SENSOR_ROWS), list(SENSOR_ROWS.values()))
    t = random.integers(0, round(SENSOR_SECONDS * SECOND), len(kind))
    order = np.argsort(t, kind="stable")
    values = {}
    for place, (name, unit) in enumerate((("x", 1e3), ("y", 1e3), ("v", 1e6))):
        means, deviations = (
            np.array([SENSOR_VALUES[each][place][what] for each in (GOAL_A, GOAL_B, BALL)])
            for what in (0, 1)
        )
        drawn = means[kind] + deviations[kind] * random.standard_normal(len(kind))
        values[name] = (np.abs(drawn) if name == "v" else drawn)[order] / unit
    return t[order], kind[order], values


# ---- bus: lines of different rates -------------------------------------------------------------

BUSES = 4
# Seconds between two reports of a line; each further line reports less often.
FIRST_GAP, GAP_GROWTH = 150.0, 1.35


def bus(rows: int, lines: int, seed: int = 0) -> Columns:
    """`dist`: kilometres from the centre of the town; `delay` in seconds."""
    random = np.random.default_rng(seed)
    gaps = FIRST_GAP * GAP_GROWTH ** np.arange(lines)
    # Enough for the rows, however unevenly lines report.
    seconds = rows / (1 / gaps).sum() * 1.1 + 20 * gaps.max()
    parts = [_line(number, seconds, gap, random) for number, gap in enumerate(gaps)]
    t = np.concatenate([part[0] for part in parts])
    kind = np.repeat(np.arange(lines), [len(part[0]) for part in parts])
    values = {
        name: np.concatenate([part[place] for part in parts])
        for place, name in enumerate(("dist", "delay"), 1)
    }
    return _in_order(t, kind, values, rows)


def _line(
    number: int, seconds: float, gap: float, random: Random
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Buses of one line, out to its end and back, each at another place of the way."""
    times = np.cumsum(random.exponential(gap, int(seconds / gap * 1.2) + 20))
    times = times[times < seconds]
    length, trip = 9.0 + 2.0 * random.random(), 5_400.0 + 600.0 * number
    phase = times / trip + random.integers(0, BUSES, len(times)) / BUSES
    dist = length * (0.55 - 0.45 * np.cos(2 * np.pi * phase))
    dist = dist * np.exp(0.15 * random.standard_normal(len(times)))
    rush = 1.0 + 0.7 * np.sin(2 * np.pi * times / 86_400.0)
    delay = rush * random.gamma(2.0, 90.0, len(times))
    return (times * SECOND).astype(np.int64), dist, delay


# ---- both --------------------------------------------------------------------------------------


def _wandering(steps: int, count: int, memory: float, random: Random) -> np.ndarray:
    """`count` walks that return to 0, with deviation 1, and forget within `memory` steps."""
    pull = float(np.exp(-1.0 / memory))
    noise = np.sqrt(1 - pull * pull) * random.standard_normal((steps, count))
    found = np.empty((steps, count))
    at = random.standard_normal(count)
    for step in range(steps):
        at = pull * at + noise[step]
        found[step] = at
    return found


def _in_order(
    t: np.ndarray, kind: np.ndarray, values: Mapping[str, np.ndarray], rows: int
) -> Columns:
    order = np.argsort(t, kind="stable")[:rows]
    # One microsecond more for each row: then no two are the same.
    times = t[order] + np.arange(len(order))
    found = {name: each[order] for name, each in values.items()}
    return {"t": times, "i": np.arange(len(order)), "kind": kind[order], **found}
