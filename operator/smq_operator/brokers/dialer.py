"""How the leader connects to a broker: in clear text, or over TLS with certificates of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow.flight as fl

from smq_core.access.certificates import Certificate
from smq_core.model.entities import Replica
from smq_operator.security.leader_certificate import LeaderCertificate
from smq_proto.flight import connect

ChannelOptions = Sequence[tuple[str, str | int]]


class BrokerDialer(Protocol):
    """Any thread may use it. A client connects with its first call."""

    def connect(self, replica: Replica, options: ChannelOptions) -> fl.FlightClient: ...

    def certificate(self) -> Certificate | None:
        """With what it connects now. A connection with an older one will end, so make a new one."""
        ...


class OpenDialer:
    """Of a release without security."""

    def connect(self, replica: Replica, options: ChannelOptions) -> fl.FlightClient:
        return connect(replica.address, replica.incarnation, None, options)

    def certificate(self) -> Certificate | None:
        return None


class SecureDialer:
    """A broker is recognised by its incarnation, wherever it is."""

    def __init__(self, own: LeaderCertificate) -> None:
        self._own = own

    def connect(self, replica: Replica, options: ChannelOptions) -> fl.FlightClient:
        return connect(replica.address, replica.incarnation, self._own.current(), options)

    def certificate(self) -> Certificate | None:
        return self._own.current()


OPEN = OpenDialer()
