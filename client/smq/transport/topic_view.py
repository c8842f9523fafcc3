"""The cached view of one topic, kept up to date from the leader, or else from brokers, or else from the files.

The leader's Watch stream delivers every change of the layout. While no leader answers, the client calls ``locate`` at
the topic's brokers, and if none answers, it reads the files. A newer layout replaces an older one from any source.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from smq.lock_order import ClientLock
from smq.transport.dialer import DIRECT, Dialer
from smq.transport.filer_health import FilerHealth
from smq.transport.leader_client import REPORT_WAIT_AFTER_SECONDS, LayoutWatch, LeaderClient, describe_wait
from smq.transport.reader_channels import ReaderChannels
from smq.transport.topic_store import TopicStore
from smq.transport.upload_modes import UploadMode
from smq_core.errors import (
    InvalidRequest,
    PermissionDenied,
    SmqError,
    StoreUnavailable,
    Unavailable,
    UnknownTopic,
    Unreachable,
    is_denial,
)
from smq_core.model.entities import Layout, Replica, SealedSegment, Topic
from smq_core.model.interval_set import EMPTY, IntervalSet, contains
from smq_core.reading.segment_dag import missing_predecessors
from smq_proto.pages import all_pages
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import topics_pb2
from smq_proto.wire import layout_from_pb, removed_from_pb, sealed_from_pb, topic_from_pb
from smq_storage.catalog import layouts, sealed_index, topics
from smq_storage.object_store.presigned.urls import SigningKey
from smq_storage.object_store.store import Store, StoreSettings
from smq_storage.process.locks import make_rlock

log = logging.getLogger(__name__)

RETRY_INTERVAL_SECONDS = 0.2
DELETED_AFTER_SECONDS = 3.0
LOCATE_TIMEOUT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic and its layout at one time. ``losses`` changes when the leader records a further loss; 0 if unknown."""

    topic: Topic
    layout: Layout
    losses: int = 0


class TopicView:
    """The view of one topic. Safe from many threads; ``close`` ends its thread."""

    def __init__(
        self,
        *,
        name: str,
        leader: LeaderClient,
        settings: StoreSettings | None = None,
        key: SigningKey | None = None,
        dialer: Dialer = DIRECT,
        uploads: UploadMode = "auto",
        filer_health: FilerHealth | None = None,
    ) -> None:
        self.name = name
        self.dialer = dialer
        self.filer_health = filer_health or FilerHealth()
        self.reader_channels = ReaderChannels(name, dialer)
        self.store = TopicStore(
            settings=settings,
            key=key,
            dialer=dialer,
            uploads=uploads,
            leader=leader.topics if leader.is_configured else None,
        )
        self._leader = leader
        self._changed = threading.Condition(make_rlock(ClientLock.VIEW))
        self._snapshot: TopicSnapshot | None = None
        self._failure: SmqError | None = None
        self._failing_since = 0.0
        self._listeners: list[Callable[[TopicSnapshot], None]] = []
        self._watch_stream: LayoutWatch | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"smq-topic-view-{name}", daemon=True)
        self._thread.start()

    # ---- for producers and consumers

    def wait_for_snapshot(self, timeout: float | None = None) -> TopicSnapshot:
        """Waits for the first snapshot, as long as for a call to the leader, and returns it.

        Raises UnknownTopic, Unavailable, PermissionDenied, Unauthenticated.
        """
        timeout = timeout if timeout is not None else self._leader.timeout
        if not self._wait_for_snapshot(min(timeout, REPORT_WAIT_AFTER_SECONDS)):
            self._report_wait()
            self._wait_for_snapshot(timeout - REPORT_WAIT_AFTER_SECONDS)
        with self._changed:
            if self._snapshot is not None:
                return self._snapshot
            failure = self._failure
        if isinstance(failure, Unreachable):
            raise Unavailable(f"no leader answered at {failure.message}")
        if failure is not None:
            raise failure
        raise Unavailable(f"no leader or broker located {self.name} within {timeout} s. Check that the leader is up")

    def _wait_for_snapshot(self, seconds: float) -> bool:
        """Whether there is a snapshot, or an error that stays."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._snapshot or self._is_final(), max(0.0, seconds)))

    def _is_final(self) -> bool:
        """Whether the last error stays as it is. A leader may not need what a client cannot read by itself."""
        failure = self._failure
        stays = failure is not None and not failure.retry and not self._leader.is_configured
        return stays or (failure is not None and (isinstance(failure, InvalidRequest) or is_denial(failure)))

    def _report_wait(self) -> None:
        if self._leader.on_wait is None:
            return
        failure = self._failure
        if isinstance(failure, StoreUnavailable):
            self._leader.on_wait(f"waiting for the filer: {failure.message}")
        elif failure is not None:
            self._leader.on_wait(describe_wait(failure))
        else:
            self._leader.on_wait(f"waiting for the leader to locate topic {self.name}")

    @property
    def snapshot(self) -> TopicSnapshot:
        assert self._snapshot is not None
        return self._snapshot

    @property
    def deleted(self) -> UnknownTopic | None:
        """The UnknownTopic error after DELETED_AFTER_SECONDS; a new leader may not have the topic at first."""
        failure, since = self._failure, self._failing_since
        gone = isinstance(failure, UnknownTopic) and time.monotonic() - since >= DELETED_AFTER_SECONDS
        return failure if gone and isinstance(failure, UnknownTopic) else None

    def add_listener(self, listener: Callable[[TopicSnapshot], None]) -> None:
        """Calls the listener after every change, in the view's thread, and once now."""
        with self._changed:
            self._listeners.append(listener)
            snapshot = self._snapshot
        if snapshot is not None:
            listener(snapshot)

    def remove_listener(self, listener: Callable[[TopicSnapshot], None]) -> None:
        with self._changed:
            self._listeners = [it for it in self._listeners if it != listener]

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def report_unreachable_broker(self, incarnation: str, what: str) -> None:
        """Reports to the leader that this broker could not be reached. Errors are ignored."""
        if not self._leader.is_configured:
            return
        try:
            request = topics_pb2.ReportUnreachableRequest(incarnation=incarnation, error=what[:200])
            self._leader.topics.ReportUnreachable(request, timeout=0.3)
        except SmqError:
            return

    def sealed_history(self) -> SealedHistory:
        """Returns the segments that have left the layout, from the leader or from the files. Raises Unavailable."""
        if self._leader.is_configured:
            try:
                request = topics_pb2.HistoryRequest(topic=self.name)
                pages = list(all_pages(self._leader.topics.History, request, timeout=2.0))
                removed, ends = removed_from_pb(pages[-1].removed)
                listed = (sealed_from_pb(it) for page in pages for it in page.segments)
                # Retention may have removed some after their page was made.
                sealed = {it.name: it for it in listed if not contains(removed, it.number)}
                return SealedHistory(sealed, removed, ends)
            except Unavailable:
                if not self.store.is_known:
                    raise
        found = sealed_index.load(self.store.open(), self.name, self.snapshot.topic.uid)
        return SealedHistory(
            {s.name: s for s in found.entries}, found.removed, {s.name: s.end for s in found.removed_segments}
        )

    def refresh_from_store(self, number: int) -> None:
        """Reads the files if the layout has no segment of that number yet. Raises Unavailable."""
        if number >= self.snapshot.layout.next_number:
            self._load_from_store(self.store.open())

    def sign_uploads(self, request: topics_pb2.SignUploadsRequest) -> topics_pb2.SignUploadsReply:
        """Returns URLs for new files of this topic. Raises UnknownTopic, StoreUnsupported, Unavailable."""
        request.topic, request.uid = self.name, self.snapshot.topic.uid
        reply: topics_pb2.SignUploadsReply = self._leader.topics.SignUploads(request)
        return reply

    def close(self) -> None:
        self._stop.set()
        with self._changed:
            watch_stream = self._watch_stream
        if watch_stream is not None:
            watch_stream.cancel()
        self._thread.join(5)

    # ---- updates

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            except (UnknownTopic, PermissionDenied) as error:
                self._fail(error)
            except SmqError as error:
                if self._stop.is_set():
                    return  # close has cancelled the stream
                try:
                    located = self._locate_elsewhere()
                except SmqError as other:
                    self._fail(other)
                else:
                    if not located:
                        self._fail(error)
            except Exception as error:
                log.exception("the view of %s failed", self.name)
                self._fail(Unavailable(f"the view of {self.name} failed: {error}"))
            self._stop.wait(RETRY_INTERVAL_SECONDS)

    def _watch(self) -> None:
        if not self._leader.is_configured:
            raise Unavailable("no leader is configured")
        watch_stream = self._leader.topics.Watch(topics_pb2.WatchRequest(topic=self.name))
        with self._changed:
            self._watch_stream = watch_stream
        if self._stop.is_set():
            watch_stream.cancel()
        for reply in watch_stream:
            self._apply_reply(reply)

    def _locate_elsewhere(self) -> bool:
        if any(self._locate_at_broker(it) for it in self._replicas()):
            return True
        return self.store.is_known and self._load_from_store(self.store.open())

    def _replicas(self) -> Iterable[Replica]:
        """One for each broker that hosts a segment."""
        snapshot = self._snapshot
        if snapshot is None:
            return []
        return list(dict.fromkeys(r for s in snapshot.layout.segments for r in s.replicas))

    def _locate_at_broker(self, replica: Replica) -> bool:
        request = pb.LocateRequest(topic=self.name)
        try:
            with self.dialer.flight(replica) as client:
                body = self.dialer.call(client, self.name, "locate", request, timeout=LOCATE_TIMEOUT_SECONDS)
            self._apply_reply(pb.LocateReply.FromString(body))
            return True
        except Exception as error:
            log.debug("%s could not locate %s: %s", replica.address, self.name, error)
            return False

    def _load_from_store(self, store: Store) -> bool:
        current = topics.read_current_topic(store, self.name)
        if current is None:
            raise UnknownTopic(f"there is no topic {self.name} in {store!r}", topic=self.name)
        topic = topics.read_topic(store, self.name, current.uid)
        found = layouts.read_layout(store, self.name, current.uid)
        if topic is None or found is None:
            return False
        self._apply_snapshot(TopicSnapshot(topic, found[0]))
        return True

    def _apply_reply(self, reply: pb.LocateReply) -> None:
        if not reply.layout.segments:
            return  # the topic is new and has no layout yet
        self.store.learn(reply)
        self._apply_snapshot(TopicSnapshot(topic_from_pb(reply.topic), layout_from_pb(reply.layout), reply.losses))

    def _apply_snapshot(self, new: TopicSnapshot) -> None:
        with self._changed:
            old = self._snapshot
            self._failure = None
            if old is not None and not _is_newer(new, old):
                return
            self._snapshot = new
            listeners = list(self._listeners)
            self._changed.notify_all()
        for listener in listeners:
            listener(new)

    def _fail(self, error: SmqError) -> None:
        with self._changed:
            if type(self._failure) is not type(error):
                self._failing_since = time.monotonic()
            self._failure = error
            self._changed.notify_all()


def _is_newer(new: TopicSnapshot, old: TopicSnapshot) -> bool:
    if old.topic.uid != new.topic.uid or new.layout.version > old.layout.version:
        return True
    return new.layout.version == old.layout.version and new.losses not in (0, old.losses)


@dataclass(frozen=True, slots=True)
class SealedHistory:
    """Segments that have left the layout.

    ``sealed`` segments can be read. ``removed`` has the numbers of those that retention removed. ``ends`` has the end
    offsets of the last removed ones, by name.
    """

    sealed: Mapping[str, SealedSegment]
    removed: IntervalSet = EMPTY
    ends: Mapping[str, int] = field(default_factory=dict)

    def missing_predecessors(self, layout: Layout) -> set[str]:
        """The predecessors that are neither sealed nor removed here. The layout is newer if there are any."""
        return missing_predecessors(layout, list(self.sealed.values()), self.removed)
