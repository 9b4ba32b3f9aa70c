"""Whether the payload of an event pattern travels with the rows, or is joined to the matches.

The payload is the columns that an answer shows and matching does not read. To ship it is work for
every candidate row; to join it is a second scan of the input, and work for every matched row. It
does not change the answer, so it can be set: `spark.cep.payload` is "auto", "join" or "ship".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_cep.errors import PlanError
from spark_cep.explanation.numbers import format_amount
from spark_cep.planner.statistics import Sample
from spark_cep.udfs.planning.cost_model import BranchModel, plan_steps
from spark_cep.udfs.planning.shapes import left_deep_shape

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.planner.statistics import NoSample


PAYLOAD_CONF = "spark.cep.payload"

# Narrower payloads cost less to ship than a join has stages for.
LEAST_ROW_BYTES = 256
LEAST_FILE_BYTES = 128 << 20
# Costs of a byte, where that of shipping it with a candidate row is 1.
SCAN_COST = 0.25
JOIN_COST = 3.0
# A join has to be expected to cost less than this share of shipping.
CLEARLY_CHEAPER = 0.5

_MILLION = 1_000_000


@dataclass(frozen=True)
class PayloadChoice:
    """`joins`: the payload is joined to the matches by row; otherwise it is shipped."""

    joins: bool
    reason: str

    @property
    def mode(self) -> Literal["join", "ship"]:
        return "join" if self.joins else "ship"


@dataclass(frozen=True)
class PayloadSize:
    """`row_bytes`: of a row's payload, by its types. `file_bytes`: of the input's files, the
    payload's part; None: unknown."""

    row_bytes: int
    file_bytes: int | None


@dataclass(frozen=True)
class RowShares:
    """For each row of the input: candidates, and rows of matches, counted once for each match."""

    candidates: float
    matched: float


def parse_payload_setting(setting: str) -> Literal["auto", "join", "ship"]:
    """
    >>> parse_payload_setting("")
    'auto'
    """
    for known in ("auto", "join", "ship"):
        if setting.strip().lower() in {known, "" if known == "auto" else known}:
            return known
    raise PlanError(f"{PAYLOAD_CONF} is {setting!r}", hint='set it to "auto", "join" or "ship"')


def find_too_small(size: PayloadSize) -> str | None:
    """Why a join is not worth its stages, before anything else is looked at.

    >>> find_too_small(PayloadSize(40, None))
    'the payload has only 40 bytes a row'
    >>> find_too_small(PayloadSize(1600, 1 << 30)) is None
    True
    """
    if size.row_bytes < LEAST_ROW_BYTES:
        return f"the payload has only {size.row_bytes} bytes a row"
    if size.file_bytes is None:
        return "the size of the input is unknown"
    if size.file_bytes < LEAST_FILE_BYTES:
        return f"the payload has only {_mebibytes(size.file_bytes)} of files"
    return None


def choose_by_cost(shares: RowShares | str) -> PayloadChoice:
    """The choice where a join is possible. `shares`: a text says why they are unknown.

    >>> choose_by_cost(RowShares(0.75, 0.001)).mode, choose_by_cost(RowShares(0.75, 0.5)).mode
    ('join', 'ship')
    >>> choose_by_cost(RowShares(0.01, 0.0)).mode
    'ship'
    """
    if isinstance(shares, str):
        return PayloadChoice(False, shares)
    cost = SCAN_COST + JOIN_COST * shares.matched
    expected = (
        f"of a million rows {format_amount(shares.candidates * _MILLION)} are candidates, and "
        f"matches are expected to have {format_amount(shares.matched * _MILLION)}"
    )
    return PayloadChoice(cost < CLEARLY_CHEAPER * shares.candidates, expected)


def estimate_shares(compiled: CompiledPattern, sample: Sample | NoSample) -> RowShares | str:
    """What a sample says, or why it says nothing. Candidates are counted low: those of the variable
    that has the most."""
    if not isinstance(sample, Sample):
        return sample.reason or "there is no sample to estimate matches from"
    if sample.estimates is None or not sample.rows:
        return f"no variable accepts any of {sample.source()}"
    if any(each.is_list for each in compiled.variables):
        return "the length of lists cannot be estimated"
    estimates = sample.estimates
    rows = sample.rows if sample.complete else _MILLION
    candidates = max(estimates.rates.values(), default=0.0) * estimates.windows
    matched = 0.0
    for branch in compiled.branches:
        model = BranchModel(branch, compiled.conditions, compiled.variables)
        shape = left_deep_shape(range(model.size))
        if shape is not None:
            steps = plan_steps(model, shape, estimates)
            matched += steps[-1].partials * model.size
    return RowShares(min(1.0, candidates / rows), matched / rows)


def _mebibytes(count: int) -> str:
    return f"{count >> 20} MiB"
