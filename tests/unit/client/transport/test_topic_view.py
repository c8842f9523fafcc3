"""The view of a topic takes newer layouts from any source, and older ones from none."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace

import pytest

from smq.transport import topic_store, topic_view
from smq.transport.topic_view import TopicSnapshot, TopicView
from smq.transport.upload_modes import UploadMode
from smq_core.errors import SmqError, Unavailable, UnknownTopic
from smq_core.model.entities import (
    Durability,
    Layout,
    Phase,
    Reason,
    RemovedSegment,
    Replica,
    SealedSegment,
    Segment,
    Topic,
    TopicSpec,
)
from smq_core.model.keyspace import KeyRange
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import topics_pb2
from smq_proto.wire import layout_to_pb, removed_to_pb, sealed_to_pb, topic_to_pb
from smq_storage.catalog import layouts, topics
from smq_storage.object_store.presigned.urls import SigningKey
from smq_storage.object_store.store import StoreSettings
from support.waiting import HANG_GUARD, eventually

TOPIC = Topic("default/t", "uid", TopicSpec(partitions=8))
SEGMENT = Segment(
    name="t-0-8-0",
    number=0,
    range=KeyRange(0, 8),
    phase=Phase.OPEN,
    durability=Durability.REPLICATED,
    replicas=(Replica("b", "i", "127.0.0.1:1"),),
)
LAYOUT = Layout(
    topic=TOPIC.name, uid=TOPIC.uid, partitions=8, version=5, next_number=1, segments=(SEGMENT,), writer="w"
)


class PlayedLeader:
    """Its watch gives what the test puts into ``replies``; an error ends the watch."""

    is_configured = True
    timeout = HANG_GUARD
    on_wait = None

    def __init__(self) -> None:
        self.replies: queue.SimpleQueue[pb.LocateReply | SmqError | None] = queue.SimpleQueue()
        self.history: dict[str, topics_pb2.HistoryReply] = {}
        """The pages by their tokens."""

    @property
    def topics(self) -> PlayedLeader:
        return self

    def Watch(self, _: topics_pb2.WatchRequest) -> PlayedLeader:
        return self

    def History(self, request: topics_pb2.HistoryRequest, timeout: float) -> topics_pb2.HistoryReply:
        return self.history[request.page_token]

    def __iter__(self) -> Iterator[pb.LocateReply]:
        while (reply := self.replies.get(timeout=HANG_GUARD)) is not None:
            if isinstance(reply, SmqError):
                raise reply
            yield reply

    def cancel(self) -> None:
        self.replies.put(None)

    def show(self, layout: Layout, topic: Topic = TOPIC, losses: int = 0, store: StoreSettings | None = None) -> None:
        reply = pb.LocateReply(topic=topic_to_pb(topic), layout=layout_to_pb(layout), losses=losses)
        if store is not None:
            reply.store_url = store.url
            reply.store_options.update(store.to_public_options())
        self.replies.put(reply)


class Watched:
    def __init__(self, settings: StoreSettings | None = None) -> None:
        self.leader = PlayedLeader()
        self.view = TopicView(name=TOPIC.name, leader=self.leader, settings=settings)  # type: ignore[arg-type]
        self.seen: list[TopicSnapshot] = []
        self.view.add_listener(self.seen.append)

    @property
    def versions(self) -> list[tuple[str, int]]:
        return [(snapshot.topic.uid, snapshot.layout.version) for snapshot in self.seen]


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.view.close()


def test_an_older_layout_does_not_replace_a_newer_one(watched: Watched) -> None:
    for version in (5, 4, 5, 6):
        watched.leader.show(replace(LAYOUT, version=version))
    eventually(lambda: watched.view._snapshot and watched.view.snapshot.layout.version == 6)
    assert watched.versions == [("uid", 5), ("uid", 6)]


def test_a_topic_that_was_created_again_replaces_the_former_one(watched: Watched) -> None:
    watched.leader.show(LAYOUT)
    watched.leader.show(replace(LAYOUT, uid="new", version=1), replace(TOPIC, uid="new"))
    eventually(lambda: len(watched.seen) == 2)
    assert watched.versions == [("uid", 5), ("new", 1)]


def test_a_further_loss_is_announced_although_the_layout_is_the_same(watched: Watched) -> None:
    watched.leader.show(LAYOUT)
    watched.leader.show(LAYOUT, losses=5)
    watched.leader.show(LAYOUT, losses=5)
    watched.leader.show(LAYOUT)  # a broker does not know
    watched.leader.show(LAYOUT, losses=9)
    watched.leader.show(replace(LAYOUT, version=4), losses=10)
    watched.leader.show(replace(LAYOUT, version=6))
    eventually(lambda: watched.versions[-1:] == [("uid", 6)])
    assert [(s.layout.version, s.losses) for s in watched.seen] == [(5, 0), (5, 5), (5, 9), (6, 0)]


def test_a_topic_without_a_layout_is_waited_for(watched: Watched) -> None:
    watched.leader.show(replace(LAYOUT, segments=()))
    watched.leader.show(LAYOUT)
    eventually(lambda: watched.seen)
    assert watched.versions == [("uid", 5)]


def test_a_topic_is_deleted_only_if_leaders_say_so_for_a_while(watched: Watched) -> None:
    watched.leader.show(LAYOUT)
    eventually(lambda: watched.seen)
    watched.leader.replies.put(UnknownTopic("no such topic"))
    eventually(lambda: isinstance(watched.view._failure, UnknownTopic))
    watched.view._failing_since += 1000
    assert watched.view.deleted is None, "a new leader may not have read it yet"
    watched.view._failing_since -= 2000
    assert isinstance(watched.view.deleted, UnknownTopic)
    watched.leader.show(LAYOUT)
    eventually(lambda: watched.view.deleted is None)


def test_a_history_has_all_pages_without_what_was_removed_meanwhile(watched: Watched) -> None:
    listed = [
        sealed_to_pb(
            SealedSegment(
                name=f"t-0-8-{n}", number=n, range=KeyRange(0, 8), end=7, sealed_because=Reason.ROLL, sealed_at=0
            )
        )
        for n in range(4)
    ]
    removed = removed_to_pb(((1, 2),), [RemovedSegment(name="t-0-8-1", number=1, end=7, removed_at=0)])
    watched.leader.history = {
        "": topics_pb2.HistoryReply(segments=listed[:2], next_page_token="1"),
        "1": topics_pb2.HistoryReply(segments=listed[2:3], next_page_token="2"),
        "2": topics_pb2.HistoryReply(segments=listed[3:], removed=removed),
    }
    history = watched.view.sealed_history()
    assert list(history.sealed) == ["t-0-8-0", "t-0-8-2", "t-0-8-3"]
    assert (history.removed, history.ends) == (((1, 2),), {"t-0-8-1": 7})


def test_without_a_leader_the_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_view, "RETRY_INTERVAL_SECONDS", 0.01)
    settings = StoreSettings(url="memory://files-of-a-topic-view")
    store = settings.open()
    topics.put_current(store, TOPIC.name, TOPIC.uid, None)
    topics.put_topic(store, TOPIC)
    layouts.put_layout(store, LAYOUT, None)
    watched = Watched(settings)
    try:
        watched.leader.replies.put(Unavailable("no leader"))
        assert watched.view.wait_for_snapshot(HANG_GUARD).layout == LAYOUT
    finally:
        watched.view.close()


def test_without_a_leader_a_deleted_topic_is_unknown() -> None:
    settings = StoreSettings(url="memory://files-of-a-deleted-topic")
    store = settings.open()
    etag = topics.put_current(store, TOPIC.name, TOPIC.uid, None)
    topics.put_current(store, TOPIC.name, "", etag)
    watched = Watched(settings)
    try:
        watched.leader.replies.put(Unavailable("no leader"))
        eventually(lambda: isinstance(watched.view._failure, UnknownTopic))
    finally:
        watched.view.close()


GUARDED = StoreSettings(url="s3://smq", access_key="leader", secret_key="hush")
OPEN = StoreSettings(url="s3://smq")


@pytest.mark.parametrize(
    ("mode", "store", "own_key", "signed"),
    [
        ("auto", GUARDED, None, True),
        ("auto", GUARDED, "client", False),
        ("auto", OPEN, None, False),
        ("direct", GUARDED, None, False),
        ("presigned", GUARDED, "client", True),
    ],
)
@pytest.mark.parametrize("given", [False, True], ids=["reported_url", "own_url"])
def test_uploads_are_signed_by_the_leader_only_if_the_client_needs_it(
    mode: UploadMode,
    store: StoreSettings,
    own_key: str | None,
    signed: bool,
    given: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    leader = PlayedLeader()
    settings = StoreSettings(url="s3://smq", access_key=own_key) if given else None
    key = SigningKey(own_key, own_key) if own_key else None
    view = TopicView(name=TOPIC.name, leader=leader, settings=settings, key=key, uploads=mode)  # type: ignore[arg-type]
    try:
        leader.show(LAYOUT, store=store)
        leader.show(replace(LAYOUT, version=LAYOUT.version + 1), store=OPEN)  # as a broker of an older version does
        eventually(lambda: view._snapshot and view.snapshot.layout.version > LAYOUT.version)
        assert view.store.signs_uploads is signed
    finally:
        view.close()


def test_requests_of_uploads_may_take_as_long_as_a_producer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreSettings, "open", lambda settings, _: settings.timeout)
    watched = Watched(StoreSettings(url="memory://", timeout=1.0))
    found = [watched.view.store.open_for_uploads(), *map(watched.view.store.open_for_uploads, (5.0, 600.0))]
    assert found == [topic_store.UPLOAD_TIMEOUT_SECONDS, topic_store.UPLOAD_TIMEOUT_SECONDS, 600.0]
    watched.view.close()


def test_the_first_snapshot_is_awaited_as_long_as_an_answer_of_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlayedLeader, "timeout", 0.01)
    watched = Watched()
    with pytest.raises(Unavailable, match=r"within 0\.01 s"):
        watched.view.wait_for_snapshot()
    watched.view.close()


def test_a_view_that_is_closed_does_not_look_for_the_topic_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[TopicView] = []
    monkeypatch.setattr(TopicView, "_locate_elsewhere", lambda view: bool(looked.append(view)))
    monkeypatch.setattr(
        PlayedLeader, "cancel", lambda leader: leader.replies.put(Unavailable("the stream was cancelled"))
    )
    watched = Watched()
    watched.leader.show(LAYOUT)
    eventually(lambda: watched.versions)

    watched.view.close()

    assert looked == [] and not watched.view._thread.is_alive()
