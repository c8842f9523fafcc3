"""Retention with real processes: what goes, what stays for groups, what readers are told, what becomes of the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import smq
from smq_core.model import Topic
from smq_storage import index
from smq_storage.retired import list_retired
from smq_storage.seaweed import SeaweedProcess
from smq_storage.store import Store
from smq_storage.topics import read_current, read_topic
from support.ledger import read_back
from support.local_cluster import LocalCluster
from support.retained import left_over, missing, segments_with_files
from support.waiting import eventually

pytestmark = pytest.mark.integration

QUICKLY = (
    *("--collect-every", "100ms", "--removed-files-stay", "1s", "--deleted-topics-stay", "1s"),
    *("--strays-stay", "1s", "--look-for-strays-every", "1s", "--broker-memory", "4Gi"),
)


@pytest.fixture(scope="module")
def cluster(seaweed: SeaweedProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, seaweed.settings(f"retention-{folder.name}"), arguments=QUICKLY) as running:
        yield running


@pytest.fixture
def store(cluster: LocalCluster) -> Store:
    return cluster.store.open()


def topic_in(store: Store, name: str) -> Topic:
    current = read_current(store, f"default/{name}")
    assert current is not None
    found = read_topic(store, f"default/{name}", current[0])
    assert found is not None
    return found


def write_and_roll(client: smq.Client, topic: str, value: bytes, count: int = 1) -> str:
    """Writes, and seals the segment that was written to. Returns its name."""
    (before,) = client.admin().segments(topic)
    with client.producer(topic) as producer:
        for _ in range(count):
            producer.send(value).result(20)
    client.admin().roll(topic, before.name)
    eventually(
        lambda: (
            [s.phase for s in client.admin().segments(topic)] == ["open"]
            and client.admin().segments(topic)[0].name != before.name
        ),
        20,
        what="the segment was rolled",
    )
    return before.name


def names(client: smq.Client, topic: str) -> list[str]:
    return [s.name for s in client.admin().segments(topic, all=True)]


def values(batches: list[smq.Batch]) -> list[bytes]:
    return [v for b in batches for v in b.table.column("value").to_pylist()]


def test_old_segments_go_with_their_files_and_a_reader_begins_at_the_oldest_left(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, retention={"age": "3s"})
    old = [write_and_roll(client, topic, b"old %d" % i) for i in range(2)]
    made = topic_in(store, topic)
    eventually(lambda: not set(old) & set(names(client, topic)), 20, what="retention removed them")
    eventually(lambda: not set(old) & set(segments_with_files(store, made)), 20, what="their files are gone")
    with client.producer(topic) as producer:
        producer.send(b"new").result(20)
    with client.consumer(topic, start="earliest") as consumer:
        assert values(read_back(consumer, 1)) == [b"new"]
    with client.consumer(topic, group="late", start="earliest") as consumer:
        assert values(read_back(consumer, 1)) == [b"new"]
    assert not missing(store, made)
    (said,) = {d.reason for d in client.admin().decisions() if d.action == "retention" and d.topic.endswith(topic)}
    assert said == "older than 3 s"


def test_the_oldest_bytes_go_when_there_are_too_many(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, retention={"bytes": "300Ki", "age": "unlimited"})
    sealed = [write_and_roll(client, topic, bytes([65 + i]) * 100_000) for i in range(6)]
    made = topic_in(store, topic)
    eventually(
        lambda: sum(e.bytes for e in index.read(store, made.name, made.uid)) <= 300 * 1024, 20, what="it fits again"
    )
    left = [e.name for e in index.read(store, made.name, made.uid)]
    assert left == sealed[-len(left) :], "the youngest stay"
    eventually(lambda: not left_over(store, made), 20, what="the files of the others are gone")
    assert not missing(store, made)


def test_what_a_group_has_still_to_read_stays_until_it_has_read_it(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, retention={"age": "1s"})
    (first,) = client.admin().segments(topic)
    with client.consumer(topic, group="report", start="earliest") as reader:
        eventually(lambda: reader.assignment, 20)
        write_and_roll(client, topic, b"unread")
        eventually(
            lambda: any(
                c.type == "RetentionHeld" and "report" in c.message for c in client.admin().topic(topic).conditions
            ),
            20,
            what="the topic says for whom it keeps the segment",
        )
        assert first.name in names(client, topic)
        assert values(read_back(reader, 1)) == [b"unread"]
        reader.commit()
        eventually(lambda: first.name not in names(client, topic), 20, what="it was read, so it goes")
    assert not missing(store, topic_in(store, topic))


def test_a_group_whose_topic_lets_the_unread_go_is_told_exactly_what_it_lost(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic, retention={"age": "2s", "unread": "Expire"})
    (first,) = client.admin().segments(topic)
    with client.producer(topic) as producer, client.consumer(topic, group="slow", start="earliest") as reader:
        producer.send(b"read").result(20)
        assert values(read_back(reader, 1)) == [b"read"]
        reader.commit()
    write_and_roll(client, topic, b"unread", count=3)
    second = write_and_roll(client, topic, b"unread too", count=2)
    eventually(lambda: not {first.name, second} & set(names(client, topic)), 20, what="retention removed them")
    with client.producer(topic) as producer:
        producer.send(b"after").result(20)
    with client.consumer(topic, group="slow") as reader:
        told = []
        for _ in range(2):
            with pytest.raises(smq.DataLost) as loss:
                while True:
                    reader.poll(20)
            told.append((loss.value.segment, loss.value.start, loss.value.stop))
        assert sorted(told) == sorted([(first.name, 1, 4), (second, 0, 2)])
    with client.consumer(topic, group="slow", on_loss="skip") as reader:
        assert values(read_back(reader, 1)) == [b"after"]
        reader.commit()
    with client.consumer(topic, group="slow") as reader:
        assert reader.poll(3) is None, "what was told, and is behind what was committed, is not told again"


def test_a_reader_in_the_middle_of_a_file_that_goes_is_told_what_it_lost(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store
) -> None:
    cluster.create(topic, retention={"age": "5s"}, flush={"bytes": "16Ki"})
    (first,) = client.admin().segments(topic)
    with client.producer(topic) as producer:
        for i in range(3):
            producer.write(pa.table({"value": pa.array([b"%d" % i * 1000] * 40, pa.binary())}))
            producer.flush()
    write_and_roll(client, topic, b"last")
    with client.consumer(topic, start="earliest", max_bytes=20_000, prefetch_bytes=20_000) as reader:
        got = reader.poll(20)
        assert got is not None and got.segment == first.name
        made = topic_in(store, topic)
        assert segments_with_files(store, made)[first.name] > 2
        eventually(lambda: first.name not in segments_with_files(store, made), 30, what="the files are gone")
        with client.producer(topic) as producer:
            producer.send(b"after").result(20)
        seen, losses = len(got.table), []
        while True:
            try:
                batch = reader.poll(20)
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
    eventually(lambda: gone not in names(client, topic), 20, what="retention removed it")
    with client.producer(topic) as producer:
        producer.send(b"after").result(20)
    with client.consumer(topic, start={gone: 2}) as reader:
        assert values(read_back(reader, 1)) == [b"after"]
    with client.consumer(topic, start={gone: 1}) as reader:
        with pytest.raises(smq.DataLost) as told:
            reader.poll(20)
        assert (told.value.segment, told.value.start, told.value.stop) == (gone, 1, 2)
    # As after a loss that nobody told this reader before retention came.
    with client.consumer(topic, start={gone: 5}) as reader:
        with pytest.raises(smq.DataLost) as told:
            reader.poll(20)
        assert (told.value.segment, told.value.start, told.value.stop) == (gone, 2, 5)
        assert values(read_back(reader, 1)) == [b"after"]


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_deleted_topic_keeps_its_data_or_not_and_a_new_one_of_its_name_is_not_touched(
    cluster: LocalCluster, client: smq.Client, topic: str, store: Store, policy: str
) -> None:
    cluster.create(topic, deletionPolicy=policy)
    write_and_roll(client, topic, b"first life")
    old = topic_in(store, topic)
    client.admin().delete(topic)
    cluster.create(topic, deletionPolicy=policy)
    with cluster.connect() as later:
        write_and_roll(later, topic, b"second life")
        new = topic_in(store, topic)
        assert new.uid != old.uid
        if policy == "Delete":
            eventually(lambda: not list(store.list(f"{old.name}/{old.uid}")), 60, what="the first life's data is gone")
        else:
            eventually(lambda: old.uid in list_retired(store), 10)
            assert not missing(store, old)
        assert not missing(store, new)
        with later.consumer(topic, start="earliest") as reader:
            assert values(read_back(reader, 1)) == [b"second life"]


def test_a_topic_that_was_deleted_while_nobody_led_is_collected_by_the_next_leader(
    seaweed: SeaweedProcess, prefix: str, tmp_path: Path
) -> None:
    with LocalCluster(tmp_path / "cluster", seaweed.settings(prefix), arguments=QUICKLY) as cluster:
        store = cluster.store.open()
        for name in ("gone", "stays"):
            cluster.create(name, deletionPolicy="Delete")
        gone, stays = topic_in(store, "gone"), topic_in(store, "stays")
        with cluster.connect() as client:
            for name in ("gone", "stays"):
                write_and_roll(client, name, b"x")
        cluster.kill_leader()
        (path,) = [p for p in (cluster.folder / "topics").iterdir() if "gone" in p.name]
        path.unlink()
        cluster.start()
        eventually(lambda: not list(store.list(f"{gone.name}/{gone.uid}")), 60, what="its data is gone")
        assert not missing(store, stays)
