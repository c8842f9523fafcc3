"""Who gets in by SASL, and what a connection may do before that and when its session has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from smq_broker.kafka.protocol.codec import encode_response
from smq_broker.kafka.protocol.entities import build
from smq_broker.kafka.protocol.messages import ClientConnection, KafkaRequest, ProtocolError, RequestContext
from smq_broker.kafka.security.connection_access import LOGIN_SECONDS, MAX_FRAME_BYTES_BEFORE_LOGIN
from smq_broker.kafka.security.identities import KEPT_SECONDS
from smq_broker.kafka.security.login import SASL_AUTHENTICATE, SASL_HANDSHAKE
from smq_broker.kafka.security.mechanisms import BadCredentials, parse_oauthbearer, parse_plain
from smq_core.access.kafka_calls import KAFKA_CALLS
from support.in_memory.kafka_callers import SecureListenerParts
from support.processes.broker import make_topic

PLAIN, BEARER = b"\0ada\0ada's", b"n,,\x01auth=Bearer ada's\x01\x01"
METADATA, API_VERSIONS = 3, 18


@pytest.fixture
def listener() -> Iterator[SecureListenerParts]:
    with capture_logs():
        yield SecureListenerParts(make_topic("travel/flights"))


class Client:
    def __init__(self, listener: SecureListenerParts) -> None:
        self.listener = listener
        self.connection = ClientConnection("10.0.0.1:5")

    async def call(self, api_key: int, version: int, **values: Any) -> Any:
        self.listener.access.admit(self.connection, api_key)
        body = build(load_request_schema(api_key, version), values)
        api = self.listener.login.apis[api_key]
        answer = await api.handler(body, RequestContext(None, version, self.connection))
        request = KafkaRequest(api_key=api_key, version=version, correlation_id=1, client_id=None, body=body)
        assert b"".join(encode_response(request, answer))
        return answer

    async def log_in(self, mechanism: str, sent: bytes, version: int = 2) -> Any:
        shaken = await self.call(SASL_HANDSHAKE, 1, mechanism=mechanism)
        assert shaken["error_code"] is ErrorCode.none and shaken["mechanisms"] == ("OAUTHBEARER", "PLAIN")
        return await self.call(SASL_AUTHENTICATE, version, auth_bytes=sent)

    def use(self, api_key: int = METADATA) -> None:
        self.listener.access.admit(self.connection, api_key)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("mechanism", "sent"), [("PLAIN", PLAIN), ("OAUTHBEARER", BEARER)])
async def test_a_token_of_the_release_lets_in(
    listener: SecureListenerParts, mechanism: str, sent: bytes, version: int
) -> None:
    client = Client(listener)
    answer = await client.log_in(mechanism, sent, version)
    assert (answer["error_code"], answer["session_lifetime"]) == (ErrorCode.none, timedelta(0))
    assert client.connection.session is not None and client.connection.session.identity == "ada"
    assert not client.connection.is_finishing
    client.use()


@pytest.mark.parametrize(
    ("mechanism", "sent"),
    [
        ("PLAIN", b"\0ada\0another"),
        ("PLAIN", b"\0bob\0ada's"),
        ("PLAIN", b"bob\0ada\0ada's"),
        ("PLAIN", b"ada's"),
        ("PLAIN", b"\0ada\0"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer another\x01\x01"),
        ("OAUTHBEARER", PLAIN),
        ("PLAIN", BEARER),
    ],
)
async def test_whoever_has_no_such_token_is_refused_and_recorded_and_the_connection_ends(
    listener: SecureListenerParts, mechanism: str, sent: bytes
) -> None:
    client = Client(listener)
    answer = await client.log_in(mechanism, sent)
    assert answer["error_code"] is ErrorCode.sasl_authentication_failed
    assert "ada's" not in answer["error_message"] and "another" not in answer["error_message"]
    assert client.connection.is_finishing and client.connection.session is None
    assert listener.broker.denied("Unauthenticated") == 1
    with pytest.raises(ProtocolError):
        client.use()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\xff\0a\0b",
        b"\0\0ada's",
        b"\0ada\0a\nb",
        b"\0ada\0\xc3\xa9",
        b"\0ada\0" + b"x" * 8001,
        b"\0a\0b\0c",
    ],
)
def test_what_is_no_message_of_plain(sent: bytes) -> None:
    with pytest.raises(BadCredentials):
        parse_plain(sent)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=ada's\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,a=bob,\x01auth=Bearer ada's\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"y,,\x01auth=Bearer ada's\x01\x01",
    ],
)
def test_what_is_no_message_of_oauthbearer(sent: bytes) -> None:
    with pytest.raises(BadCredentials):
        parse_oauthbearer(sent)


def test_extensions_of_oauthbearer_are_left_alone() -> None:
    assert parse_oauthbearer(b"n,,\x01auth=bearer t\x01traceId=1\x01\x01").token == "t"


@pytest.mark.parametrize("api_key", KAFKA_CALLS)
async def test_before_a_login_there_is_only_what_leads_to_one(listener: SecureListenerParts, api_key: int) -> None:
    client = Client(listener)
    if api_key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE):
        client.use(api_key)
        return
    with pytest.raises(ProtocolError) as refused:
        client.use(api_key)
    assert refused.value.reason == "no_login"


async def test_an_api_without_a_rule_is_used_by_nobody(listener: SecureListenerParts) -> None:
    client = Client(listener)
    await client.log_in("PLAIN", PLAIN)
    with pytest.raises(ProtocolError, match="nobody may use API 999"):
        client.use(999)


async def test_other_mechanisms_and_the_first_version_of_the_handshake_are_refused(
    listener: SecureListenerParts,
) -> None:
    for version, mechanism, expected in (
        (1, "GSSAPI", ErrorCode.unsupported_sasl_mechanism),
        (0, "PLAIN", ErrorCode.unsupported_version),
    ):
        client = Client(listener)
        answer = await client.call(SASL_HANDSHAKE, version, mechanism=mechanism)
        assert answer["error_code"] is expected and client.connection.is_finishing


async def test_a_handshake_comes_first_and_counts_once(listener: SecureListenerParts) -> None:
    client = Client(listener)
    answer = await client.call(SASL_AUTHENTICATE, 2, auth_bytes=PLAIN)
    assert answer["error_code"] is ErrorCode.illegal_sasl_state
    client = Client(listener)
    await client.log_in("PLAIN", PLAIN)
    answer = await client.call(SASL_AUTHENTICATE, 2, auth_bytes=PLAIN)
    assert answer["error_code"] is ErrorCode.illegal_sasl_state


async def test_a_session_ends_with_its_token_unless_the_client_logs_in_again(listener: SecureListenerParts) -> None:
    listener.callers.expires_at = listener.broker.now + 10
    client = Client(listener)
    answer = await client.log_in("OAUTHBEARER", BEARER)
    assert timedelta(seconds=9) < answer["session_lifetime"] <= timedelta(seconds=10)
    session = client.connection.session
    assert session is not None
    now = asyncio.get_running_loop().time()
    assert listener.access.end_reason(client.connection, now) is None
    assert "has expired" in (listener.access.end_reason(client.connection, now + 11) or "")
    session.ends_at = now - 1
    with pytest.raises(ProtocolError) as ended:
        client.use()
    assert ended.value.reason == "session"
    await client.log_in("OAUTHBEARER", BEARER)
    client.use()


async def test_who_logs_in_again_stays_who_it_is_and_keeps_to_its_mechanism(listener: SecureListenerParts) -> None:
    listener.callers.tokens["bob's"] = "bob"
    client = Client(listener)
    await client.log_in("PLAIN", PLAIN)
    answer = await client.log_in("PLAIN", b"\0bob\0bob's")
    assert answer["error_code"] is ErrorCode.sasl_authentication_failed and client.connection.is_finishing
    assert client.connection.session is not None and client.connection.session.identity == "ada"
    client = Client(listener)
    await client.log_in("PLAIN", PLAIN)
    answer = await client.call(SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
    assert answer["error_code"] is ErrorCode.unsupported_sasl_mechanism


async def test_a_token_is_looked_up_once_in_a_minute(listener: SecureListenerParts) -> None:
    for _ in range(3):
        await Client(listener).log_in("PLAIN", PLAIN)
    assert listener.callers.calls == 1
    del listener.callers.tokens["ada's"]
    listener.broker.now += KEPT_SECONDS
    answer = await Client(listener).log_in("PLAIN", PLAIN)
    assert answer["error_code"] is ErrorCode.sasl_authentication_failed


async def test_a_token_that_has_expired_lets_nobody_in_whatever_is_kept(listener: SecureListenerParts) -> None:
    listener.callers.expires_at = listener.broker.now + 10
    await Client(listener).log_in("PLAIN", PLAIN)
    listener.broker.now += 11
    answer = await Client(listener).log_in("PLAIN", PLAIN)
    assert answer["error_code"] is ErrorCode.sasl_authentication_failed


async def test_without_a_leader_the_connection_ends_and_the_client_tries_again(listener: SecureListenerParts) -> None:
    listener.callers.is_away = True
    with pytest.raises(ProtocolError) as ended:
        await Client(listener).log_in("PLAIN", PLAIN)
    assert ended.value.reason == "no_leader"


async def test_strangers_send_short_requests_and_have_little_time(listener: SecureListenerParts) -> None:
    client, now = Client(listener), 0.0
    assert listener.access.max_frame_bytes(client.connection) == MAX_FRAME_BYTES_BEFORE_LOGIN
    assert listener.access.end_reason(client.connection, now + LOGIN_SECONDS) is None
    assert listener.access.end_reason(client.connection, now + LOGIN_SECONDS + 1) is not None
    await client.log_in("PLAIN", PLAIN)
    assert listener.access.max_frame_bytes(client.connection) is None
    assert listener.access.end_reason(client.connection, now + LOGIN_SECONDS + 1) is None
