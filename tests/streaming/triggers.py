"""A case's rows sent through triggers, as Spark would send them: packed, in any order that the
watermark allows, with the state in a store between them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from spark_cep.udfs.canonical import event_program, fingerprint
from spark_cep.udfs.execution import state
from spark_cep.udfs.execution.job import NO_WATERMARK, StreamJob, TriggerInput, from_blob, pack_rows
from spark_cep.udfs.execution.state import make_identity
from spark_cep.udfs.execution.trigger import run_trigger
from spark_cep.udfs.output import EventOutput, Field
from spark_cep.udfs.program import Adaptation, Plan
from spark_cep.udfs.shedding import shedder
from spark_cep.udfs.shedding.pace import note_arrival
from tests.local import Pipeline, Setting
from tests.memory_store import InMemoryStore
from tests.settings import plans

if TYPE_CHECKING:
    from spark_cep.udfs.shedding.utility import StreamSheddingSpec
    from tests.cases import Case
    from tests.reference.matcher import Match

# Behind every row and every window of the cases.
FAR = 1000


@dataclass(frozen=True)
class Course:
    """How a stream goes. `arrives`: each row's trigger. `forgets`: in which triggers the worker
    is another one, that remembers nothing. `lag`: how far the watermark stays behind what it
    could be."""

    plan: Plan
    arrives: tuple[int, ...]
    triggers: int
    forgets: frozenset[int] = frozenset()
    lag: int = 0
    adapts: bool = False


@st.composite
def courses(draw: st.DrawFn, case: Case) -> Course:
    triggers = draw(st.integers(1, 5))
    return Course(
        draw(plans(case)),
        tuple(draw(st.integers(0, triggers - 1)) for _ in case.rows),
        triggers,
        frozenset(draw(st.sets(st.integers(0, triggers), max_size=3))),
        draw(st.sampled_from([0, 0, 1, 5])),
    )


class Stream:
    """One bucket."""

    def __init__(
        self,
        case: Case,
        plan: Plan,
        *,
        ships_all: bool = True,
        adapts: bool = False,
        shed: StreamSheddingSpec | None = None,
    ) -> None:
        self.pipeline = Pipeline(case, Setting(plan, ships_all=ships_all))
        program = self.pipeline.program
        self._table = with_payload(self.pipeline.table(0), self.pipeline.row)
        program = replace(program, columns=(*program.columns, "payload"))
        if adapts:
            adaptation = Adaptation("always", to_tree=True, to_hybrid=True)
            program = replace(program, plan=Plan("lazy-chain"), adaptation=adaptation)
        row = self.pipeline.row
        output = EventOutput(
            "all",
            program.orders[0].column,
            row=(Field(row, "u"), Field(-1 + len(program.columns), "p")),
        )
        schema = self._table.schema
        whose = make_identity(fingerprint(event_program(program)), schema, 1)
        self.job = StreamJob(program, output, schema, whose, "one", shed)
        self.store = InMemoryStore()
        self.metrics: list[dict[str, Any]] = []
        self._places = {row["u"]: place for place, row in enumerate(case.rows)}
        state.forget_states()
        shedder.forget_shedders()

    @property
    def ids(self) -> list[int]:
        """The rows that are shipped, as places among the case's."""
        column = self._table.column(self.pipeline.row).to_pylist()
        return [self._places[each] for each in column]

    def trigger(self, rows: np.ndarray[Any, Any], horizon: int) -> Counter[Match]:
        """The matches of one trigger; `rows` of the shipped ones."""
        table = self._table.take(pa.array(rows, pa.int64()))
        table = table.append_column("bucket", pa.array(np.zeros(len(rows), np.int32)))
        pieces = pack_rows(table.to_batches(), note_arrival(time.time()))
        blobs = [blob.as_py() for batch in pieces for blob in batch.column("blob")]
        arrived = TriggerInput(0, tuple(blobs), horizon, "stream", str(len(self.metrics)))
        answer = [from_blob(blob) for blob in run_trigger(self.job, self.store, arrived)]
        found = pa.concat_tables(answer)
        self.metrics.append(json.loads(found.column("metrics")[-1].as_py()))
        return self._read(found.slice(0, found.num_rows - 1))

    def _read(self, found: pa.Table) -> Counter[Match]:
        variables = self.job.program.variables
        matches: dict[int, dict[int, list[int]]] = {}
        names = ("match_number", "variable", "f0", "f1")
        columns = (found.column(name).to_pylist() for name in names)
        for number, variable, u, payload in zip(*columns, strict=True):
            assert payload == payload_of(u)
            matches.setdefault(number, {}).setdefault(variable, []).append(self._places[u])
        return Counter(self._match(match, variables) for match in matches.values())

    def _match(self, match: dict[int, list[int]], variables: Any) -> Match:
        found: list[Any] = []
        for number, variable in enumerate(variables):
            if not variable.negated:
                rows = match.get(number, [])
                value = tuple(rows) if variable.is_list else (rows[0] if rows else None)
                found.append((variable.name, value))
        return tuple(found)


def with_payload(table: pa.Table, column: int) -> pa.Table:
    """A column that nothing looks at, that says which row it belongs to."""
    values = [payload_of(u) for u in table.column(column).to_pylist()]
    type_ = pa.struct([("text", pa.string()), ("numbers", pa.list_(pa.int64()))])
    return table.append_column("payload", pa.array(values, type_))


def payload_of(u: int) -> dict[str, Any] | None:
    return {"text": f"row {u}", "numbers": [None] * (u % 3) + [u]} if u % 4 else None


@dataclass(frozen=True)
class Given:
    """What a trigger gave. `known`: the places of the rows that had come by then."""

    matches: Counter[Match]
    known: list[int]
    horizon: int


def streamed(case: Case, course: Course) -> list[Counter[Match]]:
    """The matches of each trigger; a last one closes all windows."""
    return [given.matches for given in followed(case, course)]


def followed(case: Case, course: Course, stream: Stream | None = None) -> Iterator[Given]:
    stream = stream or Stream(case, course.plan, adapts=course.adapts)
    arrives = np.array([course.arrives[place] for place in stream.ids], dtype=np.int64)
    times = [case.rows[place]["t"] for place in stream.ids]
    known: list[int] = []
    horizon = NO_WATERMARK
    for trigger in range(course.triggers + 1):
        if trigger in course.forgets:
            state.forget_states()
        later = [t for t, a in zip(times, arrives, strict=True) if a > trigger and t is not None]
        # A watermark never goes back, also where no row with a time is still to come.
        horizon = max(horizon, min(later) - 1 - course.lag if later else NO_WATERMARK)
        if trigger == course.triggers:
            horizon = FAR
        rows = np.flatnonzero(arrives == trigger)
        known += [stream.ids[row] for row in rows]
        yield Given(stream.trigger(rows, horizon), list(known), horizon)


def filled(found: Counter[Match]) -> Counter[Match]:
    """An answer of rows tells nothing of variables without a row."""
    shown: Counter[Match] = Counter()
    for match, count in found.items():
        shown[tuple((name, value) for name, value in match if value not in {None, ()})] += count
    return shown
