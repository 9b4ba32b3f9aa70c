"""Matches as blocks for the answer: numbers, labels, and the rows that no match has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.rows import search
from spark_cep.udfs.rows.search import Block

if TYPE_CHECKING:
    from spark_cep.udfs.rows.gaps.recognize import Gapped
    from spark_cep.udfs.rows.gaps.waves import Matches
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array

UNMATCHED = -1


def blocks(gapped: Gapped, table: Table, matches: Matches) -> Iterator[Block]:
    """All matches, and where they are shown all unmatched rows, in the order of rows."""
    which, start = np.arange(len(matches)), matches.starts
    if table.program.rows == "all with unmatched":
        alone = uncovered(table.size, matches)
        start = np.concatenate([start, alone])
        order = np.argsort(start, kind="stable")
        which = np.concatenate([which, np.full(len(alone), UNMATCHED)])[order]
        start = start[order]
    number = _numbers(table, matches)
    length = np.zeros(len(which), np.int64)
    length[which >= 0] = matches.ends - matches.starts
    size = np.cumsum(np.maximum(length, 1))
    at = 0
    while at < len(which):
        before = size[at - 1] if at else 0
        most = int(np.searchsorted(size, before + search.BLOCK_ROWS, "right"))
        part = slice(at, max(at + 1, most))
        mine = which[part]
        yield Block(
            start[part],
            length[part],
            np.where(mine >= 0, number[mine], UNMATCHED) if len(number) else mine,
            _labels(gapped, matches.take(mine[mine >= 0])),
            np.concatenate([[0], np.cumsum(length[part])]),
        )
        at = part.stop


def uncovered(size: int, matches: Matches) -> Array:
    """Rows that lie in no match. All of them were tried and failed: to be skipped, a row has to
    lie in the match that skips it."""
    change = np.bincount(matches.starts, minlength=size + 1)
    change -= np.bincount(matches.ends, minlength=size + 1)
    return np.flatnonzero(np.cumsum(change[:size]) == 0)


def _numbers(table: Table, matches: Matches) -> Array:
    """Matches are numbered in their partition."""
    first = np.searchsorted(matches.starts, table.begins)
    partition = np.searchsorted(table.begins, matches.starts, "right") - 1
    return np.asarray(np.arange(len(matches)) - first[partition] + 1)


def _labels(gapped: Gapped, matches: Matches) -> Array:
    """The labels of the rows of matches, one after the other: a point and what follows it."""
    labels, lengths = [], []
    following = [*matches.rows[1:], matches.ends]
    for point, gap, row, after in zip(
        gapped.points, gapped.gaps, matches.rows, following, strict=True
    ):
        labels.append(point.label)
        lengths.append(np.ones(len(row), np.int64))
        if gap is not None:
            labels.append(gap.label)
            lengths.append(after - row - 1)
    every = np.stack(lengths, axis=1).ravel()
    return np.repeat(np.tile(np.array(labels, np.int32), len(matches)), every)
