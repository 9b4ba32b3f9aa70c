"""The lookups that a worker process keeps: one for each source of a query, shared by its buckets.

Caches are never shared between queries: a lookup is found by the token of its query and by a
scope, in which values count as constant. In batch that is the stage, so that another action on the
same answer fetches anew; on streams it is the running query, so that values live over triggers.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.remotes.lookup import Lookup

if TYPE_CHECKING:
    from spark_cep.udfs.remotes.spec import Remote

# A worker process serves few queries at once; what was asked for the longest ago goes.
MOST: Final = 16
_Key = tuple[str, str]


@dataclass
class _Known:
    """`trigger`: of a stream, that the lookup was last asked for in."""

    lookup: Lookup
    scope: str
    trigger: str | None


_known: OrderedDict[_Key, _Known] = OrderedDict()


def lookups(
    remotes: Sequence[Remote], scope: str, trigger: str | None = None
) -> tuple[Lookup, ...]:
    """A lookup for each source, kept as long as the scope stays the same. `trigger`: of a stream;
    lookups are told when another one begins."""
    found = tuple(_lookup(remote, scope, trigger) for remote in remotes)
    while len(_known) > max(MOST, len(remotes)):
        _known.popitem(last=False)[1].lookup.close()
    return found


def forget() -> None:
    """Everything, as in a new worker."""
    for each in _known.values():
        each.lookup.close()
    _known.clear()


def _lookup(remote: Remote, scope: str, trigger: str | None) -> Lookup:
    key = (remote.token, remote.name)
    found = _known.pop(key, None)
    if found is not None and found.scope != scope:
        found.lookup.close()
        found = None
    if found is None:
        found = _Known(Lookup(remote), scope, trigger)
    elif found.trigger != trigger:
        found.trigger = trigger
        found.lookup.trigger()
    _known[key] = found
    return found.lookup


# A forked process is a new worker.
os.register_at_fork(after_in_child=_known.clear)
