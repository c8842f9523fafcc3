"""Connects to other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.flight as fl

from smq_core.access.peers import broker_server_name

if TYPE_CHECKING:
    from smq_broker.access.credentials import BrokerCredentials


class FlightDialer:
    """With ``credentials`` both sides show their certificates, and the other one's must name its incarnation."""

    def __init__(self, credentials: BrokerCredentials | None = None) -> None:
        self._credentials = credentials

    def connect(self, address: str, incarnation: str, options: Sequence[tuple[str, Any]]) -> fl.FlightClient:
        """``options`` are those of the gRPC channel. Nothing is sent before the first call."""
        if self._credentials is None:
            return fl.connect(f"grpc://{address}", generic_options=list(options))
        certificate = self._credentials.current.certificate
        return fl.connect(
            f"grpc+tls://{address}",
            tls_root_certs=certificate.roots,
            cert_chain=certificate.chain,
            private_key=certificate.key,
            override_hostname=broker_server_name(incarnation),
            generic_options=list(options),
        )
