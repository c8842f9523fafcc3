"""What the stored layouts say of requests to open and to seal a segment, and of names in other requests.

Whoever reaches the port can send such a request, and every reader knows names and incarnations. But only the leader
changes layouts, and it does so before it sends a request. So a request that no layout confirms is not carried out.
"""

from __future__ import annotations

from collections.abc import Callable

from smq_broker.runtime.shared_reads import SharedReads
from smq_core.errors import Unavailable
from smq_core.model.entities import Layout, Segment, Topic, number_of, range_of, segment_name
from smq_core.model.names import shown
from smq_core.model.schema_evolution import schema_of
from smq_storage.catalog.layouts import read_layout
from smq_storage.catalog.topics import read_current
from smq_storage.object_store.store import Store
from smq_storage.process.locks import make_lock

# How many are kept. A broker hosts segments of fewer topics at once, mostly.
MAX_LAYOUTS = 256


class StoredLayouts:
    """Safe from many threads. Reads a layout only if the one that was read last does not confirm the request.

    What a layout confirms stays true: a name is never used again, and no seal is taken back.

    All methods raise the errors of ``read_layout``.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = make_lock()
        self._known: dict[tuple[str, str], Layout] = {}
        self._reads: SharedReads[tuple[str, str], Layout | None] = SharedReads()

    def check_open(self, topic: Topic, segment: Segment) -> None:
        """Raises Unavailable unless the layout has the segment with this range, these replicas and this schema."""

        if not self._confirms(topic.name, topic.uid, lambda layout: _opens(layout, topic, segment)):
            raise Unavailable(
                f"the stored layout of {topic.name} has no {segment.name} with these replicas: only the leader opens "
                "segments, after it has written the layout"
            )

    def check_seal(self, topic: str, uid: str, segment: str) -> None:
        """Raises Unavailable if the layout has the segment and plans no seal of it."""
        with self._lock:
            known = self._known.get((topic, uid))
        if known is not None and _is_sealing(known, segment):
            return
        # What was read before says nothing about a segment that it lacks: it may have been opened since.
        layout = self._read(topic, uid)
        if layout is None or segment not in layout or _is_sealing(layout, segment):
            return
        current = read_current(self._store, topic)
        if current is None or current[0] == uid:
            raise _no_seal(topic, segment)

    def check_planned_seal(self, topic: str, uid: str, segment: str) -> None:
        """Raises Unavailable unless the layout has the segment and plans its seal."""
        if not self._confirms(topic, uid, lambda layout: _is_sealing(layout, segment)):
            raise _no_seal(topic, segment)

    def check_given(self, topic: str, uid: str, segment: str) -> None:
        """Raises Unavailable unless a segment of this name is in the layout, or was at some time."""
        if not self._confirms(topic, uid, lambda layout: _has_given(layout, segment)):
            raise Unavailable(f"the stored layout of {shown(topic)} has never had a segment {shown(segment)}")

    def _confirms(self, topic: str, uid: str, confirms: Callable[[Layout], bool]) -> bool:
        with self._lock:
            known = self._known.get((topic, uid))
        if known is not None and confirms(known):
            return True
        layout = self._read(topic, uid)
        return layout is not None and confirms(layout)

    def _read(self, topic: str, uid: str) -> Layout | None:
        """The layout after a read that begins now; the one that is known if that is newer than what was read."""
        return self._reads.read((topic, uid), lambda: self._read_alone(topic, uid))

    def _read_alone(self, topic: str, uid: str) -> Layout | None:
        found = read_layout(self._store, topic, uid)
        layout = found[0] if found is not None else None
        with self._lock:
            known = self._known.get((topic, uid))
            if known is not None and (layout is None or layout.version < known.version):
                return known
            if layout is not None:
                if len(self._known) >= MAX_LAYOUTS:
                    self._known.clear()
                self._known[topic, uid] = layout
        return layout


def _opens(layout: Layout, topic: Topic, segment: Segment) -> bool:
    if layout.deleted or segment.name not in layout or layout.partitions != topic.spec.partitions:
        return False
    stored = layout.segment(segment.name)
    columns = schema_of(stored.schema_version, layout, topic.spec.schema).columns
    return (stored.range, stored.replicas, stored.durability, stored.predecessors, stored.schema_version, columns) == (
        segment.range,
        segment.replicas,
        segment.durability,
        segment.predecessors,
        segment.schema_version,
        topic.spec.schema,
    )


def _has_given(layout: Layout, segment: str) -> bool:
    if segment in layout:
        return True
    try:
        range_, number = range_of(segment), number_of(segment)
    except ValueError:
        return False
    was_given = 0 <= number < layout.next_number and range_.stop <= layout.partitions
    return was_given and segment == segment_name(layout.topic, range_, number)


def _no_seal(topic: str, segment: str) -> Unavailable:
    return Unavailable(
        f"the stored layout of {topic} plans no seal of {segment}: only the leader seals segments, after it has "
        "written the layout"
    )


def _is_sealing(layout: Layout, segment: str) -> bool:
    return segment in layout and (layout.deleted or bool(layout.segment(segment).successors))
