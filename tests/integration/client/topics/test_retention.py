"""Retention with real processes: which segments it removes or keeps for groups, what readers get, and the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import smq
from smq_storage.catalog import sealed_index
from smq_storage.catalog.deleted_topics import list_deleted_topics
from smq_storage.object_store.store import Store
from smq_storage.process.seaweedfs import SeaweedProcess
from support.data.message_ledger import read_back
from support.data.pins import LIFETIME, Readers
from support.data.sealed_topic import leftover_files, missing_files, read_stored_topic, segments_with_files
from support.processes.cli import smq as run_smq
from support.processes.local_cluster import LocalCluster, manifest
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

QUICKLY = (
    *("--cleanup-interval", "100ms", "--removed-files-grace", "1s", "--deleted-topics-grace", "1s"),
    *("--orphaned-files-grace", "1s", "--orphan-check-interval", "1s", "--broker-memory", "4Gi"),
)


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"retention-{folder.name}"), arguments=QUICKLY) as running:
        yield running


@pytest.fixture
def store(cluster: LocalCluster) -> Store:
    return cluster.store.open()


def write_and_roll(client: smq.Client, topic: str, value: bytes, count: int = 1) -> str:
    """Writes, and seals the segment that was written to. Returns its name."""
    (before,) = client.admin().segments(topic)
    with client.producer(topic) as producer:
        for _ in range(count):
            producer.send(value).result()
    client.admin().roll(topic, before.name)
    eventually(
        lambda: (
            [s.phase for s in client.admin().segments(topic)] == ["open"]
            and client.admin().segments(topic)[0].name != before.name
        ),
        what="the segment was rolled",
    )
    return before.name


def names(client: smq.Client, topic: str) -> list[str]:
    return [s.name for s in client.admin().segments(topic, all=True)]


def values(batches: list[smq.Batch]) -> list[bytes]:
    return [v for b in batches for v in b.table.column("value").to_pylist()]


@pytest.mark.slow
def test_old_segments_go_with_their_files_and_a_reader_begins_at_the_oldest_left(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, retention={"age": "3s"})
    old = [write_and_roll(client, topic, b"old %d" % i) for i in range(2)]
    made = read_stored_topic(store, f"default/{topic}")
    eventually(lambda: not set(old) & set(names(client, topic)), what="retention removed them")
    eventually(lambda: not set(old) & set(segments_with_files(store, made)), what="their files are gone")
    with client.producer(topic) as producer:
        producer.send(b"new").result()
    with client.consumer(topic, start="earliest") as consumer:
        assert values(read_back(consumer, 1)) == [b"new"]
    with client.consumer(topic, group="late", start="earliest") as consumer:
        assert values(read_back(consumer, 1)) == [b"new"]
    assert not missing_files(store, made)
    (said,) = {d.reason for d in client.admin().decisions() if d.action == "retention" and d.topic.endswith(topic)}
    assert said == "older than 3s"


@pytest.mark.slow
def test_a_pinned_read_reads_what_retention_removed_and_the_pin_is_shown(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        cluster.create(name, retention={"age": "1s"})
    made, unpinned = read_stored_topic(store, f"default/{topic}"), read_stored_topic(store, f"default/{other}")
    with Readers(store, name=topic).reads.begin(made.name, made.uid, "job 1") as read:
        (segment,) = read.files.segments()
        write_and_roll(client, topic, b"old")
        eventually(lambda: segment.name not in names(client, topic), what="retention removed the segment")
        last = write_and_roll(client, other, b"later")
        eventually(lambda: last not in segments_with_files(store, unpinned), what="the grace of both is over")
        ((_, table),) = read.read_range(segment, 0, 1)
        assert table.column("value").to_pylist() == [b"old"]

        shown = run_smq("topic", "pins", topic, leader=cluster.address)
        assert shown.lines[0].split() == ["ID", "OWNER", "AGE", "EXPIRES", "IN"]
        assert shown.lines[1].split()[:3] == [read.pin_id, "job", "1"]
        (pin,) = client.admin().pins(topic)
        assert (pin.id, pin.owner, pin.problem) == (read.pin_id, "job 1", "")
        assert 0 <= pin.age_seconds < LIFETIME / 1e6 and 0 < pin.expires_in_seconds <= LIFETIME / 1e6
        assert client.admin().pins(other) == []
    eventually(lambda: segment.name not in segments_with_files(store, made), what="the pin was released")
    with pytest.raises(smq.UnknownTopic):
        client.admin().pins("no-such-topic")


@pytest.mark.slow
def test_the_oldest_bytes_go_when_there_are_too_many(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, retention={"bytes": "300Ki", "age": "unlimited"})
    sealed = [write_and_roll(client, topic, bytes([65 + i]) * 100_000) for i in range(6)]
    made = read_stored_topic(store, f"default/{topic}")
    eventually(
        lambda: sum(e.bytes for e in sealed_index.read(store, made.name, made.uid)) <= 300 * 1024,
        what="it fits again",
    )
    left = [e.name for e in sealed_index.read(store, made.name, made.uid)]
    assert left == sealed[-len(left) :], "the youngest stay"
    eventually(lambda: not leftover_files(store, made), what="the files of the others are gone")
    assert not missing_files(store, made)


def test_what_a_group_has_still_to_read_stays_until_it_has_read_it(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, retention={"age": "1s"})
    (first,) = client.admin().segments(topic)
    with client.consumer(topic, group="report", start="earliest") as reader:
        eventually(lambda: reader.assignment)
        write_and_roll(client, topic, b"unread")
        eventually(
            lambda: any(
                c.type == "RetentionBlocked" and c.is_true and "report" in c.message
                for c in client.admin().topic(topic).conditions
            ),
            what="the condition names the group that the segment is kept for",
        )
        assert first.name in names(client, topic)
        assert values(read_back(reader, 1)) == [b"unread"]
        reader.commit()
        eventually(lambda: first.name not in names(client, topic), what="it was read, so it goes")
    assert not missing_files(store, read_stored_topic(store, f"default/{topic}"))


@pytest.mark.slow
def test_a_group_learns_exactly_what_retention_removed_unread(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, retention={"age": "2s", "unread": "Expire"})
    (first,) = client.admin().segments(topic)
    with client.producer(topic) as producer, client.consumer(topic, group="slow", start="earliest") as reader:
        producer.send(b"read").result()
        assert values(read_back(reader, 1)) == [b"read"]
        reader.commit()
    write_and_roll(client, topic, b"unread", count=3)
    second = write_and_roll(client, topic, b"unread too", count=2)
    eventually(lambda: not {first.name, second} & set(names(client, topic)), what="retention removed them")
    with client.producer(topic) as producer:
        producer.send(b"after").result()
    with client.consumer(topic, group="slow") as reader:
        reported = []
        for _ in range(2):
            with pytest.raises(smq.DataLost) as loss:
                while True:
                    reader.poll(HANG_GUARD)
            reported.append((loss.value.segment, loss.value.start, loss.value.stop))
        assert sorted(reported) == sorted([(first.name, 1, 4), (second, 0, 2)])
    with client.consumer(topic, group="slow", on_loss="skip") as reader:
        assert values(read_back(reader, 1)) == [b"after"]
        reader.commit()
    with client.consumer(topic, group="slow") as reader:
        assert reader.poll(3) is None, "what was told, and is behind what was committed, is not told again"


def test_a_reader_inside_a_removed_file_learns_what_it_lost(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    # With Stored each write is a separate file; else a slow filer gets several of them in one file.
    spec = {"durability": "Stored", "flush": {"bytes": "16Ki"}}
    cluster.create(topic, retention={"age": "unlimited"}, **spec)
    (first,) = client.admin().segments(topic)
    with client.producer(topic) as producer:
        for i in range(3):
            producer.write(pa.table({"value": pa.array([b"%d" % i * 1000] * 40, pa.binary())}))
            producer.flush()
    write_and_roll(client, topic, b"last")
    # Otherwise the reader may get all messages from a broker's memory at once.
    with client._view(topic) as view:
        eventually(lambda: first.name not in view.snapshot.layout, what="the client knows that the segment is sealed")
    with client.consumer(topic, start="earliest", max_bytes=20_000, prefetch_bytes=20_000) as reader:
        got = reader.poll(HANG_GUARD)
        assert got is not None and got.segment == first.name
        made = read_stored_topic(store, f"default/{topic}")
        assert segments_with_files(store, made)[first.name] == 5, "three writes, the last message and the seal"
        client.admin().apply(manifest(topic, retention={"age": "1s"}, **spec))
        eventually(lambda: first.name not in segments_with_files(store, made), what="the files are gone")
        with client.producer(topic) as producer:
            producer.send(b"after").result()
        seen, losses = len(got.table), []
        while True:
            try:
                batch = reader.poll(HANG_GUARD)
            except smq.DataLost as loss:
                losses.append(loss)
                continue
            assert batch is not None
            if batch.segment != first.name:
                break
            seen += len(batch.table)
        (loss,) = losses
        assert (loss.segment, loss.start, loss.stop) == (first.name, seen, 121)
        assert batch.table.column("value").to_pylist() == [b"after"]


def test_a_position_at_the_end_of_a_removed_segment_lost_nothing(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, retention={"age": "1s"})
    gone = write_and_roll(client, topic, b"x", count=2)
    eventually(lambda: gone not in names(client, topic), what="retention removed it")
    with client.producer(topic) as producer:
        producer.send(b"after").result()
    with client.consumer(topic, start={gone: 2}) as reader:
        assert values(read_back(reader, 1)) == [b"after"]
    with client.consumer(topic, start={gone: 1}) as reader:
        with pytest.raises(smq.DataLost) as reported:
            reader.poll(HANG_GUARD)
        assert (reported.value.segment, reported.value.start, reported.value.stop) == (gone, 1, 2)
    # The position is beyond the end, as after a loss that was not reported to this reader before retention ran.
    with client.consumer(topic, start={gone: 5}) as reader:
        with pytest.raises(smq.DataLost) as reported:
            reader.poll(HANG_GUARD)
        assert (reported.value.segment, reported.value.start, reported.value.stop) == (gone, 2, 5)
        assert values(read_back(reader, 1)) == [b"after"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_deleted_topic_keeps_its_data_or_not_and_a_new_one_of_its_name_is_not_touched(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store, policy: str
) -> None:
    cluster.create(topic, deletionPolicy=policy)
    write_and_roll(client, topic, b"first life")
    old = read_stored_topic(store, f"default/{topic}")
    client.admin().delete(topic)
    cluster.create(topic, deletionPolicy=policy)
    with cluster.connect() as later:
        write_and_roll(later, topic, b"second life")
        new = read_stored_topic(store, f"default/{topic}")
        assert new.uid != old.uid
        if policy == "Delete":
            eventually(
                lambda: not list(store.list(f"{old.name}/{old.uid}")), what="the data of the first topic is deleted"
            )
        else:
            eventually(lambda: old.uid in list_deleted_topics(store))
            assert not missing_files(store, old)
        assert not missing_files(store, new)
        with later.consumer(topic, start="earliest") as reader:
            assert values(read_back(reader, 1)) == [b"second life"]


@pytest.mark.slow
def test_a_topic_deleted_without_a_leader_is_collected_by_the_next_leader(
    seaweed: SeaweedProcess, prefix: str, tmp_path: Path
) -> None:
    with LocalCluster(tmp_path / "cluster", seaweed.settings(prefix), arguments=QUICKLY) as cluster:
        store = cluster.store.open()
        for name in ("gone", "stays"):
            cluster.create(name, deletionPolicy="Delete")
        gone, stays = read_stored_topic(store, "default/gone"), read_stored_topic(store, "default/stays")
        with cluster.connect() as client:
            for name in ("gone", "stays"):
                write_and_roll(client, name, b"x")
        cluster.kill_leader()
        (path,) = [p for p in (cluster.folder / "topics").iterdir() if "gone" in p.name]
        path.unlink()
        cluster.start()
        eventually(lambda: not list(store.list(f"{gone.name}/{gone.uid}")), what="the topic's data is deleted")
        assert not missing_files(store, stays)
