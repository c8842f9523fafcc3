"""Puts together what a leader on Kubernetes knows of callers: keys, tokens, rights."""

from __future__ import annotations

import hashlib
import time

from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.security.access_reviews import AccessReviews
from smq_operator.kube.security.release_secret import ReleaseSecret
from smq_operator.kube.security.token_reviews import TokenReviews
from smq_operator.kube.settings import RELEASE_LABEL, KubeSettings
from smq_operator.security.access_control import AccessControl
from smq_operator.security.audit import AccessAudit
from smq_operator.security.certificate_authority import CertificateAuthority
from smq_operator.security.leader_certificate import LeaderCertificate
from smq_operator.security.leader_security import LeaderSecurity
from smq_operator.security.token_cache import TokenCache
from smq_operator.security.tokens import BrokerTokens, ReleaseTokens


async def open_security(api: KubeApi, kube: KubeSettings, process: str) -> LeaderSecurity:
    """``process`` is the id of this leader's process. Raises KubeError, and InvalidRequest if the Secret is damaged."""
    secret = ReleaseSecret(api, kube.home, kube.security_secret, {RELEASE_LABEL: kube.release})
    keys = await secret.load(time.time())
    reviewed = TokenCache(TokenReviews(api, kube.audience, kube.broker_account), time.time)
    tokens = ReleaseTokens(_peer_tokens(keys.authority), reviewed)
    return LeaderSecurity(
        authority=keys.authority,
        certificate=LeaderCertificate(keys.authority, process, time.time),
        grants=keys.grants,
        access=AccessControl(tokens, AccessReviews(api, time.monotonic), AccessAudit(time.time)),
    )


def peer_token(authority: CertificateAuthority) -> str:
    """The token by which operators of a release recognise each other without the API server."""
    return _peer_tokens(authority).issue("operator")


def _peer_tokens(authority: CertificateAuthority) -> BrokerTokens:
    """Their key follows from the release's, so only operators have it. The token opens what brokers may call."""
    _, key = authority.to_pem()
    return BrokerTokens(hashlib.sha256(b"smq-operator-peers-v1:" + key).digest(), lambda _: False)
