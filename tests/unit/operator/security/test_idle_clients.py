"""How often the API server is asked about clients that do nothing, and how soon it counts what it takes back."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import Any

import pytest

from smq.transport.security.credentials import RENEWED_AFTER
from smq_core.access.authority_rotation import CertificateLives
from smq_core.access.certificates import Certificate
from smq_core.access.grants import GRANT_SECONDS
from smq_core.access.leader_calls import CallSubject
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied, Unauthenticated, Unavailable
from smq_operator.api.access.interceptor import STREAM_CHECK_SECONDS
from smq_operator.api.groups import HEARTBEAT_MS
from smq_operator.kube.client.errors import KubeError
from smq_operator.kube.security.access_reviews import AccessReviews
from smq_operator.kube.security.token_reviews import TokenReviews
from smq_operator.security.access.access_control import AccessControl, IdleChecks
from smq_operator.security.access.audit import AccessAudit
from smq_operator.security.identities.token_cache import TokenCache

CLIENTS, PERIOD_SECONDS = 200, 300.0
CLIENT_CERTIFICATE_SECONDS = CertificateLives().client
TOPIC = CallSubject(topic="default/t", group="team.a")
CERTIFICATE = Certificate(chain=b"", key=b"", roots=b"", issued_at=0.0, expires_at=CLIENT_CERTIFICATE_SECONDS)


class ApiServer:
    """Knows the tokens ``<account>/<pod>``. Everybody may produce and consume, also in groups of ``team.``."""

    def __init__(self) -> None:
        self.reviews = {"TokenReview": 0, "SubjectAccessReview": 0}
        self.deleted: set[str] = set()
        self.revoked: set[str] = set()
        self.answers = True

    async def create(self, kind: Any, review: Any) -> Any:
        if not self.answers:
            raise KubeError("it does not answer")
        self.reviews[review["kind"]] += 1
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            account = spec["token"].partition("/")[0]
            user = {"username": f"system:serviceaccount:default:{account}"}
            return {"status": {"authenticated": account not in self.deleted, "audiences": ["smq"], "user": user}}
        wanted = spec["resourceAttributes"]
        allowed = wanted["subresource"] in ("produce", "consume") and wanted["name"] in ("t", "team.*")
        return {"status": {"allowed": allowed and spec["user"] not in self.revoked}}


class Leader:
    """What a leader on Kubernetes checks of callers."""

    def __init__(self) -> None:
        self.api, self.now = ApiServer(), 1_000_000.0
        api: Any = self.api
        known, rights = TokenCache(TokenReviews(api, "smq", "broker"), self.clock), AccessReviews(api, self.clock)
        idle = IdleChecks(known.idle, rights.idle)
        self.access = AccessControl(known, rights, AccessAudit(self.clock), idle)

    def clock(self) -> float:
        return self.now

    async def call(self, call: str, token: str) -> None:
        caller = await self.access.authenticate([("authorization", f"Bearer {token}")], call)
        await self.access.authorize(caller, call, TOPIC)
        if call == "Auth.GetGrants":
            await self.access.rights_when_idle(caller, TOPIC.topic)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def idle_calls(begin: float, token: str, group: bool) -> Iterator[tuple[float, str, str]]:
    """When a client calls what, without an end, while it has an open producer and consumer."""
    events = [(begin, interval, call) for call, interval in intervals(group).items()]
    heapq.heapify(events)
    while True:
        at, interval, call = heapq.heappop(events)
        yield at, call, token
        heapq.heappush(events, (at + interval, interval, call))


def intervals(group: bool) -> dict[str, float]:
    found = {
        "Topics.Watch": STREAM_CHECK_SECONDS,
        "Auth.GetGrants": GRANT_SECONDS / 2,
        "Auth.Login": CERTIFICATE.renew_at(RENEWED_AFTER),
    }
    return found | ({"Groups.JoinGroup": HEARTBEAT_MS / 1000} if group else {})


async def reviews_per_client(leader: Leader, accounts: int, periods: int, group: bool = False) -> dict[str, float]:
    """Of each kind, for one client in five minutes, once all of them have been there for a while."""
    rng, began = random.Random(1), leader.now
    streams = [
        idle_calls(began + rng.uniform(0, 600), f"account-{number % accounts}/{number}", group)
        for number in range(CLIENTS)
    ]
    stable, end = began + 1200.0, began + 1200.0 + periods * PERIOD_SECONDS
    before: dict[str, int] | None = None
    for leader.now, call, token in heapq.merge(*streams):
        if before is None and leader.now >= stable:
            before = dict(leader.api.reviews)
        if leader.now >= end:
            break
        await leader.call(call, token)
    assert before is not None
    return {kind: (count - before[kind]) / CLIENTS / periods for kind, count in leader.api.reviews.items()}


@pytest.mark.parametrize("group", [False, True], ids=["without groups", "in groups"])
async def test_idle_clients_have_little_reviewed(leader: Leader, group: bool) -> None:
    """Of ten deployments, with a token for each Pod. A right is that of an account, so its Pods share the answers."""
    found = await reviews_per_client(leader, accounts=10, periods=2 if group else 8, group=group)
    print(found)
    assert found["TokenReview"] <= 0.5 and found["SubjectAccessReview"] <= 0.5


@pytest.mark.parametrize("answered", [0, 60, 140])
async def test_a_grant_ends_five_minutes_after_its_right_was_seen(leader: Leader, answered: int) -> None:
    """So a removed binding is out by then, however old the answer is that a grant was given with."""
    await leader.call("Auth.GetGrants", "a/1")
    leader.now += answered
    caller = await leader.access.authenticate([("authorization", "Bearer a/1")], "Auth.GetGrants")
    decisions = await leader.access.rights_when_idle(caller, TOPIC.topic)
    assert {right for right, it in decisions.items() if it.allowed} == {Right.PRODUCE, Right.CONSUME}
    assert {it.age_seconds for it in decisions.values()} == {answered}


async def ends_after(leader: Leader, call: str, error: type[Exception], seconds: float) -> float:
    """When a caller that repeats this call is refused, in seconds from now on."""
    began = leader.now
    while leader.now <= began + seconds:
        leader.now += 1
        try:
            await leader.call(call, "a/1")
        except error:
            return leader.now - began
    raise AssertionError(f"{call} still goes through after {seconds} s")


@pytest.mark.parametrize(
    ("call", "seconds", "afterwards"),
    [
        ("Auth.Login", 60, CLIENT_CERTIFICATE_SECONDS),
        ("Admin.AlterTopic", 60, 0),
        ("Auth.GetGrants", 660, GRANT_SECONDS),
        ("Topics.Watch", 660, 0),
    ],
)
async def test_a_deleted_account_is_out_in_sixteen_minutes(
    leader: Leader, call: str, seconds: int, afterwards: int
) -> None:
    """Also by what it has got: certificates and grants go on for a while at brokers."""
    for first in ("Auth.Login", "Topics.Watch"):
        await leader.call(first, "a/1")
    leader.api.deleted.add("a")
    error = PermissionDenied if call.startswith("Admin") else Unauthenticated
    if error is Unauthenticated:
        assert await ends_after(leader, call, error, seconds) <= seconds
    else:
        leader.now += seconds
        with pytest.raises(Unauthenticated):
            await leader.call(call, "a/1")
    assert seconds + afterwards <= 16 * 60


async def test_a_refused_login_ends_the_rest_at_once(leader: Leader) -> None:
    await leader.call("Topics.Watch", "a/1")
    leader.api.deleted.add("a")
    leader.now += 61
    await leader.call("Topics.Watch", "a/1")
    for call in ("Auth.Login", "Topics.Watch", "Auth.GetGrants"):
        with pytest.raises(Unauthenticated):
            await leader.call(call, "a/1")


@pytest.mark.parametrize(("call", "seconds"), [("Topics.Watch", 151), ("Groups.JoinGroup", 151), ("Topics.Locate", 31)])
async def test_a_right_that_is_taken_back_is_gone_in_minutes(leader: Leader, call: str, seconds: int) -> None:
    await leader.call(call, "a/1")
    leader.api.revoked.add("system:serviceaccount:default:a")
    assert await ends_after(leader, call, PermissionDenied, seconds) <= seconds


@pytest.mark.parametrize("call", ["Topics.Watch", "Groups.JoinGroup"])
async def test_a_right_that_was_just_given_counts_at_once(leader: Leader, call: str) -> None:
    leader.api.revoked.add("system:serviceaccount:default:a")
    with pytest.raises(PermissionDenied):
        await leader.call(call, "a/1")
    leader.api.revoked.clear()
    leader.now += 11
    await leader.call(call, "a/1")


async def test_an_outage_of_the_api_server_ends_no_idle_client(leader: Leader) -> None:
    for call in ("Auth.Login", "Topics.Watch", "Auth.GetGrants"):
        await leader.call(call, "a/1")
    leader.api.answers = False
    leader.now += 120
    with pytest.raises(Unavailable):
        await leader.call("Auth.Login", "a/1")
    await leader.call("Topics.Watch", "a/1")
