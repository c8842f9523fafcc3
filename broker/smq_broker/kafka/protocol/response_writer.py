"""Writes the bodies of the responses that come with each message, which kio would take long to encode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from smq_broker.kafka.protocol.cursor import INT16, INT32, unsigned_varint
from smq_broker.kafka.protocol.messages import Part

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)
UNKNOWN_ID = UUID(int=0)


class Topic(Protocol[P_co]):
    """Of a response."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID | None: ...

    @property
    def partitions(self) -> Sequence[P_co]: ...


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

    def write_topics(self, topics: Sequence[Topic[P]], *, has_ids: bool, write_partition: Callable[[P], None]) -> None:
        """Topics have ids in place of names from some version on."""
        self.write_size(len(topics))
        for topic in topics:
            if has_ids:
                self._open += (topic.topic_id or UNKNOWN_ID).bytes
            else:
                self.write_text(topic.name)
            self.write_size(len(topic.partitions))
            for partition in topic.partitions:
                write_partition(partition)
            self.write_no_tags()

    def write_tag(self, tag: int, value: bytes) -> None:
        """The only tagged field of a structure."""
        self._open += b"\x01" + unsigned_varint(tag) + unsigned_varint(len(value)) + value

    def write_no_tags(self) -> None:
        if self._flexible:
            self._open += b"\0"

    def finish(self) -> Sequence[Part]:
        return (*self._parts, self._open)


_NO_TEXT = INT16.pack(-1)
