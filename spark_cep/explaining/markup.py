"""XML and HTML in which no text can become markup.

`element` is the only maker of `Markup`; all other text that it is given is escaped. So what a user
called a variable or wrote in a condition shows as text, whatever it is. Elements are closed
explicitly, which both XML and HTML read alike.
"""

from __future__ import annotations

import html
import re

# What no XML document may hold, escaped or not.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *content: str, **attributes: object) -> Markup:
    """One element. Attribute names with a dash are written with an underscore.

    >>> element("td", "a < b", element("b", "!"), text_align="left")
    '<td text-align="left">a &lt; b<b>!</b></td>'
    """
    inner = "".join(map(_escaped, content))
    given = "".join(
        f' {name.replace("_", "-")}="{_escaped(str(value))}"' for name, value in attributes.items()
    )
    return Markup(f"<{tag}{given}>{inner}</{tag}>")


def together(*parts: str) -> Markup:
    """Elements one after another; plain text between them is escaped."""
    return Markup("".join(map(_escaped, parts)))


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(_ILLEGAL.sub("\ufffd", text))
