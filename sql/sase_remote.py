"""REMOTE[...]: values that are looked up, as conditions call them.

    REMOTE[t1.user]            remote(t1.user)
    REMOTE[places, t1.user]    remote('places', t1.user)

The papers print no source's name. Which one is meant is not known here, where no source is: the
call stays without a name, and the compiler of conditions finds it by the key (`source_names`).
"""

from __future__ import annotations

from collections.abc import Callable

from spark_cep.sql.sase_nodes import Expression, Remote, Sql, Word


def remote_call(
    node: Remote, write: Callable[[Expression], str], is_free: Callable[[Word], bool]
) -> str | None:
    """The call; None if it has no key. `write` writes an expression, `is_free` says whether a
    word means nothing else."""
    name, keys = None, node.arguments
    if len(keys) > 1:
        name = _source_name(keys[0], is_free)
    if not keys:
        return None
    own = keys if name is None else keys[1:]
    texts = [*([name] if name else []), *map(write, own)]
    return f"remote({', '.join(texts)})"


def _source_name(node: Expression, is_free: Callable[[Word], bool]) -> str | None:
    """A word, or a text."""
    if isinstance(node, Word) and is_free(node):
        return f"'{node.name}'"
    is_text = isinstance(node, Sql) and node.text.startswith("'")
    return node.text if isinstance(node, Sql) and is_text else None
