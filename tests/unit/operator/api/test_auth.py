"""Logins, grants and what a caller learns of itself, over TLS."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog
from cryptography import x509
from google.protobuf.empty_pb2 import Empty

from smq_core.access.peers import Peer, Role, broker_server_name, parse_peer
from smq_core.access.quotas import NO_QUOTA, Quota, TopicQuota
from smq_core.access.rights import Access, Right
from smq_core.errors import InvalidRequest, PermissionDenied, Unavailable, UnknownTopic
from smq_core.model.entities import SECOND, TopicSpec
from smq_operator.api import auth
from smq_operator.api.auth import AuthService
from smq_operator.runtime.readiness import Readiness
from smq_operator.security.access.access_control import IdleChecks
from smq_operator.security.access.audit import DenialReason
from smq_operator.security.callers import AccessDecision, Caller
from smq_proto.signed_grants import GrantVerifier
from smq_proto.v1 import auth_pb2
from support.in_memory.leader import FakeServicerContext, RpcAborted
from support.leader_access import SecureApi, secure_api

NOW = 1_790_000_000
QUOTAS = (
    TopicQuota(identity="bob", produce=Quota(bytes_per_second=7)),
    TopicQuota(identity="*", consume=Quota(streams=3)),
)


@asynccontextmanager
async def auth_api(folder: Path) -> AsyncIterator[SecureApi]:
    def services(api: SecureApi) -> object:
        served = AuthService(
            readiness=Readiness(),
            topics=api.topics,
            clock=lambda: NOW * SECOND,
            security=api.security,
            brokers_behind=lambda: ["b1"],
        )
        return SimpleNamespace(**{**vars(api.handlers.services), "auth": served})

    async with secure_api(folder, time.time, services) as api:  # type: ignore[arg-type]
        topic = SimpleNamespace(uid="uid-1", spec=TopicSpec(quotas=QUOTAS))
        api.topics["travel/flights"] = SimpleNamespace(name="travel/flights", topic=topic)  # type: ignore[assignment]
        api.topics["travel/new"] = SimpleNamespace(name="travel/new", topic=None)  # type: ignore[assignment]
        yield api


def names_of(chain: bytes) -> tuple[Peer, list[str]]:
    certificate = x509.load_pem_x509_certificates(chain)[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uri = names.get_values_for_type(x509.UniformResourceIdentifier)[0]
    return parse_peer(uri), names.get_values_for_type(x509.DNSName)


async def test_a_client_gets_a_certificate_of_its_identity_for_a_quarter_of_an_hour(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        reply = await api.call("Auth.Login", auth_pb2.LoginRequest(), api.add_token("bob"))
        assert names_of(reply.certificate_chain) == (Peer(Role.CLIENT, "release-1", "bob", NOW + 900), [])
        assert (reply.release, reply.identity, list(reply.grant_keys)) == ("release-1", "bob", [])
        assert (reply.issued_at, reply.expires_at) == (NOW * SECOND, (NOW + 900) * SECOND)
        assert reply.roots == (api.folder / "ca.crt").read_bytes() and b"PRIVATE KEY" in reply.private_key


async def test_a_broker_gets_the_hosts_by_which_kafka_clients_verify_it_and_a_client_none(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        request = auth_pb2.LoginRequest(incarnation="i1", hosts=["10.0.0.7", "smq-kafka.queue.svc"])
        reply = await api.call("Auth.Login", request, api.tokens.issue("i1"))
        certificate = x509.load_pem_x509_certificates(reply.certificate_chain)[0]
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert next(iter(names)).value.startswith("smq://"), "by which its peers know it"
        assert names.get_values_for_type(x509.DNSName) == [broker_server_name("i1"), "smq-kafka.queue.svc"]
        assert [str(it) for it in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
        for host in ("leader.smq.internal", "*.example"):
            request = auth_pb2.LoginRequest(incarnation="i1", hosts=[host])
            with pytest.raises(InvalidRequest):
                await api.call("Auth.Login", request, api.tokens.issue("i1"))
        reply = await api.call("Auth.Login", auth_pb2.LoginRequest(hosts=["b.example"]), api.add_token("bob"))
        assert names_of(reply.certificate_chain)[1] == []


async def test_a_broker_gets_one_of_its_incarnation_for_a_day_and_the_keys_of_grants(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        reply = await api.call("Auth.Login", auth_pb2.LoginRequest(incarnation="i1"), api.tokens.issue("i1"))
        assert names_of(reply.certificate_chain) == (
            Peer(Role.BROKER, "release-1", "i1", NOW + 86400),
            [broker_server_name("i1")],
        )
        assert (reply.identity, list(reply.grant_keys)) == ("i1", [api.security.grants.public_key])


async def test_nobody_logs_in_as_somebody_else(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        broker = api.tokens.issue("i1")
        for token, incarnation in ((api.admin, "i1"), (broker, "i2"), (broker, "")):
            with pytest.raises(PermissionDenied):
                await api.call("Auth.Login", auth_pb2.LoginRequest(incarnation=incarnation), token)


async def test_a_denied_login_or_grant_is_recorded_with_where_it_comes_from(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        bob = api.add_token("bob")
        with structlog.testing.capture_logs() as logs:
            for call, request in (
                ("Auth.Login", auth_pb2.LoginRequest(incarnation="i1")),
                ("Auth.GetGrants", auth_pb2.GetGrantsRequest(topic="travel/flights")),
            ):
                with pytest.raises(PermissionDenied):
                    await api.call(call, request, bob)
        denied = [entry for entry in logs if entry["event"] == "access.denied"]
        assert [entry["identity"] for entry in denied] == ["bob", "bob"]
        assert all(entry["peer"].startswith(("ipv4:127.0.0.1:", "ipv6:")) for entry in denied), denied
        assert api.security.access.audit.denied == {DenialReason.FORBIDDEN: 2}


@pytest.mark.parametrize(
    ("identity", "quotas"),
    [
        ("bob", {Right.PRODUCE: Quota(bytes_per_second=7), Right.CONSUME: NO_QUOTA}),
        ("ada", {Right.PRODUCE: NO_QUOTA, Right.CONSUME: Quota(streams=3)}),
    ],
)
async def test_a_grant_has_the_quota_of_its_caller(tmp_path: Path, identity: str, quotas: dict[Right, Quota]) -> None:
    async with auth_api(tmp_path) as api:
        token = api.add_token(identity)
        api.add_rule(identity, namespaces=["travel"], topics=["flights"], verbs=["produce", "consume"])
        reply = await api.call("Auth.GetGrants", auth_pb2.GetGrantsRequest(topic="travel/flights"), token)
        grants = map(GrantVerifier([api.security.grants.public_key]).verify, reply.grants)
        assert {grant.right: grant.quota for grant in grants} == quotas


async def test_grants_are_the_rights_that_the_caller_has(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        token = api.add_token("bob")
        api.add_rule("bob", namespaces=["travel"], topics=["flights", "new", "none"], verbs=["consume", "administer"])
        reply = await api.call("Auth.GetGrants", auth_pb2.GetGrantsRequest(topic="travel/flights"), token)
        verifier = GrantVerifier([api.security.grants.public_key])
        grants = [verifier.verify(signed) for signed in reply.grants]
        assert [grant.right for grant in grants] == [Right.CONSUME, Right.ADMINISTER]
        assert {(it.release, it.identity, it.topic, it.uid, it.expires_at) for it in grants} == {
            ("release-1", "bob", "travel/flights", "uid-1", NOW + 300.0)
        }
        assert reply.expires_at == (NOW + 300) * SECOND
        for topic, error in (("travel/none", UnknownTopic), ("travel/new", Unavailable)):
            with pytest.raises(error):
                await api.call("Auth.GetGrants", auth_pb2.GetGrantsRequest(topic=topic), token)


async def test_a_grant_ends_five_minutes_after_its_right_was_reviewed(tmp_path: Path) -> None:
    """A right that was taken back since is gone by then, however old the answer is."""

    class Older:
        async def allows(self, caller: object, access: Access) -> AccessDecision:
            return AccessDecision(
                access.subresource != "administer", age_seconds={"produce": 40.0}.get(access.subresource, 9.0)
            )

    async with auth_api(tmp_path) as api:
        access = api.security.access
        access.idle = IdleChecks(access.tokens, Older())
        reply = await api.call(
            "Auth.GetGrants", auth_pb2.GetGrantsRequest(topic="travel/flights"), api.add_token("bob")
        )
        assert reply.expires_at == (NOW + 260) * SECOND
        verifier = GrantVerifier([api.security.grants.public_key])
        assert {verifier.verify(signed).expires_at for signed in reply.grants} == {NOW + 260.0}


async def test_who_has_no_right_gets_no_grant_and_does_not_learn_which_topics_there_are(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        for token in (api.add_token("bob"), api.tokens.issue("i1")):
            for topic in ("travel/flights", "travel/none", "flights"):
                with pytest.raises(PermissionDenied):
                    await api.call("Auth.GetGrants", auth_pb2.GetGrantsRequest(topic=topic), token)


async def test_a_caller_learns_who_it_is(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        reply = await api.call("Auth.WhoAmI", Empty(), api.add_token("bob", "analysts"))
        assert reply == auth_pb2.WhoAmIReply(identity="bob", groups=["analysts"], method="StaticToken")


@pytest.mark.parametrize(
    "verb, group, allowed",
    [
        ("consume", "", True),
        ("consume", "team.x", True),
        ("consume", "other", False),
        ("produce", "", False),
        ("get", "", True),
        ("delete", "", False),
    ],
)
async def test_a_caller_learns_what_it_may_do(tmp_path: Path, verb: str, group: str, allowed: bool) -> None:
    async with auth_api(tmp_path) as api:
        token = api.add_token("bob")
        rule = {"topics": ["flights"], "verbs": ["consume", "get"], "consumerGroups": ["team.*"]}
        api.add_rule("bob", namespaces=["travel"], **rule)
        request = auth_pb2.CheckAccessRequest(verb=verb, topic="travel/flights", group=group)
        reply = await api.call("Auth.CheckAccess", request, token)
        assert reply.allowed is allowed and reply.reason.startswith("bob may not ") is not allowed
        assert not (await api.call("Auth.CheckAccess", request, api.tokens.issue("i1"))).allowed


async def test_a_group_of_kafka_clients_is_one_of_a_namespace(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        token = api.add_token("bob")
        api.add_rule("bob", namespaces=["travel"], topics=["flights"], verbs=["consume"], consumerGroups=["team.*"])
        for namespace, group, allowed in (
            ("travel", "team.x", True),
            ("travel", "other", False),
            ("default", "team.x", False),
        ):
            request = auth_pb2.CheckAccessRequest(verb="consume", topic=f"{namespace}/", group=group)
            assert (await api.call("Auth.CheckAccess", request, token)).allowed is allowed
        request = auth_pb2.CheckAccessRequest(verb="consume", topic="travel/")
        assert not (await api.call("Auth.CheckAccess", request, token)).allowed, "that is all topics"


@pytest.mark.parametrize("verb, group", [("write", ""), ("", ""), ("produce", "g")])
async def test_a_question_about_no_right_is_refused(tmp_path: Path, verb: str, group: str) -> None:
    async with auth_api(tmp_path) as api:
        with pytest.raises(InvalidRequest):
            await api.call("Auth.CheckAccess", auth_pb2.CheckAccessRequest(verb=verb, group=group), api.admin)


async def test_nothing_outlives_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller(identity="bob", method="ServiceAccount", expires_at=NOW + 60.0)
    assert auth._until(caller, NOW + 900) == NOW + 60
    assert auth._until(Caller(identity="bob", method="StaticToken"), NOW + 900) == NOW + 900


async def test_an_open_release_says_that_it_is_open() -> None:
    served = AuthService(readiness=Readiness(), topics=None, clock=lambda: 0, security=None, brokers_behind=list)  # type: ignore[arg-type]
    assert await served.WhoAmI(Empty(), FakeServicerContext()) == auth_pb2.WhoAmIReply(method="Open")
    for method, request in (
        (served.Login, auth_pb2.LoginRequest()),
        (served.GetGrants, auth_pb2.GetGrantsRequest(topic="t")),
        (served.CheckAccess, auth_pb2.CheckAccessRequest(verb="produce", topic="t")),
    ):
        with pytest.raises(RpcAborted, match="open"):
            await method(request, FakeServicerContext())  # type: ignore[operator]


async def test_authorities_are_shown_and_rotated_at_once(tmp_path: Path) -> None:
    async with auth_api(tmp_path) as api:
        before = await api.call("Auth.Login", auth_pb2.LoginRequest(incarnation="i1"), api.tokens.issue("i1"))
        shown = await api.call("Auth.ListAuthorities", auth_pb2.ListAuthoritiesRequest(), api.admin)
        assert [it.phase for it in shown.authorities] == ["signing"] and shown.waits_for == ""
        for token in (api.add_token("bob"), api.tokens.issue("i1")):
            with pytest.raises(PermissionDenied):
                await api.call("Auth.RotateAuthority", auth_pb2.RotateAuthorityRequest(), token)
        rotated = await api.call("Auth.RotateAuthority", auth_pb2.RotateAuthorityRequest(), api.admin)
        assert [it.phase for it in rotated.authorities] == ["signing", "introduced"]
        assert rotated.waits_for.endswith("yet: b1")
        after = await api.call("Auth.Login", auth_pb2.LoginRequest(incarnation="i1"), api.tokens.issue("i1"))
        assert after.authorities != before.authorities and after.roots.startswith(before.roots)
