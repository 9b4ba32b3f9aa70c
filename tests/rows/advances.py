"""Row patterns in several advances, and what of their answer is certain after each by the book."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from spark_cep.udfs.execution.row_engine import RowEngine, compile_row_program
from spark_cep.udfs.output import Field, RowOutput
from spark_cep.udfs.row_program import Aggregate, RowPatternNode, RowProgram, RowRead
from spark_cep.udfs.rows.advance import RowState
from spark_cep.udfs.rows.leaves import (
    is_physical,
    leaves_of,
    resolve_tested_row,
    rows_ahead,
    split_conjuncts,
)
from tests.rows.programs import NAMES, SCHEMA, K, T
from tests.rows.reference import At, Labels, Reference, Row, Seen, value

Answers = dict[Any, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Step:
    """`horizon` None: the input has ended."""

    rows: tuple[Row, ...]
    horizon: int | None


def answered(case: RowProgram, steps: Sequence[Step]) -> tuple[list[Answers], list[RowState]]:
    """What each step gives, by key, and the state after it. The state travels as bytes."""
    engine = RowEngine(compile_row_program(case), RowOutput((Field(K, "k"), Field(T, "t"))))
    state = engine.empty_state()
    found, states = [], []
    for step in steps:
        state = RowState.from_bytes(state.to_bytes(case), case)
        batches, state = advanced(engine, state, step)
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        dropped = -2 if case.rows == "one" else -1
        found.append(by_key([row[:dropped] for row in rows]))
        states.append(state)
    return found, states


def advanced(
    engine: RowEngine, state: RowState, step: Step
) -> tuple[list[pa.RecordBatch], RowState]:
    batches: list[pa.RecordBatch] = []
    advance = engine.advance(state, table(step.rows), step.horizon)
    while True:
        try:
            batches.append(next(advance))
        except StopIteration as end:
            return batches, end.value


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows], SCHEMA)


def by_key(rows: Sequence[tuple[Any, ...]]) -> Answers:
    found: Answers = {}
    for row in rows:
        found.setdefault(row[K], []).append(row)
    return found


def together(steps: Sequence[Answers]) -> Answers:
    found: Answers = {}
    for step in steps:
        for key, rows in step.items():
            found.setdefault(key, []).extend(rows)
    return found


@st.composite
def cut(draw: st.DrawFn, rows: Sequence[Row]) -> list[Step]:
    """The rows in steps. Each comes at the latest when the horizon passes it, often earlier."""
    horizons = sorted(draw(st.lists(st.integers(-1, 10), min_size=1, max_size=4)))
    arrived: list[list[Row]] = [[] for _ in range(len(horizons) + 1)]
    for row in rows:
        latest = next((i for i, at in enumerate(horizons) if row[T] <= at), len(horizons))
        early = draw(st.sampled_from([0, 0, 0, 1, 3]))
        arrived[max(latest - early, 0)].append(row)
    steps = [Step(tuple(some), at) for some, at in zip(arrived, horizons, strict=False)]
    return [*steps, Step(tuple(arrived[-1]), None)]


def in_order(steps: Sequence[Step]) -> list[Row]:
    """Ties keep the order in which they come."""
    return [row for step in steps for row in step.rows]


class Touched(Exception):
    """The search looked behind the last row that is known."""


class OpenReference(Reference):
    """Answers as long as nothing behind the known rows is looked at. `horizon`: of the rows."""

    horizon: Any = None
    begin: int = 0

    def certain(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        begin, covered = 0, 0
        try:
            while begin < len(self.rows):
                self.begin = begin
                labels = self.match(begin, self.number + 1)
                if labels is None:
                    if self.program.rows == "all with unmatched" and begin >= covered:
                        found.append((begin, *[None] * len(self.program.measures)))
                    begin += 1
                    continue
                self.number += 1
                found += list(self._shown(begin, labels))
                covered = max(covered, begin + len(labels))
                begin = self._skip(begin, labels)
            self.begin = begin
        except Touched:
            pass
        return found

    def _ways(self, node: RowPatternNode, labels: Labels, at: At) -> Any:
        row = at.begin + len(labels)
        if row == len(self.rows) and node.kind == "variable":
            within = self.program.within
            if within is None or self.rows[at.begin][T] + within.size > self.horizon:
                raise Touched
        if row == len(self.rows) and node.kind == "end":
            raise Touched
        return super()._ways(node, labels, at)

    def _holds(self, variable: int, labels: Labels, at: At) -> bool:
        row = at.begin + len(labels) - 1
        within = self.program.within
        if within is not None and self.rows[row][T] - self.rows[at.begin][T] > within.size:
            return False
        define = self.program.variables[variable].define
        if define is None:
            return True
        parts = list(split_conjuncts(resolve_tested_row(define, variable)))
        seen = OpenSeen(self.rows, at.begin, labels, row, at.number)
        waits = False
        if any(_is_asked(part) for part in parts):
            # Python looks up all that is read before it tests anything.
            for leaf in (
                leaf for part in parts if not is_physical(part) for leaf in leaves_of(part)
            ):
                value(leaf, seen)
        for part in sorted(parts, key=is_physical, reverse=True):
            if not is_physical(part) and waits:
                raise Touched
            if row + _reach(part) >= len(self.rows):
                waits = True
            elif value(part, seen) is not True:
                return False
        if waits:
            raise Touched
        return True

    def _measures(self, begin: int, labels: Labels, row: int | None) -> Any:
        seen = OpenSeen(self.rows, begin, labels, row, self.number)
        return [value(measure, seen) for measure in self.program.measures]


def _is_asked(part: Any) -> bool:
    return any(
        isinstance(leaf, Aggregate) and leaf.argument is not None for leaf in leaves_of(part)
    )


def _reach(part: Any) -> int:
    """How far a condition looks from the row under test at most."""
    looks = [
        leaf for leaf in leaves_of(part) if isinstance(leaf, RowRead) and leaf.anchor == "current"
    ]
    arguments = [
        leaf.argument for leaf in leaves_of(part)
        if isinstance(leaf, Aggregate) and leaf.argument is not None
    ]  # fmt: skip
    return max([0, *map(rows_ahead, looks), *map(rows_ahead, arguments)])


class OpenSeen(Seen):
    def place(self, leaf: Any) -> int | None:
        at = self.row
        if leaf.anchor != "current":
            rows = self.bound(leaf.variables, leaf.final)
            if leaf.offset >= len(rows):
                return None
            at = rows[leaf.offset] if leaf.anchor == "first" else rows[-1 - leaf.offset]
        if isinstance(leaf, RowRead) and at is not None and at + leaf.shift >= len(self.rows):
            raise Touched
        return super().place(leaf)
