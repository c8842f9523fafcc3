"""The ids of producers in a secure release of real processes: another identity cannot fence a producer by its id."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import smq
from smq_core.errors import PermissionDenied
from smq_core.model.entities import Phase, Segment
from smq_proto.flight import call
from smq_proto.v1 import data_pb2 as pb
from support.data.raw_flight import RawProducer
from support.processes.secure_cluster import SecureCluster
from support.waiting import HANG_GUARD, eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow]


class Attacker:
    """Speaks to brokers with a client's own credentials, but not as its library does."""

    def __init__(self, client: smq.Client, topic: str) -> None:
        self._views = client._view(topic)
        self.view = self._views.__enter__()

    def close(self) -> None:
        self._views.__exit__(None, None, None)

    def segments(self) -> list[Segment]:
        return [it for it in self.view.snapshot.layout.segments if it.phase is Phase.OPEN]

    def open(self, segment: Segment, producer_id: str, epoch: int) -> RawProducer:
        client = self.view.dialer.flight(segment.primary)
        self.view.dialer.present(client, self.view.name)
        return RawProducer(
            segment.primary.address,
            self.view.snapshot.topic,
            segment,
            name=producer_id,
            epoch=epoch,
            incarnation=segment.primary.incarnation,
            client=client,
        )

    def claim(self, segment: Segment, producer: str) -> pb.ClaimedProducer:
        """At each broker of the segment in turn."""
        topic, claimed = self.view.snapshot.topic, pb.ClaimedProducer()
        request = pb.ClaimProducer(topic=topic.name, uid=topic.uid, producer=producer, instance="mine", epoch=99)
        for replica in segment.replicas:
            client = self.view.dialer.flight(replica)
            self.view.dialer.present(client, self.view.name)
            claimed = pb.ClaimedProducer.FromString(call(client, "claim", request, timeout=HANG_GUARD))
        return claimed


@pytest.fixture
def attack(cluster: SecureCluster, topic: str) -> Iterator[Callable[[str], Attacker]]:
    """Clients of identities that may publish to the topic."""
    made: list[tuple[smq.Client, Attacker]] = []

    def attack_as(identity: str) -> Attacker:
        client = cluster.connect_as(identity)
        made.append((client, Attacker(client, topic)))
        return made[-1][1]

    yield attack_as
    for client, attacker in made:
        attacker.close()
        client.close()


def may_publish(cluster: SecureCluster, topic: str, identity: str, *verbs: str) -> str:
    cluster.token_file(identity)
    cluster.allow(identity, {"topics": [topic], "verbs": ["produce", "consume", *verbs]})
    return identity


def test_nobody_else_fences_a_producer_by_its_id(
    cluster: SecureCluster, topic: str, attack: Callable[[str], Attacker]
) -> None:
    cluster.create(topic)
    alice = may_publish(cluster, topic, f"alice-{topic}")
    bob = may_publish(cluster, topic, f"bob-{topic}")
    with cluster.connect_as(alice) as client, client.producer(topic, producer_id="etl") as producer:
        producer.send(b"0", key=b"0").result(HANG_GUARD)
        with cluster.connect_as(bob) as other:
            for epoch in (None, 7):
                with pytest.raises(smq.PermissionDenied, match=f"'etl' is one of {alice}, so {bob} may not") as caught:
                    other.producer(topic, producer_id="etl", epoch=epoch)
                assert f'create topics/administer "{topic}"' in caught.value.access
            with other.producer(topic, producer_id="etl-2") as own, other.producer(topic) as unnamed:
                own.send(b"bob").result(HANG_GUARD)
                unnamed.send(b"bob").result(HANG_GUARD)
        # Segments that know nothing of the producer, and their successors on other brokers, refuse it as well.
        attacker = attack(bob)

        def refuse_all() -> None:
            for segment in attacker.segments():
                with pytest.raises(PermissionDenied, match="'etl' is one of"):
                    attacker.claim(segment, "etl")
                for producer_id in (f"etl@{alice}", "etl"):
                    raw = attacker.open(segment, producer_id, epoch=99)
                    assert isinstance(raw.wait_error(), PermissionDenied)

        refuse_all()
        with cluster.connect() as administrator:
            (segment,) = administrator.admin().segments(topic)
            administrator.admin().split(topic, segment.name)
            eventually(lambda: len(attacker.segments()) == 2, what="the split")
        refuse_all()
        for n in range(1, 30):
            producer.send(b"%d" % n, key=b"%d" % n).result(HANG_GUARD)
    with cluster.connect_as(alice) as client, client.producer(topic, producer_id="etl") as again:
        again.send(b"again").result(HANG_GUARD)
        assert again.epoch == 1, "no claim of the other changed anything"


def test_an_administrator_replaces_the_producer_of_another(cluster: SecureCluster, topic: str) -> None:
    cluster.create(topic)
    alice = may_publish(cluster, topic, f"alice-{topic}")
    ada = may_publish(cluster, topic, f"ada-{topic}", "administer")
    with cluster.connect_as(alice) as client, client.producer(topic, producer_id="etl") as old:
        old.send(b"a").result(HANG_GUARD)
        with cluster.connect_as(ada) as administrator, administrator.producer(topic, producer_id="etl") as new:
            new.send(b"b").result(HANG_GUARD)
            assert new.epoch == 1
        with pytest.raises(smq.ProducerFenced):
            old.send(b"c").result(HANG_GUARD)
    with cluster.connect_as(alice) as client, client.producer(topic, producer_id="etl") as back:
        back.send(b"d").result(HANG_GUARD)


def test_ids_of_a_release_that_was_open_belong_to_whom_claims_them_first(cluster: SecureCluster, topic: str) -> None:
    cluster.create(topic)
    alice = may_publish(cluster, topic, f"alice-{topic}")
    bob = may_publish(cluster, topic, f"bob-{topic}")
    claim_while_open(cluster, topic, "etl")
    with cluster.connect_as(alice) as client, client.producer(topic, producer_id="etl") as producer:
        assert producer.epoch == 4
        producer.send(b"a").result(HANG_GUARD)
        with cluster.connect_as(bob) as other, pytest.raises(smq.PermissionDenied, match=alice):
            other.producer(topic, producer_id="etl")


def claim_while_open(cluster: SecureCluster, topic: str, producer: str) -> None:
    """Leaves what a process without an identity has left."""
    from smq_storage.catalog.producer_claims import claim

    with cluster.connect() as client, client._view(topic) as view:
        found = view.snapshot.topic
    claim(cluster.store.open(), found.name, found.uid, producer, "former", 3, now=1)
