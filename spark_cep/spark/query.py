"""What the two runners, `run_batch` and `run_stream`, need of a pattern over a DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from spark_cep.explanation.plan import MatchPlan
    from spark_cep.planner.layout import Layout, Slicing
    from spark_cep.spark.lookups import RemoteSources
    from spark_cep.spark.prepare import PreparedRows
    from spark_cep.spark.projection import MatchFrame
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.canonical import Data
    from spark_cep.udfs.execution.shedding import StageBound
    from spark_cep.udfs.output import EventOutput, RowOutput
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.shedding.utility import StreamSheddingSpec


@dataclass(frozen=True)
class RowObservers:
    """What observes rows before the engine gets them; each gives back the rows that it was given.
    `lookups`: rows with the column `metrics`. `shed`: rows with the column DROPPED, and the
    aggregate that counts them."""

    lookups: Callable[[DataFrame], DataFrame] | None = None
    shed: Callable[[DataFrame, Column], DataFrame] | None = None


NO_OBSERVERS = RowObservers()


class Query(Protocol):
    """A pattern, compiled against a DataFrame. Nothing is wrong with its texts any more.

    What has to be decided with a look at the data (which rows are shed, which plan is chosen) is
    decided when it is first needed, once; a Spark job may run then.
    """

    @property
    def source(self) -> SourceFrame:
        """The input, with the columns that are looked up for row patterns."""
        ...

    @property
    def remotes(self) -> RemoteSources: ...

    @property
    def output(self) -> EventOutput | RowOutput:
        """The columns that the workers give back."""
        ...

    @property
    def fetches(self) -> bool:
        """Whether values are fetched for the rows, so that there are lookups to observe."""
        ...

    @property
    def sheds(self) -> bool:
        """Whether Spark drops rows, so that there are dropped rows to observe."""
        ...

    @property
    def loses_matches(self) -> bool:
        """Whether Spark drops rows of a batch, or the engine partial matches."""
        ...

    def rows(self, observers: RowObservers = NO_OBSERVERS) -> PreparedRows:
        """The shipped rows: candidates only, without those that are shed."""
        ...

    def layout(self, shipped: DataFrame) -> Layout:
        """How a batch of shipped rows is distributed."""
        ...

    def program(self, slicing: Slicing | None = None) -> Program | RowProgram:
        """What the workers run; `slicing`: how time is cut, if it is."""
        ...

    def worker_schema(self, shipped: StructType) -> StructType:
        """The columns of `output` with their types; `shipped` has the types as they travel."""
        ...

    def project(self, matches: MatchFrame, raw: StructType) -> DataFrame:
        """The answer. `raw`: the original types of the shipped columns."""
        ...

    def title(self, layout: Layout, number: int) -> str:
        """What Spark shows as the name of the workers' function."""
        ...

    def report(self, layout: Layout, number: int) -> MatchPlan:
        """What explain shows."""
        ...

    @property
    def bound(self) -> StageBound | None:
        """How long the tasks of a batch may match, where that is bounded."""
        ...

    def recall(self) -> tuple[int, int] | None:
        """Where rows are shed: the matches of a sample, all of them and those that are left."""
        ...

    # ---- streams ---------------------------------------------------------------------------------

    def check_stream(self) -> None:
        """Refuses a pattern or an input that has no answer as a stream. No job runs here."""
        ...

    def form(self) -> Data:
        """What the query means, to be compared with what a checkpoint was written for."""
        ...

    @property
    def worker_shedding(self) -> StreamSheddingSpec | None:
        """What the workers of a stream may drop in front of the engine."""
        ...
