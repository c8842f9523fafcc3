"""One topic's leader: what it wants done, in which order, and what it makes of the answers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from smq_core.decide import Request
from smq_core.effects import AppendIndex, Effect, FlushAhead, OpenReplica, PutLayout, ReadLayout
from smq_core.layout import end
from smq_core.leading import (
    HEAD_START,
    RESYNC_AFTER,
    RETRY_OPEN_AFTER,
    STRANGERS_REPORT_WITHIN,
    WRITERS_FIRST,
    TopicLeader,
)
from smq_core.model import Durability, Layout, Phase, Replica, SealOutcome, Topic, TopicSpec
from smq_core.placement import BrokerView
from smq_core.sealing import AskReplica, Liveness, SealFromFiler


class Scene:
    """A leader with three brokers; ``now`` advances by a millisecond at each step."""

    def __init__(self, brokers: int = 3, **spec: object) -> None:
        self.count = itertools.count()
        topic = Topic("default/t", "uid", TopicSpec(**({"partitions": 16} | spec)))  # type: ignore[arg-type]
        self.leader = TopicLeader(topic, unique=lambda: f"w{next(self.count)}")
        self.brokers = {f"i{i}": BrokerView(Replica(f"b{i}", f"i{i}", f"h:{i}")) for i in range(brokers)}
        self.stored: Layout | None = None
        self.etag = 0
        self.now = 1_000_000

    def step(self, passed: int = 1000) -> list[Effect]:
        self.now += passed
        return self.leader.step(self.now, self.brokers)

    def put(self, effect: PutLayout) -> None:
        self.stored, self.etag = effect.layout, self.etag + 1
        self.leader.layout_put(effect.layout, str(self.etag))

    def answer(self, effects: list[Effect]) -> None:
        """Everything that is asked for is done."""
        for effect in effects:
            match effect:
                case ReadLayout():
                    self.leader.layout_read((self.stored, str(self.etag)) if self.stored else None)
                case PutLayout():
                    self.put(effect)
                case OpenReplica():
                    self.leader.opened(effect.segment.name, effect.replica.incarnation)
                case FlushAhead():
                    self.leader.flushed(effect.segment.name)
                case AskReplica() | SealFromFiler():
                    self.leader.sealed(SealOutcome(effect.segment, 5))
                case AppendIndex():
                    self.leader.indexed([entry.name for entry in effect.entries])

    def run(self, rounds: int = 20) -> list[Effect]:
        """Steps with answers until nothing is wanted; returns all effects."""
        found: list[Effect] = []
        for _ in range(rounds):
            effects = self.step() or self.step(WRITERS_FIRST)
            if not effects:
                return found
            found += effects
            self.answer(effects)
        raise AssertionError(f"it never comes to rest: {found[-5:]}")

    def begun(self) -> Scene:
        self.run()
        return self

    def lose(self, name: str, how: Liveness = Liveness.GONE) -> None:
        self.brokers[name] = replace(self.brokers[name], liveness=how)

    @property
    def layout(self) -> Layout:
        assert self.leader.layout is not None
        return self.leader.layout


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_it_reads_before_it_does_anything():
    scene = Scene()
    assert kinds(scene.step()) == ["ReadLayout"]
    assert scene.step() == [], "once at a time"
    scene.leader.read_failed(scene.now)
    assert scene.step() == []
    assert kinds(scene.step(200_000)) == ["ReadLayout"]


def test_a_new_topic_is_created_and_opened():
    scene = Scene(min_segments=2)
    effects = scene.run()
    assert kinds(effects) == ["ReadLayout", "PutLayout", *["OpenReplica"] * 4]
    put = effects[1]
    assert isinstance(put, PutLayout) and put.etag is None and len(put.layout.segments) == 2
    assert [d.action for d in scene.leader.decisions] == ["create"]


def test_no_topic_is_created_without_brokers():
    scene = Scene(brokers=0)
    scene.answer(scene.step())
    assert scene.step() == []


def test_a_new_leader_waits_for_replicas_a_while():
    scene = Scene(brokers=1)
    scene.leader.settles_at = scene.now + 1_000_000
    scene.answer(scene.step())
    assert scene.step() == []
    (put,) = scene.step(1_000_000)
    assert isinstance(put, PutLayout) and put.layout.segments[0].durability is Durability.STORED


def test_a_roll_goes_through_every_step_in_order():
    scene = Scene().begun()
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    effects = scene.run()
    order = kinds(effects)
    assert order[0] == "PutLayout"
    assert order.index("OpenReplica") < order.index("AskReplica") < order.index("AppendIndex")
    assert order.index("AppendIndex") < len(order) - 1 - order[::-1].index("PutLayout")
    assert "FlushAhead" in order
    (segment,) = scene.layout.segments
    assert segment.phase is Phase.OPEN and segment.predecessors == ("t-0-16-0",)
    entry = next(e for e in effects if isinstance(e, AppendIndex)).entries[0]
    assert (entry.name, entry.end, entry.successors) == ("t-0-16-0", 5, (segment.name,))


def test_the_layout_lets_nothing_go_before_the_index_has_it():
    scene = Scene().begun()
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    for _ in range(6):
        effects = scene.step()
        scene.answer([e for e in effects if not isinstance(e, AppendIndex)])
    assert "t-0-16-0" in scene.layout
    scene.leader.index_failed(scene.now)
    assert not [e for e in scene.step() if isinstance(e, AppendIndex)], "after a pause"
    scene.answer(scene.step(300_000))
    scene.run()
    assert "t-0-16-0" not in scene.layout


def test_successors_open_before_the_seal_begins_but_nobody_is_waited_for_long():
    scene = Scene().begun()
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    scene.answer(scene.step())
    effects = scene.step()
    assert set(kinds(effects)) == {"OpenReplica", "FlushAhead"}
    assert scene.step() == []
    assert kinds(scene.step(HEAD_START)) == ["AskReplica"]


def test_merged_segments_are_fenced_when_the_tails_of_all_are_written():
    scene = Scene(min_segments=2).begun()
    scene.leader.requests.append(Request("merge", ("t-0-8-0", "t-8-16-1")))
    scene.answer(scene.step())
    effects = scene.step()
    scene.answer([e for e in effects if isinstance(e, OpenReplica)])
    assert kinds(effects).count("FlushAhead") == 2
    assert scene.step() == []
    scene.leader.flushed("t-0-8-0")
    assert scene.step() == [], "the other one still writes"
    scene.leader.flushed("t-8-16-1")
    assert kinds(scene.step()) == ["AskReplica", "AskReplica"]


def test_nobody_is_waited_for_long_before_a_merge():
    scene = Scene(min_segments=2).begun()
    scene.leader.requests.append(Request("merge", ("t-0-8-0", "t-8-16-1")))
    scene.answer(scene.step())
    scene.answer([e for e in scene.step() if isinstance(e, OpenReplica)])
    scene.leader.flushed("t-0-8-0")
    assert kinds(scene.step(HEAD_START)) == ["AskReplica", "AskReplica"]


def test_writers_go_on_before_anything_else_is_done_about_a_seal():
    scene = Scene().begun()
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    for _ in range(3):
        scene.answer(scene.step())
    assert scene.leader.outcome("t-0-16-0") is not None
    assert scene.step() == [] and scene.step(WRITERS_FIRST - 1) == []
    assert set(kinds(scene.step(1))) == {"AskReplica", "AppendIndex"}


def test_a_failover_does_not_ask_the_dead():
    scene = Scene().begun()
    dead = scene.layout.segments[0].primary
    scene.lose(dead.incarnation)
    effects = scene.run()
    asked = [e.replica for e in effects if isinstance(e, AskReplica)]
    assert asked and dead not in asked
    assert not [e for e in effects if isinstance(e, FlushAhead)], "the primary is gone"
    assert dead not in scene.layout.segments[0].replicas


def test_all_replicas_gone_is_sealed_from_the_filer_with_what_is_known():
    scene = Scene(brokers=4).begun()
    scene.leader.watermarks["t-0-16-0"] = 42
    for replica in scene.layout.segments[0].replicas:
        scene.lose(replica.incarnation)
    effects = scene.run()
    assert SealFromFiler("t-0-16-0", 42) in effects


def test_a_blocked_seal_is_told_and_goes_on_when_a_person_says_so():
    scene = Scene(brokers=4).begun()
    for replica in scene.layout.segments[0].replicas:
        scene.lose(replica.incarnation, Liveness.SUSPECT)
    for _ in range(5):
        scene.answer([e for e in scene.step() if not isinstance(e, AskReplica)])
    assert set(scene.leader.blocked["t-0-16-0"].waiting_for) == {"i0", "i1"}
    assert scene.leader.accept_loss("t-0-16-0")
    scene.run()
    assert not scene.leader.blocked and "t-0-16-0" not in scene.layout
    assert not scene.leader.accept_loss("nothing")


def blocked(scene: Scene) -> Scene:
    """Both replicas of its segment are silent, and neither is proved gone."""
    for replica in scene.layout.segments[0].replicas:
        scene.lose(replica.incarnation, Liveness.SUSPECT)
    for _ in range(5):
        scene.answer([e for e in scene.step() if not isinstance(e, AskReplica)])
    assert scene.leader.blocked
    return scene


def test_an_accepted_loss_is_written_down_before_anything_is_given_up():
    scene = blocked(Scene(brokers=4).begun())
    scene.leader.accept_loss("t-0-16-0")
    (put,) = scene.step()
    assert isinstance(put, PutLayout) and put.layout.segment("t-0-16-0").loss_accepted
    assert not any(s.loss_accepted for s in put.layout.segments if s.name != "t-0-16-0")
    assert not scene.step(), "nothing happens before it is stored"
    scene.put(put)
    assert SealFromFiler("t-0-16-0", None) in scene.step()
    assert [d.action for d in scene.leader.decisions].count("accept loss") == 1


def test_a_put_that_is_lost_does_not_lose_the_acceptance():
    scene = blocked(Scene(brokers=4).begun())
    scene.leader.accept_loss("t-0-16-0")
    (put,) = scene.step()
    assert isinstance(put, PutLayout)
    scene.leader.layout_lost(scene.now)
    scene.run()
    assert "t-0-16-0" not in scene.layout


def test_a_leader_that_follows_knows_of_an_accepted_loss():
    old = blocked(Scene(brokers=4).begun())
    old.leader.accept_loss("t-0-16-0")
    (put,) = old.step()
    assert isinstance(put, PutLayout)
    scene = Scene(brokers=4)
    scene.stored, scene.etag, scene.brokers = put.layout, old.etag + 1, old.brokers
    effects = scene.run()
    assert SealFromFiler("t-0-16-0", None) in effects and "t-0-16-0" not in scene.layout


def test_a_leader_that_follows_tells_what_is_lost_though_it_never_heard_of_it():
    old = blocked(Scene(brokers=4).begun())
    old.leader.watermarks["t-0-16-0"] = 42
    old.leader.accept_loss("t-0-16-0")
    (put,) = old.step()
    assert isinstance(put, PutLayout)
    scene = Scene(brokers=4)
    scene.stored, scene.etag, scene.brokers = put.layout, old.etag + 1, old.brokers
    assert SealFromFiler("t-0-16-0", 42) in scene.run()


def test_a_new_leader_decides_nothing_before_it_has_heard_of_the_replicas():
    old = Scene().begun()
    scene = Scene()
    scene.stored, scene.etag = old.stored, old.etag
    scene.leader.settles_at = scene.now + 1_000_000
    heard = scene.brokers
    scene.brokers = {"i2": heard["i2"]}
    scene.answer(scene.step())
    assert not [e for e in scene.step() if isinstance(e, PutLayout)]
    scene.brokers = heard
    assert not [e for e in scene.run() if isinstance(e, PutLayout)], "all is well"


def test_a_new_leader_acts_at_once_when_it_knows_who_is_gone():
    old = Scene().begun()
    scene = Scene()
    scene.stored, scene.etag = old.stored, old.etag
    scene.leader.settles_at = scene.now + 60_000_000
    scene.lose("i0")
    scene.run()
    assert all(r.incarnation != "i0" for s in scene.layout.segments for r in s.replicas)


def test_a_lost_put_is_thought_over_from_what_is_there():
    scene = Scene().begun()
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    (put,) = scene.step()
    assert isinstance(put, PutLayout)
    scene.leader.layout_lost(scene.now)
    assert scene.leader.requests == [Request("roll", ("t-0-16-0",))], "what a person asked for is not forgotten"
    assert kinds(scene.step()) == ["ReadLayout"]
    scene.answer([ReadLayout()])
    scene.run()
    assert scene.layout.segments[0].name == "t-0-16-1"


def test_what_is_asked_for_waits_until_the_layout_says_it():
    scene = Scene().begun()
    roll, split = Request("roll", ("t-0-16-0",)), Request("split", ("t-0-16-0",))
    scene.leader.ask(roll)
    scene.leader.ask(roll)
    assert scene.leader.requests == [roll], "asking again changes nothing"
    with pytest.raises(ValueError, match="asked for t-0-16-0 already"):
        scene.leader.ask(split)
    (put,) = scene.step()
    assert isinstance(put, PutLayout) and scene.leader.waits(roll)
    with pytest.raises(ValueError, match="t-0-16-0 is sealing"):
        scene.leader.ask(split)
    scene.put(put)
    assert not scene.leader.waits(roll) and not scene.leader.given_up


def test_a_request_that_another_leader_came_before_is_given_up_in_words():
    scene, split = Scene().begun(), Request("split", ("t-0-16-0",))
    other = Scene()
    other.stored, other.etag = scene.stored, scene.etag
    other.begun().leader.ask(Request("roll", ("t-0-16-0",)))
    other.run()
    scene.leader.ask(split)
    scene.step()
    scene.stored, scene.etag = other.stored, other.etag
    scene.leader.layout_lost(scene.now)
    assert scene.leader.waits(split)
    scene.run()
    assert not scene.leader.waits(split) and "no open segment 't-0-16-0'" in scene.leader.given_up[split]
    (told,) = [d for d in scene.leader.decisions if d.action == "refused"]
    assert told.segments == split.segments and "split asked for by hand cannot be done any more" in told.reason


def test_an_unclear_put_that_was_applied_is_found_when_it_is_read():
    scene = Scene().begun()
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    (put,) = scene.step()
    assert isinstance(put, PutLayout)
    scene.stored, scene.etag = put.layout, 99
    scene.leader.layout_lost(scene.now, unclear=True)
    assert scene.step() == []
    scene.answer(scene.step(200_000))
    scene.run()
    assert len(scene.layout.segments) == 1 and scene.layout.segments[0].name == "t-0-16-1"


def test_a_layout_older_than_the_known_one_is_passed_over():
    scene = Scene().begun()
    old = scene.stored
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    scene.run()
    version = scene.layout.version
    assert old is not None
    scene.leader.layout_read((old, "1"))
    assert scene.layout.version == version


def test_the_layout_is_read_again_now_and_then():
    scene = Scene().begun()
    assert scene.step() == []
    assert kinds(scene.step(RESYNC_AFTER)) == ["ReadLayout"]


def test_an_open_that_failed_is_repeated_and_one_that_was_refused_is_not():
    scene = Scene()
    scene.answer(scene.step())
    scene.answer(scene.step())
    first, second = scene.step()
    assert isinstance(first, OpenReplica) and isinstance(second, OpenReplica)
    scene.leader.open_failed("t-0-16-0", first.replica.incarnation, scene.now, refused=False)
    scene.leader.opened("t-0-16-0", second.replica.incarnation)
    assert scene.step() == []
    assert scene.step(RETRY_OPEN_AFTER) == [first]
    scene.leader.open_failed("t-0-16-0", first.replica.incarnation, scene.now, refused=True)
    (put,) = scene.step()
    assert isinstance(put, PutLayout)
    assert first.replica not in put.layout.segments[-1].replicas


def test_a_broker_that_refuses_everything_does_not_make_segments_without_end():
    """It is believed in, and there are no more brokers than replicas."""
    scene = Scene(replicas=3)
    puts = []
    for _ in range(3_000):
        effects = scene.step(1000)
        puts += [scene.now for e in effects if isinstance(e, PutLayout)]
        for effect in effects:
            if isinstance(effect, OpenReplica) and effect.replica.incarnation == "i2":
                scene.leader.open_failed(effect.segment.name, "i2", scene.now, refused=True)
            else:
                scene.answer([effect])
    assert 8 <= len(puts) <= 30
    (at_last,) = (s for s in scene.layout.segments if not s.successors)
    assert {r.incarnation for r in at_last.replicas} == {"i0", "i1"}
    scene.now += 2_000_000
    scene.run()
    assert len(scene.layout.segments[-1].replicas) == 3, "it is tried again, and opens"


def test_who_is_overtaken_by_a_leader_that_knows_more_brokers_leaves_its_work_alone_at_first():
    scene = Scene().begun()
    (segment,) = scene.layout.segments
    new = Replica("b1", "new", "h:9")
    moved = replace(segment, replicas=(segment.replicas[0], new))
    scene.stored = replace(scene.layout, version=scene.layout.version + 1, segments=(moved,))
    scene.etag += 1
    scene.leader.layout_lost(scene.now)
    began = scene.now
    while scene.now < began + STRANGERS_REPORT_WITHIN - 10_000:
        effects = scene.step(100_000)
        assert not any(isinstance(e, PutLayout) for e in effects), "it may report here in a moment"
        scene.answer(effects)
    (put,) = (e for _ in range(10) for e in scene.step(100_000) if isinstance(e, PutLayout))
    assert put.layout.segment(segment.name).sealed_because.value == "Failover"


def test_a_report_spares_the_question():
    old = Scene().begun()
    scene = Scene()
    scene.stored, scene.etag = old.stored, old.etag
    scene.answer(scene.step())
    for replica in scene.layout.segments[0].replicas:
        scene.leader.opened("t-0-16-0", replica.incarnation)
    assert scene.leader.holds("t-0-16-0", "i0")
    assert scene.step() == []


def test_every_replica_is_told_of_the_seal_once():
    scene = Scene().begun()
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    asked = [e.replica.incarnation for e in scene.run() if isinstance(e, AskReplica)]
    assert asked[0] == "i0" and sorted(asked[1:]) == ["i0", "i1"]


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_dead_broker_leaves_every_segment(replicas):
    scene = Scene(brokers=4, replicas=replicas, min_segments=4).begun()
    scene.lose("i1")
    scene.run(60)
    assert all(len(s.replicas) == replicas for s in scene.layout.segments)
    assert all(r.incarnation != "i1" for s in scene.layout.segments for r in s.replicas)


def test_a_broker_that_dies_while_its_segment_is_pending_is_replaced():
    scene = Scene(brokers=5).begun()
    scene.leader.requests.append(Request("move", ("t-0-16-0",)))
    scene.answer(scene.step())
    pending = next(s for s in scene.layout.segments if s.phase is Phase.PENDING)
    scene.lose(pending.primary.incarnation)
    scene.run(60)
    (segment,) = scene.layout.segments
    assert segment.phase is Phase.OPEN and segment.predecessors == (pending.name,)


def test_a_layout_that_has_ended_is_left_alone():
    scene = Scene().begun()
    scene.leader.requests.append(Request("roll", ("t-0-16-0",)))
    (put,) = scene.step()
    scene.stored, scene.etag = end(scene.layout, writer="e"), 99
    assert isinstance(put, PutLayout) and scene.stored.version == put.layout.version
    scene.leader.layout_lost(scene.now)
    scene.answer(scene.step())
    scene.lose("i0")
    assert scene.layout.ended and not scene.step() and not scene.step(RESYNC_AFTER + 1)
