"""Members of a group share a topic: each message goes to one of them, even while members join and leave."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

import smq
from support.data.message_ledger import MessageLedger, message, read_back
from support.processes.cli import smq as command
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


class MemberThread:
    """Polls and commits in a thread, as a program would: every batch is worked on, then committed."""

    def __init__(self, client: smq.Client, topic: str, group: str) -> None:
        self.consumer = client.consumer(topic, group=group, start="earliest")
        self.values: list[bytes] = []
        self.segments: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            batch = self.consumer.poll(0.1)
            if batch is not None:
                self.segments.add(batch.segment)
                self.values += batch.table.column("value").to_pylist()
                self.consumer.commit()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self.consumer.close()


def everything(ledger: MessageLedger) -> Counter[bytes]:
    return Counter(message(key, number) for key, count in enumerate(ledger.sent) for number in range(count))


def test_members_share_the_segments_and_hand_them_over(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, segments={"min": 4, "max": 8})
    ledger = MessageLedger(keys=64)
    first = MemberThread(client, topic, "report")
    with client.producer(topic) as producer:
        ledger.send(producer, 2000)
        producer.flush()
        eventually(lambda: len(first.values) == ledger.total)
        second = MemberThread(client, topic, "report")
        eventually(
            lambda: ledger.send(producer, 64) or (len(second.consumer.assignment) == 2 and len(second.values) > 100),
            pause=0.02,
        )
        assert len(first.consumer.assignment) == 2
        assert not first.consumer.assignment & second.consumer.assignment
        first.stop()
        eventually(lambda: ledger.send(producer, 64) or len(second.consumer.assignment) == 4, pause=0.02)
        producer.flush()
        eventually(lambda: len(first.values) + len(second.values) >= ledger.total)
    second.stop()
    assert Counter(first.values + second.values) == everything(ledger)


def test_a_group_follows_a_split_and_goes_on_where_it_committed(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    ledger = MessageLedger()
    member = MemberThread(client, topic, "report")
    with client.producer(topic) as producer:
        ledger.send(producer, 1000)
        producer.flush()
        client.admin().split(topic, f"{topic}-0-64")
        eventually(lambda: len([s for s in client.admin().segments(topic) if s.phase == "open"]) == 2)
        ledger.send(producer, 1000)
        producer.flush()
        eventually(lambda: len(member.values) == ledger.total)
        member.stop()
        ledger.send(producer, 500)
        producer.flush()
    again = MemberThread(client, topic, "report")
    eventually(lambda: len(member.values) + len(again.values) >= ledger.total)
    again.stop()
    assert Counter(member.values + again.values) == everything(ledger)
    (group,) = client.admin().groups(topic)
    assert group.name == "report" and sum(group.positions.values()) > 0


def test_what_was_not_committed_is_read_again(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"one").result()
    with client.consumer(topic, group="g") as consumer:
        assert len(read_back(consumer, 1)) == 1
    with client.consumer(topic, group="g") as consumer:
        assert len(read_back(consumer, 1)) == 1
        assert list(consumer.commit().values()) == [1]
    with client.consumer(topic, group="g") as consumer:
        assert consumer.poll(1.5) is None


def test_auto_commit_commits_what_was_handed_out(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"one").result()
    with client.consumer(topic, group="g", auto_commit=True) as consumer:
        assert len(read_back(consumer, 1)) == 1
    with client.consumer(topic, group="g") as consumer:
        assert consumer.poll(1.5) is None


def test_auto_commit_leaves_out_a_batch_that_the_program_failed_on(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"one").result()
    with pytest.raises(ZeroDivisionError), client.consumer(topic, group="g", auto_commit=True) as consumer:
        assert consumer.poll(HANG_GUARD) is not None
        raise ZeroDivisionError
    with client.consumer(topic, group="g") as consumer:
        assert consumer.poll(HANG_GUARD) is not None


def test_a_group_begins_at_the_latest_when_requested(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        producer.send(b"before").result()
        with client.consumer(topic, group="g", start="latest") as consumer:
            eventually(lambda: consumer.assignment)
            producer.send(b"after").result()
            batches = read_back(consumer, 1)
    assert [v for b in batches for v in b.table.column("value").to_pylist()] == [b"after"]


def test_a_group_that_commits_rarely_follows_a_split(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    ledger, values = MessageLedger(), []
    with client.producer(topic) as producer:
        ledger.send(producer, 100)
        producer.flush()
        client.admin().split(topic, f"{topic}-0-64")
        eventually(lambda: len([s for s in client.admin().segments(topic) if s.phase == "open"]) == 2)
        ledger.send(producer, 100)
        producer.flush()
    with client.consumer(topic, group="rare", auto_commit="segment_end") as consumer:
        while not consumer.at_end():
            batch = consumer.poll(0.1)
            values += batch.table.column("value").to_pylist() if batch is not None else []
    assert Counter(values) == everything(ledger)


def test_a_group_that_waits_for_a_commit_says_so(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    ended: list[tuple[str, int]] = []
    with client.producer(topic) as producer:
        producer.send_many([b"before"] * 3).result()
        (old,) = (s.name for s in client.admin().segments(topic))
        client.admin().split(topic, old)
        eventually(lambda: len([s for s in client.admin().segments(topic) if s.phase == "open"]) == 2)
        producer.send(b"after").result()
    with client.consumer(topic, group="g", on_segment_end=lambda *it: ended.append(it)) as consumer:
        eventually(lambda: consumer.poll(0.1) is None and ended == [(old, 3)])
        eventually(
            lambda: [s.segment for s in client.admin().group(topic, "g").segments if s.waits_for_commit] == [old]
        )
        described = command("group", "describe", topic, "g", leader=cluster.address)
        assert f"has returned all messages of {old}: the group waits for its commit of offset 3" in described.err
        assert not consumer.at_end()
        with pytest.raises(smq.InvalidRequest, match="offset 4"):
            consumer.commit({old: 4})
        assert consumer.commit() == {old: 3}
        eventually(lambda: consumer.poll(0.1) is not None)
        eventually(consumer.at_end)


def test_a_groups_name_that_cannot_be(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    with pytest.raises(smq.InvalidRequest, match="group"):
        client.consumer(topic, group="a/b")
