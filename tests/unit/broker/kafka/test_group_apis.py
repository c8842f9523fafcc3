"""All versions of the APIs of groups, as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from smq_broker.kafka.cluster import KafkaCluster
from smq_broker.kafka.groups import service
from smq_broker.kafka.groups.service import group_apis
from smq_broker.kafka.protocol.codec import encode_response
from smq_broker.kafka.protocol.entities import build, has_flexible_response_header
from smq_broker.kafka.protocol.messages import Api, ApiTable, ClientConnection, KafkaRequest, RequestContext
from smq_broker.kafka.topics import KafkaTopics
from smq_broker.leader_client.locator import Locator
from smq_core.kafka_groups.requests import GroupSettings
from smq_storage.object_store.store import StoreSettings, open_store

MINUTE = timedelta(minutes=1)
NO_TOPIC = {
    "name": "missing",
    "partition_indexes": (0,),
    "partitions": ({"partition_index": 0, "committed_offset": 1, "committed_metadata": None},),
}
GROUP = {"group_id": "g", "topics": (NO_TOPIC,), "member_id": None}
# A request of each API with the values of all versions.
REQUESTS: Mapping[int, Mapping[str, Any]] = {
    service.OFFSET_COMMIT: {"group_id": "g", "member_id": "", "topics": (NO_TOPIC,)},
    service.OFFSET_FETCH: {"group_id": "g", "topics": (NO_TOPIC,), "groups": (GROUP,), "member_id": None},
    service.FIND_COORDINATOR: {"key": "g", "coordinator_keys": ("g",)},
    service.JOIN_GROUP: {
        "group_id": "g",
        "session_timeout": MINUTE,
        "rebalance_timeout": MINUTE,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": ({"name": "range", "metadata": b""},),
    },
    service.SYNC_GROUP: {
        "group_id": "g",
        "generation_id": 1,
        "member_id": "m",
        "assignments": ({"member_id": "m", "assignment": b"x"},),
    },
    service.HEARTBEAT: {"group_id": "g", "generation_id": 1, "member_id": "m"},
    service.LEAVE_GROUP: {"group_id": "g", "member_id": "m", "members": ({"member_id": "m"},)},
    service.DESCRIBE_GROUPS: {"groups": ("g",), "include_authorized_operations": False},
    service.LIST_GROUPS: {"states_filter": ("Stable", "Empty"), "types_filter": ("classic", "consumer")},
    service.DELETE_GROUPS: {"groups_names": ("g",)},
    service.OFFSET_DELETE: {"group_id": "g", "topics": (NO_TOPIC,)},
    service.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": MINUTE,
        "subscribed_topic_names": ("missing",),
        "topic_partitions": (),
    },
    service.CONSUMER_GROUP_DESCRIBE: {"group_ids": ("g",), "include_authorized_operations": False},
}


def apis() -> ApiTable:
    store = open_store("memory://")
    locator = Locator(store, StoreSettings(url="memory://"))
    cluster = KafkaCluster(cluster_id="c", incarnation="i", address=lambda: "127.0.0.1:9092", listeners=dict)
    settings = GroupSettings(initial_rebalance_delay=0)
    return group_apis(
        cluster=cluster, store=store, topics=KafkaTopics(locator, lambda: (), lambda _: None), settings=settings
    )


async def call(api_key: int, version: int, api: Api, **changes: Any) -> Any:
    """The response, after it was encoded and decoded."""
    request = KafkaRequest(
        api_key=api_key,
        version=version,
        correlation_id=7,
        client_id="c",
        body=build(load_request_schema(api_key, version), {**REQUESTS[api_key], **changes}),
    )
    body = await api.handler(request.body, RequestContext("c", version, ClientConnection("127.0.0.1:5")))
    frame = b"".join(bytes(it) for it in encode_response(request, body))
    start = 9 if has_flexible_response_header(api_key, version) else 8
    response, size = entity_reader(load_response_schema(api_key, version))(memoryview(frame), start)
    assert start + size == len(frame) == int.from_bytes(frame[:4], "big") + 4
    return response


@pytest.mark.parametrize("api_key", REQUESTS)
async def test_every_version_is_answered(api_key: int) -> None:
    table = apis()
    assert set(table) == set(REQUESTS)
    for version in range(table[api_key].min_version, table[api_key].max_version + 1):
        await call(api_key, version, apis()[api_key])


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_in_two_steps_from_version_4_on(version: int) -> None:
    api = apis()[service.JOIN_GROUP]
    joined = await call(service.JOIN_GROUP, version, api)
    if version >= 4:
        assert joined.error_code is ErrorCode.member_id_required
        joined = await call(service.JOIN_GROUP, version, api, member_id=joined.member_id)
    assert joined.error_code is ErrorCode.none
    assert joined.leader == joined.member_id == joined.members[0].member_id and joined.member_id.startswith("c-")


@pytest.mark.parametrize("version", range(7))
async def test_transactions_have_no_coordinator(version: int) -> None:
    changes = {"key_type": 1} if version else {}
    found = await call(service.FIND_COORDINATOR, version, apis()[service.FIND_COORDINATOR], **changes)
    found = found.coordinators[0] if version >= 4 else found
    expected = ErrorCode.transactional_id_authorization_failed if version else ErrorCode.none
    assert found.error_code is expected and found.port == (-1 if version else 9092)


async def test_nothing_is_stored_for_a_topic_that_there_is_not() -> None:
    table = apis()
    committed = await call(service.OFFSET_COMMIT, 9, table[service.OFFSET_COMMIT])
    assert committed.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition
    listed = await call(service.LIST_GROUPS, 5, table[service.LIST_GROUPS])
    assert listed.groups == ()
    fetched = await call(service.OFFSET_FETCH, 8, table[service.OFFSET_FETCH])
    partition = fetched.groups[0].topics[0].partitions[0]
    assert (partition.committed_offset, partition.error_code) == (-1, ErrorCode.none)


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_there_is_not_is_dead(version: int) -> None:
    described = (await call(service.DESCRIBE_GROUPS, version, apis()[service.DESCRIBE_GROUPS])).groups[0]
    assert described.group_state == "Dead"
    assert described.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)
