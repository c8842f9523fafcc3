"""Connects to other brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow.flight as fl

from smq_proto.flight import connect
from smq_proto.tls_probe import speaks_tls

if TYPE_CHECKING:
    from smq_broker.access.credentials import BrokerCredentials


class BrokerDialer(Protocol):
    """Safe from many threads."""

    def connect(self, address: str, incarnation: str, options: Sequence[tuple[str, Any]]) -> fl.FlightClient:
        """``options`` are those of the gRPC channel. Nothing is sent before the first call."""
        ...


class FlightDialer:
    """With ``credentials`` both sides show their certificates, and the other one's must name its incarnation."""

    def __init__(self, credentials: BrokerCredentials | None = None) -> None:
        self._credentials = credentials

    def connect(self, address: str, incarnation: str, options: Sequence[tuple[str, Any]]) -> fl.FlightClient:
        certificate = self._credentials.current.certificate if self._credentials is not None else None
        return connect(address, incarnation, certificate, options)


class PermissiveDialer:
    """Connects in clear text to brokers that do not speak TLS, and while ``secure`` returns no dialer.

    ``connect`` blocks for two seconds at most.
    """

    def __init__(self, secure: Callable[[], FlightDialer | None]) -> None:
        self._secure = secure
        self._open = FlightDialer()

    def connect(self, address: str, incarnation: str, options: Sequence[tuple[str, Any]]) -> fl.FlightClient:
        secure = self._secure()
        dialer = secure if secure is not None and speaks_tls(address) else self._open
        return dialer.connect(address, incarnation, options)
