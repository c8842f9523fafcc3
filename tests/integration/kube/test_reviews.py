"""Callers and rights as a real API server knows them."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from smq_core.access.authority_rotation import CertificateLives
from smq_core.access.rights import Right, group_rights, topic_right, topic_verb
from smq_core.errors import Conflict, InvalidRequest, Unauthenticated, Unavailable
from smq_operator.kube.client.api import KubeApi
from smq_operator.kube.security.access_reviews import ALLOWED_SECONDS, DENIED_SECONDS, AccessReviews
from smq_operator.kube.security.given_authority import GivenAuthority
from smq_operator.kube.security.release_secret import ReleaseSecret
from smq_operator.kube.security.token_reviews import TokenReviews
from smq_operator.security.authority.authorities import Authorities
from smq_operator.security.authority.authority_set import AuthoritySet
from smq_operator.security.callers import Caller
from support.kube.accounts import account, account_token
from support.kube.client import KubeClient
from support.kube.operator_process import pod_of
from support.user_authority import UserAuthority
from support.waiting import eventually

pytestmark = pytest.mark.integration
T = TypeVar("T")
AUDIENCE = "smq.travel.smq"


def run(kube: KubeClient, work: Callable[[KubeApi], Awaitable[T]]) -> T:
    api = KubeApi.connect({"KUBECONFIG": str(kube.kubeconfig)})

    async def main() -> T:
        return await work(api)

    try:
        return asyncio.run(main())
    finally:
        api.close()


def verify(kube: KubeClient, text: str, namespace: str = "") -> Caller:
    brokers = f"system:serviceaccount:{namespace}:broker"
    return run(kube, lambda api: TokenReviews(api, AUDIENCE, brokers).verify(text))


def test_a_service_account_is_known_by_its_token_for_this_release_only(kube: KubeClient, namespace: str) -> None:
    name = account(kube, namespace, "spark")
    caller = verify(kube, account_token(kube, namespace, "spark", AUDIENCE))
    assert (caller.identity, caller.method, caller.is_broker) == (name, "ServiceAccount", False)
    assert f"system:serviceaccounts:{namespace}" in caller.groups
    assert 0 < caller.expires_at - time.time() <= 600
    for wrong in (account_token(kube, namespace, "spark", "another"), "no token", "a.b.c"):
        with pytest.raises(Unauthenticated, match=f"the audience {AUDIENCE}"):
            verify(kube, wrong)


def test_the_token_of_a_deleted_account_does_not_count(kube: KubeClient, namespace: str) -> None:
    account(kube, namespace, "gone")
    text = account_token(kube, namespace, "gone", AUDIENCE)
    verify(kube, text)
    kube.delete({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gone", "namespace": namespace}})

    def is_refused() -> bool:
        try:
            verify(kube, text)
        except Unauthenticated:
            return True
        return False

    eventually(is_refused, what="the API server forgets the account")


def test_a_broker_proves_the_incarnations_of_its_pod(kube: KubeClient, namespace: str) -> None:
    account(kube, namespace, "broker")
    pod = kube.create(pod_of("b-0", namespace, "broker", serviceAccountName="broker"))
    uid = pod["metadata"]["uid"]
    caller = verify(kube, account_token(kube, namespace, "broker", AUDIENCE, pod=pod), namespace)
    assert caller.is_broker and caller.pod == uid
    assert caller.proves(f"{uid}.6553f100.0123abcd") and caller.proves(f"{uid}.6553f101.0123abce")
    assert not caller.proves(uid) and not caller.proves("") and not caller.proves("5e884898da28047151d0e56f8dc62927")
    assert not caller.proves("0f8fad5b-d9cb-469f-a165-70867728950e.6553f100.0123abcd")
    with pytest.raises(Unauthenticated, match="must be bound to its Pod"):
        verify(kube, account_token(kube, namespace, "broker", AUDIENCE), namespace)


def test_rights_are_those_of_rbac(kube: KubeClient, namespace: str) -> None:
    name = account(kube, namespace, "app")
    caller = Caller(identity=name, groups=("system:authenticated",), method="ServiceAccount")
    rules = [
        {
            "apiGroups": ["seaweedmq.io"],
            "resources": ["topics/produce"],
            "resourceNames": ["flights"],
            "verbs": ["create"],
        },
        {"apiGroups": ["seaweedmq.io"], "resources": ["topics"], "verbs": ["list"]},
        {
            "apiGroups": ["seaweedmq.io"],
            "resources": ["groups/consume"],
            "resourceNames": ["team-a.*"],
            "verbs": ["create"],
        },
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    kube.create(role | {"metadata": {"name": "app", "namespace": namespace}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "app", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "app"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    kube.create(
        binding | {"metadata": {"name": "app", "namespace": namespace}, "roleRef": reference, "subjects": [subject]}
    )
    now = [0.0]

    async def check(api: KubeApi) -> None:
        rights = AccessReviews(api, lambda: now[0])
        allowed = [topic_right(Right.PRODUCE, f"{namespace}/flights"), topic_verb("list", f"{namespace}/")]
        denied = [
            topic_right(Right.CONSUME, f"{namespace}/flights"),
            topic_right(Right.PRODUCE, f"{namespace}/other"),
            topic_right(Right.PRODUCE, "default/flights"),
            topic_verb("delete", f"{namespace}/flights"),
            topic_verb("list", "/"),
        ]
        for access in allowed:
            while not (await rights.allows(caller, access)).allowed:  # the authorizer has not seen the binding yet
                now[0] += DENIED_SECONDS
                await asyncio.sleep(0.05)
        for access in denied:
            decision = await rights.allows(caller, access)
            assert not decision.allowed and "verbs: [" + access.verb in decision.reason
        groups = [
            [(await rights.allows(caller, it)).allowed for it in group_rights(f"{namespace}/flights", name)]
            for name in ("team-a.billing", "team-b.billing")
        ]
        assert groups == [[False, True, False], [False, False, False]]

    run(kube, check)


def test_an_answer_is_kept_for_some_seconds_and_shared(kube: KubeClient, namespace: str) -> None:
    now, calls = [0.0], [0]

    class Counting:
        async def create(self, kind: Any, body: Any) -> Any:
            calls[0] += 1
            await asyncio.sleep(0)
            name = body["spec"]["resourceAttributes"]["name"]
            if name == "broken":
                raise_unreachable()
            return {"status": {"allowed": name == "flights"}}

    async def check() -> None:
        rights = AccessReviews(Counting(), lambda: now[0])  # type: ignore[arg-type]
        caller = Caller(identity="a", method="x")
        flights, other = topic_right(Right.CONSUME, "t/flights"), topic_right(Right.CONSUME, "t/other")
        assert all(it.allowed for it in await asyncio.gather(*(rights.allows(caller, flights) for _ in range(9))))
        assert calls[0] == 1
        now[0] = ALLOWED_SECONDS - 1
        assert (await rights.allows(caller, flights)).allowed and calls[0] == 1
        assert not (await rights.allows(caller, other)).allowed and calls[0] == 2
        now[0] += DENIED_SECONDS
        await rights.allows(caller, flights)
        await rights.allows(caller, other)
        assert calls[0] == 4
        with pytest.raises(Unavailable, match="cannot have a right reviewed"):
            await rights.allows(caller, topic_right(Right.CONSUME, "t/broken"))

    asyncio.run(check())


def raise_unreachable() -> None:
    from smq_operator.kube.client.errors import ApiServerUnreachable

    raise ApiServerUnreachable("away")


def test_operators_of_a_release_share_their_keys(kube: KubeClient, namespace: str) -> None:
    def secret(api: KubeApi, given: str = "") -> ReleaseSecret:
        authority = GivenAuthority(api, namespace, given) if given else None
        return ReleaseSecret(
            api=api,
            namespace=namespace,
            name="smq-security",
            labels={"seaweedmq.io/release": "smq"},
            given=authority,
        )

    async def open_all(api: KubeApi) -> list[Any]:
        return await asyncio.gather(*(secret(api).open(time.time()) for _ in range(4)))

    keys = run(kube, open_all)
    known = keys[0][0]
    assert len({(it.release, it.id, grant_key) for it, grant_key in keys}) == 1
    published = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "smq-security-roots", "namespace": namespace},
    }
    assert kube.get(published)["data"]["ca.crt"].encode() == known.roots
    again, _ = run(kube, lambda api: secret(api).open(time.time()))
    assert again == known
    stored = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "smq-security", "namespace": namespace}}

    async def rotate(api: KubeApi) -> tuple[AuthoritySet, AuthoritySet]:
        """Two operators, of which the second one writes late."""
        first, second = (Authorities(it, known, CertificateLives(), time.time) for it in (secret(api), secret(api)))
        late = secret(api)
        await late.load()
        await first.rotate()
        with pytest.raises(Conflict):
            await late.save(known.introduce_own(time.time(), CertificateLives()))
        await second.step(False, list)
        return first.known, second.known

    rotated, followed = run(kube, rotate)
    assert rotated == followed and len(rotated.rotation.authorities) == 2
    assert kube.get(published)["data"]["ca.crt"].encode() == rotated.roots
    with pytest.raises(Unavailable, match=r"the Secret corporation in namespace .* is not there"):
        run(kube, lambda api: secret(api, "corporation").given())
    certificate, key = UserAuthority("corporation").intermediate("smq")
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "corporation", "namespace": namespace},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": b64encode(certificate).decode(), "tls.key": b64encode(key).decode()},
        }
    )

    async def take_given(api: KubeApi) -> AuthoritySet:
        leader = Authorities(secret(api, "corporation"), rotated, CertificateLives(client=0), time.time)
        await leader.step(True, list)
        return leader.known

    given = run(kube, take_given)
    assert given.signing().keys.chain == certificate and given.release == known.release
    kube.patch(stored, {"data": {"authorities.json": None}})
    with pytest.raises(InvalidRequest, match=r"smq-security in namespace .* restore it"):
        run(kube, lambda api: secret(api).open(time.time()))
    assert kube.get(stored)["data"].keys() == {"grants.key"}, "nothing was replaced"
