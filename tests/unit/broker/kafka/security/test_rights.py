"""What a Kafka client of a secure release may do, by the leader's answers and while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from smq_broker.kafka.protocol.messages import ClientConnection
from smq_broker.kafka.protocol.sessions import RequestAccess, Session
from smq_broker.kafka.security import caller_rights
from smq_core.access.grants import GRANT_SECONDS, LEADERLESS_GRACE_SECONDS
from smq_core.access.kafka_calls import KAFKA_CALLS
from smq_core.access.quotas import Quota
from smq_core.access.rights import Right
from smq_core.errors import QuotaExceeded
from smq_core.kafka_topics.names import resource_name
from support.in_memory.kafka_callers import OTHER_NAME, SecureListenerParts
from support.processes.broker import make_topic
from support.waiting import HANG_GUARD

PRODUCE, FETCH, METADATA, JOIN_GROUP, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 3, 11, 19, 20
NAME = "travel.flights"
OF_TOPICS = {key: call for key, call in KAFKA_CALLS.items() if call.rights}
DENIED, GROUP_DENIED = ErrorCode.topic_authorization_failed, ErrorCode.group_authorization_failed


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[SecureListenerParts]:
    monkeypatch.setattr(caller_rights, "DENIED_SECONDS", 0.0)
    with capture_logs():
        yield SecureListenerParts(make_topic("travel/flights"))


def session_of(identity: str = "ada") -> Session:
    return Session(identity, f"{identity}'s", "PLAIN")


def request(listener: SecureListenerParts, api_key: int, session: Session | None = None) -> RequestAccess:
    connection = ClientConnection("10.0.0.1:5", session or session_of())
    return listener.access.admit(connection, api_key)


async def refreshed(listener: SecureListenerParts, calls: int) -> None:
    """Waits until the leader was asked that often."""
    async with asyncio.timeout(HANG_GUARD):
        while listener.callers.calls < calls or listener.rights._requests:
            await asyncio.sleep(0)


@pytest.mark.parametrize("api_key", OF_TOPICS)
@pytest.mark.parametrize("right", [*Right, None])
async def test_each_api_needs_its_right_to_the_topic(
    listener: SecureListenerParts, api_key: int, right: Right | None
) -> None:
    listener.callers.rights["ada"] = {right} if right is not None else set()
    allowed = right in OF_TOPICS[api_key].rights
    assert await request(listener, api_key).topic(NAME) is (ErrorCode.none if allowed else DENIED)
    assert listener.broker.denied("PermissionDenied") == (0 if allowed else 1)


async def test_a_right_to_one_topic_is_none_to_others_and_a_name_that_no_topic_has_is_denied(
    listener: SecureListenerParts,
) -> None:
    listener.callers.rights["ada"] = {Right.PRODUCE}
    access = request(listener, PRODUCE)
    assert [await access.topic(it) for it in (NAME, "flights", "other.flights", "a.b.c", "../x")] == [
        ErrorCode.none,
        *[DENIED] * 4,
    ]


async def test_what_changes_topics_needs_the_verb(listener: SecureListenerParts) -> None:
    listener.callers.rights["ada"] = set(Right)
    assert await request(listener, DELETE_TOPICS).topic(NAME) is DENIED
    listener.callers.allowed.add(("ada", "delete", "travel/flights", ""))
    assert await request(listener, DELETE_TOPICS).topic(NAME) is ErrorCode.none


async def test_a_right_is_requested_once_and_again_at_half_of_its_life(listener: SecureListenerParts) -> None:
    listener.callers.rights["ada"] = {Right.PRODUCE}
    session, loop = session_of(), asyncio.get_running_loop()
    for _ in range(5):
        assert await request(listener, PRODUCE, session).topic(NAME) is ErrorCode.none
    assert listener.callers.calls == 1
    (known,) = listener.rights._topics.values()
    assert known.refresh_at - loop.time() == pytest.approx(GRANT_SECONDS / 2, abs=5)


async def test_a_right_that_was_taken_away_ends_when_it_is_requested_again(
    listener: SecureListenerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener.callers.rights["ada"] = {Right.PRODUCE}
    assert await request(listener, PRODUCE).topic(NAME) is ErrorCode.none
    listener.callers.rights["ada"] = set()
    make_due(listener)
    assert await request(listener, PRODUCE).topic(NAME) is ErrorCode.none, "nobody waits for the leader"
    await refreshed(listener, 2)
    assert await request(listener, PRODUCE).topic(NAME) is DENIED


async def test_rights_are_those_to_the_topic_that_a_name_of_kafka_stands_for(listener: SecureListenerParts) -> None:
    assert await request(listener, FETCH).topic(OTHER_NAME) is DENIED
    listener.callers.rights["ada"] = {Right.CONSUME}
    access = request(listener, FETCH)
    assert await access.topic(OTHER_NAME) is ErrorCode.none
    access.stream(OTHER_NAME)
    listener.callers.allowed.add(("ada", "consume", "travel/", "billing"))
    assert await request(listener, JOIN_GROUP).group("billing", [], [OTHER_NAME]) is ErrorCode.none
    assert await request(listener, JOIN_GROUP).group("billing", [], ["flights"]) is GROUP_DENIED


async def test_a_topic_is_created_by_whoever_may_create_its_resource(listener: SecureListenerParts) -> None:
    assert await request(listener, CREATE_TOPICS).topic("a.b") is DENIED
    listener.callers.allowed.add(("ada", "create", f"default/{resource_name('a.b')}", ""))
    assert await request(listener, CREATE_TOPICS).topic("a.b") is ErrorCode.none


async def test_one_of_two_rights_that_was_taken_away_ends_with_its_grant(listener: SecureListenerParts) -> None:
    listener.callers.rights["ada"] = {Right.PRODUCE, Right.CONSUME}
    assert await request(listener, FETCH).topic(NAME) is ErrorCode.none
    listener.callers.rights["ada"] = {Right.PRODUCE}
    listener.broker.now += GRANT_SECONDS + 1
    listener.broker.leader_seen_at = listener.broker.now
    assert await request(listener, FETCH).topic(NAME) is DENIED
    assert await request(listener, PRODUCE).topic(NAME) is ErrorCode.none


async def test_without_a_leader_what_was_allowed_is_allowed_for_the_grace(listener: SecureListenerParts) -> None:
    listener.callers.rights["ada"] = {Right.PRODUCE}
    assert await request(listener, PRODUCE).topic(NAME) is ErrorCode.none
    listener.callers.is_away = True
    listener.broker.now += GRANT_SECONDS + LEADERLESS_GRACE_SECONDS - 1
    assert await request(listener, PRODUCE).topic(NAME) is ErrorCode.none
    assert listener.broker.graces() > 0
    listener.broker.now += 2
    assert await request(listener, PRODUCE).topic(NAME) is ErrorCode.kafka_storage_error, "clients repeat"
    assert await request(listener, PRODUCE).topic("other") is ErrorCode.kafka_storage_error
    assert listener.broker.denied("PermissionDenied") == 0


async def test_a_token_that_counts_no_more_ends_the_session_when_a_right_is_requested_again(
    listener: SecureListenerParts,
) -> None:
    listener.callers.rights["ada"] = {Right.PRODUCE}
    session = session_of()
    assert await request(listener, PRODUCE, session).topic(NAME) is ErrorCode.none
    del listener.callers.tokens["ada's"]
    make_due(listener)
    assert await request(listener, PRODUCE, session).topic(NAME) is ErrorCode.none
    async with asyncio.timeout(HANG_GUARD):
        while not session.ended_because:
            await asyncio.sleep(0)
    connection = ClientConnection("10.0.0.1:5", session)
    assert "does not take the token of ada" in (listener.access.end_reason(connection, 0.0) or "")


async def test_requests_that_wait_for_one_answer_share_it(listener: SecureListenerParts) -> None:
    listener.callers.rights["ada"] = {Right.PRODUCE}
    session = session_of()
    accesses = [request(listener, PRODUCE, session) for _ in range(10)]
    assert set(await asyncio.gather(*(it.topic(NAME) for it in accesses))) == {ErrorCode.none}
    assert listener.callers.calls == 1


# ---- groups and lists


async def test_a_group_is_used_by_whoever_may_use_it_in_the_namespaces_of_its_topics(
    listener: SecureListenerParts,
) -> None:
    allowed = listener.callers.allowed
    allowed.add(("ada", "consume", "travel/", "billing"))
    access = request(listener, JOIN_GROUP)
    assert await access.group("billing", ["travel/flights", "travel/hotels"]) is ErrorCode.none
    assert await access.group("billing", ["travel/flights", "shop/orders"]) is GROUP_DENIED
    assert await access.group("other", ["travel/flights"]) is GROUP_DENIED
    assert await access.group("billing", []) is GROUP_DENIED, "without topics it is one of `default`"
    allowed.add(("ada", "consume", "default/", "billing"))
    assert await access.group("billing", []) is ErrorCode.none
    assert listener.broker.denied("PermissionDenied") == 3
    assert await access.group("secret", [], listed=True) is GROUP_DENIED
    assert listener.broker.denied("PermissionDenied") == 3, "the client did not ask for it"


async def test_a_right_to_a_group_outlives_an_outage_of_the_leader_but_is_not_given_in_it(
    listener: SecureListenerParts,
) -> None:
    listener.callers.allowed.add(("ada", "consume", "travel/", "billing"))
    access = request(listener, JOIN_GROUP)
    assert await access.group("billing", ["travel/flights"]) is ErrorCode.none
    listener.callers.is_away = True
    for key, it in listener.rights._others.items():
        long_ago = asyncio.get_running_loop().time() - caller_rights.GROUP_SECONDS
        listener.rights._others[key] = caller_rights._YesOrNo(it.allowed, long_ago, long_ago)
    assert await access.group("billing", ["travel/flights"]) is ErrorCode.none
    assert await access.group("other", ["travel/flights"]) is ErrorCode.coordinator_not_available


async def test_a_list_has_the_namespaces_that_one_may_list_and_the_topics_to_which_one_has_a_right(
    listener: SecureListenerParts,
) -> None:
    topics = ["travel/flights", "travel/hotels", "shop/orders", "shop/carts"]
    access = request(listener, METADATA)
    assert await access.visible(topics) == set()
    listener.callers.rights["ada"] = {Right.CONSUME}
    assert await access.visible(topics) == {"travel/flights"}
    listener.callers.allowed.add(("ada", "list", "shop/", ""))
    assert await access.visible(topics) == {"travel/flights", "shop/orders", "shop/carts"}
    assert listener.broker.denied("PermissionDenied") == 0


# ---- quotas


async def test_a_connection_has_one_stream_of_the_quota_for_each_right_to_a_topic(
    listener: SecureListenerParts,
) -> None:
    listener.callers.rights["ada"] = {Right.PRODUCE, Right.CONSUME}
    listener.callers.quota = Quota(streams=1, bytes_per_second=1)
    first, second = session_of(), session_of()
    for api_key in (PRODUCE, FETCH):
        access = request(listener, api_key, first)
        assert await access.topic(NAME) is ErrorCode.none
        assert access.stream(NAME) is access.stream(NAME)
    access.stream(NAME).use(100, 1)
    assert access.stream(NAME).pause_seconds() > 90
    other = request(listener, PRODUCE, second)
    assert await other.topic(NAME) is ErrorCode.none
    with pytest.raises(QuotaExceeded, match="ada has used up its quota of streams"):
        other.stream(NAME)
    listener.access.left(ClientConnection("10.0.0.1:5", first))
    other.stream(NAME)


def make_due(listener: SecureListenerParts) -> None:
    """As if half of the life of all answers had passed."""
    for key, it in listener.rights._topics.items():
        listener.rights._topics[key] = caller_rights._TopicAnswer(it.uid, it.is_missing, 0.0, 0.0)
