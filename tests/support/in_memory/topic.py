"""One topic as clients see it, without leader and brokers: its layout, its history, its chunks in a store in memory.

``TopicInMemory`` is the view that producers and consumers get, ``GroupInMemory`` the leader that group members call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partialmethod
from typing import IO, Any

import pyarrow as pa

from smq.transport.dialer import DIRECT
from smq.transport.filer_health import FilerHealth
from smq.transport.topic_view import SealedHistory, TopicSnapshot
from smq_core.errors import SmqError, StaleGeneration, UnknownTopic
from smq_core.model.chunk_info import ChunkInfo
from smq_core.model.entities import (
    Durability,
    Layout,
    Phase,
    Reason,
    Replica,
    SealedSegment,
    Segment,
    Topic,
    TopicSpec,
    segment_name,
)
from smq_core.model.keyspace import KeyRange
from smq_core.model.loss import Loss
from smq_proto.v1 import groups_pb2
from smq_storage.catalog import paths
from smq_storage.chunks.chain import ChunkChain
from smq_storage.chunks.schemas import chunk_schema
from smq_storage.object_store.store import Store, open_store
from smq_storage.tables.file_lists import write_file_list
from support.data import uploads
from support.data.stored_segment import file_list_of_chain
from support.in_memory.brokers import batch_of
from support.waiting import eventually

PARTITIONS = 8
REPLICAS = tuple(Replica(f"b{i}", f"b{i}-1", f"b{i}:1") for i in range(2))


@dataclass(frozen=True)
class StoreOfTopic:
    """What a view has as its ``store``."""

    topic: TopicInMemory
    signs_uploads = False

    def open(self) -> Store:
        return self.topic.files

    def open_for_uploads(self, timeout: float = 0.0) -> Any:
        return self.topic.open_upload_store(timeout)

    def open_url(self, url: str) -> IO[bytes]:
        raise FileNotFoundError(url)


class TopicInMemory:
    """The view of a topic with one open segment over the whole ring. Changes reach listeners in the caller's thread."""

    dialer = DIRECT
    reader_channels = None
    name = "default/t"

    def __init__(self) -> None:
        self.filer_health = FilerHealth()
        self.topic = Topic(self.name, "uid", TopicSpec(partitions=PARTITIONS))
        self.files: Store = open_store("memory://")
        self.sealed: dict[str, SealedSegment] = {}
        self.removed: Mapping[str, int] = {}
        self.deleted: UnknownTopic | None = None
        self.unreachable: list[str] = []
        self._listeners: list[Callable[[TopicSnapshot], None]] = []
        self.first = self.segment(0)
        self.snapshot = TopicSnapshot(
            self.topic,
            Layout(topic=self.name, uid="uid", partitions=PARTITIONS, version=1, next_number=1, segments=(self.first,)),
        )

    # ---- what clients call

    def add_listener(self, listener: Callable[[TopicSnapshot], None]) -> None:
        self._listeners.append(listener)
        listener(self.snapshot)

    def remove_listener(self, listener: Callable[[TopicSnapshot], None]) -> None:
        self._listeners = [it for it in self._listeners if it != listener]

    def sealed_history(self) -> SealedHistory:
        numbers = sorted(int(name.rsplit("-", 1)[1]) for name in self.removed)
        return SealedHistory(dict(self.sealed), tuple((n, n + 1) for n in numbers), dict(self.removed))

    def refresh_from_store(self, number: int) -> None: ...

    def report_unreachable_broker(self, incarnation: str, what: str) -> None:
        self.unreachable.append(incarnation)

    @property
    def store(self) -> StoreOfTopic:
        return StoreOfTopic(self)

    def open_upload_store(self, timeout: float) -> Any:
        """Where uploads go; tests replace it."""
        return self.files

    # ---- what a test does

    def segment(
        self, number: int, start: int = 0, stop: int = PARTITIONS, predecessors: tuple[str, ...] = ()
    ) -> Segment:
        """An open segment of that number and range."""
        ring = KeyRange(start, stop)
        name = segment_name(self.name, ring, number)
        return Segment(
            name=name,
            number=number,
            range=ring,
            phase=Phase.OPEN,
            durability=Durability.REPLICATED,
            replicas=REPLICAS,
            predecessors=predecessors,
        )

    def set_layout(self, segments: Iterable[Segment]) -> None:
        """Replaces the layout, and tells the listeners."""
        old, found = self.snapshot.layout, tuple(segments)
        number = max(old.next_number, *(s.number + 1 for s in found))
        layout = replace(old, version=old.version + 1, next_number=number, segments=found)
        self.snapshot = TopicSnapshot(self.topic, layout)
        for listener in list(self._listeners):
            listener(self.snapshot)

    def seal(self, segment: Segment, end: int, *successors: Segment, **values: Any) -> None:
        """Moves the segment from the layout to the history and puts its successors into the layout."""
        names = tuple(s.name for s in successors)
        self.sealed[segment.name] = SealedSegment(
            name=segment.name,
            number=segment.number,
            range=segment.range,
            end=end,
            predecessors=segment.predecessors,
            successors=names,
            opened_because=Reason.CREATE,
            sealed_because=Reason.SPLIT,
            opened_at=0,
            sealed_at=0,
        )
        self.sealed[segment.name] = replace(self.sealed[segment.name], **values)
        self.set_layout([*(s for s in self.snapshot.layout.segments if s.name != segment.name), *successors])

    def chain(self, segment: Segment) -> ChunkChain:
        return ChunkChain(self.files, self.name, "uid", segment.name)

    def put_chunk(self, segment: Segment, first: int, appended: list[int]) -> None:
        """A chunk with a row for each append time (microseconds)."""
        info = ChunkInfo(segment=segment.name, first=first, rows=len(appended), writer="w", nonce=f"n{first}")
        times = pa.array(appended, pa.timestamp("us", "UTC"))
        self.chain(segment).put(info, [(batch_of(len(appended), segment.range.start), times)], chunk_schema())

    def put_reference(self, segment: Segment, first: int, rows: int, appended: int) -> str:
        """An upload of ``rows`` rows, and the reference chunk that publishes them. Returns the upload's path."""
        messages = pa.Table.from_batches([batch_of(rows, segment.range.start)])
        upload = uploads.write(self.files, "uid", f"u{first}.parquet", messages)
        reference = upload.reference(segment.range)
        info = ChunkInfo(
            segment=segment.name,
            first=first,
            rows=rows,
            writer="w",
            nonce=f"n{first}",
            reference=reference,
            appended=appended,
        )
        self.chain(segment).put(info, [], chunk_schema())
        return paths.uploaded_file("uid", upload.name)

    def put_seal(self, segment: Segment, end: int, lost: Loss | None = None) -> None:
        self.chain(segment).put_seal(
            ChunkInfo(segment=segment.name, first=end, rows=0, writer="w", nonce="seal", sealed=True, lost=lost)
        )

    def name_file_list(self, segment: Segment) -> str:
        """Writes the file list of a sealed segment and names it in the history. Returns its path."""
        file_list = file_list_of_chain(self.chain(segment), None)
        assert file_list is not None
        name = write_file_list(self.files, self.name, "uid", file_list)
        self.sealed[segment.name] = replace(self.sealed[segment.name], file_list=name)
        return paths.file_list(self.name, "uid", name)


def rows_of(count: int) -> pa.Table:
    """Rows as readers get them; the values count from 0."""
    batch = batch_of(count, 0)
    columns = list(batch.columns)
    columns.insert(2, pa.array([0] * count, pa.timestamp("us", "UTC")))
    return pa.Table.from_arrays(columns, schema=chunk_schema())


@dataclass
class GroupInMemory:
    """The leader's groups, with one group of one member: the test sets the assignment. Records every call."""

    positions: dict[str, int] = field(default_factory=dict)
    generation: int = 1
    epoch: str = "first"
    failures: dict[str, list[SmqError]] = field(default_factory=dict)
    """What the next calls of a method raise, in order."""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    lost: list[groups_pb2.GroupPositions.SegmentLoss] = field(default_factory=list)
    lost_with_replicas: list[groups_pb2.GroupPositions.SegmentLoss] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def _answer(self, method: str, request: Any, timeout: float | None = None) -> Any:
        with self._lock:
            self.calls.append((method, request))
            failures = self.failures.get(method)
            if failures:
                raise failures.pop(0)
            match method:
                case "JoinGroup":
                    return groups_pb2.GroupAssignment(
                        member=request.member,
                        generation=self.generation,
                        positions=self.positions,
                        epoch=self.epoch,
                        heartbeat_ms=3_600_000,  # only when the test or the member wants one
                    )
                case "CommitPositions":
                    if request.epoch != self.epoch:
                        raise StaleGeneration("the positions were set")
                    self.committed |= dict(request.positions)
                case "GetPositions":
                    return groups_pb2.GroupPositions(
                        positions=self.positions, lost=self.lost, lost_with_replicas=self.lost_with_replicas
                    )
            return None

    JoinGroup = partialmethod(_answer, "JoinGroup")
    LeaveGroup = partialmethod(_answer, "LeaveGroup")
    CommitPositions = partialmethod(_answer, "CommitPositions")
    GetPositions = partialmethod(_answer, "GetPositions")

    def assign(self, positions: Mapping[str, int]) -> None:
        """A new generation with this assignment, which the member learns with its next heartbeat."""
        with self._lock:
            self.generation += 1
            self.positions = dict(positions)

    def reset(self, positions: Mapping[str, int]) -> None:
        """An administrator sets the group's positions, while the leader does not know its members."""
        self.epoch += " and reset"
        self.assign(positions)

    def requests(self, method: str) -> list[Any]:
        with self._lock:
            return [request for name, request in self.calls if name == method]

    def acknowledged(self) -> int:
        """The generation that the member acknowledged with its last heartbeat."""
        return int(self.requests("JoinGroup")[-1].generation)

    def wait_for_heartbeat(self, after: int) -> None:
        """Waits until there were more heartbeats than that."""
        eventually(lambda: len(self.requests("JoinGroup")) > after, "a heartbeat")
