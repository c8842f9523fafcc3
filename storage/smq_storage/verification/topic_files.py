"""Checks all files of a topic against layout and index, from the store alone: without leader and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from smq_core.errors import CorruptDocument, UnknownTopic
from smq_core.model.entities import Layout, SealedSegment, SegmentEntry, Topic
from smq_core.reading.segment_dag import is_removed
from smq_storage.catalog import layouts, paths, sealed_index
from smq_storage.catalog.sealed_index import Index
from smq_storage.catalog.topics import read_current_topic, read_topic
from smq_storage.object_store.absence import SuspectedAbsences
from smq_storage.object_store.store import Store
from smq_storage.verification.columns import TopicColumns
from smq_storage.verification.findings import FileProblem
from smq_storage.verification.referenced_uploads import ReferencedUploads
from smq_storage.verification.segment_verification import SegmentFiles


class TopicFiles:
    """The files of the topic with this full name. It may be written to meanwhile.

    Only footers are read, with ``rows`` all messages. ``segments``, ``files`` and ``messages`` count what was checked.
    """

    def __init__(self, store: Store, name: str, *, rows: bool = False) -> None:
        self._store = store
        self._name = name
        self._rows = rows
        self.segments = self.files = self.messages = 0

    def problems(self) -> Iterator[FileProblem]:
        """One after the other, as they are found. Raises UnknownTopic, StoreUnavailable."""
        topic = self._topic()
        try:
            # The layout first: a segment that leaves it in between is in the index.
            found = layouts.read_layout(self._store, topic.name, topic.uid)
            index = sealed_index.load(self._store, topic.name, topic.uid)
        except CorruptDocument as error:
            yield FileProblem.of(error, paths.topic_folder(topic.name, topic.uid))
            return
        layout = found[0] if found is not None else None
        if layout is None and (index.entries or self._has_chunks(topic)):
            yield FileProblem(
                paths.layout(topic.name, topic.uid),
                "is missing, so nobody knows which segments are open: `smq topic recover` writes it anew",
            )
        columns = TopicColumns(topic, layout)
        absences = SuspectedAbsences(self._store)
        uploads = ReferencedUploads(self._store, topic.uid, absences, rows=self._rows)
        files_of = partial(
            SegmentFiles,
            store=self._store,
            topic=topic,
            columns=columns,
            uploads=uploads,
            absences=absences,
            rows=self._rows,
        )
        yield from _unknown_predecessors(topic, layout, index)
        for segment in _expected(layout, index):
            checked = files_of(segment=segment)
            problems = list(checked.problems())
            if problems and isinstance(segment, SealedSegment) and segment.file_list:
                # Superseded chunks may be deleted between the answers, and the index may name other files by now.
                segment = self._current(topic, segment)
                checked = files_of(segment=segment)
                problems = list(checked.problems())
            self.segments += 1
            self.files += len(checked.files)
            self.messages += sum(file.rows for file in checked.files)
            if problems and not self._was_removed(topic, segment):
                absences.confirm()
                yield from problems

    def _topic(self) -> Topic:
        current = read_current_topic(self._store, self._name)
        topic = read_topic(self._store, self._name, current.uid) if current is not None else None
        if topic is None:
            raise UnknownTopic(f"there is no topic {self._name} in {self._store!r}", topic=self._name)
        return topic

    def _has_chunks(self, topic: Topic) -> bool:
        """Whether there is a file of messages. A topic that is being created has no layout either, but no messages."""
        folder = paths.topic_folder(topic.name, topic.uid)
        return any(found.path.endswith(".parquet") for found in self._store.list(folder))

    def _current(self, topic: Topic, segment: SealedSegment) -> SealedSegment:
        """The entry as the index has it now, with the file list that it names."""
        entries = sealed_index.read(self._store, topic.name, topic.uid)
        return next((it for it in entries if it.name == segment.name), segment)

    def _was_removed(self, topic: Topic, segment: SegmentEntry) -> bool:
        """Whether retention has removed the segment since the index was read."""
        index = sealed_index.load(self._store, topic.name, topic.uid)
        return segment.name not in {it.name for it in index.entries} and is_removed(segment.name, index.removed)


def _expected(layout: Layout | None, index: Index) -> list[SegmentEntry]:
    names = {it.name for it in index.entries}
    return [*index.entries, *(it for it in (layout.segments if layout is not None else ()) if it.name not in names)]


def _unknown_predecessors(topic: Topic, layout: Layout | None, index: Index) -> Iterator[FileProblem]:
    predecessors = {entry.name: entry.predecessors for entry in index.entries}
    predecessors |= {segment.name: segment.predecessors for segment in layout.segments} if layout is not None else {}
    for segment, names in predecessors.items():
        for name in names:
            if name not in predecessors and not is_removed(name, index.removed):
                yield FileProblem(
                    paths.index_folder(topic.name, topic.uid),
                    f"lacks {name}, the predecessor of {segment}, so nobody finds its messages",
                )
