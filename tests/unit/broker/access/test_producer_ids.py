"""In a secure release no identity writes with the producer id of another, whatever is in the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from smq_broker.access.callers import Caller
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.streams.actions import ActionCall
from smq_core.access.broker_calls import PRODUCERS
from smq_core.access.grants import GRANT_SECONDS
from smq_core.access.peers import Role
from smq_core.access.rights import Right
from smq_core.errors import GrantMissing, InvalidRequest, PermissionDenied, SmqError
from smq_proto.error_conversion import error_from_pb
from smq_proto.v1 import data_pb2 as pb
from smq_storage.catalog.topics import put_current, put_topic
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts, ProducerClient
from support.in_memory.secure_access import SecureBrokerAccess
from support.processes.broker import make_segment, make_topic
from support.waiting import eventually

TOPIC = make_topic("travel/flights")
ADMINISTER = 'create topics/administer "flights" in namespace "travel"'


class Broker:
    """A broker with a segment; alice and bob may publish, and ada may administer, too."""

    def __init__(self) -> None:
        store = open_store("memory://")
        put_topic(store, TOPIC)
        put_current(store, TOPIC.name, TOPIC.uid, etag=None)
        network: dict[str, BrokerParts] = {}
        self.parts, self.follower = BrokerParts("b1", store, network), BrokerParts("b2", store, network)
        self.access = SecureBrokerAccess(TOPIC)
        segment = make_segment(TOPIC, self.parts.replica, self.follower.replica)
        self.follower.opener.open(TOPIC, segment)
        self.hosted: HostedSegment = self.parts.opener.open(TOPIC, segment)
        self.present()

    def present(self, administers: bool = True) -> None:
        for name in ("alice", "bob", "ada"):
            rights = (Right.PRODUCE, Right.ADMINISTER) if name == "ada" and administers else (Right.PRODUCE,)
            self.access.present(*(self.access.grant(right, identity=name) for right in rights), identity=name)

    def caller(self, name: str, call: str = PRODUCERS, role: Role = Role.CLIENT) -> Caller:
        caller = self.access.caller(role, name, call)
        caller.require(TOPIC.uid)
        return caller

    def claim(self, name: str, producer: str = "etl", instance: str = "", role: Role = Role.CLIENT) -> tuple[str, int]:
        request = pb.ClaimProducer(topic=TOPIC.name, uid=TOPIC.uid, producer=producer, instance=instance or name)
        call = ActionCall(request.SerializeToString(), lambda: False, self.caller(name, "claim", role))
        answer = self.parts.actions().run("claim", call)
        assert isinstance(answer, pb.ClaimedProducer)
        return answer.identity, answer.epoch

    def open(self, name: str, producer_id: str, role: Role = Role.CLIENT, epoch: int = 1) -> ProducerClient:
        return ProducerClient(self.parts, self.hosted, producer_id, caller=self.caller(name, role=role), epoch=epoch)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with capture_logs():
        made = Broker()
        yield made
        for parts in (made.parts, made.follower):
            parts.stop()


def denial_of(client: ProducerClient) -> SmqError:
    reply = eventually(lambda: client.replies, what="the answer to the session")[0]
    client.close()
    assert reply.error.code == "PermissionDenied", reply
    return error_from_pb(reply.error)


def test_a_claim_of_the_id_of_another_identity_changes_nothing(broker: Broker) -> None:
    assert broker.claim("alice") == ("alice", 0)
    with pytest.raises(PermissionDenied) as caught:
        broker.claim("bob")
    assert type(caught.value) is PermissionDenied and caught.value.access == ADMINISTER
    assert broker.access.denied("PermissionDenied") == 1, "it is counted and logged as any denial"
    assert broker.claim("alice", instance="second") == ("alice", 1)
    assert broker.claim("ada") == ("alice", 2), "an administrator replaces the producer, whose id stays alice's"
    assert broker.claim("bob", "other") == ("bob", 0)


def test_the_id_of_a_claim_is_short_enough_for_its_identity(broker: Broker) -> None:
    with pytest.raises(InvalidRequest, match="1 to 256"):
        broker.claim("alice", "p" * 257)
    client = broker.open("alice", "p" * 256 + "@alice")
    client.wait_reply("opened")
    client.close()


@pytest.mark.parametrize("producer_id", ["etl@alice", "etl", "etl@bob@alice", "etl@", "@alice", "etl@ALICE"])
def test_no_session_is_opened_as_a_producer_of_another(broker: Broker, producer_id: str) -> None:
    first = broker.open("alice", "etl@alice")
    first.send(0, rows([b"a"]))
    first.wait_acked(0)
    refused = broker.open("bob", producer_id)
    assert ADMINISTER in denial_of(refused).message
    first.send(1, rows([b"b"]))
    first.wait_acked(1)
    first.close()
    assert broker.hosted.machine.end == 2
    assert broker.access.denied("PermissionDenied") == 1


def test_a_refused_session_ends_no_other_one_of_its_lane(broker: Broker) -> None:
    caller = broker.caller("bob")
    with pytest.raises(PermissionDenied):
        caller.require_producer(TOPIC.uid, "etl@alice")
    caller.require_producer(TOPIC.uid, "etl@bob")
    caller.recheck()


def test_an_administrator_writes_as_another_while_it_may(broker: Broker) -> None:
    caller = broker.caller("ada")
    caller.require_producer(TOPIC.uid, "etl@alice")
    caller.recheck()
    broker.access.now += GRANT_SECONDS + 1
    broker.access.leader_seen_at = broker.access.now
    broker.present(administers=False)
    with pytest.raises(PermissionDenied) as caught:
        caller.recheck()
    assert not isinstance(caught.value, GrantMissing)


def test_an_administrator_fences_the_producer_that_it_replaces(broker: Broker) -> None:
    old = broker.open("alice", "etl@alice")
    old.send(0, rows([b"a"]))
    old.wait_acked(0)
    new = broker.open("ada", "etl@alice", epoch=2)
    new.send(0, rows([b"b"]))
    new.wait_acked(0)
    old.send(1, rows([b"c"]))
    assert old.wait_reply("error").error.code == "ProducerFenced"
    for client in (old, new):
        client.close()


def test_the_leader_writes_with_ids_of_no_identity(broker: Broker) -> None:
    client = broker.open("leader-1", "an-app", Role.LEADER)
    client.send(0, rows([b"a"]))
    client.wait_acked(0)
    client.close()
    assert broker.claim("leader-1", role=Role.LEADER) == ("", 0)
    assert broker.claim("bob") == ("bob", 1), "an id that nobody known has claimed is the first one's that does"
