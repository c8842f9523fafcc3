"""Segments are replaced while a program publishes: no message is lost, duplicated or reordered."""

from __future__ import annotations

import os
import signal

import pytest

import smq
from support.data.message_ledger import BackgroundPublisher, MessageLedger, check_deliveries, read_back
from support.processes.local_cluster import LocalCluster
from support.waiting import eventually

pytestmark = pytest.mark.integration


def busy(client: smq.Client, topic: str) -> smq.Producer:
    """A producer that always has several small batches on the way, but not many messages."""
    return client.producer(topic, linger=0.0, batch_bytes=2_000, max_in_flight=30_000)


def only_segment(client: smq.Client, topic: str) -> smq.SegmentInfo:
    (segment,) = [s for s in client.admin().segments(topic) if s.phase == "open"]
    return segment


@pytest.mark.slow
@pytest.mark.parametrize("who", ["primary", "follower"])
def test_a_broker_is_killed_while_publishing(cluster: LocalCluster, client: smq.Client, topic: str, who: str) -> None:
    cluster.create(topic)
    ledger = MessageLedger()
    with busy(client, topic) as producer, client.consumer(topic) as consumer:
        publishing = BackgroundPublisher(producer, ledger)
        eventually(lambda: publishing.acked > 30)
        segment = only_segment(client, topic)
        cluster.kill_broker(segment.brokers[0 if who == "primary" else 1])
        before = publishing.acked
        eventually(lambda: publishing.acked > before + 60)
        stall = publishing.stop()
        check_deliveries(ledger, read_back(consumer, ledger.total))
    print(f"longest stall when a {who} is killed: {stall:.3f} s")


def two_brokers(client: smq.Client, topic: str) -> tuple[str, ...]:
    """Those of the only segment; none as long as it has fewer, as on a machine that was too slow for a moment."""
    brokers = tuple(only_segment(client, topic).brokers)
    return brokers if len(brokers) == 2 else ()


@pytest.mark.slow
def test_a_primary_is_killed_with_unacked_batches_on_their_way(
    cluster: LocalCluster, client: smq.Client, topic: str
) -> None:
    """The follower is paused for a moment, so that it later gets batches which the dead primary cannot ack."""
    cluster.create(topic)
    ledger = MessageLedger()
    with busy(client, topic) as producer, client.consumer(topic) as consumer:
        publishing = BackgroundPublisher(producer, ledger)
        eventually(lambda: publishing.acked > 30)
        primary, follower = eventually(lambda: two_brokers(client, topic))
        pid = cluster.pids()[follower]
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(producer.would_block)
            cluster.kill_broker(primary)
        finally:
            os.kill(pid, signal.SIGCONT)
        before = publishing.acked
        eventually(lambda: publishing.acked > before + 60)
        publishing.stop()
        check_deliveries(ledger, read_back(consumer, ledger.total))


def test_a_broker_is_paused_while_publishing(own_cluster: LocalCluster) -> None:
    """The broker runs but does not answer. Streams to it are closed, followers seal, and it does no harm later."""
    own_cluster.create("flights")
    ledger = MessageLedger()
    with (
        own_cluster.connect() as client,
        busy(client, "flights") as producer,
        client.consumer("flights") as consumer,
    ):
        publishing = BackgroundPublisher(producer, ledger)
        eventually(lambda: publishing.acked > 30)
        pid = own_cluster.pids()[only_segment(client, "flights").brokers[0]]
        os.kill(pid, signal.SIGSTOP)
        try:
            before = publishing.acked
            eventually(lambda: publishing.acked > before + 60)
        finally:
            os.kill(pid, signal.SIGCONT)
        before = publishing.acked
        eventually(lambda: publishing.acked > before + 60)
        stall = publishing.stop()
        check_deliveries(ledger, read_back(consumer, ledger.total))
    print(f"longest stall when a primary is paused: {stall:.3f} s")


def test_a_split_while_publishing(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic)
    ledger = MessageLedger()
    with busy(client, topic) as producer, client.consumer(topic) as consumer:
        publishing = BackgroundPublisher(producer, ledger)
        eventually(lambda: publishing.acked > 20)
        client.admin().split(topic, only_segment(client, topic).name, at=[10, 40])
        eventually(lambda: len([s for s in client.admin().segments(topic) if s.phase == "open"]) == 3)
        before = publishing.acked
        eventually(lambda: publishing.acked > before + 20)
        stall = publishing.stop()
        batches = read_back(consumer, ledger.total)
        check_deliveries(ledger, batches)
        with client.consumer(topic) as late:
            check_deliveries(ledger, read_back(late, ledger.total))
    print(f"longest stall in a split: {stall:.3f} s")
    assert len({b.segment for b in batches}) == 4


@pytest.mark.slow
def test_merge_and_roll_while_publishing(cluster: LocalCluster, client: smq.Client, topic: str) -> None:
    cluster.create(topic, segments={"min": 1, "max": 16})
    admin = client.admin()
    ledger = MessageLedger()
    with busy(client, topic) as producer, client.consumer(topic) as consumer:
        publishing = BackgroundPublisher(producer, ledger)
        eventually(lambda: publishing.acked > 20)
        admin.split(topic, only_segment(client, topic).name)
        eventually(lambda: len([s for s in admin.segments(topic) if s.phase == "open"]) == 2)
        admin.merge(topic, [s.name for s in admin.segments(topic) if s.phase == "open"])
        eventually(lambda: [s.stop for s in admin.segments(topic) if s.phase == "open"] == [64])
        merged = only_segment(client, topic)
        admin.roll(topic, merged.name)
        eventually(lambda: only_segment(client, topic).name != merged.name)
        before = publishing.acked
        eventually(lambda: publishing.acked > before + 20)
        publishing.stop()
        check_deliveries(ledger, read_back(consumer, ledger.total))
        with client.consumer(topic) as late:
            check_deliveries(ledger, read_back(late, ledger.total))


def test_the_leader_dies_and_publishing_goes_on(own_cluster: LocalCluster) -> None:
    own_cluster.create("flights")
    ledger = MessageLedger()
    with (
        own_cluster.connect() as client,
        busy(client, "flights") as producer,
        client.consumer("flights") as consumer,
    ):
        publishing = BackgroundPublisher(producer, ledger)
        eventually(lambda: publishing.acked > 20)
        own_cluster.kill_leader()
        before = publishing.acked
        eventually(lambda: publishing.acked > before + 100)
        stall = publishing.stop()
        check_deliveries(ledger, read_back(consumer, ledger.total))
    print(f"longest stall when the leader is killed: {stall:.3f} s")


@pytest.mark.slow
def test_a_leader_that_comes_back_is_followed_again(own_cluster: LocalCluster) -> None:
    own_cluster.create("flights")
    ledger = MessageLedger()
    with (
        own_cluster.connect() as client,
        busy(client, "flights") as producer,
        client.consumer("flights") as consumer,
    ):
        publishing = BackgroundPublisher(producer, ledger)
        eventually(lambda: publishing.acked > 20)
        own_cluster.kill_leader()
        own_cluster.start()
        segment = eventually(lambda: only_segment(client, "flights"))
        client.admin().split("flights", segment.name)
        eventually(lambda: len([s for s in client.admin().segments("flights") if s.phase == "open"]) == 2)
        before = publishing.acked
        eventually(lambda: publishing.acked > before + 60)
        publishing.stop()
        check_deliveries(ledger, read_back(consumer, ledger.total))
