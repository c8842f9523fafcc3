"""Rights by Kubernetes RBAC: each is a SubjectAccessReview, whose answer is kept for some seconds.

Source: authorization.k8s.io/v1, SubjectAccessReview.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from smq_core.access.rights import API_GROUP, Access
from smq_core.errors import Unavailable
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.client.errors import KubeError
from smq_operator.kube.client.kinds import SUBJECT_ACCESS_REVIEWS
from smq_operator.security.callers import AccessDecision, Caller
from smq_operator.security.expiring_cache import ExpiringCache

# A right that was taken away counts for that long at the leader. One that was just given should count at once.
ALLOWED_SECONDS = 30.0
DENIED_SECONDS = 10.0
# At what idle clients repeat, an answer counts for half of a grant's life. A grant ends as if it were given with the
# answer, so that nobody keeps a right for longer than a grant's life.
IDLE_SECONDS = 150.0
# Beyond that the oldest answers are forgotten.
MAX_ANSWERS = 50_000


@dataclass(frozen=True, slots=True)
class _ReviewKey:
    identity: str
    groups: tuple[str, ...]
    access: Access


# And when it came, in seconds.
_Answer: TypeAlias = tuple[AccessDecision, float]


class AccessReviews:
    """``clock`` returns seconds of a clock that only goes forward. Use it on the event loop."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._counts_until: Callable[[_Answer, float], float] = _counts_until
        self._answers: ExpiringCache[_ReviewKey, _Answer] = ExpiringCache(MAX_ANSWERS, clock)

    @property
    def idle(self) -> AccessReviews:
        """The same answers, which count for longer."""
        other = AccessReviews(self._api, self._clock)
        other._answers, other._counts_until = self._answers, lambda _, answered_at: answered_at + IDLE_SECONDS
        return other

    async def allows(self, caller: Caller, access: Access) -> AccessDecision:
        """Raises Unavailable while the API server does not answer, and nothing is known."""
        key = _ReviewKey(caller.identity, caller.groups, access)
        decision, answered_at = await self._answers.get(key, lambda: self._review(key), self._counts_until)
        return replace(decision, age_seconds=self._clock() - answered_at)

    async def _review(self, key: _ReviewKey) -> _Answer:
        access = key.access
        attributes = {
            "verb": access.verb,
            "group": API_GROUP,
            "resource": access.resource,
            "subresource": access.subresource,
            "namespace": access.namespace,
            "name": access.name,
        }
        review = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": {
                "user": key.identity,
                "groups": list(key.groups),
                "resourceAttributes": {key: value for key, value in attributes.items() if value},
            },
        }
        try:
            status = (await self._api.create(SUBJECT_ACCESS_REVIEWS, review)).get("status") or {}
        except KubeError as error:
            raise Unavailable(f"the leader cannot have a right reviewed now: {error.message}") from None
        allowed = bool(status.get("allowed")) and not status.get("denied")
        return AccessDecision(True) if allowed else AccessDecision(False, _advice(access)), self._clock()


def _counts_until(answer: _Answer, answered_at: float) -> float:
    return answered_at + (ALLOWED_SECONDS if answer[0].allowed else DENIED_SECONDS)


def _advice(access: Access) -> str:
    """The rule of a Role that would allow it."""
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    names = f", resourceNames: [{access.name}]" if access.name and access.verb not in ("list", "watch") else ""
    rule = f"{{apiGroups: [{API_GROUP}], resources: [{resource}]{names}, verbs: [{access.verb}]}}"
    kind = f"Role in namespace {access.namespace}" if access.namespace else "ClusterRole"
    return f"no Role allows it; a {kind} with this rule, and a binding of it, would: {rule}"
