"""Reads the primitive types of Kafka's messages, one after the other, and writes some of them."""

from __future__ import annotations

import struct
from uuid import UUID

from smq_broker.kafka.protocol.messages import ProtocolError

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
# The longest unsigned varint of 32 bits.
_MAX_VARINT_BYTES = 5


class Cursor:
    """A position in a request. ``flexible`` says whether lengths are compact and structures have tagged fields.

    All methods raise ProtocolError if the request ends before the value does.
    """

    def __init__(self, view: memoryview, position: int, flexible: bool) -> None:
        self._view = view
        self.position = position
        self._flexible = flexible

    def int16(self) -> int:
        value: int = INT16.unpack(self.take(2))[0]
        return value

    def int32(self) -> int:
        value: int = INT32.unpack(self.take(4))[0]
        return value

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.take(16)))

    def string(self) -> str | None:
        return self._text(self._unsigned_varint() - 1) if self._flexible else self.legacy_string()

    def legacy_string(self) -> str | None:
        """One whose length is not compact, whatever the version is."""
        return self._text(self.int16())

    def view(self) -> memoryview | None:
        """The bytes as a view of the request, without a copy."""
        size = self._size()
        return None if size < 0 else self.take(size)

    def array_size(self) -> int:
        """The number of elements. Null counts as empty."""
        return max(self._size(), 0)

    def end_structure(self) -> None:
        """Leaves out the tagged fields, none of which is known."""
        if not self._flexible:
            return
        for _ in range(self._unsigned_varint()):
            self._unsigned_varint()
            self.take(self._unsigned_varint())

    def take(self, size: int) -> memoryview:
        start, end = self.position, self.position + size
        if end > len(self._view):
            raise _malformed("it ends within a value")
        self.position = end
        return self._view[start:end]

    def _text(self, size: int) -> str | None:
        if size < 0:
            return None
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise _malformed("a string is not UTF-8") from None

    def _size(self) -> int:
        return self._unsigned_varint() - 1 if self._flexible else self.int32()

    def _unsigned_varint(self) -> int:
        value = 0
        for number in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                return value
        raise _malformed("a varint is longer than five bytes")


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _malformed(why: str) -> ProtocolError:
    return ProtocolError("malformed", f"the request cannot be decoded: {why}")
