"""LIKE and regular expressions.

Java's regular expressions are translated to Python's where both mean the same. What differs is
rejected with a CepError: the driver reports it for a literal, a worker for a value of a row.
Java's character classes are those of ASCII. What \\b and (?i) mean beyond ASCII depends on the
version of Java, so a text with other characters is rejected next to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.functions.registry import Failure, function
from spark_cep.udfs.functions.strings import lower

# ---- LIKE ----------------------------------------------------------------------------------------


@function("like", "string string string?")
def like(text: str, pattern: str, escape: str = "\\") -> bool:
    """
    >>> like("a%b", "a\\\\%_"), like("ab", "a%b%"), like("ab", "a_b")
    (True, True, False)
    """
    return _like(pattern, escape).fullmatch(text) is not None


@function("ilike", "string string string?")
def _like_any_case(text: str, pattern: str, escape: str = "\\") -> bool:
    return like(lower(text), lower(pattern), escape)


@lru_cache(1024)
def _like(pattern: str, escape: str) -> re.Pattern[str]:
    parts, characters = [], iter(pattern)
    for each in characters:
        if each == escape:
            follows = next(characters, None)
            if follows is None or follows not in {"_", "%", escape}:
                raise Failure(always=True)
            parts.append(re.escape(follows))
        elif each in "_%":
            parts.append("." if each == "_" else ".*")
        else:
            parts.append(re.escape(each))
    return re.compile("".join(parts), re.S)


# ---- regular expressions -------------------------------------------------------------------------


@dataclass(frozen=True)
class JavaPattern:
    """`ascii_only`: the translation holds for texts of ASCII characters only."""

    compiled: re.Pattern[str]
    text: str
    ascii_only: bool

    def search(self, text: str) -> re.Match[str] | None:
        self.check(text)
        return self.compiled.search(text)

    def check(self, text: str) -> None:
        if self.ascii_only and not text.isascii():
            raise CepError(
                f"the regular expression {self.text!r} has \\b or (?i), whose meaning for "
                f"characters beyond ASCII depends on the version of Java; it met {text[:40]!r}",
                hint="use lower() around both sides in place of (?i), and a class in place of \\b",
            )


_LINE_ENDS: Final = "\\n\\r\\u0085\\u2028\\u2029"
_DOLLAR: Final = "(?=(?:\\r\\n|(?<!\\r)\\n|[\\r\\u0085\\u2028\\u2029])?\\Z)"
_CLASSES: Final = {
    "d": "0-9", "w": "a-zA-Z0-9_", "s": " \\t\\n\\x0b\\f\\r",
}  # fmt: skip
_CONTROLS: Final = {
    "t": "\\t", "n": "\\n", "r": "\\r", "f": "\\f", "a": "\\x07", "e": "\\x1b",
}  # fmt: skip
_POSIX: Final = {
    "Lower": "a-z", "Upper": "A-Z", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~", "Space": " \\t\\n\\x0b\\f\\r", "XDigit": "0-9a-fA-F",
    "Blank": " \\t", "ASCII": "\\x00-\\x7f",
}  # fmt: skip
_QUANTIFIER: Final = re.compile(r"\{\d+(?:,\d*)?\}")
_OPENINGS: Final = ("(?:", "(?=", "(?!", "(?<=", "(?<!")
_NAMED: Final = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_FLAGS: Final = re.compile(r"\(\?([is]+)\)")


@lru_cache(1024)
def translate_regex(text: str) -> JavaPattern:
    """
    >>> [bool(translate_regex("^a.c$").search(text)) for text in ("abc\\n", "a\\rc")]
    [True, False]
    """
    translation = _RegexTranslation(text)
    translated = translation.run()
    flags = re.ASCII | (re.IGNORECASE if "i" in translation.flags else 0)
    try:
        compiled = re.compile(translated, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise _problem(text, str(error)) from None
    return JavaPattern(compiled, text, translation.ascii_only)


def _problem(text: str, what: str) -> CepError:
    return CepError(
        f"the regular expression {text!r} cannot be evaluated between rows of a match: {what}",
        hint="write it without that, or compute the function over the columns of one row",
    )


class _RegexTranslation:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.flags = ""
        self.ascii_only = False

    def run(self) -> str:
        found = _FLAGS.match(self._text)
        if found is not None:
            self.flags, self._at = found[1], found.end()
            self.ascii_only = "i" in self.flags
        parts = []
        while self._at < len(self._text):
            parts.append(self._next())
        return "".join(parts)

    def _next(self) -> str:  # noqa: PLR0911
        each = self._text[self._at]
        if each == "\\":
            return self._escape()
        if each == "[":
            return self._class()
        if each == "(":
            return self._group()
        if each in "*+?{":
            return self._quantifier()
        self._at += 1
        if each == ".":
            return "[\\s\\S]" if "s" in self.flags else f"[^{_LINE_ENDS}]"
        if each == "^":
            return "\\A"
        if each == "$":
            return _DOLLAR
        if each in "|)":
            return each
        return re.escape(each)

    def _quantifier(self) -> str:
        if self._text[self._at] == "{":
            found = _QUANTIFIER.match(self._text, self._at)
            if found is None:
                raise self._refusal("a { that begins no quantifier")
            taken = found[0]
        else:
            taken = self._text[self._at]
        self._at += len(taken)
        follows = self._text[self._at : self._at + 1]
        if follows == "+":
            raise self._refusal("a possessive quantifier")
        if follows == "?":
            self._at += 1
            return taken + "?"
        return taken

    def _group(self) -> str:
        rest = self._text[self._at :]
        named = _NAMED.match(rest)
        if named is not None:
            self._at += named.end()
            return f"(?P<{named[1]}>"
        opening = next((each for each in _OPENINGS if rest.startswith(each)), None)
        if opening is None and rest.startswith("(?"):
            raise self._refusal(f"{rest[:4]}")
        self._at += len(opening or "(")
        return opening or "("

    def _escape(self) -> str:
        each = self._text[self._at + 1 : self._at + 2]
        if each == "Q":
            end = self._text.find("\\E", self._at)
            literal = self._text[self._at + 2 : end if end >= 0 else len(self._text)]
            self._at = end + 2 if end >= 0 else len(self._text)
            return f"(?:{re.escape(literal)})" if len(literal) != 1 else re.escape(literal)
        if each in {"b", "B"}:
            self.ascii_only = True
            self._at += 2
            return f"\\{each}"
        if each in {"A", "z", "Z"}:
            self._at += 2
            return {"A": "\\A", "z": "\\Z", "Z": _DOLLAR}[each]
        if each.isdigit() and each != "0":
            if self._text[self._at + 2 : self._at + 3].isdigit():
                raise self._refusal("a back reference of two digits")
            self._at += 2
            return f"(?:\\{each})"
        return f"[{self._character_escape()}]"

    def _character_escape(self) -> str:
        """What an escape means inside a class."""
        each = self._text[self._at + 1 : self._at + 2]
        if not each:
            raise self._refusal("a \\ at the end")
        self._at += 2
        if each in _CLASSES:
            return _CLASSES[each]
        if each in {"D", "W", "S"}:
            return f"\\{each}"
        if each in _CONTROLS:
            return _CONTROLS[each]
        if each in "xu":
            digits = self._text[self._at : self._at + (2 if each == "x" else 4)]
            if re.fullmatch("[0-9a-fA-F]{2}|[0-9a-fA-F]{4}", digits) is None:
                raise self._refusal(f"\\{each}")
            if each == "u" and 0xD800 <= int(digits, 16) < 0xE000:
                raise self._refusal("half of a surrogate pair")
            self._at += len(digits)
            return f"\\{each}{digits}"
        if each == "p":
            found = re.match(r"\{(\w+)\}", self._text[self._at :])
            if found is None or found[1] not in _POSIX:
                raise self._refusal("\\p of Unicode")
            self._at += found.end()
            return _POSIX[found[1]]
        if each.isascii() and each.isalnum():
            raise self._refusal(f"\\{each}")
        return f"\\{each}" if each.isascii() else each

    def _class(self) -> str:
        self._at += 1
        parts = ["["]
        if self._text.startswith("^", self._at):
            self._at += 1
            parts.append("^")
        first = True
        while True:
            each = self._text[self._at : self._at + 1]
            if not each or (first and each == "]"):
                raise self._refusal("a ] first in a class" if each else "a [ that is not closed")
            if each == "]":
                break
            if each == "[" or self._text.startswith("&&", self._at):
                raise self._refusal("a class inside a class")
            first = False
            if each == "\\":
                if self._text[self._at + 1 : self._at + 2] == "Q":
                    raise self._refusal("\\Q inside a class")
                parts.append(self._character_escape())
                continue
            self._at += 1
            is_plain = each.isalnum() or each == "-" or not each.isascii()
            parts.append(each if is_plain else f"\\{each}")
        self._at += 1
        return "".join([*parts, "]"])

    def _refusal(self, what: str) -> CepError:
        return _problem(self._text, what)


@function("rlike regexp regexp_like", "string string")
def _matches(text: str, pattern: str) -> bool:
    return translate_regex(pattern).search(text) is not None


@function("regexp_extract", "string string int?")
def _extract(text: str, pattern: str, group: int = 1) -> str:
    java = translate_regex(pattern)
    if not 0 <= group <= java.compiled.groups:
        raise Failure(always=True)
    found = java.search(text)
    return "" if found is None else found[group] or ""


@function("regexp_replace", "string string string")
def _replace(text: str, pattern: str, by: str) -> str:
    java = translate_regex(pattern)
    java.check(text)
    return java.compiled.sub(_replacement(by, java.compiled.groups), text)


@lru_cache(256)
def _replacement(by: str, groups: int) -> Callable[[re.Match[str]], str]:
    """Java's $1 and \\x in a replacement."""
    parts: list[str | int] = []
    at = 0
    while at < len(by):
        each, follows = by[at], by[at + 1 : at + 2]
        at += 1
        if each == "\\":
            if not follows:
                raise Failure(always=True)
            parts.append(follows)
            at += 1
        elif each == "$":
            if not re.fullmatch("[0-9]", follows) or int(follows) > groups:
                raise Failure(always=True)
            number = int(follows)
            at += 1
            while re.fullmatch("[0-9]", by[at : at + 1]) and number * 10 + int(by[at]) <= groups:
                number = number * 10 + int(by[at])
                at += 1
            parts.append(number)
        else:
            parts.append(each)
    return lambda found: "".join(
        each if isinstance(each, str) else found[each] or "" for each in parts
    )


@function("regexp_count", "string string")
def _count(text: str, pattern: str) -> int:
    java = translate_regex(pattern)
    java.check(text)
    return sum(1 for _ in java.compiled.finditer(text))


@function("regexp_substr", "string string")
def _first_match(text: str, pattern: str) -> str | None:
    found = translate_regex(pattern).search(text)
    return None if found is None else found[0]


@function("split", "string string int?")
def split(text: str, pattern: str, limit: int = -1) -> tuple[Any, ...]:
    """
    >>> split("a1b2", "[0-9]"), split("ab", "", 5), split("a,b,c", ",", 2)
    (('a', 'b', ''), ('a', 'b'), ('a', 'b,c'))
    """
    if text and not pattern:
        return tuple(text[: limit if 0 < limit < len(text) else len(text)])
    java = translate_regex(pattern)
    java.check(text)
    parts: list[str] = []
    done = 0
    for found in java.compiled.finditer(text):
        if 0 < limit <= len(parts) + 1:
            break
        if found.end() == 0:
            continue  # no empty string before a match of nothing at the beginning
        parts.append(text[done : found.start()])
        done = found.end()
    return (*parts, text[done:])


@function("regexp_extract_all", "string string int?")
def _extract_all(text: str, pattern: str, group: int = 1) -> tuple[str, ...]:
    java = translate_regex(pattern)
    if not 0 <= group <= java.compiled.groups:
        raise Failure(always=True)
    java.check(text)
    return tuple(found[group] or "" for found in java.compiled.finditer(text))


@function("regexp_instr", "string string int?")
def _place_of_match(text: str, pattern: str, _: int = 0) -> int:
    found = translate_regex(pattern).search(text)
    return 0 if found is None else found.start() + 1
