"""A Kafka client of a few lines, which also says what no client would say."""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from smq_broker.kafka.protocol.entities import build, encode
from smq_broker.kafka.protocol.messages import API_VERSIONS
from smq_core.model.addresses import split_address
from support.waiting import HANG_GUARD


def request_frame(api_key: int, version: int, correlation_id: int, values: dict[str, Any]) -> bytes:
    """A request with its length; ``values`` are those of the body."""
    schema = load_request_schema(api_key, version)
    header = {
        "request_api_key": api_key,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": "test",
    }
    encoded = encode(build(schema.__header_schema__, header)) + encode(build(schema, values))
    return struct.pack(">i", len(encoded)) + encoded


class KafkaSocket:
    def __init__(self, address: str) -> None:
        self.socket = socket.create_connection(split_address(address), timeout=HANG_GUARD)

    def __enter__(self) -> KafkaSocket:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, correlation_id: int, /, **values: Any) -> None:
        self.socket.sendall(request_frame(api_key, version, correlation_id, values))

    def receive_frame(self) -> bytes | None:
        """The next response without its length; None if the connection ends."""
        length = self._receive(4)
        return None if length is None else self._receive(int.from_bytes(length, "big"))

    def receive(self, api_key: int, version: int) -> tuple[int, Any]:
        """The correlation id and the body of the next response."""
        frame = self.receive_frame()
        assert frame is not None, "the connection has ended"
        schema = load_response_schema(api_key, version)
        header, header_size = entity_reader(schema.__header_schema__)(frame, 0)
        body, body_size = entity_reader(schema)(frame, header_size)
        assert header_size + body_size == len(frame)
        return header.correlation_id, body

    def has_ended(self) -> bool:
        """Waits until the broker has closed the connection, and reads nothing else."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _receive(self, size: int) -> bytes | None:
        received = bytearray()
        try:
            while len(received) < size:
                data = self.socket.recv(min(size - len(received), 1 << 20))
                if not data:
                    return None
                received += data
        except ConnectionError:
            return None
        return bytes(received)


class TlsSocket(KafkaSocket):
    """Verifies that the broker is ``host``."""

    def __init__(self, address: str, roots: bytes, host: str) -> None:
        super().__init__(address)
        context = ssl.create_default_context(cadata=roots.decode())
        self.socket = context.wrap_socket(self.socket, server_hostname=host)

    def uses(self) -> bytes:
        """The certificate that the broker has shown."""
        assert isinstance(self.socket, ssl.SSLSocket)
        return self.socket.getpeercert(binary_form=True) or b""

    def is_served(self) -> bool:
        self.send(API_VERSIONS, 0, 1)
        return bool(self.receive(API_VERSIONS, 0)[1].api_keys)
