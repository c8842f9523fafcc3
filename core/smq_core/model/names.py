"""Names and texts from outside: bounded, and harmless on a terminal, before they are stored, logged or sent on."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from smq_core.errors import InvalidRequest

MAX_NAME_LENGTH = 128
# An error travels in a gRPC trailer, for which both sides accept 8 KiB of metadata, and is one line of a log.
MAX_ERROR_CHARACTERS = 1000
# Of a value that an error quotes: enough to recognise it.
MAX_SHOWN_CHARACTERS = 60
# A whole number with more bits is not quoted: Python refuses to write large ones, and needs long for others.
_MAX_SHOWN_BITS = 200

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = MAX_SHOWN_CHARACTERS
_repr.maxlevel = 3


def check_name(what: str, name: str, limit: int = MAX_NAME_LENGTH) -> None:
    """Raises InvalidRequest unless the name has 1 to ``limit`` printable characters."""
    if not name or len(name) > limit or not name.isprintable():
        raise InvalidRequest(f"{what} has 1 to {limit} printable characters, not {shown(name)}")


def check_labels(labels: Iterable[tuple[str, str]], limit: int = MAX_NAME_LENGTH) -> None:
    """The same for pairs of what it is and a text that may be empty."""
    for what, text in labels:
        if text:
            check_name(what, text, limit)


def shown(value: object) -> str:
    """A value as an error quotes it: like ``repr``, but short, and cut before it is written."""
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS:
        return "a huge number"
    text = _repr.repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 3]}..."


def bounded(text: str, limit: int = MAX_ERROR_CHARACTERS) -> str:
    """At most ``limit`` characters of a text; what is not printable in it is escaped, except for new lines."""
    cut = text[:limit]
    if not cut.replace("\n", "").isprintable():
        cut = "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return cut if len(text) <= limit and len(cut) <= limit else f"{cut[: limit - 1]}…"
