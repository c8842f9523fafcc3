"""The JSON objects of a topic: layout, positions, current, topic; their races and their tolerance."""

import json
from dataclasses import MISSING, fields, replace

import pytest

from smq_core.errors import Conflict, CorruptDocument, InvalidRequest
from smq_core.model.entities import Durability, Layout, Phase, Reason, Replica, Segment, Topic, TopicSchema, TopicSpec
from smq_core.model.keyspace import KeyRange
from smq_storage.catalog import group_positions, layouts, paths, topics
from smq_storage.catalog.group_positions import CommittedPositions
from smq_storage.object_store.store import Store, open_store

SEGMENT = Segment(
    name="t-0",
    number=0,
    range=KeyRange(0, 16),
    phase=Phase.SEALING,
    durability=Durability.STORED,
    replicas=(Replica("b0", "i0", "host:1"), Replica("b1", "i1", "host:2")),
    predecessors=("t-x",),
    successors=("t-1", "t-2"),
    opened_because=Reason.SPLIT,
    sealed_because=Reason.FAILOVER,
    opened_at=123,
)
LAYOUT = Layout(topic="ns/t", uid="uid", partitions=16, version=3, next_number=5, segments=(SEGMENT,), writer="w1")


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


def test_a_layout_comes_back_equal(store: Store) -> None:
    assert layouts.read_layout(store, "ns/t", "uid") is None
    etag = layouts.put_layout(store, LAYOUT, None)
    assert layouts.read_layout(store, "ns/t", "uid") == (LAYOUT, etag)


def test_of_two_leaders_with_the_same_etag_the_second_loses(store: Store) -> None:
    etag = layouts.put_layout(store, LAYOUT, None)
    first, second = replace(LAYOUT, version=4, writer="w2"), replace(LAYOUT, version=4, writer="w3")
    layouts.put_layout(store, first, etag)
    with pytest.raises(Conflict):
        layouts.put_layout(store, second, etag)
    found = layouts.read_layout(store, "ns/t", "uid")
    assert found is not None and found[0] == first


def test_of_two_creators_the_second_loses(store: Store) -> None:
    layouts.put_layout(store, LAYOUT, None)
    with pytest.raises(Conflict):
        layouts.put_layout(store, replace(LAYOUT, writer="w2"), None)


def test_a_layout_that_vanished_is_a_conflict(store: Store) -> None:
    etag = layouts.put_layout(store, LAYOUT, None)
    store.delete(paths.layout("ns/t", "uid"))
    with pytest.raises(Conflict):
        layouts.put_layout(store, replace(LAYOUT, writer="w2"), etag)


def test_the_same_put_again_is_a_success(store: Store) -> None:
    etag = layouts.put_layout(store, LAYOUT, None)
    assert layouts.put_layout(store, LAYOUT, None) == etag


def test_a_layout_without_a_writer_is_a_mistake_of_the_caller(store: Store) -> None:
    with pytest.raises(ValueError, match="writer"):
        layouts.put_layout(store, replace(LAYOUT, writer=""), None)


def test_fields_of_a_newer_version_are_ignored(store: Store) -> None:
    layouts.put_layout(store, LAYOUT, None)
    path = paths.layout("ns/t", "uid")
    text = (
        bytes(store.get(path).data)
        .replace(b'{"name":"t-0"', b'{"later":[1],"name":"t-0"')
        .replace(b'{"topic"', b'{"invented":{"x":1},"topic"')
    )
    assert text.count(b"later") == text.count(b"invented") == 1
    store.put(path, text)
    found = layouts.read_layout(store, "ns/t", "uid")
    assert found is not None and found[0] == LAYOUT


def test_a_release_without_schema_versions_cannot_read_a_layout_that_has_them(store: Store) -> None:
    """Its next PUT would drop the versions of segments that other versions' messages are in."""
    first = layouts.put_layout(store, replace(LAYOUT, schemas=(TopicSchema(0, ()),)), None)
    assert json.loads(bytes(store.get(paths.layout("ns/t", "uid")).data))["partitions"] == LAYOUT.partitions
    evolved = replace(LAYOUT, writer="w2", schemas=(TopicSchema(0, ()), TopicSchema(1, ())))
    second = layouts.put_layout(store, evolved, first)
    required = {field.name for field in fields(Layout) if field.default is MISSING}
    assert not required & json.loads(bytes(store.get(paths.layout("ns/t", "uid")).data)).keys()
    assert layouts.read_layout(store, "ns/t", "uid") == (evolved, second)
    with pytest.raises(Conflict):
        layouts.put_layout(store, replace(LAYOUT, writer="w3"), first)
    alone = replace(LAYOUT, writer="w4", schemas=(TopicSchema(1, ()),))
    layouts.put_layout(store, alone, second)
    assert not required & json.loads(bytes(store.get(paths.layout("ns/t", "uid")).data)).keys()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"topic":"ns/t"}', b'{"topic":1,"uid":"u","partitions":"x"}'])
def test_a_damaged_layout_is_named_and_never_taken_for_absent(store: Store, text: bytes) -> None:
    store.put(paths.layout("ns/t", "uid"), text)
    with pytest.raises(CorruptDocument, match=r"ns/t/uid/_layout\.json"):
        layouts.read_layout(store, "ns/t", "uid")


def test_positions_are_swapped(store: Store) -> None:
    never = CommittedPositions(generation=0, deleted=True)
    assert group_positions.read_positions(store, "ns/t", "uid", "report") == (never, None)
    first = CommittedPositions(generation=1, positions={"t-0": 5}, writer="w1")
    etag = group_positions.put_positions(store, "ns/t", "uid", "report", first, None)
    second = CommittedPositions(generation=2, positions={"t-0": 7, "t-1": 0}, writer="w2")
    group_positions.put_positions(store, "ns/t", "uid", "report", second, etag)
    with pytest.raises(Conflict):
        group_positions.put_positions(
            store, "ns/t", "uid", "report", CommittedPositions(generation=2, positions={}, writer="w3"), etag
        )
    found, _ = group_positions.read_positions(store, "ns/t", "uid", "report")
    assert found == second
    assert group_positions.list_groups(store, "ns/t", "uid") == ["report"]


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a b", "é", "x" * 129])
def test_a_group_name_that_is_no_file_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidRequest, match="group"):
        group_positions.read_positions(store, "ns/t", "uid", name)


def test_the_living_topic_of_a_name(store: Store) -> None:
    assert topics.read_current(store, "ns/t") is None
    etag = topics.put_current(store, "ns/t", "one", None)
    assert topics.read_current(store, "ns/t") == ("one", etag)
    with pytest.raises(Conflict):
        topics.put_current(store, "ns/t", "two", None)
    topics.put_current(store, "ns/t", "two", etag)
    with pytest.raises(Conflict):
        topics.put_current(store, "ns/t", "three", etag)
    found = topics.read_current(store, "ns/t")
    assert found is not None and found[0] == "two"


def test_a_topic_comes_back_equal(store: Store) -> None:
    assert topics.read_topic(store, "ns/t", "uid") is None
    topic = Topic("ns/t", "uid", TopicSpec(partitions=8, retention_age=None, delete_data=True))
    topics.put_topic(store, topic)
    assert topics.read_topic(store, "ns/t", "uid") == topic


def test_paths_are_those_of_the_documented_layout() -> None:
    assert paths.current("ns/t") == "ns/t/_current.json"
    assert paths.topic_json("ns/t", "u") == "ns/t/u/_topic.json"
    assert paths.layout("ns/t", "u") == "ns/t/u/_layout.json"
    assert paths.index_page("ns/t", "u", 3) == "ns/t/u/_index/00000003.json"
    assert paths.chunk("ns/t", "u", "t-0", 42) == "ns/t/u/t-0/00000000000000000042.parquet"
    assert paths.group("ns/t", "u", "g") == "ns/t/u/_groups/g.json"
    assert paths.uploaded_file("u", "abc.parquet") == "_uploads/u/abc.parquet"
    assert paths.upload_name("_uploads/u/abc.parquet") == "abc.parquet"
    assert paths.upload_file_name("billing-0", 3, 1, "n") == "billing-0-3-1-n.parquet"
    assert paths.first_offset("ns/t/u/t-0/00000000000000000042.parquet") == 42
    assert paths.first_offset("ns/t/u/t-0/other.parquet") is None


@pytest.mark.parametrize("producer", ["a/b", "../x", "with spaces", "é", "x" * 300, ".hidden", "x" * 128])
def test_an_upload_of_any_producer_has_a_valid_file_name(producer: str) -> None:
    name = paths.upload_file_name(producer, 2**31, 999, "f" * 32)
    assert paths.uploaded_file("u", name) == f"_uploads/u/{name}"
