"""Opens connections: directly, or through a broker's relay if the client is outside the cluster.

In a secure release all of them are encrypted, and both sides prove who they are. ``credentials`` has what that takes;
without it each method does nothing more than in an open release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc

from smq_proto.channel_options import NO_PROXY

if TYPE_CHECKING:
    import pyarrow.flight as fl
    from google.protobuf.message import Message

    from smq.transport.security.credentials import Credentials
    from smq.transport.security.security_files import SecurityFiles
    from smq_core.access.rights import Right
    from smq_core.errors import SmqError
    from smq_core.model.entities import Replica
    from smq_proto.v1.auth_pb2_grpc import AuthStub
    from smq_storage.object_store.store import StoreSettings

# A relay forwards this address to the current leader.
RELAY_LEADER_ADDRESS = "leader:7070"

ChannelOptions = Sequence[tuple[str, str | int]]


@dataclass(frozen=True, slots=True)
class Dialer:
    """``via`` is the relay's host:port; None means that every address is reached directly.

    ``credentials`` are those of a client of a secure release.
    """

    via: str | None = None
    credentials: Credentials | None = None

    @property
    def security(self) -> SecurityFiles | None:
        """What the program has given to enter a secure release, for other processes."""
        return self.credentials.files if self.credentials is not None else None

    def attach(self, auth: AuthStub) -> None:
        """Sets the leader's service that gives certificates and grants."""
        if self.credentials is not None:
            self.credentials.attach(auth)

    def close(self) -> None:
        """Ends the renewal of credentials. Repeatable."""
        if self.credentials is not None:
            self.credentials.close()

    def prepare(self) -> None:
        """Fetches what the next connection to a broker needs. Raises Unauthenticated, PermissionDenied, Unavailable."""
        if self.credentials is not None:
            self.credentials.certificate()

    def flight(self, replica: Replica, options: ChannelOptions = ()) -> fl.FlightClient:
        """Returns a Flight client of the replica's broker; nothing is sent there yet. Raises as ``prepare``."""
        from smq_proto.flight import connect

        certificate = self.credentials.certificate() if self.credentials is not None else None
        client = connect(replica.address, replica.incarnation, certificate, self._with_proxy(options))
        if self.credentials is not None and certificate is not None:
            self.credentials.opened(client, replica, certificate)
        return client

    def leader_channel(self, address: str, options: ChannelOptions = ()) -> grpc.Channel:
        """Returns a channel to the leader at ``address``; nothing is sent yet. Raises InvalidRequest (no roots)."""
        if self.credentials is None:
            return grpc.insecure_channel(address, options=self._with_proxy(options))
        from smq_proto.leader_channels import leader_channel

        files = self.credentials.files
        return leader_channel(address, files.roots(), files.read_token, self._with_proxy(options))

    # ---- rights, which only a secure release checks

    def require(self, topic: str, right: Right) -> None:
        """Raises PermissionDenied if this client has no such right to the topic; Unauthenticated, Unavailable."""
        if self.credentials is not None:
            self.credentials.require(topic, right)

    def identity(self) -> str:
        """Who this client is; empty in an open release. Raises Unauthenticated, PermissionDenied, Unavailable."""
        return self.credentials.identity() if self.credentials is not None else ""

    def present(self, client: fl.FlightClient, topic: str) -> None:
        """Call it before a stream that needs a right to the topic. ``client`` is one of ``flight``. Raises SmqError."""
        if self.credentials is not None:
            self.credentials.present(client, topic)

    def call(self, client: fl.FlightClient, topic: str, action: str, request: Message, *, timeout: float) -> bytes:
        """Runs an action that needs a right to the topic, as ``smq_proto.flight.call``."""
        if self.credentials is not None:
            return self.credentials.call(client, topic, action, request, timeout=timeout)
        from smq_proto.flight import call

        return call(client, action, request, timeout=timeout)

    def recover(self, error: SmqError, client: fl.FlightClient, topic: str) -> SmqError | None:
        """What is to be done after a broker has ended a stream by this error. None: the same succeeds when repeated.

        A returned PermissionDenied or Unauthenticated is final.
        """
        return error if self.credentials is None else self.credentials.recover(error, client, topic)

    def is_outdated(self, client: fl.FlightClient) -> bool:
        """Whether a connection should be replaced, because its certificate was."""
        return self.credentials is not None and self.credentials.is_outdated(client)

    # ---- the filer, and the way to all of them

    def store(self, settings: StoreSettings) -> StoreSettings:
        """Returns settings that use the relay if the store needs it."""
        proxy = self.http_proxy(settings.endpoint or "")
        return replace(settings, proxy=proxy) if proxy else settings

    def http_proxy(self, url: str) -> str | None:
        """The proxy for requests to that URL: the relay if it is ``http://``, as that of a filer in the cluster is."""
        return f"http://{self.via}" if self.via and url.startswith("http://") else None

    def first_hop(self, address: str) -> str:
        """Where the TCP connection for ``address`` goes: to the address itself, or to the relay."""
        return self.via or address

    def _with_proxy(self, options: ChannelOptions) -> list[tuple[str, str | int]]:
        chosen = ("grpc.http_proxy", f"http://{self.via}") if self.via else NO_PROXY
        return [*options, chosen]


DIRECT = Dialer()
