"""The engine of event patterns: the adaptive engine, its matches as record batches, and its state
in segments."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.answer import EventAnswer
from spark_cep.udfs.events.chunks import cut_chunks
from spark_cep.udfs.events.context import deciding_row
from spark_cep.udfs.events.engine import EventState
from spark_cep.udfs.events.metrics import Metrics
from spark_cep.udfs.events.remote_needs import prefetch_candidates
from spark_cep.udfs.events.table import Events
from spark_cep.udfs.execution.engine import too_many_rows_error
from spark_cep.udfs.execution.segments import (
    assign_places,
    count_stored_rows,
    load_state,
    save_state,
)
from spark_cep.udfs.task_clock import TaskClock

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.events.deadline import Deadline
    from spark_cep.udfs.execution.state import StateHeader, StateStore
    from spark_cep.udfs.output import EventOutput
    from spark_cep.udfs.program import DroppingRule, Program
    from spark_cep.udfs.remotes.lookup import Lookup


# The matches of each bucket are numbered within a range of their own: 2^33 of them, 2^30 buckets.
MATCH_NUMBER_SHIFT: Final = 33


class EventEngine:
    """Implements `Engine`. `_segment`: the number that the next rows have in the store; None
    where nothing is stored."""

    def __init__(
        self,
        program: Program,
        output: EventOutput,
        bucket: int,
        *,
        joins_on_arrival: bool = False,
    ) -> None:
        self._program = program
        self._output = output
        self._adaptive = AdaptiveEngine(program, joins_on_arrival=joins_on_arrival)
        self._clock = TaskClock(program.limits.seconds, stopped=True)
        self._next_number = bucket << MATCH_NUMBER_SHIFT
        self._segment: int | None = None
        self._schema: pa.Schema | None = None

    def empty_state(self) -> EventState:
        return EventState()

    def open_remotes(self, scope: str, trigger: str | None = None) -> None:
        self._adaptive.lookups = _get_lookups(self._program, scope, trigger)

    def end_remotes(self) -> None:
        for lookup in self._adaptive.lookups:
            lookup.end()

    def set_deadline(self, deadline: Deadline | None) -> None:
        self._adaptive.deadline = deadline

    def set_dropping(self, rule: DroppingRule | None) -> None:
        if rule != self._adaptive.program.dropping:
            self._adaptive.program = replace(self._adaptive.program, dropping=rule)

    def advance(
        self, state: EventState, rows: pa.Table, horizon: int | float | None
    ) -> Generator[pa.RecordBatch, None, EventState]:
        self._adaptive.clock = self._clock
        return (yield from self._clock.running(self._advance(state, rows, horizon)))

    def _advance(
        self, state: EventState, rows: pa.Table, horizon: int | float | None
    ) -> Generator[pa.RecordBatch, None, EventState]:
        if horizon is None and state.events is None:
            yield from self._match_all(rows)
            return self.empty_state()
        if self._segment is not None:
            rows = assign_places(rows, self._segment)
        step = self._adaptive.step(state, rows, horizon)
        self._check_rows(step.events)
        answer = self._answer(step.events)
        for matches in self._adaptive.matches(step):
            yield from answer.batches(matches)
        self._next_number = answer.next_number
        return step.state

    def answer_schema(self) -> pa.Schema:
        assert self._schema is not None
        return self._schema

    def take_metrics(self) -> dict[str, Any]:
        late = {each.remote.name: each.metrics.take() for each in self._adaptive.lookups}
        if late:  # calls that were made after the last match
            self._adaptive.metrics.add(Metrics(remotes=late))
        taken, self._adaptive.metrics = self._adaptive.metrics, Metrics()
        taken.longest_task_us = round(self._clock.seconds * 1e6)
        taken.slow_tasks = int(self._clock.warnings > 0)
        deadline = self._adaptive.deadline
        dropped = {} if self._adaptive.program.dropping is None else taken.dropped()
        cut = {} if deadline is None else deadline.to_dict()
        return {**taken.to_dict(), **dropped, **cut}

    # ---- between the triggers of a stream ------------------------------------------------------

    def load(self, store: StateStore, header: StateHeader) -> EventState:
        self._next_number = header.number or self._next_number
        self._segment = header.next_segment
        self._adaptive.restore(header.learnt)
        return load_state(store, header)

    def save(
        self, store: StateStore, header: StateHeader, before: EventState, after: EventState
    ) -> EventState:
        del before
        after = save_state(store, header, after)
        header.number = self._next_number
        header.learnt = self._adaptive.learnt()
        self._segment = header.next_segment
        if after.events is not None:
            # Values arrive while the bucket waits for its next trigger.
            prefetch_candidates(self._program, after.events, self._adaptive.lookups)
        return after

    def state_metrics(self, header: StateHeader, state: EventState) -> dict[str, int]:
        return {
            "state_rows": state.size,
            "stored_rows": count_stored_rows(header),
            "state_bytes": state.nbytes,
            "kept_partial_matches": sum(each["rows"] for each in header.kept),
            "waiting_matches": sum(each["rows"] for each in header.waiting or ()),
        }

    # ---- matching ------------------------------------------------------------------------------

    @property
    def takes_parts(self) -> bool:
        """Not within a slice, whose own rows say what is decided. Without a window every row is
        needed to the end, but for runs that end by themselves."""
        program = self._program
        if program.home is not None or program.orders[0].descending:
            return False
        return program.window is not None or deciding_row(program) == "start"

    def _match_all(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """The matches of an input that is complete: in several advances where its plan may
        change."""
        for lookup in self._adaptive.lookups:
            lookup.forget_keys()
        answer = None
        for step, matches in self._adaptive.run(cut_chunks(self._program, rows)):
            if answer is None or answer.events is not step.events:
                answer = self._answer(step.events)
            yield from answer.batches(matches)
            self._next_number = answer.next_number
        if answer is None:
            self._answer(Events(self._program, rows.slice(0, 0)))

    def _answer(self, events: Events) -> EventAnswer:
        answer = EventAnswer(events, self._output, self._next_number)
        self._schema = answer.schema()
        return answer

    def _check_rows(self, events: Events) -> None:
        """Without WITHIN a stream keeps as many rows as the user allows."""
        allowed = self._program.limits.rows
        if allowed is None or not events.size:
            return
        held = events.partition.end - events.partition.start
        most = int(held.argmax())
        if held[most] > allowed:
            raise too_many_rows_error(allowed, int(held[most]), events.key_of(most))


def _get_lookups(program: Program, scope: str, trigger: str | None) -> tuple[Lookup, ...]:
    if not program.remotes:
        return ()
    from spark_cep.udfs.remotes.lookup import get_lookups  # noqa: PLC0415 - few queries need it

    return get_lookups(program.remotes, scope, trigger)
