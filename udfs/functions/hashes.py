"""Spark's hash functions: Murmur3 of 32 bits (`hash`) and xxHash of 64 bits (`xxhash64`).

Both go through the values of a row, the hash of one being the seed of the next; NULL changes
nothing. Integers of up to 32 bits, dates and booleans are hashed as 4 bytes, longer ones as 8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.functions.nested import element_type, struct_fields
from spark_cep.udfs.functions.numbers import wrap
from spark_cep.udfs.functions.registry import Binding, Run, bound_function

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type

_WORD: Final = 0xFFFFFFFF
_LONG: Final = 0xFFFFFFFFFFFFFFFF
_SEED: Final = 42
_BIGINT_DIGITS: Final = 18

_Hash = Callable[[bytes, int], int]


# ---- Murmur3 -------------------------------------------------------------------------------------


def _rotate(x: int, count: int, bits: int) -> int:
    return ((x << count) | (x >> (bits - count))) & ((1 << bits) - 1)


def _mix(state: int, word: int) -> int:
    word = _rotate(word * 0xCC9E2D51 & _WORD, 15, 32) * 0x1B873593 & _WORD
    return (_rotate(state ^ word, 13, 32) * 5 + 0xE6546B64) & _WORD


def murmur3(data: bytes, seed: int) -> int:
    """Bytes behind the last whole word are mixed one by one, each with its sign.

    >>> murmur3(b"abc", 42)
    1322437556
    """
    state, whole = seed & _WORD, len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        state = _mix(state, word)
    for byte in data[whole:]:
        state = _mix(state, wrap(byte, 8) & _WORD)
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    return wrap(state ^ state >> 16, 32)


# ---- xxHash --------------------------------------------------------------------------------------


_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


def _round(state: int, word: int) -> int:
    return _rotate((state + word * _P2) & _LONG, 31, 64) * _P1 & _LONG


def xxhash64(data: bytes, seed: int) -> int:
    seed &= _LONG
    at = 0
    if len(data) >= 32:
        lanes = [(seed + _P1 + _P2) & _LONG, (seed + _P2) & _LONG, seed, (seed - _P1) & _LONG]
        for words in struct.iter_unpack("<4Q", data[: len(data) // 32 * 32]):
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        at = len(data) // 32 * 32
        state = sum(_rotate(lane, n, 64) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True))
        state &= _LONG
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _LONG
    else:
        state = (seed + _P5) & _LONG
    state = (state + len(data)) & _LONG
    while at + 8 <= len(data):
        (word,) = struct.unpack_from("<Q", data, at)
        state = (_rotate(state ^ _round(0, word), 27, 64) * _P1 + _P4) & _LONG
        at += 8
    if at + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, at)
        state = (_rotate(state ^ (word * _P1 & _LONG), 23, 64) * _P2 + _P3) & _LONG
        at += 4
    for byte in data[at:]:
        state = _rotate(state ^ (byte * _P5 & _LONG), 11, 64) * _P1 & _LONG
    state = (state ^ state >> 33) * _P2 & _LONG
    state = (state ^ state >> 29) * _P3 & _LONG
    return wrap(state ^ state >> 32, 64)


# ---- values --------------------------------------------------------------------------------------


def hashes(type_: Type) -> bool:
    """Whether values of the type can be hashed; maps cannot."""
    element, fields = element_type(type_), struct_fields(type_)
    if element is not None:
        return hashes(element)
    if fields is not None:
        return all(hashes(each) for _, each in fields)
    return type_.kind != "other"


def _bytes_of(value: Any, type_: Type) -> bytes:
    kind = type_.kind
    if kind == "string":
        return bytes(value.encode())
    if kind == "binary":
        return bytes(value)
    if kind in {"bool", "date", "months"} or (kind == "int" and type_.bits <= 32):
        return struct.pack("<i", value)
    if kind == "float":
        # -0.0 is hashed as 0.0; all NaN are one.
        return struct.pack("<f" if type_.bits == 32 else "<d", value if value else 0.0)
    if kind == "decimal" and type_.precision > _BIGINT_DIGITS:
        size = (value + (value < 0)).bit_length() // 8 + 1
        return int(value).to_bytes(size, "big", signed=True)
    return struct.pack("<q", value)


def _seeded(type_: Type, run: _Hash) -> Callable[[Any, int], int]:
    element, fields = element_type(type_), struct_fields(type_)
    if element is None and fields is None:
        return lambda value, seed: seed if value is None else run(_bytes_of(value, type_), seed)
    parts = [] if fields is None else [_seeded(each, run) for _, each in fields]
    inner = parts[0] if element is None else _seeded(element, run)

    def of_nested(value: Any, seed: int) -> int:
        for place, each in enumerate(value or ()):
            seed = (parts[place] if parts else inner)(each, seed)
        return seed

    return of_nested


def _bind(run: _Hash) -> Callable[[Binding], Run]:
    def bind(binding: Binding) -> Run:
        each = [_seeded(type_, run) for type_ in binding.arguments]

        def of_row(*values: Any) -> int:
            seed = _SEED
            for part, value in zip(each, values, strict=True):
                seed = part(value, seed)
            return seed

        return of_row

    return bind


bound_function("hash", "hashed*", takes_null=True)(_bind(murmur3))
bound_function("xxhash64", "hashed*", takes_null=True)(_bind(xxhash64))
