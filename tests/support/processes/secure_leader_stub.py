"""A release with security: its authority, certificates and grants, and a leader stub at which brokers log in."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pyarrow.flight as fl

from smq_core.access.certificates import Certificate
from smq_core.access.grants import GRANT_SECONDS, Grant
from smq_core.access.peers import LEADER_SERVER_NAME, Peer, Role, broker_server_name
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied, SmqError, Unauthenticated
from smq_core.model.entities import Topic
from smq_operator.security.authority.certificate_authority import CertificateAuthority
from smq_proto.error_conversion import error_to_pb
from smq_proto.flight import call
from smq_proto.logins import certificate_to_pb
from smq_proto.signed_grants import GrantSigner, new_signing_key
from smq_proto.v1 import admin_pb2, auth_pb2, auth_pb2_grpc, brokers_pb2
from smq_proto.v1 import data_pb2 as pb
from support.processes.leader_stub import RecordingLeader
from support.waiting import HANG_GUARD

HOUR = 3600.0
# No connection is shared, so that one with another certificate is no former one.
CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


class Release:
    """``folder`` gets the roots and a broker's token, as files."""

    def __init__(self, folder: Path, name: str = "release-1") -> None:
        self.name = name
        self.authority = CertificateAuthority.create(name, now=time.time())
        self.signer = GrantSigner(new_signing_key())
        self.token = f"token-of-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file, self.token_file = folder / f"{name}-ca.crt", folder / f"{name}.token"
        self.ca_file.write_bytes(self.authority.roots)
        self.token_file.write_text(f"{self.token}\n")

    @property
    def flags(self) -> list[str]:
        return ["--ca-file", str(self.ca_file), "--token-file", str(self.token_file)]

    def certificate(
        self, role: Role, name: str, *, seconds: float = HOUR, server_names: Iterable[str] = ()
    ) -> Certificate:
        now = time.time()
        peer = Peer(role, self.name, name, int(now + seconds))
        return self.authority.issue(peer, now=now, server_names=list(server_names))

    def broker(self, incarnation: str, *, seconds: float = HOUR) -> Certificate:
        names = [broker_server_name(incarnation)]
        return self.certificate(Role.BROKER, incarnation, seconds=seconds, server_names=names)

    def connect(
        self, address: str, incarnation: str, certificate: Certificate, *options: tuple[str, str]
    ) -> fl.FlightClient:
        return fl.connect(
            f"grpc+tls://{address}",
            tls_root_certs=self.authority.roots,
            cert_chain=certificate.chain,
            private_key=certificate.key,
            override_hostname=broker_server_name(incarnation),
            generic_options=[*CONNECTION, *options],
        )

    def grant(self, identity: str, topic: Topic, right: Right, seconds: float = GRANT_SECONDS) -> pb.SignedGrant:
        return self.signer.sign(
            Grant(
                release=self.name,
                identity=identity,
                topic=topic.name,
                uid=topic.uid,
                right=right,
                expires_at=time.time() + seconds,
            )
        )


def present(client: fl.FlightClient, *grants: pb.SignedGrant) -> None:
    call(client, "grants", pb.PresentGrants(grants=grants), timeout=HANG_GUARD)


class SecureLeader(RecordingLeader, auth_pb2_grpc.AuthServicer):
    """A leader stub over TLS. Brokers' certificates live for ``lifetime_seconds``. ``rejection`` answers all calls."""

    def __init__(self, release: Release, lifetime_seconds: float = HOUR, own: Certificate | None = None) -> None:
        super().__init__()
        self.release = release
        self.lifetime_seconds = lifetime_seconds
        self.rejection: SmqError | None = None
        self.logins: list[tuple[str, str]] = []
        """Token and incarnation of each login."""
        self._server.stop(None)
        self._server = grpc.server(ThreadPoolExecutor(8))
        self.serve_at(self._server)
        auth_pb2_grpc.add_AuthServicer_to_server(self, self._server)
        own = own or release.certificate(Role.LEADER, "leader-1", server_names=[LEADER_SERVER_NAME])
        credentials = grpc.ssl_server_credentials([(own.key, own.chain)])
        self.address = f"127.0.0.1:{self._server.add_secure_port('127.0.0.1:0', credentials)}"

    def Login(self, request: auth_pb2.LoginRequest, context: grpc.ServicerContext) -> auth_pb2.LoginReply:
        self.logins.append((self._token(context), request.incarnation))
        self._check(context)
        reply = certificate_to_pb(self.release.broker(request.incarnation, seconds=self.lifetime_seconds))
        reply.release = self.release.name
        reply.grant_keys.append(self.release.signer.public_key)
        return reply

    def Report(self, request: brokers_pb2.BrokerReport, context: grpc.ServicerContext) -> brokers_pb2.BrokerReportReply:
        self._check(context)
        return super().Report(request, context)

    def ListBrokers(self, request: admin_pb2.ListBrokersRequest, context: grpc.ServicerContext) -> admin_pb2.BrokerList:
        self._check(context)
        return super().ListBrokers(request, context)

    @staticmethod
    def _token(context: grpc.ServicerContext) -> str:
        return dict(context.invocation_metadata()).get("authorization", "")  # type: ignore[arg-type]

    def _check(self, context: grpc.ServicerContext) -> None:
        rejection = self.rejection
        if rejection is None and self._token(context) != f"Bearer {self.release.token}":
            rejection = Unauthenticated("nobody knows this token")
        if rejection is not None:
            context.set_trailing_metadata((("smq-error-bin", error_to_pb(rejection).SerializeToString()),))
            denied = isinstance(rejection, PermissionDenied)
            context.abort(
                grpc.StatusCode.PERMISSION_DENIED if denied else grpc.StatusCode.UNAUTHENTICATED, rejection.message
            )
