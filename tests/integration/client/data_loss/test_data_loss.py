"""All replicas of a segment are gone at once, with their journals: the loss is reported, and the topic continues."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

import smq
from smq_core.model.loss import Loss
from support.data.message_ledger import read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration

NOTHING_STORED = {"bytes": "64Mi", "interval": "1h"}


def values(batches: list[smq.Batch]) -> list[bytes]:
    return [v for b in batches for v in b.table.column("value").to_pylist()]


def test_a_loss_is_reported_once_with_its_offsets_and_reading_continues(own_cluster: LocalCluster) -> None:
    own_cluster.create("flights", flush=NOTHING_STORED)
    with own_cluster.connect() as client, client.producer("flights") as producer:
        for number in range(100):
            producer.send(b"%d" % number)
        producer.flush()
        had = client.consumer("flights")
        assert len(values(read_back(had, 100))) == 100
        (segment,) = client.admin().segments("flights")
        # A report of the primary gives the leader the offset below which messages were durable.
        eventually(lambda: any(s.watermark == 100 for b in client.admin().brokers() for s in b.segments))
        own_cluster.lose_brokers(segment.brokers)
        producer.send(b"after").result()
        with pytest.raises(smq.DataLost) as reported:
            had.poll(HANG_GUARD)
        assert (reported.value.segment, reported.value.start, reported.value.stop) == (segment.name, 0, 100)
        assert reported.value.at_least and reported.value.certain
        assert values(read_back(had, 1)) == [b"after"]
        with client.consumer("flights", start="earliest") as late:
            with pytest.raises(smq.DataLost) as reported:
                late.poll(HANG_GUARD)
            assert (reported.value.start, reported.value.stop, reported.value.at_least) == (0, 100, True)
            assert values(read_back(late, 1)) == [b"after"]
        with client.consumer("flights", on_loss="skip") as careless:
            assert values(read_back(careless, 1)) == [b"after"]
        (lost,) = [s.lost for s in client.admin().segments("flights", all=True) if s.lost]
        assert lost == smq.Loss(0, 100, at_least=True)


@dataclass
class Observed:
    """What a reader got: offsets, and the ranges of losses, by segment."""

    offsets: set[tuple[str, int]] = field(default_factory=set)
    losses: dict[str, list[Loss]] = field(default_factory=dict)

    def read(self, consumer: smq.Consumer, last: bytes) -> None:
        """Reads until this message came."""
        found = False
        while not found:
            try:
                batch = consumer.poll(HANG_GUARD)
            except smq.DataLost as loss:
                assert loss.stop is not None
                self.losses.setdefault(loss.segment, []).append(Loss(loss.start, loss.stop, loss.at_least))
                continue
            assert batch is not None, f"{last!r} did not come"
            self.offsets.update((batch.segment, batch.first_offset + i) for i in range(batch.table.num_rows))
            found = last in batch.table.column("value").to_pylist()

    def unexplained(self, acked: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """The acked messages that are neither read nor in a reported range."""
        return [it for it in acked if it not in self.offsets and not covers(self.losses.get(it[0], ()), it[1])]


def covers(ranges: Iterable[Loss], offset: int) -> bool:
    return any(it.start <= offset and (offset < it.stop or it.at_least) for it in ranges)


def recorded_losses(client: smq.Client, topic: str) -> dict[str, list[Loss]]:
    """What the index says, by segment."""
    segments = client.admin().segments(topic, all=True)
    return {s.name: [s.lost] for s in segments if s.lost}


def lose_replicas(cluster: LocalCluster, segment: smq.SegmentInfo) -> None:
    cluster.lose_brokers(segment.brokers)


def lose_everything(cluster: LocalCluster, segment: smq.SegmentInfo) -> None:
    cluster.lose_everything()
    cluster.start()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lose", "leader_paused"),
    [(lose_replicas, False), (lose_replicas, True), (lose_everything, False)],
    ids=["replicas", "replicas-while-the-leader-is-paused", "everything"],
)
def test_every_acked_message_is_in_the_log_or_in_the_range_of_every_observer(
    own_cluster: LocalCluster, lose: Callable[[LocalCluster, smq.SegmentInfo], None], leader_paused: bool
) -> None:
    """The leader knows of none, some or all messages. It does not wait for reports."""
    own_cluster.create("flights", flush=NOTHING_STORED)
    with own_cluster.connect() as client, client.producer("flights") as producer:
        (segment,) = client.admin().segments("flights")
        deliveries = [producer.send(b"%d" % number) for number in range(200)]
        with client.consumer("flights", group="report") as member:
            read_back(member, 200)
            member.commit()
        if leader_paused:
            os.kill(own_cluster.leader_pid, signal.SIGSTOP)
        deliveries += [producer.send(b"%d" % number) for number in range(200, 600)]
        producer.flush()
        acked = {(r.segment, r.offset) for r in (delivery.result() for delivery in deliveries)}
        assert len(acked) == 600
        lose(own_cluster, segment)
        producer.send(b"after").result()

        observers = []
        for options in ({"start": "earliest"}, {"group": "report"}):
            seen = Observed()
            with client.consumer("flights", on_loss="fail", **options) as consumer:
                seen.read(consumer, b"after")
            observers.append(seen)
        fresh, member_again = observers
        index = eventually(lambda: recorded_losses(client, "flights"), what="the index has the segment")
        (condition,) = (c for c in client.admin().topic("flights").conditions if c.type == "DataLoss")

        assert fresh.unexplained(acked) == []
        assert member_again.unexplained(acked) == []
        assert Observed(fresh.offsets, index).unexplained(acked) == []
        (lost,) = index[segment.name]
        assert lost.stop >= 200, "the group has committed that"
        assert condition.status == "True" and f"{segment.name}: {lost}" in condition.message


def test_a_position_that_no_reader_can_have_is_refused_and_no_loss(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    cluster.create(topic)
    with client.producer(topic) as producer:
        receipt = producer.send(b"x").result()
    with pytest.raises(smq.InvalidRequest, match=f"has no segment {topic}-0-64-77; it has {receipt.segment}"):
        client.consumer(topic, start={f"{topic}-0-64-77": 5})
    with pytest.raises(smq.InvalidRequest, match="it has messages up to 1, so 0 to 1 are possible"):
        client.consumer(topic, start={receipt.segment: 2})
    with client.consumer(topic, start={receipt.segment: 0}) as consumer:
        assert values(read_back(consumer, 1)) == [b"x"]
