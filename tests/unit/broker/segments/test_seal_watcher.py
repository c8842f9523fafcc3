"""A broker looks for seals that other processes wrote, where there is a reason to suspect one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from smq_broker.segments import seal_watcher
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.model.chunk_info import ChunkInfo
from smq_core.replica.segment_replica import ReplicaState
from smq_storage.object_store.store import open_store
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic

TOPIC = make_topic()
Suspect = Callable[[BrokerParts, HostedSegment], None]


def fence(_: BrokerParts, hosted: HostedSegment) -> None:
    with hosted as machine:
        machine.fence()


def assign_elsewhere(broker: BrokerParts, _: HostedSegment) -> None:
    broker.watcher.set_assigned_segments([])


def lose_the_primary(_: BrokerParts, hosted: HostedSegment) -> None:
    with hosted:
        hosted.primary_stream_opened()
        hosted.primary_stream_closed()


class FollowedSegment:
    """A follower's segment, and the names of the segments that its watcher queues."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seal_watcher, "INITIAL_CHECK_PAUSE_SECONDS", 0.0)
        self.broker = BrokerParts("b2", open_store("memory://"))
        primary = BrokerParts("b1", open_store("memory://"))
        segment = make_segment(TOPIC, primary.replica, self.broker.replica)
        self.hosted = self.broker.opener.open(TOPIC, segment)
        self.broker.watcher.set_assigned_segments([segment.name])
        self.queued: list[HostedSegment] = []
        enqueue = self.broker.watcher.enqueue

        def record(hosted: HostedSegment) -> None:
            self.queued.append(hosted)
            enqueue(hosted)

        monkeypatch.setattr(self.broker.watcher, "enqueue", record)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> FollowedSegment:
    return FollowedSegment(monkeypatch)


@pytest.mark.parametrize("suspect", [fence, assign_elsewhere, lose_the_primary])
def test_a_seal_that_another_process_wrote_is_found(followed: FollowedSegment, suspect: Suspect) -> None:
    suspect(followed.broker, followed.hosted)
    followed.broker.watcher.poll(0.0)
    assert followed.queued == [followed.hosted]
    followed.broker.watcher.check_next()
    assert followed.hosted.machine.state is not ReplicaState.SEALED, "there is no seal yet"

    seal = ChunkInfo(segment=followed.hosted.name, first=0, rows=0, writer="other", nonce="n", sealed=True)
    followed.hosted.chain.put_seal(seal)
    followed.broker.watcher.enqueue(followed.hosted)
    followed.broker.watcher.check_next()
    assert followed.hosted.machine.state is ReplicaState.SEALED
    del followed.queued[:]
    followed.broker.watcher.poll(0.0)
    assert followed.queued == [], "it is sealed"


def test_without_a_reason_the_filer_is_not_read(followed: FollowedSegment) -> None:
    with followed.hosted:
        followed.hosted.primary_stream_opened()
    followed.broker.watcher.poll(0.0)
    assert followed.queued == []


def test_a_check_that_fails_is_repeated(followed: FollowedSegment, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_the_primary(followed.broker, followed.hosted)

    def fail(_: object) -> None:
        raise ValueError("unexpected")

    with monkeypatch.context() as damaged:
        damaged.setattr(seal_watcher.ChainEnd, "sealed", fail)
        followed.broker.watcher.poll(0.0)
        followed.broker.watcher.check_next()
    assert followed.broker.metric("smq_thread_failures_total", thread="seal-check") == 1
    followed.broker.watcher.poll(60.0)
    assert len(followed.queued) == 2
