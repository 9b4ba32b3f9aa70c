"""The generated streams and queries of the eires paper (Table 2, Listing 2), scaled.

What is scaled: keys have 2,000 values instead of 100,000, and 20 IDs are correlated instead of
100; a cache of 10 % of the keys is 200 elements. Windows are so many events that a partial match
grows into a handful of matches. Where a value of a remote element is compared, and in `a.v2 =
h.v2`, values are equal modulo a small number: two of 100,000 values are equal so rarely that no
short stream shows it.

Always holds: a query is a set of sequences, tried as separate automata; whether a remote
condition holds is a function of the key and of the value that it is compared with, so it can be
looked up here, while the runs decide when an engine could know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

KEYS = 2_000
IDS = 20
EXPONENT = 1.01
Dataset = Literal["DS1", "DS2"]
Value = Literal["v1", "v2"]


# ---- streams -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """`kind` 0 to 3 for A to D. `v1` and `v2` from 0. `answers`: what the remote element of each
    key says; the elements of `v2` follow those of `v1`."""

    kind: np.ndarray
    id: np.ndarray
    v1: np.ndarray
    v2: np.ndarray
    answers: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)

    def value(self, column: Value) -> np.ndarray:
        return self.v1 if column == "v1" else self.v2

    def keys(self, column: Value) -> np.ndarray:
        return self.v1 if column == "v1" else self.v2 + KEYS


def stream(dataset: Dataset, events: int, seed: int = 0) -> Stream:
    random = np.random.default_rng(seed)
    shares = np.full(KEYS, 1 / KEYS)
    if dataset == "DS2":
        shares = np.arange(1, KEYS + 1, dtype=np.float64) ** -EXPONENT
        shares /= shares.sum()
    return Stream(
        kind=random.integers(0, 4, events),
        id=random.integers(0, IDS, events),
        v1=random.choice(KEYS, events, p=shares),
        v2=random.choice(KEYS, events, p=shares),
        answers=random.integers(0, 1 << 30, 2 * KEYS),
    )


# ---- queries -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equal:
    """When `step` is bound, its `column` equals that of an earlier step, modulo `modulus`."""

    step: int
    column: Value
    earlier: int
    earlier_column: Value
    modulus: int


@dataclass(frozen=True)
class Need:
    """`REMOTE[key_step.key] = value_step.value`, modulo `modulus`, tested when the later of both
    is bound."""

    key_step: int
    key: Value
    value_step: int
    value: Value
    modulus: int

    @property
    def step(self) -> int:
        return max(self.key_step, self.value_step)


@dataclass(frozen=True)
class Chain:
    """One sequence of events by their kinds, and what correlates them."""

    kinds: str
    equals: Sequence[Equal]
    needs: Sequence[Need]
    same_id: bool = False

    def kind(self, step: int) -> int:
        return "ABCD".index(self.kinds[step])


@dataclass(frozen=True)
class Query:
    """`name` as in the figures. `windows`: in events, by dataset and selection."""

    name: str
    chains: tuple[Chain, ...]
    windows: dict[tuple[Dataset, bool], int]


def _windows(ds1: tuple[int, int], ds2: tuple[int, int]) -> dict[tuple[Dataset, bool], int]:
    """Of each the non-greedy one, then the greedy one."""
    return {
        ("DS1", False): ds1[0], ("DS1", True): ds1[1],
        ("DS2", False): ds2[0], ("DS2", True): ds2[1],
    }  # fmt: skip


_EIGHT = "ABCDBCAD"
_OUTER = Equal(7, "v2", 0, "v2", 2)
_Q1_WINDOWS = _windows((1_280, 320), (1_280, 320))

# The keys are those of earlier events: a lookup ahead is possible, which the paper's text on
# lookahead classes and its figures for PFetch need.
Q1 = Query(
    "Q1",
    (Chain(_EIGHT, (_OUTER,), (Need(0, "v1", 3, "v1", 2), Need(1, "v1", 7, "v1", 2)), True),),
    _Q1_WINDOWS,
)
# Listing 2 word by word: `a.v1 = REMOTE[d.v1]`, `b.v1 = REMOTE[h.v1]`, keys of the last event.
Q1_PRINTED = Query(
    "Q1 as printed",
    (Chain(_EIGHT, (_OUTER,), (Need(3, "v1", 0, "v1", 2), Need(7, "v1", 1, "v1", 2)), True),),
    _Q1_WINDOWS,
)
Q2 = Query(
    "Q2",
    (
        Chain("ABCD", (Equal(1, "v1", 0, "v1", KEYS),), (Need(0, "v1", 3, "v1", 5),)),
        Chain("ACB", (Equal(2, "v1", 0, "v2", KEYS),), (Need(0, "v2", 1, "v2", 5),)),
    ),
    _windows((2_000, 400), (400, 100)),
)
# Figure 12: the remote condition at the very end, and at the very beginning.
Q1_LAST = Query(
    "Q1, remote last",
    (Chain(_EIGHT, (_OUTER,), (Need(0, "v1", 7, "v1", 2),), True),),
    _Q1_WINDOWS,
)
Q1_FIRST = Query(
    "Q1, remote first",
    (Chain(_EIGHT, (_OUTER,), (Need(0, "v1", 0, "v2", 2),), True),),
    _Q1_WINDOWS,
)
