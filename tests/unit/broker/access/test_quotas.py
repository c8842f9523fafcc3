"""Streams of an identity with a quota wait, at this broker and for this topic and right; nobody else does.

A quota here is so low that it never frees anything by itself: what goes on does so because a newer grant says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from smq_broker.access.callers import OPEN_CALLER, UNLIMITED_STREAM, Caller
from smq_broker.producers import producer_lane, session_port
from smq_broker.streams import tail
from smq_broker.streams.frame_spacing import FrameRate, FrameSpacing
from smq_broker.streams.tail import Frame, tail_frames
from smq_core.access.broker_calls import PRODUCERS, TAIL
from smq_core.access.peers import Role
from smq_core.access.quotas import NO_QUOTA, Quota
from smq_core.access.rights import Right
from smq_core.errors import PermissionDenied, QuotaExceeded, Unauthenticated
from smq_core.model.reference import Reference
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts, ProducerClient
from support.in_memory.flight_streams import CallContext
from support.in_memory.secure_access import SecureBrokerAccess
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD, eventually

TOPIC = make_topic("travel/flights")
CRAWLING = Quota(bytes_per_second=1)
LARGE = bytes(100_000)  # for which it waits a day


class LimitedBroker:
    """A primary and its follower, with callers of a secure release."""

    def __init__(self) -> None:
        network: dict[str, BrokerParts] = {}
        store = open_store("memory://")
        self.parts, follower = BrokerParts("b1", store, network), BrokerParts("b2", store, network)
        segment = make_segment(TOPIC, self.parts.replica, follower.replica)
        follower.opener.open(TOPIC, segment)
        self.hosted = self.parts.opener.open(TOPIC, segment)
        self.access = SecureBrokerAccess(TOPIC)

    def caller(self, identity: str, call: str) -> Caller:
        caller = self.access.caller(name=identity, call=call)
        caller.require(TOPIC.uid)
        return caller

    def give(self, quota: Quota, identity: str = "ada", right: Right = Right.PRODUCE) -> None:
        """The leader's next grant, with this quota."""
        self.access.now += 1
        self.access.present(self.access.grant(right, identity, quota=quota), identity=identity)

    def produce(self, identity: str = "ada", lane: pb.Lane = pb.LANE_BULK) -> ProducerClient:
        return ProducerClient(self.parts, self.hosted, f"p@{identity}", lane, self.caller(identity, PRODUCERS))

    def read(self, caller: Caller) -> Iterator[Frame]:
        return tail_frames(self.hosted, 0, CallContext(), FrameSpacing(FrameRate()), caller)

    def throttled_seconds(self, right: str = "produce") -> float:
        labels = {"topic": TOPIC.name, "right": right}
        return self.access.metrics.registry.get_sample_value("smq_quota_throttled_seconds_total", labels) or 0.0

    def values(self) -> list[bytes]:
        values: list[bytes] = []
        for batch, header in self.read(OPEN_CALLER):
            values += batch.column("value").to_pylist()
            if pb.TailBatch.FromString(header).watermark == len(values):
                return values
        raise AssertionError("the tail has no end")


@pytest.fixture(params=[pb.LANE_SMALL, pb.LANE_BULK], ids=["small", "bulk"])
def lane(request: pytest.FixtureRequest) -> pb.Lane:
    found: pb.Lane = request.param
    return found


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[LimitedBroker]:
    monkeypatch.setattr(session_port, "CAPACITY_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(producer_lane, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(tail, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(tail, "CLIENT_CHECK_SECONDS", 0.01)
    with capture_logs():
        yield LimitedBroker()


def test_a_lane_is_not_read_while_its_quota_is_used_up_and_others_go_on(broker: LimitedBroker, lane: pb.Lane) -> None:
    broker.give(CRAWLING)
    broker.give(NO_QUOTA, "bob")
    slow, free = broker.produce(lane=lane), broker.produce("bob", lane)
    slow.send(0, rows([LARGE]))
    slow.wait_acked(0)
    for n in range(1, 4):
        slow.send(n, rows([b"%d" % n]))
    eventually(lambda: broker.throttled_seconds() > 0.05, what="it waits, and the metric says so")
    for n in range(20):
        free.send(n, rows([b"free"]))
    free.wait_acked(19)
    assert list(slow.acked) == [0] and broker.hosted.machine.end == 21
    broker.give(NO_QUOTA)
    slow.wait_acked(3)
    assert [it for it in broker.values() if it != b"free"] == [LARGE, b"1", b"2", b"3"], "in order, each once"
    slow.close()
    assert slow.stream.ended.wait(HANG_GUARD)


def test_a_reply_says_how_long_the_client_waits(broker: LimitedBroker) -> None:
    broker.give(Quota(messages_per_second=1))
    producer = broker.produce()
    producer.send(0, rows([b"a"] * 1000))
    eventually(lambda: producer.throttled > 0, what="a reply says so")
    assert 900 < producer.throttled / 1e6 <= 1000


def test_a_stream_to_which_the_leader_gives_a_quota_later_waits(broker: LimitedBroker) -> None:
    broker.give(NO_QUOTA)
    producer = broker.produce()
    producer.send(0, rows([b"a"]))
    producer.wait_acked(0)
    assert producer.throttled == 0 and broker.throttled_seconds() == 0
    broker.give(CRAWLING)
    former = broker.access.grant(Right.PRODUCE)
    broker.access.present(replace(former, expires_at=former.expires_at - 1))  # it has no quota, and is still good
    producer.send(1, rows([LARGE]))
    eventually(lambda: broker.throttled_seconds() > 0, what="the newest grant counts, not the last one that came")
    producer.send(2, rows([b"c"]))
    eventually(lambda: broker.throttled_seconds() > 0.1)
    assert 2 not in producer.acked


def test_the_streams_of_an_identity_share_its_quota_and_a_new_one_gains_nothing(broker: LimitedBroker) -> None:
    broker.give(CRAWLING)
    first = broker.produce()
    first.send(0, rows([LARGE]))
    first.wait_acked(0)
    first.stream.break_connection()
    assert first.stream.ended.wait(HANG_GUARD)
    again = broker.produce()
    again.send(1, rows([b"b"]))
    eventually(lambda: broker.throttled_seconds() > 0.05)
    assert not again.acked and broker.hosted.machine.end == 1


def test_a_reference_counts_for_the_bytes_of_its_file(broker: LimitedBroker) -> None:
    broker.give(Quota(bytes_per_second=1000))
    producer = broker.produce()
    reference = Reference(
        upload="u.parquet",
        etag="e",
        first_row=0,
        rows=7,
        bytes=1_000_000,
        partition_min=0,
        partition_max=0,
        timestamp_min=0,
        timestamp_max=0,
    )
    producer.publish(0, reference)
    eventually(lambda: producer.throttled > 0)
    assert 900 < producer.throttled / 1e6 <= 1000


def test_a_client_that_may_not_go_on_leaves_at_once_although_it_waits(broker: LimitedBroker, lane: pb.Lane) -> None:
    broker.give(CRAWLING)
    caller = broker.caller("ada", PRODUCERS)
    producer = ProducerClient(broker.parts, broker.hosted, "p@ada", lane, caller)
    producer.send(0, rows([LARGE]))
    producer.send(1, rows([b"b"]))
    eventually(lambda: broker.throttled_seconds() > 0)
    broker.access.now += 10_000
    caller.check_at = 0.0
    eventually(lambda: isinstance(producer.error, Unauthenticated), what="its certificate has expired")
    assert producer.stream.ended.wait(HANG_GUARD) and broker.hosted.machine.end == 1


def test_a_client_that_leaves_is_not_waited_for(broker: LimitedBroker) -> None:
    broker.give(CRAWLING)
    producer = broker.produce()
    producer.send(0, rows([LARGE]))
    producer.send(1, rows([b"b"]))
    eventually(lambda: broker.throttled_seconds() > 0)
    producer.stream.break_connection()
    assert producer.stream.ended.wait(HANG_GUARD) and broker.hosted.machine.end == 1


def frames_with_rows(frames: Iterator[Frame], count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        values += next(frames)[0].column("value").to_pylist()
    return values


def test_a_tail_pauses_before_its_next_batch_and_others_go_on(broker: LimitedBroker) -> None:
    broker.give(CRAWLING, right=Right.CONSUME)
    broker.give(NO_QUOTA, "bob", Right.CONSUME)
    producer = ProducerClient(broker.parts, broker.hosted, "p")
    producer.send(0, rows([LARGE]))
    producer.wait_acked(0)
    slow, free = broker.read(broker.caller("ada", TAIL)), broker.read(broker.caller("bob", TAIL))
    assert frames_with_rows(slow, 1) == frames_with_rows(free, 1) == [LARGE]
    producer.send(1, rows([b"b"]))
    producer.wait_acked(1)
    assert frames_with_rows(free, 1) == [b"b"]
    for _ in range(3):
        batch, _ = next(slow)
        assert batch.num_rows == 0, "heartbeats go on"
    assert broker.throttled_seconds("consume") > 0 and broker.throttled_seconds("produce") == 0
    broker.give(NO_QUOTA, right=Right.CONSUME)
    assert frames_with_rows(slow, 1) == [b"b"]


def test_streams_above_the_quota_are_refused_until_one_ends(broker: LimitedBroker) -> None:
    for right in (Right.PRODUCE, Right.CONSUME):
        broker.give(Quota(streams=1), right=right)
    for call, access in ((PRODUCERS, "produce"), (TAIL, "consume")):
        one = broker.caller("ada", call).open_stream(TOPIC.uid)
        with pytest.raises(QuotaExceeded, match=f"ada has used up its quota of streams to {access} travel/flights"):
            broker.caller("ada", call).open_stream(TOPIC.uid)
        one.close()
        broker.caller("ada", call).open_stream(TOPIC.uid).close()
    reads = broker.read(broker.caller("ada", TAIL))
    next(reads)
    with pytest.raises(QuotaExceeded):
        next(broker.read(broker.caller("ada", TAIL)))
    reads.close()  # type: ignore[attr-defined]
    next(broker.read(broker.caller("ada", TAIL)))


def test_leaders_and_callers_of_an_open_release_have_no_quota(broker: LimitedBroker) -> None:
    assert broker.access.caller(Role.LEADER, "l", PRODUCERS).open_stream(TOPIC.uid) is UNLIMITED_STREAM
    assert OPEN_CALLER.open_stream(TOPIC.uid) is UNLIMITED_STREAM
    producer = ProducerClient(broker.parts, broker.hosted, "p")
    producer.send(0, rows([b"a"] * 10))
    producer.wait_acked(0)
    assert producer.throttled == 0
    assert pb.ProducerFrameReply(throttled=0).SerializeToString() == b"", "nothing more is on the wire"


def test_a_quota_travels_in_the_grant_and_cannot_be_changed(broker: LimitedBroker) -> None:
    quota = Quota(bytes_per_second=1, messages_per_second=10**12, streams=3)
    for given in (quota, Quota(streams=1), NO_QUOTA):
        signed = broker.access.signer.sign(broker.access.grant(Right.PRODUCE, quota=given))
        assert broker.access.verifier.verify(signed).quota == given
    assert not pb.Grant.FromString(signed.grant).HasField("quota"), "without a quota a grant is what it was"
    generous = pb.Grant.FromString(broker.access.signer.sign(broker.access.grant(Right.PRODUCE, quota=quota)).grant)
    generous.quota.bytes_per_second = 10**9
    forged = broker.access.signer.sign(broker.access.grant(Right.PRODUCE, quota=quota))
    forged.grant = generous.SerializeToString()
    with pytest.raises(PermissionDenied, match="no leader of this release signed"):
        broker.access.caller(call="grants").present(pb.PresentGrants(grants=[forged]))
