"""REMOTE[...]: the papers' queries as printed, and how a text says which source it means."""

from __future__ import annotations

from typing import Any

import pytest

from spark_cep import sase, udf
from spark_cep.expressions.lookups import RemoteSchema
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.udfs.expressions import BIGINT, DOUBLE, Type
from tests.cases import code
from tests.fake_typer import LocalTyper
from tests.looked_up import TEXT, array, looking, plain
from tests.sql.sase_page import blocks

COLUMNS = {
    "ts": Type("timestamp"), "type": TEXT, "cc": BIGINT, "vol": DOUBLE, "loc": TEXT,
    "limit": DOUBLE, "ben": TEXT, "user": TEXT, "org": TEXT, "ID": BIGINT, "v1": DOUBLE,
    "v2": DOUBLE, "boundary": DOUBLE, "channel": BIGINT, "time": Type("timestamp"), "level": TEXT,
    "temperature": BIGINT, "humidity": BIGINT, "task_id": BIGINT, "machine": BIGINT, "region": TEXT,
}  # fmt: skip
SOURCES = {
    "Q1": {"v1": plain(DOUBLE)},
    "Q2": {"v1": plain(DOUBLE), "v2": plain(DOUBLE)},
    "SAME[cc]": {"user": array(TEXT), "t1_org": plain(DOUBLE), "t3_org": array(TEXT)},
    "OVERLAP": {"temperature": plain(DOUBLE), "humidity": plain(DOUBLE)},
    "task_id": {"regions": array(TEXT)},
}
ASKED = {
    "Q1": {"v1"},
    "Q2": {"v1", "v2"},
    "SAME[cc]": {"user", "t1_org", "t3_org"},
    "OVERLAP": {"temperature", "humidity"},
    "task_id": {"regions"},
}


class Typer(LocalTyper):
    """Knows the functions that the printed texts use and the tests' typer does not."""

    def _answer(self, expression: Any) -> Type | str:
        found = super()._answer(expression)
        if isinstance(found, str) and "date_format" in expression:
            return super()._answer("1 = 1")
        return BIGINT if isinstance(found, str) and expression.startswith("floor(") else found


def printed(word: str) -> str:
    """The listing with the word in it, with the parenthesis that the first one lacks and the unit
    that Q2's window lacks."""
    text = next(text for text in blocks("text") if word in text)
    text = text.replace("SEQ(L l, T t3))\n", "SEQ(L l, T t3)))\n")
    return text.replace("WITHIN 50K", "WITHIN 50K events")


@pytest.mark.parametrize("word", SOURCES)
def test_a_listing_of_the_paper_asks_its_sources_as_printed(word: str) -> None:
    highest = udf(lambda one, other: one, returns="string", name="highest_level")
    symbols = {"OVERLAP": "floor({0} / 100)", "UDF1": highest, "Satellite": None}
    kinds = None if word == "OVERLAP" else "type"
    pattern = sase(printed(word), type_column=kinds, symbols=symbols)
    columns = [ColumnInfo(name, type_) for name, type_ in COLUMNS.items()]
    found = looking(
        pattern,
        sources={name: RemoteSchema(name, value) for name, value in SOURCES[word].items()},
        columns=columns,
        typer=Typer(COLUMNS),
        time_zone="UTC",
    )
    assert {each.remote.name for each in found.compiled.remotes} == ASKED[word]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("b.x NOT IN REMOTE[a.k]", "'b.x NOT IN remote(a.k)'"),
        ("b.x ∈ REMOTE[places, a.k]", "\"b.x IN remote('places', a.k)\""),
        ("b.x = REMOTE['places', a.k, b.k]", "\"b.x = remote('places', a.k, b.k)\""),
        ("b.x > REMOTE(a.k, b.k) + 1", "'b.x > remote(a.k, b.k) + 1'"),
    ],
)
def test_remote_is_written_as_a_call(text: str, condition: str) -> None:
    found = code(sase(f"SEQ(K a, K b) WHERE {text} WITHIN 1h", type_column="kind"))
    assert f".where({condition})" in found
