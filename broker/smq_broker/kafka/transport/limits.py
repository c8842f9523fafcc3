"""What the connections of Kafka clients may take."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLimits:
    max_request_bytes: int = 100 * MIB
    """Of a Produce request, as ``socket.request.max.bytes`` of Kafka."""
    max_other_request_bytes: int = 4 * MIB
    """Of any other request. Each byte of one may take 30 bytes of memory once it is decoded."""
    request_memory_bytes: int = 256 * MIB
    """Of all large requests together that are being received or handled, with what they are decoded to."""
    max_connections: int = 10_000
    max_connections_per_host: int | None = None
    idle_seconds: float = 600.0
    """A connection is closed if nothing was received or sent for this time, as ``connections.max.idle.ms`` of Kafka."""
    max_handled: int = 16
    """Requests of one connection that are handled at once."""
    max_handled_bytes: int = 32 * MIB
    """Of these requests together, unless it is one alone."""
