"""Functions of strings and binaries. Positions and lengths count code points, as in Spark."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from typing import Any, Final

from spark_cep.udfs.functions.registry import Binding, Failure, Run, bound_function, function

_LARGEST: Final = (1 << 31) - 1
_LEAST: Final = -(1 << 31)


# ---- parts ---------------------------------------------------------------------------------------


@function("substring substr", "text int int?")
def substring(text: Any, position: int, length: int = _LARGEST) -> Any:
    """
    >>> substring("spark", -3, 2), substring("spark", 0), substring("spark", -9, 6)
    ('ar', 'spark', 'sp')
    """
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = min(max(start + length, _LEAST), _LARGEST)
    if end <= start:
        return text[:0]
    return text[max(start, 0) : max(end, 0)]


@function("left", "text int")
def left(text: Any, length: int) -> Any:
    return substring(text, 1, length)


@function("right", "text int")
def right(text: Any, length: int) -> Any:
    return text[:0] if length <= 0 else substring(text, -length)


@function("split_part", "string string int")
def split_part(text: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise Failure(always=True)
    parts = text.split(delimiter) if delimiter else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


@function("substring_index", "string string int")
def substring_index(text: str, delimiter: str, count: int) -> str:
    if count == 0 or not delimiter:
        return ""
    at = -1 if count > 0 else len(text) - len(delimiter) + 1
    for _ in range(abs(count)):
        if count > 0:
            at = text.find(delimiter, at + 1)
        else:
            at = text.rfind(delimiter, 0, max(at - 1 + len(delimiter), 0)) if at > 0 else -1
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(delimiter) :]


@function("overlay", "string string int int?")
def overlay(text: str, replacement: str, position: int, length: int = -1) -> str:
    taken = length if length >= 0 else len(replacement)
    return str(substring(text, 1, position - 1) + replacement + substring(text, position + taken))


# ---- search --------------------------------------------------------------------------------------


@function("instr", "string string")
def instr(text: str, part: str) -> int:
    return text.find(part) + 1


@function("locate position", "string string int?", takes_null=True)
def locate(part: str | None, text: str | None, start: int | None = 1) -> int | None:
    if start is None:
        return 0
    if part is None or text is None:
        return None
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if part else 1


@function("startswith", "text text")
def _starts_with(text: Any, part: Any) -> bool:
    return bool(text.startswith(part))


@function("endswith", "text text")
def _ends_with(text: Any, part: Any) -> bool:
    return bool(text.endswith(part))


@function("contains", "text text")
def _contains(text: Any, part: Any) -> bool:
    return part in text


@function("find_in_set", "string string")
def _find_in_set(text: str, listed: str) -> int:
    words = listed.split(",")
    return 0 if "," in text or text not in words else words.index(text) + 1


# ---- joining, padding, replacing -----------------------------------------------------------------


@function("concat_strings", "text*")
def _concat(*parts: Any) -> Any:
    return type(parts[0])().join(parts)


@function("concat_ws", "string any*", takes_null=True)
def _concat_with_separator(separator: str | None, *parts: Any) -> str | None:
    if separator is None:
        return None
    words: list[str] = []
    for part in parts:
        listed = (part,) if isinstance(part, str) else part or ()
        words += [each for each in listed if each is not None]
    return separator.join(words)


@function("lpad", "text int text?")
def _pad_left(text: Any, length: int, pad: Any = None) -> Any:
    return _padding(text, length, pad) + text[: max(length, 0)]


@function("rpad", "text int text?")
def _pad_right(text: Any, length: int, pad: Any = None) -> Any:
    return text[: max(length, 0)] + _padding(text, length, pad)


def _padding(text: Any, length: int, pad: Any) -> Any:
    if pad is None:
        pad = " " if isinstance(text, str) else b"\0"
    missing = length - len(text)
    return (pad * (missing // len(pad) + 1))[:missing] if missing > 0 and pad else pad[:0]


@function("repeat", "string int")
def _repeat(text: str, count: int) -> str:
    return text * count


@function("space", "int")
def _space(count: int) -> str:
    return " " * count


@function("replace", "string string string?")
def _replace(text: str, part: str, by: str = "") -> str:
    return text.replace(part, by) if part else text


@function("translate", "string string string")
def _translate(text: str, characters: str, by: str) -> str:
    table: dict[int, str | None] = {}
    for place, each in enumerate(characters):
        table.setdefault(ord(each), by[place] if place < len(by) else None)
    return text.translate(table)


@function("trim btrim", "string string?")
def _trim(text: str, characters: str = " ") -> str:
    return text.strip(characters) if characters else text


@function("ltrim", "string")
def _trim_left(text: str) -> str:
    return text.lstrip(" ")


@function("rtrim", "string")
def _trim_right(text: str) -> str:
    return text.rstrip(" ")


@function("ltrim_characters", "string string")
def _trim_left_characters(text: str, characters: str) -> str:
    return text.lstrip(characters) if characters else text


@function("rtrim_characters", "string string")
def _trim_right_characters(text: str, characters: str) -> str:
    return text.rstrip(characters) if characters else text


@function("reverse_string", "string")
def _reverse(text: str) -> str:
    return text[::-1]


@function("elt", "int text*", takes_null=True)
def _elt(number: int | None, *parts: Any) -> Any:
    if number is None:
        return None
    if not 1 <= number <= len(parts):
        raise Failure
    return parts[number - 1]


# ---- case and lengths ----------------------------------------------------------------------------


@function("upper ucase", "string")
def _upper(text: str) -> str:
    return text.upper()


@function("lower lcase", "string")
def lower(text: str) -> str:
    return text.lower()


@function("initcap", "string")
def _capitalize(text: str) -> str:
    return " ".join(word[:1].title() + word[1:] for word in lower(text).split(" "))


@function("length char_length character_length len", "text")
def _length(text: Any) -> int:
    return len(text)


@function("octet_length", "text")
def _octets(text: Any) -> int:
    return len(_bytes(text))


@function("bit_length", "text")
def _bits(text: Any) -> int:
    return 8 * len(_bytes(text))


@function("ascii", "string")
def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


@function("char chr", "bigint")
def _character(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


# ---- distances and digests -----------------------------------------------------------------------


@function("levenshtein", "string string int?")
def levenshtein(a: str, b: str, threshold: int | None = None) -> int:
    """
    >>> levenshtein("kitten", "sitting"), levenshtein("kitten", "sitting", 2)
    (3, -1)
    """
    before = list(range(len(b) + 1))
    for row, one in enumerate(a, 1):
        here = [row]
        for column, other in enumerate(b, 1):
            step = min(before[column] + 1, here[-1] + 1)
            here.append(min(step, before[column - 1] + (one != other)))
        before = here
    return -1 if threshold is not None and before[-1] > threshold else before[-1]


_SOUNDS: Final = "01230127022455012623017202"


@function("soundex", "string")
def soundex(text: str) -> str:
    """
    >>> soundex("Miller"), soundex("1st")
    ('M460', '1st')
    """
    letters = [chr(each).upper() if each < 0x80 else "" for each in text.encode()]
    if not letters or not "A" <= (letters[0] or " ") <= "Z":
        return text
    found, last = letters[0], _SOUNDS[ord(letters[0]) - ord("A")]
    for letter in letters[1:]:
        if not letter or not "A" <= letter <= "Z":
            last = "0"
            continue
        code = _SOUNDS[ord(letter) - ord("A")]
        if code == "7":
            continue
        if code not in {"0", last}:
            found += code
            if len(found) == len("M460"):
                break
        last = code
    return found.ljust(len("M460"), "0")


@bound_function("hex", "any")
def _hex(binding: Binding) -> Run:
    if binding.arguments[0].kind == "int":
        return lambda number: f"{number & (1 << 64) - 1:X}"
    return lambda text: _bytes(text).hex().upper()


@function("unhex", "string")
def _unhex(text: str) -> bytes | None:
    if re.fullmatch("[0-9a-fA-F]*", text) is None:
        return None
    return bytes.fromhex("0" + text if len(text) % 2 else text)


@function("base64", "binary")
def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@function("md5", "binary")
def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@function("sha sha1", "binary")
def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


@function("sha2", "binary int")
def _sha2(data: bytes, bits: int) -> str | None:
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


@function("crc32", "binary")
def _crc32(data: bytes) -> int:
    return zlib.crc32(data)


def _bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)
