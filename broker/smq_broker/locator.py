"""Answers ``locate`` from the filer, so that clients find a topic's segments while no leader is there."""

from __future__ import annotations

import threading
import time

from smq_core.errors import UnknownTopic
from smq_core.model import Layout, Segment, Topic
from smq_proto.v1 import data_pb2 as pb
from smq_proto.wire import layout_to_pb, topic_to_pb
from smq_storage.layouts import read_layout
from smq_storage.store import Store, StoreSettings
from smq_storage.topics import read_current, read_topic

FRESH = 0.2


class Locator:
    """Layouts read from the filer, at most 200 ms old."""

    def __init__(self, store: Store, settings: StoreSettings) -> None:
        self._store = store
        self._settings = settings
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Topic, Layout]] = {}

    def locate(self, name: str) -> pb.LocateReply:
        """Raises UnknownTopic, StoreUnavailable."""
        topic, layout = self._find(full_name(name))
        return pb.LocateReply(
            topic=topic_to_pb(topic),
            layout=layout_to_pb(layout),
            store_url=self._settings.url,
            store_options=self._settings.to_public_options(),
        )

    def successors(self, topic: str, uid: str, segment: str) -> tuple[Segment, ...]:
        """The segments of the present layout that succeed this one. Raises StoreUnavailable."""
        found = read_layout(self._store, topic, uid)
        return tuple(s for s in found[0].segments if segment in s.predecessors) if found else ()

    def _find(self, name: str) -> tuple[Topic, Layout]:
        with self._lock:
            known = self._known.get(name)
        if known is not None and time.monotonic() - known[0] < FRESH:
            return known[1], known[2]
        topic, layout = self._read(name)
        with self._lock:
            self._known = {k: v for k, v in self._known.items() if time.monotonic() - v[0] < FRESH}
            self._known[name] = (time.monotonic(), topic, layout)
        return topic, layout

    def _read(self, name: str) -> tuple[Topic, Layout]:
        current = read_current(self._store, name)
        topic = read_topic(self._store, name, current[0]) if current else None
        layout = read_layout(self._store, name, current[0]) if current else None
        if topic is None or layout is None:
            raise UnknownTopic(f"there is no topic {name}: create it with `smq apply` or `kubectl apply`", topic=name)
        return topic, layout[0]


def full_name(topic: str) -> str:
    """``namespace/topic``; a bare name is in the namespace ``default``."""
    return topic if "/" in topic else f"default/{topic}"
