"""Writes the bodies of the responses that come with each message, which kio would take long to encode."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from smq_broker.kafka.protocol.cursor import INT16, INT32, unsigned_varint
from smq_broker.kafka.protocol.messages import Part


class ResponseWriter:
    """``flexible`` says whether lengths are compact and structures have tagged fields."""

    def __init__(self, flexible: bool) -> None:
        self._flexible = flexible
        self._parts: list[Part] = []
        self._open = bytearray()
        """What follows the last large part."""

    def write(self, encoded: bytes) -> None:
        self._open += encoded

    def write_part(self, parts: Sequence[Part]) -> None:
        """Bytes that are sent as they are, with their size before them."""
        self.write_size(sum(map(len, parts)))
        if parts:
            self._parts += (self._open, *parts)
            self._open = bytearray()

    def write_size(self, size: int) -> None:
        """Of an array or of bytes."""
        self._open += unsigned_varint(size + 1) if self._flexible else INT32.pack(size)

    def write_text(self, text: str | None) -> None:
        if text is None:
            self._open += b"\0" if self._flexible else _NO_TEXT
            return
        encoded = text.encode()
        self._open += (unsigned_varint(len(encoded) + 1) if self._flexible else INT16.pack(len(encoded))) + encoded

    def write_topic(self, name: str, topic_id: UUID | None) -> None:
        """The id if there is one: it takes the place of the name from some version on."""
        if topic_id is None:
            self.write_text(name)
        else:
            self._open += topic_id.bytes

    def write_tag(self, tag: int, value: bytes) -> None:
        """The only tagged field of a structure."""
        self._open += b"\x01" + unsigned_varint(tag) + unsigned_varint(len(value)) + value

    def write_no_tags(self) -> None:
        if self._flexible:
            self._open += b"\0"

    def finish(self) -> Sequence[Part]:
        return (*self._parts, self._open)


_NO_TEXT = INT16.pack(-1)
