"""No API forgets a check: each one, in each version, refuses a client that has no right to its topics and groups."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.static.primitive import i32Timedelta

from smq_broker.access.callers import UNLIMITED_STREAM, StreamQuota
from smq_broker.kafka.protocol.api_versions import with_api_versions
from smq_broker.kafka.protocol.codec import encode_response
from smq_broker.kafka.protocol.entities import build, has_flexible_response_header
from smq_broker.kafka.protocol.messages import PRODUCE, ApiTable, ClientConnection, KafkaRequest, RequestContext
from smq_broker.kafka.protocol.produce_request import ProducedPartition, ProducedTopic, ProduceRequest
from smq_core.access.kafka_calls import KAFKA_CALLS
from smq_storage.catalog.kafka_groups import StoredKafkaGroup, put_kafka_group
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store
from support.in_memory.kafka_apis import TOPIC, UID, apis_of_one_topic
from support.in_memory.kafka_callers import SecureListenerParts

DENIED = {ErrorCode.topic_authorization_failed, ErrorCode.group_authorization_failed, ErrorCode.unknown_topic_id}
MINUTE = i32Timedelta.parse(timedelta(minutes=1))
LIST_GROUPS = 16
DELETE_TOPICS, DESCRIBE_TOPIC_PARTITIONS = 20, 75
# What a client may use without a right to a topic or a group.
FREE = {key for key, call in KAFKA_CALLS.items() if not (call.rights or call.verb or call.uses_group)}


class NoRights:
    """See ``RequestAccess``. ``checked`` has what was checked."""

    def __init__(self, of_groups: ErrorCode = ErrorCode.group_authorization_failed) -> None:
        self.checked: set[str] = set()
        self._of_groups = of_groups

    async def topic(self, name: str) -> ErrorCode:
        self.checked.add("topic")
        return ErrorCode.topic_authorization_failed

    async def visible(self, topics: Iterable[str]) -> Collection[str]:
        self.checked.add("visible")
        return ()

    async def group(
        self, group: str, topics: Iterable[str], named: Iterable[str] = (), *, listed: bool = False
    ) -> ErrorCode:
        self.checked.add("group")
        return self._of_groups

    def stream(self, name: str) -> StreamQuota:
        return UNLIMITED_STREAM


PARTITION = {
    "partition": 0,
    "partition_index": 0,
    "fetch_offset": 0,
    "partition_max_bytes": 1,
    "timestamp": -1,
    "current_leader_epoch": -1,
    "leader_epoch": 0,
    "committed_offset": 1,
    "committed_metadata": None,
    "offset": 0,
}
OF_TOPIC = {
    "name": "events",
    "topic": "events",
    "topic_id": uuid.UUID(UID),
    "partition_indexes": (0,),
    "partitions": (PARTITION,),
    "num_partitions": 1,
    "replication_factor": 2,
    "assignments": (),
    "configs": (),
    "count": 2,
}
RESOURCE = {"resource_type": 2, "resource_name": "events", "configs": (), "configuration_keys": None}
# Of all requests in all versions. An API whose request needs another value belongs here.
VALUES: Mapping[str, Any] = {
    "topics": (OF_TOPIC,),
    "groups": ({"group_id": "g", "topics": (OF_TOPIC,), "member_id": None},),
    "group_id": "g",
    "groups_names": ("g",),
    "group_ids": ("g",),
    "member_epoch": 0,
    "subscribed_topic_names": ("events",),
    "topic_partitions": (),
    "member_id": "m",
    "members": ({"member_id": "m"},),
    "generation_id": 1,
    "generation_id_or_member_epoch": 1,
    "session_timeout": MINUTE,
    "rebalance_timeout": MINUTE,
    "protocol_type": "consumer",
    "protocols": ({"name": "range", "metadata": b""},),
    "assignments": ({"member_id": "m", "assignment": b"x"},),
    "states_filter": (),
    "types_filter": (),
    "include_authorized_operations": False,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
    "allow_auto_topic_creation": False,
    "replica_id": -1,
    "max_wait": MINUTE,
    "min_bytes": 1,
    "max_bytes": 1,
    "isolation_level": 0,
    "forgotten_topics_data": (),
    "rack_id": "",
    "timeout": MINUTE,
    "topic_names": ("events",),
    "resources": (RESOURCE,),
    "validate_only": False,
}


@pytest.fixture
def store() -> Store:
    store = open_store("memory://")
    put_kafka_group(store, StoredKafkaGroup(name="g", writer="w"), None, RetryPolicy(1))
    return store


def values_of(api_key: int, version: int) -> Mapping[str, Any]:
    if api_key == 3 and version < 10:
        return {**VALUES, "topics": ({"name": "events"},)}
    if api_key == DELETE_TOPICS:
        return {**VALUES, "topics": ({"name": "events", "topic_id": None},)}
    return {**VALUES, "groups": ("g",)} if api_key == 15 else VALUES


async def answer_of(apis: ApiTable, api_key: int, version: int, access: NoRights, **changes: Any) -> Any:
    """What the client gets, decoded."""
    if api_key == PRODUCE:
        named = ("", uuid.UUID(UID)) if version >= 13 else ("events", None)
        body: Any = ProduceRequest(None, -1, 10, (ProducedTopic(*named, (ProducedPartition(0, None),)),))
    else:
        body = build(load_request_schema(api_key, version), {**values_of(api_key, version), **changes})
    request = KafkaRequest(api_key=api_key, version=version, correlation_id=7, client_id="c", body=body)
    context = RequestContext("c", version, ClientConnection("127.0.0.1:5"), access)
    frame = b"".join(bytes(it) for it in encode_response(request, await apis[api_key].handler(body, context)))
    start = 9 if has_flexible_response_header(api_key, version) else 8
    return entity_reader(load_response_schema(api_key, version))(memoryview(frame), start)[0]


def codes_in(entity: Any) -> Iterator[ErrorCode]:
    if isinstance(entity, ErrorCode):
        yield entity
    elif isinstance(entity, tuple):
        for it in entity:
            yield from codes_in(it)
    elif dataclasses.is_dataclass(entity):
        for field in dataclasses.fields(entity):
            yield from codes_in(getattr(entity, field.name))


def test_every_api_has_a_rule() -> None:
    served = with_api_versions({**apis_of_one_topic(open_store("memory://")), **SecureListenerParts(TOPIC).login.apis})
    assert set(served) <= set(KAFKA_CALLS)
    assert {key for key, call in KAFKA_CALLS.items() if call.before_login} == {17, 18, 36}


@pytest.mark.parametrize("api_key", sorted(set(apis_of_one_topic(open_store("memory://"))) - FREE - {LIST_GROUPS}))
async def test_without_a_right_a_request_is_refused_in_every_version(store: Store, api_key: int) -> None:
    call = KAFKA_CALLS[api_key]
    apis = apis_of_one_topic(store)
    for version in range(apis[api_key].min_version, apis[api_key].max_version + 1):
        access = NoRights()
        await answer_of(apis, 3, 12, access, topics=None)  # so that the topic's id is known
        access.checked.clear()
        answer = await answer_of(apis, api_key, version, access)
        assert access.checked == {"group"} if call.uses_group else {"topic"}, version
        codes = set(codes_in(answer))
        assert codes & DENIED and codes <= DENIED | {ErrorCode.none}, (version, codes)


@pytest.mark.parametrize("api_key", [8, 9, 47])
async def test_offsets_need_a_right_to_the_topic_too(store: Store, api_key: int) -> None:
    apis = apis_of_one_topic(store)
    for version in range(apis[api_key].min_version, apis[api_key].max_version + 1):
        access = NoRights(of_groups=ErrorCode.none)
        answer = await answer_of(apis, api_key, version, access, generation_id_or_member_epoch=-1, member_id="")
        assert ErrorCode.topic_authorization_failed in set(codes_in(answer)), version


async def test_lists_have_nothing_that_the_client_may_not_use(store: Store) -> None:
    apis = apis_of_one_topic(store)
    for version in range(14):
        everything = () if version == 0 else None
        assert (await answer_of(apis, 3, version, NoRights(), topics=everything)).topics == (), version
    pages = await answer_of(apis, DESCRIBE_TOPIC_PARTITIONS, 0, NoRights(), topics=())
    assert pages.topics == ()
    by_id = ({"name": None, "topic_id": uuid.UUID(UID)},)
    deleted = await answer_of(apis, DELETE_TOPICS, 6, NoRights(), topics=by_id)
    assert [it.error_code for it in deleted.responses] == [ErrorCode.unknown_topic_id]
    for version in range(6):
        assert (await answer_of(apis, LIST_GROUPS, version, NoRights())).groups == (), version
    everybody = RequestContext("c", 4, ClientConnection("127.0.0.1:5"))
    listed = await apis[LIST_GROUPS].handler(build(load_request_schema(LIST_GROUPS, 4), VALUES), everybody)
    assert [it["group_id"] for it in listed["groups"]] == ["g"], "the test would find nothing otherwise"
