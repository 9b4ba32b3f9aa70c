"""What measures ask of the engine: single reads and aggregates, each once.

Beside each stands a sample, SQL over one input row that has the reading's type. So a measure with
samples in the places of its readings is an expression that Spark can be asked about.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spark_cep.compiling.rows.compiled import Reading
from spark_cep.compiling.rows.leaves import NUMBER, classifier, read
from spark_cep.compiling.types import name_of
from spark_cep.udfs.expressions import BIGINT, BOOL, Type
from spark_cep.udfs.rows.program import Aggregate, MatchNumber

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Shipment
    from spark_cep.compiling.rows.guarding import Guarding
    from spark_cep.compiling.rows.texts import Row
    from spark_cep.compiling.rows.types import Types

_LABEL = "CAST('' AS STRING)"


@dataclass
class Readings:
    """Collects what the engine is to evaluate, each thing once. `samples`: for each reading SQL
    over an input row that has its type."""

    shipment: Shipment
    types: Types
    guarding: Guarding
    found: list[Reading] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)

    def value(self, row: Row, text: str) -> int:
        column = self.shipment.column(self.guarding.at(row, text))
        reading = Reading(read(row, column, self._type(text)), column)
        return self._add(reading, f"({text})")

    def present(self, row: Row) -> int:
        return self._add(Reading(read(row, None, BOOL)), "TRUE")

    def label(self, row: Row) -> int:
        return self._add(Reading(classifier(row), label=True), _LABEL)

    def number(self) -> int:
        return self._add(Reading(MatchNumber(BIGINT)), "1L")

    def aggregate(self, aggregate: Aggregate, text: str | None) -> int:
        """One of the engine's; `text` None: it counts rows."""
        column = None if text is None else self._column(aggregate, text)
        keeps = aggregate.name in {"min", "max"}
        sample = f"({text})" if keeps else f"CAST(NULL AS {name_of(aggregate.type)})"
        reading = Reading(replace(aggregate, column=column), column if keeps else None)
        return self._add(reading, sample)

    def list_of(self, rows: Aggregate, text: str | None) -> int:
        """The values of a text at these rows; None: their labels."""
        if text is None:
            label = replace(rows, name="list", type=NUMBER)
            return self._add(Reading(label, shape="list", label=True), f"array({_LABEL})")
        column = self._column(rows, text)
        values = replace(rows, name="list", column=column, type=self._type(text))
        return self._add(Reading(values, column, "list"), f"array({text})")

    def _column(self, rows: Aggregate, text: str) -> int:
        return self.shipment.column(self.guarding.among(rows.variables, text))

    def _type(self, text: str) -> Type:
        found = self.types.of(text)
        return Type("other") if isinstance(found, str) else found

    def _add(self, reading: Reading, sample: str) -> int:
        if reading not in self.found:
            self.found.append(reading)
            self.samples.append(sample)
        return self.found.index(reading)
