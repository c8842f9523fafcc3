"""The APIs that create, configure and delete topics, in all their versions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.static.primitive import i32Timedelta

from smq_broker.kafka.admin import administration as keys
from smq_broker.kafka.admin.create_topics import DEFAULT_PARTITIONS
from smq_broker.kafka.cluster import KafkaCluster, node_id
from smq_broker.kafka.executor import LoopCalls
from smq_broker.kafka.protocol.codec import encode_response
from smq_broker.kafka.protocol.entities import build, has_flexible_response_header
from smq_broker.kafka.protocol.messages import ApiTable, ClientConnection, KafkaRequest, RequestContext
from smq_broker.kafka.protocol.sessions import Session
from smq_broker.kafka.service import METADATA, api_table
from smq_broker.kafka.topics import KafkaTopics
from smq_broker.segments.registry import SegmentRegistry
from smq_core.errors import Conflict, PermissionDenied, SpecRejected, Unavailable, UnknownTopic
from smq_core.kafka_groups.requests import GroupSettings
from smq_core.kafka_topics.names import resource_name
from smq_core.model.entities import Layout, Phase, Replica, Segment, Topic, TopicSchema, TopicSpec
from smq_core.model.keyspace import KeyRange, Partitioner

MAX = 1 << 20
SECOND = i32Timedelta.parse(timedelta(seconds=1))
CREATED = {"num_partitions": 4, "replication_factor": 2, "assignments": (), "configs": ()}


@dataclass
class Leader:
    """In place of the leader and of the filer: the topics that there are, and what was called."""

    topics: dict[str, Topic] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)
    failure: Exception | None = None
    token: str = ""
    tokens: list[str] = field(default_factory=list)

    def add(self, full: str, **spec: Any) -> Topic:
        topic = Topic(full, str(uuid.uuid4()), TopicSpec(**{"partitions": 4, "partitioner": Partitioner.KAFKA} | spec))
        self.topics[full] = topic
        return topic

    def create(self, name: str, namespace: str, spec: Mapping[str, Any], *, preview: bool = False) -> None:
        self._called("create", name, namespace, spec, preview)
        if not preview:
            self.add(f"{namespace}/{name}", partitions=spec["partitions"], kafka_name=spec.get("kafka", {}).get("name"))

    def alter(self, topic: str, schema: TopicSchema, settings: Mapping[str, Any], *, preview: bool = False) -> None:
        self._called("alter", topic, settings, preview)

    def of_caller(self, token: str) -> Leader:
        return replace(self, token=token)

    def delete(self, topic: str) -> None:
        self._called("delete", topic)
        del self.topics[topic]

    def _called(self, *call: Any) -> None:
        self.calls.append(call)
        self.tokens.append(self.token)
        if self.failure is not None:
            raise self.failure

    def find(self, full: str, *, fresh: bool = False) -> tuple[Topic, Layout]:
        if full not in self.topics:
            raise UnknownTopic(full, topic=full)
        topic = self.topics[full]
        segment = Segment(
            name="s-0-4-7",
            range=KeyRange(0, topic.spec.partitions),
            number=7,
            phase=Phase.OPEN,
            replicas=(Replica("b0", "i0", "h:1"),),
            predecessors=(),
            durability=topic.spec.durability,
        )
        return topic, Layout(topic=full, uid=topic.uid, partitions=topic.spec.partitions, segments=(segment,))

    def full_name(self, kafka: str) -> str | None:
        return next((full for full, it in self.topics.items() if it.spec.kafka_name == kafka), None)

    def apis(self, *, permissive: bool = False, auto_create_topics: bool = False) -> ApiTable:
        addresses = {"i0": "a:1", "i1": "a:2", "i2": "a:3"}
        return api_table(
            cluster=KafkaCluster(cluster_id="c", incarnation="i0", address=lambda: "a:1", listeners=lambda: addresses),
            registry=SegmentRegistry("i0", on_drain=lambda: None),
            store=None,  # type: ignore[arg-type]
            topics=KafkaTopics(self, lambda: list(self.topics), self.full_name),  # type: ignore[arg-type]
            calls=LoopCalls(asyncio.new_event_loop()),
            max_batch=MAX,
            group_settings=GroupSettings(),
            admin=None if permissive else self,  # type: ignore[arg-type]
            auto_create_topics=auto_create_topics,
        )


@pytest.fixture
def leader() -> Leader:
    made = Leader()
    made.add("default/events")
    return made


def call(apis: ApiTable, api_key: int, version: int, *, session: Session | None = None, **values: Any) -> Any:
    """The response, after it was encoded and decoded."""
    body = build(load_request_schema(api_key, version), values)
    request = KafkaRequest(api_key=api_key, version=version, correlation_id=1, client_id=None, body=body)
    answer = asyncio.run(
        apis[api_key].handler(body, RequestContext(None, version, ClientConnection("peer:1", session)))
    )
    frame = b"".join(bytes(it) for it in encode_response(request, answer))
    start = 9 if has_flexible_response_header(api_key, version) else 8
    response, size = entity_reader(load_response_schema(api_key, version))(memoryview(frame), start)
    assert start + size == len(frame)
    return response


def versions(api_key: int) -> range:
    api = Leader().apis()[api_key]
    return range(api.min_version, api.max_version + 1)


def create(apis: ApiTable, name: str, *, version: int = 7, validate_only: bool = False, **changes: Any) -> Any:
    topics = [{"name": name, **CREATED, **changes}]
    answer = call(apis, keys.CREATE_TOPICS, version, topics=topics, timeout=SECOND, validate_only=validate_only)
    return answer.topics[0]


def looked_up(apis: ApiTable, name: str, version: int, *, allowed: bool = True, session: Session | None = None) -> Any:
    """A topic in the answer to Metadata."""
    flags: dict[str, Any] = {"allow_auto_topic_creation": allowed} if version >= 4 else {}
    flags |= {"include_topic_authorized_operations": False} if version >= 8 else {}
    flags |= {"include_cluster_authorized_operations": False} if 8 <= version <= 10 else {}
    topics = [{"name": name, "topic_id": None}]
    return call(apis, METADATA, version, session=session, topics=topics, **flags).topics[0]


def configs(**given: str | None) -> list[dict[str, str | None]]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in given.items()]


# ---- creation


@pytest.mark.parametrize("version", range(14))
def test_a_topic_that_a_client_wants_to_use_is_created_if_that_is_set(leader: Leader, version: int) -> None:
    found = looked_up(leader.apis(auto_create_topics=True), "New_One", version)
    assert (found.error_code, len(found.partitions)) == (ErrorCode.none, DEFAULT_PARTITIONS)
    ((what, _, namespace, spec, preview),) = leader.calls
    assert (what, namespace, preview) == ("create", "default", False)
    assert (spec["partitions"], spec["partitioner"]) == (DEFAULT_PARTITIONS, "Kafka")
    assert spec["kafka"] == {"name": "New_One"}


def test_topics_are_created_by_nobody_who_does_not_want_it(leader: Leader) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    assert looked_up(leader.apis(), "new", 12).error_code is unknown
    assert looked_up(leader.apis(auto_create_topics=True), "new", 12, allowed=False).error_code is unknown
    assert looked_up(leader.apis(auto_create_topics=True), "events", 12).error_code is ErrorCode.none
    assert leader.calls == []


def test_a_topic_that_may_not_be_created_says_why(leader: Leader) -> None:
    leader.failure = PermissionDenied("no")
    found = looked_up(leader.apis(auto_create_topics=True), "new", 12)
    assert found.error_code is ErrorCode.topic_authorization_failed
    assert (
        looked_up(leader.apis(auto_create_topics=True), "no/name", 12).error_code is ErrorCode.invalid_topic_exception
    )


@pytest.mark.parametrize("version", versions(keys.CREATE_TOPICS))
def test_a_topic_is_created_as_users_of_kafka_expect(leader: Leader, version: int) -> None:
    created = create(leader.apis(), "new", version=version, configs=configs(retention_ms="5000"))
    assert created.error_code is ErrorCode.none
    spec = {
        "partitions": 4,
        "partitioner": "Kafka",
        "replicas": 2,
        "retention": {"age": "5000ms", "unread": "Expire"},
        "deletionPolicy": "Delete",
    }
    assert leader.calls == [("create", "new", "default", spec, False)]
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (4, 2)
        assert {it.name for it in created.configs} >= {"retention.ms", "cleanup.policy"}
    if version >= 7:
        assert str(created.topic_id) == leader.topics["default/new"].uid


def test_a_name_that_no_resource_has_is_written_into_the_spec(leader: Leader) -> None:
    assert create(leader.apis(), "Order_Events").error_code is ErrorCode.none
    _, resource, namespace, spec, _ = leader.calls[0]
    assert (resource, namespace, spec["kafka"]) == (resource_name("Order_Events"), "default", {"name": "Order_Events"})


def test_the_cluster_chooses_what_a_client_leaves_to_it(leader: Leader) -> None:
    create(leader.apis(), "new", num_partitions=-1, replication_factor=-1)
    assert (leader.calls[0][3]["partitions"], leader.calls[0][3]["replicas"]) == (12, 2)
    create(leader.apis(), "one", replication_factor=1)
    assert leader.calls[1][3]["replicas"] == 2, "one replica could lose what was acked"
    create(leader.apis(), "three", replication_factor=3)
    assert leader.calls[2][3]["replicas"] == 3


def test_a_validated_topic_is_not_created(leader: Leader) -> None:
    assert create(leader.apis(), "new", validate_only=True).error_code is ErrorCode.none
    assert leader.calls[0][-1] is True and "default/new" not in leader.topics


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("events", {}, ErrorCode.topic_already_exists),
        ("a b", {}, ErrorCode.invalid_topic_exception),
        ("..", {}, ErrorCode.invalid_topic_exception),
        ("new", {"num_partitions": 0}, ErrorCode.invalid_partitions),
        ("new", {"num_partitions": 1025}, ErrorCode.invalid_partitions),
        ("new", {"replication_factor": 4}, ErrorCode.invalid_replication_factor),
        ("new", {"replication_factor": 0}, ErrorCode.invalid_replication_factor),
        ("new", {"configs": configs(no_such="1")}, ErrorCode.invalid_config),
        (
            "new",
            {"num_partitions": -1, "assignments": [{"partition_index": 0, "broker_ids": (1,)}]},
            ErrorCode.invalid_replica_assignment,
        ),
    ],
)
def test_topics_that_are_not_created(leader: Leader, name: str, changes: dict[str, Any], code: ErrorCode) -> None:
    created = create(leader.apis(), name, **changes)
    assert created.error_code is code and created.error_message
    assert leader.calls == []


def test_a_topic_twice_in_a_request_is_refused(leader: Leader) -> None:
    topics = [{"name": name, **CREATED} for name in ("a", "b", "a")]
    answer = call(leader.apis(), keys.CREATE_TOPICS, 7, topics=topics, timeout=SECOND, validate_only=False)
    assert [it.error_code.name for it in answer.topics] == ["invalid_request", "none", "invalid_request"]
    assert [it[1] for it in leader.calls] == ["b"]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Conflict("is there"), ErrorCode.topic_already_exists),
        (SpecRejected("not in this namespace"), ErrorCode.policy_violation),
        (Unavailable("no leader"), ErrorCode.request_timed_out),
    ],
)
def test_what_the_leader_says_reaches_the_client(leader: Leader, failure: Any, code: ErrorCode) -> None:
    leader.failure = failure
    created = create(leader.apis(), "new")
    assert (created.error_code, created.error_message) == (code, failure.message)


def test_nobody_changes_topics_where_clients_need_not_log_in(leader: Leader) -> None:
    apis = leader.apis(permissive=True)
    assert create(apis, "new").error_code is ErrorCode.cluster_authorization_failed
    deleted = call(apis, keys.DELETE_TOPICS, 5, topic_names=("events",), timeout=SECOND)
    assert deleted.responses[0].error_code is ErrorCode.cluster_authorization_failed
    assert alter(apis, retention_ms="1").error_code is ErrorCode.cluster_authorization_failed


def test_the_leader_is_called_with_the_token_of_the_client(leader: Leader) -> None:
    session = Session("ada", "ada's token", "PLAIN")
    call(leader.apis(), keys.DELETE_TOPICS, 5, session=session, topic_names=("events",), timeout=SECOND)
    assert leader.tokens == ["ada's token"]


@pytest.mark.parametrize("version", versions(keys.CREATE_PARTITIONS))
def test_a_topic_keeps_its_partitions(leader: Leader, version: int) -> None:
    topics = [{"name": name, "count": count, "assignments": None} for name, count in (("events", 8), ("x", 8))]
    answer = call(leader.apis(), keys.CREATE_PARTITIONS, version, topics=topics, timeout=SECOND, validate_only=False)
    codes = [it.error_code for it in answer.results]
    assert codes == [ErrorCode.invalid_partitions, ErrorCode.unknown_topic_or_partition]
    assert "keeps its 4 partitions" in answer.results[0].error_message


# ---- deletion


@pytest.mark.parametrize("version", versions(keys.DELETE_TOPICS))
def test_topics_are_deleted_by_name(leader: Leader, version: int) -> None:
    leader.add("default/other", kafka_name="N_1")
    names = ("events", "N_1", "absent")
    topics = [{"name": it, "topic_id": None} for it in names]
    answer = call(leader.apis(), keys.DELETE_TOPICS, version, topic_names=names, topics=topics, timeout=SECOND)
    assert [it.name for it in answer.responses] == list(names)
    assert [it.error_code.name for it in answer.responses] == ["none", "none", "unknown_topic_or_partition"]
    assert leader.topics == {}


def test_topics_are_deleted_by_id(leader: Leader) -> None:
    uid = uuid.UUID(leader.topics["default/events"].uid)
    topics = [
        {"name": None, "topic_id": uid},
        {"name": None, "topic_id": uuid.uuid4()},
        {"name": "events", "topic_id": uid},
    ]
    answer = call(leader.apis(), keys.DELETE_TOPICS, 6, topics=topics, timeout=SECOND)
    assert [it.error_code.name for it in answer.responses] == ["none", "unknown_topic_id", "invalid_request"]
    assert answer.responses[0].name == "events" and leader.calls == [("delete", "default/events")]


# ---- configuration


@pytest.mark.parametrize("version", versions(keys.DESCRIBE_CONFIGS))
def test_topics_and_brokers_are_described(leader: Leader, version: int) -> None:
    node = str(node_id("i0"))
    named = [(2, "events", None), (2, "events", ("retention.ms",)), (2, "x", None), (4, node, None), (4, "5", None)]
    named += [(4, "", None), (16, "events", None)]
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": wanted} for kind, name, wanted in named
    ]
    answer = call(leader.apis(), keys.DESCRIBE_CONFIGS, version, resources=resources, include_synonyms=True)
    expected = ["none", "none", "unknown_topic_or_partition", "none", "invalid_request", "none", "invalid_request"]
    assert [it.error_code.name for it in answer.results] == expected
    every, one, _, broker, *_ = answer.results
    assert {it.name: it.value for it in every.configs}["cleanup.policy"] == "delete"
    assert [(it.name, it.value, it.read_only) for it in one.configs] == [("retention.ms", "604800000", False)]
    assert one.configs[0].synonyms[0].value == "604800000"
    assert {it.name: it.value for it in broker.configs}["auto.create.topics.enable"] == "false"


def alter(apis: ApiTable, *, version: int = 2, **given: str | None) -> Any:
    resources = [{"resource_type": 2, "resource_name": "events", "configs": configs(**given)}]
    answer = call(apis, keys.ALTER_CONFIGS, version, resources=resources, validate_only=False)
    return answer.responses[0]


@pytest.mark.parametrize("version", versions(keys.ALTER_CONFIGS))
def test_alter_configs_resets_what_is_not_given(leader: Leader, version: int) -> None:
    assert alter(leader.apis(), version=version, retention_ms="60000").error_code is ErrorCode.none
    fields = {"kafka": {"cleanupPolicy": None}, "retention": {"age": "60000ms", "bytes": None}}
    assert leader.calls == [("alter", "default/events", fields, False)]
    assert alter(leader.apis(), nope="1").error_code is ErrorCode.invalid_config


def change(leader: Leader, operation: int, name: str, value: str | None, *, version: int = 1) -> Any:
    resources = [
        {
            "resource_type": 2,
            "resource_name": "events",
            "configs": [{"name": name, "config_operation": operation, "value": value}],
        }
    ]
    answer = call(leader.apis(), keys.INCREMENTAL_ALTER_CONFIGS, version, resources=resources, validate_only=False)
    return answer.responses[0]


@pytest.mark.parametrize("version", versions(keys.INCREMENTAL_ALTER_CONFIGS))
def test_incremental_changes_leave_the_rest(leader: Leader, version: int) -> None:
    leader.topics["default/events"] = replace(
        leader.topics["default/events"], spec=TopicSpec(partitions=4, retention_bytes=400)
    )
    assert change(leader, 0, "retention.ms", "60000", version=version).error_code is ErrorCode.none
    assert change(leader, 1, "retention.bytes", None, version=version).error_code is ErrorCode.none
    assert change(leader, 2, "cleanup.policy", "compact", version=version).error_code is ErrorCode.none
    assert change(leader, 2, "retention.ms", "1", version=version).error_code is ErrorCode.invalid_config
    assert [it[2] for it in leader.calls] == [
        {"retention": {"bytes": "400", "age": "60000ms"}},
        {"retention": {"bytes": None}},
        {"kafka": {"cleanupPolicy": "Compact"}, "retention": {"bytes": "400"}},
    ]


def test_a_compacted_topic_keeps_everything_whatever_else_is_set(leader: Leader) -> None:
    leader.topics["default/events"] = replace(
        leader.topics["default/events"],
        spec=TopicSpec(partitions=4, kafka_compacts=True, retention_age=None),
    )
    assert change(leader, 0, "retention.ms", "1000").error_code is ErrorCode.none
    assert leader.calls[0][2]["retention"] == {"age": "unlimited", "bytes": "unlimited"}


def test_brokers_are_not_configured_by_clients(leader: Leader) -> None:
    resources = [{"resource_type": 4, "resource_name": "1", "configs": configs(log_retention_ms="1")}]
    answer = call(leader.apis(), keys.ALTER_CONFIGS, 2, resources=resources, validate_only=False)
    assert answer.responses[0].error_code is ErrorCode.invalid_request


# ---- the rest


def describe_partitions(leader: Leader, names: tuple[str, ...], limit: int, cursor: Any = None) -> Any:
    return call(
        leader.apis(),
        keys.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": it} for it in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


def test_partitions_are_described_in_pages(leader: Leader) -> None:
    leader.add("default/other", partitions=3)
    pages, cursor = [], None
    while True:
        answer = describe_partitions(leader, ("other", "absent", "events"), 3, cursor)
        pages.append([(it.name, [at.partition_index for at in it.partitions]) for it in answer.topics])
        if answer.next_cursor is None:
            break
        cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}
    assert pages == [
        [("absent", []), ("events", [0, 1])],
        [("events", [2, 3]), ("other", [0])],
        [("other", [1, 2])],
    ]


def test_partitions_of_all_topics_have_lists_and_no_null(leader: Leader) -> None:
    answer = describe_partitions(leader, (), 2000)
    assert [it.name for it in answer.topics] == ["events"]
    first = answer.topics[0].partitions[0]
    assert (first.leader_id, first.leader_epoch, first.eligible_leader_replicas) == (node_id("i0"), 7, ())
    assert first.last_known_elr == ()
    missing = describe_partitions(leader, ("x",), 10).topics[0]
    assert missing.error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", versions(keys.DESCRIBE_ACLS))
def test_there_are_no_acls_of_kafka(leader: Leader, version: int) -> None:
    rule = {"resource_type": 2, "resource_name": "events", "principal": "User:a", "host": "*"}
    rule |= {"operation": 3, "permission_type": 3}
    filter_ = {f"{name}_filter": None for name in ("resource_name", "principal", "host")}
    filter_ |= {"resource_type_filter": 2, "operation": 1, "permission_type": 1}
    apis = leader.apis()
    described = call(apis, keys.DESCRIBE_ACLS, version, **filter_)
    created = call(apis, keys.CREATE_ACLS, version, creations=[rule])
    deleted = call(apis, keys.DELETE_ACLS, version, filters=[filter_])
    codes = [described.error_code, created.results[0].error_code, deleted.filter_results[0].error_code]
    assert codes == [ErrorCode.security_disabled] * 3


@pytest.mark.parametrize("version", versions(keys.DELETE_RECORDS))
def test_records_of_partitions_that_are_elsewhere(leader: Leader, version: int) -> None:
    partitions = [{"partition_index": it, "offset": 5} for it in (0, 4)]
    topics = [{"name": "events", "partitions": partitions}]
    answer = call(leader.apis(), keys.DELETE_RECORDS, version, topics=topics, timeout=SECOND)
    codes = [it.error_code.name for it in answer.topics[0].partitions]
    assert codes == ["not_leader_or_follower", "unknown_topic_or_partition"]
