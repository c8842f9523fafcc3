"""The format string of `smq consume --print`, with the letters of kcat and rpk."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from smq_core.errors import InvalidRequest
from smq_storage.chunks.schemas import RESERVED_COLUMNS
from smq_storage.json_lines.fields import TOPIC_FIELD
from smq_storage.json_lines.rows import json_line
from smq_storage.json_lines.values import iso

Row = dict[str, Any]

_PART = re.compile(r"%(.)|\\(.)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class LineTemplate:
    """Writes a message by a format string. Raises InvalidRequest for another letter."""

    def __init__(self, text: str) -> None:
        self._parts: list[Callable[[Row], bytes]] = []
        fields: dict[str, Callable[[Row], bytes]] = {
            "v": _value,
            "s": _value,
            "k": lambda row: row.get("key") or b"" if _is_plain(row) else b"",
            "h": lambda row: b",".join(it["key"].encode() + b"=" + (it["value"] or b"") for it in row["headers"] or ()),
            "t": lambda row: row[TOPIC_FIELD].encode(),
            "p": lambda row: str(row["partition"]).encode(),
            "S": lambda row: row["_segment"].encode(),
            "o": lambda row: str(row["_offset"]).encode(),
            "T": lambda row: iso(row["timestamp"]).encode(),
            "%": lambda row: b"%",
        }
        for match in _PART.finditer(text):
            letter, escape, plain = match.groups()
            if letter is not None and letter not in fields:
                raise InvalidRequest(
                    f"--print has no %{letter}. It has %v (value), %k (key), %h (headers), %t (topic), %p (slot), "
                    "%S (segment), %o (offset), %T (timestamp), %% and \\n, \\t, \\r, \\0"
                )
            self._parts.append(fields[letter] if letter is not None else _constant(escape, plain))
        if "".join(match.group() for match in _PART.finditer(text)) != text:
            raise InvalidRequest(f"--print ends in a single % or \\: {text}")

    def line(self, row: Row) -> bytes:
        """``row`` has the columns of `smq consume --meta`, and the topic."""
        return b"".join(part(row) for part in self._parts)


def _constant(escape: str | None, plain: str) -> Callable[[Row], bytes]:
    found = plain.encode() if escape is None else _ESCAPES.get(escape, b"\\" + escape.encode())
    return lambda row: found


def _is_plain(row: Row) -> bool:
    return isinstance(row.get("value"), bytes | None) and isinstance(row.get("key"), bytes | None) and "value" in row


def _value(row: Row) -> bytes:
    """The value, or the topic's own columns as a line of JSON."""
    body = {name: value for name, value in row.items() if name not in RESERVED_COLUMNS}
    return row["value"] or b"" if body.keys() == {"key", "value"} and _is_plain(row) else json_line(body)
