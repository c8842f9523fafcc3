"""Who is at the other end of a connection: the name in a certificate.

Each certificate has one URI as its first subject alternative name::

    smq://<release>/<role>/<name>?exp=<seconds since the Unix epoch>

``exp`` repeats the certificate's end, because neither Flight nor gRPC checks it again on an open connection. Servers
also have a DNS name, which their clients verify in place of the address: processes keep their names when they move.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qs, quote, unquote, urlsplit

from smq_core.errors import Unauthenticated

SCHEME = "smq"
# Of the names of servers. No DNS has it.
INTERNAL_DOMAIN = "smq.internal"
LEADER_SERVER_NAME = f"leader.{INTERNAL_DOMAIN}"
# How long a stream may go on after its client's certificate has expired: clocks differ, and a renewal may be late.
EXPIRY_GRACE_SECONDS = 60


class Role(Enum):
    """What a process is. The role decides which actions of a broker it may call."""

    CLIENT = "client"
    BROKER = "broker"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Peer:
    """``release`` is the uid of the release whose leader signed the certificate.

    ``name`` is a client's identity, a broker's incarnation, or the id of a leader's process.
    ``expires_at`` is in seconds since the Unix epoch.
    """

    role: Role
    release: str
    name: str
    expires_at: int

    def __str__(self) -> str:
        return f"{self.role.value} {self.name}"

    @property
    def uri(self) -> str:
        """The first subject alternative name of this peer's certificate."""
        return f"{SCHEME}://{quote(self.release, '')}/{self.role.value}/{quote(self.name, '')}?exp={self.expires_at}"

    def has_expired(self, now: float) -> bool:
        """Whether its connections have to end. ``now`` is in seconds since the Unix epoch."""
        return now > self.expires_at + EXPIRY_GRACE_SECONDS


def parse_peer(uri: str) -> Peer:
    """The peer whose certificate has this name. Raises Unauthenticated if it is no name of a release's certificate."""
    try:
        parts = urlsplit(uri)
        _, role, name = parts.path.split("/")
        peer = Peer(Role(role), unquote(parts.netloc), unquote(name), int(parse_qs(parts.query)["exp"][0]))
    except (ValueError, KeyError):
        peer = None
    if peer is None or peer.uri != uri or not peer.release or not peer.name:
        raise Unauthenticated(
            "the certificate of this connection was not signed by the leader of a release of SeaweedMQ: "
            "its first subject alternative name is none of theirs"
        )
    return peer


def broker_server_name(incarnation: str) -> str:
    """The DNS name in the certificate of this incarnation's server."""
    return f"{incarnation.lower()}.broker.{INTERNAL_DOMAIN}"
