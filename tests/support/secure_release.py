"""A leader and brokers of a secure release, with real certificates, grants and connections, and nothing behind them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as fl

from smq.transport.leader_client import ERROR_TRAILER
from smq_core.access.broker_calls import grant_missing, identity_denial
from smq_core.access.certificates import Certificate
from smq_core.access.grants import Grant, GrantBook
from smq_core.access.peers import LEADER_SERVER_NAME, Peer, Role, broker_server_name, parse_peer
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied, SmqError, Unauthenticated, Unavailable
from smq_core.model.entities import SECOND, Replica
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from smq_proto.error_conversion import error_to_pb
from smq_proto.flight import to_flight
from smq_proto.logins import certificate_to_pb
from smq_proto.signed_grants import GrantSigner, GrantVerifier, new_signing_key
from smq_proto.v1 import auth_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1.auth_pb2_grpc import AuthServicer, add_AuthServicer_to_server

TOPIC = "default/t"
UID = "uid-1"
TOKEN = "a-token-of-me"
ME = "me@example.com"


@dataclass
class SecureRelease:
    """``rights`` are those of ``ME``, by topic. Lives are in seconds. ``calls`` counts the calls of the leader."""

    folder: Path
    certificate_life: float = 900.0
    grant_life: float = 300.0
    rights: dict[str, set[Right]] = field(default_factory=lambda: {TOPIC: {Right.PRODUCE, Right.CONSUME}})
    tokens: dict[str, str] = field(default_factory=lambda: {TOKEN: ME})
    away: bool = False
    calls: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authority = CertificateAuthority.create("release-1", now=time.time())
        self.signer = GrantSigner(new_signing_key())
        self.ca_file = self.folder / "ca.crt"
        self.ca_file.write_bytes(self.authority.roots)
        self.token_file = self.folder / "token"
        self.token_file.write_text(TOKEN)
        self._brokers: list[SecureBroker] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        add_AuthServicer_to_server(_Auth(self), self._server)
        own = self.issue(Role.LEADER, "leader-1", LEADER_SERVER_NAME)
        port = self._server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(own.key, own.chain)]))
        self._server.start()
        self.leader = f"127.0.0.1:{port}"

    def issue(self, role: Role, name: str, *server_names: str, life: float = 3600.0) -> Certificate:
        now = time.time()
        peer = Peer(role, self.authority.release, name, round(now + life))
        return self.authority.issue(peer, now=now, server_names=server_names)

    def broker(self, incarnation: str = "Incarnation-1") -> SecureBroker:
        made = SecureBroker(self, incarnation)
        self._brokers.append(made)
        return made

    def stop(self) -> None:
        self._server.stop(0).wait()
        for broker in self._brokers:
            broker.shutdown()


class _Auth(AuthServicer):  # type: ignore[misc]
    def __init__(self, release: SecureRelease) -> None:
        self._release = release

    def Login(self, request: auth_pb2.LoginRequest, context: Any) -> auth_pb2.LoginReply:
        identity = self._identity("Login", context)
        life = self._release.certificate_life
        # The name in a certificate has whole seconds, and a life may be shorter.
        certificate = self._release.issue(Role.CLIENT, identity, life=max(life, 60.0))
        reply = certificate_to_pb(certificate)
        reply.expires_at = reply.issued_at + round(life * SECOND)
        reply.release, reply.identity = self._release.authority.release, identity
        return reply

    def GetGrants(self, request: auth_pb2.GetGrantsRequest, context: Any) -> auth_pb2.GetGrantsReply:
        identity = self._identity("GetGrants", context)
        rights = self._release.rights.get(request.topic, set())
        if not rights:
            _refuse(context, PermissionDenied(f"{identity} has no right to {request.topic}", identity=identity))
        expires_at = time.time() + self._release.grant_life
        grants = [
            Grant(
                release=self._release.authority.release,
                identity=identity,
                topic=request.topic,
                uid=UID,
                right=right,
                expires_at=expires_at,
            )
            for right in rights
        ]
        signed = [self._release.signer.sign(grant) for grant in grants]
        return auth_pb2.GetGrantsReply(grants=signed, expires_at=round(expires_at * SECOND))

    def WhoAmI(self, request: Any, context: Any) -> auth_pb2.WhoAmIReply:
        return auth_pb2.WhoAmIReply(identity=self._identity("WhoAmI", context), groups=["g"], method="StaticToken")

    def CheckAccess(self, request: auth_pb2.CheckAccessRequest, context: Any) -> auth_pb2.CheckAccessReply:
        identity = self._identity("CheckAccess", context)
        allowed = request.verb in {right.value for right in self._release.rights.get(request.topic, set())}
        reason = "" if allowed else f"{identity} may not {request.verb}: give it a Role"
        return auth_pb2.CheckAccessReply(allowed=allowed, reason=reason)

    def _identity(self, call: str, context: Any) -> str:
        self._release.calls[call] = self._release.calls.get(call, 0) + 1
        if self._release.away:
            _refuse(context, Unavailable("the leader is away"))
        token = dict(context.invocation_metadata()).get("authorization", "").removeprefix("Bearer ")
        if token not in self._release.tokens:
            _refuse(context, Unauthenticated("nobody has this token"))
        return self._release.tokens[token]


def _refuse(context: Any, error: SmqError) -> None:
    context.set_trailing_metadata([(ERROR_TRAILER, error_to_pb(error).SerializeToString())])
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.message)


class SecureBroker(fl.FlightServerBase):  # type: ignore[misc]
    """Checks every action but ``grants`` as a broker does. ``answer`` is called before the check, if it is set."""

    def __init__(self, release: SecureRelease, incarnation: str) -> None:
        self._release = release
        own = release.issue(Role.BROKER, incarnation, broker_server_name(incarnation))
        super().__init__(
            "grpc+tls://127.0.0.1:0",
            tls_certificates=[(own.chain, own.key)],
            verify_client=True,
            root_certificates=release.authority.roots,
        )
        self.replica = Replica("b1", incarnation, f"127.0.0.1:{self.port}")
        self.book = GrantBook(release.authority.release)
        self.presented: list[float] = []
        """When grants were presented."""
        self.peers: list[Peer] = []
        """Whoever has called an action."""
        self.answer: Callable[[Peer], SmqError | None] = lambda peer: None

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        peer = parse_peer(context.peer_identity().decode())
        self.peers.append(peer)
        try:
            return [self._act(peer, action)]
        except SmqError as error:
            raise to_flight(error) from error

    def _act(self, peer: Peer, action: Any) -> bytes:
        now = time.time()
        if denial := identity_denial(peer, self._release.authority.release, now):
            raise denial
        if action.type == "grants":
            verifier = GrantVerifier([self._release.signer.public_key])
            for signed in pb.PresentGrants.FromString(action.body.to_pybytes()).grants:
                self.book.add(peer.name, verifier.verify(signed), now)
            self.presented.append(now)
            return b""
        if failure := self.answer(peer):
            raise failure
        if not self.book.allows(peer.name, UID, Right.PRODUCE, now, now):
            raise grant_missing(peer, action.type, TOPIC)
        return b"done"

    def do_get(self, context: Any, ticket: Any) -> Any:
        return fl.RecordBatchStream(pa.table({"a": [1]}))
