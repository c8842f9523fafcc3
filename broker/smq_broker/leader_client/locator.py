"""Answers ``locate`` from the filer, so that clients find a topic's segments without a leader."""

from __future__ import annotations

import time

from smq_broker.runtime.shared_reads import SharedReads
from smq_core.errors import UnknownTopic
from smq_core.model.entities import Layout, Topic
from smq_core.model.names import full_topic_name
from smq_core.model.schema_evolution import newest_schema
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import layout_to_pb, topic_to_pb
from smq_storage.catalog.layouts import read_layout
from smq_storage.catalog.topics import read_current_topic, read_topic
from smq_storage.object_store.store import Store, StoreSettings
from smq_storage.process.locks import make_lock

# Many clients look for a segment's successor at once, and again soon if they do not find it: whoever looks while it is
# being opened gets the former one that long. So a topic costs few reads of the filer.
CACHE_TTL_SECONDS = 0.05


class Locator:
    """Layouts read from the filer, at most ``CACHE_TTL_SECONDS`` old."""

    def __init__(self, store: Store, settings: StoreSettings) -> None:
        self._store = store
        self._settings = settings
        self._lock = make_lock()
        self._cache: dict[str, tuple[float, Topic, Layout]] = {}
        self._reads: SharedReads[str, tuple[Topic, Layout]] = SharedReads()

    def locate(self, name: str) -> pb.LocateReply:
        """Raises InvalidRequest, UnknownTopic, StoreUnavailable."""
        topic, layout = self.find(full_topic_name(name))
        return pb.LocateReply(
            topic=topic_to_pb(topic, newest_schema(layout, topic.spec.schema)),
            layout=layout_to_pb(layout),
            store_url=self._settings.url,
            store_options=self._settings.to_public_options(),
        )

    def find(self, name: str, *, fresh: bool = False) -> tuple[Topic, Layout]:
        """The topic of this full name; with ``fresh`` as it is now. Raises UnknownTopic, StoreUnavailable."""
        with self._lock:
            cached = self._cache.get(name)
        if not fresh and cached is not None and time.monotonic() - cached[0] < CACHE_TTL_SECONDS:
            return cached[1], cached[2]
        # A read that others wait for may have begun too early.
        topic, layout = self._read(name) if fresh else self._reads.read(name, lambda: self._read(name))
        with self._lock:
            self._cache = {k: v for k, v in self._cache.items() if time.monotonic() - v[0] < CACHE_TTL_SECONDS}
            self._cache[name] = (time.monotonic(), topic, layout)
        return topic, layout

    def _read(self, name: str) -> tuple[Topic, Layout]:
        current = read_current_topic(self._store, name)
        topic = read_topic(self._store, name, current.uid) if current else None
        layout = read_layout(self._store, name, current.uid) if current else None
        if topic is None or layout is None:
            raise UnknownTopic(f"there is no topic {name}: create it with `smq apply` or `kubectl apply`", topic=name)
        return topic, layout[0]
