"""Puts together what a leader on Kubernetes knows of callers: keys, tokens, rights."""

from __future__ import annotations

import hashlib
import time

from smq_core.access.authority_rotation import CertificateLives
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.security.access_reviews import AccessReviews
from smq_operator.kube.security.given_authority import GivenAuthority
from smq_operator.kube.security.release_secret import ReleaseSecret
from smq_operator.kube.security.token_reviews import TokenReviews
from smq_operator.kube.settings import RELEASE_LABEL, KubeSettings
from smq_operator.security.access.access_control import AccessControl, IdleChecks
from smq_operator.security.access.audit import AccessAudit
from smq_operator.security.authority.authorities import Authorities
from smq_operator.security.authority.leader_certificate import LeaderCertificate
from smq_operator.security.identities.external_tokens import external_tokens
from smq_operator.security.identities.token_cache import TokenCache
from smq_operator.security.identities.tokens import BrokerTokens, KindOfTokens, ReleaseTokens
from smq_operator.security.leader_security import LeaderSecurity
from smq_proto.signed_grants import GrantSigner


async def open_security(api: KubeApi, kube: KubeSettings, process: str) -> tuple[LeaderSecurity, str]:
    """Also the token by which operators of the release know each other. ``process`` is the id of this leader's process.

    Raises Unavailable, and InvalidRequest if the Secret is damaged.
    """
    lives = CertificateLives()
    given = GivenAuthority(api, kube.home, kube.ca_secret) if kube.ca_secret else None
    labels = {RELEASE_LABEL: kube.release}
    secret = ReleaseSecret(
        api=api, namespace=kube.home, name=kube.security_secret, labels=labels, given=given, lives=lives
    )
    known, grant_key = await secret.open(time.time())
    authorities = Authorities(secret, known, lives, time.time)
    peers = peer_tokens(grant_key)
    reviewed = TokenCache(TokenReviews(api, kube.audience, kube.broker_account), time.time)
    kinds: list[KindOfTokens] = [peers, *external_tokens(kube.external_callers, lambda: authorities.known.roots)]
    rights = AccessReviews(api, time.monotonic)
    idle = IdleChecks(ReleaseTokens(kinds, reviewed.idle), rights.idle)
    security = LeaderSecurity(
        authorities=authorities,
        certificate=LeaderCertificate(authorities, process, time.time),
        grants=GrantSigner(grant_key),
        access=AccessControl(ReleaseTokens(kinds, reviewed), rights, AccessAudit(time.time), idle),
    )
    return security, peers.issue("operator")


def peer_tokens(key: bytes) -> BrokerTokens:
    """By these the operators of a release recognise each other without the API server.

    Their key follows from one of the release, so only operators have it. The token opens what brokers may call.
    """
    return BrokerTokens(hashlib.sha256(b"smq-operator-peers-v1:" + key).digest(), lambda _: False)
