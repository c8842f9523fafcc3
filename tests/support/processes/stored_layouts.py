"""Layouts as a leader writes them before it lets brokers open and seal segments."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from smq_core.errors import Conflict
from smq_core.model.entities import Layout, Segment, Topic
from smq_storage.catalog.layouts import put_layout, read_layout
from smq_storage.object_store.store import Store

# The successors of a segment that is to be sealed.
PLANNED = ("planned",)


def plan_open(store: Store, topic: Topic, segment: Segment) -> None:
    """Adds the segment to the topic's stored layout, unless it is there."""

    def added(layout: Layout) -> Layout:
        return layout if segment.name in layout else replace(layout, segments=(*layout.segments, segment))

    _change(store, topic, added)


def plan_seal(store: Store, topic: Topic, segment: Segment) -> None:
    """Lets the stored layout plan the seal of that segment, if it has it."""

    def sealing(layout: Layout) -> Layout:
        if segment.name not in layout or layout.segment(segment.name).successors:
            return layout
        found = tuple(replace(it, successors=PLANNED) if it.name == segment.name else it for it in layout.segments)
        return replace(layout, segments=found)

    _change(store, topic, sealing)


def _change(store: Store, topic: Topic, change: Callable[[Layout], Layout]) -> None:
    while True:
        found = read_layout(store, topic.name, topic.uid)
        before, etag = (
            found
            if found is not None
            else (Layout(topic=topic.name, uid=topic.uid, partitions=topic.spec.partitions), None)
        )
        after = change(before)
        if after is before:
            return
        try:
            put_layout(store, replace(after, version=before.version + 1, writer=uuid.uuid4().hex), etag)
            return
        except Conflict:
            continue
