"""A stream whose caller may not go on ends by itself, and nothing that was acked is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from smq_broker.access.callers import OPEN_CALLER, Caller, OpenCaller
from smq_broker.producers import producer_lane
from smq_broker.segments.hosted_segment import HostedSegment
from smq_broker.streams.frame_spacing import FrameRate, FrameSpacing
from smq_broker.streams.tail import tail_frames
from smq_core.errors import Unauthenticated
from smq_proto.v1 import data_pb2 as pb
from smq_storage.object_store.store import open_store
from support.data.raw_flight import rows
from support.in_memory.broker_parts import BrokerParts, ProducerClient
from support.in_memory.flight_streams import CallContext
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD, eventually

TOPIC = make_topic()


class ExpiringCaller(OpenCaller):
    """May do everything until it has expired."""

    def __init__(self) -> None:
        self.check_at = float("inf")
        self.checks = 0

    def expire(self) -> None:
        self.check_at = 0.0

    def recheck(self) -> None:
        self.checks += 1
        raise Unauthenticated("the certificate has expired: connect again")


def replicated_segment(primarys_caller: Caller = OPEN_CALLER) -> tuple[BrokerParts, BrokerParts, HostedSegment]:
    """A primary, its follower, and their segment at the primary."""
    network: dict[str, BrokerParts] = {}
    store = open_store("memory://")
    primary, follower = BrokerParts("b1", store, network), BrokerParts("b2", store, network)
    segment = make_segment(TOPIC, primary.replica, follower.replica)
    follower.primaries_caller = primarys_caller
    follower.opener.open(TOPIC, segment)
    return primary, follower, primary.opener.open(TOPIC, segment)


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    with capture_logs():
        yield


@pytest.mark.parametrize("lane", [pb.LANE_SMALL, pb.LANE_BULK])
@pytest.mark.parametrize("sends", [True, False])
def test_a_lane_of_producers_ends_after_its_acks(lane: pb.Lane, sends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_lane, "HEARTBEAT_SECONDS", 0.01)
    broker, follower, hosted = replicated_segment()
    caller = ExpiringCaller()
    client = ProducerClient(broker, hosted, "p", lane, caller)
    client.send(0, rows([b"a"]))
    client.wait_acked(0)
    caller.expire()
    eventually(lambda: client.error is not None, what="the lane says why it ends")
    assert isinstance(client.error, Unauthenticated)
    eventually(lambda: not hosted.streams, what="its sessions are closed, although the client has not left")
    assert caller.checks == 1
    if sends:
        client.send(1, rows([b"b"]))
    else:
        client.close()
    assert client.stream.ended.wait(HANG_GUARD), "the handler has returned"
    assert hosted.machine.end == 1
    again = ProducerClient(broker, hosted, "p", lane)
    again.send(1, rows([b"b"]))
    again.wait_acked(1)
    assert hosted.machine.end == 2
    again.close()
    for it in (broker, follower):
        it.stop()


def test_a_tail_ends_at_the_next_frame_or_heartbeat() -> None:
    broker = BrokerParts("b1", open_store("memory://"))
    hosted = broker.opener.open(TOPIC, make_segment(TOPIC, broker.replica))
    caller = ExpiringCaller()
    frames = tail_frames(hosted, 0, CallContext(), FrameSpacing(FrameRate()), caller)
    assert next(frames)[0].num_rows == 0
    caller.expire()
    with pytest.raises(Unauthenticated):
        next(frames)
    broker.stop()


def test_a_primary_whose_certificate_has_expired_connects_again() -> None:
    expiring = ExpiringCaller()
    primary, follower, hosted = replicated_segment(expiring)
    client = ProducerClient(primary, hosted, "p")
    client.send(0, rows([b"a"]))
    client.wait_acked(0)
    follower.primaries_caller = OPEN_CALLER
    expiring.expire()
    client.send(1, rows([b"b"]))
    client.wait_acked(1)
    assert expiring.checks == 1
    assert follower.hosted(TOPIC, hosted.segment).machine.end == 2
    client.close()
    for broker in (primary, follower):
        broker.stop()
