"""Retries, timeouts, the circuit, priorities: on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.errors import RemoteError
from spark_cep.udfs.remote_spec import FetchPolicy
from spark_cep.udfs.remotes.lookup import Lookup
from spark_cep.udfs.sources.clients import ClientError, TransientError
from tests.remotes.simulated import Simulated, Source, failing, ids_of, looked_up

ALWAYS = [failing()] * 100


def policy(**changes: Any) -> FetchPolicy:
    return FetchPolicy(**{"timeout": 1.0, "retries": 2, "backoff": 0.1, "batch": 2, **changes})


def test_keys_go_in_batches_and_each_once() -> None:
    source = Source()
    lookup, _ = looked_up(source, fetch_policy=policy())
    ids = ids_of(lookup, 1, 2, 2, None, 3, 1)
    lookup.wait(ids)
    assert source.calls == [[1, 2], [3]]
    assert lookup.arrow(ids).to_pylist() == [10, 20, 20, None, 30, 10]
    assert (lookup.metrics.calls, lookup.metrics.keys) == (2, 3)


def test_what_is_under_way_is_not_asked_for_again() -> None:
    source = Source()
    lookup, clock = looked_up(source, fetch_policy=policy())
    lookup.ask(ids_of(lookup, 1, 2))
    clock.advance(0.01)
    lookup.ask(ids_of(lookup, 2, 1))
    lookup.wait(ids_of(lookup, 1, 2, 3))
    assert source.asked_for == [1, 2, 3]


def test_only_so_many_calls_are_made_at_once() -> None:
    source = Source()
    lookup, clock = looked_up(source, fetch_policy=policy(in_flight=3))
    lookup.wait(ids_of(lookup, *range(40)))
    assert clock.most_running == 3
    assert clock.time == pytest.approx(7 * 0.05)  # 20 calls, 3 at a time


def test_only_what_failed_is_tried_again_after_a_growing_pause() -> None:
    source = Source()
    source.answers = [failing(), lambda keys: {key: 0 for key in keys}, failing()]
    lookup, clock = looked_up(source, fetch_policy=policy(in_flight=1))
    lookup.wait(ids_of(lookup, 1, 2, 3))
    assert source.calls == [[1, 2], [3], [1, 2], [1, 2]]
    # Two calls, one of them while the first pause of 0.1 passes; then a pause of 0.2.
    assert clock.time == pytest.approx(0.05 + 0.1 + 0.05 + 0.2 + 0.05)
    assert lookup.metrics.retries == 2


def test_a_need_that_fails_for_good_is_raised_when_waited_for() -> None:
    source = Source()
    source.answers = list(ALWAYS)
    lookup, clock = looked_up(source, fetch_policy=policy())
    ids = ids_of(lookup, 1, 2)
    lookup.ask(ids)
    clock.advance(10)
    assert not lookup.ready(ids).any()
    with pytest.raises(RemoteError) as caught:
        lookup.wait(ids)
    assert caught.value.message == (
        "remote 'limits' could not fetch 2 keys, in 3 attempts: ConnectionError"
    )
    assert "show_errors=True shows the exception's text" in str(caught.value.hint)
    assert caught.value.__cause__ is None
    source.answers = []
    lookup.wait(ids)  # a task that is tried again asks again
    assert lookup.arrow(ids).to_pylist() == [10, 20]


def test_failed_keys_are_null_until_the_next_trigger_where_asked_for() -> None:
    source = Source()
    source.answers = list(ALWAYS)
    lookup, _ = looked_up(source, fetch_policy=policy(), on_error="null")
    ids = ids_of(lookup, 1)
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [None]
    assert lookup.metrics.failures == 1
    source.answers = []
    lookup.settle()
    assert lookup.ready(ids).all()
    lookup.trigger()
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [10]


def test_a_call_that_outlives_its_timeout_has_failed_and_its_answer_is_not_heard() -> None:
    source = Source()
    source.delays = [5.0, 0.05]
    source.answers = [lambda keys: {key: 2 for key in keys}, lambda keys: {key: 1 for key in keys}]
    lookup, clock = looked_up(source, fetch_policy=policy())
    ids = ids_of(lookup, 1)
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [2]  # what the second call gave
    assert clock.time == pytest.approx(1.0 + 0.1 + 0.05)
    clock.advance(10)
    lookup.settle()
    assert lookup.arrow(ids).to_pylist() == [2]


def test_a_source_that_hangs_is_told_as_a_timeout() -> None:
    source = Source(delay=60)
    lookup, _ = looked_up(source, fetch_policy=policy())
    with pytest.raises(RemoteError, match="TimeoutError: no answer within 1 s"):
        lookup.wait(ids_of(lookup, 1))


def test_needs_go_before_what_is_fetched_ahead() -> None:
    source = Source()
    lookup, _ = looked_up(source, strategy="hybrid", fetch_policy=policy(in_flight=1))
    lookup.ask(ids_of(lookup, 1, 2, 3, 4), ahead=True)
    lookup.wait(ids_of(lookup, 5, 6))
    lookup.wait(ids_of(lookup, 3, 4))
    assert source.calls == [[1, 2], [5, 6], [3, 4]]


def test_what_is_fetched_ahead_goes_forward_when_needed() -> None:
    source = Source()
    lookup, clock = looked_up(source, strategy="hybrid", fetch_policy=policy(in_flight=1))
    lookup.ask(ids_of(lookup, *range(8)), ahead=True)
    lookup.wait(ids_of(lookup, 7))
    assert source.calls == [[0, 1], [6, 7]]
    clock.advance(1)
    assert source.calls == [[0, 1], [6, 7], [2, 3], [4, 5]]


def test_a_failed_prefetch_is_dropped_and_harms_nobody() -> None:
    source = Source()
    source.answers = [failing()]
    lookup, clock = looked_up(source, strategy="prefetch", fetch_policy=policy())
    ids = ids_of(lookup, 1)
    lookup.ask(ids, ahead=True)
    clock.advance(1)
    assert not lookup.ready(ids).any()
    assert len(source.calls) == 1
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [10]
    assert lookup.metrics.prefetched_used == 0


def test_a_prefetch_that_is_needed_before_it_fails_is_tried_again() -> None:
    source = Source()
    source.answers = [failing()]
    lookup, clock = looked_up(source, strategy="prefetch", fetch_policy=policy())
    lookup.ask(ids_of(lookup, 1), ahead=True)
    clock.advance(0.01)
    lookup.wait(ids_of(lookup, 1))
    assert len(source.calls) == 2


def test_a_prefetch_that_fails_as_it_is_needed_is_asked_for_again() -> None:
    class Late(Simulated):
        def urge(self, numbers: Iterable[int]) -> None:
            self.advance(1)
            super().urge(numbers)

    source = Source()
    source.answers = [failing()]
    lookup, _ = looked_up(source, strategy="prefetch", fetch_policy=policy())
    lookup = Lookup(lookup.remote, Late(lookup.remote, source))
    ids = ids_of(lookup, 1)
    lookup.ask(ids, ahead=True)
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [10]
    assert len(source.calls) == 2


def test_an_open_circuit_makes_no_calls_then_one_that_probes() -> None:
    source = Source()
    source.answers = [failing()] * 4
    lookup, clock = looked_up(
        source, fetch_policy=policy(failures=2, pause=5.0, in_flight=2, retries=4)
    )
    lookup.ask(ids_of(lookup, 1, 2, 3, 4, 5, 6))
    clock.advance(5.0)
    assert len(source.calls) == 2  # both failed at 0.05: nothing until 5.05
    clock.advance(0.06)
    assert len(source.calls) == 2
    clock.advance(0.05)
    assert len(source.calls) == 3  # the probe has failed too, at 5.1
    clock.advance(4.9)
    assert len(source.calls) == 3
    clock.advance(0.2)
    assert len(source.calls) == 4
    lookup.wait(ids_of(lookup, 1, 2, 3, 4, 5, 6))
    assert len(source.calls) == 7
    assert not clock.broken


def test_needs_do_not_wait_for_ever_for_a_source_that_stays_away() -> None:
    source = Source()
    source.answers = [failing()] * 100
    lookup, clock = looked_up(source, fetch_policy=policy(failures=2, pause=5.0, retries=2))
    with pytest.raises(RemoteError):
        lookup.wait(ids_of(lookup, *range(20)))
    assert clock.time < 20
    assert len(source.calls) < 20


def test_while_the_circuit_is_open_nothing_is_fetched_ahead() -> None:
    source = Source()
    source.answers = [failing()] * 2
    lookup, clock = looked_up(
        source, strategy="hybrid", fetch_policy=policy(failures=1, pause=5.0, in_flight=1)
    )
    lookup.ask(ids_of(lookup, 1))
    lookup.ask(ids_of(lookup, 2), ahead=True)
    clock.advance(0.1)
    lookup.ask(ids_of(lookup, 3), ahead=True)
    clock.advance(1)
    assert source.asked_for == [1]
    lookup.wait(ids_of(lookup, 1, 2, 3))
    assert lookup.metrics.prefetched == 1


def test_where_failures_give_null_an_open_circuit_does_not_hold_matching_up() -> None:
    source = Source()
    source.answers = list(ALWAYS)
    lookup, clock = looked_up(
        source, on_error="null", fetch_policy=policy(failures=2, pause=50.0, in_flight=1)
    )
    for block in range(10):
        ids = ids_of(lookup, *range(block * 10, block * 10 + 10))
        lookup.wait(ids)
        assert lookup.arrow(ids).null_count == 10
    assert clock.time < 1
    assert len(source.calls) == 2


def test_an_answer_that_is_no_mapping_is_a_failure() -> None:
    source = Source()
    source.answers = [lambda keys: [1, 2]] * 9  # type: ignore[list-item, return-value]
    lookup, _ = looked_up(source, fetch_policy=policy(retries=0))
    with pytest.raises(
        RemoteError, match="it returned list, not a dict from keys to values"
    ) as caught:
        lookup.wait(ids_of(lookup, 1))
    assert str(caught.value.hint).startswith("fn takes a list of keys and returns a dict")


class ReadyMade(Source):
    """A source that hides its secrets, as those of this library do."""

    def scrub(self, text: str) -> str:
        return text.replace("s3cret", "***")


def refuse(keys: list[Any]) -> dict[Any, Any]:
    raise RemoteError("wrong password", hint="give another one")


def test_an_error_of_the_library_is_final_and_keeps_its_hint() -> None:
    source = ReadyMade()
    source.answers = [refuse]
    lookup, clock = looked_up(source, fetch_policy=policy(failures=1))
    with pytest.raises(RemoteError, match="in 1 attempt: wrong password") as caught:
        lookup.wait(ids_of(lookup, 1))
    assert caught.value.hint == "give another one"
    assert len(source.calls) == 1
    assert not clock.broken


@pytest.mark.parametrize("kind", [Source, ReadyMade])
@pytest.mark.parametrize("error", [ConnectionError, RemoteError, SystemExit])
def test_of_an_exception_only_its_type_is_shown(kind: Any, error: Any) -> None:
    def fail(keys: list[Any]) -> dict[Any, Any]:
        raise error(f"redis://u:p4ss@host, {keys}")

    source = kind()
    source.answers = [fail] * 3
    lookup, _ = looked_up(source, fetch_policy=policy())
    with pytest.raises(RemoteError) as caught:
        lookup.wait(ids_of(lookup, 77))
    shown = str(caught.value) + repr(caught.value) + repr(caught.value.details)
    if kind is ReadyMade and error is RemoteError:
        return  # what a ready-made source says of itself has no text of its client
    assert error.__name__ in caught.value.message
    assert "p4ss" not in shown
    assert "77" not in shown


def test_what_a_client_says_is_shown_on_request_only() -> None:
    for show_errors in (False, True):
        source = ReadyMade()
        quoted = TransientError("redis at cache: NOAUTH for u", "redis at cache: AuthError")
        source.answers = [raising(quoted)] * 3
        lookup, _ = looked_up(source, fetch_policy=policy(), show_errors=show_errors)
        with pytest.raises(RemoteError) as caught:
            lookup.wait(ids_of(lookup, 1))
        assert ("NOAUTH" in str(caught.value)) == show_errors
        assert ("AuthError" in str(caught.value)) != show_errors
        source.answers = [raising(ClientError("refused: u", "refused", "log in"))]
        with pytest.raises(RemoteError, match="refused") as caught:
            lookup.wait(ids_of(lookup, 2))
        assert ("refused: u" in str(caught.value)) == show_errors
        assert caught.value.hint == "log in"


def raising(error: Exception) -> Any:
    def fail(keys: list[Any]) -> dict[Any, Any]:
        raise error

    return fail


def test_what_the_source_knows_to_be_secret_is_not_told() -> None:
    source = ReadyMade()
    source.answers = [failing("redis://u:s3cret@host\n refused " + "x" * 1000)] * 3
    lookup, _ = looked_up(source, fetch_policy=policy(), show_errors=True)
    with pytest.raises(RemoteError) as caught:
        lookup.wait(ids_of(lookup, 1))
    assert "u:***@host refused" in str(caught.value)
    assert "s3cret" not in repr(caught.value) + str(caught.value) + repr(lookup.remote)
    assert len(str(caught.value)) < 600


def test_an_exception_that_cannot_be_read_is_told_by_its_type() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    def odd(keys: list[Any]) -> dict[Any, Any]:
        raise Odd

    source = Source()
    source.answers = [odd] * 3
    lookup, _ = looked_up(source, fetch_policy=policy())
    with pytest.raises(RemoteError, match="3 attempts: Odd"):
        lookup.wait(ids_of(lookup, 1))


OUTCOMES = st.lists(st.sampled_from(["answer", "fail", "hang"]), max_size=12)


@settings(deadline=None)
@given(
    OUTCOMES,
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=4), st.booleans()), max_size=6),
    st.sampled_from(["fail", "null"]),
    st.integers(1, 3),
)
def test_every_batch_ends_whatever_the_source_does(
    outcomes: list[str], asks: list[Any], on_error: str, in_flight: int
) -> None:
    source = Source()
    source.delays = [9.0 if outcome == "hang" else 0.05 for outcome in outcomes]
    given_ = iter([outcome for outcome in outcomes if outcome != "hang"])
    source.answers = [
        failing() if outcome == "fail" else (lambda keys: {key: key * 10 for key in keys})
        for outcome in given_
    ]
    lookup, clock = looked_up(
        source,
        strategy="hybrid",
        on_error=on_error,
        fetch_policy=policy(in_flight=in_flight, failures=3, pause=2.0),
    )
    for keys, ahead in asks:
        lookup.ask(ids_of(lookup, *keys), ahead=ahead)
        clock.advance(0.03)
    clock.advance(1000.0)
    assert clock.trying.is_idle
    assert clock.most_running <= in_flight
    source.answers, source.delays = [], []
    ids = ids_of(lookup, *range(10))
    for _ in range(11):  # each wait raises once for what has failed
        try:
            lookup.wait(ids)
            break
        except RemoteError:
            assert on_error == "fail"
    found = lookup.arrow(ids).to_pylist()
    assert all(value in (key * 10, None) for key, value in enumerate(found))
    assert on_error == "null" or None not in found
