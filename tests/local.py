"""The pipeline without Spark: a case is compiled and shipped to the engine in this process.

What Spark does in the product is done here row by row with the reference's evaluator: the
candidate mask, the shipped columns with their guards, filtering rows that match nothing, cutting
time into slices. The compiler, the engine and everything below are the real ones.

A `Setting` is all that must not matter to the answer: the plan, the size of blocks, slices, the
split into advances, whether rows that match nothing are shipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot

from spark_cep.events.answer import lay_out_answer
from spark_cep.events.compile import compile_event_query
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.planner.layout import choose_slicing
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.chunks import Chunk
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.expressions import Type, cells_of
from spark_cep.udfs.program import Adaptation, Plan
from tests.cases import COLUMNS, Case
from tests.fake_typer import LocalTyper
from tests.reference.expressions import Scope, evaluate

if TYPE_CHECKING:
    from spark_cep.expressions.shipment import ShippedColumn
    from spark_cep.planner.layout import Slicing
    from spark_cep.udfs.events.context import MatchSet
    from tests.reference.expressions import Value
    from tests.reference.matcher import Match

ARROW = {"int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
EAGER = Plan("eager")
TYPES = {name: Type(kind) for name, kind in COLUMNS.items()}


@dataclass(frozen=True)
class Setting:
    """later_plan: from the second advance on.

    horizons: where advances end; one more follows, without an end. early: how many advances each
    row comes before the one that needs it; rows beyond a horizon wait in the state.
    """

    plan: Plan = EAGER
    later_plan: Plan | None = None
    block_pairs: int = 1 << 19
    horizons: tuple[int, ...] = ()
    early: tuple[int, ...] = ()
    slice_length: int | None = None
    ships_all: bool = True


def answer(case: Case, setting: Setting) -> Counter[Match]:
    """Every match that the engine gives, with how often."""
    shipped = Pipeline(case, setting)
    found: Counter[Match] = Counter()
    state = EventState()
    bounds = (*setting.horizons, None)
    for place, horizon in enumerate(bounds):
        program = shipped.program if place == 0 else shipped.later
        step = advance_events(program, state, shipped.table(place), horizon)
        for matches in step.matches:
            found.update(shipped.read(step.events.table, step.events.rows, matches))
        state = step.state
    return found


def adapted(case: Case, setting: Setting, adaptation: Adaptation) -> Counter[Match]:
    """The same through the loop that may change the plan between advances."""
    shipped = Pipeline(case, setting)
    program = replace(shipped.program, adaptation=adaptation)
    bounds = (*setting.horizons, None)
    chunks = [Chunk(shipped.table(place), horizon) for place, horizon in enumerate(bounds)]
    found: Counter[Match] = Counter()
    for step, matches in AdaptiveEngine(program).run(chunks):
        found.update(shipped.read(step.events.table, step.events.rows, matches))
    return found


class Pipeline:
    """A compiled case, its program, and its rows as the engine gets them."""

    def __init__(self, case: Case, setting: Setting) -> None:
        self._case = case
        self._setting = setting
        query = compile_event_query(
            case.pattern,
            [ColumnInfo(name, type_) for name, type_ in TYPES.items()],
            order_by=case.order_by,
            partition_by=case.partition_by,
            typer=LocalTyper(TYPES),
            time_zone="UTC",
            lay_out_answer=partial(lay_out_answer, names=["u"], rows="all"),
        )
        self._compiled = query.compiled
        if self._compiled.after:
            raise NotImplementedError(f"only Spark can evaluate {self._compiled.after}")
        self._slicing = self._choose_slicing()
        if self._slicing is not None:
            query = query.with_slices()
        assert query.answer is not None
        # Partition columns that are not among the names come first.
        self.row = query.answer.output.row[-1].column
        self._shipped = query.shipment.shipped
        self.program = query.program(setting.plan, block_pairs=setting.block_pairs)
        self.later = query.program(
            setting.later_plan or setting.plan, block_pairs=setting.block_pairs
        )
        self._rows = list(self._shipped_rows())

    def table(self, place: int) -> pa.Table:
        """The rows of the advance number `place`."""
        columns = zip(*[row for at, row in self._rows if at == place], strict=True)
        types = self._types()
        values = list(columns) or [()] * len(types)
        arrays = [pa.array(each, type_) for each, type_ in zip(values, types, strict=True)]
        return pa.Table.from_arrays(arrays, names=list(self.program.columns))

    def read(self, table: pa.Table, rows_at: Any, found: MatchSet) -> list[Match]:
        """Matches as the reference writes them."""
        ids = {row["u"]: place for place, row in enumerate(self._case.rows)}
        column = table.column(self.row).to_pylist()
        rows = {v: rows_at(positions).tolist() for v, positions in found.rows.items()}

        def value(variable: int, match: int) -> int | tuple[int, ...] | None:
            if variable not in rows:
                return () if variable in found.empty else None
            taken = rows[variable][match]
            if isinstance(taken, int):
                return ids[column[taken]]
            return tuple(ids[column[row]] for row in taken)

        positive = [(i, v.name) for i, v in enumerate(self.program.variables) if not v.negated]
        return [
            tuple((name, value(i, match)) for i, name in positive) for match in range(len(found))
        ]

    # ---- the shipped columns --------------------------------------------------------------------

    def _choose_slicing(self) -> Slicing | None:
        compiled = self._compiled
        rules = (compiled.strategy, compiled.consumption)
        if self._setting.slice_length is None or self._setting.horizons:
            return None
        return choose_slicing(compiled.branches, compiled.window, compiled.orders[0].type, rules)

    def _types(self) -> list[pa.DataType]:
        known = {
            cell.column: cell.type
            for c in self.program.conditions
            for cell in cells_of(c.expression)
        }
        return [
            self._type(shipped, known.get(place)) for place, shipped in enumerate(self._shipped)
        ]

    def _type(self, shipped: ShippedColumn, known: Type | None) -> pa.DataType:
        if shipped.role != "value":
            return pa.bool_() if shipped.role == "home" else pa.int64()
        if shipped.column is not None:
            return ARROW[COLUMNS[shipped.column]]
        return pa.int64() if known is None else ARROW[known.kind]

    # ---- the rows ------------------------------------------------------------------------------

    def _shipped_rows(self) -> Any:
        for place, row in enumerate(self._case.rows):
            mask = sum(
                1 << number
                for number, texts in enumerate(self._compiled.masks)
                if all(_value(str(text), row) is True for text in texts)
            )
            if any(_value(text, row) is None for text in self._compiled.inferred):
                continue
            if not (mask or self._setting.ships_all or self._counts_all()):
                continue
            for number, is_home in self._slices(row["t"]):
                special = {"mask": mask, "slice": number, "home": is_home}
                yield (
                    self._advance(place, row["t"]),
                    [self._value(shipped, row, mask, special) for shipped in self._shipped],
                )

    def _counts_all(self) -> bool:
        window = self.program.window
        return self.program.strategy == "strict" or (window is not None and window.kind == "events")

    def _value(
        self,
        shipped: ShippedColumn,
        row: Mapping[str, Value],
        mask: int,
        special: Mapping[str, Value],
    ) -> Value:
        if shipped.role != "value":
            return special[shipped.role]
        if shipped.column is not None:
            return row[shipped.column]
        if shipped.guards is not None and not any(mask >> guard & 1 for guard in shipped.guards):
            return None
        return _value(str(shipped.expression), row)

    def _slices(self, time: Value) -> Sequence[tuple[int, bool]]:
        if self._slicing is None or time is None:
            return [(0, True)]
        length, window = self._setting.slice_length, self.program.window
        assert length is not None
        assert window is not None
        assert isinstance(time, int)
        first = time - int(window.size) if self._slicing.back else time
        numbers = range(first // length, (time + int(window.size)) // length + 1)
        return [(number, number == time // length) for number in numbers]

    def _advance(self, place: int, time: Value) -> int:
        horizons = self._setting.horizons
        if time is None:
            return 0
        due = next((at for at, h in enumerate(horizons) if time <= h), len(horizons))  # type: ignore[operator]
        early = self._setting.early[place] if place < len(self._setting.early) else 0
        return max(0, due - early)


def _value(text: str, row: Mapping[str, Value]) -> Value:
    return evaluate(sqlglot.parse_one(text, dialect="spark"), Scope({"": row}))
