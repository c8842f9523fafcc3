"""A permissive leader: one port for callers with and without TLS, and who gets which rights there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import structlog
from google.protobuf.empty_pb2 import Empty

from smq_core.errors import InvalidRequest, PermissionDenied, SmqError, Unauthenticated
from smq_operator.api.access import interceptor
from smq_operator.api.auth import AuthService
from smq_operator.api.server import make_server
from smq_operator.reconcile.topics.directory import TopicDirectory
from smq_operator.runtime.readiness import Readiness
from smq_operator.security.access.audit import DenialReason
from smq_proto.v1 import auth_pb2
from smq_proto.v1.auth_pb2_grpc import AuthStub
from support.leader_access import (
    CALLS,
    NotingHandlers,
    SecureApi,
    one_reply,
    reached,
    request_of,
    secure_api,
    smq_error,
)
from support.waiting import wait_until


@asynccontextmanager
async def clear_text(api: SecureApi) -> AsyncIterator[SecureApi]:
    """The same API for calls in clear text."""
    encrypted = api.channel
    async with grpc.aio.insecure_channel(api.address, [("grpc.use_local_subchannel_pool", 1)]) as api.channel:
        try:
            yield api
        finally:
            api.channel = encrypted


async def test_a_caller_in_clear_text_may_do_everything_and_is_counted(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time, permissive=True) as api, clear_text(api):
        with structlog.testing.capture_logs() as logs:
            for call in CALLS:
                assert await reached(api, call, None) is None, call
        assert all(caller is None for _, caller in api.handlers.seen), "handlers see nobody, as in an open release"
        audit = api.security.access.audit
        assert audit.open_calls == dict.fromkeys(CALLS, 1) and not audit.denied
        lines = [line for line in logs if line["event"] == "access.open_call"]
        assert [line["call"] for line in lines] == CALLS
        assert all(line["peer"].startswith("127.0.0.1:") for line in lines)
        deleted = next(line for line in logs if line["event"] == "access.audit" and line["call"] == "Admin.DeleteTopic")
        assert (deleted["identity"], deleted["about"]) == ("anonymous", "flights")
        with structlog.testing.capture_logs() as logs:
            await reached(api, CALLS[0], None)
        assert not [line for line in logs if line["event"] == "access.open_call"], "one line in a while is enough"
        assert audit.open_calls[CALLS[0]] == 2


@pytest.mark.parametrize("token", ["", "wrong", "smq-broker.i1.00", "Bearer"])
async def test_a_token_that_nobody_knows_is_refused_in_clear_text_too(tmp_path: Path, token: str) -> None:
    async with secure_api(tmp_path, time.time, permissive=True) as api, clear_text(api):
        for call in CALLS:
            assert isinstance(await reached(api, call, token), Unauthenticated), call
        assert not api.security.access.audit.open_calls


async def test_a_token_has_its_rights_and_no_others_in_clear_text(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time, permissive=True) as api:
        token = api.add_token("bob")
        encrypted = {call: type(await reached(api, call, token)) for call in CALLS if call != "Admin.ListTopics"}
        assert PermissionDenied in encrypted.values()
        async with clear_text(api):
            for call, kind in encrypted.items():
                assert type(await reached(api, call, token)) is kind, call
        assert not api.security.access.audit.open_calls


async def test_over_tls_nobody_is_anonymous(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time, permissive=True) as api:
        for call in CALLS:
            assert isinstance(await reached(api, call, None), Unauthenticated), call
            assert await reached(api, call, api.admin) is None or call == "Brokers.Report"
        audit = api.security.access.audit
        assert not audit.open_calls and audit.denied[DenialReason.NO_TOKEN] == len(CALLS)


async def test_a_required_leader_serves_no_clear_text(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time) as api, clear_text(api):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await api.stub("Topics.Locate")(request_of("Topics.Locate"), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not api.handlers.seen


async def test_a_stream_in_clear_text_counts_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interceptor, "STREAM_CHECK_SECONDS", 0.01)

    async def endless() -> AsyncIterator[object]:
        async for reply in one_reply():
            yield reply
        await ended

    async with secure_api(tmp_path, time.time, permissive=True) as api, clear_text(api):
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        api.handlers.replies["Topics.Watch"] = endless
        stream = api.stub("Topics.Watch")(request_of("Topics.Watch"))
        await stream.read()
        await wait_until(lambda: api.security.access.audit.open_calls["Topics.Watch"] >= 3)
        ended.set_result(None)
        stream.cancel()


async def test_the_log_names_the_client_and_not_the_port_that_is_shared(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time, permissive=True) as api:
        with structlog.testing.capture_logs() as logs:
            await reached(api, "Topics.Locate", "wrong")
            await reached(api, "Admin.DeleteTopic", api.admin)
        peers = {line["event"]: line["peer"] for line in logs}
        assert peers.keys() == {"access.denied", "access.audit"}
        assert all(peer.startswith("127.0.0.1:") for peer in peers.values())


async def test_an_unknown_call_is_unknown(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time, permissive=True) as api, clear_text(api):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await api.channel.unary_unary("/smq.v1.Topics/Anything")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert not api.security.access.audit.open_calls


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with secure_api(tmp_path, time.time, permissive=True) as api:
        with pytest.raises(InvalidRequest, match=f"cannot listen on {api.address}"):
            make_server(api.address, api.security, TopicDirectory, permissive=True)


@pytest.mark.parametrize("secured", [True, False])
async def test_who_calls_without_a_token_is_nobody(tmp_path: Path, secured: bool) -> None:
    """``Auth`` of a permissive leader to callers in clear text, and of an open one."""
    async with secure_api(tmp_path, time.time, permissive=True) as api:
        auth = AuthService(
            readiness=Readiness(not_ready_reason=""),
            topics=api.topics,
            clock=lambda: 0,
            security=api.security if secured else None,
            brokers_behind=lambda: (),
        )
        handlers = NotingHandlers()
        services = handlers.services
        services.auth = auth  # type: ignore[misc]
        server = make_server("127.0.0.1:0", api.security if secured else None, TopicDirectory, permissive=True)
        await server.start(services)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub = AuthStub(channel)
            assert (await stub.WhoAmI(Empty())).method == "Open"
            kind: type[SmqError] = Unauthenticated if secured else InvalidRequest
            for call in (
                stub.Login(auth_pb2.LoginRequest()),
                stub.GetGrants(auth_pb2.GetGrantsRequest(topic="flights")),
                stub.CheckAccess(auth_pb2.CheckAccessRequest(verb="produce", topic="flights")),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert type(smq_error(caught.value)) is kind
        await server.stop()
