"""Words of a clause that are nearly those of the grammar: "did you mean", at the word itself.

A word counts as misspelled only where nothing else could be meant: an expression or a list has
ended before it, and what follows is what the section needs. A name is never followed by that.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from spark_cep.expressions.problems import nearest_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.errors import PatternError
    from spark_cep.sql.statement import Statement

_SECTION_WORDS = ("PARTITION", "ORDER", "MEASURES", "PATTERN", "WITHIN", "SUBSET", "DEFINE")
_CUTOFF = 0.8
# Words of window definitions (R020).
_WINDOW_WORDS = ("INITIAL", "SEEK")
# They follow AFTER MATCH.
_SKIP_PHRASES = (
    ("SKIP", "PAST", "LAST"), ("SKIP", "TO", "NEXT"), ("SKIP", "TO", "FIRST"),
    ("SKIP", "TO", "LAST"),
)  # fmt: skip
# They are followed by an expression or a call, as a section is by its content.
_OPERATORS = {"RUNNING", "FINAL", "DISTINCT", "INTERVAL", "DATE", "TIMESTAMP"}


def is_misspelled_keyword(statement: Statement, index: int) -> bool:
    """Whether the word is nearly MATCH_RECOGNIZE, with a bracket after it."""
    token = statement.tokens[index]
    if token.kind != "word" or not token.text.upper().startswith("MATCH"):
        return False
    is_close = get_close_matches(token.text.upper(), ["MATCH_RECOGNIZE"], n=1, cutoff=_CUTOFF)
    return bool(is_close) and statement.symbol(index + 1, "(")


def check_spelling(statement: Statement, index: int, *, is_first: bool) -> None:
    """Raises PatternError if the word, before which an expression or a list may end, is nearly the
    beginning of a section."""
    token = statement.tokens[index]
    if token.kind != "word" or (index and statement.tokens[index - 1].is_word(*_OPERATORS)):
        return
    if token.is_word("ONE", "ALL"):
        _check_rows_words(statement, index)
    elif token.is_word("AFTER"):
        _check_after_words(statement, index)
    elif token.is_word(*_WINDOW_WORDS) and statement.is_at(index + 1, "PATTERN"):
        word = token.text.upper()
        raise statement.error_at(
            f"{word} belongs to the WINDOW clause; MATCH_RECOGNIZE finds all matches",
            index,
            hint=f"remove {word}: {statement.cut(index + 1, index + 2)} (...)",
        )
    elif token.is_word("SKIP") and _is_nearly(statement, index + 1, "TILL"):
        raise _did_you_mean(statement, index + 1, "SKIP TILL", "TILL")
    elif not statement.is_at(index - 1, "MATCH") and any(
        statement.is_at(index, *words) for words in _SKIP_PHRASES
    ):
        raise statement.error_at(
            "SKIP was not expected here", index, hint="did you mean AFTER MATCH SKIP?"
        )
    elif is_first and token.is_word("PARTITION", "ORDER") and not statement.is_at(index + 1, "BY"):
        raise _did_you_mean(statement, index, f"{token.text.upper()} BY", token.text)
    else:
        _check_section_word(statement, index)


def _check_rows_words(statement: Statement, index: int) -> None:
    wanted = "ROW" if statement.is_at(index, "ONE") else "ROWS"
    other = "ROWS" if wanted == "ROW" else "ROW"
    is_wrong = statement.is_at(index + 1, other) or _is_nearly(statement, index + 1, wanted)
    follows = statement.is_at(index + 2, "PER") or _is_nearly(statement, index + 2, "PER")
    if is_wrong and follows:
        phrase = f"{statement.tokens[index].text.upper()} {wanted} PER MATCH"
        raise _did_you_mean(statement, index + 1, phrase, wanted)


def _check_after_words(statement: Statement, index: int) -> None:
    if statement.is_at(index + 1, "SKIP"):
        raise _did_you_mean(statement, index + 1, "AFTER MATCH SKIP", "MATCH")
    if _is_nearly(statement, index + 1, "MATCH") and statement.is_at(index + 2, "SKIP"):
        raise _did_you_mean(statement, index + 1, "AFTER MATCH SKIP", "MATCH")


def _check_section_word(statement: Statement, index: int) -> None:
    word = statement.tokens[index].text.upper()
    if word in _SECTION_WORDS:
        return
    close = get_close_matches(word, _SECTION_WORDS, n=1, cutoff=_CUTOFF)
    if close and _follows(statement, index + 1, close[0]):
        meant = f"{close[0]} BY" if close[0] in {"PARTITION", "ORDER"} else close[0]
        raise _did_you_mean(statement, index, meant, close[0])


def _follows(statement: Statement, index: int, word: str) -> bool:
    """Whether there is what the section needs."""
    if index >= len(statement.tokens):
        return False
    token = statement.tokens[index]
    is_name = token.kind != "symbol"
    # What follows a name that a measure has without AS begins a section.
    begins_section = token.is_word(*_SECTION_WORDS, "ONE", "ALL", "AFTER", "SKIP", "AS")
    return {
        "PARTITION": token.is_word("BY"),
        "ORDER": token.is_word("BY"),
        "MEASURES": is_name and not begins_section,
        "PATTERN": token.is_symbol("(") or token.is_word("SEQ", "AND", "OR"),
        "WITHIN": token.is_word("INTERVAL") or token.kind in {"number", "string"},
        "SUBSET": is_name and statement.symbol(index + 1, "="),
        "DEFINE": is_name and statement.is_at(index + 1, "AS"),
    }[word]


def _is_nearly(statement: Statement, index: int, word: str) -> bool:
    """Whether the token is this word, misspelled."""
    if not 0 <= index < len(statement.tokens):
        return False
    token = statement.tokens[index]
    is_close = get_close_matches(token.text.upper(), [word], n=1, cutoff=0.7)
    return token.kind == "word" and not token.is_word(word) and bool(is_close)


def _did_you_mean(statement: Statement, index: int, phrase: str, word: str) -> PatternError:
    found = statement.tokens[index].text
    message = f"{found} was not expected here"
    if found.upper() == word.upper():
        message = f"{found} is not complete"
    return statement.error_at(message, index, hint=f"did you mean {phrase}?")


def phrase_error(
    statement: Statement, words_at: tuple[int, int], phrases: Sequence[str], *, what: str, hint: str
) -> PatternError:
    """The error for the words [first, stop), which are none of the phrases: at the first word that
    the nearest phrase does not have there."""
    first, stop = words_at
    message = f"{statement.cut(first, stop)} is not {what}"
    words = [token.text.upper() for token in statement.tokens[first:stop]]
    begun = [each for each in phrases if each.startswith(" ".join(words))]
    nearest = min(begun, key=len, default=None) or nearest_name(" ".join(words), phrases)
    if nearest is None:
        return statement.error(message, statement.span(first, stop), hint=hint)
    wanted = nearest.split()
    same = 0
    while same < min(len(words), len(wanted)) and words[same] == wanted[same]:
        same += 1
    if same == len(words):
        span = statement.span(first, stop)
    else:
        span = statement.span(first + same, first + same + 1)
    return statement.error(message, span, hint=f"did you mean {nearest}?")
