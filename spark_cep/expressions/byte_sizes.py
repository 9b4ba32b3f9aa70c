"""Sizes in bytes as text: in options, and in the plans that Spark prints.

As in Spark's settings every unit is a power of 1024: "64 MB", "64 MiB" and "64m" are the same. A
number without a unit is not a size.
"""

from __future__ import annotations

import re
from math import isfinite

_POWERS = {unit: 10 * power for power, unit in enumerate("BKMGTPE")}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?(?:E[+-]?\d+)?)\s*(B|[KMGTPE](?:i?B)?)\s*", re.IGNORECASE)


def byte_size(text: str) -> int | None:
    """The number of bytes; None if the text is not a size.

    >>> byte_size("64 MB"), byte_size("64 MiB"), byte_size("1.5k"), byte_size("10 B")
    (67108864, 67108864, 1536, 10)
    >>> byte_size("64i"), byte_size("64"), byte_size("64 MBit")
    (None, None, None)
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    size = float(found[1]) * 2 ** _POWERS[found[2][0].upper()]
    return int(size) if isfinite(size) else None
