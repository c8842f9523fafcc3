"""Which segments the filer says may have rows of a publish, after a leader was paused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from smq_core.errors import StoreUnavailable, Unavailable
from smq_core.model.atomic_publish import AppState, AtomicFile, LayoutMark, claim_app, commit_version, complete_version
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Layout, RemovedSegment, Topic
from smq_operator.publishing.tried_segments import last_sequence_before_forgotten, read_tried_segments
from smq_storage.catalog import paths, sealed_index
from smq_storage.catalog.atomic_publishes import change_publishes
from smq_storage.catalog.layouts import put_layout, read_layout
from smq_storage.chunks.chain import ChunkChain
from smq_storage.object_store.conditional_writes import RetryPolicy
from smq_storage.object_store.store import Store, StoredObject, open_store
from support.data.sealed_topic import END, ROWS, make_topic, segment_name

RETRY = RetryPolicy(5.0)
SEALED, OPEN, LATER = 0, 1, 1002


class CommittedPublish:
    """A topic with a sealed and an open segment, and a publish that a leader has read as unfinished."""

    def __init__(self, mark: LayoutMark) -> None:
        self.store: Store = open_store("memory://")
        self.topic: Topic = make_topic(self.store, 1)
        self._change(lambda it: claim_app(it, "etl", "me", "p", 0))
        file = AtomicFile(upload="u.parquet", etag="etag", rows=4, bytes=100, timestamp_min=1, timestamp_max=4)
        self._change(lambda it: commit_version(it, "etl", "me", 1, "r", [file], mark, 0)[0])

    def _change(self, step) -> None:
        app = change_publishes(self.store, self.topic.name, self.topic.uid, step, RETRY).app("etl")
        assert app is not None
        self.app: AppState = app if app.unfinished is not None else getattr(self, "app", app)

    def complete(self) -> None:
        """Another leader does; this one has read the document before."""
        self._change(lambda it: complete_version(it, "etl", 1, 0))

    def remove(self) -> None:
        """Retention removes the sealed segment."""
        removal = RemovedSegment(name=segment_name(SEALED), number=0, end=END, removed_at=1)
        sealed_index.remove(self.store, self.topic.name, self.topic.uid, [removal], RETRY)

    def layout(self) -> tuple[Layout, str]:
        found = read_layout(self.store, self.topic.name, self.topic.uid)
        assert found is not None
        return found

    def read(self, store: Store | None = None):
        assert self.app.unfinished is not None
        return read_tried_segments(store or self.store, self.topic, self.app, self.app.unfinished, {}, RETRY)


def test_segments_that_were_sealed_after_the_commit_and_before() -> None:
    publish = CommittedPublish(LayoutMark(1, (SEALED,), 1))
    found = publish.read()
    assert found.tried.sealed.keys() == {SEALED} and found.tried.writable.keys() == {OPEN}
    before = CommittedPublish(LayoutMark(1, (SEALED, OPEN), 2))
    before.remove()
    assert before.read().tried.sealed == {}, "it was sealed before the commit, when nothing kept it"


def test_a_completed_publish_is_not_written_again_after_retention() -> None:
    """Its rows in removed segments would seem to be missing."""
    publish = CommittedPublish(LayoutMark(1, (SEALED,), 1))
    publish.complete()
    publish.remove()
    assert publish.read() is None


@pytest.mark.parametrize("mark", [LayoutMark(1, (SEALED,), 1), LayoutMark(1, (), SEALED)])
def test_an_answer_of_before_the_completion_is_not_believed_after_retention(mark: LayoutMark) -> None:
    publish = CommittedPublish(mark)
    document = paths.publishes(publish.topic.name, publish.topic.uid)
    before = publish.store.get(document)
    publish.complete()
    publish.remove()

    class OutOfDate:
        """The first answer about publishes is what was there before the completion."""

        def __init__(self) -> None:
            self.answers = [before]

        def get(self, path: str) -> StoredObject:
            return self.answers.pop() if path == document and self.answers else publish.store.get(path)

        def __getattr__(self, name: str) -> Any:
            return getattr(publish.store, name)

    with pytest.raises(Unavailable, match="being changed"):
        publish.read(cast(Store, OutOfDate()))


def test_an_app_that_publishes_a_later_version_is_not_written_for_an_earlier_one() -> None:
    publish = CommittedPublish(LayoutMark(1, (SEALED,), 1))
    publish.app = replace(publish.app, epoch=0)
    assert publish.read() is None


def test_a_segment_with_forgotten_producers_is_checked_up_to_the_end_of_its_files() -> None:
    """Otherwise a segment that goes on to forget producers is checked forever."""
    publish = CommittedPublish(LayoutMark(1, (SEALED,), 1))
    store, topic, app = publish.store, publish.topic, publish.app
    assert last_sequence_before_forgotten(store, topic, app, segment_name(SEALED), 1) == (-1, END)
    with pytest.raises(Unavailable, match="not yet written"):
        last_sequence_before_forgotten(store, topic, app, segment_name(SEALED), END + 1)


def test_a_publish_does_not_wait_for_a_segment_that_was_removed_between_its_mark_and_its_commit() -> None:
    """The commit may read a layout that is a moment old. Retention removed nothing since, as the publish shows."""
    publish = CommittedPublish(LayoutMark(1, (), SEALED))
    publish.remove()
    found = publish.read()
    assert found.tried.sealed == {} and found.tried.writable.keys() == {OPEN}


def test_a_publish_does_not_wait_for_numbers_that_no_segment_has() -> None:
    """A layout that was rebuilt leaves some out."""
    publish = CommittedPublish(LayoutMark(1, (SEALED,), 1))
    layout, etag = publish.layout()
    (last,) = layout.segments
    new = replace(last, name=segment_name(LATER), number=LATER)
    put_layout(publish.store, replace(layout, segments=(new,), next_number=LATER + 1, writer="rebuilt"), etag)
    found = publish.read()
    assert found.tried.sealed.keys() == {SEALED} and found.tried.writable.keys() == {LATER}


def test_nothing_is_written_while_a_segment_is_in_neither_layout_nor_index() -> None:
    """An index that is older than the layout lacks a segment that may have rows."""
    publish = CommittedPublish(LayoutMark(1, (SEALED, OPEN), 2))
    layout, etag = publish.layout()
    (last,) = layout.segments
    new = replace(last, name=segment_name(LATER), number=LATER, predecessors=(last.name,))
    put_layout(publish.store, replace(layout, segments=(new,), next_number=LATER + 1, writer="later"), etag)
    with pytest.raises(Unavailable, match="fit together"):
        publish.read()


def test_a_sealed_segment_with_forgotten_producers_is_checked_up_to_its_end() -> None:
    """A GET that finds no chunk ends the walk too early; batches behind it would be written twice."""
    publish = CommittedPublish(LayoutMark(1, (SEALED,), 1))
    store, name = publish.store, segment_name(SEALED)
    chain = ChunkChain(store, publish.topic.name, publish.topic.uid, name)
    store.delete(chain.path(END))
    chain.put_seal(ChunkInfo(segment=name, first=END, rows=0, writer="w", nonce="seal", sealed=True, forgotten_upto=1))
    assert publish.read().last_sequences == {SEALED: -1}
    store.delete(chain.path(ROWS))
    with pytest.raises(StoreUnavailable, match=f"does not return the chunk of {name} at {ROWS}"):
        publish.read()
