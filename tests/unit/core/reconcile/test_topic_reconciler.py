"""One topic's leader: what it wants done, in which order, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smq_core.errors import Conflict, NotHosted, StoreStateUnknown, StoreUnavailable, Unreachable
from smq_core.model.entities import Durability, Liveness, Phase, Replica
from smq_core.model.layout_transitions import mark_deleted
from smq_core.model.segment_action import SegmentAction
from smq_core.model.segment_changes import SegmentChange
from smq_core.reconcile.answers import LayoutRead, LossAccepted, ReplicaFenced, ReplicaOpened, TailFlushed
from smq_core.reconcile.effects import AppendIndex, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.reconcile.seal_progress import RELEASE_DELAY, SUCCESSOR_HEAD_START
from smq_core.reconcile.topic_reconciler import (
    FOREIGN_BROKER_WARM_UP,
    OPEN_RETRY_DELAY,
    RESYNC_AFTER,
)
from smq_core.sealing.seal_coordinator import RequestSeal, SealFromFiler
from support.in_memory.reconciler import ReconcilerHarness, kinds


def test_it_reads_before_it_does_anything():
    harness = ReconcilerHarness()
    assert kinds(harness.step()) == ["ReadLayout"]
    assert harness.step() == [], "once at a time"
    harness.fail(ReadLayout(), StoreUnavailable(""))
    assert harness.step() == []
    assert kinds(harness.step(200_000)) == ["ReadLayout"]


def test_a_new_topic_is_created_and_opened():
    harness = ReconcilerHarness(min_segments=2)
    effects = harness.run()
    assert kinds(effects) == ["ReadLayout", "PutLayout", *["OpenReplica"] * 4]
    put = effects[1]
    assert isinstance(put, PutLayout) and put.etag is None and len(put.layout.segments) == 2
    assert [d.action for d in harness.leader.decisions] == ["create"]


def test_no_topic_is_created_without_brokers():
    harness = ReconcilerHarness(brokers=0)
    harness.answer(harness.step())
    assert harness.step() == []


def test_a_new_leader_waits_for_replicas_a_while():
    harness = ReconcilerHarness(brokers=1)
    harness.leader.warm_up_until = harness.now + 1_000_000
    harness.answer(harness.step())
    assert harness.step() == []
    (put,) = harness.step(1_000_000)
    assert isinstance(put, PutLayout) and put.layout.segments[0].durability is Durability.STORED


def test_a_roll_goes_through_every_step_in_order():
    harness = ReconcilerHarness().begun()
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    effects = harness.run()
    order = kinds(effects)
    assert order[0] == "PutLayout"
    assert order.index("OpenReplica") < order.index("RequestSeal") < order.index("AppendIndex")
    assert order.index("AppendIndex") < len(order) - 1 - order[::-1].index("PutLayout")
    assert "FlushAhead" in order
    (segment,) = harness.layout.segments
    assert segment.phase is Phase.OPEN and segment.predecessors == ("t-0-16-0",)
    entry = next(e for e in effects if isinstance(e, AppendIndex)).entries[0]
    assert (entry.name, entry.end, entry.successors) == ("t-0-16-0", 5, (segment.name,))


def test_the_layout_lets_nothing_go_before_the_index_has_it():
    harness = ReconcilerHarness().begun()
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    for _ in range(6):
        effects = harness.step()
        harness.answer([e for e in effects if not isinstance(e, AppendIndex)])
    assert "t-0-16-0" in harness.layout
    harness.fail(AppendIndex(()), StoreUnavailable(""))
    assert not [e for e in harness.step() if isinstance(e, AppendIndex)], "after a pause"
    harness.answer(harness.step(300_000))
    harness.run()
    assert "t-0-16-0" not in harness.layout


def test_successors_open_before_the_seal_begins_within_a_short_timeout():
    harness = ReconcilerHarness().begun()
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    harness.answer(harness.step())
    effects = harness.step()
    assert set(kinds(effects)) == {"OpenReplica", "FlushAhead"}
    assert harness.step() == []
    assert kinds(harness.step(SUCCESSOR_HEAD_START)) == ["RequestSeal"]


def test_merged_segments_are_fenced_when_the_tails_of_all_are_written():
    harness = ReconcilerHarness(min_segments=2).begun()
    harness.request(SegmentAction.MERGE, "t-0-8-0", "t-8-16-1")
    harness.answer(harness.step())
    effects = harness.step()
    harness.answer([e for e in effects if isinstance(e, OpenReplica)])
    assert kinds(effects).count("FlushAhead") == 2
    assert harness.step() == []
    harness.handle(TailFlushed("t-0-8-0"))
    assert harness.step() == [], "the other one still writes"
    harness.handle(TailFlushed("t-8-16-1"))
    assert kinds(harness.step()) == ["RequestSeal", "RequestSeal"]


def test_a_merge_waits_for_unresponsive_producers_only_briefly():
    harness = ReconcilerHarness(min_segments=2).begun()
    harness.request(SegmentAction.MERGE, "t-0-8-0", "t-8-16-1")
    harness.answer(harness.step())
    harness.answer([e for e in harness.step() if isinstance(e, OpenReplica)])
    harness.handle(TailFlushed("t-0-8-0"))
    assert kinds(harness.step(SUCCESSOR_HEAD_START)) == ["RequestSeal", "RequestSeal"]


def test_writers_go_on_before_anything_else_is_done_about_a_seal():
    harness = ReconcilerHarness().begun()
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    for _ in range(3):
        harness.answer(harness.step())
    assert harness.leader.outcome("t-0-16-0") is not None
    assert harness.step() == [] and harness.step(RELEASE_DELAY - 1) == []
    assert set(kinds(harness.step(1))) == {"RequestSeal", "AppendIndex"}


def test_a_failover_sends_no_request_to_the_dead():
    harness = ReconcilerHarness().begun()
    dead = harness.layout.segments[0].primary
    harness.lose(dead.incarnation)
    effects = harness.run()
    requested = [e.replica for e in effects if isinstance(e, RequestSeal)]
    assert requested and dead not in requested
    assert not [e for e in effects if isinstance(e, FlushAhead)], "the primary is gone"
    assert dead not in harness.layout.segments[0].replicas


def test_all_replicas_gone_is_sealed_from_the_filer_with_what_is_known():
    harness = ReconcilerHarness(brokers=4).begun()
    harness.leader.observe_watermark("t-0-16-0", 42)
    for replica in harness.layout.segments[0].replicas:
        harness.lose(replica.incarnation)
    effects = harness.run()
    assert SealFromFiler("t-0-16-0", 42, at_least=True) in effects


def test_a_blocked_seal_is_reported_and_continues_when_the_loss_is_accepted():
    harness = ReconcilerHarness(brokers=4).begun()
    for replica in harness.layout.segments[0].replicas:
        harness.lose(replica.incarnation, Liveness.SUSPECT)
    for _ in range(5):
        harness.answer([e for e in harness.step() if not isinstance(e, RequestSeal)])
    assert set(harness.leader.blocked["t-0-16-0"].waiting_for) == {"i0", "i1"}
    harness.handle(LossAccepted("t-0-16-0"))
    harness.run()
    assert not harness.leader.blocked and "t-0-16-0" not in harness.layout
    with pytest.raises(ValueError, match="nothing is not being sealed: there is no loss to accept"):
        harness.handle(LossAccepted("nothing"))


def blocked(harness: ReconcilerHarness) -> ReconcilerHarness:
    """Both replicas of its segment are silent, and neither is proved gone."""
    for replica in harness.layout.segments[0].replicas:
        harness.lose(replica.incarnation, Liveness.SUSPECT)
    for _ in range(5):
        harness.answer([e for e in harness.step() if not isinstance(e, RequestSeal)])
    assert harness.leader.blocked
    return harness


def test_an_accepted_loss_is_written_down_before_anything_is_given_up():
    harness = blocked(ReconcilerHarness(brokers=4).begun())
    harness.handle(LossAccepted("t-0-16-0"))
    (put,) = harness.step()
    assert isinstance(put, PutLayout) and put.layout.segment("t-0-16-0").loss_accepted
    assert not any(s.loss_accepted for s in put.layout.segments if s.name != "t-0-16-0")
    assert not harness.step(), "nothing happens before it is stored"
    harness.put(put)
    assert SealFromFiler("t-0-16-0", None, at_least=True) in harness.step()
    assert [d.action for d in harness.leader.decisions].count("accept loss") == 1


def test_a_put_that_is_lost_does_not_lose_the_acceptance():
    harness = blocked(ReconcilerHarness(brokers=4).begun())
    harness.handle(LossAccepted("t-0-16-0"))
    (put,) = harness.step()
    assert isinstance(put, PutLayout)
    harness.fail(put, Conflict(""))
    harness.run()
    assert "t-0-16-0" not in harness.layout


def test_the_next_leader_knows_of_an_accepted_loss():
    old = blocked(ReconcilerHarness(brokers=4).begun())
    old.handle(LossAccepted("t-0-16-0"))
    (put,) = old.step()
    assert isinstance(put, PutLayout)
    harness = ReconcilerHarness(brokers=4)
    harness.stored, harness.etag, harness.brokers = put.layout, old.etag + 1, old.brokers
    effects = harness.run()
    assert SealFromFiler("t-0-16-0", None, at_least=True) in effects and "t-0-16-0" not in harness.layout


def test_the_next_leader_reports_a_loss_it_did_not_observe():
    old = blocked(ReconcilerHarness(brokers=4).begun())
    old.leader.observe_watermark("t-0-16-0", 42)
    old.handle(LossAccepted("t-0-16-0"))
    (put,) = old.step()
    assert isinstance(put, PutLayout)
    harness = ReconcilerHarness(brokers=4)
    harness.stored, harness.etag, harness.brokers = put.layout, old.etag + 1, old.brokers
    assert SealFromFiler("t-0-16-0", 42, at_least=True) in harness.run()


def test_a_new_leader_decides_nothing_before_the_replicas_reported():
    old = ReconcilerHarness().begun()
    harness = ReconcilerHarness()
    harness.stored, harness.etag = old.stored, old.etag
    harness.leader.warm_up_until = harness.now + 1_000_000
    reported = harness.brokers
    harness.brokers = {"i2": reported["i2"]}
    harness.answer(harness.step())
    assert not [e for e in harness.step() if isinstance(e, PutLayout)]
    harness.brokers = reported
    assert not [e for e in harness.run() if isinstance(e, PutLayout)], "all is well"


def test_a_new_leader_acts_at_once_when_it_knows_who_is_gone():
    old = ReconcilerHarness().begun()
    harness = ReconcilerHarness()
    harness.stored, harness.etag = old.stored, old.etag
    harness.leader.warm_up_until = harness.now + 60_000_000
    harness.lose("i0")
    harness.run()
    assert all(r.incarnation != "i0" for s in harness.layout.segments for r in s.replicas)


def test_a_lost_put_is_thought_over_from_what_is_there():
    harness = ReconcilerHarness().begun()
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    (put,) = harness.step()
    assert isinstance(put, PutLayout)
    harness.fail(put, Conflict(""))
    waiting = harness.leader.requests.waiting
    assert waiting == [SegmentChange(SegmentAction.ROLL, ("t-0-16-0",))], "what a person asked for is not forgotten"
    assert kinds(harness.step()) == ["ReadLayout"]
    harness.answer([ReadLayout()])
    harness.run()
    assert harness.layout.segments[0].name == "t-0-16-1"


def test_a_request_is_pending_until_the_layout_has_it():
    harness = ReconcilerHarness().begun()
    roll = harness.request(SegmentAction.ROLL, "t-0-16-0")
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    assert harness.leader.requests.waiting == [roll], "a repeated request changes nothing"
    with pytest.raises(ValueError, match="another request for t-0-16-0 is pending already"):
        harness.request(SegmentAction.SPLIT, "t-0-16-0")
    (put,) = harness.step()
    assert isinstance(put, PutLayout) and harness.leader.requests.is_pending(roll)
    with pytest.raises(ValueError, match="t-0-16-0 is sealing"):
        harness.request(SegmentAction.SPLIT, "t-0-16-0")
    harness.put(put)
    assert not harness.leader.requests.is_pending(roll) and not harness.leader.requests.rejected


def test_a_superseded_request_is_dropped_with_a_reason():
    harness = ReconcilerHarness().begun()
    other = ReconcilerHarness()
    other.stored, other.etag = harness.stored, harness.etag
    other.begun().request(SegmentAction.ROLL, "t-0-16-0")
    other.run()
    split = harness.request(SegmentAction.SPLIT, "t-0-16-0")
    (put,) = harness.step()
    harness.stored, harness.etag = other.stored, other.etag
    harness.fail(put, Conflict(""))
    assert harness.leader.requests.is_pending(split)
    harness.run()
    assert not harness.leader.requests.is_pending(split)
    assert "no open segment 't-0-16-0'" in harness.leader.requests.rejected[split]
    (decision,) = [d for d in harness.leader.decisions if d.action == "refused"]
    assert decision.segments == split.segments and "the manual split is no longer possible" in decision.reason


def test_an_unclear_put_that_was_applied_is_found_when_it_is_read():
    harness = ReconcilerHarness().begun()
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    (put,) = harness.step()
    assert isinstance(put, PutLayout)
    harness.stored, harness.etag = put.layout, 99
    harness.fail(put, StoreStateUnknown(""))
    assert harness.step() == []
    harness.answer(harness.step(200_000))
    harness.run()
    assert len(harness.layout.segments) == 1 and harness.layout.segments[0].name == "t-0-16-1"


def test_a_layout_older_than_the_known_one_is_passed_over():
    harness = ReconcilerHarness().begun()
    old = harness.stored
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    harness.run()
    version = harness.layout.version
    assert old is not None
    harness.handle(LayoutRead(old, "1"))
    assert harness.layout.version == version


def test_the_layout_is_read_again_now_and_then():
    harness = ReconcilerHarness().begun()
    assert harness.step() == []
    assert kinds(harness.step(RESYNC_AFTER)) == ["ReadLayout"]


def test_a_layout_of_another_leader_is_found_while_every_broker_drains():
    """The drains wait for this leader, and it cannot create a layout that would show it that there is one."""
    other = ReconcilerHarness().begun()
    harness = ReconcilerHarness()
    harness.answer(harness.step())
    harness.brokers = {i: replace(broker, draining=True) for i, broker in harness.brokers.items()}
    harness.stored, harness.etag = other.stored, other.etag
    assert harness.step() == []
    effects = harness.step(RESYNC_AFTER)
    assert kinds(effects) == ["ReadLayout"] and harness.step() == [], "once at a time"
    harness.answer(effects)
    assert harness.layout == other.layout


def test_a_layout_that_is_created_is_not_lost_to_a_read_that_began_before():
    harness = ReconcilerHarness()
    harness.answer(harness.step())
    read, put = harness.step(RESYNC_AFTER)
    assert isinstance(read, ReadLayout) and isinstance(put, PutLayout)
    harness.put(put)
    harness.handle(LayoutRead(None, None))
    assert harness.layout == put.layout


def test_an_open_that_failed_is_repeated_and_one_that_was_refused_is_not():
    harness = ReconcilerHarness()
    harness.answer(harness.step())
    harness.answer(harness.step())
    first, second = harness.step()
    assert isinstance(first, OpenReplica) and isinstance(second, OpenReplica)
    harness.fail(first, Unreachable(""))
    harness.handle(ReplicaOpened("t-0-16-0", second.replica.incarnation))
    assert harness.step() == []
    assert harness.step(OPEN_RETRY_DELAY) == [first]
    harness.fail(first, NotHosted(""))
    (put,) = harness.step()
    assert isinstance(put, PutLayout)
    assert first.replica not in put.layout.segments[-1].replicas


def test_a_segment_that_its_broker_fenced_moves_elsewhere():
    harness = ReconcilerHarness(replicas=2).begun()
    (segment,) = harness.layout.segments
    broken = segment.primary
    assert not harness.leader.has_refused(segment.name, broken.incarnation)
    harness.handle(ReplicaFenced(segment.name, broken.incarnation))
    assert harness.leader.has_refused(segment.name, broken.incarnation)
    harness.run()
    (successor,) = (s for s in harness.layout.segments if not s.successors)
    assert successor.name != segment.name and broken not in successor.replicas


def test_a_broker_that_refuses_everything_does_not_make_segments_without_end():
    """It is believed in, and there are no more brokers than replicas."""
    harness = ReconcilerHarness(replicas=3)
    puts = []
    for _ in range(3_000):
        effects = harness.step(1000)
        puts += [harness.now for e in effects if isinstance(e, PutLayout)]
        for effect in effects:
            if isinstance(effect, OpenReplica) and effect.replica.incarnation == "i2":
                harness.fail(effect, NotHosted(""))
            else:
                harness.answer([effect])
    assert 8 <= len(puts) <= 30
    (at_last,) = (s for s in harness.layout.segments if not s.successors)
    assert {r.incarnation for r in at_last.replicas} == {"i0", "i1"}
    harness.now += 2_000_000
    harness.run()
    assert len(harness.layout.segments[-1].replicas) == 3, "it is tried again, and opens"


def test_a_leader_that_lost_to_one_with_more_brokers_leaves_its_layout_alone_at_first():
    harness = ReconcilerHarness().begun()
    (segment,) = harness.layout.segments
    new = Replica("b1", "new", "h:9")
    moved = replace(segment, replicas=(segment.replicas[0], new))
    harness.stored = replace(harness.layout, version=harness.layout.version + 1, segments=(moved,))
    harness.etag += 1
    harness.fail(PutLayout(harness.layout, "old"), Conflict(""))
    began = harness.now
    while harness.now < began + FOREIGN_BROKER_WARM_UP - 10_000:
        effects = harness.step(100_000)
        assert not any(isinstance(e, PutLayout) for e in effects), "it may report here in a moment"
        harness.answer(effects)
    (put,) = (e for _ in range(10) for e in harness.step(100_000) if isinstance(e, PutLayout))
    assert put.layout.segment(segment.name).sealed_because.value == "Failover"


def test_a_report_replaces_a_status_call():
    old = ReconcilerHarness().begun()
    harness = ReconcilerHarness()
    harness.stored, harness.etag = old.stored, old.etag
    harness.answer(harness.step())
    for replica in harness.layout.segments[0].replicas:
        harness.handle(ReplicaOpened("t-0-16-0", replica.incarnation))
    assert harness.leader.has_opened("t-0-16-0", "i0")
    assert harness.step() == []


def test_every_replica_is_notified_of_the_seal_once():
    harness = ReconcilerHarness().begun()
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    requested = [e.replica.incarnation for e in harness.run() if isinstance(e, RequestSeal)]
    assert requested[0] == "i0" and sorted(requested[1:]) == ["i0", "i1"]


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_dead_broker_leaves_every_segment(replicas):
    harness = ReconcilerHarness(brokers=4, replicas=replicas, min_segments=4).begun()
    harness.lose("i1")
    harness.run(60)
    assert all(len(s.replicas) == replicas for s in harness.layout.segments)
    assert all(r.incarnation != "i1" for s in harness.layout.segments for r in s.replicas)


def test_a_broker_that_dies_while_its_segment_is_pending_is_replaced():
    harness = ReconcilerHarness(brokers=5).begun()
    harness.request(SegmentAction.MOVE, "t-0-16-0")
    harness.answer(harness.step())
    pending = next(s for s in harness.layout.segments if s.phase is Phase.PENDING)
    harness.lose(pending.primary.incarnation)
    harness.run(60)
    (segment,) = harness.layout.segments
    assert segment.phase is Phase.OPEN and segment.predecessors == (pending.name,)


def test_a_layout_that_has_ended_is_left_alone():
    harness = ReconcilerHarness().begun()
    harness.request(SegmentAction.ROLL, "t-0-16-0")
    (put,) = harness.step()
    harness.stored, harness.etag = mark_deleted(harness.layout, writer="e"), 99
    assert isinstance(put, PutLayout) and harness.stored.version == put.layout.version
    harness.fail(put, Conflict(""))
    harness.answer(harness.step())
    harness.lose("i0")
    assert harness.layout.deleted and not harness.step() and not harness.step(RESYNC_AFTER + 1)
