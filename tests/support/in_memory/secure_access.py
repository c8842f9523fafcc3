"""The access of a secure broker without a network: callers with any certificate, and grants that a leader signed."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from smq_broker.access.callers import Caller
from smq_broker.access.credentials import BrokerCredentials, Login
from smq_broker.access.denials import Denials
from smq_broker.access.secure_callers import SecureAccess
from smq_broker.runtime.broker_metrics import BrokerMetrics
from smq_core.access.broker_calls import GRANTS
from smq_core.access.certificates import Certificate
from smq_core.access.grants import GRANT_SECONDS, Grant
from smq_core.access.peers import Peer, Role
from smq_core.access.quotas import NO_QUOTA, Quota
from smq_core.access.rights import Right
from smq_core.model.entities import Topic
from smq_proto.signed_grants import GrantSigner, GrantVerifier, new_signing_key
from smq_proto.v1 import data_pb2 as pb
from support.in_memory.flight_streams import CallContext


class PeerContext(CallContext):
    """That of a call whose peer has a certificate with this name."""

    def __init__(self, name: str | bytes) -> None:
        super().__init__()
        self._name = name

    def peer_identity(self) -> str | bytes:
        return self._name


class SecureBrokerAccess:
    """``topic`` is the one whose grants ``grant`` makes, and whose name the broker knows."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.now, self.leader_seen_at = 1_000_000.0, 1_000_000.0
        self.signer = GrantSigner(new_signing_key())
        certificate = Certificate(chain=b"", key=b"", roots=b"", issued_at=0.0, expires_at=0.0)
        self.metrics = BrokerMetrics(CollectorRegistry())
        self.verifier = GrantVerifier([self.signer.public_key])
        login = Login("release-1", certificate, self.verifier)
        self.access = SecureAccess(
            BrokerCredentials(login),
            denials=Denials(self.metrics),
            count_grace=self.metrics.grace_grants.inc,
            count_throttled=self.metrics.count_throttled,
            leader_seen_at=lambda: self.leader_seen_at,
            topic_name=lambda uid: topic.name if uid == topic.uid else "",
            clock=lambda: self.now,
        )

    def uri(self, role: Role, name: str = "ada", release: str = "release-1", seconds: int = 900) -> str:
        return Peer(role, release, name, int(self.now) + seconds).uri

    def caller(self, role: Role = Role.CLIENT, name: str = "ada", call: str = "") -> Caller:
        caller = self.access.caller(PeerContext(self.uri(role, name)))
        if call:
            caller.admit(call)
        return caller

    def grant(self, right: Right, identity: str = "ada", release: str = "release-1", quota: Quota = NO_QUOTA) -> Grant:
        return Grant(
            release=release,
            identity=identity,
            topic=self.topic.name,
            uid=self.topic.uid,
            right=right,
            expires_at=self.now + GRANT_SECONDS,
            quota=quota,
        )

    def present(self, *grants: Grant, identity: str = "ada", signer: GrantSigner | None = None) -> None:
        signed = [(signer or self.signer).sign(it) for it in grants]
        self.caller(name=identity, call=GRANTS).present(pb.PresentGrants(grants=signed))

    def denied(self, reason: str) -> float:
        return self.metrics.registry.get_sample_value("smq_broker_access_denied_total", {"reason": reason}) or 0.0

    def graces(self) -> float:
        """How often an expired grant was enough, because there is no leader."""
        return self.metrics.registry.get_sample_value("smq_broker_grace_grants_total") or 0.0
