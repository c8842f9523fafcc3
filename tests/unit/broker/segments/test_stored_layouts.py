"""A broker opens and seals only what the stored layout names, whoever sends the request."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message

from smq_broker.producers.claims import MAX_EPOCH
from smq_broker.segments import stored_layouts
from smq_broker.segments.stored_layouts import StoredLayouts
from smq_core.errors import InvalidRequest, NotHosted, Unavailable, UnknownTopic
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Durability, Layout, Replica, Segment, Topic
from smq_core.model.keyspace import KeyRange
from smq_core.replica.segment_replica import ReplicaState
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import PROTOCOL, segment_to_pb, topic_to_pb
from smq_storage.catalog.layouts import put_layout, read_layout
from smq_storage.catalog.topics import put_current
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store, open_store
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.processes.stored_layouts import plan_open, plan_seal
from support.waiting import HANG_GUARD, eventually

STRANGER = Replica("mallory", "i-mallory", "10.0.0.66:7071")


class Broker:
    """One broker whose requests come from the port."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.parts = BrokerParts("b1", self.store)
        self.topic: Topic = make_topic()
        self.segment = make_segment(self.topic, self.parts.replica)

    def open(self, segment: Segment, topic: Topic | None = None) -> None:
        request = pb.OpenSegment(
            protocol=PROTOCOL,
            topic=topic_to_pb(topic or self.topic),
            segment=segment_to_pb(segment),
            incarnation=self.parts.replica.incarnation,
        )
        self.parts.action("open", request)

    def seal(self, segment: str = "", *, only_flush: bool = False, topic: str = "") -> None:
        request = pb.SealSegment(
            protocol=PROTOCOL,
            topic=topic or self.topic.name,
            uid=self.topic.uid,
            segment=segment or self.segment.name,
            incarnation=self.parts.replica.incarnation,
            reason="test",
            only_flush=only_flush,
        )
        self.parts.action("seal", request)

    @property
    def state(self) -> ReplicaState:
        return self.parts.hosted(self.topic, self.segment).machine.state


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_planned_segment_is_opened(broker: Broker) -> None:
    plan_open(broker.store, broker.topic, broker.segment)
    broker.open(broker.segment)
    assert broker.state is ReplicaState.OPEN


def test_a_segment_without_a_stored_layout_is_not_opened(broker: Broker) -> None:
    with pytest.raises(Unavailable, match="only the leader opens"):
        broker.open(broker.segment)
    assert not broker.parts.registry.all()
    plan_open(broker.store, broker.topic, broker.segment)
    broker.open(broker.segment)


@pytest.mark.parametrize(
    "fake",
    [
        {"replicas": (STRANGER, "own")},
        {"replicas": ("own", STRANGER)},
        {"replicas": ("own",), "durability": Durability.STORED},
        {"range": KeyRange(0, 7)},
        {"name": "t-0-1024-8"},
        {"predecessors": ("t-0-1024-7",)},
        {"schema_version": 3},
    ],
    ids=["primary", "follower", "durability", "range", "name", "predecessor", "schema version"],
)
def test_a_segment_that_the_layout_has_otherwise_is_not_opened(broker: Broker, fake: dict[str, Any]) -> None:
    segment = make_segment(broker.topic, broker.parts.replica, Replica("b2", "i-b2", "b2:1"))
    plan_open(broker.store, broker.topic, segment)
    if "replicas" in fake:
        fake = fake | {"replicas": tuple(broker.parts.replica if it == "own" else it for it in fake["replicas"])}
    with pytest.raises(Unavailable, match="has no"):
        broker.open(replace(segment, **fake))
    assert not broker.parts.registry.all()


def test_a_segment_of_other_partitions_or_of_a_deleted_topic_is_not_opened(broker: Broker) -> None:
    plan_open(broker.store, broker.topic, broker.segment)
    with pytest.raises(Unavailable):
        broker.open(broker.segment, replace(broker.topic, spec=replace(broker.topic.spec, partitions=2048)))
    delete(broker)
    with pytest.raises(Unavailable):
        broker.open(broker.segment)


def delete(broker: Broker) -> None:
    found = read_layout(broker.store, broker.topic.name, broker.topic.uid)
    assert found is not None
    put_layout(broker.store, replace(found[0], deleted=True, writer="w"), found[1])


@pytest.mark.parametrize("only_flush", [True, False])
def test_a_seal_that_no_layout_plans_changes_nothing(broker: Broker, only_flush: bool) -> None:
    plan_open(broker.store, broker.topic, broker.segment)
    broker.open(broker.segment)
    for topic in ("", "default/another"):
        with pytest.raises(Unavailable, match="plans no seal"):
            broker.seal(only_flush=only_flush, topic=topic)
    assert broker.state is ReplicaState.OPEN


@pytest.mark.parametrize("why", ["planned", "its topic is deleted", "another topic has the name"])
def test_a_planned_seal_is_carried_out(broker: Broker, why: str) -> None:
    plan_open(broker.store, broker.topic, broker.segment)
    broker.open(broker.segment)
    if why == "planned":
        plan_seal(broker.store, broker.topic, broker.segment)
    elif why == "its topic is deleted":
        delete(broker)
    else:
        put_current(broker.store, broker.topic.name, "another", None)
    broker.seal()
    assert broker.state is ReplicaState.SEALED


@pytest.mark.parametrize("is_open", [False, True])
def test_a_seal_that_the_layout_read_does_not_plan_is_tried_again(broker: Broker, is_open: bool) -> None:
    """A NotHosted would tell the leader that this broker acked nothing, although it still opens the segment."""
    if is_open:
        plan_open(broker.store, broker.topic, broker.segment)
    with pytest.raises(Unavailable, match="plans no seal") as raised:
        broker.seal()
    assert not isinstance(raised.value, NotHosted)
    plan_open(broker.store, broker.topic, broker.segment)
    broker.open(broker.segment)
    assert broker.state is ReplicaState.OPEN


def test_a_planned_seal_of_a_segment_that_never_opened_refuses_it_for_good(broker: Broker) -> None:
    plan_open(broker.store, broker.topic, broker.segment)
    plan_seal(broker.store, broker.topic, broker.segment)
    with pytest.raises(NotHosted) as raised:
        broker.seal()
    assert raised.value.certain
    with pytest.raises(NotHosted, match="not opened again"):
        broker.open(broker.segment)


def test_what_a_layout_confirms_is_not_read_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0

    def counted(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return read_layout(*args)

    monkeypatch.setattr(stored_layouts, "read_layout", counted)
    plan_open(broker.store, broker.topic, broker.segment)
    plan_seal(broker.store, broker.topic, broker.segment)
    layouts = StoredLayouts(broker.store)
    for _ in range(3):
        layouts.check_open(broker.topic, broker.segment)
        layouts.check_seal(broker.topic.name, broker.topic.uid, broker.segment.name)
    assert reads == 1


def test_few_layouts_are_kept(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_layouts, "MAX_LAYOUTS", 2)
    layouts = StoredLayouts(broker.store)
    for number in range(5):
        put_layout(broker.store, Layout(topic="default/t", uid=f"u{number}", partitions=1024, writer="w"), None)
        layouts.check_seal("default/t", f"u{number}", "s")
    assert len(layouts._known) <= 2


class Versions:
    """Layouts by version; a read answers with the version that it is given, as a store that answers with old ones."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.version = 0
        self.found: list[Layout] = []
        store, topic = broker.store, broker.topic
        monkeypatch.setattr(stored_layouts, "read_layout", lambda *_: self.read())
        other = replace(broker.segment, name=f"{broker.segment.name}9")
        for change in (lambda: plan_open(store, topic, other), lambda: plan_open(store, topic, broker.segment)):
            change()
            layout = read_layout(store, topic.name, topic.uid)
            assert layout is not None
            self.found.append(layout[0])

    def read(self) -> tuple[Layout, str]:
        return self.found[self.version], ""


def test_an_older_layout_does_not_replace_a_newer_one(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = Versions(broker, monkeypatch)
    layouts = StoredLayouts(broker.store)
    name, uid = broker.topic.name, broker.topic.uid
    versions.version = 1
    layouts.check_open(broker.topic, broker.segment)
    versions.version = 0
    with pytest.raises(Unavailable):
        layouts.check_open(broker.topic, replace(broker.segment, name="t-0-1024-8"))
    with pytest.raises(Unavailable, match="plans no seal"):
        layouts.check_seal(name, uid, broker.segment.name)


def test_a_segment_is_absent_only_from_a_layout_that_was_read_now(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = Versions(broker, monkeypatch)
    layouts = StoredLayouts(broker.store)
    name, uid = broker.topic.name, broker.topic.uid
    layouts.check_seal(name, uid, "t-0-1024-8")
    versions.version = 1
    with pytest.raises(Unavailable, match="plans no seal"):
        layouts.check_seal(name, uid, broker.segment.name)


def test_requests_at_once_share_reads(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_open(broker.store, broker.topic, broker.segment)
    first_began, may_end = threading.Event(), threading.Event()
    reads = 0

    def slow(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        first_began.set()
        assert may_end.wait(HANG_GUARD)
        return read_layout(*args)

    monkeypatch.setattr(stored_layouts, "read_layout", slow)
    layouts = StoredLayouts(broker.store)
    with ThreadPoolExecutor(20) as pool:
        requested = [pool.submit(layouts.check_open, broker.topic, broker.segment) for _ in range(20)]
        assert first_began.wait(HANG_GUARD)
        eventually(lambda: pool._work_queue.empty(), "all have requested")
        may_end.set()
        for it in requested:
            it.result(HANG_GUARD)
    assert reads <= 2


def outcome(broker: Broker, segment: str, **of: str) -> Message | None:
    named = {"topic": broker.topic.name, "uid": broker.topic.uid} | of
    return broker.parts.action("outcome", pb.OutcomeRequest(segment=segment, **named))


def sealed_elsewhere(broker: Broker) -> str:
    """The name of a segment that another broker has sealed, and that has left the layout."""
    planned = broker.segment
    plan_open(broker.store, broker.topic, planned)
    found = read_layout(broker.store, broker.topic.name, broker.topic.uid)
    assert found is not None
    put_layout(broker.store, replace(found[0], next_number=1, segments=(), writer="w"), found[1])
    info = ChunkInfo(segment=planned.name, first=0, rows=0, writer="w", nonce="n", sealed=True)
    ChunkChain(broker.store, broker.topic.name, broker.topic.uid, planned.name).put_seal(info)
    return planned.name


def test_the_outcome_of_a_segment_that_left_the_layout_is_answered(broker: Broker) -> None:
    assert outcome(broker, sealed_elsewhere(broker)) is not None


@pytest.mark.parametrize(
    ("segment", "of"),
    [
        ("", {}),
        ("t-0-1024-1", {}),
        ("t-0-100000-0", {}),
        ("t-1024-0-0", {}),
        ("another-0-16-0", {}),
        ("../t-0-1024-0", {}),
        ("t-0-1024-0x", {}),
        ("t-0-1024-00", {}),
        ("t-0-1024-0", {"uid": ""}),
        ("t-0-1024-0", {"uid": "another"}),
        ("t-0-1024-0", {"topic": "default/another"}),
        ("t-0-1024-0", {"topic": ".."}),
    ],
)
def test_nothing_is_looked_for_under_a_name_that_no_layout_has_given(
    broker: Broker, segment: str, of: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of a whole folder would cost the filer and this broker much, and a stranger nothing."""
    sealed_elsewhere(broker)
    searched: list[ChunkChain] = []
    monkeypatch.setattr(ChunkChain, "read_seal_chunk", searched.append)
    with pytest.raises((Unavailable, InvalidRequest)):
        outcome(broker, segment, **of)
    assert searched == []


def test_no_claim_uses_up_the_epochs_of_an_id(broker: Broker) -> None:
    names = {"topic": broker.topic.name, "uid": broker.topic.uid, "producer": "p"}
    put_current(broker.store, broker.topic.name, broker.topic.uid, None)
    with pytest.raises(InvalidRequest, match="an epoch is at most"):
        broker.parts.action("claim", pb.ClaimProducer(**names, instance="i", epoch=(1 << 64) - 1))
    broker.parts.action("claim", pb.ClaimProducer(**names, instance="i", epoch=MAX_EPOCH))
    claimed = broker.parts.action("claim", pb.ClaimProducer(**names, instance="j"))
    assert isinstance(claimed, pb.ClaimedProducer) and claimed.epoch == MAX_EPOCH + 1


@pytest.mark.parametrize("uid", ["", "another"])
def test_no_producer_claims_an_id_of_a_topic_that_does_not_live(broker: Broker, uid: str) -> None:
    put_current(broker.store, broker.topic.name, "", None)  # as a deletion leaves it
    request = pb.ClaimProducer(topic=broker.topic.name, uid=uid, producer="p", instance="i")
    with pytest.raises(UnknownTopic):
        broker.parts.action("claim", request)
    assert not list(broker.store.list(f"{broker.topic.name}/"))[1:]
