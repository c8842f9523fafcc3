from __future__ import annotations

import json
from dataclasses import replace

import pytest

from smq_core.errors import Conflict, CorruptDocument
from smq_core.kafka_groups.consumer.member import ConsumerMember, MemberState
from smq_core.kafka_groups.offsets import CommittedOffset, TopicOffsets
from smq_storage.catalog import paths
from smq_storage.catalog.kafka_groups import (
    CLASSIC,
    CONSUMER,
    StoredKafkaGroup,
    list_kafka_groups,
    put_kafka_group,
    read_kafka_group,
)
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, open_store

POLICY = RetryPolicy(timeout_seconds=0)
GROUP = StoredKafkaGroup(
    name="g",
    generation=3,
    protocol_type="consumer",
    offsets={"u": TopicOffsets("default/t", {0: CommittedOffset(7, 2, "m", 5), 11: CommittedOffset(8)})},
    owner="broker-1",
    session="s",
    writer="s-1",
    group_type=CONSUMER,
    members=(
        ConsumerMember(
            id="m",
            epoch=3,
            previous_epoch=2,
            state=MemberState.UNREVOKED,
            assigned={"t": (0, 1)},
            revoking={"t": (4,)},
            instance_id="i",
            names=frozenset({"orders", "events"}),
            pattern="e.*",
            matched=frozenset({"events"}),
        ),
    ),
)


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def test_a_group_is_read_as_it_was_written(store: Store) -> None:
    assert read_kafka_group(store, "g") is None
    etag = put_kafka_group(store, GROUP, None, POLICY)
    assert read_kafka_group(store, "g") == (GROUP, etag)


def test_of_two_coordinators_one_writes(store: Store) -> None:
    etag = put_kafka_group(store, GROUP, None, POLICY)
    new = replace(GROUP, generation=4, owner="broker-2", writer="t-1")
    put_kafka_group(store, new, etag, POLICY)
    for outdated in (etag, None):
        with pytest.raises(Conflict):
            put_kafka_group(store, replace(GROUP, writer="s-2"), outdated, POLICY)
    found = read_kafka_group(store, "g")
    assert found is not None and found[0] == new


def test_any_id_is_one_file_and_keeps_its_name(store: Store) -> None:
    names = ["g", "../g", "a/b", "ü" * 249, "=g", "G"]
    for name in names:
        put_kafka_group(store, replace(GROUP, name=name), None, POLICY)
    assert {it.name for it in list_kafka_groups(store)} == set(names)
    assert all(paths.kafka_group(name).count("/") == 1 for name in names)


def test_a_group_of_a_former_version_is_one_of_the_classic_protocol(store: Store) -> None:
    put_kafka_group(store, GROUP, None, POLICY)
    document = json.loads(bytes(store.get(paths.kafka_group("g")).data))
    former = {name: value for name, value in document.items() if name not in ("group_type", "members")}
    store.put(paths.kafka_group("g"), json.dumps(former).encode())
    found = read_kafka_group(store, "g")
    assert found is not None and found[0] == replace(GROUP, group_type=CLASSIC, members=())


def test_fields_of_later_versions_are_ignored_and_a_damaged_document_is_an_error(store: Store) -> None:
    put_kafka_group(store, GROUP, None, POLICY)
    document = json.loads(bytes(store.get(paths.kafka_group("g")).data))
    later = {**document, "new": 1, "offsets": {"u": {"topic": "default/t", "new": 1, "partitions": {}}}}
    store.put(paths.kafka_group("g"), json.dumps(later).encode())
    found = read_kafka_group(store, "g")
    assert found is not None and found[0].generation == 3
    store.put(paths.kafka_group("g"), b"{")
    with pytest.raises(CorruptDocument):
        read_kafka_group(store, "g")
