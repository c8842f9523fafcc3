"""What of a topic can be read at one moment, while a segment is sealed at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from smq.reading import StateLoader, TopicLocation
from smq.reading.broker_reports import Reach
from smq_core.model.entities import Phase, Segment
from smq_storage.catalog.layouts import put_layout, read_layout
from smq_storage.object_store.store import StoreSettings
from support.data.sealed_topic import END, make_topic, segment_name, write_segment


def test_what_successors_have_comes_after_all_messages_of_their_predecessors() -> None:
    settings = StoreSettings(url="memory://test_topic_state")
    store = settings.open()
    topic = make_topic(store, 0)
    found = read_layout(store, topic.name, topic.uid)
    assert found is not None
    layout, etag = found
    first, second = segment_name(0), segment_name(1)
    sealing = replace(layout.segments[0], phase=Phase.SEALING, successors=(second,))
    successor = replace(layout.segments[0], name=second, number=1, predecessors=(first,))
    put_layout(store, replace(layout, segments=(sealing, successor), next_number=2, writer="x"), etag)

    class Reports:
        """The segment is sealed, and its successor gets messages, after a replica has said how far it reaches."""

        def reaches(self, _: str, uid: str, segments: Iterable[Segment]) -> dict[str, Reach]:
            write_segment(store, topic, first)
            return {first: Reach(END - 1, 0), second: Reach(2, 0)}

    loader = StateLoader(TopicLocation(topic=topic.name, uid=topic.uid, store=settings), store, files_only=True)
    reports: Any = Reports()
    loader._reports = reports
    state = loader.load()
    assert state.ends == {first: END, second: 2} and state.sealed == {first}
