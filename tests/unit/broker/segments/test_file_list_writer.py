"""The chunk files that a broker records, and when it writes a file list of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from smq_broker.file_lists import writer as file_list_writer
from smq_broker.file_lists.recorded_files import FileLimit, RecordedFiles
from smq_broker.rows.blocks import ArrowBlock
from smq_broker.rows.payloads import Payload
from smq_broker.segments.hosted_segment import HostedSegment
from smq_core.errors import SmqError, StoreUnavailable
from smq_core.file_lists.file_list import FileList
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import Topic
from smq_core.replica.log_entries import Ack, BatchId, IncomingBatch
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain, StoredChunk
from smq_storage.chunks.parquet_codec import chunk_schema
from smq_storage.object_store.store import Store, open_store
from smq_storage.tables.file_lists import read_file_list
from support.data.raw_flight import rows
from support.data.stored_segment import file_list_of_chain
from support.in_memory.broker_parts import BrokerParts
from support.processes.broker import make_segment, make_topic
from support.waiting import HANG_GUARD

ROWS = 2


class FileListStore:
    """``before_file_list`` is called before a file list is written."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory://")
        self.before_file_list: Callable[[], None] = lambda: None

    def put_new(self, path: str, data: Any) -> str:
        if paths.file_list_segment(path) is not None:
            self.before_file_list()
        return self.store.put_new(path, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Primary:
    """A broker with one ``Stored`` segment. Nothing runs in the background but seals."""

    def __init__(self) -> None:
        self.store = FileListStore()
        self.broker = BrokerParts("b1", self.store)
        self.topic: Topic = make_topic()
        self.segment = make_segment(self.topic, self.broker.replica)
        self.hosted: HostedSegment = self.broker.opener.open(self.topic, self.segment)
        self._sequence = 0

    def append(self) -> None:
        id_ = BatchId("p", 1, self._sequence, "one")
        self._sequence += 1
        with self.hosted as machine:
            assert self.hosted.memory.reserve(1000)
            batch = rows([b"v"] * ROWS, key=b"k")
            machine.append(
                self,
                IncomingBatch(
                    id=id_, rows=ROWS, nbytes=1000, partition_min=0, partition_max=0, payload=Payload(ArrowBlock(batch))
                ),
                self.hosted.clock.now(),
            )

    def write_chunks(self, count: int) -> None:
        for _ in range(count):
            self.append()
            self.broker.flusher.flush_next()

    def seal(self) -> None:
        self.broker.seal(self.topic, self.segment)

    def write_file_lists(self) -> None:
        while not self.broker.file_lists.wait_until_idle(0.0):
            self.broker.file_lists.write_next()

    def file_list(self) -> FileList | None:
        name = paths.file_list_name(self.segment.name, 0)
        return read_file_list(self.store.store, self.topic.name, self.topic.uid, name)

    def walked(self) -> FileList | None:
        chain = ChunkChain(self.store.store, self.topic.name, self.topic.uid, self.segment.name)
        return file_list_of_chain(chain, self.topic.spec.key)

    def acked(self, acks: list[Ack]) -> None: ...

    def wake(self) -> None: ...

    def fail(self, error: SmqError) -> None: ...


@pytest.fixture
def primary() -> Primary:
    return Primary()


def test_the_file_list_lists_what_the_flusher_and_the_sealer_wrote(primary: Primary) -> None:
    primary.write_chunks(3)
    primary.append()  # the sealer writes this
    primary.seal()
    primary.write_file_lists()
    file_list = primary.file_list()
    assert file_list is not None
    assert [file.rows for file in file_list.files] == [ROWS] * 4
    assert file_list == primary.walked()
    assert primary.broker.metric("smq_file_lists_written_total") == 1


def test_a_chunk_of_another_writer_is_listed_by_what_the_sealer_reads(primary: Primary) -> None:
    primary.write_chunks(1)
    other = BrokerParts("b2", primary.store)
    chain = ChunkChain(primary.store.store, primary.topic.name, primary.topic.uid, primary.segment.name)
    info = ChunkInfo(segment=primary.segment.name, first=ROWS, rows=1, writer=other.replica.incarnation, nonce="n")
    chain.put(info, [(rows([b"other"]), 1)], chunk_schema(primary.topic.spec.schema))
    primary.seal()
    primary.write_file_lists()
    file_list = primary.file_list()
    assert file_list is not None
    assert [(file.first, file.rows) for file in file_list.files] == [(0, ROWS), (ROWS, 1)]
    assert file_list == primary.walked()


def test_an_empty_segment_has_a_file_list_without_files(primary: Primary) -> None:
    primary.seal()
    primary.write_file_lists()
    file_list = primary.file_list()
    assert file_list is not None
    assert (file_list.end, file_list.files) == (0, ())


def test_a_seal_waits_for_no_file_list(primary: Primary) -> None:
    blocked, release = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        release.wait(HANG_GUARD)

    primary.store.before_file_list = block
    primary.broker.file_lists.start()
    primary.write_chunks(1)
    primary.seal()
    assert blocked.wait(HANG_GUARD)
    assert primary.hosted.machine.outcome is not None
    assert not primary.broker.file_lists.wait_until_idle(0.0)
    assert primary.file_list() is None
    release.set()
    assert primary.broker.file_lists.wait_until_idle(HANG_GUARD)
    assert primary.file_list() == primary.walked()


def test_a_file_list_that_cannot_be_written_is_given_up(primary: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_list_writer, "WRITE_TIMEOUT_SECONDS", 0.0)

    def refuse() -> None:
        raise StoreUnavailable("the filer is away")

    primary.store.before_file_list = refuse
    primary.write_chunks(1)
    primary.seal()
    primary.write_file_lists()
    assert primary.file_list() is None
    assert primary.broker.file_lists.wait_until_idle(0.0)
    assert primary.broker.metric("smq_file_lists_written_total") == 0


def test_a_process_that_does_not_know_the_first_files_writes_no_file_list(primary: Primary) -> None:
    primary.write_chunks(2)
    primary.hosted.files.abandon()
    primary.write_chunks(1)
    primary.seal()
    assert primary.broker.file_lists.wait_until_idle(0.0), "nothing is to be written"
    assert primary.file_list() is None


def test_a_deleted_topic_needs_no_file_list(primary: Primary) -> None:
    primary.write_chunks(1)
    primary.hosted.deleted = True
    primary.seal()
    assert primary.broker.file_lists.wait_until_idle(0.0)


def stored_chunk(store: Store, first: int) -> StoredChunk:
    chain = ChunkChain(store, "default/t", "uid", "s")
    written = chain.put(
        ChunkInfo(segment="s", first=first, rows=1, writer="w", nonce=f"n{first}"), [(rows([b"v"]), 1)], chunk_schema()
    )
    assert isinstance(written, StoredChunk)
    return written


def test_only_lists_without_a_gap_are_recorded() -> None:
    store, limit = open_store("memory://"), FileLimit(3)
    one, other = RecordedFiles("s", "key", limit), RecordedFiles("s", "key", limit)
    for first in range(2):
        one.add(stored_chunk(store, first))
    for first in range(2, 4):
        other.add(stored_chunk(store, first))
    assert limit.used == 2, "a list that does not begin at offset 0 holds nothing"
    assert other.take(4) is None
    one.add(stored_chunk(store, 5))
    assert limit.used == 0, "a list with a gap holds nothing any more"
    assert one.take(2) is None


def test_a_segment_beyond_the_limit_drops_its_files() -> None:
    store, limit = open_store("memory://"), FileLimit(2)
    files = RecordedFiles("s", "key", limit)
    chunks = [stored_chunk(store, first) for first in range(3)]
    for chunk in chunks:
        files.add(chunk)
    assert limit.used == 0
    assert files.take(3) is None
    others = RecordedFiles("s", "key", limit)
    for chunk in chunks[:2]:
        others.add(chunk)
        others.add(chunk)
    assert limit.used == 2, "a chunk that is known is counted once"
    file_list = others.take(2)
    assert file_list is not None
    assert len(file_list.files) == 2
    assert limit.used == 0, "nothing is recorded after the seal"
