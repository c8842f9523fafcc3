"""What a client knows of one topic, kept fresh: from the leader, else from brokers, else from the files.

The leader's Watch stream brings every change of the layout. While no leader answers, any broker that is known answers
``locate`` (and without leader and brokers, the files themselves tell). A newer layout replaces an older one, whoever
told it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from smq.leader import LeaderLink, Watching
from smq.network import DIRECT, Network
from smq.past import Past
from smq_core.errors import InvalidRequest, SmqError, StoreUnavailable, Unavailable, UnknownTopic
from smq_core.model import Layout, Topic
from smq_proto.flight import call
from smq_proto.v1 import data_pb2 as pb
from smq_proto.v1 import leader_pb2 as lpb
from smq_proto.wire import layout_from_pb, removed_from_pb, sealed_from_pb, topic_from_pb
from smq_storage import index, layouts, topics
from smq_storage.store import Store, StoreSettings

log = logging.getLogger("smq")

FIRST_ANSWER_WITHIN = 10.0
PAUSE = 0.2
DELETED_AFTER = 3.0
ASK_BROKER_WITHIN = 0.5


@dataclass(frozen=True, slots=True)
class Known:
    """A topic and its layout, as told at one time."""

    topic: Topic
    layout: Layout


class TopicView:
    """One topic. Safe from many threads; ``close`` ends its thread."""

    def __init__(
        self,
        name: str,
        leader: LeaderLink,
        settings: StoreSettings | None = None,
        keys: tuple[str | None, str | None] = (None, None),
        network: Network = DIRECT,
    ) -> None:
        self.name = name
        self.network = network
        self._leader = leader
        self._settings = settings
        self._keys = keys
        self._store: Store | None = None
        self._changed = threading.Condition()
        self._known: Known | None = None
        self._failure: SmqError | None = None
        self._failing_since = 0.0
        self._listeners: list[Callable[[Known], None]] = []
        self._watching: Watching | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"smq-view-{name}", daemon=True)
        self._thread.start()

    # ---- for producers and consumers

    def wait_known(self, timeout: float = FIRST_ANSWER_WITHIN) -> Known:
        """The topic, as soon as anybody has told it. Raises UnknownTopic, Unavailable."""
        with self._changed:
            self._changed.wait_for(lambda: self._known or _final(self._failure), timeout)
            if self._known is not None:
                return self._known
            failure = self._failure
        if failure is not None:
            raise failure
        raise Unavailable(f"nobody told within {timeout} s where {self.name} is: is the leader up?")

    @property
    def known(self) -> Known:
        assert self._known is not None
        return self._known

    @property
    def deleted(self) -> UnknownTopic | None:
        """The word that the topic is no more, when it was repeated for DELETED_AFTER seconds: a leader may be new."""
        failure, since = self._failure, self._failing_since
        gone = isinstance(failure, UnknownTopic) and time.monotonic() - since >= DELETED_AFTER
        return failure if gone and isinstance(failure, UnknownTopic) else None

    def listen(self, listener: Callable[[Known], None]) -> None:
        """Calls after every change, from the view's thread, and once now."""
        with self._changed:
            self._listeners.append(listener)
            known = self._known
        if known is not None:
            listener(known)

    def unlisten(self, listener: Callable[[Known], None]) -> None:
        with self._changed:
            self._listeners = [it for it in self._listeners if it != listener]

    def hint(self, incarnation: str, what: str) -> None:
        """Tells the leader that this broker could not be reached; nothing depends on it."""
        if not self._leader.exists:
            return
        try:
            self._leader.call("Hint", lpb.BrokerHint(incarnation=incarnation, what=what[:200]), timeout=0.3)
        except SmqError:
            return

    def past(self) -> Past:
        """The segments that have left the layout, from the leader or from the files. Raises Unavailable."""
        if self._leader.exists:
            try:
                reply = self._leader.call("History", lpb.HistoryRequest(topic=self.name), timeout=2.0)
                sealed = {s.name: sealed_from_pb(s) for s in reply.segments}
                # A leader of an earlier version removes nothing, and does not say so.
                return Past(sealed, *removed_from_pb(reply.removed)) if reply.HasField("removed") else Past(sealed)
            except Unavailable:
                if not self._can_open_store():
                    raise
        found = index.load(self.store(), self.name, self.known.topic.uid)
        return Past({s.name: s for s in found.entries}, found.removed, {s.name: s.end for s in found.gone})

    def catch_up(self, number: int) -> None:
        """Asks the files when the layout that was told has no segment of that number yet. Raises Unavailable."""
        if number >= self.known.layout.next_number:
            self.store()
            self._read_files()

    def store(self) -> Store:
        """The files. Raises Unavailable when nobody told where they are."""
        with self._changed:
            if self._store is None:
                if self._settings is None:
                    raise StoreUnavailable(
                        "nobody told where the files are: give filer_url (and filer_endpoint) to connect()"
                    )
                self._store = self._settings.open()
            return self._store

    def close(self) -> None:
        self._stop.set()
        with self._changed:
            watching = self._watching
        if watching is not None:
            watching.cancel()
        self._thread.join(5)

    # ---- keeping it fresh

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            except UnknownTopic as error:
                self._fail(error)
            except SmqError as error:
                try:
                    told = self._ask_others()
                except SmqError as other:
                    self._fail(other)
                else:
                    if not told:
                        self._fail(error)
            except Exception as error:
                log.exception("the view of %s failed", self.name)
                self._fail(Unavailable(f"the view of {self.name} failed: {error}"))
            self._stop.wait(PAUSE)

    def _watch(self) -> None:
        if not self._leader.exists:
            raise Unavailable("there is no leader to ask")
        watching = self._leader.watch(pb.LocateRequest(topic=self.name))
        with self._changed:
            self._watching = watching
        if self._stop.is_set():
            watching.cancel()
        for reply in watching:
            self._take(reply)

    def _ask_others(self) -> bool:
        return any(self._ask_broker(a) for a in self._broker_addresses()) or self._read_files()

    def _broker_addresses(self) -> Iterable[str]:
        known = self._known
        if known is None:
            return []
        return list(dict.fromkeys(r.address for s in known.layout.segments for r in s.replicas))

    def _ask_broker(self, address: str) -> bool:
        try:
            with self.network.flight(address) as client:
                body = call(client, "locate", pb.LocateRequest(topic=self.name), timeout=ASK_BROKER_WITHIN)
            self._take(pb.LocateReply.FromString(body))
            return True
        except Exception as error:
            log.debug("%s did not tell where %s is: %s", address, self.name, error)
            return False

    def _can_open_store(self) -> bool:
        return self._settings is not None

    def _read_files(self) -> bool:
        if not self._can_open_store():
            return False
        store = self.store()
        current = topics.read_current(store, self.name)
        if current is None:
            raise UnknownTopic(f"there is no topic {self.name} in {store!r}", topic=self.name)
        topic = topics.read_topic(store, self.name, current[0])
        found = layouts.read_layout(store, self.name, current[0])
        if topic is None or found is None:
            return False
        self._set(Known(topic, found[0]))
        return True

    def _take(self, reply: pb.LocateReply) -> None:
        if not reply.layout.segments:
            return  # the topic is new: its first layout is on the way
        if reply.store_url:
            with self._changed:
                if self._settings is None:
                    told = StoreSettings.from_public_options(reply.store_url, dict(reply.store_options))
                    self._settings = replace(
                        self.network.store(told), access_key=self._keys[0], secret_key=self._keys[1]
                    )
        self._set(Known(topic_from_pb(reply.topic), layout_from_pb(reply.layout)))

    def _set(self, new: Known) -> None:
        with self._changed:
            old = self._known
            self._failure = None
            if old is not None and old.topic.uid == new.topic.uid and old.layout.version >= new.layout.version:
                return
            self._known = new
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


def _final(failure: SmqError | None) -> bool:
    return isinstance(failure, InvalidRequest)
