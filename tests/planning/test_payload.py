"""Whether a payload is joined, by estimates alone."""

from __future__ import annotations

import pytest

from spark_cep.errors import PlanError
from spark_cep.planner.payload import (
    LEAST_FILE_BYTES,
    LEAST_ROW_BYTES,
    PayloadSize,
    RowShares,
    choose_by_cost,
    find_too_small,
    parse_payload_setting,
)


def test_the_setting_is_read_in_any_case() -> None:
    assert [parse_payload_setting(text) for text in ("", " JOIN ", "Ship", "auto")] == [
        "auto", "join", "ship", "auto",
    ]  # fmt: skip
    with pytest.raises(PlanError, match=r"spark\.cep\.payload is 'on'"):
        parse_payload_setting("on")


def test_small_and_unknown_payloads_are_not_joined() -> None:
    enough = PayloadSize(LEAST_ROW_BYTES, LEAST_FILE_BYTES)
    assert find_too_small(enough) is None
    assert "bytes a row" in str(find_too_small(PayloadSize(LEAST_ROW_BYTES - 1, 1 << 40)))
    assert "MiB of files" in str(find_too_small(PayloadSize(5_000, LEAST_FILE_BYTES - 1)))
    assert "unknown" in str(find_too_small(PayloadSize(5_000, None)))


@pytest.mark.parametrize(
    ("candidates", "matched", "mode"),
    [
        (0.75, 0.001, "join"),
        (1.0, 0.05, "join"),
        (0.75, 0.1, "ship"),
        # A filter in front leaves few rows to ship; the second scan reads all of them.
        (0.05, 0.0, "ship"),
        (1.0, 5.0, "ship"),
    ],
)
def test_a_join_has_to_be_clearly_cheaper(candidates: float, matched: float, mode: str) -> None:
    choice = choose_by_cost(RowShares(candidates, matched))
    assert choice.mode == mode
    assert "of a million rows" in choice.reason


def test_what_is_unknown_is_shipped_with_the_reason() -> None:
    choice = choose_by_cost("no sample")
    assert (choice.mode, choice.reason) == ("ship", "no sample")
