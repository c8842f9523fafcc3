"""Connects to other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.flight as fl

from smq_proto.flight import connect

if TYPE_CHECKING:
    from smq_broker.access.credentials import BrokerCredentials


class FlightDialer:
    """With ``credentials`` both sides show their certificates, and the other one's must name its incarnation."""

    def __init__(self, credentials: BrokerCredentials | None = None) -> None:
        self._credentials = credentials

    def connect(self, address: str, incarnation: str, options: Sequence[tuple[str, Any]]) -> fl.FlightClient:
        """``options`` are those of the gRPC channel. Nothing is sent before the first call."""
        certificate = self._credentials.current.certificate if self._credentials is not None else None
        return connect(address, incarnation, certificate, options)
