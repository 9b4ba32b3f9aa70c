"""What must not move by accident: stored states of an earlier commit, and compiled programs.

A release that cannot read the states is a release that says so: its changelog tells users to
finish their queries first, and the files are made again with another number of the format.
Compiled programs may change; `python -m tests.fixtures.regenerate` then writes them anew.
"""

from __future__ import annotations

import json

import pytest

from tests.fixtures import compiled
from tests.fixtures.states import KINDS, gone_on, path


@pytest.mark.parametrize("kind", KINDS)
def test_a_bucket_goes_on_from_the_state_of_an_earlier_commit(kind: str) -> None:
    given, wanted = gone_on(kind)
    assert given == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_the_states_have_matches_on_both_sides(kind: str) -> None:
    told = json.loads(path(kind).read_text())
    assert told["before"]
    assert told["after"]


@pytest.mark.parametrize("kind", compiled.PROGRAMS)
def test_patterns_compile_to_the_programs_that_they_had(kind: str) -> None:
    wanted = compiled.path(kind).read_text()
    assert compiled.shown(compiled.PROGRAMS[kind]()) == wanted, "see tests/fixtures/regenerate.py"
