"""How the leader connects to a broker: in clear text, or over TLS with certificates of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow.flight as fl

from smq_core.access.certificates import Certificate
from smq_core.model.entities import Replica
from smq_operator.security.authority.leader_certificate import LeaderCertificate
from smq_proto.flight import connect
from smq_proto.tls_probe import speaks_tls

ChannelOptions = Sequence[tuple[str, str | int]]


class BrokerDialer(Protocol):
    """Any thread may use it."""

    def connect(self, replica: Replica, options: ChannelOptions) -> fl.FlightClient:
        """A client that connects with its first call. May block for two seconds, while a release is being secured."""
        ...

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
    """A broker is recognised by its incarnation, wherever it is.

    With ``permissive`` it connects in clear text to brokers that do not speak TLS (yet).
    """

    def __init__(self, own: LeaderCertificate, *, permissive: bool = False) -> None:
        self._own = own
        self._permissive = permissive

    def connect(self, replica: Replica, options: ChannelOptions) -> fl.FlightClient:
        certificate = None if self._permissive and not speaks_tls(replica.address) else self._own.current()
        return connect(replica.address, replica.incarnation, certificate, options)

    def certificate(self) -> Certificate | None:
        return self._own.current()


OPEN = OpenDialer()
