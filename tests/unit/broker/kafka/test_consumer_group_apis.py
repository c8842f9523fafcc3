"""Groups of the consumer protocol, as requests: heartbeats, descriptions, and what the other APIs say of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from smq_broker.kafka.groups import coordinator as coordinators
from smq_broker.kafka.groups import service
from smq_broker.kafka.protocol.messages import ApiTable
from smq_broker.kafka.protocol.sessions import OPEN_ACCESS, OpenRequestAccess, RequestAccess
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.model.entities import SECOND
from smq_storage.catalog.kafka_groups import read_kafka_group
from smq_storage.object_store.store import Store, open_store
from support.in_memory.kafka_apis import UID, answer_of, apis_of_one_topic

MINUTE = i32Timedelta.parse(timedelta(minutes=1))
EVENTS = uuid.UUID(UID)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def apis(store: Store) -> ApiTable:
    return apis_of_one_topic(store)


async def beat(apis: ApiTable, version: int = 1, access: RequestAccess = OPEN_ACCESS, **changes: Any) -> Any:
    """By default the heartbeat with which a member joins."""
    values = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": MINUTE,
        "subscribed_topic_names": ("events",),
        "topic_partitions": (),
    }
    return await answer_of(apis, service.CONSUMER_GROUP_HEARTBEAT, version, access, **{**values, **changes})


async def leave(apis: ApiTable, member: str = "m") -> Any:
    return await beat(apis, member_id=member, member_epoch=-1)


async def join_classic(apis: ApiTable) -> Any:
    return await answer_of(
        apis,
        service.JOIN_GROUP,
        3,
        group_id="g",
        session_timeout=MINUTE,
        rebalance_timeout=MINUTE,
        member_id="",
        protocol_type="consumer",
        protocols=({"name": "range", "metadata": b""},),
    )


async def commit(apis: ApiTable, member: str, epoch: int, version: int = 9) -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
    answer = await answer_of(
        apis,
        service.OFFSET_COMMIT,
        version,
        group_id="g",
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=({"name": "events", "partitions": (partition,)},),
    )
    return answer.topics[0].partitions[0].error_code  # type: ignore[no-any-return]


async def fetch(apis: ApiTable, member: str | None, epoch: int) -> Any:
    wanted = {"name": "events", "partition_indexes": (0,)}
    group = {"group_id": "g", "member_id": member, "member_epoch": epoch, "topics": (wanted,)}
    return (await answer_of(apis, service.OFFSET_FETCH, 9, groups=(group,))).groups[0]


def assigned(answer: Any) -> dict[uuid.UUID, tuple[int, ...]] | None:
    if answer.assignment is None:
        return None
    return {it.topic_id: it.partitions for it in answer.assignment.topic_partitions}


async def test_a_member_joins_keeps_its_partitions_and_leaves(apis: ApiTable, store: Store) -> None:
    joined = await beat(apis)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, "m", 1)
    assert joined.heartbeat_interval == timedelta(seconds=5) and assigned(joined) == {EVENTS: (0,)}
    stored = read_kafka_group(store, "g")
    assert stored is not None and stored[0].generation == 1 and stored[0].group_type == "consumer"
    assert [(it.id, it.epoch, it.client_host) for it in stored[0].members] == [("m", 1, "127.0.0.1")]

    again = await beat(apis, member_epoch=1, topic_partitions=None, subscribed_topic_names=None)
    assert (again.error_code, again.member_epoch, again.assignment) == (ErrorCode.none, 1, None)
    assert (await beat(apis, member_epoch=7)).error_code is ErrorCode.fenced_member_epoch
    assert (await leave(apis)).member_epoch == -1
    assert (await leave(apis)).error_code is ErrorCode.unknown_member_id


async def test_the_coordinator_makes_ids_for_clients_of_version_0(apis: ApiTable) -> None:
    joined = await beat(apis, 0, member_id="")
    assert joined.error_code is ErrorCode.none and uuid.UUID(joined.member_id)
    refused = await beat(apis, 1, member_id="")
    assert refused.error_code is ErrorCode.invalid_request and "MemberId" in refused.error_message


async def test_a_group_without_an_id_is_refused(apis: ApiTable) -> None:
    assert (await beat(apis, group_id="")).error_code is ErrorCode.invalid_request
    assert (await beat(apis, group_id="x" * 250)).error_code is ErrorCode.invalid_group_id
    assert (await beat(apis, server_assignor="x")).error_code is ErrorCode.unsupported_assignor


async def test_the_next_coordinator_knows_the_members(apis: ApiTable, store: Store) -> None:
    joined = await beat(apis)
    following = apis_of_one_topic(store)
    answer = await beat(following, member_epoch=joined.member_epoch)
    assert answer.error_code is ErrorCode.none and answer.member_epoch > joined.member_epoch
    assert assigned(await beat(following, member_id="n")) == {}, "the first one has the partition"


async def test_members_leave_a_coordinator_that_was_replaced(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "CHECK_SECONDS", 1000.0)  # members find out by themselves
    settings = GroupSettings(consumer_session_timeout=SECOND)
    former, new = apis_of_one_topic(store, settings), apis_of_one_topic(store, settings)
    joined = await beat(former)
    await beat(new, member_id="n")
    again = {"member_epoch": joined.member_epoch, "topic_partitions": None, "subscribed_topic_names": None}
    async with asyncio.timeout(10):
        while (answer := await beat(former, **again)).error_code is ErrorCode.none:
            await asyncio.sleep(0.01)
    assert answer.error_code is ErrorCode.not_coordinator


async def test_members_commit_and_fetch_with_their_epoch(apis: ApiTable) -> None:
    await beat(apis)
    assert await commit(apis, "m", 1) is ErrorCode.none
    assert await commit(apis, "m", 0) is ErrorCode.stale_member_epoch
    assert await commit(apis, "x", 1) is await commit(apis, "", -1) is ErrorCode.unknown_member_id
    assert await commit(apis, "m", 1, version=8) is ErrorCode.unsupported_version
    assert (await fetch(apis, "m", 1)).topics[0].partitions[0].committed_offset == 5
    assert (await fetch(apis, None, -1)).topics[0].partitions[0].committed_offset == 5
    assert (await fetch(apis, "m", 2)).error_code is ErrorCode.stale_member_epoch
    assert (await fetch(apis, "x", 1)).error_code is ErrorCode.unknown_member_id
    await leave(apis)
    assert await commit(apis, "m", 1) is ErrorCode.unknown_member_id
    assert await commit(apis, "", -1) is ErrorCode.none


async def test_an_empty_group_changes_its_protocol_and_its_epochs_go_on(apis: ApiTable) -> None:
    joined = await beat(apis)
    refused = await join_classic(apis)
    assert refused.error_code is ErrorCode.inconsistent_group_protocol
    beaten = await answer_of(apis, service.HEARTBEAT, 3, group_id="g", generation_id=1, member_id="m")
    assert beaten.error_code is ErrorCode.unknown_member_id
    await leave(apis)
    classic = await join_classic(apis)
    assert classic.error_code is ErrorCode.none and classic.generation_id > joined.member_epoch

    refused = await beat(apis)
    assert refused.error_code is ErrorCode.group_id_not_found and "classic protocol" in refused.error_message
    assert (await beat(apis, member_epoch=3)).error_code is ErrorCode.unknown_member_id
    await answer_of(apis, service.LEAVE_GROUP, 1, group_id="g", member_id=classic.member_id)
    while (again := await beat(apis)).error_code is ErrorCode.coordinator_load_in_progress:
        await asyncio.sleep(0.01)  # until it is stored that the last member has left
    assert again.error_code is ErrorCode.none and again.member_epoch > classic.generation_id


async def describe(apis: ApiTable, version: int = 1) -> Any:
    values = {"group_ids": ("g",), "include_authorized_operations": False}
    return (await answer_of(apis, service.CONSUMER_GROUP_DESCRIBE, version, **values)).groups[0]


async def describe_classic(apis: ApiTable, version: int) -> Any:
    values = {"groups": ("g",), "include_authorized_operations": False}
    return (await answer_of(apis, service.DESCRIBE_GROUPS, version, **values)).groups[0]


async def listed(apis: ApiTable, **filters: tuple[str, ...]) -> list[tuple[str, str, str]]:
    values = {"states_filter": (), "types_filter": (), **filters}
    answer = await answer_of(apis, service.LIST_GROUPS, 5, **values)
    return [(it.group_id, it.group_state, it.group_type) for it in answer.groups]


async def test_a_group_is_described_with_members_and_targets(apis: ApiTable) -> None:
    assert (await describe(apis)).error_code is ErrorCode.group_id_not_found
    await beat(apis, instance_id="i", rack_id="r", server_assignor="range")
    found = await describe(apis)
    assert (found.error_code, found.group_state, found.assignor_name) == (ErrorCode.none, "Stable", "range")
    assert (found.group_epoch, found.assignment_epoch) == (1, 1)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.client_id) == ("m", "i", "r", "c")
    assert (member.client_host, member.member_type, member.subscribed_topic_names) == ("/127.0.0.1", 1, ("events",))
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name, topic.partitions) == (EVENTS, "events", (0,))
    await beat(apis, member_id="m", instance_id="i", member_epoch=-1)
    assert (await describe(apis, 0)).group_state == "Empty"


async def test_the_apis_of_the_classic_protocol_do_not_know_such_a_group(apis: ApiTable) -> None:
    await beat(apis)
    assert (await describe_classic(apis, 5)).group_state == "Dead"
    found = await describe_classic(apis, 6)
    assert found.error_code is ErrorCode.group_id_not_found and "not a classic group" in found.error_message


async def test_a_classic_group_is_no_consumer_group(apis: ApiTable) -> None:
    await join_classic(apis)
    found = await describe(apis)
    assert found.error_code is ErrorCode.group_id_not_found and "not a consumer group" in found.error_message


async def test_groups_are_listed_with_their_types(apis: ApiTable, store: Store) -> None:
    await beat(apis)
    expected = [("g", "Stable", "consumer")]
    assert await listed(apis) == await listed(apis, types_filter=("Consumer",)) == expected
    assert await listed(apis, types_filter=("classic",)) == []
    assert await listed(apis_of_one_topic(store)) == expected, "nobody has been heard yet"


async def test_only_an_empty_group_is_deleted(apis: ApiTable) -> None:
    await beat(apis)

    async def delete() -> ErrorCode:
        answer = await answer_of(apis, service.DELETE_GROUPS, 2, groups_names=("g",))
        return answer.results[0].error_code  # type: ignore[no-any-return]

    assert await delete() is ErrorCode.non_empty_group
    await leave(apis)
    assert await delete() is ErrorCode.none and await listed(apis) == []
    assert (await describe(apis)).error_code is ErrorCode.group_id_not_found
    assert (await beat(apis)).member_epoch > 2, "epochs go on"


async def test_offsets_of_a_subscribed_topic_are_not_deleted(apis: ApiTable) -> None:
    await beat(apis)
    wanted = {"name": "events", "partitions": ({"partition_index": 0},)}
    answer = await answer_of(apis, service.OFFSET_DELETE, 0, group_id="g", topics=(wanted,))
    assert answer.topics[0].partitions[0].error_code is ErrorCode.group_subscribed_to_topic


@pytest.mark.parametrize(
    ("pattern", "found"), [("ev.*", {EVENTS: (0,)}), ("ev", {}), ("", {}), (".*s|x", {EVENTS: (0,)})]
)
async def test_a_pattern_matches_whole_names(
    apis: ApiTable, pattern: str, found: dict[uuid.UUID, tuple[int, ...]]
) -> None:
    joined = await beat(apis, subscribed_topic_names=None, subscribed_topic_regex=pattern)
    assert joined.error_code is ErrorCode.none and assigned(joined) == found


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "x" * 5000, "((a{100}){100}){100}"])
async def test_patterns_that_are_not_those_of_kafka_are_refused(apis: ApiTable, pattern: str) -> None:
    refused = await beat(apis, subscribed_topic_names=None, subscribed_topic_regex=pattern)
    assert refused.error_code is ErrorCode.invalid_regular_expression
    assert "SubscribedTopicRegex" in refused.error_message


async def test_a_pattern_finds_only_topics_that_the_client_may_see(apis: ApiTable) -> None:
    class Blind(OpenRequestAccess):
        async def visible(self, topics: Iterable[str]) -> Collection[str]:
            return ()

    joined = await beat(apis, access=Blind(), subscribed_topic_names=None, subscribed_topic_regex=".*")
    assert joined.error_code is ErrorCode.none and assigned(joined) == {}


async def test_a_pattern_finds_nothing_in_namespaces_in_which_the_client_may_not_use_the_group(apis: ApiTable) -> None:
    class NoGroup(OpenRequestAccess):
        async def group(
            self, group: str, topics: Iterable[str], named: Iterable[str] = (), *, listed: bool = False
        ) -> ErrorCode:
            return ErrorCode.group_authorization_failed if "default/" in set(topics) else ErrorCode.none

    joined = await beat(apis, access=NoGroup(), subscribed_topic_names=None, subscribed_topic_regex=".*")
    assert joined.error_code is ErrorCode.none and assigned(joined) == {}
