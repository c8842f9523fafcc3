"""Splits what a connection receives into frames: four bytes of length, then a request."""

from __future__ import annotations

import struct

from smq_broker.kafka.protocol.codec import HEADER_START
from smq_broker.kafka.protocol.messages import PRODUCE, ProtocolError
from smq_broker.kafka.transport.limits import KafkaLimits

_LENGTH = struct.Struct(">i")
_LENGTH_AND_API_KEY = struct.Struct(">ih")
# Of a request whose body becomes many small objects.
DECODED_BYTES_PER_BYTE = 30


class FrameReader:
    """Takes bytes as they come, and gives whole frames."""

    def __init__(self, limits: KafkaLimits) -> None:
        self._limits = limits
        self._buffer = bytearray()

    def feed(self, received: bytes) -> None:
        self._buffer += received

    @property
    def has_begun(self) -> bool:
        """Whether a part of a frame is there."""
        return bool(self._buffer)

    def next_size(self, max_bytes: int | None = None) -> int | None:
        """The length of the frame that comes next, None if that is not received yet.

        Raises ProtocolError if no request has this length, or if it is longer than ``max_bytes``.
        """
        if len(self._buffer) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._buffer)
        most = self._limits.max_request_bytes if max_bytes is None else max_bytes
        if not HEADER_START.size <= size <= most:
            raise ProtocolError(
                "frame_size",
                f"a frame has {size} bytes, and {HEADER_START.size} to {most} are accepted. "
                "A client that does not speak Kafka's protocol, or that uses TLS, looks like this",
            )
        if len(self._buffer) < _LENGTH_AND_API_KEY.size:
            return None
        _, api_key = _LENGTH_AND_API_KEY.unpack_from(self._buffer)
        if api_key != PRODUCE and size > self._limits.max_other_request_bytes:
            raise ProtocolError(
                "frame_size",
                f"a request of API {api_key} has {size} bytes, and {self._limits.max_other_request_bytes} are accepted",
            )
        return int(size)

    def memory_of_next(self, size: int) -> int:
        """About how many bytes the next frame takes with what it is decoded to. ``size`` is that of ``next_size``.

        Records are views of the frame.
        """
        _, api_key = _LENGTH_AND_API_KEY.unpack_from(self._buffer)
        return size if api_key == PRODUCE else size * DECODED_BYTES_PER_BYTE

    def take(self, size: int) -> memoryview | None:
        """The next frame, which has this length and no other owner; None if it is not whole yet.

        A large frame that arrives alone is not copied.
        """
        end = _LENGTH.size + size
        buffer = self._buffer
        if len(buffer) < end:
            return None
        if len(buffer) - end < size:
            self._buffer = buffer[end:]
            return memoryview(buffer)[_LENGTH.size : end]
        frame = buffer[_LENGTH.size : end]
        del buffer[:end]
        return memoryview(frame)
