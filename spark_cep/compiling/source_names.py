"""Which remote source a call means that names none: `remote(t1.user)`.

So the papers write it, REMOTE[t1.user], where the reader knows the source. Here the key says it:
a source called like the key as a whole, `t1_user`, or like its column, `user`; else the only one
that there is. What no rule tells is a problem, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp


def named_by_key(keys: Sequence[exp.Expr], known: Iterable[str]) -> str | None:
    """The source that is meant.

    >>> from spark_cep.compiling.spans import parse
    >>> key = [parse("t1.user").root]
    >>> named_by_key(key, ["user", "org"]), named_by_key(key, ["places"])
    ('user', 'places')
    >>> named_by_key(key, ["org", "places"])
    """
    given = list(known)
    for name in _names(keys):
        for each in given:
            if each.casefold() == name.casefold():
                return each
    return given[0] if len(given) == 1 else None


def _names(keys: Sequence[exp.Expr]) -> Iterator[str]:
    columns = [key for key in keys if isinstance(key, exp.Column)]
    if columns and len(columns) == len(keys):
        yield "_".join(".".join(p.name for p in key.parts).replace(".", "_") for key in columns)
        yield "_".join(key.name for key in columns)
