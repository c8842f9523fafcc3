"""Names and texts from outside: bounded, and harmless on a terminal, before they are stored, logged or sent on.

What becomes part of a path in the filer or of a resource's name has fewer characters: no name leads out of its folder,
and two names that look alike are one name.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable

from smq_core.errors import InvalidRequest

MAX_NAME_LENGTH = 128
DEFAULT_NAMESPACE = "default"
# An error travels in a gRPC trailer, for which both sides accept 8 KiB of metadata, and is one line of a log.
MAX_ERROR_CHARACTERS = 1000
# Of a value that an error quotes: enough to recognise it.
MAX_SHOWN_CHARACTERS = 60
# A whole number with more bits is not quoted: Python refuses to write large ones, and needs long for others.
_MAX_SHOWN_BITS = 200

# A DNS-1123 label, as names of topics and namespaces are in Kubernetes.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_TOPIC = re.compile(f"{_LABEL}/{_LABEL}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = MAX_SHOWN_CHARACTERS
_repr.maxlevel = 3


def check_name(what: str, name: str, limit: int = MAX_NAME_LENGTH) -> None:
    """Raises InvalidRequest unless the name has 1 to ``limit`` printable characters."""
    if not name or len(name) > limit or not name.isprintable():
        raise InvalidRequest(f"{what} has 1 to {limit} printable characters, not {shown(name)}")


def is_label(text: str) -> bool:
    """Whether this is a DNS-1123 label, as names of topics and namespaces are."""
    return re.fullmatch(_LABEL, text) is not None


def full_topic_name(name: str, namespace: str = DEFAULT_NAMESPACE) -> str:
    """``flights`` -> ``default/flights``; a full name stays. Raises InvalidRequest if no topic can have that name."""
    full = name if not isinstance(name, str) or "/" in name else f"{namespace}/{name}"
    check_topic_name(full)
    return full


def check_topic_name(full: str) -> None:
    """Raises InvalidRequest unless this is ``namespace/topic``, each of them a DNS-1123 label."""
    if not isinstance(full, str) or not _TOPIC.fullmatch(full):
        raise InvalidRequest(
            "a topic's name must be `topic` or `namespace/topic`, each of 1 to 63 of a-z, 0-9 and '-' with a letter or "
            f"digit at both ends, not {shown(full)}"
        )


def is_file_name(name: str) -> bool:
    """Whether the name can be one part of a path in the filer. Letters are those of ASCII."""
    return _FILE_NAME.fullmatch(name) is not None


def check_file_name(what: str, name: str) -> None:
    """Raises InvalidRequest unless the name can be one part of a path in the filer."""
    if not is_file_name(name):
        raise InvalidRequest(
            f"{what} has 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-', and no '.' at its beginning, not {shown(name)}"
        )


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
