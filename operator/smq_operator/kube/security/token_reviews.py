"""Recognises callers by the tokens of their ServiceAccounts, which the API server reviews.

A broker's token is bound to its Pod. The review names the Pod, so the token proves which incarnations may use it.
Source: authentication.k8s.io/v1, TokenReview, and "Bound service account tokens" of the Kubernetes documentation.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from smq_core.errors import Unauthenticated, Unavailable
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import KubeError
from smq_operator.kube.client.kinds import TOKEN_REVIEWS, Resource
from smq_operator.security.callers import Caller

POD_UID = "authentication.kubernetes.io/pod-uid"


class TokenReviews:
    """``audience`` is the release's: a token for anything else, such as the API server, does not count here.

    ``brokers`` is the name of the ServiceAccount of the release's brokers, ``system:serviceaccount:NAMESPACE:NAME``.
    """

    def __init__(self, api: KubeApi, audience: str, brokers: str) -> None:
        self._api = api
        self._audience = audience
        self._brokers = brokers

    async def verify(self, token: str) -> Caller:
        """Raises Unauthenticated, and Unavailable while the API server does not answer."""
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "metadata": {},
            "spec": {"token": token, "audiences": [self._audience]},
        }
        try:
            status = (await self._api.create(TOKEN_REVIEWS, review)).get("status") or {}
        except KubeError as error:
            raise Unavailable(f"the leader cannot have a token reviewed now: {error.message}") from None
        if not status.get("authenticated") or self._audience not in (status.get("audiences") or ()):
            raise Unauthenticated(
                f"the API server does not take this token for the audience {self._audience}: it has expired, its "
                "ServiceAccount or Pod is gone, or it is one for something else. A Pod gets one by a projected volume "
                "of the type serviceAccountToken with this audience"
            )
        return self._caller(status.get("user") or {}, token)

    def _caller(self, user: Resource, token: str) -> Caller:
        name = str(user.get("username", ""))
        if not name:
            raise Unauthenticated("the API server takes this token, and does not say whose it is")
        pod = ""
        if name == self._brokers:
            pod = next(iter((user.get("extra") or {}).get(POD_UID) or ()), "")
            if not pod:
                raise Unauthenticated("the token of a broker must be bound to its Pod: project it into the Pod")
        return Caller(
            identity=name,
            groups=tuple(user.get("groups") or ()),
            method="ServiceAccount" if name.startswith("system:serviceaccount:") else "TokenReview",
            pod=pod,
            expires_at=_expiry(token),
        )


def _expiry(token: str) -> float:
    """When a token that the API server has taken expires; 0 if it does not say. The second part of a JWT (RFC 7519)."""
    try:
        part = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return float(claims["exp"])
    except (IndexError, ValueError, KeyError, TypeError):
        return 0.0
