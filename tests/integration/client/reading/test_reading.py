"""Ranges that one process planned and another reads, with real processes: wherever their messages are by then."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import smq
from smq.reading import OpenedTopic, RangeReader, TopicState, load_state, open_topic
from smq_core.errors import DataLost
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.message_ledger import MessageLedger, message
from support.data.sealed_topic import read_stored_topic, segments_with_files
from support.processes.local_cluster import LocalCluster, manifest
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

QUICKLY = ("--cleanup-interval", "100ms", "--removed-files-grace", "1s", "--broker-memory", "4Gi")
# Nothing is flushed before the segment is sealed.
IN_MEMORY = {"bytes": "64Mi", "interval": "1h"}


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"reading-{folder.name}"), arguments=QUICKLY) as running:
        yield running


def opened(cluster: LocalCluster, topic: str) -> OpenedTopic:
    return open_topic(topic, leader=cluster.address)


def send(client: smq.Client, topic: str, ledger: MessageLedger, count: int) -> None:
    with client.producer(topic) as producer:
        ledger.send(producer, count)
        producer.flush(HANG_GUARD)


def published(ledger: MessageLedger) -> dict[str, list[bytes]]:
    """The values of each segment, in the order of their offsets."""
    places: dict[str, dict[int, bytes]] = {}
    counts = [0] * ledger.keys
    for number, delivery in enumerate(ledger.deliveries):
        key = number % ledger.keys
        receipt = delivery.result(HANG_GUARD)
        assert receipt.offset is not None
        places.setdefault(receipt.segment, {})[receipt.offset] = message(key, counts[key])
        counts[key] += 1
    return {segment: [found[offset] for offset in range(len(found))] for segment, found in places.items()}


def values(found: Iterator[tuple[int, pa.Table]], start: int = 0) -> list[bytes]:
    """All values; checks that the offsets have no gap."""
    read: list[bytes] = []
    for first, table in found:
        assert first == start + len(read)
        read += table.column("value").to_pylist()
    return read


def read_all(topic: OpenedTopic, state: TopicState) -> dict[str, list[bytes]]:
    """Everything that the state says can be read; the plan is sent as between two processes."""
    location, state = pickle.loads(pickle.dumps((topic.location, state)))
    reader = RangeReader(location)
    found = {
        name: values(reader.read(it, 0, state.ends[name], replicas=state.replicas(name)))
        for name, it in state.segments().items()
    }
    return {name: read for name, read in found.items() if read}


def only_segment(client: smq.Client, topic: str) -> str:
    (segment,) = client.admin().segments(topic)
    return segment.name


def wait_until_sealed(client: smq.Client, topic: str, segment: str) -> None:
    eventually(
        lambda: {s.name: s.phase for s in client.admin().segments(topic, all=True)}.get(segment) == "sealed",
        what=f"{segment} is sealed",
    )


def test_files_and_tail_of_all_segments(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush=IN_MEMORY)
    ledger = MessageLedger()
    send(client, topic, ledger, 2000)
    first = only_segment(client, topic)
    client.admin().split(topic, first)
    wait_until_sealed(client, topic, first)
    send(client, topic, ledger, 2000)
    it = opened(cluster, topic)
    state = load_state(it.location)
    assert state.sealed == {first} and next(iter(state.segments())) == first
    assert len(state.flushed) == 2 and not any(state.flushed.values()), "the messages of both are in memory"
    assert read_all(it, state) == published(ledger)
    assert {name: node.end for name, node in state.nodes().items() if node.end is not None} == {
        first: state.ends[first]
    }


def test_exactly_the_range_with_the_columns_that_are_wanted(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush={"bytes": "4Ki", "interval": "1h"})
    ledger = MessageLedger()
    send(client, topic, ledger, 300)
    it = opened(cluster, topic)
    state = load_state(it.location)
    ((name, segment),) = state.segments().items()
    all_values = published(ledger)[name]
    for start, stop in ((0, 1), (17, 23), (0, 300), (299, 300), (150, 300)):
        for flushed in (None, 0, state.flushed[name]):
            found = RangeReader(it.location).read(
                segment, start, stop, ["value", "partition"], state.replicas(name), flushed
            )
            tables = list(found)
            assert all(table.column_names == ["value", "partition"] for _, table in tables)
            assert values(iter(tables), start) == all_values[start:stop]


def test_no_column_at_all_still_has_its_rows(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    send(client, topic, MessageLedger(), 20)
    it = opened(cluster, topic)
    state = load_state(it.location)
    ((name, segment),) = state.segments().items()
    found = list(RangeReader(it.location).read(segment, 5, 20, [], state.replicas(name)))
    assert sum(table.num_rows for _, table in found) == 15 and found[0][0] == 5


def test_a_segment_that_is_sealed_and_split_during_the_read(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, flush=IN_MEMORY)
    ledger = MessageLedger()
    send(client, topic, ledger, 100)
    it = opened(cluster, topic)
    state = load_state(it.location)
    ((name, segment),) = state.segments().items()
    found = RangeReader(it.location).read(segment, 0, 150, replicas=state.replicas(name))
    begun = next(found)
    send(client, topic, ledger, 50)
    client.admin().split(topic, name)
    wait_until_sealed(client, topic, name)
    assert values(iter([begun, *found])) == published(ledger)[name]


def test_a_segment_whose_replica_moves_during_the_read(own_cluster: LocalCluster) -> None:
    """kill -9 of the broker that is read: another replica has the messages, and the leader replaces the segment."""
    own_cluster.create("t", flush=IN_MEMORY)
    ledger = MessageLedger()
    with own_cluster.connect() as client:
        send(client, "t", ledger, 100)
        it = opened(own_cluster, "t")
        state = load_state(it.location)
        ((name, segment),) = state.segments().items()
        replicas = state.replicas(name)
        found = RangeReader(it.location).read(segment, 0, 200, replicas=replicas)
        begun = next(found)
        send(client, "t", ledger, 100)
        own_cluster.kill_broker(replicas[0].broker)
        assert values(iter([begun, *found])) == published(ledger)[name]
        again = RangeReader(it.location).read(segment, 0, 200, replicas=replicas)
        assert values(again) == published(ledger)[name], "a plan of before"


def test_messages_that_come_after_the_read_began(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush={"bytes": "16Ki", "interval": "1h"})
    ledger = MessageLedger()
    it = opened(cluster, topic)
    state = load_state(it.location)
    ((name, segment),) = state.segments().items()
    assert state.ends[name] == 0
    read: list[bytes] = []
    thread = threading.Thread(
        target=lambda: read.extend(values(RangeReader(it.location).read(segment, 0, 1000))), daemon=True
    )
    thread.start()
    send(client, topic, ledger, 1000)
    thread.join(HANG_GUARD)
    assert read == published(ledger)[name]


def test_what_retention_removed_is_lost_with_the_reason(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush={"bytes": "4Ki", "interval": "1h"})
    send(client, topic, MessageLedger(), 500)
    it = opened(cluster, topic)
    name = only_segment(client, topic)
    eventually(lambda: load_state(it.location).flushed[name] == 500, what="the first file")
    send(client, topic, MessageLedger(), 500)
    state = load_state(it.location)
    segment = state.segments()[name]
    client.admin().roll(topic, name)
    wait_until_sealed(client, topic, name)
    sealed = load_state(it.location).segments()[name]
    begun = RangeReader(it.location).read(sealed, 0, 1000)
    read = next(begun)[1].num_rows
    assert read < 1000, "all of it is in one file"
    client.admin().apply(manifest(topic, flush={"bytes": "4Ki", "interval": "1h"}, retention={"age": "1s"}))
    stored = read_stored_topic(it.location.open_store(), it.location.topic)
    eventually(lambda: name not in segments_with_files(it.location.open_store(), stored), what="its files are gone")
    with pytest.raises(DataLost, match="retention has removed") as raised:
        for _, table in begun:
            read += table.num_rows
    assert (raised.value.segment, raised.value.start, raised.value.stop) == (name, read, 1000)
    with pytest.raises(DataLost, match="retention has removed"):
        list(RangeReader(it.location).read(segment, 0, 1000, replicas=state.replicas(name)))
    skipping = RangeReader(it.location, on_loss="skip")
    assert list(skipping.read(segment, 0, 1000, replicas=state.replicas(name))) == []


def test_references_and_large_values(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, flush=IN_MEMORY)
    expected = [b"small", b"l" * 200_000, b"after"]
    with client.producer(topic, max_inline_bytes=64 << 10) as producer:
        for value in expected:
            producer.send(value, key=b"k", headers={"a": b"1"}).result()
    table = pa.table({"key": [b"k"] * 100, "value": [b"ref-%d" % i for i in range(100)]})
    client.publish_atomically(topic, app="a", version=1, table=table, key="key")
    it = opened(cluster, topic)
    expected += table.column("value").to_pylist()

    def check() -> None:
        state = load_state(it.location)
        name = next(iter(state.segments()))
        segment, replicas = state.segments()[name], state.replicas(name)
        assert state.ends[name] == 103
        assert values(RangeReader(it.location).read(segment, 0, 103, replicas=replicas)) == expected
        part = list(RangeReader(it.location).read(segment, 1, 50, ["value"], replicas))
        assert [v for _, t in part for v in t.column("value").to_pylist()] == expected[1:50]
        assert all(t.column_names == ["value"] for _, t in part)
        headers = next(RangeReader(it.location).read(segment, 1, 2, ["headers", "value"], replicas))[1]
        assert headers.column("headers").to_pylist() == [[{"key": "a", "value": b"1"}]]

    check()
    name = only_segment(client, topic)
    client.admin().roll(topic, name)
    wait_until_sealed(client, topic, name)
    check()


def test_files_alone(own_cluster: LocalCluster) -> None:
    own_cluster.create("t", flush={"bytes": "4Ki", "interval": "100ms"})
    ledger = MessageLedger()
    with own_cluster.connect() as client:
        send(client, "t", ledger, 1000)
        name = only_segment(client, "t")
        client.admin().split("t", name)
        wait_until_sealed(client, "t", name)
        send(client, "t", ledger, 1000)
        living = {s.name for s in client.admin().segments("t") if s.name != name}
        loads = lambda: [s for b in client.admin().brokers() for s in b.segments if s.primary and s.segment in living]  # noqa: E731
        eventually(lambda: len(loads()) == 2 and all(s.chain_end == s.end > 0 for s in loads()))
    store = own_cluster.store
    it = open_topic("t", filer_url=store.url, filer_endpoint=store.endpoint)
    assert read_all(it, load_state(it.location, files_only=True)) == published(ledger)
    own_cluster.kill_all()
    assert read_all(it, load_state(it.location)) == published(ledger)
    with pytest.raises(smq.UnknownTopic):
        open_topic("other", filer_url=store.url, filer_endpoint=store.endpoint)


def test_what_no_process_has_any_more_is_waited_for_and_then_unavailable(own_cluster: LocalCluster) -> None:
    own_cluster.create("t", flush=IN_MEMORY)
    with own_cluster.connect() as client:
        send(client, "t", MessageLedger(), 10)
    it = opened(own_cluster, "t")
    state = load_state(it.location)
    ((name, segment),) = state.segments().items()
    own_cluster.kill_all()
    with pytest.raises(smq.Unavailable, match=f"message 0 of {name}"):
        list(RangeReader(it.location, give_up_after=1.0).read(segment, 0, 10, replicas=state.replicas(name)))
