"""What becomes of an answer of a source: values in the store, or the reasons why there are none.

Always holds: a key that an answer leaves out has the value NULL, and so has a failed key with
on_error="null", until the next trigger. An answer for a whole decides all its parts, also those
that nobody has requested yet; a part that is not in it is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.udfs.errors import CepError, RemoteError
from spark_cep.udfs.remotes.fetching import FetchFailure, shows_errors
from spark_cep.udfs.remotes.keys import GrowableArray, canonical_key
from spark_cep.udfs.remotes.store import (
    FAILED,
    LEAST_BYTES,
    NULL_ROW,
    RemoteValueError,
    ValueStore,
    to_arrow,
)

if TYPE_CHECKING:
    from spark_cep.udfs.remote_spec import LookupMetrics, RemoteSpec
    from spark_cep.udfs.remotes.fetching import FetchResult
    from spark_cep.udfs.remotes.keys import KeyIndex, PartIndex
    from spark_cep.udfs.remotes.store import ElementStates
    from spark_cep.udfs.values.arrow_values import Array


_MISSING = object()
_HINT = 'check that the source answers, raise timeout or retries, or set on_error="null"'
_HINT_TEXT = "show_errors=True shows the exception's text"
_HINT_TYPE = "declare the type of the values as value_type, or convert them in the function"
_HINT_PART = "return parts by their full keys, as part_of takes them"


class LookupValues:
    """The values by id, and the failures by element."""

    def __init__(
        self, remote: RemoteSpec, keys: KeyIndex, parts: PartIndex, states: ElementStates
    ) -> None:
        self._remote = remote
        self._keys = keys
        self._parts = parts
        self._states = states
        self._rows = GrowableArray(np.int64, NULL_ROW)
        self._failures: dict[int, FetchFailure] = {}
        self.store = ValueStore(remote.value)

    def rows(self, ids: Array) -> Array:
        self._rows.grow(len(self._keys))
        return self._rows.all[ids]

    def error(self, element: int) -> RemoteError:
        failure = self._failures[element]
        self._failures.clear()
        hint = _HINT if self._remote.show_errors else f"{_HINT}; {_HINT_TEXT}"
        return RemoteError(
            failure.text, hint=failure.hint or hint, details={"remote": self._remote.name}
        )

    def receive(self, arrival: FetchResult, metrics: LookupMetrics) -> None:
        """Stores the values of a batch, or records why there are none."""
        elements, keys = arrival.batch.elements, arrival.batch.keys
        if arrival.answer is None:
            self._give_up(arrival, metrics)
            return
        answer = _canonical_answer(arrival.answer, keys)
        given = [answer.get(key, _MISSING) for key in keys]
        metrics.unasked += len(answer) - sum(value is not _MISSING for value in given)
        values = [None if value is _MISSING else value for value in given]
        put = self._put_wholes if self._parts.has_wholes else self._put
        put(elements, values, arrival.ended, metrics)

    def keep(self, ids: Array, renumbered: Array) -> None:
        """Keeps the values of these ids, which become 0, 1, ...; the elements get new numbers."""
        self._rows.grow(int(ids.max(initial=-1)) + 1)
        self._rows.keep(ids)
        failures = {int(renumbered[each]): why for each, why in self._failures.items()}
        self._failures = {element: why for element, why in failures.items() if element >= 0}

    def drop(self, elements: Array) -> None:
        """Forgets the values of elements that are present."""
        if not len(elements):
            return
        self._states.drop(elements)
        gone = np.zeros(self._parts.size + 1, np.bool_)
        gone[elements] = True
        rows = self._rows.used
        if self._parts.has_wholes:
            rows[gone[self._parts.of(np.arange(len(rows)))]] = NULL_ROW
        else:
            rows[gone[: len(rows)]] = NULL_ROW
        renumbered = self.store.drop(rows)
        if renumbered is not None:
            rows[:] = renumbered[rows]

    def _give_up(self, arrival: FetchResult, metrics: LookupMetrics) -> None:
        elements = arrival.batch.elements
        if arrival.batch.ahead:
            self._states.take_back(elements)
            return
        assert arrival.failure is not None
        failures = dict.fromkeys(elements.tolist(), arrival.failure)
        self._fail(failures, arrival.ended, metrics)

    def _fail(
        self, failures: Mapping[int, FetchFailure], ended: float, metrics: LookupMetrics
    ) -> None:
        elements = np.array(list(failures), np.int64)
        if self._remote.on_error == "null":
            metrics.failures += len(elements)
            self._states.arrive(elements, np.full(len(elements), LEAST_BYTES), ended)
            self._states.failed_null.all[elements] = True
            self._states.unused.all[elements] = False
        else:
            self._failures.update(failures)
            self._states.state.all[elements] = FAILED

    def _put(
        self, elements: Array, values: list[Any], ended: float, metrics: LookupMetrics
    ) -> None:
        try:
            rows = self.store.put(values)
        except RemoteValueError:
            errors = self._value_errors(elements, elements, values)
            self._fail(errors, ended, metrics)
            good = np.array([int(element) not in errors for element in elements], np.bool_)
            elements = elements[good]
            rows = self.store.put([v for v, fits in zip(values, good, strict=True) if fits])
        self._rows.grow(len(self._keys))
        self._rows.all[elements] = rows
        self._states.arrive(elements, self.store.sizes.all[rows], ended)

    def _put_wholes(
        self, elements: Array, values: list[Any], ended: float, metrics: LookupMetrics
    ) -> None:
        errors: dict[int, FetchFailure] = {}
        for element, whole in zip(elements.tolist(), values, strict=True):
            if whole is None:
                self._arrive_whole(element, [], [], ended)
            elif not isinstance(whole, Mapping):
                key = self._parts.keys(np.array([element]))[0]
                errors[element] = self._value_failure(
                    key, whole, f"{type(whole).__name__} instead of a dict"
                )
            else:
                keys, parts = list(whole.keys()), list(whole.values())
                if not all(map(self._is_key, keys)):
                    errors[element] = self._part_key_failure(element)
                    continue
                try:
                    self._arrive_whole(element, keys, parts, ended)
                except RemoteValueError:
                    places = np.full(len(keys), element)
                    errors |= self._value_errors(places, self._parts.intern(element, keys), parts)
        if errors:
            self._fail(errors, ended, metrics)

    def _is_key(self, key: Any) -> bool:
        """Whether a key has as many parts as the keys of `remote(...)`."""
        count = len(self._remote.keys)
        return count == 1 or (isinstance(key, tuple) and len(key) == count)

    def _part_key_failure(self, element: int) -> FetchFailure:
        whole, count = self._parts.keys(np.array([element]))[0], len(self._remote.keys)
        text = f"returned for key {whole!r} a part whose key is not a tuple of {count}"
        return FetchFailure(f"remote {self._remote.name!r} {text}", _HINT_PART)

    def _arrive_whole(self, element: int, keys: list[Any], parts: list[Any], ended: float) -> None:
        rows = self.store.put(parts)
        ids = self._parts.intern(element, keys)
        self._rows.grow(len(self._keys))
        mine = ids >= 0
        self._rows.all[ids[mine]] = rows[mine]
        size = max(int(self.store.sizes.all[rows].sum()), LEAST_BYTES)
        self._states.grow(self._parts.size)
        self._states.arrive(np.array([element]), np.array([size]), ended)

    def _value_errors(
        self, elements: Array, ids: Array, values: list[Any]
    ) -> dict[int, FetchFailure]:
        """The elements with values that do not fit the type, and why."""
        errors: dict[int, FetchFailure] = {}
        for element, id_, value in zip(elements.tolist(), ids.tolist(), values, strict=True):
            try:
                to_arrow([value], self._remote.value)
            except RemoteValueError as error:
                errors[element] = self._value_failure(self._keys.values[id_], value, error.message)
        return errors

    def _value_failure(self, key: Any, value: Any, what: str) -> FetchFailure:
        """The failure of one key. Ready-made sources return an error of this library as the value
        of a key, and its message is enough."""
        name = self._remote.name
        if isinstance(value, CepError) and shows_errors(self._remote):
            return FetchFailure(f"remote {name!r}: {value.message}", value.hint)
        return FetchFailure(f"remote {name!r} returned for key {key!r} {what}", _HINT_TYPE)


def _canonical_answer(answer: Mapping[Any, Any], keys: list[Any]) -> Mapping[Any, Any]:
    """The answer by canonical keys. Only NaN needs this: for Python, two NaNs are two keys."""
    if any(map(_has_nan, keys)):
        return {canonical_key(key): value for key, value in answer.items()}
    return answer


def _has_nan(key: Any) -> bool:
    if isinstance(key, tuple):
        return any(map(_has_nan, key))
    return isinstance(key, float) and key != key  # noqa: PLR0124, only NaN differs from itself
