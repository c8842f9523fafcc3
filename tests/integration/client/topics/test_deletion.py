"""A topic is deleted while a producer writes to it: messages that are sent after the answer get no ack."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

import smq
from smq.producing.lanes import lanes
from smq.transport.topic_views import MAX_IDLE_VIEWS
from smq_storage.catalog.topics import read_current
from smq_storage.chunks.chain import ChunkChain
from support.processes.local_cluster import LocalCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = pytest.mark.integration


class EndlessWriter:
    """Writes without a pause until it gets an error, and records the acks."""

    def __init__(self, producer: smq.Producer) -> None:
        self._producer = producer
        self.acks: list[tuple[float, smq.Receipt]] = []
        """When the message was sent, and its ack."""
        self.refused: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        try:
            while True:
                sent = time.monotonic()
                delivery = self._producer.send(b"x" * 100, key=str(number).encode())
                delivery.add_done_callback(lambda done, sent=sent: self._note(done, sent))
                number += 1
                if number % 50 == 0:
                    delivery.result()
        except smq.SmqError as error:
            self.refused = error

    def _note(self, done: smq.Delivery[smq.Receipt], sent: float) -> None:
        if done.exception(0) is None:
            self.acks.append((sent, done.result(0)))

    def join(self) -> None:
        self._thread.join(HANG_GUARD)
        assert not self._thread.is_alive(), "the writer was told nothing"
        with contextlib.suppress(smq.UnknownTopic):
            self._producer.close()


@pytest.mark.parametrize("durability", ["Replicated", "Stored"])
def test_what_is_sent_after_a_deletion_gets_no_ack(cluster: LocalCluster, topic: str, durability: str) -> None:
    replicas = 2 if durability == "Replicated" else 1
    cluster.create(topic, durability=durability, replicas=replicas, segments={"min": 2, "max": 4})
    store, name = cluster.store.open(), f"default/{topic}"
    with cluster.connect() as writing, cluster.connect() as deleting:
        current = read_current(store, name)
        assert current is not None
        segments = [segment.name for segment in deleting.admin().segments(topic)]
        writer = EndlessWriter(writing.producer(topic))
        eventually(lambda: len(writer.acks) > 500, what="the producer writes")
        deleting.admin().delete(topic)
        answered = time.monotonic()
        writer.join()
        assert not [sent for sent, _ in writer.acks if sent > answered], "sent after the deletion was answered"
        assert isinstance(writer.refused, smq.UnknownTopic)
        assert f"topic {name} was deleted" in writer.refused.message and "open a new producer" in writer.refused.message
        ends = {}
        for segment in segments:
            seal = ChunkChain(store, name, current[0], segment).read_seal_chunk()
            assert seal is not None, f"{segment} is sealed"
            ends[segment] = seal.first
        assert all(receipt.offset < ends[receipt.segment] for _, receipt in writer.acks), "an ack that is in no file"
        with pytest.raises(smq.UnknownTopic):
            deleting.producer(topic)


def test_a_client_keeps_no_threads_of_topics_that_it_does_not_use(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "IDLE_SECONDS", 0.1)
    before = set(threading.enumerate())

    def threads_of_client() -> list[str]:
        return [it.name for it in threading.enumerate() if it not in before]

    with cluster.connect() as client:
        for number in range(2 * MAX_IDLE_VIEWS):
            name = f"{topic}-{number}"
            cluster.create(name)
            with client.producer(name) as producer, client.consumer(name) as consumer:
                producer.send(b"x").result(HANG_GUARD)
                assert consumer.poll(HANG_GUARD) is not None
            client.admin().delete(name)
        eventually(lambda: len([it for it in threads_of_client() if "topic-view" not in it]) <= 4)
        views = [it for it in threads_of_client() if "topic-view" in it]
        assert len(views) <= MAX_IDLE_VIEWS + 1, "and the one that was in use during the last call"
