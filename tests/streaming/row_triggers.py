"""Row patterns through triggers: one bucket, packed rows in, its answer out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.udfs.execution import state
from spark_cep.udfs.execution.job import StreamJob, TriggerInput, from_blob, pack_rows
from spark_cep.udfs.execution.row_engine import compile_row_program
from spark_cep.udfs.execution.state import make_identity
from spark_cep.udfs.execution.trigger import run_trigger
from spark_cep.udfs.output import Field, RowOutput
from spark_cep.udfs.rows.advance import row_program_fingerprint
from tests.memory_store import InMemoryStore
from tests.rows.advances import table
from tests.rows.programs import SCHEMA, K, T

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowProgram
    from tests.rows.reference import Row


class RowStream:
    def __init__(self, case: RowProgram) -> None:
        self._dropped = -2 if case.rows == "one" else -1
        output = RowOutput((Field(K, "k"), Field(T, "t")))
        self.job = StreamJob(
            compile_row_program(case),
            output,
            SCHEMA,
            make_identity(row_program_fingerprint(case), SCHEMA, 1),
            "one",
        )
        self.store = InMemoryStore()
        self.metrics: list[dict[str, Any]] = []
        state.forget_states()

    def trigger(self, rows: Sequence[Row], horizon: int) -> list[tuple[Any, ...]]:
        """The rows of the answer: key, time and measures."""
        arrived = table(rows).append_column("bucket", pa.array(np.zeros(len(rows), np.int32)))
        blobs = [
            blob.as_py()
            for batch in pack_rows(arrived.to_batches())
            for blob in batch.column("blob")
        ]
        answer = run_trigger(self.job, self.store, TriggerInput(0, tuple(blobs), horizon))
        given = [row for blob in answer for row in from_blob(blob).to_pylist()]
        self.metrics.append(json.loads(given[-1]["metrics"]))
        return [tuple(row.values())[: self._dropped] for row in given[:-1]]
