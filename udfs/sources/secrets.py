"""The secrets of ready-made sources: how they are given, where they are read, and how messages are
kept free of them.

A secret is text, in which `${NAME}` stands for an environment variable, or a function without
arguments. Both are read in the worker, so that the driver need not know the secret and the plan
does not carry it. Always holds: whatever was read in this process is scrubbed from every message
of a source: as it is, as it is quoted in a URL, and as Python or JSON would quote it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from spark_cep.udfs.errors import PatternError, RemoteError

Secret = str | Callable[[], str]

HIDDEN = "***"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z_0-9]*)\}")
_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s]*@")
_NAMED_LIKE_SECRETS = re.compile(r"auth|token|key|secret|passw|cookie|session|sig", re.IGNORECASE)

# Values that functions returned in this process; they are not called again just to scrub.
_known_secrets: set[str] = set()


def check_secret(secret: object, what: str) -> None:
    if not callable(secret) and not (isinstance(secret, str) and secret):
        raise PatternError(
            f"{what} must be text or a function, not {type(secret).__name__}",
            hint=f"write {what}='...', {what}='${{NAME}}' for an environment variable of the "
            "workers, or pass a function without arguments",
        )


def check_password(password: object, url: Secret) -> None:
    """Refuses a password beside a URL that has one already."""
    check_secret(password, "password")
    if isinstance(url, str) and ":" in url.partition("://")[2].rpartition("@")[0]:
        raise PatternError(
            f"there are two passwords: in {hide_secrets(url)} and in password=...",
            hint="leave one of them out",
        )


def read_secret(secret: Secret, what: str, *, quoted: bool = False) -> str:
    """Reads a secret in the worker. `quoted`: as a part of a URL, unless it is the whole URL."""
    if not isinstance(secret, str):
        return _from_function(secret, what)
    whole = _REFERENCE.fullmatch(secret) is not None

    def value(found: re.Match[str]) -> str:
        text = _from_environment(found.group(1), what)
        return quote(text, safe="") if quoted and not whole else text

    return _REFERENCE.sub(value, secret)


def hide_secrets(url: Secret) -> str:
    """The part of a URL that may be shown: without user, password and query.

    >>> hide_secrets("redis://:p4ss@cache:6379/0"), hide_secrets("https://x.org/a?token=1")
    ('redis://cache:6379/0', 'https://x.org/a')
    """
    if not isinstance(url, str):
        return "a URL from a function"
    if _REFERENCE.fullmatch(url):
        return url
    scheme, mark, rest = url.partition("://")
    if not mark:
        return "a URL"
    # After the last @, since a password that was not quoted may contain any character.
    return f"{scheme}://{re.split('[?#&]', rest.rpartition('@')[2])[0]}"


def secrets_in_url(url: Secret) -> Iterator[Secret]:
    """The secrets in a URL: its password, and the query parameters that are named like secrets."""
    if not isinstance(url, str):
        return
    scheme, _, rest = url.partition("://")
    user, _, _ = rest.rpartition("@")
    name, has_password, password = user.partition(":")
    if has_password:
        yield password
    elif name and scheme.startswith("http"):
        # Some services take a token in place of a user.
        yield name
    for name, value in re.findall(r"[?&]([^=&#]+)=([^&#]+)", url):
        if _NAMED_LIKE_SECRETS.search(name):
            yield value


def secrets_in_header(name: str, value: Secret) -> Iterator[Secret]:
    """The secrets of a header: its value, and the words after the first ("Bearer ...")."""
    if not isinstance(value, str) or _NAMED_LIKE_SECRETS.search(name) or "${" in value:
        yield value
        if isinstance(value, str):
            yield from value.split()[1:]


def scrub_secrets(text: str, secrets: Iterable[Secret]) -> str:
    """`text` without the secrets; those of functions, if they were read in this process.

    >>> scrub_secrets("cannot log in with 'p4 ss' at redis://:p4%20ss@cache", ["p4 ss"])
    "cannot log in with '***' at redis://:***@cache"
    """
    plain = set(_known_secrets)
    for secret in secrets:
        if isinstance(secret, str):
            plain |= {secret, _REFERENCE.sub(lambda m: os.environ.get(m.group(1), ""), secret)}
            plain |= {os.environ.get(name, "") for name in _REFERENCE.findall(secret)}
    forms = {form for secret in plain for form in _encoded_forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return _PASSWORD.sub(rf"\1{HIDDEN}@", text)


def _encoded_forms(secret: str) -> Iterator[str]:
    if not secret or _REFERENCE.fullmatch(secret):
        return
    for form in (secret, unquote(secret), unquote_plus(secret)):
        yield from (form, quote(form), quote(form, safe=""), quote_plus(form))
        yield from (repr(form)[1:-1], json.dumps(form)[1:-1])


def _from_environment(name: str, what: str) -> str:
    if name not in os.environ:
        raise RemoteError(
            f"{what} needs the environment variable {name}, which is not set in a worker",
            hint=f"set spark.executorEnv.{name}, or pass {what} as a function",
        )
    _known_secrets.add(os.environ[name])
    return os.environ[name]


def _from_function(function: Callable[[], str], what: str) -> str:
    failed = ""
    try:
        text = function()
    except Exception as error:
        failed = type(error).__name__
    # Without the error itself: its message may contain the secret.
    if failed:
        raise RemoteError(f"the function for {what} failed with {failed}")
    if not isinstance(text, str):
        raise RemoteError(f"the function for {what} must return text, not {type(text).__name__}")
    _known_secrets.add(text)
    return text
