"""Brokers that die, stop or are drained, under a real leader: nothing acked is lost, and segments go elsewhere."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from smq_core.errors import InvalidRequest
from smq_core.model.loss import Loss
from smq_proto.v1 import admin_pb2
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import loss_from_pb
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from support.data.segment_writer import sealed_segments, write
from support.processes.leader import LeaderProcess, manifest, watching
from support.processes.seaweed import Seaweed
from support.waiting import eventually

pytestmark = pytest.mark.integration


_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, seaweed: Seaweed) -> Iterator[LeaderProcess]:
    """A leader and three brokers for tests that let them run; each takes its own topic."""
    folder = tmp_path_factory.mktemp("shared")
    started = LeaderProcess(folder, seaweed.settings(f"failover-{folder.name}"), brokers=3).start()
    try:
        started.wait_for_brokers()
        yield started
    finally:
        started.stop()


@pytest.fixture
def topic() -> str:
    return f"t{next(_numbers)}"


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_topic_gets_segments_with_replicas_on_different_brokers(leader):
    assert leader.apply(manifest(segments={"min": 3, "max": 8})).result == admin_pb2.ApplyTopicReply.CREATED
    segments = leader.wait_until_open()
    assert [(s.start, s.stop) for s in sorted(segments, key=lambda s: s.start)] == [(0, 21), (21, 42), (42, 64)]
    assert all(len({r.broker for r in s.replicas}) == 2 for s in segments)
    assert len({r.broker for s in segments for r in s.replicas}) == 3, "no broker is left idle"
    assert leader.apply(manifest(segments={"min": 3, "max": 8})).result == admin_pb2.ApplyTopicReply.UNCHANGED


@pytest.mark.parametrize("rank", [0, 1], ids=["primary", "follower"])
def test_a_killed_broker_loses_nothing_that_was_acked(leader, rank):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    producer = write(leader.locate(), segment, 100)
    dead = leader.kill_broker(segment.replicas[rank].broker)
    (successor,) = leader.wait_until_open(without=dead)
    assert successor.predecessors == [segment.name]
    entry = sealed_segments(leader, segment.name)
    assert (entry.end, entry.sealed_because) == (100, pb.REASON_FAILOVER)
    assert entry.bytes > 0
    assert not entry.HasField("lost")
    if rank == 1:
        assert producer.wait_sealed().end == 100
    producer.close()
    write(leader.locate(), successor, 5).close()
    again = eventually(lambda: leader.alive()[segment.replicas[rank].broker])
    assert again != dead, "it runs again under its name, as another incarnation"


@pytest.mark.slow
def test_all_replicas_killed_at_once_without_journals_are_proved_gone_and_the_loss_is_reported(new_leader):
    leader = new_leader("--no-journal").start()
    leader.wait_for_brokers()
    leader.apply(manifest(flush={"bytes": "1Gi", "interval": "1h"}))
    (segment,) = leader.wait_until_open()
    producer = write(leader.locate(), segment, 50)
    eventually(lambda: known_watermark(leader, segment.name) == 50, what="the brokers have reported all 50 messages")
    for replica in segment.replicas:
        leader.kill_broker(replica.broker)
    entry = sealed_segments(leader, segment.name)
    assert (entry.end, loss_from_pb(entry.lost)) == (0, Loss(0, 50, at_least=True))
    loss = leader.condition("t", "DataLoss")
    assert loss.status == "True" and f"{segment.name}: offsets 0 to at least 50" in loss.message
    leader.wait_until_open(without=segment.replicas[0].incarnation)
    with contextlib.suppress(Exception):
        producer.close()


def known_watermark(leader: LeaderProcess, segment: str) -> int:
    return max(s.watermark for b in leader.brokers() for s in b.status.segments if s.segment == segment)


@pytest.mark.parametrize("rank", [0, 1], ids=["primary", "follower"])
def test_segments_leave_a_paused_broker(leader, rank):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    write(leader.locate(), segment, 10).close()
    replica = segment.replicas[rank]
    with stopped(leader.pid(replica.broker)):
        (successor,) = leader.wait_until_open(without=replica.incarnation)
        assert sealed_segments(leader, segment.name).end == 10
        write(leader.locate(), successor, 3).close()
        state = next(b.state for b in leader.brokers() if b.incarnation == replica.incarnation)
        assert state == admin_pb2.BrokerList.Broker.SUSPECT
    eventually(
        lambda: leader.alive()[replica.broker] == replica.incarnation, what="it is the same process, alive again"
    )


@pytest.mark.slow
def test_unreachable_is_not_gone(leader):
    leader.apply(manifest(flush={"bytes": "1Gi", "interval": "1h"}))
    (segment,) = leader.wait_until_open()
    producer = write(leader.locate(), segment, 10)
    with stopped(*(leader.pid(r.broker) for r in segment.replicas)):
        eventually(lambda: leader.condition("t", "SealBlocked").status == "True", what="the seal is blocked")
        assert segment.name in leader.condition("t", "SealBlocked").message
        assert not leader.history()
    assert sealed_segments(leader, segment.name).end == 10, "with its replicas back, nothing is lost"
    eventually(lambda: leader.condition("t", "SealBlocked").status == "False")
    producer.close()


def test_a_loss_can_be_accepted_manually(leader):
    leader.apply(manifest(flush={"bytes": "1Gi", "interval": "1h"}))
    (segment,) = leader.wait_until_open()
    write(leader.locate(), segment, 10).close()
    wrong = admin_pb2.AcceptLossRequest(topic="t", segment=segment.name)
    with pytest.raises(InvalidRequest, match="not being sealed"):
        leader.call("AcceptLoss", wrong)
    with stopped(*(leader.pid(r.broker) for r in segment.replicas)):
        eventually(lambda: leader.condition("t", "SealBlocked").status == "True")
        leader.call("AcceptLoss", admin_pb2.AcceptLossRequest(topic="t", segment=segment.name))
        entry = sealed_segments(leader, segment.name)
    assert entry.end == 0


def test_a_stored_topic_needs_no_proof(leader, store: Store):
    leader.apply(manifest(durability="Stored"))
    (segment,) = leader.wait_until_open()
    assert len(segment.replicas) == 1
    write(leader.locate(), segment, 10).close()
    replica = segment.replicas[0]
    with stopped(leader.pid(replica.broker)):
        leader.wait_until_open(without=replica.incarnation)
        entry = sealed_segments(leader, segment.name)
        assert entry.end == 10
        uid = leader.locate().topic.uid
        seal = ChunkChain(store, "default/t", uid, segment.name).read_seal_chunk()
        assert seal is not None and seal.writer.startswith("leader-")


def test_a_drained_broker_gives_up_its_segments_and_takes_no_new_ones(leader):
    leader.apply(manifest(segments={"min": 4, "max": 8}))
    before = leader.wait_until_open()
    name = before[0].replicas[0].broker
    incarnation = leader.alive()[name]
    leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker=name))
    after = leader.wait_until_open(without=incarnation)
    assert {s.name for s in after} - {s.name for s in before}
    assert all(s.sealed_because == pb.REASON_DRAIN for s in leader.history())
    state = next(b for b in leader.brokers() if b.incarnation == incarnation)
    assert state.state == admin_pb2.BrokerList.Broker.DRAINING and state.status.draining
    with pytest.raises(InvalidRequest, match="there is no broker nobody"):
        leader.call("DrainBroker", admin_pb2.DrainBrokerRequest(broker="nobody"))


def test_a_terminated_broker_leaves_without_a_failover(leader):
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    producer = write(leader.locate(), segment, 20)
    name = segment.replicas[0].broker
    os.kill(leader.pid(name), signal.SIGTERM)
    leader.wait_until_open(without=segment.replicas[0].incarnation)
    entry = sealed_segments(leader, segment.name)
    assert (entry.end, entry.sealed_because) == (20, pb.REASON_DRAIN)
    assert producer.wait_sealed().end == 20, "the producer heard how it ended before the broker left"
    producer.close()
    eventually(lambda: leader.alive()[name] != segment.replicas[0].incarnation, what="it runs again")


@pytest.mark.parametrize(
    ("action", "boundaries", "ranges"),
    [
        ("split", [], [(0, 32), (32, 64)]),
        ("split", [10, 20], [(0, 10), (10, 20), (20, 64)]),
        ("roll", [], [(0, 64)]),
        ("move", [], [(0, 64)]),
    ],
)
def test_manual_requests_are_carried_out(shared, topic, action, boundaries, ranges):
    shared.apply(manifest(topic))
    (segment,) = shared.wait_until_open(topic)
    short = segment.name.rpartition("-")[0]
    shared.call(
        "ChangeSegments",
        admin_pb2.ChangeSegmentsRequest(topic=topic, action=action.upper(), segments=[short], boundaries=boundaries),
    )
    after = eventually(lambda: [s for s in shared.wait_until_open(topic) if s.name != segment.name])
    assert sorted((s.start, s.stop) for s in after) == ranges
    if action == "move":
        assert after[0].replicas[0].broker != segment.replicas[0].broker
    decisions = shared.call("ListDecisions", admin_pb2.ListDecisionsRequest())
    assert isinstance(decisions, admin_pb2.DecisionList)
    assert [d.reason for d in decisions.decisions if d.topic == f"default/{topic}"][-1] == f"manual {action}"


def test_watchers_receive_every_change(shared, topic):
    shared.apply(manifest(topic))
    (segment,) = shared.wait_until_open(topic)
    with contextlib.ExitStack() as stack:
        watchers = [stack.enter_context(watching(shared, topic)) for _ in range(100)]
        eventually(lambda: all(replies() for replies in watchers), what="each watcher receives the current layout")
        shared.call(
            "ChangeSegments", admin_pb2.ChangeSegmentsRequest(topic=topic, action="SPLIT", segments=[segment.name])
        )
        shared.wait_until_open(topic)
        version = shared.locate(topic).layout.version
        eventually(
            lambda: all(replies()[-1].layout.version == version for replies in watchers),
            what="all receive the last layout",
        )


@pytest.mark.slow
def test_too_few_brokers_for_replicas_write_to_the_filer_and_change_when_there_are_more(
    new_leader: Callable[..., LeaderProcess],
):
    leader = new_leader(brokers=1).start()
    leader.apply(manifest())
    (segment,) = leader.wait_until_open()
    assert segment.durability == pb.DURABILITY_STORED
    assert leader.condition("t", "Balanced").reason == "DurabilityDegraded"
    assert leader.terminate() == 0
    more = new_leader(brokers=3).start()
    more.wait_for_brokers()

    def replicated() -> bool:
        return [len(s.replicas) for s in more.wait_until_open()] == [2]

    eventually(replicated, what="the segment got its replicas")
