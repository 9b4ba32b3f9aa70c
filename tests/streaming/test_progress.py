"""What Spark's progress holds of a query's counts, in the forms that its sessions give."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from spark_cep.errors import CepError
from spark_cep.streaming import metrics

COUNTS = "\n".join(json.dumps({"rows": rows, "matches": 1, "late_rows": 2}) for rows in (3, 4))
FORMS: dict[str, Any] = {
    "a row": SimpleNamespace(asDict=lambda: {"buckets": COUNTS}),
    "a dict": {"buckets": COUNTS},
    "values and schema apart": {
        "values": [COUNTS],
        "schema": {"type": "struct", "fields": [{"name": "buckets"}]},
    },
}


def query(observed: dict[str, Any]) -> Any:
    progress = {"batchId": 5, "timestamp": "now", "observedMetrics": observed}
    return SimpleNamespace(recentProgress=[progress])


@pytest.mark.parametrize("form", FORMS)
def test_buckets_are_summed_by_trigger(form: str) -> None:
    (found,) = metrics(query({"other": {"n": 1}, "spark_cep_3": FORMS[form]}))
    assert (found["trigger"], found["rows"], found["matches"]) == (5, 7, 2)
    assert found["late_rows"] == 4


def test_a_query_without_a_pattern_is_refused() -> None:
    with pytest.raises(CepError, match="no pattern of spark-cep is matched"):
        metrics(query({"other": {"n": 1}}))
    assert metrics(query({})) == []
