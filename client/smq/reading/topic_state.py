"""What of a topic can be read at one moment: its segments, and the end of each."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType

from smq.reading.broker_reports import BrokerReports, Reach
from smq.reading.topic_location import TopicLocation
from smq_core.errors import UnknownTopic
from smq_core.model.entities import Layout, Replica, Segment
from smq_core.reading.segment_dag import SegmentNode, build_nodes, highest_number
from smq_storage.catalog.sealed_index import Index
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.store import Store
from smq_storage.tables.pinned_reads import TopicFiles, read_topic_files
from smq_storage.tables.segment_files import StoredSegment

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicState:
    """Can be sent to another process.

    ``ends`` has the offset up to which each segment can be read. It is final for the segments in ``sealed``: nothing
    comes after it. ``flushed`` says of living segments up to where their messages are in files, as far as brokers
    reported it.
    """

    files: TopicFiles
    ends: Mapping[str, int]
    sealed: frozenset[str]
    flushed: Mapping[str, int]

    @property
    def topic(self) -> str:
        return self.files.topic

    @property
    def uid(self) -> str:
        return self.files.uid

    @property
    def index(self) -> Index:
        return self.files.index

    @property
    def layout(self) -> Layout:
        return self.files.layout

    def segments(self) -> Mapping[str, StoredSegment]:
        """Where the files of each segment are, with predecessors before their successors."""
        return self._segments

    def replicas(self, segment: str) -> tuple[Replica, ...]:
        """The replicas that may have the segment in memory; none if it is in the index."""
        living = self.layout.segment(segment) if segment in self.layout else None
        return living.replicas if living is not None and segment not in self._indexed else ()

    def nodes(self) -> Mapping[str, SegmentNode]:
        """The segment DAG. Also has the final ends of segments that are sealed and not yet in the index."""
        return self._nodes

    @cached_property
    def _segments(self) -> dict[str, StoredSegment]:
        return {it.name: it for it in sorted(self.files.segments(), key=lambda it: highest_number((it.name,)))}

    @cached_property
    def _nodes(self) -> dict[str, SegmentNode]:
        nodes = build_nodes(self.index.entries, self.layout)
        return {name: replace(it, end=self.ends[name]) if name in self.sealed else it for name, it in nodes.items()}

    @cached_property
    def _indexed(self) -> frozenset[str]:
        return frozenset(entry.name for entry in self.index.entries)


class StateLoader:
    """Loads the state of one topic again and again, with the same connections. Cannot be sent to another process.

    With ``files_only`` it asks no broker: living segments end where their files do. So does a segment of which no
    broker answers.
    """

    def __init__(self, location: TopicLocation, store: Store | None = None, *, files_only: bool = False) -> None:
        self._location = location
        self._store = store if store is not None else location.open_store()
        self._reports = None if files_only else BrokerReports(location.dialer())

    def load(self) -> TopicState:
        """Raises UnknownTopic if the topic was deleted, Unavailable, StoreDenied, CorruptDocument, CorruptChunk."""
        at = self._location
        files = read_topic_files(self._store, at.topic, at.uid)
        if files.layout.deleted:
            raise UnknownTopic(f"the topic {at.topic} with the uid {at.uid} was deleted", topic=at.topic)
        return self.complete(files)

    def complete(self, files: TopicFiles) -> TopicState:
        """The state for files that were read before, such as those under a pin. Raises as ``load``."""
        at = self._location
        ends = {entry.name: entry.end for entry in files.index.entries}
        sealed = set(ends)
        living = [it for it in files.layout.segments if it.name not in sealed]
        reaches = self._reports.reaches(at.topic, at.uid, living) if self._reports is not None else {}
        for segment in living:
            # Successors open after the seal. So with a seal that is found after the reports, whatever they say of a
            # successor comes after all messages of its predecessors.
            end = self._seal(segment)
            if end is not None:
                sealed.add(segment.name)
            ends[segment.name] = self._end(segment, reaches) if end is None else end
        unreported = [it.name for it in living if it.name not in reaches and it.name not in sealed]
        if unreported and self._reports is not None:
            log.warning("no broker reports how far %s can be read: read as far as files go", ", ".join(unreported))
        flushed = {name: reach.flushed for name, reach in reaches.items() if name not in sealed}
        return TopicState(files, ends, frozenset(sealed), flushed)

    def close(self) -> None:
        """Closes the connections. Repeatable."""
        if self._reports is not None:
            self._reports.close()

    def __enter__(self) -> StateLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _seal(self, segment: Segment) -> int | None:
        if not segment.successors:
            return None
        at = self._location
        found = ChunkChain(self._store, at.topic, at.uid, segment.name).read_seal_chunk()
        return found.first if found is not None else None

    def _end(self, segment: Segment, reaches: Mapping[str, Reach]) -> int:
        reach = reaches.get(segment.name)
        if reach is not None:
            return reach.watermark
        return ChunkChain(self._store, self._location.topic, self._location.uid, segment.name).end()


def load_state(location: TopicLocation, store: Store | None = None, *, files_only: bool = False) -> TopicState:
    """The state of a topic now; as ``StateLoader.load``, with separate connections."""
    with StateLoader(location, store, files_only=files_only) as loader:
        return loader.load()
