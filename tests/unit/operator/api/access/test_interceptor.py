"""Every call of the leader by every kind of caller, over TLS: who gets to the handlers, and who does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import structlog
from google.protobuf.message import Message

from smq_core.errors import PermissionDenied, Unauthenticated, Unavailable
from smq_operator.api.access import interceptor
from smq_operator.api.admin import AdminService
from smq_operator.api.server import LeaderServices
from smq_operator.reconcile.topics.managed_topic import ManagedTopic
from smq_operator.runtime.readiness import Readiness
from smq_operator.security.access.audit import DenialReason
from smq_proto.v1 import admin_pb2, brokers_pb2, topics_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_storage.topic_manifests import parser
from smq_storage.topic_manifests.yaml_documents import load_documents
from support.in_memory.leader import FakePlatform
from support.leader_access import CALLS, SecureApi, reached, request_of, secure_api, smq_error
from support.processes.leader import manifest
from support.waiting import wait_until

OWN_CALLS = {"Auth.Login", "Auth.GetGrants", "Auth.WhoAmI", "Auth.CheckAccess", "Topics.ReportUnreachable"}
# A stream that nobody checks would never end.
STREAM_DEADLINE_SECONDS = 15.0
WATCH = topics_pb2.WatchRequest(topic="flights")


@pytest.mark.parametrize("token", [None, "", "wrong", "smq-broker.i1.00", "Bearer", "x" * 7000])
async def test_nobody_gets_in_without_a_token_of_the_release(tmp_path: Path, token: str | None) -> None:
    async with secure_api(tmp_path, time.time) as api:
        for call in CALLS:
            assert isinstance(await reached(api, call, token), Unauthenticated), call
        reason = DenialReason.NO_TOKEN if token is None else DenialReason.INVALID_TOKEN
        assert api.security.access.audit.denied == {reason: len(CALLS)}


async def test_an_administrator_gets_everywhere_but_into_brokers_reports(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api:
        for call in CALLS:
            error = await reached(api, call, api.admin)
            assert (error is None) is (call != "Brokers.Report"), (call, error)
        assert {caller.identity for _, caller in api.handlers.seen if caller is not None} == {"admin"}
        assert all(caller is not None for _, caller in api.handlers.seen)


async def test_a_caller_without_rights_gets_only_to_what_is_its_own(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api:
        token = api.add_token("bob")
        listed = admin_pb2.TopicList(topics=[admin_pb2.TopicList.Topic(info=pb.TopicInfo(name="default/flights"))])
        api.handlers.replies["Admin.ListTopics"] = listed
        for call in CALLS:
            if call == "Admin.ListTopics":  # reads what it leaves out afterwards
                with pytest.raises(PermissionDenied, match="list topics"):
                    await api.call(call, request_of(call), token)
                continue
            error = await reached(api, call, token)
            assert (error is None) is (call in OWN_CALLS), (call, error)
            assert error is None or (isinstance(error, PermissionDenied) and error.identity == "bob"), call


async def test_a_broker_reports_about_itself_and_does_little_else(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api:
        allowed = OWN_CALLS | {"Brokers.Report", "Admin.ListBrokers"}
        for call in CALLS:
            error = await reached(api, call, api.tokens.issue("i1"))
            assert (error is None) is (call in allowed), (call, error)
        for token in (api.tokens.issue("i2"), api.add_token("i1")):
            assert isinstance(await reached(api, "Brokers.Report", token), PermissionDenied)
        with pytest.raises(PermissionDenied):
            await api.call("Brokers.Report", brokers_pb2.BrokerReport(), api.admin)
        assert isinstance(await reached(api, "Brokers.Report", api.tokens.issue("ended")), Unauthenticated)


READS = ("Topics.SignReads", "Topics.ListFiles", "Topics.GetFilerKeys")
RIGHTS: list[tuple[dict[str, list[str]], set[str]]] = [
    (
        {"topics": ["flights"], "verbs": ["produce"]},
        {
            *("Topics.Locate", "Topics.Watch", "Topics.History", "Topics.SignUploads"),
            *("Publishes.ClaimApp", "Publishes.PublishAtomically"),
        },
    ),
    (
        {"topics": ["flights"], "verbs": ["consume"]},
        {*("Topics.Locate", "Topics.Watch", "Topics.History", "Groups.ListGroups"), *READS},
    ),
    (
        {"topics": ["flights"], "verbs": ["consume"], "consumerGroups": ["g"]},
        {
            *("Topics.Locate", "Topics.Watch", "Topics.History", "Groups.ListGroups", "Groups.JoinGroup"),
            *("Groups.LeaveGroup", "Groups.CommitPositions", "Groups.GetPositions", *READS),
        },
    ),
    ({"topics": ["hotels"], "verbs": ["*"], "consumerGroups": ["*"]}, set()),
    ({"topics": ["flights"], "verbs": ["create"]}, {"Admin.ApplyTopic"}),
    ({"topics": ["flights"], "verbs": ["update"]}, {"Admin.AlterTopic"}),
    ({"topics": ["flights"], "verbs": ["delete"]}, {"Admin.DeleteTopic"}),
    ({"topics": ["flights"], "verbs": ["get"]}, {"Admin.ExportTopic"}),
]


@pytest.mark.parametrize("rule, allowed", RIGHTS)
async def test_a_right_opens_its_calls(tmp_path: Path, rule: dict[str, list[str]], allowed: set[str]) -> None:
    async with secure_api(tmp_path, time.time) as api:
        token = api.add_token("bob")
        api.add_rule("bob", namespaces=["default"], **rule)
        api.handlers.replies["Admin.ListTopics"] = admin_pb2.TopicList()
        for call in set(CALLS) - OWN_CALLS - {"Admin.ListTopics"}:
            error = await reached(api, call, token)
            assert (error is None) is (call in allowed), (call, error)


async def test_a_manifest_of_a_topic_that_exists_changes_it(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api:
        token = api.add_token("bob")
        api.add_rule("bob", namespaces=["default"], topics=["*"], verbs=["create"])
        assert await reached(api, "Admin.ApplyTopic", token) is None
        api.topics["default/flights"] = object()  # type: ignore[assignment]
        error = await reached(api, "Admin.ApplyTopic", token)
        assert isinstance(error, PermissionDenied) and error.access == 'update topics "flights" in namespace "default"'
        del api.topics["default/flights"]
        api.topics.synced = False
        assert isinstance(await reached(api, "Admin.ApplyTopic", token), Unavailable)


async def test_a_manifest_is_parsed_once_for_its_rights_and_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(parser, "load_documents", lambda text: parsed.append(text) or load_documents(text))

    def services(api: SecureApi) -> LeaderServices:
        admin = SimpleNamespace(readiness=Readiness(), topics=api.topics, platform=FakePlatform())
        api.handlers.ApplyTopic = partial(AdminService.ApplyTopic, admin)  # type: ignore[attr-defined]
        return api.handlers.services

    async with secure_api(tmp_path, time.time, services) as api:
        for name in ("flights", "trains"):
            request = admin_pb2.ApplyTopicRequest(manifest=manifest(name), preview=True)
            reply = await api.call("Admin.ApplyTopic", request, api.admin)
            assert reply.topic == f"default/{name}"
            assert parsed == [request.manifest]
            parsed.clear()


async def test_a_caller_sees_the_topics_of_namespaces_that_it_may_list(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api:
        token = api.add_token("bob")
        api.add_rule("bob", namespaces=["travel"], topics=["*"], verbs=["list"])
        names = ["default/a", "travel/b", "travel/c"]
        api.handlers.replies["Admin.ListTopics"] = admin_pb2.TopicList(
            topics=[admin_pb2.TopicList.Topic(info=pb.TopicInfo(name=name)) for name in names],
            problems=[admin_pb2.TopicList.Problem(where="default.a.yaml")],
        )
        listed = await api.call("Admin.ListTopics", admin_pb2.ListTopicsRequest(), token)
        assert [topic.info.name for topic in listed.topics] == ["travel/b", "travel/c"] and not listed.problems
        listed = await api.call("Admin.ListTopics", admin_pb2.ListTopicsRequest(), api.admin)
        assert [topic.info.name for topic in listed.topics] == names and listed.problems


async def test_a_page_may_have_no_topic_that_its_caller_may_see(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api:
        token = api.add_token("bob")
        api.add_rule("bob", namespaces=["travel"], topics=["*"], verbs=["list"])
        api.handlers.replies["Admin.ListTopics"] = admin_pb2.TopicList(
            topics=[admin_pb2.TopicList.Topic(info=pb.TopicInfo(name="default/a"))], next_page_token="default/a"
        )
        with pytest.raises(PermissionDenied):
            await api.call("Admin.ListTopics", admin_pb2.ListTopicsRequest(), token)
        api.topics["travel/b"] = ManagedTopic("travel/b")
        listed = await api.call("Admin.ListTopics", admin_pb2.ListTopicsRequest(), token)
        assert not listed.topics and listed.next_page_token == "default/a"


async def test_a_request_of_a_stranger_is_not_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(admin_pb2.ApplyTopicRequest, "FromString", lambda body: parsed.append(body), raising=False)
    async with secure_api(tmp_path, time.time) as api:
        with pytest.raises(Unauthenticated):
            await api.call("Admin.ApplyTopic", admin_pb2.ApplyTopicRequest(manifest="x" * 1_000_000), "wrong")
    assert not parsed


@pytest.mark.parametrize("busy", [False, True])
async def test_a_stream_ends_when_its_caller_loses_the_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    monkeypatch.setattr(interceptor, "STREAM_CHECK_SECONDS", 0.05)
    ended: list[bool] = []

    async def replies() -> AsyncIterator[Message]:
        try:
            while True:
                yield pb.LocateReply()
                await (asyncio.sleep(0) if busy else asyncio.Event().wait())
        finally:
            ended.append(True)

    async with secure_api(tmp_path, time.time) as api:
        api.handlers.replies["Topics.Watch"] = replies
        for change, expected in (("policy", PermissionDenied), ("tokens", Unauthenticated)):
            token = api.add_token(change)
            api.add_rule(change, namespaces=["default"], topics=["flights"], verbs=["consume"])
            stream = api.stub("Topics.Watch")(
                WATCH, metadata=[("authorization", f"Bearer {token}")], timeout=STREAM_DEADLINE_SECONDS
            )
            received = aiter(stream)
            await anext(received)
            path = api.folder / f"{change}.yaml"
            path.write_text("rules: []\n" if change == "policy" else "tokens: []\n")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                while True:
                    await anext(received)
            assert isinstance(smq_error(caught.value), expected)
            await wait_until(lambda: ended)
            ended.clear()


async def test_what_callers_do_and_are_refused_is_in_the_log_without_secrets(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api:
        token = api.add_token("bob")
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                assert await reached(api, "Admin.DeleteTopic", token) is not None
            assert await reached(api, "Admin.DeleteTopic", api.admin) is None
            assert await reached(api, "Topics.Locate", api.admin) is None
            assert await reached(api, "Topics.Locate", "secret-guess") is not None
        denied = [entry for entry in logs if entry["event"] == "access.denied"]
        assert [(entry["identity"], entry["access"]) for entry in denied] == [
            ("bob", 'delete topics "flights" in namespace "default"'),
            ("", "Topics.Locate"),
        ]
        (audited,) = (entry for entry in logs if entry["event"] == "access.audit")
        assert (audited["identity"], audited["call"], audited["about"], audited["outcome"]) == (
            *("admin", "Admin.DeleteTopic", "flights", "OK"),
        )
        assert "127.0.0.1" in audited["peer"]
        assert api.security.access.audit.denied == {DenialReason.FORBIDDEN: 3, DenialReason.INVALID_TOKEN: 1}
        text = str(logs)
        assert not any(secret in text for secret in (token, api.admin, "secret-guess"))
